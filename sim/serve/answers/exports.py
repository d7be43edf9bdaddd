"""Files of a finished answer, to take along. They are downloaded, never shown within our pages."""

import tempfile
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.deliver.export import ENDINGS, exported, why_no_export
from sim.deliver.shared.folder import is_finished
from sim.serve.answers.routes import asked_for
from sim.serve.refused import Refused
from sim.serve.workspace import Workspace

LOCKED = "sandbox; default-src 'none'"


class Kind(NamedTuple):
    """One form of export."""

    name: str
    file: str
    """In the folder of the answer; empty: it is made when asked for."""
    media: str


KINDS = {
    "xlsx": Kind("Workbook", "", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "csv": Kind("Table, CSV", "summary.csv", "text/csv; charset=utf-8"),
    "focus": Kind("FOCUS rows, CSV", "", "text/csv; charset=utf-8"),
    "png": Kind("Picture, PNG", "curves.png", "image/png"),
    "html": Kind("Page, HTML", "report.html", "text/html; charset=utf-8"),
    "yaml": Kind("Scenario, YAML", "scenario.yaml", "application/yaml; charset=utf-8"),
}


class ExportRoutes:
    """What is asked of the folders of answers."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def routes(self) -> list[BaseRoute]:
        """By address."""
        return [Route("/api/exports", self.listed), Route("/export", self.export)]

    def listed(self, request: Request) -> JSONResponse:
        """The forms that the answer in *run* has."""
        folder = self._answer(request)
        found = [{"format": name, "name": kind.name} for name, kind in KINDS.items() if not self._why_not(folder, name)]
        return JSONResponse({"exports": found})

    def export(self, request: Request) -> Response:
        """One file. Raises Refused where the answer has none of that form."""
        folder, form = self._answer(request), asked_for(request, "format")
        if form not in KINDS:
            raise Refused(400, f"{form[:40]!r} is no form of export: {', '.join(KINDS)} are")
        if reason := self._why_not(folder, form):
            raise Refused(404, reason)
        kind = KINDS[form]
        content = (folder / kind.file).read_bytes() if kind.file else _made(folder, form)
        name = f"{folder.name}{Path(kind.file).suffix or ENDINGS[form]}"
        headers = {
            "content-disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}",
            "content-security-policy": LOCKED,
        }
        return Response(content, media_type=kind.media, headers=headers)

    def _answer(self, request: Request) -> Path:
        name = asked_for(request, "run")
        folder = self.workspace.folder(name)
        if not is_finished(folder):
            raise Refused(404, f"{name}: has not finished yet")
        return folder

    def _why_not(self, folder: Path, form: str) -> str:
        file = KINDS[form].file
        if file:
            return "" if (folder / file).is_file() else f"{folder.name} has no {file}"
        with tempfile.TemporaryDirectory() as aside:
            return why_no_export(folder, form, Path(aside) / "file")


def _made(folder: Path, form: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as aside:
        file = Path(aside) / f"export{ENDINGS[form]}"
        exported(folder, form, file)
        return file.read_bytes()
