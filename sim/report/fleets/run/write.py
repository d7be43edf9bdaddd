"""Everything that a run leaves in its folder, manifest.json aside."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from sim.report.fleets.run.year import write_year
from sim.report.fleets.timeline.panels import timeline_panels
from sim.report.words.text import first_sentence
from sim.report.words.units import counted
from sim.study.fidelity.marks import Worth
from sim.study.fleets.futures.draws import FutureStudy
from sim.study.fleets.futures.settings import disputes_of
from sim.study.fleets.run.paired import differences, of_one_model
from sim.study.fleets.run.point import FinishedCase, Point, has_money, service_points
from sim.study.fleets.run.summary import summarize
from sim.study.fleets.run.sweep import Sweep, sweep_of
from sim.study.fleets.run.tenants import COLUMNS as TENANT_COLUMNS
from sim.study.fleets.run.tenants import tenant_rows
from sim.study.fleets.run.year import RunYear
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
    year: Callable[[Sequence[Point], Sequence[str]], RunYear | None] = lambda *_: None,
    notes: Sequence[str] = (),
    futures: FutureStudy | None = None,
    worths: Callable[[Sequence[Point]], Mapping[str, Worth]] = lambda _: {},
    models: Mapping[str, str] | None = None,
) -> None:
    """Write the tables, resolved.yaml and, *with_pictures*, curves.png and report.html (and timeline.png,
    where replicas are switched or break down) into the folder *out*.

    *resolved* has one plain mapping per fleet or case (see sim.scenario.resolving.describe); *slo* the limits in
    seconds and `attainment`; *year* gives the year of all fleets from the points and the axes; *notes* what else
    qualifies the verdict; *futures* what was drawn; *worths* says, by key, how near points are to what was measured;
    *models* has the model of every fleet where they are ranked apart. Every file but the pictures is written case by
    case.
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
    of_year = year(points, axes)
    if of_year is not None:
        others = [axis for axis in axes if axis != of_year.plan.axis]
        write_year(out / "year.csv", of_year.rows, others, has_money(points))
    if futures is not None:
        write_futures(out, futures, axes)
    (out / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if with_pictures:
        disputes = () if futures is None else disputes_of(futures, points)
        told = partial(verdict, points, axes, slo, notes, of_year, models, disputes)
        panels, timeline, answer = _pictures(out, points, axes, slo, told, question or scenario_name)
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
            of_year,
            blocks(of_one_model(compared, answer.models), axes, slo),
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


def _pictures(
    out: Path,
    points: Sequence[Point],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    told: Callable[[], Verdict],
    asked: str,
) -> tuple[list[Panel], list[Panel], Verdict]:
    """Draws what there is to see; the charts of the page, and the answer."""
    sweep = sweep_of(points, axes)
    shown = _charts(points, sweep, axes, slo, told)
    with drawable() as same:
        pictured = shown if same else _charts(points, sweep, axes, slo, told)
        _draw(out, sweep, first_sentence(asked)[0], *pictured)
    return shown


def _charts(
    points: Sequence[Point], sweep: Sweep, axes: Sequence[str], slo: Mapping[str, Any], told: Callable[[], Verdict]
) -> tuple[list[Panel], list[Panel], Verdict]:
    """The charts of the points, those over time, and the answer."""
    panels, over_time = panels_of(points, axes, slo), timeline_panels(sweep, slo)
    return [*map(in_words, panels)], [*map(in_words, over_time)], told()


def _draw(
    out: Path, sweep: Sweep, asked: str, panels: Sequence[Panel], timeline: Sequence[Panel], answer: Verdict
) -> None:
    """curves.png and, where something changes with time, timeline.png."""
    write_curves(out / "curves.png", panels, sweep, asked, counted(answer.headline), answer.chart_note)
    if timeline:
        write_curves(out / "timeline.png", timeline, sweep, asked, counted(answer.headline), answer.chart_note)
