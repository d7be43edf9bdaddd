"""A held answer as files, under the prices and limits that are moved."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.deliver.export import exported
from sim.deliver.run import price_run
from sim.deliver.work import run_work
from sim.report.charts.curves import curves
from sim.report.charts.fonts import settings
from sim.report.charts.marks import worths_by_key
from sim.report.charts.panels import Panel, in_words, panels_of
from sim.report.fleets.run.html import render
from sim.report.fleets.run.paired import blocks
from sim.report.fleets.run.tables import write_requests, write_summary
from sim.report.fleets.run.verdict import Verdict, verdict_of
from sim.report.words.exactness import precision_notes
from sim.report.words.text import question_of
from sim.scenario.checks.hostless import hostless_notes
from sim.scenario.reading.given import options
from sim.scenario.sweep import as_data
from sim.serve.answers.work import WorkAnswer
from sim.serve.refused import Refused
from sim.study.cases.points import resolved_plans
from sim.study.fleets.held.answer import SLO, Answer
from sim.study.fleets.held.limits import Judged
from sim.study.fleets.run.paired import differences, of_one_model
from sim.study.fleets.run.sweep import sweep_of
from sim.study.fleets.run.year import year_of
from sim.yamlio import dump

COMMAND = ("gpufleet", "serve")
METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}}
"""Of pictures: the same picture is the same bytes."""
LEFT_OUT = "The Monte Carlo draws are left out of this page: gpufleet price writes them."


def write_file(
    form: str, file: Path, run: Path, found: Answer | WorkAnswer, values: Mapping[str, Any], catalog: Catalog
) -> None:
    """Writes *file*, the answer *found* of *run* under *values* in a form of export. Raises Refused."""
    if form == "yaml":
        file.write_text(dump(as_data(found.scenario)), encoding="utf-8")
    elif form in ("xlsx", "focus"):
        exported(_billed(file.parent / run.name, run, found, values, catalog), form, file)
    elif isinstance(found, WorkAnswer):
        _write_work(form, file, found, catalog)
    else:
        _write_run(form, file, found, values, catalog)


def _billed(folder: Path, run: Path, found: Answer | WorkAnswer, values: Mapping[str, Any], catalog: Catalog) -> Path:
    """*folder* with the whole answer, as a command leaves it."""
    command = [*COMMAND, *(word for one in options(values) for word in ("--set", one))]
    if isinstance(found, WorkAnswer):
        run_work(found.scenario, catalog, folder, report=False, command=command)
        return folder
    cases = price_run(run, found.scenario, catalog, folder, report=False, command=command)
    if any(path.partition(".")[0] == SLO for path in values):
        write_summary(folder / "summary.csv", found.points, found.axes)
        judged = [Judged.of(case, found.scenario.slo) for case in cases]
        write_requests(folder, judged, found.axes, found.scenario.requests)
    return folder


def _write_work(form: str, file: Path, found: WorkAnswer, catalog: Catalog) -> None:
    kind, scenario, rows = found.kind, found.scenario, found.rows
    if form in METADATA:
        if not kind.panels(rows):
            raise Refused(404, "no fleet can do the work, and there is no picture of it")
        _draw(kind.figure(scenario, rows), form, file)
        return
    kind.write(file.parent, scenario, rows, kind.described(rows, catalog), form == "html")
    (file.parent / {"csv": "summary.csv", "html": "report.html"}[form]).replace(file)


def _write_run(form: str, file: Path, found: Answer, values: Mapping[str, Any], catalog: Catalog) -> None:
    if form == "csv":
        write_summary(file, found.points, found.axes)
        return
    panels = [in_words(panel) for panel in panels_of(found.points, found.axes, found.slo)]
    told = verdict_of(found.scenario, catalog, found.points, _notes(found, values, catalog), found.disputes)
    if form == "html":
        file.write_text(_page(found, panels, told, catalog), encoding="utf-8")
    else:
        sweep = sweep_of(found.points, found.axes)
        _draw(curves(panels, sweep, question_of(found.scenario), told.headline, told.chart_note), form, file)


def _notes(found: Answer, values: Mapping[str, Any], catalog: Catalog) -> list[str]:
    changed = ", ".join(f"{path}={value}" for path, value in values.items())
    moved = [f"Moved since the run: {changed}."] if changed else []
    beyond = [LEFT_OUT] if found.scenario.futures else []
    return [*moved, *beyond, *precision_notes(found.scenario, found.cases), *hostless_notes(found.scenario, catalog)]


def _page(found: Answer, panels: list[Panel], told: Verdict, catalog: Catalog) -> str:
    scenario, points, axes, slo = found.scenario, found.points, found.axes, found.slo
    plans = resolved_plans(scenario, catalog)
    compared = blocks(of_one_model(differences(points), told.models), axes, slo)
    worths = worths_by_key(scenario, catalog, points)
    year = year_of(scenario, catalog, points, axes)
    return render(
        points, panels, told, plans, scenario.name, scenario.question, axes, slo, year, compared, worths=worths
    )


def _draw(figure: Any, form: str, file: Path) -> None:
    with settings():
        figure.savefig(file, format=form, metadata=METADATA[form])
