"""A chart as a Vega-Lite specification: what `draw.py` draws as a picture, for a page to draw and to ask.

Colours are names (`ink`, `paper`, `palette`) that the page fills in, so that one specification serves light and dark.
`picked` is the fleet that is shown alone, `hovered` the point under the pointer: the page sets both in all its charts.
"""

from collections.abc import Sequence
from math import isfinite, isnan
from typing import Any

from sim.report.charts.panels import ChartCurve, Limit, Panel
from sim.report.charts.scale import Scale, core
from sim.report.vega.lines import bands, field, lines, opacity
from sim.report.vega.text import layouts
from sim.report.vega.theme import FONT, expression, params
from sim.report.words.text import plain, ranged

HEIGHT = 240
"""Of a plot area [px]; its width is that of the page's column."""
SHAPES = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"}
CROSS = "M-.45,-.3L-.3,-.45L0,-.15L.3,-.45L.45,-.3L.15,0L.45,.3L.3,.45L0,.15L-.3,.45L-.45,.3L-.15,0Z"
GAP = 6
"""Between two numbers of an axis [px]; where there is less, one of them is left out."""
EDGE = 0.02
"""Room beyond the range of an axis, for the markers on its edge."""
TENTH = 10.0
FOR_LINES = ("c", "i", "steady", "mark")
"""What points need for lines and rings only."""
RINGS = {"interpolated": [1, 0], "extrapolated": [1.5, 2]}
"""Mark of a point -> dashes of the ring around it."""
MOST_TELLING = 130
"""Points under the pointer of a line without markers."""
Spec = dict[str, Any]


def chart_spec(panel: Panel) -> Spec:
    """The specification of *panel*; the same panel gives the same one."""
    x = Scale(core(panel, "x", panel.x_limit), panel.x_anchored, linear=panel.x_linear)
    y = Scale(core(panel, "y", panel.y_limit), True, panel.y_share, panel.y_linear)
    rows = [_points(panel, index, curve, x, y) for index, curve in enumerate(panel.curves)]
    layers = [
        *_shade(panel.x_limit, x),
        *_spans(panel),
        bands(panel, x, y),
        *_rules(panel),
        lines(panel, rows, steady=True),
        lines(panel, rows, steady=False),
        _rings(rows),
        _marks(rows),
        *layouts(panel, x, y),
    ]
    return {
        "width": "container",
        "height": HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": params(),
        "usermeta": {"said": [panel.x_label, panel.title]},
        "encoding": {"x": _axis_x(panel, x), "y": _axis_y(panel, y)},
        "layer": [layer for layer in layers if layer],
        "config": config(),
    }


def config() -> Spec:
    """The look of all charts; its colours are the page's."""
    quiet = {"labelColor": {"expr": "soft"}, "titleColor": {"expr": "soft"}, "tickColor": {"expr": "soft"}}
    size = {"labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal"}
    sparse = {"labelOverlap": "greedy", "labelSeparation": GAP}
    grid = {"gridColor": {"expr": "faint"}, "domainColor": {"expr": "soft"}, "tickSize": 3}
    return {
        "font": FONT,
        "background": "transparent",
        "view": {"stroke": None},
        "axis": {**quiet, **size, **sparse, **grid},
        "axisX": {"grid": False, "titleAnchor": "start", "titleAlign": "left", "titlePadding": 6},
        "axisY": {"domain": False, "title": None},
    }


def _axis_x(panel: Panel, scale: Scale) -> Spec:
    axis: Spec = {"title": panel.x_label}
    ticks = [tick for tick in panel.x_ticks if scale.low <= tick <= scale.high]
    if ticks:
        axis["values"] = ticks
    elif scale.log:
        axis["values"] = _decades(scale)
    if panel.x_names:
        names = {f"{tick:g}": name for tick, name in zip(panel.x_ticks, panel.x_names, strict=True)}
        axis["labelExpr"] = f"({names!r})[format(datum.value, '~g')] || ''"
    else:
        axis["labelExpr"] = expression(panel.x_format)
    return _channel("x", _x_domain(scale), scale, axis | ({} if ticks or scale.log else {"tickCount": 6}))


