"""Every address of the workspace, and what answers there."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from sim.catalogue.catalog import load_catalog
from sim.deliver.folder import FolderBusy
from sim.infile import confined
from sim.language import ENGLISH, LANGUAGES, N_, _, current
from sim.report.page.template import words_of
from sim.serve.cost_gap import CauseRoutes
from sim.serve.exports import ExportRoutes
from sim.serve.finished_runs import AnswerRoutes, HeldRuns
from sim.serve.guard import HEALTH, Access, Guard
from sim.serve.jobs import JobRoutes, Limits, Queue
from sim.serve.refusals import WRONG_INPUT, Refused, broken, refused
from sim.serve.scenarios import ScenarioRoutes
from sim.serve.workspace import Workspace, program_folders

STATIC = Path(__file__).parent / "static"
TEXTS = (N_("Answers, scenarios, templates"), N_("Workspace"))
"""Texts of the page itself, as the page writes them."""


class App:
    """State that the requests of one server share."""

    def __init__(self, workspace: Workspace, access: Access, limits: Limits) -> None:
        self.workspace, self.access = workspace, access
        self.catalog = load_catalog()
        self.runs, self.queue = HeldRuns(workspace, self.catalog), Queue(workspace, limits)

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
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    @asynccontextmanager
    async def lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        """From start to end of the server, which goes on with the queue of an earlier one and ends what it runs."""
        self.queue.resume()
        yield
        self.queue.close()

    async def page(self, _request: Request) -> HTMLResponse:
        """The one page; what it shows stands in its address."""
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
    """The page with its own texts, and those that its scripts show, in the language that is spoken."""
    content = escape(json.dumps(words_of(STATIC.rglob("*.js")), ensure_ascii=False))
    page = page.replace('<html lang="en">', f'<html lang="{LANGUAGES[current()]}">')
    for text in TEXTS:
        page = page.replace(text, _(text))
    return page.replace("<title>", f'<meta name="words" content="{content}">\n<title>')


async def healthy(_request: Request) -> PlainTextResponse:
    """That the server runs."""
    return PlainTextResponse("ok\n")


def application(workspace: Workspace, access: Access, limits: Limits | None = None) -> ASGIApp:
    """Return the server of *workspace* behind its guard; it reads the workspace and what came with the program only."""
    handlers = dict.fromkeys((Refused, FolderBusy, *WRONG_INPUT), refused) | {Exception: broken}
    shared = App(workspace, access, limits or Limits())
    within = Middleware(Within, (workspace.root, *program_folders()))
    routes, lifespan = shared.routes(), shared.lifespan
    return Guard(Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan, middleware=[within]), access)


class Within:
    """Wraps the application: no request reads a file outside of *folders*."""

    def __init__(self, app: ASGIApp, folders: Sequence[Path]) -> None:
        self.app, self.folders = app, folders

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with confined(*self.folders):
            await self.app(scope, receive, send)
