"""Layout of a chart: ranges of axes with their round numbers, and direct labels where there is room.

Plain geometry in points, independent of whether a picture or a page is drawn.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import floor, inf, isfinite, log10
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.report.charts.fonts import glyphs
from sim.report.charts.panels import ChartCurve, ChartInterval, Limit, Panel

DECADE = 10.0
EDGE = 0.04
"""Margin beyond the range of an axis, for rings of markers at its edge, as a fraction of the range."""


class AxisScale:
    """Range and scale of an axis.

    The scale is logarithmic where values span more than a decade (unless *linear*); otherwise it begins at zero if
    *anchored*. The drawn axis extends beyond the range at its high end and, if *below*, at its low end: a marker at
    the edge and its ring are whole.
    """

    def __init__(
        self, values: Sequence[float], anchored: bool, share: bool = False, linear: bool = False, below: bool = False
    ) -> None:
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        self.most = 1.0 if share else inf
        self.below = below
        self.log = not (share or linear) and low > 0 and high > DECADE * low
        if share:
            self.low, self.high = 0.0, 1.04
        elif self.log:
            margin = high / low
            self.low, self.high = low / margin**0.1, high * margin**0.06
        elif anchored or high == low:
            self.low, self.high = min(0.0, low), 1.1 * high if high > 0 else 1.0
        else:
            margin = 0.06 * (high - low)
            self.low, self.high = low - margin, high + margin

    def ticks(self) -> list[float]:
        """Return round numbers within the range: 1, 2, 5 of every decade, or even steps."""
        if self.log:
            decades = range(floor(log10(self.low)), floor(log10(self.high)) + 1)
            fine = [m * 10.0**d for d in decades for m in (1, 2, 5) if self.low <= m * 10.0**d <= self.high]
            coarse = [10.0**d for d in decades if self.low <= 10.0**d <= self.high]
            return fine if len(fine) <= 8 or len(coarse) < 2 else coarse
        step = 10.0 ** floor(log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (m * step) <= 6)
        first = int(np.ceil(self.low / step - 1e-9))
        return [round(k * step, 12) for k in range(first, int(np.floor(self.high / step + 1e-9)) + 1)]

    def widen(self, share: float) -> None:
        """Extend the range so that *share* of the axis lies beyond its present high end."""
        if self.log:
            self.high *= (self.high / self.low) ** (share / (1.0 - share))
        else:
            self.high += (self.high - self.low) * share / (1.0 - share)

    @property
    def drawn(self) -> tuple[float, float]:
        """Ends of the drawn axis."""
        if self.log:
            margin = (self.high / self.low) ** EDGE
            return self.low / margin if self.below else self.low, self.high * margin
        margin = EDGE * (self.high - self.low)
        return self.low - margin * self.below, self.high + margin

    def shares(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map *values* to positions on the drawn axis: 0 at its low end, 1 at its high end."""
        low, high = np.log(self.drawn) if self.log else self.drawn
        placed = np.log(np.where(values > 0, values, np.nan)) if self.log else values
        return np.asarray((placed - low) / (high - low))

    def value(self, share: float) -> float:
        """Map a position on the drawn axis, 0 to 1, to its value."""
        low, high = self.drawn
        return float(low * (high / low) ** share) if self.log else low + share * (high - low)


def core(panel: Panel, which: str, limit: Limit | None) -> list[float]:
    """Return the values that set the range of axis *which*: the limit, finite steady values, and finite ones below.

    Points above the steady ones are drawn at the edge. Without steady values all finite ones set the range.
    """
    steady, finite = [], []
    for curve in panel.curves:
        values = getattr(curve, which)
        flags = curve.steady or (True,) * len(values)
        finite += [value for value in values if isfinite(value)]
        steady += [value for value, flag in zip(values, flags, strict=True) if isfinite(value) and flag]
        if which == "x" and panel.x_ticks:
            steady += [value for value in values if isfinite(value)]
    lowest = min(steady, default=-inf)
    steady += [value for value in finite if value < lowest]
    return (steady or finite) + ([limit.at] if limit is not None else [])


