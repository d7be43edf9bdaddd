"""capacity.png: what was simulated to find each fleet's capacity, the capacity with its interval, and its price."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO
from math import isfinite
from pathlib import Path
from typing import Any

from sim.report.charts.curves import GLYPH, bare_svg, figure_of, write_png
from sim.report.charts.draw import FAINT, HEAD, INK, NORMAL, SMALL, SOFT
from sim.report.charts.fonts import glyphs, lines_of, settings
from sim.report.charts.panels import style
from sim.report.words.goals import exactly, name_of
from sim.report.words.money import cash, in_code, money_mark, shown
from sim.report.words.text import axis_label, percent, plain
from sim.scenario.sections.slo import Slo
from sim.study.capacity.search import Capacity, LoadAxis, TriedLoad

WIDTH_IN, SEARCH_IN, ROW_IN = 11.6, 3.0, 0.34
LEFT_IN, RIGHT_IN, GAP_IN = 0.75, 0.3, 0.9
ABOVE_IN, BELOW_IN = 0.55, 0.55
"""Around a plot area, for its title and its axis."""
GOOD_COST = "usd_per_million_good_tokens"


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


def picture_svg(found: Sequence[Capacity], rows: Sequence[Mapping[str, Any]], axis: LoadAxis, slo: Slo) -> str:
    """The capacity picture as an `svg` element, without question and answer above it."""
    with settings():
        text = StringIO()
        nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
        _figure(found, rows, axis, slo, 0.0).savefig(text, format="svg", metadata=nothing)
    return bare_svg(text.getvalue())


def _wrap(text: str, size: float) -> list[str]:
    return lines_of(text, int((WIDTH_IN - 0.4) / (GLYPH * size)))


def _figure(
    found: Sequence[Capacity], rows: Sequence[Mapping[str, Any]], axis: LoadAxis, slo: Slo, head_in: float
) -> Any:
    """Search above, over the full width; below it one row per fleet: capacity left and, with a cost, price right."""
    shown = [(one, row) for one, row in zip(found, rows, strict=True) if not one.reason]
    bars_in = ROW_IN * len(shown) + 0.1
    readings = _readings(slo)
    each_in = ABOVE_IN + BELOW_IN + SEARCH_IN
    height = head_in + ABOVE_IN + BELOW_IN + bars_in + len(readings) * each_in
    figure = figure_of(WIDTH_IN, height)
    looks = style([one.fleet for one in found])

    def place(left: float, bottom: float, width: float, tall: float) -> Any:
        return figure.add_axes((left / WIDTH_IN, bottom / height, width / WIDTH_IN, tall / height))

    names_in = 0.35 + max(glyphs(one.fleet) for one, _ in shown) * GLYPH * NORMAL * 1.13
    whole_in = WIDTH_IN - LEFT_IN - RIGHT_IN
    for above, reading in enumerate(reversed(readings)):
        bottom = 2 * BELOW_IN + ABOVE_IN + bars_in + above * each_in
        _search(place(LEFT_IN, bottom, whole_in, SEARCH_IN), [one for one, _ in shown], axis, reading, looks)
    money = any(row[GOOD_COST] is not None for _, row in shown)
    bar_in = (WIDTH_IN - names_in - RIGHT_IN - (GAP_IN if money else 0)) / (2 if money else 1)
    _bars(place(names_in, BELOW_IN, bar_in, bars_in), shown, looks, axis.label, f"Capacity: {axis_label(axis.label)}",
          plain, names=True)  # fmt: skip
    if money:
        left = names_in + bar_in + GAP_IN
        title = in_code("At capacity: USD per million goodput tokens")
        _bars(place(left, BELOW_IN, bar_in, bars_in), shown, looks, GOOD_COST, title, money_mark, names=False)
    return figure


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is read at every load, and the line that it is held to."""

    title: str
    value: Callable[[TriedLoad], float]
    at: float
    text: str
    share: bool = False


def _readings(slo: Slo) -> list[_Reading]:
    """The share within the limits of each request, and every percentile with a limit of its own."""
    found = []
    if slo.per_request:
        title, text = "Requests within the SLO at every simulated load", f"target {exactly(slo.attainment)}"
        found.append(_Reading(title, lambda tried: tried.slo_attainment, slo.attainment, text, True))
    for one in slo.percentiles:
        title, text = f"{name_of(one)} [s] at every simulated load", f"SLO {plain(one.limit_s)} s"
        found.append(_Reading(title, partial(_percentile, one.column), one.limit_s, text))
    return found