def _axis_y(panel: Panel, scale: Scale) -> Spec:
    axis: Spec = {"labelExpr": expression(panel.y_format), "title": None}
    low, high = _domain(scale)
    low -= EDGE * panel.y_share  # a marker at 0 is whole, too
    return _channel("y", [low, high], scale, axis | ({"values": _decades(scale)} if scale.log else {"tickCount": 5}))


def _channel(name: str, domain: list[float], scale: Scale, axis: Spec) -> Spec:
    kind = {"type": "log"} if scale.log else {"type": "linear", "zero": False}
    return {
        "field": name,
        "type": "quantitative",
        "scale": {**kind, "domain": domain, "nice": False},
        "axis": axis,
    }


def _domain(scale: Scale) -> list[float]:
    """Its range and a little more, so that a marker on the edge is whole."""
    if scale.log:
        return [scale.low, scale.high * (scale.high / scale.low) ** EDGE]
    return [scale.low, scale.high + EDGE * (scale.high - scale.low)]


def _x_domain(scale: Scale) -> list[float]:
    """Room on the left, too: the edge there is no baseline."""
    low, high = _domain(scale)
    if scale.log:
        return [low / (scale.high / scale.low) ** EDGE, high]
    return [low - EDGE * (scale.high - scale.low), high]


def _decades(scale: Scale) -> list[float]:
    """Round numbers of a logarithmic axis, and those that come into view when it is moved."""
    ticks = scale.ticks()
    ends = [tick * TENTH**power for tick in ticks for power in (-2, -1, 0, 1, 2)]
    return sorted({float(f"{tick:.6g}") for tick in ends})


def _points(panel: Panel, index: int, curve: ChartCurve, x: Scale, y: Scale) -> list[Spec]:
    """A row for each point: its place, what it looks like and what it says under the pointer."""
    rows = []
    for place, (at, value) in enumerate(zip(curve.x, curve.y, strict=True)):
        if isnan(at) or isnan(value):
            continue
        beyond = ">" if at > x.high else "^" if value > y.high else ""
        steady = curve.steady[place] if curve.steady else True
        rows.append(
            {
                "x": _short(min(at, x.high)),
                "y": _short(min(value, y.high)),
                "c": index,
                "i": place,
                "fleet": curve.fleet or curve.name,
                "color": curve.color,
                "good": bool(curve.good[place]) if curve.good else True,
                "steady": bool(steady),
                "mark": curve.marks[place] if curve.marks else "",
                "shape": "triangle-right" if beyond == ">" else "triangle-up" if beyond else _shape(curve.marker),
                "key": curve.keys[place] if curve.keys else f"{panel.title}/{index}/{place}",
                **_said(panel, curve, place),
            }
        )
    return rows


def _short(value: float) -> float:
    """More digits than a screen has pixels, and fewer than a float has."""
    return float(f"{value:.7g}")


def _shape(marker: str) -> str:
    return SHAPES.get(marker, CROSS) if marker else ""


def _said(panel: Panel, curve: ChartCurve, place: int) -> Spec:
    """What the chart itself knows of a point, under its headings; where the page knows more, it says that."""
    half, band = curve.half[place] if curve.half else None, curve.ends[place] if curve.ends else None
    value = panel.y_format(curve.y[place]) + (f" ± {plain(half, 2)}" if half and isfinite(half) else "")
    value += f" ({ranged(*map(panel.y_format, band))})" if band else ""
    names = curve.names[place] if curve.names else curve.name
    return {"name": names, "said": [_place(panel, curve.x[place]), value]}


def _place(panel: Panel, at: float) -> str:
    named = dict(zip(panel.x_ticks, panel.x_names, strict=False))
    return named.get(at) or panel.x_format(at)


def _shade(limit: Limit | None, scale: Scale) -> list[Spec]:
    """The side of an upright limit that misses it."""
    if limit is None or not limit.forbids or limit.at >= scale.high:
        return []
    whole = {"x2": {"value": "width"}, "y": {"value": 0}, "y2": {"value": "height"}}
    mark = {"type": "rect", "clip": True, "color": {"expr": "shade"}}
    return [{"data": {"values": [{"x": limit.at}]}, "mark": mark, "encoding": whole}]


