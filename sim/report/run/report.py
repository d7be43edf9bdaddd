"""Writing of the folder of a run, except manifest.json: report.html, tables and pictures.

report.html is one self-contained page that fetches nothing; its charts respond to the pointer.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sim.cost.revenue import Revenue
from sim.language import _, translate_rendered
from sim.report.assumptions import assumptions, build
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import Panel
from sim.report.charts.sweep_panels import curves, dashes, in_words, key_of, panels_of, scale_key
from sim.report.charts.vega_lite import PageCharts, panel_figures
from sim.report.monte_carlo import write_monte_carlo
from sim.report.monte_carlo_charts import monte_carlo_section
from sim.report.page.template import render as filled
from sim.report.prediction_accuracy import confidence_text, factors_text, marked, ring_key
from sim.report.run.key_figures import (
    NOTE,
    PairDifferences,
    axis_cells,
    axis_heads,
    blocks,
    columns_for,
    difference_table,
    figure,
    interval,
    limited_by,
    notes_for,
    standing,
    write_paired,
)
from sim.report.run.page_tables import (
    cost_bars,
    cost_table,
    glance,
    limit_bars,
    phase_table,
    power_table,
    showback_of,
    swatches,
    tenants_of,
)
from sim.report.run.tables import write_costs, write_requests, write_rows, write_services, write_summary, write_usage
from sim.report.run.timeline import timeline_panels
from sim.report.run.verdict import Verdict, verdict
from sim.report.run.year import write_year, year_table
from sim.report.sources import one_per_fleet, sources, weak_values
from sim.report.words.money import heading_mark
from sim.report.words.text import first_sentence, place, question_and_context
from sim.report.words.units import counted
from sim.scenario.sections.chargeback import Chargeback
from sim.scenario.slo import Slo
from sim.study.chargeback import KEYS as CHARGEBACK_COLUMNS
from sim.study.chargeback import chargeback_rows, charged_cases, showback_rows
from sim.study.comparison import differences, of_one_model
from sim.study.confidence import PredictionConfidence
from sim.study.monte_carlo import MonteCarloStudy, disputes_of
from sim.study.points import FinishedCase, Point, Sweep, has_money, service_points, summarize, sweep_of
from sim.study.tenants import COLUMNS as TENANT_COLUMNS
from sim.study.tenants import tenant_rows
from sim.study.year import RunYear
from sim.yamlio import dump

TEMPLATE = "run/report.html.j2"


def render(
    points: Sequence[Point],
    panels: Sequence[Panel],
    answer: Verdict,
    resolved: Sequence[Mapping[str, Any]],
    scenario_name: str,
    question: str,
    axes: Sequence[str],
    slo: Mapping[str, Any],
    year: RunYear | None = None,
    compared: Sequence[PairDifferences] = (),
    monte_carlo: Mapping[str, Any] | None = None,
    timeline: Sequence[Panel] = (),
    confidences: Mapping[str, PredictionConfidence] | None = None,
    tenants: Sequence[Mapping[str, Any]] = (),
    showback: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render report.html; the same arguments give the same bytes. *confidences*: confidence by key of a point."""
    confidences = confidences or {}
    level, sweep = Slo.model_validate(slo), sweep_of(points, axes)
    if year is not None and sweep.axis == year.plan.axis:
        sweep = sweep.at(year.plan.peak)
    plans = one_per_fleet(resolved)
    main_question, context = question_and_context(question, scenario_name)
    return filled(
        TEMPLATE,
        name=scenario_name,
        currency=heading_mark(),
        question=main_question,
        context=context,
        verdict=answer,
        swatches=swatches(sweep.fleets),
        fleets=sweep.fleets,
        scale=scale_key(sweep),
        settings={setting: _(line) for setting, line in dashes(sweep).items()},
        glance=glance(sweep, level, year, answer.models),
        charts=panel_figures(_in_pairs(marked(panels, confidences))),
        rings=ring_key(confidences.values()),
        timeline=panel_figures(timeline),
        drawn=PageCharts(details_of(points, axes, slo, confidences)),
        table=_table(points, axes, slo),
        services=_table(served, axes, slo) if (served := service_points(points)) else None,
        tenants=tenants_of(tenants, sweep, axes) if tenants else None,
        showback=showback_of(showback, sweep, axes) if showback else None,
        reference=place(sweep.axis, sweep.reference) if not sweep.single else "",
        costs=cost_bars(sweep),
        cost_table=cost_table(sweep),
        limits=limit_bars(sweep),
        compared=difference_table(compared),
        compared_note=_(NOTE),
        year=None if year is None else year_table(year, axes, level),
        monte_carlo=monte_carlo,
        phases=phase_table(sweep),
        power=power_table(sweep),
        build=build(plans),
        assumptions=assumptions(plans, slo, axes, points),
        weak=weak_values(resolved),
        values=[(plan["fleet"], plan["values"]) for plan in plans if plan.get("values")],
        sources=sources(resolved),
    )


