"""Charts as Vega-Lite specifications, which a page draws and `picture.py` composes into pictures.

Colours are names (`ink`, `paper`, `palette`) that the page fills in, so that one specification serves light and dark
pages. `picked` is the highlighted fleet, `hovered` the point under the pointer: parameters of the page. The texts of a
chart are layers, laid out for plot areas of several widths. The JavaScript that draws charts is Vega and Vega-Lite, as
vl-convert carries them; bundling takes seconds, so its text is kept in the user's cache.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from math import isfinite, isnan
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from sim.language import _
from sim.report.charts.layout import AxisScale, PlacedText, core, lay_out
from sim.report.charts.panels import COLORS, ChartCurve, Limit, Panel, for_print
from sim.report.words.money import money_mark, money_thousands, symbol
from sim.report.words.text import percent, plain, ranged
from sim.study.execution.durable import write_atomically

TEXT_SHARE = "width * 0.35"
"""Vega expression for the part of a plot's width that texts beside bars may take."""
FONT = "Helvetica Neue, Helvetica, Arial, Liberation Sans, sans-serif"
DARK = {"#0072B2": "#4BA3E3", "#CE6BA3": "#D87CAF", "#6F5A00": "#E6B000", "#1A94FE": "#A6DAFF", "#000000": "#F2F2F2"}
"""Palette on black: the same hues, brighter where they would be too dim or too similar."""
WORDS = {"#CE6BA3": "#A34A7E", "#1A94FE": "#1F74A8", "#009E73": "#00795A", "#D55E00": "#B84F00"}
"""Colours of text on white: the same hues, dark enough to read (4.5:1)."""
EXTRA = ("#222222", "#444444", "#666666", "#6f94c4", "#c2703d", "#B3261E")
"""Colours of lines that represent no fleet."""
TONES = {"#222222": "#e8e8e8", "#444444": "#d0d0d0", "#666666": "#b5b5b5", "#B3261E": "#E5675E"}
"""Colours of lines that represent no fleet, on a dark page."""


def themes() -> dict[str, dict[str, Any]]:
    """Return the values of the colour parameters by theme, light and dark."""
    every = (*COLORS, *EXTRA)
    light = {"ink": "#222222", "soft": "#5c5c5c", "faint": "#e3e3e3", "paper": "#ffffff", "shade": "rgba(0,0,0,0.04)"}
    dark = {
        "ink": "#e8e8e8",
        "soft": "#b5b5b5",
        "faint": "#3a3d42",
        "paper": "#17191c",
        "shade": "rgba(255,255,255,0.07)",
    }
    bright = {color: on_black(color) for color in every}
    return {
        "light": {**light, "palette": {color: color for color in every}, "words": {c: WORDS.get(c, c) for c in every}},
        "dark": {**dark, "palette": bright, "words": bright},
    }


def on_black(color: str) -> str:
    """Return the colour of a dark page for *color* of a light page."""
    return DARK.get(color, TONES.get(color, color))


def params() -> list[dict[str, Any]]:
    """Return the default parameters of a chart: a light page, no fleet picked, no point hovered."""
    entries = {**themes()["light"], "picked": "", "hovered": "", "layout": "wide"}
    return [{"name": name, "value": value} for name, value in entries.items()]


def expression(show: Callable[[float], str]) -> str:
    """Return the Vega expression equivalent to the formatter *show*; unknown formatters give plain numbers."""
    known = {
        percent: "format(100 * datum.value, '.3~r') + '\\u00a0%'",
        money_mark: f"{symbol()!r} + format(datum.value, ',.6~r')",
        money_thousands: f"datum.value ? {symbol()!r} + format(datum.value / 1000, ',.6~r') + 'k' : {symbol()!r} + '0'",
        plain: "format(datum.value, ',.6~r')",
    }
    return known.get(show, known[plain])


MARK_COLOR = "palette[datum.color] || datum.color"
"""Expression for the colour of a mark: the theme's colour of that name, else the colour itself."""
FADED_OPACITY = 0.1
Spec = dict[str, Any]


def lines(panel: Panel, rows: Sequence[Sequence[Spec]], steady: bool) -> Spec:
    """Build the layer of curves; segments at an overloaded point are dotted (*steady* false)."""
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
            looks[name]["dash"] = dash_lengths(curve.dash) if steady else [1, 2]
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
        "color": {"expr": f"palette[{look}.color] || {look}.color"},
        "strokeDash": {"expr": f"{look}.dash"},
        "opacity": opacity(1, f"{look}.fleet"),
    }
    order = {"field": "i", "type": "quantitative"}
    return {"data": {"values": found}, "mark": mark, "encoding": {"detail": nominal_field("part"), "order": order}}


