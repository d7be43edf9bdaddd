"""Downloads of a finished answer, also at prices and limits that the page has changed.

Files are sent as attachments; the page never displays them.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from sim.answers.export import BILLED, exported, why_no_export
from sim.answers.folder import is_finished, manifest_of
from sim.answers.jobs import run_work
from sim.answers.loaded import QuestionAnswer, QuestionAnswers
from sim.answers.questions import QUESTIONS
from sim.answers.run import price_run
from sim.catalogue.catalog import Catalog
from sim.infile import confined_also, opened
from sim.language import N_, _
from sim.message import Message
from sim.report.charts.panels import Panel
from sim.report.charts.sweep_panels import curves, in_words, panels_of
from sim.report.prediction_accuracy import confidences_by_key
from sim.report.run.key_figures import blocks
from sim.report.run.report import render
from sim.report.run.tables import write_requests, write_summary
from sim.report.run.verdict import Verdict, verdict_of
from sim.report.words.money import showing
from sim.report.words.precision import precision_notes
from sim.report.words.text import question_of
from sim.scenario.checks.hardware import gpus_without_server_notes
from sim.scenario.reading.layers import options
from sim.scenario.sweep import as_data
from sim.serve.finished_runs import LoadedRuns
from sim.serve.page_data import WorkAnswer
from sim.serve.parameters import required_parameter, values_of
from sim.serve.refusals import RefusedRequest
from sim.study.comparison import differences, of_one_model
from sim.study.execution.cases import resolved_plans
from sim.study.loaded_runs import SLO, RejudgedCase, RunAnswer
from sim.study.points import sweep_of
from sim.study.year import year_of
from sim.yamlio import dump

COMMAND = ("gpufleet", "serve")
PICTURES = ("png", "svg")
LEFT_OUT = "The Monte Carlo draws are left out of this page: gpufleet price writes them."


def write_file(
    form: str, file: Path, run: Path, found: RunAnswer | WorkAnswer, values: Mapping[str, Any], catalog: Catalog
) -> None:
    """Write *file*, the answer *found* of *run* under *values* in the format *form*. Raises RefusedRequest."""
    if form == "yaml":
        file.write_text(dump(as_data(found.scenario)), encoding="utf-8")
    elif form in ("xlsx", "focus"):
        exported(_billed(file.parent / run.name, run, found, values, catalog), form, file)
    elif isinstance(found, WorkAnswer):
        _write_work(form, file, found, catalog)
    else:
        _write_run(form, file, found, values, catalog)


def write_question(form: str, file: Path, run: Path, answers: QuestionAnswers, values: Mapping[str, Any]) -> None:
    """Write *file*, the answer of `breakeven` or `plan` in *run* under *values*, in the format *form*."""
    if form == "yaml":
        file.write_text(dump(as_data(answers.under(values).scenario)), encoding="utf-8")
        return
    folder = file.parent / run.name
    answers.write(folder, values, _serving(values), form == "html", _changed(values))
    if form in OF_BILLS:
        exported(folder, form, file)
    else:
        (folder / _stored(folder, form)).replace(file)


def _serving(values: Mapping[str, Any]) -> list[str]:
    """Return the command of an answer under *values*, as its manifest has it."""
    return [*COMMAND, *(word for one in options(values) for word in ("--set", one))]


def _changed(values: Mapping[str, Any]) -> list[str]:
    """Return the sentence that *values* have changed since the run; none without any."""
    changed = ", ".join(options(values))
    return [Message("Changed since the run: {changed}.", changed)] if changed else []


def _billed(
    folder: Path, run: Path, found: RunAnswer | WorkAnswer, values: Mapping[str, Any], catalog: Catalog
) -> Path:
    """Write the whole answer into *folder*, as a command does, and return it."""
    command = _serving(values)
    if isinstance(found, WorkAnswer):
        run_work(found.scenario, catalog, folder, report=False, command=command)
        return folder
    cases = price_run(run, found.scenario, catalog, folder, report=False, command=command)
    if any(path.partition(".")[0] == SLO for path in values):
        write_summary(folder / "summary.csv", found.points, found.axes)
        judged = [RejudgedCase.of(case, found.scenario.slo) for case in cases]
        write_requests(folder, judged, found.axes, found.scenario.requests)
    return folder


def _write_work(form: str, file: Path, found: WorkAnswer, catalog: Catalog) -> None:
    kind, scenario, rows = found.kind, found.scenario, found.rows
    if form in PICTURES:
        if not kind.panels(rows):
            raise RefusedRequest(404, "no fleet can do the work, and there is no picture of it")
        kind.figure(scenario, rows).save(file)
        return
    kind.write(file.parent, scenario, rows, kind.described(rows, catalog), form == "html")
    (file.parent / {"csv": "summary.csv", "html": "report.html"}[form]).replace(file)


def _write_run(form: str, file: Path, found: RunAnswer, values: Mapping[str, Any], catalog: Catalog) -> None:
    if form == "csv":
        write_summary(file, found.points, found.axes)
        return
    panels = [in_words(panel) for panel in panels_of(found.points, found.axes, found.slo)]
    verdict = verdict_of(found.scenario, catalog, found.points, _notes(found, values, catalog), found.disputes)
    if form == "html":
        file.write_text(_page(found, panels, verdict, catalog), encoding="utf-8")
    else:
        sweep = sweep_of(found.points, found.axes)
        curves(panels, sweep, question_of(found.scenario), verdict.headline, verdict.chart_note).save(file)


def _notes(found: RunAnswer, values: Mapping[str, Any], catalog: Catalog) -> list[str]:
    beyond = [LEFT_OUT] if found.scenario.futures else []
    return [
        *_changed(values),
        *beyond,
        *precision_notes(found.scenario, found.cases),
        *gpus_without_server_notes(found.scenario, catalog),
    ]


def _page(found: RunAnswer, panels: list[Panel], verdict: Verdict, catalog: Catalog) -> str:
    scenario, points, axes, slo = found.scenario, found.points, found.axes, found.slo
    plans = resolved_plans(scenario, catalog)
    compared = blocks(of_one_model(differences(points), verdict.models), axes, slo)
    confidences = confidences_by_key(scenario, catalog, points)
    year = year_of(scenario, catalog, points, axes)
    return render(
        points,
        panels,
        verdict,
        plans,
        scenario.name,
        scenario.question,
        axes,
        slo,
        year,
        compared,
        confidences=confidences,
    )


LOCKED_POLICY = "sandbox; default-src 'none'"


class ExportFormat(NamedTuple):
    """Format of an export."""

    name: str
    ending: str
    media: str
    stored: str = ""
    """Name of the file in the folder of the answer; empty: written on request."""


KINDS = {
    "xlsx": ExportFormat(N_("Workbook"), ".xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    "csv": ExportFormat(N_("Table, CSV"), ".csv", "text/csv; charset=utf-8", "summary.csv"),
    "focus": ExportFormat(N_("FOCUS rows, CSV"), "-focus.csv", "text/csv; charset=utf-8"),
    "png": ExportFormat(N_("Picture, PNG"), ".png", "image/png", "curves.png"),
    "svg": ExportFormat(N_("Picture, SVG"), ".svg", "image/svg+xml"),
    "html": ExportFormat(N_("Page, HTML"), ".html", "text/html; charset=utf-8", "report.html"),
    "yaml": ExportFormat(N_("Scenario, YAML"), ".yaml", "application/yaml; charset=utf-8", "scenario.yaml"),
}
OF_BILLS = ("xlsx", "focus")


class ExportRoutes:
    """Routes of the exports of answers."""

    def __init__(self, runs: LoadedRuns) -> None:
        self.runs = runs

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the exports, keyed by URL path."""
        return [Route("/api/exports", self.listed), Route("/export", self.export)]

    def listed(self, request: Request) -> JSONResponse:
        """Return the formats in which the requested answer can be exported."""
        folder = self._answer(request)
        found = [{"format": name, "name": _(kind.name)} for name, kind in KINDS.items() if not _why_not(folder, name)]
        return JSONResponse({"exports": found})

    def export(self, request: Request) -> Response:
        """Return a file under the values `set`.

        Raises RefusedRequest for a format that the answer lacks; ScenarioErrors.
        """
        folder, form, values = self._answer(request), required_parameter(request, "format"), values_of(request)
        if form not in KINDS:
            raise RefusedRequest(
                400, Message("{form!r} is not an export format: choose {kinds}", form[:40], ", ".join(KINDS))
            )
        if reason := _why_not(folder, form):
            raise RefusedRequest(404, reason)
        kind, stored = KINDS[form], folder / _stored(folder, form)
        as_it_was = stored.is_file() and not values
        if as_it_was:
            with opened(stored) as file:
                content = file.read()
        else:
            content = self._made(request, folder, form, values)
        headers = {
            "content-disposition": f"attachment; filename*=utf-8''{quote(folder.name + kind.ending, safe='')}",
            "content-security-policy": LOCKED_POLICY,
        }
        return Response(content, media_type=kind.media, headers=headers)

    def _made(self, request: Request, folder: Path, form: str, values: Mapping[str, Any]) -> bytes:
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as aside:
            file = Path(aside) / f"export{KINDS[form].ending}"
            if form in OF_BILLS and not values:  # reads only the folder, which also works for runs of other versions
                with self.runs.turn():
                    exported(folder, form, file)
                return file.read_bytes()
            run = required_parameter(request, "run")
            found = self.runs.answer(run, values)
            with self.runs.turn(), confined_also(Path(aside)), showing(found.scenario):
                if isinstance(found, QuestionAnswer):
                    write_question(form, file, folder, self.runs.question(run), values)
                else:
                    write_file(form, file, folder, found, values, self.runs.catalog)
            return file.read_bytes()

    def _answer(self, request: Request) -> Path:
        name = required_parameter(request, "run")
        folder = self.runs.workspace.folder(name)
        if not is_finished(folder):
            raise RefusedRequest(404, Message("{name}: has not finished yet", name))
        return folder


def _command(folder: Path) -> str:
    """Return the command that wrote the answer in *folder*."""
    return str(((manifest_of(folder) or {}).get("question") or {}).get("command", ""))


def _stored(folder: Path, form: str) -> str:
    """Return the name of the stored file of *form* in *folder*; empty where it is written on request."""
    command = _command(folder)
    return f"{command}.html" if form == "html" and command in QUESTIONS else KINDS[form].stored


def _why_not(folder: Path, form: str) -> str:
    if form in OF_BILLS:
        with tempfile.TemporaryDirectory() as aside:
            return why_no_export(folder, form, Path(aside) / "file")
    stored = _stored(folder, form)
    if _command(folder) in BILLED or (stored and (folder / stored).is_file()):
        return ""
    return f"{folder.name} has no {stored or 'picture of that form'}"
