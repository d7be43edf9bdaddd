"""HTTP server of the workspace: its routes, its start and its stop.

It runs until it is interrupted, bounds the connections of slow clients, and opens a browser.
"""

import asyncio
import json
import os
import socket
import sys
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sim.answers.folder import FolderBusy, manifest_of
from sim.catalogue.catalog import load_catalog, own_folders
from sim.infile import confined
from sim.language import ENGLISH, LANGUAGES, N_, _, current
from sim.message import Message, os_reason
from sim.report.charts.vega_lite import bundle
from sim.report.page.template import words_of
from sim.scenario.reading.shipped import scenario_file
from sim.scenario.schema import Scenario
from sim.serve.cost_gap import CauseRoutes
from sim.serve.exports import ExportRoutes
from sim.serve.finished_runs import AnswerRoutes, LoadedRuns
from sim.serve.guard import HEALTH, Access, Guard
from sim.serve.jobs import CommandQueue, JobLimits, JobRoutes
from sim.serve.refusals import WRONG_INPUT, RefusedRequest, broken, refused
from sim.serve.scenario_checks import CHECKS
from sim.serve.scenarios import ScenarioRoutes
from sim.serve.workspace import Workspace, program_folders

STATIC = Path(__file__).parent / "static"
VEGA = "/vega.js"
CACHE_CONTROL = "max-age=3600"
"""Header of the script that draws charts, which is large and the same for all pages."""
TEXTS = (N_("Answers, scenarios, templates"), N_("Workspace"))
"""Texts of the page itself, as the page writes them."""


class App:
    """Shared state of the requests of a server."""

    def __init__(self, workspace: Workspace, access: Access, limits: JobLimits, cluster: Sequence[str]) -> None:
        self.workspace, self.access = workspace, access
        self.catalog = load_catalog(own=own_folders(workspace.root / "scenario.yaml"))
        self.runs, self.queue = LoadedRuns(workspace, self.catalog), CommandQueue(workspace, limits, cluster)

    def routes(self) -> list[BaseRoute]:
        """Return all routes of the server."""
        return [
            Route(HEALTH, healthy),
            Route("/", self.page),
            Route("/api/workspace", self.listing),
            *AnswerRoutes(self.runs).routes(),
            *CauseRoutes(self.runs, self.queue).routes(),
            *ExportRoutes(self.runs).routes(),
            *ScenarioRoutes(self.workspace).routes(),
            *JobRoutes(self.workspace, self.queue).routes(),
            Route(VEGA, vega_script),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """Resume the queue of an earlier server at the start, and stop the running job at the end."""
        self.queue.resume()
        yield
        self.queue.close()

    async def page(self, _request: Request) -> HTMLResponse:
        """Return the page; its address contains the state that it shows."""
        text = (STATIC / "index.html").read_text(encoding="utf-8")
        text = text.replace("CHANGE_TOKEN", self.access.change_token)
        return HTMLResponse(text if current() == ENGLISH else _translated(text))

    def listing(self, _request: Request) -> JSONResponse:
        """Return the files that can be opened."""
        found = self.workspace.listed()
        return JSONResponse(
            {
                "folder": str(self.workspace.root),
                "scenarios": found.scenarios,
                "runs": found.runs,
                "complete": found.complete,
            }
        )


def _translated(page: str) -> str:
    """Translate the page's own texts, and embed the translations of its scripts' texts."""
    content = escape(json.dumps(words_of(STATIC.rglob("*.js")), ensure_ascii=False))
    page = page.replace('<html lang="en">', f'<html lang="{LANGUAGES[current()]}">')
    for text in TEXTS:
        page = page.replace(text, _(text))
    return page.replace("<title>", f'<meta name="words" content="{content}">\n<title>')


async def healthy(_request: Request) -> PlainTextResponse:
    """Confirm that the server runs."""
    return PlainTextResponse("ok\n")


async def vega_script(_request: Request) -> Response:
    """Return the script that draws charts; bundling it for the first time takes seconds."""
    return Response(
        await run_in_threadpool(bundle), media_type="text/javascript", headers={"cache-control": CACHE_CONTROL}
    )


def application(
    workspace: Workspace, access: Access, limits: JobLimits | None = None, cluster: Sequence[str] = ()
) -> ASGIApp:
    """Return the server of *workspace* behind its guard; it reads only the workspace and files of the program.

    *cluster* are the options of runs that name a cluster; without them, runs use the cores of this machine.
    """
    handlers = dict.fromkeys((RefusedRequest, FolderBusy, *WRONG_INPUT), refused) | {Exception: broken}
    shared = App(workspace, access, limits or JobLimits(), cluster)
    within = Middleware(ConfinedApp, (workspace.root, *program_folders()))
    routes, lifespan = shared.routes(), shared.lifespan
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan, middleware=[within]), access)


