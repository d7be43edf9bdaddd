"""Predicted against measured: log-log panels with bands of 10 and 20 % around the diagonal.

The panels are those of all validations; validation.png of serving benchmarks has one for each quantity and a colour
for each engine.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.fidelity.scores import SCORED, PredictedRow, scores
from sim.language import N_, _
from sim.report.charts.drawing import DOTS_PER_INCH, FAINT, HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style

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


PANELS = {
    "throughput": (N_("Throughput"), N_("tokens/s (where unknown, requests/s)"), ("throughput",)),
    "tpot": (N_("Time per output token"), "ms", ("tpot",)),
    "ttft": (N_("Time to first token, not saturated"), "ms", ("ttft loaded", "ttft alone")),
}
"""Panel -> title, unit, the scored quantities in it."""
SIDE_IN, GAP_IN = 3.9, 0.75


def write_picture(path: Path, outcomes: Sequence[PredictedRow]) -> None:
    """Log-log panels with bands of 10 and 20 % around the diagonal; only the scored class is drawn."""
    from matplotlib.figure import Figure

    scored = [one for one in outcomes if one.category == SCORED and one.covered]
    engines = sorted({one.prediction.engine for one in scored}, key=lambda name: (-_count(scored, name), name))
    marks = style(engines)
    width = len(PANELS) * (SIDE_IN + GAP_IN) + 0.2
    height = SIDE_IN + 1.75
    with settings():
        figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")
        figure.text(0.25 / width, 1 - 0.3 / height, headline(outcomes), size=14, color=INK, va="center")
        rows = sum(one.category == SCORED for one in outcomes)
        told = _(
            "{count:,} of {rows:,} rows of the scored class. Shaded: within 10 and 20 % of the measurement.",
            count=len(scored),
            rows=rows,
        )
        figure.text(0.25 / width, 1 - 0.58 / height, told, size=HEAD, color=SOFT, va="center")
        for index, (title, unit, quantities) in enumerate(PANELS.values()):
            left = GAP_IN + index * (SIDE_IN + GAP_IN)
            axes = figure.add_axes((left / width, 0.85 / height, SIDE_IN / width, (SIDE_IN - 0.25) / height))
            _panel(axes, scored, quantities, marks)
            axes.set_title(_(title), loc="left", size=HEAD, color=INK, pad=6)
            axes.set_xlabel(_("measured [{unit}]", unit=unit), size=SMALL, color=SOFT)
            axes.set_ylabel(
                _("predicted [{unit}]", unit=unit) if index == 0 else _("predicted"), size=SMALL, color=SOFT
            )
        draw_key(figure, {f"{name} ({_count(scored, name)})": mark for name, mark in marks.items()}, 6)
        figure.savefig(path)


def headline(outcomes: Sequence[PredictedRow]) -> str:
    """The medians of the scored class in one sentence."""
    found = {one.quantity: one for one in scores([o for o in outcomes if o.category == SCORED], lambda _: ())}
    names = {
        "throughput": _("throughput"),
        "tpot": _("time per output token"),
        "ttft loaded": _("time to first token under load"),
    }
    parts = [
        f"{told} {100 * found[name].covered_median_error:.0f} %"  # type: ignore[operator]
        for name, told in names.items()
        if name in found and found[name].covered_median_error is not None
    ]
    pairs = max((one.pairs for one in found.values()), default=0)
    if not parts:
        return _("No row of the scored class could be predicted")
    return _("Median error over {pairs} pairs of GPU and model: ", pairs=pairs) + ", ".join(parts)


def _panel(axes: Any, scored: Sequence[PredictedRow], quantities: Sequence[str], marks: Marks) -> None:
    points: Points = {}
    for one in scored:
        for quantity, metric in one.quantities().items():
            predicted = one.prediction.metrics.get(metric)
            if quantity in quantities and predicted is not None and np.isfinite(predicted):
                points.setdefault(one.prediction.engine, []).append(at_most_far(predicted, one.row.measured[metric]))
    draw_panel(axes, points, marks)


def _count(scored: Sequence[PredictedRow], engine: str) -> int:
    return sum(one.prediction.engine == engine for one in scored)
