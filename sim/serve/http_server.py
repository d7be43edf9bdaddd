"""The HTTP server of the workspace: its socket, connections that a slow client cannot keep, and a browser.

It serves a folder until it is interrupted.
"""

import asyncio
import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sim.deliver.folder import manifest_of
from sim.scenario.reading.shipped import scenario_file
from sim.serve.app import application
from sim.serve.guard import Access
from sim.serve.jobs import Limits
from sim.serve.refusals import Refused
from sim.serve.workspace import Workspace

MOST = 500
"""Connections at once; a further one takes the place of the one that has been silent for longest."""
LONGEST_HEADERS_S = 10
"""Time in which a connection has to bring the whole headers of its next request [s]."""
LONGEST_UNREAD_S = 30
"""Time that a client may leave an answer unread [s]."""
MOST_HEADER_BYTES = 32_000
LOOKS_S = 1.0


class BoundedConnection(H11Protocol):
    """HTTP connection that is cut off where its client takes too long to ask, or to read the answer."""

    _silent_since: float | None = None
    """Time of the loop at which the connection began to wait for a request [s]; None while a request is answered."""
    _unread_since: float | None = None
    """Time of the loop at which the client stopped reading [s]; None while the client reads."""
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the connection; where there are too many, cut off the one that waits for longest."""
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        silent = [one for one in self.connections if isinstance(one, BoundedConnection) and one._silent_since]
        if len(self.connections) > MOST and silent:
            min(silent, key=lambda one: one._silent_since or 0.0).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the watch."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read *data*, and record whether a request is complete."""
        super().data_received(data)
        self._note()

    def pause_writing(self) -> None:
        """Record that the client does not read."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """Record that the client reads again."""
        self._unread_since = None
        super().resume_writing()

    def _note(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = self.loop.time()

    def _watch(self) -> None:
        self._note()
        now = self.loop.time()
        if self.transport.is_closing() and self._unread_since is None:
            self._unread_since = now
        silent_s = now - (self._silent_since or now)
        unread_s = now - (self._unread_since or now)
        if silent_s > LONGEST_HEADERS_S or unread_s > LONGEST_UNREAD_S:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(LOOKS_S, self._watch)


OPTIONS: dict[str, Any] = {"http": BoundedConnection, "h11_max_incomplete_event_size": MOST_HEADER_BYTES}
"""Arguments of uvicorn.Config."""


SWITCH_S = 0.001
"""Time after which a thread that computes lets the pages have their turn [s]."""


class CannotServe(Exception):
    """Nothing is served; the message says why."""


def opened(target: Path | None, workspace: Path | None) -> tuple[Workspace, dict[str, str]]:
    """The workspace for *target*, a scenario or the folder of a run, and what the page shows of it.

    Without *workspace* it is the current folder, or the one that *target* lies in where that is elsewhere; a scenario
    that came with the program is opened as a copy. Raises CannotServe.
    """
    folder = workspace or Path.cwd()
    if not folder.is_dir():
        raise CannotServe(f"--workspace {folder}: is no folder")
    if target is None:
        return Workspace(folder), {}
    file = scenario_file(target)
    if not file.exists():
        raise CannotServe(f"{target}: there is no such scenario or run")
    if not target.exists():
        return Workspace(folder), {"template": file.stem}
    is_run = file.is_dir()
    if is_run and manifest_of(file) is None:
        raise CannotServe(f"{target}: is no folder of a gpufleet run")
    if workspace is None and not file.resolve().is_relative_to(folder.resolve()):
        folder = file.resolve().parent
    found = Workspace(folder)
    try:
        name = found.name_of(file.resolve())
        found.path(name)
    except Refused as error:
        raise CannotServe(f"{target}: {error}") from None
    return found, {"run" if is_run else "scenario": name}


def listening(host: str, port: int) -> socket.socket:
    """A socket that waits on *host* and *port* (0: any free one). Raises CannotServe."""
    found = None
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        found = socket.socket(kind, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()  # who reads the address may connect at once
    except OSError as error:
        if found is not None:
            found.close()
        reason = (error.strerror or str(error)).lower()
        raise CannotServe(f"{host}, port {port}: {reason}; --port names another, 0 takes a free one") from None
    return found


def serve(
    workspace: Workspace,
    shown: dict[str, str],
    host: str,
    port: int,
    opens: bool,
    say: Callable[[str], None],
    is_open: bool = False,
    limits: Limits | None = None,
) -> None:
    """Serve *workspace* until it is interrupted; without a token where it *is_open*. *say* gets the address."""
    waiting = listening(host, port)
    access = Access.of(host, waiting.getsockname()[1], is_open)
    query = shown if is_open else shown | {"token": access.token}
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{access.port}/" + (
        f"?{urlencode(query, quote_via=quote, safe='/')}" if query else ""
    )
    config = uvicorn.Config(
        application(workspace, access, limits),
        log_level="warning",
        access_log=False,
        lifespan="on",
        server_header=False,
        ws="none",
        timeout_graceful_shutdown=2,
        **OPTIONS,
    )
    sys.setswitchinterval(SWITCH_S)
    say(address)
    with ExitStack() as opened_page:
        if opens and (sys.platform == "darwin" or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()):
            webbrowser.open(opened_page.enter_context(_leading_to(address)))
        with suppress(KeyboardInterrupt):  # how a server is ended
            uvicorn.Server(config).run(sockets=[waiting])


@contextmanager
def _leading_to(address: str) -> Iterator[str]:
    """The address of a file that leads to *address*: other users see what a browser is started with, but cannot read
    the file.
    """
    with tempfile.NamedTemporaryFile("w", prefix="gpufleet-", suffix=".html", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        file.flush()
        yield Path(file.name).as_uri()