GLYPH_WIDTH = 0.6
"""Mean width of a glyph in units of the font size (DejaVu Sans, the widest of the possible fonts)."""
BOLDER = 1.13
LINE_HEIGHT = 1.15
CELL = 2.0
"""Edge of a cell in the grid that excludes covered places [points]; a power of two, so that division is exact."""
FEW_ANCHORS = 5
"""Number of points beside which a text may be placed, up to which their places are checked without the grid."""
OVERHANG = 6.0
"""Distance by which a text may reach above the plot area, for labels on its upper edge [points]."""


@dataclass(slots=True)
class TextPlace:
    """Place of a text: its lower left corner, its size, and the point that it labels [points]."""

    x: float
    y: float
    width: float
    height: float
    beside: tuple[float, float]


@dataclass(slots=True)
class PlotArea:
    """Plot area of a chart [points], with the places that are occupied."""

    width: float
    height: float
    taken: list[NDArray[np.float64]] = field(default_factory=list)
    """Arrays (n, 2) of points that no text may cover, without those of `boxes`."""
    boxes: list[tuple[list[float], list[float]]] = field(default_factory=list)
    """Texts and other boxes that no text may cover: x and y of the points of a grid over each, in ascending order."""
    _sorted: tuple[list[float], NDArray[np.float64]] | None = field(default=None, init=False)
    """Coordinates x and y of the points in the only array of `taken`, in order of x; None until a text is placed."""
    _cells: NDArray[np.bool_] = field(init=False)
    """Cells of a grid, `CELL` wide and high: True with an occupied point; set with `_sorted`."""

    def take_path(self, path: NDArray[np.float64], gap: float = 3.0) -> None:
        """Mark a line through the points *path* (n, 2) as occupied, sampled every *gap* points."""
        self.taken.append(path)
        steps = np.diff(path, axis=0)
        counts = np.maximum(2, np.hypot(*steps.T) / gap).astype(int)
        of = np.repeat(np.arange(len(steps)), counts)
        along = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.taken.append(path[of] + steps[of] * (along / (counts[of] - 1))[:, None])

    def take_dots(self, dots: NDArray[np.float64], radius: float) -> None:
        """Mark markers around *dots* (n, 2) as occupied."""
        angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
        ring = radius * np.column_stack((np.cos(angles), np.sin(angles)))
        self.taken.append((dots[:, None, :] + ring).reshape(-1, 2))

    def fit(
        self, text: str, size: float, anchors: Sequence[tuple[float, float]], gap: float, bold: bool = False
    ) -> TextPlace | None:
        """Place *text* of font *size* at distance *gap* from the first of *anchors* with room; None without room."""
        width, height = GLYPH_WIDTH * size * glyphs(text) * (BOLDER if bold else 1.0), LINE_HEIGHT * size
        for beside, left, bottom in self._places(anchors, width, height, gap):
            if self._is_free(left - 1, bottom - 1, left + width + 1, bottom + height + 1):
                self.take_box(left, bottom, width, height)
                return TextPlace(left, bottom, width, height, anchors[beside])
        return None

    def _places(
        self, anchors: Sequence[tuple[float, float]], width: float, height: float, gap: float
    ) -> Iterator[tuple[int, float, float]]:
        """Yield (index of the anchor, left, bottom) of the possible places of a text inside the plot area."""
        widest, highest = self.width, self.height + OVERHANG
        if len(anchors) <= FEW_ANCHORS:
            for index, (x, y) in enumerate(anchors):
                for left, bottom in _corners_around(x, y, width, height, gap):
                    if left >= 0 and bottom >= 0 and left + width <= widest and bottom + height <= highest:
                        yield index, left, bottom
            return
        across, up = np.array(anchors).T
        corners = np.array(_corners_around(across, up, width, height, gap))
        lefts, bottoms = corners[:, 0].T.ravel(), corners[:, 1].T.ravel()
        fits = (lefts >= 0) & (bottoms >= 0) & (lefts + width <= widest) & (bottoms + height <= highest)
        places = np.flatnonzero(fits)
        places = places[~self._covered(lefts[places], bottoms[places], width, height)]
        yield from zip((places // len(corners)).tolist(), lefts[places].tolist(), bottoms[places].tolist(), strict=True)

    def _is_free(self, left: float, bottom: float, right: float, top: float) -> bool:
        """Return whether no occupied point lies between these sides."""
        across, up = self._sorted_points()
        inside = self._cells[int(left // CELL) + 1 : int(right // CELL), int(bottom // CELL) + 1 : int(top // CELL)]
        if np.count_nonzero(inside):
            return False
        heights = up[bisect_right(across, left) : bisect_left(across, right)]
        if ((heights > bottom) & (heights < top)).any():
            return False
        near = [
            (xs, ys) for xs, ys in self.boxes if ys[0] < top and bottom < ys[-1] and xs[0] < right and left < xs[-1]
        ]
        return not any(any(left < x < right for x in xs) and any(bottom < y < top for y in ys) for xs, ys in near)

    def _covered(
        self, lefts: NDArray[np.float64], bottoms: NDArray[np.float64], width: float, height: float
    ) -> NDArray[np.bool_]:
        """Return which boxes have an occupied point in a cell of a grid that lies inside of them.

        Boxes that are not covered may still have a point near their edges.
        """
        self._sorted_points()  # marks the cells
        below = np.zeros((self._cells.shape[0] + 1, self._cells.shape[1] + 1), np.int32)
        below[1:, 1:] = self._cells.cumsum(axis=0, dtype=np.int32).cumsum(axis=1, dtype=np.int32)
        first_x, first_y = (np.floor((low - 1) / CELL).astype(int) + 1 for low in (lefts, bottoms))
        end_x = np.maximum(first_x, np.floor((lefts + width + 1) / CELL).astype(int))
        end_y = np.maximum(first_y, np.floor((bottoms + height + 1) / CELL).astype(int))
        inside = below[end_x, end_y] - below[first_x, end_y] - below[end_x, first_y] + below[first_x, first_y]
        return np.asarray(inside > 0)

    def _sorted_points(self) -> tuple[list[float], NDArray[np.float64]]:
        """Return the coordinates of the occupied points outside boxes, in order of x, and keep the cells up to date."""
        if len(self.taken) != 1 or self._sorted is None:
            points = np.vstack(self.taken) if self.taken else np.empty((0, 2))
            self.taken = [points[np.argsort(points[:, 0], kind="stable")]]
            self._sorted = self.taken[0][:, 0].tolist(), np.ascontiguousarray(self.taken[0][:, 1])
            size = (int((self.width + 2) / CELL) + 1, int((self.height + OVERHANG + 2) / CELL) + 1)
            cells = points / CELL
            columns, rows = cells[((cells >= 0) & (cells < size)).all(axis=1)].astype(int).T
            self._cells = np.zeros(size, np.bool_)
            self._cells[columns, rows] = True
            for xs, ys in self.boxes:
                self._fill_cells(xs, ys)
        return self._sorted

    def _fill_cells(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Mark the cells of the points at all of *xs* and *ys* as occupied."""
        columns, rows = ([int(at / CELL) for at in each if at >= 0] for each in (xs, ys))
        wide, high = self._cells.shape
        self._cells[np.ix_([one for one in columns if one < wide], [one for one in rows if one < high])] = True

    def take_box(self, left: float, bottom: float, width: float, height: float) -> None:
        """Mark a box as occupied."""
        across, up = left + np.arange(0.0, width + 3, 3.0), bottom + np.linspace(0.0, height, 5)
        self.boxes.append((across.tolist(), up.tolist()))
        if self._sorted is not None:
            self._fill_cells(*self.boxes[-1])


def _corners_around(x: Any, y: Any, width: float, height: float, gap: float) -> tuple[tuple[Any, Any], ...]:
    """Return (left, bottom) of boxes around (x, y), numbers or arrays: above, right, below, left, then diagonals."""
    right, left, middle = x + gap, x - gap - width, x - width / 2
    above, below, level = y + gap, y - gap - height, y - height / 2
    return (
        (middle, above), (right, level), (middle, below), (left, level),
        (right, above), (right, below), (left, above), (left, below),
        (left, above + gap), (left, below - gap),
    )  # fmt: skip


INK = "#222222"


@dataclass(frozen=True, slots=True)
class PlacedText:
    """Text of a chart with its place."""

    text: str
    place: TextPlace
    size: float
    color: str
    bold: bool = False
    plate: bool = False
    """True if the text may cover a line, and so needs a background."""
    curve: ChartCurve | None = None
    """Curve that the text labels; None for a limit."""


def lay_out(
    panel: Panel, x: AxisScale, y: AxisScale, size: tuple[float, float], type_sizes: tuple[float, float]
) -> list[PlacedText]:
    """Place the texts of a chart in a plot area of *size* points.

    Texts of points off the chart are placed first, then limits, the other points, and names of curves; texts without
    room are left out. *type_sizes* are the small and the usual font size.
    """
    small, usual = type_sizes
    room = PlotArea(*size)
    ends = [_take(panel, curve, x, y, room) for curve in panel.curves]
    for limit, upright in ((panel.x_limit, True), (panel.y_limit, False)):
        if limit is not None:
            room.take_path(_limit_line(limit, upright, x, y, room))
    for span in panel.spans:
        _take_span(span, x, room)
    found = [text for curve, places in zip(panel.curves, ends, strict=True)
             for text in _tags(panel, curve, places, x, y, True, room, small)]  # fmt: skip
    found += _limits(panel, x, y, room, small)
    found += [text for curve, places in zip(panel.curves, ends, strict=True)
              for text in _tags(panel, curve, places, x, y, False, room, small)]  # fmt: skip
    if not panel.labelled:
        return found
    names = (_name(curve, places, room, usual) for curve, places in zip(panel.curves, ends, strict=True))
    return [*found, *(text for text in names if text is not None)]


def on_the_edge(curve: ChartCurve, x: AxisScale, y: AxisScale) -> NDArray[np.float64]:
    """Return the points of *curve*, with points off the chart moved to its edge."""
    return np.array([[min(a, x.high), min(b, y.high)] for a, b in zip(curve.x, curve.y, strict=True)])


def _take(panel: Panel, curve: ChartCurve, x: AxisScale, y: AxisScale, room: PlotArea) -> NDArray[np.float64]:
    """Mark a curve as occupied, and return the places of its points [points]."""
    inside = on_the_edge(curve, x, y)
    known = ~np.isnan(inside).any(axis=1)
    if not len(inside[known]):
        return np.empty((0, 2))
    places = np.column_stack((x.shares(inside[:, 0]) * room.width, y.shares(inside[:, 1]) * room.height))
    places[~known] = np.nan  # points without a value get no text
    if curve.marker:
        room.take_dots(places[known], RING if any(curve.marks) else 4.0)
    room.take_path(places[known])
    return places


def _limits(panel: Panel, x: AxisScale, y: AxisScale, room: PlotArea, size: float) -> list[PlacedText]:
    found = []
    for limit, upright in ((panel.x_limit, True), (panel.y_limit, False)):
        if limit is None:
            continue
        place = _beside_limit(limit, upright, x, y, room, size)
        if place is not None:
            found.append(PlacedText(limit.text, place, size, INK))
    return found


def _beside_limit(
    limit: Limit, upright: bool, x: AxisScale, y: AxisScale, room: PlotArea, size: float
) -> TextPlace | None:
    line = _limit_line(limit, upright, x, y, room)
    if upright:
        anchors = [(line[0, 0], share * room.height - 8) for share in (1.0, 0.5, 0.25, 0.75)]
    else:
        anchors = [(share * room.width, line[0, 1]) for share in (0.0, 1.0, 0.5, 0.25, 0.75)]
    return room.fit(limit.text, size, anchors, 3.0)


def _limit_line(limit: Limit, upright: bool, x: AxisScale, y: AxisScale, room: PlotArea) -> NDArray[np.float64]:
    """Return the ends of the line of *limit* [points]."""
    at = float((x if upright else y).shares(np.array([limit.at]))[0])
    if upright:
        return np.array([[at * room.width, 0.0], [at * room.width, room.height]])
    return np.array([[0.0, at * room.height], [room.width, at * room.height]])


def _take_span(span: ChartInterval, x: AxisScale, room: PlotArea) -> None:
    """Mark the upright line of *span* as occupied, and its name, which is beside the line from the bottom up."""
    at = float(x.shares(np.array([span.at]))[0]) * room.width
    room.take_path(np.array([[at, 0.0], [at, room.height]]))
    room.take_box(at + 2, 0.0, 16.0, SPAN_NAME * BOLDER * GLYPH_WIDTH * glyphs(span.text) + 6)


RING = 8.0
"""Radius of the ring around a marker that is not close to measurements [points]."""
SPAN_NAME = 12.0
"""Font size of the name of a span [points]."""


def _name(curve: ChartCurve, places: NDArray[np.float64], room: PlotArea, size: float) -> PlacedText | None:
    known = [(float(x), float(y)) for x, y in places if np.isfinite(x)]
    if not curve.marker:
        known = known[len(known) // 2 :: 8] + known[: len(known) // 2 : 8]
    if not curve.marker:
        place = room.fit(curve.name, size, known, 6.0, bold=True)
    else:
        ends = known[::-1]
        between = [
            (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
            for a, b in pairwise(ends)
            for share in (0.25, 0.5, 0.75)
        ]
        tries = (
            (ends, RING + 1.5 if any(curve.marks) else 6.0),
            (between, 5.0),
            (ends[:2], 14.0),
            (between, 14.0),
            (ends[:2], 22.0),
        )
        fits = (room.fit(curve.name, size, anchors, gap, bold=True) for anchors, gap in tries)
        place = next((one for one in fits if one is not None), None)
    return None if place is None else PlacedText(curve.name, place, size, curve.color, bold=True, curve=curve)


def _gap(curve: ChartCurve, least: float) -> float:
    """Return the distance of a text from a marker of *curve*, whose markers may have rings."""
    return RING + 1.5 if any(curve.marks) else least


def _off_chart_text(value: float, show: Callable[[float], str]) -> str:
    """Format a value off the chart."""
    return "∞" if value == inf else show(value)


def _tags(
    panel: Panel,
    curve: ChartCurve,
    places: NDArray[np.float64],
    x: AxisScale,
    y: AxisScale,
    beyond: bool,
    room: PlotArea,
    size: float,
) -> Sequence[PlacedText]:
    """Place the texts beside points off the chart (*beyond*), which give their value, or beside the other points."""
    found = []
    for index, (left, bottom) in enumerate(places if curve.marker else ()):
        at, value = curve.x[index], curve.y[index]
        above, right = value > y.high, at > x.high
        if (above or right) == beyond and np.isfinite(left):
            tag = "".join(curve.tags[index : index + 1])
            if not (tag or panel.labelled):
                continue
            values = [_off_chart_text(value, panel.y_format)] if above else []
            values += [_off_chart_text(at, panel.x_format)] if right else []
            whole = ": ".join(part for part in (tag, *values[:1]) if part)
            for text in dict.fromkeys(text for text in (whole, tag) if text):
                place = room.fit(
                    text, size, [(float(left), float(bottom))], 5.5 if not any(curve.marks) else RING + 1.5
                )
                if place is not None:
                    found.append(PlacedText(text, place, size, curve.color, plate=beyond, curve=curve))
                    break
    return found
