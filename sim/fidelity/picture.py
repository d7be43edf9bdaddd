"""Log-log charts of predicted against measured values, with bands of 10 and 20 % around the diagonal.

All validations use the panels; validation.png of serving benchmarks has one per quantity, with a colour per engine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.fidelity.scores import SCORED, PredictedRow, scores
from sim.language import N_, _
from sim.report.charts.layout import AxisScale
from sim.report.charts.panels import style
from sim.report.charts.picture import KeyEntry, picture
from sim.report.charts.vega_lite import CROSS, MARK_COLOR, SHAPES, PageFigure, expression
from sim.report.words.text import plain

Marks = Mapping[str, tuple[str, str]]
"""Colour and marker of each group of points."""
Points = dict[str, list[tuple[float, float]]]
"""Points (measured, predicted) of each group."""

BANDS = ((0.2, 0.10), (0.1, 0.16))
"""Bands as (relative half-width, opacity)."""
SIDE = 380
"""Height of a plot area [px]."""
FARTHEST = 8.0
"""Largest factor between a point and the diagonal; farther points are drawn at this distance."""


def clipped_to_diagonal(predicted: float, measured: float) -> tuple[float, float]:
    """Return the point (measured, predicted) with its distance from the diagonal limited to FARTHEST."""
    return measured, min(max(predicted, measured / FARTHEST), measured * FARTHEST)


def scatter(title: str, subtitle: str, x_label: str, points: Points, marks: Marks) -> PageFigure:
    """Return a chart of *points* on equal logarithmic axes, large groups below small ones."""
    every = [value for pairs in points.values() for pair in pairs for value in pair]
    low, high = (min(every) / 1.4, max(every) * 1.4) if every else (1.0, 10.0)
    rows = [
        {"x": x, "y": y, "color": marks[name][0], "shape": SHAPES.get(marks[name][1], CROSS)}
        for name, pairs in sorted(points.items(), key=lambda item: -len(item[1]))
        for x, y in pairs
    ]
    ends = (low, high)
    bands = [
        {"data": {"values": [{"x": end, "y": end * (1 - half), "hi": end * (1 + half)} for end in ends]},
         "mark": {"type": "area", "clip": True, "color": {"expr": "ink"}, "opacity": dark},
         "encoding": {"y2": {"field": "hi"}}}
        for half, dark in BANDS
    ]  # fmt: skip
    line = {"type": "line", "strokeWidth": 1, "color": {"expr": "soft"}}
    diagonal = {"data": {"values": [{"x": end, "y": end} for end in ends]}, "mark": line}
    look = {"type": "point", "filled": True, "size": 22, "opacity": 0.5, "shape": {"expr": "datum.shape"}}
    look |= {"color": {"expr": MARK_COLOR}, "clip": True}
    drawn = {"data": {"values": rows}, "mark": look}
    missing = {"type": "text", "text": _("not measured"), "fontSize": 14, "color": {"expr": "soft"}}
    empty = {"data": {"values": [{"x": (low * high) ** 0.5, "y": (low * high) ** 0.5}]}, "mark": missing}
    encoding = {"x": _axis("x", low, high, x_label), "y": _axis("y", low, high, None)}
    layers = [*bands, diagonal, drawn if rows else empty]
    return PageFigure(title, subtitle, {"height": SIDE, "encoding": encoding, "layer": layers})


def _axis(name: str, low: float, high: float, title: str | None) -> dict[str, Any]:
    """Return the logarithmic axis *name* from *low* to *high*."""
    scale = AxisScale([low, high], False)
    scale.low, scale.high, scale.log = low, high, True
    axis = {"title": title, "values": scale.ticks(), "grid": True, "labelExpr": expression(plain)}
    shown = {"type": "log", "domain": [low, high], "nice": False}
    return {"field": name, "type": "quantitative", "scale": shown, "axis": axis}


def key_of(marks: Marks) -> list[KeyEntry]:
    """Return the legend of the groups of points *marks*."""
    return [KeyEntry(name, *look) for name, look in marks.items()]


PANELS = {
    "throughput": (N_("Throughput"), N_("tokens/s (where unknown, requests/s)"), ("throughput",)),
    "tpot": (N_("Time per output token"), "ms", ("tpot",)),
    "ttft": (N_("Time to first token, not saturated"), "ms", ("ttft loaded", "ttft alone")),
}
"""Panels as (title, unit, scored quantities)."""


def write_picture(path: Path, outcomes: Sequence[PredictedRow]) -> None:
    """Write validation.png with the rows of the scored class."""
    scored = [one for one in outcomes if one.category == SCORED and one.covered]
    engines = sorted({one.prediction.engine for one in scored}, key=lambda name: (-_count(scored, name), name))
    marks = style(engines)
    rows = sum(one.category == SCORED for one in outcomes)
    subtitle = _(
        "{count:,} of {rows:,} rows of the scored class. Shaded: within 10 and 20 % of the measurement.",
        count=len(scored),
        rows=rows,
    )
    figures = [
        scatter(_(title), _("predicted [{unit}]", unit=unit), _("measured [{unit}]", unit=unit),
                _points(scored, quantities), marks)
        for title, unit, quantities in PANELS.values()
    ]  # fmt: skip
    key = key_of({f"{name} ({_count(scored, name)})": mark for name, mark in marks.items()})
    picture(figures, headline(outcomes), [subtitle], key).save(path)


def headline(outcomes: Sequence[PredictedRow]) -> str:
    """Return the median errors of the scored class in one sentence."""
    found = {one.quantity: one for one in scores([o for o in outcomes if o.category == SCORED], lambda _: ())}
    names = {
        "throughput": _("throughput"),
        "tpot": _("time per output token"),
        "ttft loaded": _("time to first token under load"),
    }
    parts = [
        f"{label} {100 * found[name].covered_median_error:.0f} %"  # type: ignore[operator]
        for name, label in names.items()
        if name in found and found[name].covered_median_error is not None
    ]
    pairs = max((one.pairs for one in found.values()), default=0)
    if not parts:
        return _("No row of the scored class could be predicted")
    return _("Median error over {pairs} pairs of GPU and model: ", pairs=pairs) + ", ".join(parts)


def _points(scored: Sequence[PredictedRow], quantities: Sequence[str]) -> Points:
    points: Points = {}
    for one in scored:
        for quantity, metric in one.quantities().items():
            predicted = one.prediction.metrics.get(metric)
            if quantity in quantities and predicted is not None and np.isfinite(predicted):
                points.setdefault(one.prediction.engine, []).append(
                    clipped_to_diagonal(predicted, one.row.measured[metric])
                )
    return points


def _count(scored: Sequence[PredictedRow], engine: str) -> int:
    return sum(one.prediction.engine == engine for one in scored)
