"""capacity.png: what was simulated to find each fleet's capacity, the capacity with its interval, and its price."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

from sim.language import N_, _
from sim.report.charts.drawing import FAINT, GLYPH, HEAD, INK, NORMAL, SMALL, SOFT, draw, figure_of, write_png
from sim.report.charts.fonts import glyphs, lines_of, settings
from sim.report.charts.panels import ChartCurve, Limit, Panel, Span, style
from sim.report.charts.tornado import SideBar
from sim.report.charts.vega_bars import bar_figure
from sim.report.charts.vega_lite import PageFigure, panel_figure
from sim.report.words.money import cash, in_code, money_mark, shown
from sim.report.words.service_level import exactly, load_label, name_of
from sim.report.words.text import LIMITS, percent, plain
from sim.scenario.slo import Slo
from sim.study.capacity import Capacity, TriedLoad
from sim.study.load_axis import LoadAxis

WIDTH_IN, SEARCH_IN, ROW_IN = 11.6, 3.0, 0.34
LEFT_IN, RIGHT_IN, GAP_IN = 0.75, 0.3, 0.9
ABOVE_IN, BELOW_IN = 0.55, 0.55
"""Around a plot area, for its title and its axis."""
GOOD_COST = "usd_per_million_good_tokens"
AT_CAPACITY = N_("At capacity: USD per million goodput tokens")
FAR = 2.5
"""What lies beyond this multiple of a limit is drawn at the upper edge."""


def write_picture(
    path: Path,
    found: Sequence[Capacity],
    rows: Sequence[Mapping[str, Any]],
    axis: LoadAxis,
    slo: Slo,
    question: str,
    answer: str,
) -> None:
    """The picture with *question* and *answer* above it."""
    write_png(path, picture(found, rows, axis, slo, question, answer))


def picture(
    found: Sequence[Capacity],
    rows: Sequence[Mapping[str, Any]],
    axis: LoadAxis,
    slo: Slo,
    question: str,
    answer: str,
) -> Any:
    """A matplotlib figure of searches and capacities under *question* and *answer*."""
    with settings():
        lines = [(text, 14.0, INK, 0.26) for text in _wrap(question, 14.0)]
        lines += [(text, HEAD, SOFT, 0.2) for text in _wrap(answer, HEAD)]
        figure = _figure(found, rows, axis, slo, sum(step for *_, step in lines) + 0.25)
        width, height = figure.get_size_inches()
        y = height - 0.2
        for text, size, color, step in lines:
            figure.text(0.2 / width, y / height, text, fontsize=size, color=color, va="top")
            y -= step
    return figure


def _wrap(text: str, size: float) -> list[str]:
    return lines_of(text, int((WIDTH_IN - 0.4) / (GLYPH * size)))


def _figure(
    found: Sequence[Capacity], rows: Sequence[Mapping[str, Any]], axis: LoadAxis, slo: Slo, head_in: float
) -> Any:
    """Search above, over the full width; below it one row per fleet: capacity left and, with a cost, price right."""
    shown = [(one, row) for one, row in zip(found, rows, strict=True) if not one.reason]
    bars_in = ROW_IN * len(shown) + 0.1
    panels = searches(found, axis, slo)
    each_in = ABOVE_IN + BELOW_IN + SEARCH_IN
    height = head_in + ABOVE_IN + BELOW_IN + bars_in + len(panels) * each_in
    figure = figure_of(WIDTH_IN, height)
    looks = style([one.fleet for one in found])

    def place(left: float, bottom: float, width: float, tall: float) -> Any:
        return figure.add_axes((left / WIDTH_IN, bottom / height, width / WIDTH_IN, tall / height))

    names_in = 0.35 + max(glyphs(one.fleet) for one, _ in shown) * GLYPH * NORMAL * 1.13
    whole_in = WIDTH_IN - LEFT_IN - RIGHT_IN
    for above, panel in enumerate(reversed(panels)):
        bottom = 2 * BELOW_IN + ABOVE_IN + bars_in + above * each_in
        draw(place(LEFT_IN, bottom, whole_in, SEARCH_IN), panel)
    money = any(row[GOOD_COST] is not None for _, row in shown)
    bar_in = (WIDTH_IN - names_in - RIGHT_IN - (GAP_IN if money else 0)) / (2 if money else 1)
    title = _("Capacity: {axis_label}", axis_label=load_label(axis))
    _bars(place(names_in, BELOW_IN, bar_in, bars_in), shown, looks, axis.label, title, plain, names=True)
    if money:
        left = names_in + bar_in + GAP_IN
        title = in_code(_(AT_CAPACITY))
        _bars(place(left, BELOW_IN, bar_in, bars_in), shown, looks, GOOD_COST, title, money_mark, names=False)
    return figure


def searches(found: Sequence[Capacity], axis: LoadAxis, slo: Slo) -> list[Panel]:
    """What was read at every load: the share within the limits of each request, and every percentile with a limit."""
    able = [one for one in found if not one.reason]
    looks = style([one.fleet for one in found])
    panels = []
    if slo.per_request:
        limit = Limit(slo.attainment, _("target {exactly}", exactly=exactly(slo.attainment)))
        title = _("Requests within the SLO at every simulated load")
        panels.append(_search(able, axis, title, lambda tried: tried.slo_attainment, limit, looks, share=True))
    for one in slo.percentiles:
        limit = Limit(one.limit_s, _("SLO {limit_s} s", limit_s=plain(one.limit_s)))
        title = _("{name_of} [s] at every simulated load", name_of=name_of(one))
        panels.append(_search(able, axis, title, partial(_percentile, one.column), limit, looks))
    return panels


def _percentile(column: str, tried: TriedLoad) -> float:
    """nan, which is not drawn, without a value."""
    value = tried.percentiles[column]
    return float("nan") if value is None else value


def _search(
    found: Sequence[Capacity],
    axis: LoadAxis,
    title: str,
    read: Callable[[TriedLoad], float],
    limit: Limit,
    looks: Mapping[str, tuple[str, str]],
    share: bool = False,
) -> Panel:
    curves, spans = [], []
    for one in found:
        color, marker = looks[one.fleet]
        measured = (load for search in one.found for load in search.tried if not load.idle)
        tried = sorted(measured, key=lambda attempt: attempt.load)
        values = tuple(map(read, tried))
        near = tuple(share or value <= FAR * limit.at for value in values)
        names = tuple(f"{one.fleet}, {plain(attempt.load)}" for attempt in tried)
        good, loads = tuple(attempt.meets for attempt in tried), tuple(attempt.load for attempt in tried)
        curves.append(
            ChartCurve("", color, loads, values, marker, "None", good=good, steady=near, fleet=one.fleet, names=names)
        )
        if isfinite(one.mean) and one.mean > 0:
            spans.append(Span(one.mean, one.half_width or 0.0, f"{one.fleet}: {plain(one.mean)}", color, one.fleet))
    beyond = "" if share else _("; what is larger lies at the upper edge")
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
    found: Sequence[Capacity], rows: Sequence[Mapping[str, Any]], axis: LoadAxis, slo: Slo
) -> list[PageFigure]:
    """The same on a page."""
    shown = [(one, row) for one, row in zip(found, rows, strict=True) if not one.reason]
    looks = style([one.fleet for one in found])
    wide = [replace(panel_figure(panel), wide=True) for panel in searches(found, axis, slo)]
    bars = []
    for column, title in (
        (axis.label, _("Capacity: {axis_label}", axis_label=load_label(axis))),
        (GOOD_COST, in_code(_(AT_CAPACITY))),
    ):
        held = [_side_bar(row, one, column, place, looks) for place, (one, row) in enumerate(shown)]
        drawn = [bar for bar in held if bar is not None]
        subtitle = _bars_subtitle(column == GOOD_COST)
        bars += [bar_figure(title, subtitle, drawn, title.partition(": ")[2], 0.0)] if drawn else []
    return [*wide, *bars]


def _side_bar(
    row: Mapping[str, Any], one: Capacity, column: str, place: int, looks: Mapping[str, tuple[str, str]]
) -> SideBar | None:
    value, half = _amount(row, column), _amount(row, f"{column}_ci95")
    if value is None or not isfinite(value):
        return None
    text, color, around = _value_text(row, column, value, half), looks[one.fleet][0], half or 0.0
    return SideBar(place, one.fleet, 0.0, value, color, text, value + around, True, around, one.fleet)


def _value_text(row: Mapping[str, Any], column: str, value: float, half: float | None) -> str:
    dollars = column == GOOD_COST
    around = f" ± {plain(half, 2)}" if half else ""
    limit = "" if dollars else f"  {_(LIMITS.get(row['limited_by'], row['limited_by']) or '')}"
    return f"{cash(row[column]) if dollars else plain(value)}{around}{limit}"


def _bars_subtitle(dollars: bool) -> str:
    return _("with half of the 95 % interval") + ("" if dollars else _(", and what limits it"))


def _bars(
    axes: Any,
    fleets: Sequence[tuple[Capacity, Mapping[str, Any]]],
    looks: Mapping[str, Any],
    column: str,
    title: str,
    tick: Any,
    names: bool,
) -> None:
    """One dot with its interval per fleet, its value and what limits it beside it."""
    dollars = column == GOOD_COST
    for place, (one, row) in enumerate(fleets):
        value, half = _amount(row, column), _amount(row, f"{column}_ci95")
        color, marker = looks[one.fleet]
        if value is None or not isfinite(value):
            text = _("beyond the search") if value else ""
            axes.annotate(text, (0, place), (4, 0), textcoords="offset points", va="center", fontsize=SMALL, color=SOFT)
            continue
        axes.hlines(place, 0, value, color=color, linewidth=1.0, alpha=0.35)
        axes.errorbar(
            value,
            place,
            xerr=None if half is None else [[min(half, value)], [half]],
            color=color,
            marker=marker,
            markersize=7,
            elinewidth=1.8,
            capsize=4,
            clip_on=False,
        )
        axes.annotate(_value_text(row, column, value, half), (value + (half or 0.0), place), (9, 0), color=INK,
                      va="center", textcoords="offset points", fontsize=SMALL)  # fmt: skip
    values = [(_amount(row, column), _amount(row, f"{column}_ci95")) for _, row in fleets]
    ends = [value + (half or 0.0) for value, half in values if value and isfinite(value)]
    axes.set_xlim(0.0, 1.7 * max(ends, default=1.0))
    axes.set_ylim(len(fleets) - 0.4, -0.6)
    axes.set_yticks(range(len(fleets)), [one.fleet if names else "" for one, _ in fleets])
    for label, (one, _row) in zip(axes.get_yticklabels(), fleets, strict=True):
        label.set(color=looks[one.fleet][0], fontweight="bold", fontsize=NORMAL)
    axes.xaxis.set_major_formatter(lambda value, _place: tick(value))
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    _frame(axes, title, _bars_subtitle(dollars), names)


def _amount(row: Mapping[str, Any], column: str) -> float | None:
    """The figure as it is drawn: money in the shown currency."""
    value: float | None = row[column]
    return shown(value) if value is not None and column.startswith("usd") else value


def _frame(axes: Any, title: str, subtitle: str, names: bool = False) -> None:
    axes.tick_params(length=3, width=0.6, color=SOFT, labelsize=SMALL)
    axes.tick_params(axis="x", labelcolor=SOFT)
    axes.tick_params(axis="y", length=0, **({} if names else {"labelcolor": SOFT}))
    if names:
        axes.tick_params(axis="y", labelsize=NORMAL)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=SOFT, linewidth=0.6)
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axes.annotate(title, (0, 1), (0, 21), fontsize=HEAD, color=INK, fontweight="bold", **above)
    axes.annotate(subtitle, (0, 1), (0, 8), fontsize=SMALL, color=SOFT, **above)
