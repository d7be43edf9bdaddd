"""Where the texts of a chart stand: names of curves, values beside points, limits; for whoever draws it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.report.charts.labels import Place, Room
from sim.report.charts.panels import ChartCurve, Limit, Panel
from sim.report.charts.scale import Scale

INK = "#222222"


@dataclass(frozen=True, slots=True)
class Text:
    """One text of a chart and its place."""

    text: str
    place: Place
    size: float
    color: str
    bold: bool = False
    plate: bool = False
    """It may cover a line, and needs something behind it."""
    curve: ChartCurve | None = None
    """What it belongs to; None for a limit."""


def lay_out(panel: Panel, x: Scale, y: Scale, size: tuple[float, float], type_sizes: tuple[float, float]) -> list[Text]:
    """The texts that have room in a plot area of *size* points, in type of the small and the usual of *type_sizes*.

    Points off the chart come first, then limits, the other points, and the curves' names.
    """
    small, usual = type_sizes
    room = Room(*size)
    ends = [_take(panel, curve, x, y, room) for curve in panel.curves]
    found = [text for curve, places in zip(panel.curves, ends, strict=True)
             for text in _tags(panel, curve, places, x, y, True, room, small)]  # fmt: skip
    found += _limits(panel, x, y, room, small)
    found += [text for curve, places in zip(panel.curves, ends, strict=True)
              for text in _tags(panel, curve, places, x, y, False, room, small)]  # fmt: skip
    names = (_name(curve, places, room, usual) for curve, places in zip(panel.curves, ends, strict=True))
    return [*found, *(text for text in names if text is not None)]


def on_the_edge(curve: ChartCurve, x: Scale, y: Scale) -> NDArray[np.float64]:
    """The points of *curve*, those off the chart moved to its edge."""
    return np.array([[min(a, x.high), min(b, y.high)] for a, b in zip(curve.x, curve.y, strict=True)])


def _take(panel: Panel, curve: ChartCurve, x: Scale, y: Scale, room: Room) -> NDArray[np.float64]:
    """Marks a curve as taken, and returns where its points lie [points]."""
    inside = on_the_edge(curve, x, y)
    known = ~np.isnan(inside).any(axis=1)
    if not len(inside[known]):
        return np.empty((0, 2))
    places = np.column_stack((x.shares(inside[:, 0]) * room.width, y.shares(inside[:, 1]) * room.height))
    places[~known] = np.nan  # no text stands beside what has no value
    if curve.marker:
        room.take_dots(places[known], 4.0)
    room.take_path(places[known])
    return places


def _limits(panel: Panel, x: Scale, y: Scale, room: Room, size: float) -> list[Text]:
    found = []
    for limit, upright in ((panel.x_limit, True), (panel.y_limit, False)):
        if limit is None:
            continue
        place = _beside_limit(limit, upright, x, y, room, size)
        if place is not None:
            found.append(Text(limit.text, place, size, INK))
    return found


def _beside_limit(limit: Limit, upright: bool, x: Scale, y: Scale, room: Room, size: float) -> Place | None:
    if upright:
        at = float(x.shares(np.array([limit.at]))[0]) * room.width
        room.take_path(np.array([[at, 0.0], [at, room.height]]))
        anchors = [(at, share * room.height - 8) for share in (1.0, 0.5, 0.25, 0.75)]
    else:
        at = float(y.shares(np.array([limit.at]))[0]) * room.height
        room.take_path(np.array([[0.0, at], [room.width, at]]))
        anchors = [(share * room.width, at) for share in (0.0, 1.0, 0.5, 0.25, 0.75)]
    return room.fit(limit.text, size, anchors, 3.0)


def _name(curve: ChartCurve, places: NDArray[np.float64], room: Room, size: float) -> Text | None:
    known = [(float(x), float(y)) for x, y in places if np.isfinite(x)]
    if not curve.marker:
        known = known[len(known) // 2 :: 8] + known[: len(known) // 2 : 8]
    place = room.fit(curve.name, size, known[::-1] if curve.marker else known, 6.0, bold=True)
    return None if place is None else Text(curve.name, place, size, curve.color, bold=True, curve=curve)


def _tags(
    panel: Panel,
    curve: ChartCurve,
    places: NDArray[np.float64],
    x: Scale,
    y: Scale,
    beyond: bool,
    room: Room,
    size: float,
) -> Sequence[Text]:
    """The text beside the points off the chart (*beyond*), which says their value, or beside the others."""
    found = []
    for index, (left, bottom) in enumerate(places if curve.marker else ()):
        at, value = curve.x[index], curve.y[index]
        values = [panel.y_format(value)] * (value > y.high) + [panel.x_format(at)] * (at > x.high)
        if bool(values) == beyond and np.isfinite(left):
            text = ": ".join([*curve.tags[index : index + 1], *values[:1]])
            place = room.fit(text, size, [(float(left), float(bottom))], 5.5) if text else None
            if place is not None:
                found.append(Text(text, place, size, curve.color, plate=beyond, curve=curve))
    return found
