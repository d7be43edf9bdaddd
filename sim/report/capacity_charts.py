"""Charts of `gpufleet capacity`: simulated loads, capacities with their intervals, and cost at capacity."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from sim.language import N_, _
from sim.report.charts.chart import Chart
from sim.report.charts.panels import ChartCurve, ChartInterval, Limit, Panel, style
from sim.report.charts.picture import SOFT, KeyEntry, picture
from sim.report.charts.tornado import SideBar
from sim.report.charts.vega_bars import bar_figure
from sim.report.charts.vega_lite import PageFigure, panel_figure
from sim.report.words.money import cash, in_code, shown
from sim.report.words.service_level import exactly, load_label, name_of
from sim.report.words.text import LIMITS, percent, plain
from sim.scenario.slo import Slo
from sim.study.capacity import FleetCapacity, SimulatedLoad
from sim.study.load_axis import LoadAxis

GOOD_COST = "usd_per_million_good_tokens"
AT_CAPACITY = N_("At capacity: USD per million goodput tokens")
FAR = 2.5
"""Multiple of a limit above which values are drawn at the upper edge."""


def capacity_picture(
    found: Sequence[FleetCapacity],
    rows: Sequence[Mapping[str, Any]],
    axis: LoadAxis,
    slo: Slo,
    question: str,
    answer: str,
) -> Chart:
    """Return the picture of searches and capacities under *question* and *answer*."""
    key = [KeyEntry(name, *look) for name, look in style([one.fleet for one in found]).items()]
    figures = page_figures(found, rows, axis, slo, beyond=_("beyond the search"))
    return picture(figures, question, [answer], key)


def searches(found: Sequence[FleetCapacity], axis: LoadAxis, slo: Slo) -> list[Panel]:
    """Return charts of the goals at every simulated load: the share within limits, and each percentile with a limit."""
    able = [one for one in found if not one.reason]
    looks = style([one.fleet for one in found])
    panels = []
    if slo.per_request:
        limit = Limit(slo.attainment, _("target {exactly}", exactly=exactly(slo.attainment)))
        title = _("Requests within the SLO at every simulated load")
        panels.append(_search(able, axis, title, lambda load: load.slo_attainment, limit, looks, share=True))
    for one in slo.percentiles:
        limit = Limit(one.limit_s, _("SLO {limit_s} s", limit_s=plain(one.limit_s)))
        title = _("{name_of} [s] at every simulated load", name_of=name_of(one))
        panels.append(_search(able, axis, title, partial(_percentile, one.column), limit, looks))
    return panels


def _percentile(column: str, load: SimulatedLoad) -> float:
    """Return the percentile at a simulated load; nan, which is not drawn, without a value."""
    value = load.percentiles[column]
    return float("nan") if value is None else value


def _search(
    found: Sequence[FleetCapacity],
    axis: LoadAxis,
    title: str,
    read: Callable[[SimulatedLoad], float],
    limit: Limit,
    looks: Mapping[str, tuple[str, str]],
    share: bool = False,
) -> Panel:
    curves, spans = [], []
    for one in found:
        color, marker = looks[one.fleet]
        measured = (load for search in one.found for load in search.loads if not load.idle)
        simulated = sorted(measured, key=lambda attempt: attempt.load)
        values = tuple(map(read, simulated))
        near = tuple(share or value <= FAR * limit.at for value in values)
        names = tuple(f"{one.fleet}, {plain(attempt.load)}" for attempt in simulated)
        good, loads = tuple(attempt.meets for attempt in simulated), tuple(attempt.load for attempt in simulated)
        curves.append(
            ChartCurve("", color, loads, values, marker, "None", good=good, steady=near, fleet=one.fleet, names=names)
        )
        if isfinite(one.mean) and one.mean > 0:
            spans.append(
                ChartInterval(one.mean, one.half_width or 0.0, f"{one.fleet}: {plain(one.mean)}", color, one.fleet)
            )
    beyond = "" if share else _("; larger values are drawn at the upper edge")
    return Panel(
        title,
        _("filled: meets the SLO; line and band: capacity and its 95 % interval{beyond}", beyond=beyond),
        load_label(axis),
        tuple(curves),
        y_format=percent if share else plain,
        y_limit=limit,
        y_share=share,
        x_anchored=False,
        spans=tuple(spans),
        kind="capacity",
    )


def page_figures(
    found: Sequence[FleetCapacity], rows: Sequence[Mapping[str, Any]], axis: LoadAxis, slo: Slo, beyond: str = ""
) -> list[PageFigure]:
    """Return the charts of searches and capacities.

    *beyond* is the text for a capacity that was not found; empty: such a capacity is left out.
    """
    shown = [(one, row) for one, row in zip(found, rows, strict=True) if not one.reason]
    looks = style([one.fleet for one in found])
    wide = [replace(panel_figure(panel), wide=True) for panel in searches(found, axis, slo)]
    bars = []
    for column, title in (
        (axis.label, _("Capacity: {axis_label}", axis_label=load_label(axis))),
        (GOOD_COST, in_code(_(AT_CAPACITY))),
    ):
        optional_bars = [_side_bar(row, one, column, place, looks, beyond) for place, (one, row) in enumerate(shown)]
        drawn = [bar for bar in optional_bars if bar is not None]
        subtitle = _bars_subtitle(column == GOOD_COST)
        bars += [bar_figure(title, subtitle, drawn, title.partition(": ")[2], 0.0)] if drawn else []
    return [*wide, *bars]


def _side_bar(
    row: Mapping[str, Any],
    one: FleetCapacity,
    column: str,
    place: int,
    looks: Mapping[str, tuple[str, str]],
    beyond: str,
) -> SideBar | None:
    value, half = _amount(row, column), _amount(row, f"{column}_ci95")
    if value is None or not isfinite(value):
        return SideBar(place, one.fleet, 0.0, 0.0, SOFT, beyond if value else "", 0.0, True) if beyond else None
    text, color, around = _value_text(row, column, value, half), looks[one.fleet][0], half or 0.0
    return SideBar(place, one.fleet, 0.0, value, color, text, value + around, True, around, one.fleet)


def _value_text(row: Mapping[str, Any], column: str, value: float, half: float | None) -> str:
    dollars = column == GOOD_COST
    around = f" ± {plain(half, 2)}" if half else ""
    limit = "" if dollars else f"  {_(LIMITS.get(row['limited_by'], row['limited_by']) or '')}"
    return f"{cash(row[column]) if dollars else plain(value)}{around}{limit}"


def _bars_subtitle(dollars: bool) -> str:
    return _("with half of the 95 % interval") + ("" if dollars else _(", and what limits it"))


def _amount(row: Mapping[str, Any], column: str) -> float | None:
    """Return the value as drawn: money in the shown currency."""
    value: float | None = row[column]
    return shown(value) if value is not None and column.startswith("usd") else value
