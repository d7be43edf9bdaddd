"""Charts as plain data: curves, limits, spans and panels; colours, markers and dashes of fleets and settings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from sim.report.words.text import plain

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CE6BA3", "#6F5A00", "#1A94FE", "#000000"]
"""After Okabe and Ito, Color Universal Design (2008): distinct with every common colour blindness; pink, orange and sky
blue are darker, so that each has 3:1 against white.
"""
MARKERS = ["o", "s", "^", "D", "v", "P", "X"]
GLYPHS = {"o": "●", "s": "■", "^": "▲", "D": "◆", "v": "▼", "P": "✚", "X": "✖"}
"""The markers as characters."""
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dash-dotted": (0, (7, 2, 2, 2)),
    "fine dashes": (0, (2, 2)),
}
"""Line styles of the settings of further axes."""


@dataclass(frozen=True, slots=True)
class ChartCurve:
    """One line of a chart; an infinite place is off the chart and shown at its edge."""

    name: str
    color: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    marker: str = ""
    """Empty: a line without points."""
    dash: Any = "-"
    half: tuple[float | None, ...] = ()
    """Half-width of the 95 % interval of y."""
    ends: tuple[tuple[float, float] | None, ...] = ()
    """Ends of the intervals that y is not the middle of (shares), in place of half-widths."""
    filled: bool = False
    """The area below it is shaded."""
    good: tuple[bool, ...] = ()
    """Points that meet the SLO are filled, the others hollow."""
    steady: tuple[bool, ...] = ()
    """Points that are not overloaded: they set the range of the chart."""
    tags: tuple[str, ...] = ()
    """Text beside each point."""
    fleet: str = ""
    """What is shown alone when it is picked; empty: the curve itself."""
    keys: tuple[str, ...] = ()
    """What each point is a figure of: points of several charts with the same key are one."""
    names: tuple[str, ...] = ()
    """What each point is called, where its curve has no name for all."""
    marks: tuple[str, ...] = ()
    """How near each point is to what was measured (`sim.study.confidence`); empty where that is not known."""

    @property
    def bands(self) -> list[tuple[float, float] | None]:
        """Ends of the 95 % interval at each point, None where there is none to draw; empty for a curve without any."""
        if self.ends:
            return list(self.ends)
        if not any(self.half):
            return []
        spans = zip(self.y, self.half, strict=True)
        return [(y - half, y + half) if half is not None and isfinite(half) else None for y, half in spans]


@dataclass(frozen=True, slots=True)
class Limit:
    """A line across the chart."""

    at: float
    text: str
    forbids: bool = True
    """What lies right of an upright one misses it, and is shaded."""


@dataclass(frozen=True, slots=True)
class ChartInterval:
    """A value of x that stands for a whole fleet, with its interval."""

    at: float
    half: float
    """Half-width of the 95 % interval; 0 without one."""
    text: str
    color: str
    fleet: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart."""

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
    """Where the axis is marked; empty: at round numbers."""
    x_names: tuple[str, ...] = ()
    """What stands at x_ticks; empty: the numbers."""
    y_share: bool = False
    """y runs from 0 to 1."""
    x_linear: bool = False
    """x runs evenly, however far."""
    y_linear: bool = False
    """y runs from zero, however far."""
    x_anchored: bool = True
    """A linear x axis begins at zero."""
    kind: str = ""
    """What Python calls it: `run.plot("cost_vs_latency")` draws all panels of that kind."""


def style(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of every fleet; beyond seven fleets colours come back with other markers."""
    kinds = len(COLORS)
    return {name: (COLORS[i % kinds], MARKERS[(i + i // kinds) % kinds]) for i, name in enumerate(names)}
