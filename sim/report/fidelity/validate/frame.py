"""What all validations share: their tables, and panels of predicted against measured with bands of 10 and 20 %."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sim.language import _
from sim.report.charts.draw import FAINT, HEAD, INK, SMALL, SOFT

Marks = Mapping[str, tuple[str, str]]
"""Name of a group of points -> (colour, marker)."""
Points = dict[str, list[tuple[float, float]]]
"""Name of a group -> (measured, predicted)."""

BANDS = ((0.2, 0.10), (0.1, 0.16))
"""Half-width of a band and how dark it is."""
FARTHEST = 8.0
"""A point farther from the diagonal than this factor is drawn at that distance."""


def at_most_far(predicted: float, measured: float) -> tuple[float, float]:
    """The point (measured, predicted), drawn near enough to the diagonal to keep the axes short."""
    return measured, min(max(predicted, measured / FARTHEST), measured * FARTHEST)


def draw_panel(axes: Any, points: Points, marks: Marks) -> None:
    """Points on equal logarithmic axes, large groups below small ones."""
    every = [value for pairs in points.values() for pair in pairs for value in pair]
    low, high = (min(every) / 1.4, max(every) * 1.4) if every else (1.0, 10.0)
    line = np.array([low, high])
    for half, dark in BANDS:
        axes.fill_between(line, line * (1 - half), line * (1 + half), color=INK, alpha=dark, linewidth=0, zorder=0)
    axes.plot(line, line, color=SOFT, linewidth=0.7, zorder=1)
    for name, pairs in sorted(points.items(), key=lambda item: -len(item[1])):
        color, marker = marks[name]
        x, y = zip(*pairs, strict=True)
        axes.plot(x, y, marker, color=color, markersize=3, alpha=0.45, markeredgewidth=0, linestyle="none", zorder=2)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.tick_params(which="both", length=2.5, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    axes.minorticks_off()
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(SOFT)
    if not every:
        axes.text(0.5, 0.5, _("not measured"), transform=axes.transAxes, ha="center", size=HEAD, color=SOFT)


def draw_key(figure: Any, marks: Marks, columns: int) -> None:
    """The names of *marks* along the lower edge, in at most *columns* columns."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker=marker, color=color, linestyle="none", markersize=5, label=name)
        for name, (color, marker) in marks.items()
    ]
    if handles:
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.02, 0.02 / figure.get_figheight()),
            ncols=min(columns, len(handles)),
            frameon=False,
            fontsize=SMALL,
            labelcolor=INK,
            handletextpad=0.1,
            columnspacing=1.2,
        )
