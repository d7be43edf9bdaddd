"""From a scenario to the folder of its plan: simulate units, then tables, picture and page."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.catalog.catalog import Catalog
from sim.report.document import heading
from sim.report.folder import begin, written_together
from sim.report.money import in_its_currency
from sim.report.plan_page import render_plan
from sim.report.plan_picture import write_plan_picture
from sim.report.plan_tables import month_rows, summary_row, write_months, write_summary
from sim.report.plan_verdict import verdict
from sim.report.progress import Progress
from sim.report.text import first_sentence
from sim.scenario.hostless import hostless_notes
from sim.scenario.schema import Scenario
from sim.study.capacity import LoadAxis, capacities
from sim.study.execute import Workplace
from sim.study.plan import Outlook, outlooks
from sim.study.plan_loads import part_loads
from sim.study.points import POINTS, limits, resolved_plans
from sim.study.price import keep_scenario
from sim.study.store import discard_unfinished


@in_its_currency
def deliver_plan(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float,
    quiet: bool = True,
    command: Sequence[str] = ("gpufleet", "plan"),
    force: bool = False,
) -> list[Outlook]:
    """Plans every fleet and leaves tables, picture and page in *out*; simulated cases appear in `out/points`.

    The capacity of a unit is found to within the fraction *relative*.
    """
    told = begin(out, scenario, command, "plan", force, relative=relative)
    try:
        with Progress(quiet, "searching capacities", "searches") as progress:
            most = capacities(scenario, catalog, out, workplace, relative, progress, scenario.precision)
        with Progress(quiet) as progress:
            measured = part_loads(scenario, catalog, most, out, workplace, progress)
    finally:
        discard_unfinished(out / POINTS)
    found = outlooks(scenario, catalog, most, measured)
    with written_together(out, told) as folder:
        _write(folder, scenario, catalog, found)
    return found


def plan_document(scenario: Scenario, found: Sequence[Outlook], out: str) -> dict[str, Any]:
    """The answer for `--format json`: the rows of summary.csv and of plan.csv."""
    assert scenario.plan is not None
    answer = verdict(found, scenario.plan, scenario.precision)
    return {
        **heading(scenario, out),
        "axis": LoadAxis.of(scenario).label,
        "verdict": {"headline": answer.headline, "findings": list(answer.findings)},
        "fleets": [summary_row(one) for one in found],
        "months": [row for one in found for row in month_rows(one, scenario.plan)],
    }


def _write(folder: Path, scenario: Scenario, catalog: Catalog, found: Sequence[Outlook]) -> None:
    plan, axis = scenario.plan, LoadAxis.of(scenario).label
    assert plan is not None
    keep_scenario(folder, scenario)
    write_months(folder / "plan.csv", found, plan)
    write_summary(folder / "summary.csv", found)
    answer = verdict(found, plan, scenario.precision)
    bare = hostless_notes(scenario, catalog)
    answer = replace(answer, findings=(*answer.findings, *bare))
    asked = first_sentence(scenario.question or scenario.name)[0]
    write_plan_picture(folder / "plan.png", found, plan, axis, asked, answer.headline)
    resolved = resolved_plans(scenario.model_copy(update={"sweep": None}), catalog)
    page = render_plan(found, plan, axis, resolved, limits(scenario), scenario.name, scenario.question, answer)
    (folder / "plan.html").write_text(page, encoding="utf-8")
