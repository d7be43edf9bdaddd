"""Files of a finished answer, to take along. They are downloaded, never shown within our pages."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.deliver.export import BILLED, exported, why_no_export
from sim.deliver.shared.folder import is_finished, manifest_of
from sim.infile import confined_also, opened
from sim.language import N_, _
from sim.report.words.money import showing
from sim.serve.answers.files import write_file
from sim.serve.answers.held import HeldRuns
from sim.serve.answers.routes import asked_for, values_of
from sim.serve.refused import Refused
from sim.serve.workspace import WITH_PAGE

LOCKED = "sandbox; default-src 'none'"


class Kind(NamedTuple):
    """Form of an export."""

    name: str
    ending: str
    media: str
    stored: str = ""
    """File in the folder of the answer; empty where it is written on request."""


KINDS = {
    "xlsx": Kind(N_("Workbook"), ".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "csv": Kind(N_("Table, CSV"), ".csv", "text/csv; charset=utf-8", "summary.csv"),
    "focus": Kind(N_("FOCUS rows, CSV"), "-focus.csv", "text/csv; charset=utf-8"),
    "png": Kind(N_("Picture, PNG"), ".png", "image/png", "curves.png"),
    "svg": Kind(N_("Picture, SVG"), ".svg", "image/svg+xml"),
    "html": Kind(N_("Page, HTML"), ".html", "text/html; charset=utf-8", "report.html"),
    "yaml": Kind(N_("Scenario, YAML"), ".yaml", "application/yaml; charset=utf-8", "scenario.yaml"),
}
OF_BILLS = ("xlsx", "focus")


class ExportRoutes:
    """Routes of the exports of answers."""

    def __init__(self, runs: HeldRuns) -> None:
        self.runs = runs

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the exports, keyed by URL path."""
        return [Route("/api/exports", self.listed), Route("/export", self.export)]

    def listed(self, request: Request) -> JSONResponse:
        """The forms that the answer in *run* has."""
        folder = self._answer(request)
        found = [{"format": name, "name": _(kind.name)} for name, kind in KINDS.items() if not _why_not(folder, name)]
        return JSONResponse({"exports": found})

    def export(self, request: Request) -> Response:
        """Return one file under the values `set`. Raises Refused where the answer has no such form; ScenarioErrors."""
        folder, form, values = self._answer(request), asked_for(request, "format"), values_of(request)
        if form not in KINDS:
            raise Refused(400, f"{form[:40]!r} is no form of export: {', '.join(KINDS)} are")
        if reason := _why_not(folder, form):
            raise Refused(404, reason)
        kind, stored = KINDS[form], folder / _stored(folder, form)
        as_it_was = stored.is_file() and not values
        if as_it_was:
            with opened(stored) as file:
                content = file.read()
        else:
            content = self._made(request, folder, form, values)
        headers = {
            "content-disposition": f"attachment; filename*=utf-8''{quote(folder.name + kind.ending, safe='')}",
            "content-security-policy": LOCKED,
        }
        return Response(content, media_type=kind.media, headers=headers)

    def _made(self, request: Request, folder: Path, form: str, values: Mapping[str, Any]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as aside:
            file = Path(aside) / f"export{KINDS[form].ending}"
            if form in OF_BILLS and not values:  # of the folder alone, also of a run of an earlier version
                with self.runs.turn():
                    exported(folder, form, file)
                return file.read_bytes()
            found = self.runs.answer(asked_for(request, "run"), values)
            with self.runs.turn(), confined_also(Path(aside)), showing(found.scenario):
                write_file(form, file, folder, found, values, self.runs.catalog)
            return file.read_bytes()

    def _answer(self, request: Request) -> Path:
        name = asked_for(request, "run")
        folder = self.runs.workspace.folder(name)
        if not is_finished(folder):
            raise Refused(404, f"{name}: has not finished yet")
        return folder


def _command(folder: Path) -> str:
    """Return the command that wrote the answer in *folder*."""
    return str(((manifest_of(folder) or {}).get("question") or {}).get("command", ""))


def _stored(folder: Path, form: str) -> str:
    """The file of *form* in *folder*; empty where it is made when asked for."""
    command = _command(folder)
    return f"{command}.html" if form == "html" and command in WITH_PAGE else KINDS[form].stored


def _why_not(folder: Path, form: str) -> str:
    if form in OF_BILLS:
        with tempfile.TemporaryDirectory() as aside:
            return why_no_export(folder, form, Path(aside) / "file")
    stored = _stored(folder, form)
    if _command(folder) in BILLED or (stored and (folder / stored).is_file()):
        return ""
    return f"{folder.name} has no {stored or 'picture of that form'}"
