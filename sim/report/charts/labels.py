"""Direct labels: text beside what it names, where nothing else stands."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sim.report.charts.fonts import glyphs

GLYPH_WIDTH = 0.6
"""Mean width of a glyph in units of the font size (DejaVu Sans, the widest of the fonts that may be used)."""
BOLDER = 1.13
LINE_HEIGHT = 1.15
OVERHANG = 6.0
"""How far a text may reach above the plot area, for what stands on its upper edge [points]."""


@dataclass(slots=True)
class Place:
    """Where a text stands, in points: its lower left corner, its size, and what it stands beside."""

    x: float
    y: float
    width: float
    height: float
    beside: tuple[float, float]


@dataclass(slots=True)
class Room:
    """The plot area of one chart in points, and what is taken in it."""

    width: float
    height: float
    taken: list[NDArray[np.float64]] = field(default_factory=list)
    """Arrays (n, 2) of places that no text may cover."""

    def take_path(self, path: NDArray[np.float64], gap: float = 3.0) -> None:
        """Mark a line through the points *path* (n, 2) as taken, sampled every *gap* points."""
        self.taken.append(path)
        steps = np.diff(path, axis=0)
        counts = np.maximum(2, np.hypot(*steps.T) / gap).astype(int)
        of = np.repeat(np.arange(len(steps)), counts)
        along = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        self.taken.append(path[of] + steps[of] * (along / (counts[of] - 1))[:, None])

    def take_dots(self, dots: NDArray[np.float64], radius: float) -> None:
        """Mark markers around *dots* (n, 2) as taken."""
        angles = np.linspace(0.0, 2.0 * np.pi, 8, endpoint=False)
        ring = radius * np.column_stack((np.cos(angles), np.sin(angles)))
        self.taken.append((dots[:, None, :] + ring).reshape(-1, 2))

    def fit(
        self, text: str, size: float, anchors: Sequence[tuple[float, float]], gap: float, bold: bool = False
    ) -> Place | None:
        """Where *text* of font *size* fits, *gap* away from the first of *anchors* with room; None without room."""
        width, height = GLYPH_WIDTH * size * glyphs(text) * (BOLDER if bold else 1.0), LINE_HEIGHT * size
        taken = np.vstack(self.taken) if self.taken else np.empty((0, 2))
        for x, y in anchors:
            for left, bottom in _beside(x, y, width, height, gap):
                if left < 0 or bottom < 0 or left + width > self.width or bottom + height > self.height + OVERHANG:
                    continue
                inside = (taken[:, 0] > left - 1) & (taken[:, 0] < left + width + 1)
                if not np.any(inside & (taken[:, 1] > bottom - 1) & (taken[:, 1] < bottom + height + 1)):
                    self._take_box(left, bottom, width, height)
                    return Place(left, bottom, width, height, (x, y))
        return None

    def _take_box(self, left: float, bottom: float, width: float, height: float) -> None:
        across, up = np.meshgrid(np.arange(0.0, width + 3, 3.0), np.linspace(0.0, height, 5))
        self.taken.append(np.column_stack((left + across.ravel(), bottom + up.ravel())))


def _beside(x: float, y: float, width: float, height: float, gap: float) -> list[tuple[float, float]]:
    """Lower left corners around (x, y): above, right, below, left, then the diagonals."""
    right, left, middle = x + gap, x - gap - width, x - width / 2
    above, below, level = y + gap, y - gap - height, y - height / 2
    beside = [(middle, above), (right, level), (middle, below), (left, level)]
    corners = [(right, above), (right, below), (left, above), (left, below)]
    return [*beside, *corners, (left, above + gap), (left, below - gap)]
