"""Charts of `gpufleet plan`: capacity and demand of every fleet by month, and cumulative cost."""

from collections.abc import Sequence
from dataclasses import replace

from sim.cost.multi_year import MultiYear
from sim.language import _
from sim.report.charts.capacity_steps import (
    BOUGHT,
    ELSEWHERE,
    EXISTING,
    MISSING,
    RENTED,
    SHORT,
    MonthlyCapacity,
    StepChart,
    step_figure,
)
from sim.report.charts.chart import Chart
from sim.report.charts.layout import INK
from sim.report.charts.panels import DASHES, ChartCurve, Panel, style
from sim.report.charts.picture import SOFT, KeyEntry, picture
from sim.report.charts.vega_lite import PageFigure, panel_figure
from sim.report.words.money import cash, money_mark, shown
from sim.report.words.text import axis_label, plain
from sim.study.plan import FleetPlanOutlook
from sim.study.plan_cash import PlanMonth

MOST_TICKS = 9


def plan_picture(found: Sequence[FleetPlanOutlook], plan: MultiYear, axis: str, question: str, answer: str) -> Chart:
    """Draw capacity and demand of each fleet with a plan, and cash below, under *question* and *answer*.

    *axis* is the load axis of the demand.
    """
    return picture(page_figures(found, plan, axis), question, [answer], _key([one for one in found if one.rows]))


def _key(drawn: Sequence[FleetPlanOutlook]) -> list[KeyEntry]:
    """Return the legend: areas of capacity and lines of demand."""
    if not drawn:
        return []
    short, held, api = (any(ones) for ones in zip(*((one.short, one.held, one.api) for one in drawn), strict=True))
    areas = [
        *([(_("existing capacity"), SOFT, EXISTING)] if held else []),
        (_("capacity bought"), SOFT, BOUGHT),
        (_("rented"), SOFT, RENTED),
        *([(_("from the API"), SOFT, ELSEWHERE)] if api else []),
        *([(_("short in the busiest hours"), SHORT, MISSING)] if short else []),
    ]
    return [
        *(KeyEntry(name, color, area=opacity, stands_for=False) for name, color, opacity in areas),
        KeyEntry(_("demand in the busiest hours"), INK, dash=DASHES["solid"], stands_for=False),
        KeyEntry(_("mean"), INK, dash=DASHES["dashed"], stands_for=False),
    ]


def step_charts(found: Sequence[FleetPlanOutlook], plan: MultiYear, axis: str) -> list[StepChart]:
    """Return the charts of capacity and demand by month, one for each fleet with a plan."""
    drawn = [one for one in found if one.rows]
    top = 1.08 * max((max(max(row.capacity, row.peak) for row in one.months) for one in drawn), default=1.0)
    colors = {name: color for name, (color, _) in style([one.fleet for one in found]).items()}
    ticks = {month: plan.date(month) for month in _months(plan)}
    charts = []
    for one in drawn:
        first, last = one.months[0].in_service, one.months[-1].in_service
        units_text = _("units: {first} at first, {last} at last", first=first, last=last)
        each = "" if one.api else _("; capacity of a unit {mean}", mean=plain(one.capacity.mean))
        charts.append(
            StepChart(
                one.fleet,
                f"{axis_label(axis)}; {units_text}{each}",
                one.fleet,
                colors[one.fleet],
                tuple(_step(one, row, plan) for row in one.months),
                ticks,
                top,
                elsewhere=one.api,
                short=bool(one.short),
                has_existing=bool(one.held),
            )
        )
    return charts


def _step(one: FleetPlanOutlook, row: PlanMonth, plan: MultiYear) -> MonthlyCapacity:
    new = 0.0 if one.api else (row.owned - row.existing) * one.capacity.mean
    tooltip = {_("month"): plan.date(row.month), _("demand in the busiest hours"): plain(row.peak)}
    tooltip |= {_("mean demand"): plain(row.demand), _("capacity"): plain(row.capacity)}
    tooltip |= {_("units owned"): str(row.owned)} if row.owned else {}
    tooltip |= {_("units rented"): str(row.rented)} if row.rented else {}
    tooltip |= {_("short by"): plain(row.shortfall)} if row.shortfall else {}
    tooltip |= {_("ordered"): str(row.ordered)} if row.ordered else {}
    tooltip[_("net cost of the month")] = cash(row.net_usd)
    return MonthlyCapacity(
        row.existing_capacity, row.existing_capacity + new, row.capacity, row.peak, row.demand, tooltip
    )


def cash_panel(found: Sequence[FleetPlanOutlook], plan: MultiYear) -> Panel:
    """Build the chart of cumulative net cost by month; sales at the end are a drop."""
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
        _("Cumulative cash"),
        _("minus receipts, not discounted; dotted: hardware sold at the end"),
        _("month"),
        tuple(curves),
        x_format=lambda month: plan.date(int(month)),
        y_format=money_mark,
        x_ticks=tuple(map(float, ticks)),
        x_names=tuple(plan.date(month) for month in ticks),
        x_anchored=False,
        kind="plan",
    )


def page_figures(found: Sequence[FleetPlanOutlook], plan: MultiYear, axis: str) -> list[PageFigure]:
    """Return the charts of a page: capacity and demand of each fleet, then cash."""
    charts = [step_figure(chart) for chart in step_charts(found, plan, axis)]
    return [*charts, replace(panel_figure(cash_panel(found, plan)), wide=True)] if charts else []


def _end(one: FleetPlanOutlook) -> str:
    return f"{one.fleet}: {cash(one.total_usd)}"


def _paid(one: FleetPlanOutlook) -> tuple[list[int], list[float]]:
    """Return (months, cumulative cash): a step at the start of a month for hardware, then operating cost."""
    months, paid = [0], [0.0]
    for row in one.rows:
        months += [row.month, row.month + 1]
        paid += [paid[-1] + shown(row.at_once_usd), paid[-1] + shown(row.net_usd)]
    return months[:-1], paid[:-1]


def _months(plan: MultiYear) -> list[int]:
    """Return the labelled months, few enough that labels do not overlap."""
    step = next(step for step in (1, 2, 3, 6, 12, 24, 60, 120, 12000) if plan.months / step <= MOST_TICKS / 2)
    return list(range(0, plan.months, step))
