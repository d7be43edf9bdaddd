"""The answer to "what to buy, and when?": tables, picture and page."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sim.report.money.plan.page import render_plan
from sim.report.money.plan.picture import write_plan_picture
from sim.report.money.plan.tables import month_rows, summary_row, write_months, write_summary
from sim.report.money.plan.verdict import PlanVerdict, verdict
from sim.report.page.document import heading
from sim.report.words.exactness import undrawn
from sim.report.words.money import rate_notes
from sim.report.words.text import joined, question_of
from sim.report.words.units import verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.sections.compare import models_of
from sim.study.cases.points import limits
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.money.plan.plans import Outlook, demand_of


def plan_document(scenario: Scenario, found: Sequence[Outlook], out: str) -> dict[str, Any]:
    """The answer for `--format json`: the rows of summary.csv and of plan.csv."""
    answer = verdict_of_plan(scenario, found)
    return {
        **heading(scenario, out),
        "axis": LoadAxis.of(scenario).label,
        "verdict": verdict_in_units(answer.headline, (*answer.findings, *plan_rate_notes(scenario))),
        "fleets": [summary_row(one) for one in found],
        "months": [row for one in found for row in month_rows(one, demand_of(scenario))],
    }


def verdict_of_plan(scenario: Scenario, found: Sequence[Outlook]) -> PlanVerdict:
    """Return what the plans *found* of *scenario* come to in sentences."""
    told = verdict(found, demand_of(scenario), scenario.precision, models_of(scenario, scenario.compare))
    return replace(told, headline=joined([told.headline, *undrawn(scenario.futures is not None)]))


def plan_rate_notes(scenario: Scenario) -> list[str]:
    """Return what the plan says of its discount rate, where it states none of its own."""
    assert scenario.plan is not None
    return rate_notes(scenario) if scenario.plan.discount_rate is None else []


def write_plan(
    folder: Path,
    scenario: Scenario,
    found: Sequence[Outlook],
    resolved: Sequence[Mapping[str, Any]],
    remarks: Sequence[str],
    with_pictures: bool = True,
) -> None:
    """plan.csv, summary.csv and, *with_pictures*, plan.png and plan.html in *folder*."""
    plan, axis = demand_of(scenario), LoadAxis.of(scenario).label
    write_months(folder / "plan.csv", found, plan)
    write_summary(folder / "summary.csv", found)
    if not with_pictures:
        return
    answer = verdict_of_plan(scenario, found)
    answer = replace(answer, findings=(*answer.findings, *remarks))
    asked = question_of(scenario)
    write_plan_picture(folder / "plan.png", found, plan, axis, asked, answer.headline)
    by_hour = scenario.load_profile is not None
    page = render_plan(found, plan, axis, resolved, limits(scenario), scenario.name, scenario.question, answer, by_hour)
    (folder / "plan.html").write_text(page, encoding="utf-8")
