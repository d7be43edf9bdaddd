"""Every address of the workspace, and what answers there."""

from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from sim.catalogue.catalog import load_catalog
from sim.deliver.folder import FolderBusy
from sim.serve.answers import AnswerRoutes
from sim.serve.exports import ExportRoutes
from sim.serve.guard import HEALTH, Access, Guard
from sim.serve.held import HeldRuns
from sim.serve.refused import WRONG_INPUT, Refused, refused
from sim.serve.workspace import Workspace

STATIC = Path(__file__).parent / "static"


class App:
    """What the requests of one server share."""

    def __init__(self, workspace: Workspace, access: Access) -> None:
        self.workspace, self.access = workspace, access
        self.runs = HeldRuns(workspace, load_catalog())

    def routes(self) -> list[BaseRoute]:
        """By address."""
        return [
            Route(HEALTH, healthy),
            Route("/", self.page),
            Route("/api/workspace", self.listing),
            *AnswerRoutes(self.runs).routes(),
            *ExportRoutes(self.workspace).routes(),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    async def page(self, _: Request) -> HTMLResponse:
        """The one page; what it shows stands in its address."""
        text = (STATIC / "index.html").read_text(encoding="utf-8")
        return HTMLResponse(text.replace("CHANGE_TOKEN", self.access.change_token))

    def listing(self, _: Request) -> JSONResponse:
        """What there is to open."""
        found = self.workspace.listed()
        return JSONResponse(
            {
                "folder": str(self.workspace.root),
                "scenarios": found.scenarios,
                "runs": found.runs,
                "complete": found.complete,
            }
        )


async def healthy(_: Request) -> PlainTextResponse:
    """That the server runs."""
    return PlainTextResponse("ok\n")


def application(workspace: Workspace, access: Access) -> ASGIApp:
    """The server of *workspace*, behind its guard."""
    handlers = dict.fromkeys((Refused, FolderBusy, *WRONG_INPUT), refused)
    return Guard(Starlette(routes=App(workspace, access).routes(), exception_handlers=handlers), access)