def _rules(panel: Panel) -> list[Spec]:
    look = {"type": "rule", "clip": True, "strokeDash": [4, 3], "strokeWidth": 1, "color": {"expr": "ink"}}
    found = []
    if panel.x_limit is not None:
        across = {"y": {"value": 0}, "y2": {"value": "height"}}
        found.append({"data": {"values": [{"x": panel.x_limit.at}]}, "mark": look, "encoding": across})
    if panel.y_limit is not None:
        along = {"x": {"value": 0}, "x2": {"value": "width"}}
        found.append({"data": {"values": [{"y": panel.y_limit.at}]}, "mark": look, "encoding": along})
    return found


def _spans(panel: Panel) -> list[Spec]:
    """A line and a band for each value of x that stands for a fleet, with its name along the line."""
    if not panel.spans:
        return []
    rows = [
        {"x": one.at, "lo": one.at - one.half, "hi": one.at + one.half, "t": one.text, "color": one.color,
         "fleet": one.fleet}
        for one in panel.spans
    ]  # fmt: skip
    data, upright = {"values": rows}, {"y": {"value": 0}, "y2": {"value": "height"}}
    color, words = {"expr": "palette[datum.color]"}, {"expr": "words[datum.color]"}
    band = {"type": "rect", "clip": True, "color": color, "opacity": opacity(0.16)}
    line = {"type": "rule", "clip": True, "strokeWidth": 1.8, "color": color, "opacity": opacity(1)}
    name = {"type": "text", "text": {"expr": "datum.t"}, "angle": 270, "align": "left", "baseline": "top", "dx": 6}
    name |= {"dy": 4, "fontSize": 12, "fontWeight": "bold", "color": words, "opacity": opacity(1)}
    ends = {"x": {**_plain("lo")}, "x2": {"field": "hi"}}
    return [
        {"data": data, "mark": band, "encoding": ends | upright},
        {"data": data, "mark": line, "encoding": upright},
        {"data": data, "mark": name, "encoding": {"y": {"value": "height"}}},
    ]


def _plain(name: str) -> Spec:
    return {"field": name, "type": "quantitative"}


def _rings(rows: Sequence[Sequence[Spec]]) -> Spec:
    """Around points that were not measured near."""
    found = [
        {name: row[name] for name in ("x", "y", "fleet", "color")} | {"dash": RINGS[row["mark"]]}
        for points in rows
        for row in points
        if row["mark"] in RINGS
    ]
    if not found:
        return {}
    mark = {
        "type": "point",
        "clip": True,
        "filled": False,
        "shape": "circle",
        "size": 200,
        "strokeWidth": 1,
        "stroke": {"expr": "palette[datum.color]"},
        "strokeDash": {"expr": "datum.dash"},
        "opacity": opacity(0.75),
    }
    return {"data": {"values": found}, "mark": mark}


def _telling(points: Sequence[Spec]) -> Sequence[Spec]:
    """Points of a line without markers that say something under the pointer: a level stretch does so once."""
    steps = [row for before, row in zip([None, *points], points, strict=False) if not before or before["y"] != row["y"]]
    return steps[:: 1 + len(steps) // MOST_TELLING]


def _marks(rows: Sequence[Sequence[Spec]]) -> Spec:
    """The points; one without a marker is seen under the pointer only. Shift and wheel or drag zooms and moves."""
    found = [
        {name: row[name] for name in row if name not in FOR_LINES}
        for points in rows
        for row in (points if points and points[0]["shape"] else _telling(points))
    ]
    bare = "datum.shape == ''"
    mark = {
        "type": "point",
        "clip": True,
        "filled": False,
        "strokeWidth": 1.8,
        "shape": {"expr": f"{bare} ? 'circle' : datum.shape"},
        "size": {"expr": f"hovered == datum.key ? 150 : {bare} ? 60 : 62"},
        "stroke": {"expr": "palette[datum.color]"},
        "fill": {"expr": "datum.good ? palette[datum.color] : paper"},
        "opacity": {"expr": f"{bare} ? (hovered == datum.key ? 1 : 0) : {opacity(1)['expr']}"},
        "cursor": "pointer",
    }
    zoom = {
        "name": "zoom",
        "select": {
            "type": "interval",
            "zoom": "wheel![event.shiftKey]",
            "translate": "[pointerdown[event.shiftKey], window:pointerup] > window:pointermove!",
        },
        "bind": "scales",
    }
    return {"data": {"values": found}, "mark": mark, "params": [zoom], "encoding": {"detail": field("key")}}
