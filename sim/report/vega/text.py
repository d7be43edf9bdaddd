"""The texts of a chart as layers of a specification: laid out for a wide and for a narrow page.

A text keeps its distance from the point that it names when the chart is stretched or moved.
"""

from typing import Any

from sim.report.charts.layout import Text, lay_out
from sim.report.charts.panels import Panel
from sim.report.charts.scale import Scale

SIZES = {"wide": (470.0, 240.0), "narrow": (275.0, 240.0)}
"""Layout -> plot area that it is made for [px]."""
SMALL, USUAL = 11.0, 12.0


def layouts(panel: Panel, x: Scale, y: Scale) -> list[dict[str, Any]]:
    """Two layers, one for the texts in bold; the page says which layout is shown."""
    rows: dict[bool, list[dict[str, Any]]] = {False: [], True: []}
    for name, size in SIZES.items():
        for text in lay_out(panel, x, y, size, (SMALL, USUAL)):
            if text.text:
                rows[text.bold].append({"layout": name, **_row(text, x, y, size)})
    return [_layer(found, bold) for bold, found in rows.items() if found]


def _row(text: Text, x: Scale, y: Scale, size: tuple[float, float]) -> dict[str, Any]:
    place, (at_x, at_y) = text.place, text.place.beside
    if place.x >= at_x:
        side, dx = "left", place.x - at_x
    elif place.x + place.width <= at_x:
        side, dx = "right", place.x + place.width - at_x
    else:
        side, dx = "center", place.x + place.width / 2 - at_x
    if not text.bold:  # markers are a little larger here than in the picture
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
