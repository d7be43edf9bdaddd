"""Everything that a run leaves in its folder, manifest.json aside."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.report.charts.curves import write_curves
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import Panel, in_words, panels_of
from sim.report.fleets.futures.section import futures_section
from sim.report.fleets.futures.tables import write_futures
from sim.report.fleets.run.html import render
from sim.report.fleets.run.paired import blocks, write_paired
from sim.report.fleets.run.tables import (
    write_costs,
    write_requests,
    write_rows,
    write_services,
    write_summary,
    write_usage,
)
from sim.report.fleets.run.verdict import Verdict, verdict
from sim.report.fleets.run.year import write_year, year_table
from sim.report.fleets.timeline.panels import timeline_panels
from sim.report.words.text import first_sentence
from sim.report.words.units import counted
from sim.scenario.sections.slo import Slo
from sim.scenario.year import YearPlan
from sim.study.fidelity.marks import Worth
from sim.study.fleets.futures.draws import FutureStudy
from sim.study.fleets.run.paired import differences
from sim.study.fleets.run.point import FinishedCase, Point, has_money, service_points
from sim.study.fleets.run.summary import summarize
from sim.study.fleets.run.sweep import Sweep, sweep_of
from sim.study.fleets.run.tenants import COLUMNS as TENANT_COLUMNS
from sim.study.fleets.run.tenants import tenant_rows
from sim.study.fleets.run.year import hourly_prices, year_rows
from sim.study.metrics.idle import IdleHour
from sim.yamlio import dump


def write_report(
    out: Path,
    cases: Sequence[FinishedCase],
    resolved: Sequence[Mapping[str, Any]],
    scenario_name: str,
    question: str,
    axes: Sequence[str],
    slo: Mapping[str, Any],
    requests_format: str,
    with_pictures: bool,
    year: YearPlan | None = None,
    idle: Sequence[IdleHour] = (),
    notes: Sequence[str] = (),
    futures: FutureStudy | None = None,
    worths: Callable[[Sequence[Point]], Mapping[str, Worth]] = lambda _: {},
) -> None:
    """Write the tables, resolved.yaml and, *with_pictures*, curves.png and report.html (and timeline.png,
    where replicas are switched or break down) into the folder *out*.

    *resolved* has one plain mapping per fleet or case (see sim.scenario.resolving.describe); *slo* the limits in
    seconds and `attainment`; *year* the hours of year.csv and *idle* those without load; *notes* what else qualifies
    the verdict; *futures* what was drawn; *worths* says, by key, how near points are to what was measured. Every file
    but the pictures is written case by case.
    """
    points = summarize(cases, axes, slo)
    tenants, compared = tenant_rows(cases, axes), differences(points)
    _write_cases(out, cases, points, axes, requests_format)
    if tenants:
        given = {name for row in tenants for name in row}
        columns = ["fleet", *axes, *(name for name in TENANT_COLUMNS if name in given)]
        write_rows(out / "tenants.csv", tenants, columns)
    if compared:
        write_paired(out / "paired.csv", compared, axes)
    table = None if year is None else _write_year(out, points, resolved, axes, slo, year, idle)
    if futures is not None:
        write_futures(out, futures, axes)
    (out / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if with_pictures:
        panels, timeline, answer = _pictures(out, points, axes, slo, notes, question or scenario_name)
        section = None if futures is None else futures_section(out, futures, points, axes)
        page = render(
            points,
            panels,
            answer,
            resolved,
            scenario_name,
            question,
            axes,
            slo,
            table,
            blocks(compared, axes, slo),
            section,
            timeline,
            worths(points),
            tenants,
        )
        (out / "report.html").write_text(page, encoding="utf-8")


def _write_cases(
    out: Path, cases: Sequence[FinishedCase], points: Sequence[Point], axes: Sequence[str], requests_format: str
) -> None:
    """The tables that every run has, and those of its services."""
    write_summary(out / "summary.csv", points, axes)
    if service_points(points):
        write_services(out / "services.csv", points, axes)
    write_requests(out, cases, axes, requests_format)
    write_usage(out / "usage.csv", cases, axes)
    write_costs(out / "costs.csv", cases, axes)


def _write_year(
    out: Path,
    points: Sequence[Point],
    resolved: Sequence[Mapping[str, Any]],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    year: YearPlan,
    idle: Sequence[IdleHour],
) -> dict[str, Any]:
    """year.csv, and the table of the page."""
    tariffs = {str(plan["fleet"]): hourly_prices(plan, year) for plan in resolved}
    rows = year_rows(points, axes, year, tariffs, idle)
    write_year(out / "year.csv", rows, [axis for axis in axes if axis != year.axis], has_money(points))
    return year_table(rows, axes, year, Slo.model_validate(slo))


def _pictures(
    out: Path,
    points: Sequence[Point],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    notes: Sequence[str],
    asked: str,
) -> tuple[list[Panel], list[Panel], Verdict]:
    """Draws what there is to see; the charts of the page, and the answer."""
    sweep = sweep_of(points, axes)
    told = _charts(points, sweep, axes, slo, notes)
    with drawable() as same:
        pictured = told if same else _charts(points, sweep, axes, slo, notes)
        _draw(out, sweep, first_sentence(asked)[0], *pictured)
    return told


def _charts(
    points: Sequence[Point], sweep: Sweep, axes: Sequence[str], slo: Mapping[str, Any], notes: Sequence[str]
) -> tuple[list[Panel], list[Panel], Verdict]:
    """The charts of the points, those over time, and the answer."""
    panels, over_time = panels_of(points, axes, slo), timeline_panels(sweep, slo)
    return [*map(in_words, panels)], [*map(in_words, over_time)], verdict(points, axes, slo, notes)


def _draw(
    out: Path, sweep: Sweep, asked: str, panels: Sequence[Panel], timeline: Sequence[Panel], answer: Verdict
) -> None:
    """curves.png and, where something changes with time, timeline.png."""
    write_curves(out / "curves.png", panels, sweep, asked, counted(answer.headline))
    if timeline:
        write_curves(out / "timeline.png", timeline, sweep, asked, counted(answer.headline))
