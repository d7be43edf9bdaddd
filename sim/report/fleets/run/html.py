"""report.html: one self-contained page that fetches nothing; its charts answer to the pointer."""

from collections.abc import Mapping, Sequence
from typing import Any

from sim.language import _, retold
from sim.report.charts.marks import marked, ring_key, worth_told
from sim.report.charts.panels import Panel, dashes, key_of
from sim.report.fleets.run.basis import assumptions, build, one_per_fleet, sources, weak_values
from sim.report.fleets.run.figures import (
    axis_cells,
    axis_heads,
    columns_for,
    figure,
    interval,
    limited_by,
    notes_for,
    standing,
)
from sim.report.fleets.run.paired import NOTE, Block, tables
from sim.report.fleets.run.sections import cost_bars, cost_table, glance, limit_bars, phase_table, swatches, tenants_of
from sim.report.fleets.run.verdict import Verdict
from sim.report.fleets.run.year import year_table
from sim.report.page.template import render as filled
from sim.report.vega.figures import Drawn, panel_figures
from sim.report.words.money import code
from sim.report.words.text import first_sentence, place
from sim.report.words.worth import factors_told
from sim.scenario.sections.slo import Slo
from sim.study.fidelity.marks import Worth
from sim.study.fleets.run.point import Point, service_points
from sim.study.fleets.run.sweep import sweep_of
from sim.study.fleets.run.year import RunYear

TEMPLATE = "fleets/run/report.html.j2"


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
    compared: Sequence[Block] = (),
    futures: Mapping[str, Any] | None = None,
    timeline: Sequence[Panel] = (),
    worths: Mapping[str, Worth] | None = None,
    tenants: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The page's text; the same arguments give the same bytes. *worths* by the key of a point."""
    worths = worths or {}
    level, sweep = Slo.model_validate(slo), sweep_of(points, axes)
    if year is not None and sweep.axis == year.plan.axis:
        sweep = sweep.at(year.plan.peak)
    plans = one_per_fleet(resolved)
    asked, context = first_sentence(question or scenario_name)
    return filled(
        TEMPLATE,
        name=scenario_name,
        currency=code(),
        question=asked,
        context=context,
        verdict=answer,
        swatches=swatches(sweep.fleets),
        fleets=sweep.fleets,
        settings={setting: _(line) for setting, line in dashes(sweep).items()},
        glance=glance(sweep, level, year, answer.models),
        charts=panel_figures(_in_pairs(marked(panels, worths))),
        rings=ring_key(worths.values()),
        timeline=panel_figures(timeline),
        drawn=Drawn(details_of(points, axes, slo, worths)),
        table=_table(points, axes, slo),
        services=_table(served, axes, slo) if (served := service_points(points)) else None,
        tenants=tenants_of(tenants, sweep, axes) if tenants else None,
        reference=place(sweep.axis, sweep.reference) if not sweep.single else "",
        costs=cost_bars(sweep),
        cost_table=cost_table(sweep),
        limits=limit_bars(sweep),
        compared=tables(compared),
        compared_note=_(NOTE),
        year=None if year is None else year_table(year, axes, level),
        futures=futures,
        phases=phase_table(sweep),
        build=build(plans),
        assumptions=assumptions(plans, slo, axes, points),
        weak=weak_values(resolved),
        values=[(plan["fleet"], plan["values"]) for plan in plans if plan.get("values")],
        sources=sources(resolved),
    )


def _in_pairs(panels: Sequence[Panel]) -> list[Panel]:
    """The picture's two rows, each ending in a chart of its own kind, for a page of two columns: those two go last."""
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
                "reason": retold(point.row["reason"] or ""),
                "good": point.good,
                "standing": standing(point) if point.ok else "",
                "cells": [(figure(point, column), interval(point, column)) for column in columns],
                "limited_by": limited_by(point) if point.ok else "",
            }
        )
    heads = [(column.head, column.unit) for column in columns]
    return {"axes": axis_heads(axes), "heads": heads, "rows": rows, "notes": notes_for(points)}


def details_of(
    points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any], worths: Mapping[str, Worth]
) -> dict[str, Any]:
    """What is shown where somebody points at a mark: all key figures of its point, with their intervals."""
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
        worth = worths.get(key_of(point))
        rows += [(_("basis"), worth_told(worth))] if worth is not None else []
        rows += [(_("80 % of servers"), factors_told(worth))] if worth is not None and worth.factors else []
        found[key_of(point)] = {"title": point.fleet, "rows": rows}
    return found
