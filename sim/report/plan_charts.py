"""plan.png: capacity of every fleet against demand, month by month, and what each has cost so far."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.cost.multi_year import MultiYear
from sim.language import _
from sim.report.charts.capacity_steps import SHORT, Step, StepChart, step_figure
from sim.report.charts.drawing import FAINT, HEAD, INK, MARGIN, SMALL, SOFT, draw, figure_of, wrapped, write_png
from sim.report.charts.fonts import settings
from sim.report.charts.layout import Scale
from sim.report.charts.panels import ChartCurve, Panel, style
from sim.report.charts.vega_lite import PageFigure, panel_figure
from sim.report.plan_tables import date
from sim.report.words.money import cash, money_mark, shown
from sim.report.words.text import axis_label, plain
from sim.study.plan import Outlook
from sim.study.plan_cash import Row

PANEL_IN = (4.6, 3.0)
CASH_IN = 3.4
LEFT, RIGHT, TOP, BOTTOM = 0.6, 0.2, 0.75, 0.45
"""Margins around a plot area [inches]."""
KEY_IN = 0.3
COLUMNS = 3
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
    for index, chart in enumerate(step_charts(found, plan, axis)):
        line, column = divmod(index, columns)
        at = (column * PANEL_IN[0], CASH_IN + (lines - line - 1) * PANEL_IN[1])
        _capacity(_axes(figure, at, PANEL_IN), chart)
    if drawn:
        _key(figure, MARGIN / width, (y - 0.05) / height, drawn)
        draw(_axes(figure, (0.0, 0.0), (width, CASH_IN)), cash_panel(found, plan))
    return figure


def step_charts(found: Sequence[Outlook], plan: MultiYear, axis: str) -> list[StepChart]:
    """Capacity against demand, of each fleet with a plan."""
    drawn = [one for one in found if one.rows]
    top = 1.08 * max((max(max(row.capacity, row.peak) for row in one.months) for one in drawn), default=1.0)
    colors = {name: color for name, (color, _) in style([one.fleet for one in found]).items()}
    ticks = {month: date(plan, month) for month in _months(plan)}
    charts = []
    for one in drawn:
        first, last = one.months[0].in_service, one.months[-1].in_service
        said = _("units: {first} at first, {last} at last", first=first, last=last)
        each = "" if one.api else _("; one takes {mean}", mean=plain(one.capacity.mean))
        charts.append(
            StepChart(
                one.fleet,
                f"{axis_label(axis)}; {said}{each}",
                one.fleet,
                colors[one.fleet],
                tuple(_step(one, row, plan) for row in one.months),
                ticks,
                top,
                elsewhere=one.api,
                short=bool(one.short),
                held=bool(one.held),
            )
        )
    return charts


def _step(one: Outlook, row: Row, plan: MultiYear) -> Step:
    new = 0.0 if one.api else (row.owned - row.existing) * one.capacity.mean
    said = {_("month"): date(plan, row.month), _("demand in the busiest hours"): plain(row.peak)}
    said |= {_("demand in the mean"): plain(row.demand), _("capacity"): plain(row.capacity)}
    said |= {_("units owned"): str(row.owned)} if row.owned else {}
    said |= {_("units rented"): str(row.rented)} if row.rented else {}
    said |= {_("short by"): plain(row.shortfall)} if row.shortfall else {}
    said |= {_("ordered"): str(row.ordered)} if row.ordered else {}
    said[_("net cost of the month")] = cash(row.net_usd)
    return Step(row.existing_capacity, row.existing_capacity + new, row.capacity, row.peak, row.demand, said)


def cash_panel(found: Sequence[Outlook], plan: MultiYear) -> Panel:
    """What every fleet has paid less what it has received, to the end of each month; sales at the end as a drop."""
    colors = {name: color for name, (color, _) in style([one.fleet for one in found]).items()}
    curves = []
    for one in found:
        if not one.rows:
            continue
        months, paid = _paid(one)
        steady = (*[True] * (len(months) - 1), False)
        keys = tuple(f"month/{min(month, plan.months - 1)}" for month in months)
        x, y = tuple(map(float, months)), tuple(paid)
        curves.append(
            ChartCurve(_end(one), colors[one.fleet], x, y, steady=steady, good=steady, fleet=one.fleet, keys=keys)
        )
    ticks = _months(plan)
    return Panel(
        _("Cash paid so far"),
        _("less what was received, not discounted; dotted: hardware sold at the end"),
        _("month"),
        tuple(curves),
        x_format=lambda month: date(plan, int(month)),
        y_format=money_mark,
        x_ticks=tuple(map(float, ticks)),
        x_names=tuple(date(plan, month) for month in ticks),
        x_anchored=False,
        kind="plan",
    )


def page_figures(found: Sequence[Outlook], plan: MultiYear, axis: str) -> list[PageFigure]:
    """The same on a page."""
    charts = [step_figure(chart) for chart in step_charts(found, plan, axis)]
    return [*charts, replace(panel_figure(cash_panel(found, plan)), wide=True)] if charts else []


def _axes(figure: Any, at: tuple[float, float], size: tuple[float, float]) -> Any:
    """Axes in the cell of *size* whose lower left corner is *at* [inches]."""
    width, height = figure.get_size_inches()
    box = (at[0] + LEFT, at[1] + BOTTOM, size[0] - LEFT - RIGHT, size[1] - TOP - BOTTOM)
    return figure.add_axes((box[0] / width, box[1] / height, box[2] / width, box[3] / height))


def _capacity(axes: Any, chart: StepChart) -> None:
    """Steps of capacity, bought and rented, with the demand that it has to cover."""
    steps, color = chart.steps, chart.color
    edges = np.arange(len(steps) + 1)
    owned, capacity = [step.owned for step in steps], [step.capacity for step in steps]
    peak, mean = [step.peak for step in steps], [step.mean for step in steps]
    axes.stairs(owned, edges, fill=True, color=color, alpha=0.35, linewidth=0)
    axes.stairs(
        capacity, edges, baseline=owned, fill=True, facecolor="none", edgecolor=color, hatch="////", linewidth=0
    )
    if chart.held:
        existing = [step.existing for step in steps]
        axes.stairs(existing, edges, fill=True, color=color, alpha=EXISTING, linewidth=0)
    axes.stairs(capacity, edges, baseline=None, color=color, linewidth=1.6)
    axes.stairs(peak, edges, baseline=None, color=INK, linewidth=1.4)
    axes.stairs(mean, edges, baseline=None, color=INK, linewidth=1.0, linestyle=(0, (4, 2)))
    lacking = np.maximum(peak, capacity)
    if chart.elsewhere:
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": color, "hatch": DOTS, "linewidth": 0}
        axes.stairs(lacking, edges, baseline=capacity, fill=True, **look)
    if chart.short:
        axes.stairs(lacking, edges, baseline=capacity, fill=True, color=SHORT, alpha=0.55, linewidth=0)
    _frame(axes, chart)
    _title(axes, chart.title, chart.subtitle, color)


def _key(figure: Any, x: float, y: float, drawn: Sequence[Outlook]) -> None:
    """What the marks mean, in a line whose upper left corner is at (x, y) of the *figure*."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    short, held, api = (any(ones) for ones in zip(*((one.short, one.held, one.api) for one in drawn), strict=True))
    marks = [
        *([Patch(facecolor=SOFT, alpha=0.8, linewidth=0, label=_("existing capacity"))] if held else []),
        Patch(facecolor=SOFT, alpha=0.35, linewidth=0, label=_("capacity bought")),
        Patch(facecolor="none", edgecolor=SOFT, hatch="////", linewidth=0, label=_("rented")),
        *([Patch(facecolor="none", edgecolor=SOFT, hatch=DOTS, linewidth=0, label=_("from the API"))] if api else []),
        *([Patch(facecolor=SHORT, alpha=0.55, linewidth=0, label=_("short in the busiest hours"))] if short else []),
        Line2D([], [], color=INK, linewidth=1.4, label=_("demand in the busiest hours")),
        Line2D([], [], color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label=_("in the mean")),
    ]
    look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "labelcolor": SOFT, "borderpad": 0, "borderaxespad": 0}
    figure.legend(handles=marks, loc="upper left", bbox_to_anchor=(x, y), ncols=len(marks), **look)


def _end(one: Outlook) -> str:
    return f"{one.fleet}: {cash(one.total_usd)}"


def _paid(one: Outlook) -> tuple[list[int], list[float]]:
    """(months, cash paid so far): a step at the start of a month for hardware, then its running costs."""
    months, paid = [0], [0.0]
    for row in one.rows:
        months += [row.month, row.month + 1]
        paid += [paid[-1] + shown(row.at_once_usd), paid[-1] + shown(row.net_usd)]
    return months[:-1], paid[:-1]


def _title(axes: Any, title: str, subtitle: str, color: str) -> None:
    back = -72 * (LEFT - MARGIN)
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    axes.annotate(title, (0, 1), (back, 24), fontsize=HEAD, color=color, fontweight="bold", **above)
    axes.annotate(subtitle, (0, 1), (back, 11), fontsize=SMALL, color=SOFT, **above)


def _frame(axes: Any, chart: StepChart) -> None:
    scale = Scale([0.0, chart.top / 1.1], True)
    axes.set_xlim(0, len(chart.steps))
    axes.set_ylim(scale.low, scale.high)
    axes.set_xticks(list(chart.ticks), list(chart.ticks.values()))
    axes.set_yticks(scale.ticks(), list(map(plain, scale.ticks())))
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