class ConfinedApp:
    """Wrapper of the application that confines the reading of requests to *folders*."""

    def __init__(self, app: ASGIApp, folders: Sequence[Path]) -> None:
        self.app, self.folders = app, folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with confined(*self.folders):
            await self.app(scope, receive, send)


MOST = 500
"""Largest number of connections; a further one replaces the longest silent one."""
LONGEST_HEADERS_S = 10
"""Time in which a connection has to send all headers of its next request [s]."""
LONGEST_UNREAD_S = 30
"""Time that a client may leave an answer unread [s]."""
MOST_HEADER_BYTES = 32_000
CHECK_INTERVAL_S = 1.0
"""Interval at which a connection is checked [s]."""


class BoundedConnection(H11Protocol):
    """HTTP connection that is closed where its client is too slow to send a request or to read the answer."""

    _silent_since: float | None = None
    """Time of the loop at which the connection began to wait for a request [s]; None while a request is answered."""
    _unread_since: float | None = None
    """Time of the loop at which the client stopped reading [s]; None while the client reads."""
    _look: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to watch the connection; with too many connections, close the one that has waited longest."""
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        silent = [one for one in self.connections if isinstance(one, BoundedConnection) and one._silent_since]
        if len(self.connections) > MOST and silent:
            min(silent, key=lambda one: one._silent_since or 0.0).transport.abort()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop watching the connection."""
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
            self._look = self.loop.call_later(CHECK_INTERVAL_S, self._watch)


OPTIONS: dict[str, Any] = {"http": BoundedConnection, "h11_max_incomplete_event_size": MOST_HEADER_BYTES}
"""Arguments of uvicorn.Config."""


SWITCH_S = 0.001
"""Interval after which a computing thread yields to other threads [s]."""


class CannotServe(Exception):
    """Error of a server that cannot start; the message states why."""


def opened(target: Path | None, workspace: Path | None) -> tuple[Workspace, dict[str, str]]:
    """Return the workspace of *target*, a scenario or a run's folder, and the parameters of the page that shows it.

    Without *workspace* it is the current folder, or the folder of *target* where that is elsewhere; a scenario that
    came with the program is opened as a copy. Raises CannotServe.
    """
    folder = workspace or Path.cwd()
    if not folder.is_dir():
        raise CannotServe(Message("--workspace {folder}: is not a folder", folder))
    if target is None:
        return Workspace(folder), {}
    file = scenario_file(target)
    if not file.exists():
        raise CannotServe(Message("{target}: there is no such scenario or run", target))
    if not target.exists():
        return Workspace(folder), {"template": file.stem}
    is_run = file.is_dir()
    if is_run and manifest_of(file) is None:
        raise CannotServe(Message("{target}: is not the folder of a gpufleet run", target))
    if workspace is None and not file.resolve().is_relative_to(folder.resolve()):
        folder = file.resolve().parent
    found = Workspace(folder)
    try:
        name = found.name_of(file.resolve())
        found.path(name)
    except RefusedRequest as error:
        raise CannotServe(f"{target}: {error}") from None
    return found, {"run" if is_run else "scenario": name}


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens on *host* and *port* (0: any free port). Raises CannotServe."""
    found = None
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        found = socket.socket(kind, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()  # readers of the printed address may connect at once
    except OSError as error:
        if found is not None:
            found.close()
        reason = os_reason(error)
        raise CannotServe(
            Message("{host}, port {port}: {reason}; --port names another, 0 takes a free one", host, port, reason)
        ) from None
    return found


def serve(
    workspace: Workspace,
    shown: dict[str, str],
    host: str,
    port: int,
    opens: bool,
    say: Callable[[str], None],
    is_open: bool = False,
    limits: JobLimits | None = None,
    cluster: Sequence[str] = (),
) -> None:
    """Serve *workspace* until interrupted; without a token if *is_open*. *say* receives the address."""
    waiting = listening(host, port)
    access = Access.of(host, waiting.getsockname()[1], is_open)
    query = shown if is_open else shown | {"token": access.token}
    shown_host = f"[{host}]" if ":" in host else host
    address = f"http://{shown_host}:{access.port}/" + (
        f"?{urlencode(query, quote_via=quote, safe='/')}" if query else ""
    )
    config = uvicorn.Config(
        application(workspace, access, limits, cluster),
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
        with suppress(KeyboardInterrupt):  # Ctrl-C is the usual way to stop the server
            threading.Thread(target=prepare, daemon=True).start()  # while the page is opened
            uvicorn.Server(config).run(sockets=[waiting])


def prepare() -> None:
    """Start the process of the first check, and build the schema of scenarios for the first answer."""
    CHECKS.prepare()
    Scenario.model_rebuild()


@contextmanager
def _leading_to(address: str) -> Iterator[str]:
    """Provide the address of a file that redirects to *address*.

    Other users see the arguments with which a browser is started, but cannot read the file.
    """
    with tempfile.NamedTemporaryFile("w", prefix="gpufleet-", suffix=".html", encoding="utf-8") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}">\n')
        file.flush()
        yield Path(file.name).as_uri()
