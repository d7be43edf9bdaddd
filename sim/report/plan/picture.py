"""plan.png: capacity of every fleet against demand, month by month, and what each has cost so far."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.cost import MultiYear
from sim.report.charts.curves import GLYPH, MARGIN, figure_of, wrapped, write_png
from sim.report.charts.draw import FAINT, HEAD, INK, NORMAL, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.report.charts.scale import Scale
from sim.report.plan.tables import date
from sim.report.words.money import cash, money_mark, shown
from sim.report.words.text import axis_label, plain
from sim.study.plan.plans import Outlook

PANEL_IN = (4.6, 3.0)
CASH_IN = 3.4
LEFT, RIGHT, TOP, BOTTOM = 0.6, 0.2, 0.75, 0.45
"""Margins around a plot area [inches]."""
AMOUNTS_IN = 0.95
"""Room for the amounts at its left."""
KEY_IN = 0.3
COLUMNS = 3
SHORT = "#B3261E"
MOST_TICKS = 9
EXISTING = 0.6
"""Opacity of existing capacity, over that of bought."""
DOTS = "...."


def write_plan_picture(
    path: Path, found: Sequence[Outlook], plan: MultiYear, axis: str, question: str, answer: str
) -> None:
    """The picture under *question* and *answer*; *axis* is what the load is counted in."""
    with settings():
        figure = draw_plan(found, plan, axis, question, answer)
    write_png(path, figure)


def draw_plan(found: Sequence[Outlook], plan: MultiYear, axis: str, question: str, answer: str) -> Any:
    """A matplotlib figure: a chart of capacity for each fleet with a plan, below them one of cash."""
    drawn = [one for one in found if one.rows]
    columns = min(COLUMNS, max(2, len(drawn)))
    lines = -(-len(drawn) // columns)
    width = columns * PANEL_IN[0]
    heads = [(text, 14.0, INK, 0.26) for text in wrapped(question, 14.0, width)]
    heads += [(text, HEAD, SOFT, 0.2) for text in wrapped(answer, HEAD, width)]
    height = 2 * MARGIN + sum(step for *_, step in heads) + KEY_IN + lines * PANEL_IN[1] + CASH_IN
    figure = figure_of(width, height)
    y = height - MARGIN
    for text, size, color, step in heads:
        figure.text(MARGIN / width, y / height, text, fontsize=size, color=color, va="top")
        y -= step
    colors = {name: color for name, (color, _) in style([one.fleet for one in found]).items()}
    top = 1.08 * max((max(max(row.capacity, row.peak) for row in one.months) for one in drawn), default=1.0)
    for index, one in enumerate(drawn):
        line, column = divmod(index, columns)
        at = (column * PANEL_IN[0], CASH_IN + (lines - line - 1) * PANEL_IN[1])
        _capacity(_axes(figure, at, PANEL_IN, RIGHT), one, plan, axis, colors[one.fleet], top)
    if drawn:
        _key(figure, MARGIN / width, (y - 0.05) / height, drawn)
        longest = max(len(_end(one)) for one in drawn)
        room = 0.3 + 1.1 * GLYPH * NORMAL * longest
        _cash(_axes(figure, (0.0, 0.0), (width, CASH_IN), room, AMOUNTS_IN), drawn, plan, colors)
    return figure


def _axes(figure: Any, at: tuple[float, float], size: tuple[float, float], right: float, left: float = LEFT) -> Any:
    """Axes in the cell of *size* whose lower left corner is *at* [inches]."""
    width, height = figure.get_size_inches()
    box = (at[0] + left, at[1] + BOTTOM, size[0] - left - right, size[1] - TOP - BOTTOM)
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def _capacity(axes: Any, one: Outlook, plan: MultiYear, axis: str, color: str, top: float) -> None:
    """Steps of capacity, bought and rented, with the demand that it has to cover."""
    edges = np.arange(plan.months + 1)
    existing = [row.existing_capacity for row in one.months]
    new = [0.0 if one.api else (row.owned - row.existing) * one.capacity.mean for row in one.months]
    owned = [old + bought for old, bought in zip(existing, new, strict=True)]
    capacity = [row.capacity for row in one.months]
    peak, mean = [row.peak for row in one.months], [row.demand for row in one.months]
    axes.stairs(owned, edges, fill=True, color=color, alpha=0.35, linewidth=0)
    axes.stairs(
        capacity, edges, baseline=owned, fill=True, facecolor="none", edgecolor=color, hatch="////", linewidth=0
    )
    if one.held:
        axes.stairs(existing, edges, fill=True, color=color, alpha=EXISTING, linewidth=0)
    axes.stairs(capacity, edges, baseline=None, color=color, linewidth=1.6)
    axes.stairs(peak, edges, baseline=None, color=INK, linewidth=1.4)
    axes.stairs(mean, edges, baseline=None, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    if one.api:
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "hatch": DOTS, "linewidth": 0}
        axes.stairs(np.maximum(peak, capacity), edges, baseline=capacity, fill=True, **look)
    lacking = np.maximum(peak, capacity)
    if one.short:
        axes.stairs(lacking, edges, baseline=capacity, fill=True, color=SHORT, alpha=0.55, linewidth=0)
    _frame(axes, plan, Scale([0.0, top / 1.1], True), plain)
    said = f"units: {one.months[0].in_service} at first, {one.months[-1].in_service} at last"
    each = "" if one.api else f"; one takes {plain(one.capacity.mean)}"
    _title(axes, one.fleet, f"{axis_label(axis)}; {said}{each}", color)


def _key(figure: Any, x: float, y: float, drawn: Sequence[Outlook]) -> None:
    """What the marks mean, in a line whose upper left corner is at (x, y) of the *figure*."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    short, held, api = (any(ones) for ones in zip(*((one.short, one.held, one.api) for one in drawn), strict=True))
    marks = [
        *([Patch(facecolor=SOFT, alpha=0.8, linewidth=0, label="existing capacity")] if held else []),
        Patch(facecolor=SOFT, alpha=0.35, linewidth=0, label="capacity bought"),
        Patch(facecolor="none", edgecolor=SOFT, hatch="////", linewidth=0, label="rented"),
        *([Patch(facecolor="none", edgecolor=SOFT, hatch=DOTS, linewidth=0, label="from the API")] if api else []),
        *([Patch(facecolor=SHORT, alpha=0.55, linewidth=0, label="short in the busiest hours")] if short else []),
        Line2D([], [], color=INK, linewidth=1.4, label="demand in the busiest hours"),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="in the mean"),
    ]
    look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": SOFT, "borderpad": 0, "borderaxespad": 0}
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(x, y), ncols=len(marks), **look)