def _bends(points: Sequence[Spec]) -> list[Spec]:
    """Drop *points* inside level segments, which are most points of charts over time."""
    inner = zip(points, points[1:], points[2:], strict=False)
    kept = [one for before, one, after in inner if len({(p["y"], p["steady"]) for p in (before, one, after)}) > 1]
    return [*points[:1], *kept, *points[1:][-1:]]


def dash_lengths(dash: Any) -> list[float]:
    """Return the lengths of the strokes and gaps of a line of style *dash* [px]."""
    return [1.5 * length for length in dash[1]] if isinstance(dash, tuple) else [1, 0]


def bands(panel: Panel, x: AxisScale, y: AxisScale) -> Spec:
    """Build the layer of 95 % intervals and filled areas."""
    rows = []
    for index, curve in enumerate(panel.curves):
        for place, band in enumerate(curve.bands if panel.shows_bands else ()):
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
    mark = {"type": "area", "clip": True, "color": {"expr": MARK_COLOR}, "opacity": opacity(0.18)}
    return {"data": {"values": rows}, "mark": mark, "encoding": {"y2": {"field": "hi"}, "detail": nominal_field("c")}}


def nominal_field(name: str) -> Spec:
    """Return an encoding of the nominal field *name*."""
    return {"field": name, "type": "nominal"}


def opacity(full: float, fleet: str = "datum.fleet") -> Spec:
    """Return the opacity expression, reduced for fleets other than the picked one; *fleet*: a row's own fleet."""
    return {"expr": f"picked && picked != {fleet} ? {FADED_OPACITY} * {full} : {full}"}


SIZES = {"wide": (470.0, 240.0), "middle": (370.0, 240.0), "narrow": (275.0, 240.0)}
"""Least plot area of each layout [px]; page.js has the widths of charts from which a layout is shown."""
SMALL, USUAL = 11.0, 12.0
"""Font sizes of regular and bold labels [px]."""


def layouts(panel: Panel, x: AxisScale, y: AxisScale) -> list[dict[str, Any]]:
    """Build two layers of texts, regular and bold; rows name the layout in which they are shown."""
    rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for name, size in SIZES.items():
        for text in lay_out(panel, x, y, size, (SMALL, USUAL)):
            if text.text:
                rows[text.bold].append({"layout": name, **_row(text, x, y, size)})
    return [_layer(found, bold) for bold, found in rows.items() if found]


def _row(text: PlacedText, x: AxisScale, y: AxisScale, size: tuple[float, float]) -> dict[str, Any]:
    place, (at_x, at_y) = text.place, text.place.beside
    if place.x >= at_x:
        side, dx = "left", place.x - at_x
    elif place.x + place.width <= at_x:
        side, dx = "right", place.x + place.width - at_x
    else:
        side, dx = "center", place.x + place.width / 2 - at_x
    if not text.bold:  # room for the radius of markers
        dx += {"left": 2.0, "right": -2.0, "center": 0.0}[side]
    dy = at_y - place.y - place.height / 2
    fleet = "" if text.curve is None else text.curve.fleet or text.curve.name
    color = text.color if text.curve is not None else ""
    at = {"x": x.value(at_x / size[0]), "y": y.value(at_y / size[1]), "dx": round(dx, 1), "dy": round(dy, 1)}
    return {**at, "t": text.text, "side": side, "fleet": fleet, "color": color}


def _layer(rows: list[dict[str, Any]], bold: bool) -> dict[str, Any]:
    faded = "picked && datum.fleet && picked != datum.fleet"
    mark = {
        "type": "text",
        "clip": False,  # charts that zoom clip marks by default, which would cut labels on the upper edge
        "text": {"expr": "datum.t"},
        "align": {"expr": "datum.side"},
        "baseline": "middle",
        "dx": {"expr": "datum.dx"},
        "dy": {"expr": "datum.dy"},
        "fontSize": USUAL if bold else SMALL,
        "fontWeight": "bold" if bold else "normal",
        "color": {"expr": "datum.color ? words[datum.color] || datum.color : ink"},
        "opacity": {"expr": f"datum.layout != layout ? 0 : {faded} ? 0.15 : 1"},
        "tooltip": None,
    }
    return {"data": {"values": rows}, "mark": mark}


HEIGHT = 240
"""Height of a plot area [px]; its width is that of the page's column."""
RING_AREA = 200
"""Area that a ring around a marker encloses [px^2]."""
SHAPES = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"}
CROSS = "M-.45,-.3L-.3,-.45L0,-.15L.3,-.45L.45,-.3L.15,0L.45,.3L.3,.45L0,.15L-.3,.45L-.45,.3L-.15,0Z"
GAP = 6
"""Least space between two labels of an axis [px]; with less, one of them is left out."""
TENTH = 10.0
FOR_LINES = ("c", "i", "steady", "mark")
"""Fields of points that only lines and rings need."""
RINGS = {"interpolated": [1, 0], "extrapolated": [1.5, 2]}
"""Mark of a point -> dashes of its ring."""
MOST_RESPONDING = 130
"""Largest number of points that respond to the pointer on a line without markers."""