def _in_pairs(panels: Sequence[Panel]) -> list[Panel]:
    """Reorder the charts of the picture's two rows for a page of two columns: the last chart of each row goes last."""
    half = len(panels) // 2
    if len(panels) < 6 or len(panels) % 2:
        return list(panels)
    return [*panels[: half - 1], *panels[half:-1], panels[half - 1], panels[-1]]


def _table(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any]) -> dict[str, Any]:
    columns = columns_for(points, slo)
    rows = []
    for index, point in enumerate(points):
        rows.append(
            {
                "fleet": point.fleet,
                "first": index == 0 or points[index - 1].fleet != point.fleet,
                "places": axis_cells(point, axes),
                "ok": point.ok,
                "reason": translate_rendered(point.row["reason"] or ""),
                "good": point.good,
                "standing": standing(point) if point.ok else "",
                "cells": [(figure(point, column), interval(point, column)) for column in columns],
                "limited_by": limited_by(point) if point.ok else "",
            }
        )
    heads = [(column.head, column.unit) for column in columns]
    return {"axes": axis_heads(axes), "heads": heads, "rows": rows, "notes": notes_for(points)}


def details_of(
    points: Sequence[Point],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    confidences: Mapping[str, PredictionConfidence],
) -> dict[str, Any]:
    """Return the details of every point, shown at its markers: all key figures with their intervals."""
    columns = columns_for(points, slo)
    found = {}
    for point in points:
        if not point.ok:
            continue
        rows = list(zip(axis_heads(axes), axis_cells(point, axes), strict=True))
        for column in columns:
            shown = f"{figure(point, column)} {interval(point, column)}".strip()
            rows += [(f"{column.head} [{column.unit}]" if column.unit else column.head, shown)] if shown else []
        rows += [(_("meets the SLO"), standing(point))] if standing(point) else []
        rows += [(_("limited by"), limited_by(point))] if limited_by(point) else []
        confidence = confidences.get(key_of(point))
        rows += [(_("basis"), confidence_text(confidence))] if confidence is not None else []
        rows += (
            [(_("80 % of servers"), factors_text(confidence))] if confidence is not None and confidence.factors else []
        )
        found[key_of(point)] = {"title": point.fleet, "rows": rows}
    return found


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
    monte_carlo: MonteCarloStudy | None = None,
    confidences: Callable[[Sequence[Point]], Mapping[str, PredictionConfidence]] = lambda _: {},
    models: Mapping[str, str] | None = None,
    chargeback: Chargeback | None = None,
    sold: Revenue | None = None,
) -> None:
    """Write all files of a run into the folder *out*, except manifest.json.

    Every file but the pictures is written case by case.

    Parameters
    ----------
    out
        Folder of the run.
    cases
        Finished cases, in the order of the tables.
    resolved
        One plain mapping per fleet or case (see sim.scenario.resolving.describe).
    scenario_name, question
        Title of the page, and the question that it answers.
    axes
        Names of the sweep axes.
    slo
        Limits [s] and `attainment`.
    requests_format
        Format of the table of requests: csv, parquet or none.
    with_pictures
        Whether curves.png and report.html are written (and timeline.png, where replicas are switched or fail).
    year
        Returns the year of all fleets from the points and the axes.
    notes
        Further sentences that qualify the verdict.
    monte_carlo
        Monte Carlo draws of the run.
    confidences
        Returns the confidence of points by their keys: how near they are to measured configurations.
    models
        Model of every fleet, where fleets are ranked per model.
    chargeback
        Rules by which tenants share the bill; None: it is not split.
    sold
        Prices of the tokens that are sold; None if the scenario states none.

    """
    points = summarize(cases, axes, slo)
    compared, of_year = differences(points), year(points, axes)
    if with_pictures:  # before the tables, since another process may draw them meanwhile
        disputes = () if monte_carlo is None else disputes_of(monte_carlo, points)
        make_verdict = partial(verdict, points, axes, slo, notes, of_year, models, disputes, sold)
        panels, timeline, answer = _pictures(out, points, axes, slo, make_verdict, question or scenario_name)
        section = None if monte_carlo is None else monte_carlo_section(out, monte_carlo, points, axes)
    _write_cases(out, cases, points, axes, requests_format)
    tenants = tenant_rows(cases, axes)
    if tenants:
        given = {name for row in tenants for name in row}
        columns = ["fleet", *axes, *(name for name in TENANT_COLUMNS if name in given)]
        write_rows(out / "tenants.csv", tenants, columns)
    charged = charged_cases(chargeback, cases)
    showback = showback_rows(charged, axes)
    if charged:
        write_rows(out / "chargeback.csv", chargeback_rows(charged), ["fleet", *axes, *CHARGEBACK_COLUMNS])
        write_rows(out / "showback.csv", showback)
    if compared:
        write_paired(out / "paired.csv", compared, axes)
    if of_year is not None:
        others = [axis for axis in axes if axis != of_year.plan.axis]
        write_year(out / "year.csv", of_year.rows, others, has_money(points))
    if monte_carlo is not None:
        write_monte_carlo(out, monte_carlo, axes)
    (out / "resolved.yaml").write_text(dump(list(resolved)), encoding="utf-8")
    if with_pictures:
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
            confidences(points),
            tenants,
            showback,
        )
        (out / "report.html").write_text(page, encoding="utf-8")