def _cash(axes: Any, drawn: Sequence[Outlook], plan: MultiYear, colors: dict[str, str]) -> None:
    """What every fleet has paid less what it has received, to the end of each month; sales at the end as a drop."""
    ends: list[tuple[float, str, str]] = []
    lowest = highest = 0.0
    for one in drawn:
        months, paid = _paid(one)
        axes.plot(months[:-1], paid[:-1], color=colors[one.fleet], linewidth=1.8)
        axes.plot(months[-2:], paid[-2:], color=colors[one.fleet], linewidth=1.0, linestyle=(0, (2, 2)))
        axes.plot(months[-1:], paid[-1:], "o", color=colors[one.fleet], markersize=4, clip_on=False)
        lowest, highest = min(lowest, *paid), max(highest, *paid)
        ends.append((paid[-1], _end(one), colors[one.fleet]))
    _frame(axes, plan, Scale([lowest, highest], True), money_mark)
    said = "less what was received, not discounted; dotted: hardware sold at the end"
    _title(axes, "Cash paid so far", said, INK, AMOUNTS_IN)
    low, high = axes.get_ylim()
    step = 0.075 * (high - low)
    at = low - step
    for value, text, color in sorted(ends):
        at = max(value, at + step)
        axes.annotate(
            text,
            (plan.months, at),
            (8, 0),
            textcoords="offset points",
            va="center",
            fontsize=NORMAL,
            color=color,
            annotation_clip=False,
        )


def _end(one: Outlook) -> str:
    return f"{one.fleet}: {cash(one.total_usd)}"


def _paid(one: Outlook) -> tuple[list[int], list[float]]:
    """(months, cash paid so far): a step at the start of a month for hardware, then its running costs."""
    months, paid = [0], [0.0]
    for row in one.rows:
        months += [row.month, row.month + 1]
        paid += [paid[-1] + shown(row.at_once_usd), paid[-1] - shown(row.net_usd)]
    return months[:-1], paid[:-1]


def _title(axes: Any, title: str, subtitle: str, color: str, left: float = LEFT) -> None:
    back = -72 * (left - MARGIN)
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axes.annotate(title, (0, 1), (back, 24), fontsize=HEAD, color=color, fontweight="bold", **above)
    axes.annotate(subtitle, (0, 1), (back, 11), fontsize=SMALL, color=SOFT, **above)


def _frame(axes: Any, plan: MultiYear, scale: Scale, shown: Any) -> None:
    axes.set_xlim(0, plan.months)
    axes.set_ylim(scale.low, scale.high)
    ticks = _months(plan)
    axes.set_xticks(ticks, [date(plan, month) for month in ticks])
    axes.set_yticks(scale.ticks(), list(map(shown, scale.ticks())))
    axes.tick_params(length=3, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=SOFT, linewidth=0.6)


def _months(plan: MultiYear) -> list[int]:
    """Months that are marked: few enough that their names do not touch."""
    step = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120, 12000) if plan.months / step <= MOST_TICKS / 2)
    return list(range(0, plan.months, step))
