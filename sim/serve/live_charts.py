"""Charts of an answer for the page: specifications whose data and axes the page can replace without drawing anew.

Drawing a chart takes the browser a tenth of a second; replacing its data, a few milliseconds. The rows of every layer
are therefore data sets with names, and the ends and ticks of the axes are parameters.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from sim.language import current
from sim.report.charts.panels import Panel
from sim.report.charts.vega_lite import panel_figure, ring_layer
from sim.report.words.money import symbol
from sim.study.confidence import MARKS

RINGS = "rings"
"""Name of the data set of rings, which the page fills once it knows how far points are from measurements."""
MOST_KEPT = 100
"""Number of charts in memory; a price moves two charts of six, and placing labels takes a hundredth of a second."""


def chart_data(panel: Panel) -> dict[str, Any]:
    """Return the heading, description and specification of the chart of *panel*, and the limit that it shows."""
    return _chart_data(panel, current(), symbol())


@lru_cache(MOST_KEPT)
def _chart_data(panel: Panel, _language: str, _symbol: str) -> dict[str, Any]:
    # labels leave room for the rings, which come later
    curves = tuple(replace(one, marks=(MARKS[0],) * len(one.x)) if one.marker else one for one in panel.curves)
    figure = panel_figure(replace(panel, curves=curves))
    limit = panel.x_limit or panel.y_limit
    return {
        "title": figure.title,
        "subtitle": figure.subtitle,
        "description": figure.description,
        "line": limit and {"at": limit.at, "text": limit.text, "upright": panel.x_limit is not None},
        "spec": _live(figure.spec),
    }


def _live(spec: Any) -> dict[str, Any]:
    """Return *spec* with named data sets, an empty layer of rings below the points, and axes as parameters."""
    layers = [{**layer, "data": {"name": f"layer-{at}", **layer["data"]}} for at, layer in enumerate(spec["layer"])]
    points = next(at for at, layer in enumerate(layers) if "params" in layer)
    rings = ring_layer([])
    layers.insert(points, {**rings, "data": {"name": RINGS, **rings["data"]}})
    params: list[dict[str, Any]] = []
    encoding = {}
    for name, channel in spec["encoding"].items():
        low, high = channel["scale"]["domain"]
        params += [{"name": f"{name}Low", "value": low}, {"name": f"{name}High", "value": high}]
        scale = {**channel["scale"], "domain": [{"expr": f"{name}Low"}, {"expr": f"{name}High"}]}
        encoding[name] = {**channel, "scale": scale}
        if "values" in channel["axis"]:
            params.append({"name": f"{name}Ticks", "value": channel["axis"]["values"]})
            encoding[name]["axis"] = {**channel["axis"], "values": {"expr": f"{name}Ticks"}}
    return {**spec, "layer": layers, "encoding": encoding, "params": [*spec["params"], *params]}
