"""Charts as plain data: curves, limits, spans and panels; colours, markers and dashes of fleets and settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from typing import Any

from sim.report.words.text import plain

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CE6BA3", "#6F5A00", "#1A94FE", "#000000"]
"""Colours of fleets, distinct with all common kinds of colour blindness: Okabe and Ito, Color Universal Design (2008).

Pink, orange and sky blue are darkened, so that each has a contrast of 3:1 against white.
"""
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
GLYPHS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
"""Markers as characters."""
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dash-dotted": (0, (7, 2, 2, 2)),
    "fine dashes": (0, (2, 2)),
}
"""Line styles, by name, for the settings of further axes."""


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """Curve of a chart; a point with an infinite coordinate is drawn at the edge."""

    name: str
    color: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    marker: str = ""
    """Marker of the points; empty: a line without points."""
    dash: Any = "-"
    half: tuple[float | None, ...] = ()
    """Half-widths of the 95 % intervals of y."""
    ends: tuple[tuple[float, float] | None, ...] = ()
    """Ends of the 95 % intervals, in place of half-widths where intervals are not centred at y (shares)."""
    filled: bool = False
    """True if the area below the curve is shaded."""
    good: tuple[bool, ...] = ()
    """True for each point that meets the SLO, which is drawn filled; other points are hollow."""
    steady: tuple[bool, ...] = ()
    """True for each point without overload; only these points set the range of the chart."""
    tags: tuple[str, ...] = ()
    """Text beside each point."""
    fleet: str = ""
    """Fleet that a click highlights; empty: the curve itself."""
    keys: tuple[str, ...] = ()
    """Key of each point; points of several charts with the same key belong together."""
    names: tuple[str, ...] = ()
    """Name of each point, for a curve whose points have no common name."""
    marks: tuple[str, ...] = ()
    """Confidence mark of each point (`sim.study.confidence.Mark`); empty where unknown."""

    @property
    def bands(self) -> list[tuple[float, float] | None]:
        """Ends of the 95 % interval at each point, None for no interval; empty for a curve without intervals."""
        if self.ends:
            return list(self.ends)
        if not any(self.half):
            return []
        spans = zip(self.y, self.half, strict=True)
        return [(y - half, y + half) if half is not None and isfinite(half) else None for y, half in spans]


@dataclass(frozen=True, slots=True)
class Limit:
    """Line across a chart at a limit."""

    at: float
    text: str
    forbids: bool = True
    """True if values to the right of a vertical limit violate it; the area there is shaded."""


@dataclass(frozen=True, slots=True)
class ChartInterval:
    """Value of x for a whole fleet, such as its capacity, with its interval."""

    at: float
    half: float
    """Half-width of the 95 % interval; 0 without an interval."""
    text: str
    color: str
    fleet: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Chart as plain data: titles, curves, limits and formats of the axes."""

    title: str
    subtitle: str
    x_label: str
    curves: tuple[ChartCurve, ...]
    x_format: Callable[[float], str] = plain
    y_format: Callable[[float], str] = plain
    x_limit: Limit | None = None
    y_limit: Limit | None = None
    spans: tuple[ChartInterval, ...] = ()
    x_ticks: tuple[float, ...] = ()
    """Ticks of the x axis; empty: round numbers."""
    x_names: tuple[str, ...] = ()
    """Labels of x_ticks; empty: the numbers."""
    y_share: bool = False
    """True if y runs from 0 to 1."""
    x_linear: bool = False
    """True if the x axis is linear even over more than a decade."""
    y_linear: bool = False
    """True if the y axis is linear from zero even over more than a decade."""
    x_anchored: bool = True
    """True if a linear x axis begins at zero."""
    labelled: bool = True
    """True if curves are named at their lines; otherwise only the legend names them."""
    y_label: str = ""
    """Label of the y axis in figures for a paper, which have no heading; empty: the title."""
    kind: str = ""
    """Name of the chart in Python: `run.plot("cost_vs_latency")` draws all panels of that kind."""

    @property
    def shows_bands(self) -> bool:
        """True if the 95 % intervals are drawn: not if three or more curves have intervals and two of them overlap."""
        bands = [
            {x: band for x, band in zip(curve.x, curve.bands, strict=False) if band is not None}
            for curve in self.curves
        ]
        drawn = [one for one in bands if one]
        if len(drawn) < MOST_COVERING + 1:
            return bool(drawn)
        return not any(
            one[x][0] < other[x][1] and other[x][0] < one[x][1]
            for one, other in combinations(drawn, 2)
            for x in one.keys() & other.keys()
        )


def for_print(panel: Panel) -> Panel:
    """Return *panel* for a paper: with a legend, and a line style per fleet unless line styles stand for settings."""
    alike = len({str(curve.dash) for curve in panel.curves}) == 1
    curves = tuple(replace(curve, dash=print_dash(curve.color)) if alike else curve for curve in panel.curves)
    return replace(panel, curves=curves, labelled=False)


def print_dash(color: str) -> Any:
    """Return the line style that distinguishes *color* from others in black and white."""
    looks = list(DASHES.values())
    return looks[COLORS.index(color) % len(looks)] if color in COLORS else looks[0]


MOST_COVERING = 2
"""Largest number of curves whose intervals may overlap."""
SCALE = ("#5063D2", "#8F4FC4", "#C8478F", "#D8573F", "#C27A12")
"""Colours of a scale, from its low to its high end: each has a contrast of 3:1 against white and against black."""


def scale_colors(count: int) -> list[str]:
    """Return *count* colours along the scale, from its low to its high end."""
    channels = [[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in SCALE]
    places = [index * (len(SCALE) - 1) / max(1, count - 1) for index in range(count)]
    found = []
    for place in places:
        low = min(int(place), len(SCALE) - 2)
        mixed = [round(a + (b - a) * (place - low)) for a, b in zip(channels[low], channels[low + 1], strict=True)]
        found.append("#" + "".join(f"{part:02X}" for part in mixed))
    return found


def style(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Assign colour and marker to every fleet; beyond seven fleets, colours repeat with other markers."""
    kinds = len(COLORS)
    return {name: (COLORS[i % kinds], MARKERS[(i + i // kinds) % kinds]) for i, name in enumerate(names)}