BESIDE_LIMIT = 0.18
"""Least fraction of an axis beyond an upright limit, where points lie off the chart: room for their labels."""


def scales_of(panel: Panel) -> tuple[AxisScale, AxisScale]:
    """Return the x and the y axis of *panel*."""
    x = AxisScale(core(panel, "x", panel.x_limit), panel.x_anchored, linear=panel.x_linear, below=True)
    y = AxisScale(core(panel, "y", panel.y_limit), True, panel.y_share, panel.y_linear, below=panel.y_share)
    if panel.x_limit is not None and any(at > x.high for curve in panel.curves for at in curve.x):
        beyond = 1.0 - float(x.shares(np.array([panel.x_limit.at]))[0])
        if 0 < beyond < BESIDE_LIMIT:
            x.widen((BESIDE_LIMIT - beyond) / (1.0 - beyond))
    return x, y


PADDING = {"left": 5, "right": 5, "top": 14, "bottom": 5}
"""Room around a chart [px]: above it for labels that reach beyond the plot area."""


def chart_spec(panel: Panel) -> Spec:
    """Build the specification of *panel*; the same panel gives the same specification."""
    x, y = scales_of(panel)
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
        "padding": PADDING,
        "params": params(),
        "usermeta": {"said": [panel.x_label, panel.title]},
        "encoding": {"x": _axis_x(panel, x), "y": _axis_y(panel, y)},
        "layer": [layer for layer in layers if layer],
        "config": config(),
    }


def config() -> Spec:
    """Return the style of all charts; its colours are parameters of the page."""
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


def _axis_x(panel: Panel, scale: AxisScale) -> Spec:
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
    return _channel("x", scale, axis | ({} if ticks or scale.log else {"tickCount": 6}))


def _axis_y(panel: Panel, scale: AxisScale) -> Spec:
    axis: Spec = {"labelExpr": expression(panel.y_format), "title": None}
    if PRINTED.get():
        axis["title"] = panel.y_label or panel.title
    return _channel("y", scale, axis | ({"values": _decades(scale)} if scale.log else {"tickCount": 5}))


def _channel(name: str, scale: AxisScale, axis: Spec) -> Spec:
    kind = {"type": "log"} if scale.log else {"type": "linear", "zero": False}
    return {
        "field": name,
        "type": "quantitative",
        "scale": {**kind, "domain": list(scale.drawn), "nice": False},
        "axis": axis,
    }


def _decades(scale: AxisScale) -> list[float]:
    """Return round numbers of a logarithmic axis, with those that zooming and panning may show."""
    ticks = scale.ticks()
    ends = [tick * TENTH**power for tick in ticks for power in (-2, -1, 0, 1, 2)]
    return sorted({float(f"{tick:.6g}") for tick in ends})


def _points(panel: Panel, index: int, curve: ChartCurve, x: AxisScale, y: AxisScale) -> list[Spec]:
    """Return a row per point of *curve*: place, look and tooltip."""
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
                **_tooltip(panel, curve, place),
            }
        )
    return rows


def _short(value: float) -> float:
    """Round to seven digits, which exceed the resolution of a screen."""
    return float(f"{value:.7g}")


def _shape(marker: str) -> str:
    return SHAPES.get(marker, CROSS) if marker else ""


def _tooltip(panel: Panel, curve: ChartCurve, place: int) -> Spec:
    """Return name and tooltip of a point; the page may replace the tooltip by a fuller one."""
    half, band = curve.half[place] if curve.half else None, curve.ends[place] if curve.ends else None
    value = panel.y_format(curve.y[place]) + (f" ± {plain(half, 2)}" if half and isfinite(half) else "")
    value += f" ({ranged(*map(panel.y_format, band))})" if band else ""
    names = curve.names[place] if curve.names else curve.name
    return {"name": names, "said": [_place(panel, curve.x[place]), value]}


def _place(panel: Panel, at: float) -> str:
    named = dict(zip(panel.x_ticks, panel.x_names, strict=False))
    return named.get(at) or panel.x_format(at)


def _shade(limit: Limit | None, scale: AxisScale) -> list[Spec]:
    """Shade the side of an upright limit that misses it."""
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
    """Build a line, a band and a name for each fleet-wide value of x."""
    if not panel.spans:
        return []
    rows = [
        {"x": one.at, "lo": one.at - one.half, "hi": one.at + one.half, "t": one.text, "color": one.color,
         "fleet": one.fleet}
        for one in panel.spans
    ]  # fmt: skip
    data, upright = {"values": rows}, {"y": {"value": 0}, "y2": {"value": "height"}}
    color, words = {"expr": MARK_COLOR}, {"expr": "words[datum.color]"}
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
    """Build rings around points that are not close to measurements."""
    found = [
        {name: row[name] for name in ("x", "y", "fleet", "color")} | {"dash": RINGS[row["mark"]]}
        for points in rows
        for row in points
        if row["mark"] in RINGS
    ]
    return ring_layer(found) if found else {}