def _percentile(column: str, tried: TriedLoad) -> float:
    """nan, which is not drawn, without a value."""
    value = tried.percentiles[column]
    return float("nan") if value is None else value


def _search(axes: Any, found: Sequence[Capacity], axis: LoadAxis, reading: _Reading, looks: Mapping[str, Any]) -> None:
    loads: list[float] = []
    top = 1.0 if reading.share else 2.5 * reading.at
    for one in found:
        color, marker = looks[one.fleet]
        tried = [attempt for search in one.found for attempt in search.tried]
        for meets in (True, False):
            chosen = [attempt for attempt in tried if attempt.meets == meets]
            axes.plot(
                *([a.load for a in chosen], [min(reading.value(a), top) for a in chosen]),
                linestyle="", marker=marker, markersize=5, markeredgecolor=color, markeredgewidth=1.1, zorder=3,
                markerfacecolor=color if meets else "white", alpha=0.85, clip_on=False,
            )  # fmt: skip
        loads += [attempt.load for attempt in tried]
        if isfinite(one.mean) and one.mean > 0:
            half = one.half_width or 0.0
            axes.axvspan(one.mean - half, one.mean + half, color=color, alpha=0.16, linewidth=0)
            axes.axvline(one.mean, color=color, linewidth=1.4, zorder=2)
            axes.annotate(
                f"{one.fleet}: {plain(one.mean)}", (one.mean, 0.0), (4, 5), textcoords="offset points",
                fontsize=NORMAL, fontweight="bold", color=color, rotation=90, va="bottom", ha="left",
            )  # fmt: skip
    axes.axhline(reading.at, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1.5)
    axes.annotate(reading.text, (0, reading.at), (4, -11), xycoords=("axes fraction", "data"),
                  textcoords="offset points", fontsize=SMALL, color=INK)  # fmt: skip
    wide = bool(loads) and max(loads) > 5 * min(loads)
    axes.set_xscale("log" if wide else "linear")
    ticks = _round_loads(min(loads), max(loads)) if wide else None
    if ticks:
        axes.set_xticks(ticks, list(map(plain, ticks)))
        axes.minorticks_off()
    axes.set_ylim(0.0, 1.04 * top)
    if reading.share:
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1.0], [percent(share) for share in (0, 0.25, 0.5, 0.75, 1.0)])
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_xlabel(axis_label(axis.label), fontsize=SMALL, color=SOFT, loc="left")
    beyond = "" if reading.share else "; what is larger lies at the upper edge"
    _frame(axes, reading.title, f"filled: meets the SLO; line and band: capacity and its 95 % interval{beyond}")


def _round_loads(low: float, high: float) -> list[float]:
    digits = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5)
    everything = [digit * 10.0**power for power in range(-9, 10) for digit in digits]
    return [load for load in everything if 0.95 * low <= load <= 1.05 * high]


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
            text = "beyond the search" if value else ""
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
        shown_value = cash(row[column]) if dollars else plain(value)
        around = f" ± {plain(half, 2)}" if half else ""
        limit = "" if dollars else f"  {row['limited_by']}"
        axes.annotate(f"{shown_value}{around}{limit}", (value + (half or 0.0), place), (9, 0), color=INK, va="center",
                      textcoords="offset points", fontsize=SMALL)  # fmt: skip
    values = [(_amount(row, column), _amount(row, f"{column}_ci95")) for _, row in fleets]
    ends = [value + (half or 0.0) for value, half in values if value and isfinite(value)]
    axes.set_xlim(0.0, 1.45 * max(ends, default=1.0))
    axes.set_ylim(len(fleets) - 0.4, -0.6)
    axes.set_yticks(range(len(fleets)), [one.fleet if names else "" for one, _ in fleets])
    for label, (one, _) in zip(axes.get_yticklabels(), fleets, strict=True):
        label.set(color=looks[one.fleet][0], fontweight="bold", fontsize=NORMAL)
    axes.xaxis.set_major_formatter(lambda value, _: tick(value))
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    _frame(axes, title, "with half of the 95 % interval" + ("" if dollars else ", and what limits it"), names)


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
