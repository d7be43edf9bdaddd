"""Horizontal bars as a Vega-Lite specification: tornado charts, and steps from one amount to another."""

from collections.abc import Sequence
from typing import Any

from sim.language import _
from sim.report.charts.tornado import SideBar
from sim.report.charts.vega_lite import MARK_COLOR, TEXT_SHARE, PageFigure, config, params
from sim.report.words.text import plain

ROW = 26
"""Height of a row [px]."""
GLYPH = 6.0
"""Mean width of a character of the texts [px]."""
GLYPHS = f"max(8, floor({TEXT_SHARE} / {GLYPH}))"
"""Vega expression for the largest number of characters of a text beside a bar: a third of the plot."""


def bar_figure(title: str, subtitle: str, bars: Sequence[SideBar], unit: str, base: float) -> PageFigure:
    """Build the chart of *bars* around a line at *base*; *unit* is the title of the axis."""
    longest = max(bars, key=lambda bar: abs(bar.end - bar.start), default=None)
    description = _("Over {unit}, {len} bars.", unit=unit, len=len({bar.row for bar in bars}))
    description += _(" The longest is {label}.", label=longest.label) if longest is not None else ""
    return PageFigure(title, subtitle, _spec(bars, unit, base), description)


def _spec(bars: Sequence[SideBar], unit: str, base: float) -> dict[str, Any]:
    rows = [_row(bar, unit) for bar in bars]
    labels = list(dict.fromkeys(bar.label for bar in sorted(bars, key=lambda bar: bar.row)))
    texts = {"data": {"values": [row for row in rows if row["t"]]}, "mark": _text()}
    texts["encoding"] = {"x": {"field": "at", "type": "quantitative"}}
    line = {"data": {"values": [{"x": base}]}, "mark": {"type": "rule", "color": {"expr": "ink"}}}
    line["encoding"] = {"y": {"value": 0}, "y2": {"value": "height"}}
    mark = {"type": "bar", "height": 16, "cursor": "pointer", "color": {"expr": MARK_COLOR}}
    mark["opacity"] = {"expr": "picked && datum.fleet && picked != datum.fleet ? 0.15 : 1"}
    mark["stroke"] = {"expr": "hovered == datum.key ? ink : null"}
    axis = {"title": unit, "tickCount": 6, "grid": True, "labelExpr": "format(datum.value, ',.6~r')"}
    scale = {"type": "linear", **_domain(bars, base), "nice": False, "zero": False}
    # The limit leaves room for the plot area on narrow pages.
    names = {"title": None, "domain": False, "ticks": False, "grid": False, "labelColor": {"expr": "ink"}}
    names |= {"labelLimit": {"expr": "layout == 'narrow' ? 120 : 190"}, "labelOverlap": False}
    whiskers = [{"label": bar.label, "x": bar.end - bar.half, "x2": bar.end + bar.half} for bar in bars if bar.half]
    layers = [{"data": {"values": rows}, "mark": mark, "encoding": {"x2": {"field": "x2"}}}, line, texts]
    if whiskers:
        look = {"type": "rule", "strokeWidth": 2, "color": {"expr": "ink"}}
        layers.append({"data": {"values": whiskers}, "mark": look, "encoding": {"x2": {"field": "x2"}}})
    return {
        "width": "container",
        "height": ROW * max(1, len(labels)),
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": params(),
        "encoding": {
            "x": {"field": "x", "type": "quantitative", "axis": axis, "scale": scale},
            "y": {"field": "label", "type": "nominal", "sort": labels, "scale": {"domain": labels}, "axis": names},
        },
        "layer": layers,
        "config": config(),
    }


def _row(bar: SideBar, unit: str) -> dict[str, Any]:
    tooltip = {unit: plain(bar.end, 4)} | ({"from": plain(bar.start, 4)} if bar.start else {})
    return {
        "label": bar.label,
        "x": bar.start,
        "x2": bar.end,
        "color": bar.color,
        "t": bar.text,
        "at": bar.text_at,
        "side": "left" if bar.rightwards else "right",
        "key": f"{bar.label}/{bar.color}",
        "name": bar.label,
        "fleet": bar.fleet,
        "said": ({"at": bar.text} if bar.text else {}) | tooltip,
    }


def _text() -> dict[str, Any]:
    return {
        "type": "text",
        "text": {"expr": f"truncate(datum.t, {GLYPHS})"},
        "align": {"expr": "datum.side"},
        "dx": {"expr": "datum.side == 'left' ? 5 : -5"},
        "baseline": "middle",
        "fontSize": 11,
        "color": {"expr": "soft"},
    }


def _domain(bars: Sequence[SideBar], base: float) -> dict[str, Any]:
    """Return the domain of the axis, with room for the texts on both sides in a plot of any width."""
    ends = [float(end) for end in (base, *(end for bar in bars for end in (bar.start, bar.end + bar.half)))]
    reach = (max(ends) - min(ends)) or abs(ends[0]) or 1.0
    before, after = (_room([bar.text for bar in bars if bar.rightwards == side]) for side in (False, True))
    each = f"{reach!r} / max(width - {before} - {after}, width / 4)"
    return {
        "domainMin": {"expr": f"{min(ends)!r} - {before} * {each}"},
        "domainMax": {"expr": f"{max(ends)!r} + {after} * {each}"},
    }


def _room(texts: Sequence[str]) -> str:
    """Return a Vega expression for the room that *texts* need beside their bars [px]."""
    longest = max(map(len, texts), default=0)
    return f"(min({longest}, {GLYPHS}) * {GLYPH} + 18)"