def ring_layer(rows: Sequence[Spec]) -> Spec:
    """Build a layer of rings: x, y, fleet, colour and dashes of each."""
    mark = {
        "type": "point",
        "clip": True,
        "filled": False,
        "shape": "circle",
        "size": RING_AREA,
        "strokeWidth": 1,
        "stroke": {"expr": MARK_COLOR},
        "strokeDash": {"expr": "datum.dash"},
        "opacity": opacity(0.75),
    }
    return {"data": {"values": [*rows]}, "mark": mark}


def _responding_points(points: Sequence[Spec]) -> Sequence[Spec]:
    """Choose the points that respond to the pointer on a line without markers: one per level segment."""
    steps = [row for before, row in zip([None, *points], points, strict=False) if not before or before["y"] != row["y"]]
    return steps[:: 1 + len(steps) // MOST_RESPONDING]


def _marks(rows: Sequence[Sequence[Spec]]) -> Spec:
    """Build the layer of points; points without a marker appear under the pointer. Shift and wheel or drag zooms."""
    found = [
        {name: row[name] for name in row if name not in FOR_LINES}
        for points in rows
        for row in (points if points and points[0]["shape"] else _responding_points(points))
    ]
    bare = "datum.shape == ''"
    mark = {
        "type": "point",
        "clip": True,
        "filled": False,
        "strokeWidth": 1.8,
        "shape": {"expr": f"{bare} ? 'circle' : datum.shape"},
        "size": {"expr": f"hovered == datum.key ? 150 : {bare} ? 60 : 62"},
        "stroke": {"expr": MARK_COLOR},
        "fill": {"expr": f"datum.good ? ({MARK_COLOR}) : paper"},
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
    return {"data": {"values": found}, "mark": mark, "params": [zoom], "encoding": {"detail": nominal_field("key")}}


SNIPPET = "window.vegaEmbed=vegaEmbed;"


@cache
def bundle() -> str:
    """Return the script that defines `vegaEmbed`, without network access."""
    import vl_convert

    made_of = (vl_convert.get_vega_version(), vl_convert.get_vegalite_versions()[-1], f"{crc32(SNIPPET.encode()):x}")
    name = f"vega-{'-'.join(made_of)}.js"
    with suppress(OSError, RuntimeError, UnicodeDecodeError):  # there is no home directory, or no cached file
        return (_cache() / name).read_text(encoding="utf-8")
    text: str = vl_convert.javascript_bundle(SNIPPET).replace("</script", r"<\/script")
    with suppress(OSError, RuntimeError):  # the cache is optional, so a failed write is ignored
        write_atomically(_cache() / name, text)
    return text


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"


@dataclass(frozen=True, slots=True)
class PageFigure:
    """Chart with its heading."""

    title: str
    subtitle: str
    spec: Mapping[str, Any]
    description: str = ""
    """Description of the chart for screen readers."""
    wide: bool = False
    """True if the chart takes the whole width of the page."""


@dataclass(frozen=True, slots=True)
class PageCharts:
    """Data for the scripts of a page: tooltips, colours and the drawing program."""

    details: Mapping[str, Any] = field(default_factory=dict)
    """Tooltips: key of a point -> its title and rows of (name, value)."""

    @property
    def themes(self) -> Mapping[str, Any]:
        """Values of the colour parameters by theme, light and dark."""
        return themes()

    @property
    def bundle(self) -> str:
        """Script that draws the charts."""
        return bundle()


PRINTED: ContextVar[float] = ContextVar("printed", default=0.0)
"""Width of a figure for a paper [inch]; 0: charts of a page, under their headings."""


def panel_figure(panel: Panel) -> PageFigure:
    """Build the figure of *panel*."""
    panel = for_print(panel) if PRINTED.get() else panel
    names = dict.fromkeys(curve.name for curve in panel.curves if curve.name)
    limits = [limit.text for limit in (panel.x_limit, panel.y_limit) if limit is not None]
    description = _("Over {x_label}: {value}.", x_label=panel.x_label, value=_(", ").join([*names, *limits]))
    return PageFigure(panel.title, panel.subtitle, chart_spec(panel), description)


def panel_figures(panels: Sequence[Panel]) -> list[PageFigure]:
    """Build the figures of *panels*."""
    return [panel_figure(panel) for panel in panels]
