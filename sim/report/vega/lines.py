"""The curves of a chart and their intervals, with as few points as show the same."""

import json
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from sim.report.charts.panels import Panel
from sim.report.charts.scale import Scale

FADED = 0.1
Spec = dict[str, Any]


def lines(panel: Panel, rows: Sequence[Sequence[Spec]], steady: bool) -> Spec:
    """The curves; stretches to or from an overloaded point are dotted."""
    found: list[Spec] = []
    looks: dict[str, Spec] = {}
    for curve, points in zip(panel.curves, rows, strict=True):
        if curve.dash == "None":
            continue
        part = 0
        for one, following in pairwise(_bends(points)):
            if (one["steady"] and following["steady"]) != steady:
                part += 1
                continue
            name = f"{one['c']}/{part}"
            looks[name] = {key: one[key] for key in ("fleet", "color")}
            looks[name]["dash"] = _dash(curve.dash) if steady else [1, 2]
            for end in (one, following):
                row = {key: end[key] for key in ("x", "y", "i")} | {"part": name}
                if not found or found[-1] != row:
                    found.append(row)
    if not found:
        return {}
    look = f"({json.dumps(looks, ensure_ascii=False)})[datum.part]"
    mark = {
        "type": "line",
        "clip": True,
        "strokeWidth": 2.2 if steady else 1.2,
        "color": {"expr": f"palette[{look}.color]"},
        "strokeDash": {"expr": f"{look}.dash"},
        "opacity": opacity(1, f"{look}.fleet"),
    }
    order = {"field": "i", "type": "quantitative"}
    return {"data": {"values": found}, "mark": mark, "encoding": {"detail": field("part"), "order": order}}


def _bends(points: Sequence[Spec]) -> list[Spec]:
    """*points* without those in the middle of a level stretch: over time most of them."""
    inner = zip(points, points[1:], points[2:], strict=False)
    kept = [one for before, one, after in inner if len({(p["y"], p["steady"]) for p in (before, one, after)}) > 1]
    return [*points[:1], *kept, *points[1:][-1:]]


def _dash(dash: Any) -> list[float]:
    return [1.5 * length for length in dash[1]] if isinstance(dash, tuple) else [1, 0]


def bands(panel: Panel, x: Scale, y: Scale) -> Spec:
    """The 95 % intervals as areas."""
    rows = []
    for index, curve in enumerate(panel.curves):
        for place, band in enumerate(curve.bands):
            at = curve.x[place]
            steady = curve.steady[place] if curve.steady else True
            if band is not None and steady and all(map(isfinite, band)):
                low, high = max(band[0], y.low), min(band[1], y.most)
                look = {"c": index, "fleet": curve.fleet or curve.name, "color": curve.color}
                rows.append({"x": at, "y": low, "hi": high, **look})
        if curve.filled:
            look = {"c": index, "fleet": curve.fleet or curve.name, "color": curve.color}
            upper = [{"x": at, "y": high, "steady": True} for at, high in zip(curve.x, curve.y, strict=True)]
            rows += [{"x": one["x"], "y": y.low, "hi": one["y"], **look} for one in _bends(upper)]
    if not rows:
        return {}
    mark = {"type": "area", "clip": True, "color": {"expr": "palette[datum.color]"}, "opacity": opacity(0.18)}
    return {"data": {"values": rows}, "mark": mark, "encoding": {"y2": {"field": "hi"}, "detail": field("c")}}


def field(name: str) -> Spec:
    """A column of names."""
    return {"field": name, "type": "nominal"}


def opacity(full: float, fleet: str = "datum.fleet") -> Spec:
    """Less for all but the picked fleet; *fleet* is where a row has its own."""
    return {"expr": f"picked && picked != {fleet} ? {FADED} * {full} : {full}"}
