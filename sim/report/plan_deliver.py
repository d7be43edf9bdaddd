"""From a scenario to the folder of its plan: simulate units, then tables, picture and page."""

from collections.abc import Sequence
from pathlib import Path

from sim.catalog.catalog import Catalog
from sim.report.folder import begin, written_together
from sim.report.plan_page import render_plan
from sim.report.plan_picture import write_plan_picture
from sim.report.plan_tables import write_months, write_summary
from sim.report.plan_verdict import verdict
from sim.report.text import first_sentence
from sim.scenario.schema import Scenario
from sim.study.capacity import LoadAxis
from sim.study.execute import Workplace
from sim.study.plan import Outlook, outlooks
from sim.study.points import POINTS, limits, resolved_plans
from sim.study.price import keep_scenario
from sim.study.store import discard_unfinished


def deliver_plan(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, relative: float, command: Sequence[str]
) -> list[Outlook]:
    """Plans every fleet and leaves tables, picture and page in *out*; simulated cases appear in `out/points`."""
    told = begin(out, scenario, command)
    try:
        found = outlooks(scenario, catalog, out, workplace, relative)
    finally:
        discard_unfinished(out / POINTS)
    with written_together(out, told) as folder:
        _write(folder, scenario, catalog, found)
    return found


def _write(folder: Path, scenario: Scenario, catalog: Catalog, found: Sequence[Outlook]) -> None:
    plan, axis = scenario.plan, LoadAxis.of(scenario).label
    assert plan is not None
    keep_scenario(folder, scenario)
    write_months(folder / "plan.csv", found, plan)
    write_summary(folder / "summary.csv", found)
    answer = verdict(found, plan)
    asked = first_sentence(scenario.question or scenario.name)[0]
    write_plan_picture(folder / "plan.png", found, plan, axis, asked, answer.headline)
    resolved = resolved_plans(scenario.model_copy(update={"sweep": None}), catalog)
    page = render_plan(found, plan, axis, resolved, limits(scenario), scenario.name, scenario.question, answer)
    (folder / "plan.html").write_text(page, encoding="utf-8")
