"""Charts of capacity and demand by month: plain data, and its Vega-Lite specification.

Each kind of capacity is an area with a step per month; demand is drawn as lines.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.language import _
from sim.report.charts.vega_lite import HEIGHT, MARK_COLOR, PageFigure, config, expression, params
from sim.report.words.text import plain


@dataclass(frozen=True, slots=True)
class MonthlyCapacity:
    """Capacity and demand of a month, in the unit of the chart."""

    existing: float
    """Capacity that existed before the plan, a part of `owned`."""
    owned: float
    capacity: float
    """Owned and rented capacity."""
    peak: float
    """Demand in the busiest hours."""
    mean: float
    """Mean demand."""
    tooltip: Mapping[str, str]
    """Tooltip: heading -> text, the date first."""


@dataclass(frozen=True, slots=True)
class StepChart:
    """Chart of a fleet's capacity and demand by month."""

    title: str
    subtitle: str
    fleet: str
    color: str
    steps: tuple[MonthlyCapacity, ...]
    ticks: Mapping[int, str]
    """Labelled months -> labels."""
    top: float
    """Upper end of the axis of loads, the same for all fleets."""
    elsewhere: bool
    """True if load beyond the capacity is bought from an API, not missing."""
    short: bool
    """True if capacity is missing in some months."""
    has_existing: bool
    """True if some capacity existed before the plan."""


SHORT = "#B3261E"
EXISTING, BOUGHT, RENTED, ELSEWHERE, MISSING = 0.4, 0.35, 0.15, 0.08, 0.75
"""Opacities of the areas; the area of existing capacity lies over that of owned capacity."""
Spec = dict[str, Any]


def step_figure(chart: StepChart) -> PageFigure:
    """Build the figure of a fleet's capacity and demand."""
    last = chart.steps[-1]
    description = _(
        "Over {len} months: capacity {capacity} and peak {peak} in the last.",
        len=len(chart.steps),
        capacity=plain(last.capacity),
        peak=plain(last.peak),
    )
    return PageFigure(chart.title, chart.subtitle, _spec(chart), description)


def _spec(chart: StepChart) -> Spec:
    areas = [
        _area(chart, BOUGHT, [(0.0, step.owned) for step in chart.steps]),
        _area(chart, RENTED, [(step.owned, step.capacity) for step in chart.steps]),
    ]
    if chart.has_existing:
        areas.append(_area(chart, EXISTING, [(0.0, step.existing) for step in chart.steps]))
    if chart.elsewhere or chart.short:
        color, opacity = (chart.color, ELSEWHERE) if chart.elsewhere else (SHORT, MISSING)
        areas.append(_area(chart, opacity, [(step.capacity, step.peak) for step in chart.steps], color))
    fleet, ink = MARK_COLOR, "ink"
    lines = [
        _line(chart, [step.capacity for step in chart.steps], fleet, 2.0),
        _line(chart, [step.peak for step in chart.steps], ink, 1.7),
        _line(chart, [step.mean for step in chart.steps], ink, 1.2, [5, 3]),
    ]
    return {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": params(),
        "encoding": {"x": _axis_x(chart), "y": _axis_y(chart)},
        "layer": [*areas, *lines, _months(chart)],
        "config": config(),
    }


def _axis_x(chart: StepChart) -> Spec:
    names = {str(month): name for month, name in chart.ticks.items()}
    axis = {"title": None, "values": list(chart.ticks), "labelExpr": f"({names!r})[format(datum.value, 'd')] || ''"}
    scale = {"type": "linear", "domain": [0, len(chart.steps)], "nice": False, "zero": False}
    return {"field": "x", "type": "quantitative", "axis": axis, "scale": scale}


def _axis_y(chart: StepChart) -> Spec:
    scale = {"type": "linear", "domain": [0, chart.top], "nice": False}
    axis = {"title": None, "tickCount": 5, "labelExpr": expression(plain)}
    return {"field": "y", "type": "quantitative", "axis": axis, "scale": scale}


def _area(chart: StepChart, opacity: float, ends: list[tuple[float, float]], color: str = "") -> Spec:
    rows = [
        {"x": month, "y": low, "y2": max(low, high), "color": color or chart.color}
        for month, (low, high) in enumerate([*ends, ends[-1]])
    ]
    mark = {"type": "area", "interpolate": "step-after", "clip": True, "opacity": opacity}
    mark["color"] = {"expr": MARK_COLOR}
    return {"data": {"values": rows}, "mark": mark, "encoding": {"y2": {"field": "y2"}}}


def _line(chart: StepChart, values: list[float], color: str, width: float, dash: list[float] | None = None) -> Spec:
    rows = [{"x": month, "y": value, "color": chart.color} for month, value in enumerate([*values, values[-1]])]
    mark = {"type": "line", "interpolate": "step-after", "strokeWidth": width, "color": {"expr": color}}
    return {"data": {"values": rows}, "mark": mark | ({"strokeDash": dash} if dash else {})}


def _months(chart: StepChart) -> Spec:
    """Build the invisible columns, one per month, that respond to the pointer."""
    rows = [
        {
            "x": month,
            "x2": month + 1,
            "y": step.capacity,
            "key": f"month/{month}",
            "fleet": chart.fleet,
            "name": chart.fleet,
            "said": dict(step.tooltip),
        }
        for month, step in enumerate(chart.steps)
    ]
    mark = {"type": "rect", "cursor": "pointer", "color": {"expr": "ink"}}
    mark["opacity"] = {"expr": "hovered == datum.key ? 0.12 : 0"}
    whole = {"x2": {"field": "x2"}, "y": {"value": 0}, "y2": {"value": "height"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": whole}