def _write_cases(
    out: Path, cases: Sequence[FinishedCase], points: Sequence[Point], axes: Sequence[str], requests_format: str
) -> None:
    """Write the tables of every run, and services.csv where the run has services."""
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
    make_verdict: Callable[[], Verdict],
    question: str,
) -> tuple[list[Panel], list[Panel], Verdict]:
    """Draw the pictures; return the charts of the page, those over time, and the verdict."""
    sweep = sweep_of(points, axes)
    shown = _charts(points, sweep, axes, slo, make_verdict)
    with drawable() as same:
        pictured = shown if same else _charts(points, sweep, axes, slo, make_verdict)
        _draw(out, sweep, first_sentence(question)[0], *pictured)
    return shown


def _charts(
    points: Sequence[Point],
    sweep: Sweep,
    axes: Sequence[str],
    slo: Mapping[str, Any],
    make_verdict: Callable[[], Verdict],
) -> tuple[list[Panel], list[Panel], Verdict]:
    """Return the charts of the points, those over time, and the verdict, in the shown language."""
    panels, over_time = panels_of(points, axes, slo), timeline_panels(sweep, slo)
    return [*map(in_words, panels)], [*map(in_words, over_time)], make_verdict()


def _draw(
    out: Path, sweep: Sweep, question: str, panels: Sequence[Panel], timeline: Sequence[Panel], answer: Verdict
) -> None:
    """Write curves.png and, where replicas change state, timeline.png."""
    arguments = (sweep, question, counted(answer.headline), answer.chart_note)
    curves(panels, *arguments).save(out / "curves.png")
    if timeline:
        curves(timeline, *arguments).save(out / "timeline.png")
