"""Start of the workspace: a server on a folder, and a browser that shows it."""

import os
import socket
import sys
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from html import escape
from pathlib import Path
from urllib.parse import quote, urlencode

import uvicorn

from sim.deliver.shared.folder import manifest_of
from sim.scenario.reading.shipped import scenario_file
from sim.serve.app import application
from sim.serve.connection import OPTIONS as BOUNDS
from sim.serve.guard import Access
from sim.serve.queue.jobs import Limits
from sim.serve.refused import Refused
from sim.serve.workspace import Workspace

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
        **BOUNDS,
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
