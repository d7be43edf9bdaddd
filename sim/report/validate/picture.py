"""validation.png: predicted against measured, one panel a quantity, one colour an engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.report.charts.curves import DOTS_PER_INCH
from sim.report.charts.draw import FAINT, HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.study.validate.score import SCORED, PredictedRow, scores

PANELS = {
    "throughput": ("Throughput", "tokens/s (where unknown, requests/s)", ("throughput",)),
    "tpot": ("Time per output token", "ms", ("tpot",)),
    "ttft": ("Time to first token, not saturated", "ms", ("ttft loaded", "ttft alone")),
}
"""Panel -> title, unit, the scored quantities in it."""
BANDS = ((0.2, 0.10), (0.1, 0.16))
"""Half-width of a band and how dark it is."""
SIDE_IN, GAP_IN = 3.9, 0.75
FARTHEST = 8.0
"""A point farther from the diagonal than this factor is drawn at that distance."""


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
        told = f"{len(scored):,} of {rows:,} rows of the scored class. Shaded: within 10 and 20 % of the measurement."
        figure.text(0.25 / width, 1 - 0.58 / height, told, size=HEAD, color=SOFT, va="center")
        for index, (title, unit, quantities) in enumerate(PANELS.values()):
            left = GAP_IN + index * (SIDE_IN + GAP_IN)
            axes = figure.add_axes((left / width, 0.85 / height, SIDE_IN / width, (SIDE_IN - 0.25) / height))
            _panel(axes, scored, quantities, marks)
            axes.set_title(title, loc="left", size=HEAD, color=INK, pad=6)
            axes.set_xlabel(f"measured [{unit}]", size=SMALL, color=SOFT)
            axes.set_ylabel(f"predicted [{unit}]" if index == 0 else "predicted", size=SMALL, color=SOFT)
        _key(figure, marks, scored, height)
        figure.savefig(path)


def headline(outcomes: Sequence[PredictedRow]) -> str:
    """The medians of the scored class in one sentence."""
    found = {one.quantity: one for one in scores([o for o in outcomes if o.category == SCORED], lambda _: ())}
    names = {
        "throughput": "throughput",
        "tpot": "time per output token",
        "ttft loaded": "time to first token under load",
    }
    parts = [
        f"{told} {100 * found[name].covered_median_error:.0f} %"  # type: ignore[operator]
        for name, told in names.items()
        if name in found and found[name].covered_median_error is not None
    ]
    pairs = max((one.pairs for one in found.values()), default=0)
    if not parts:
        return "No row of the scored class could be predicted"
    return f"Median error over {pairs} pairs of GPU and model: " + ", ".join(parts)


def _panel(
    axes: Any, scored: Sequence[PredictedRow], quantities: Sequence[str], marks: dict[str, tuple[str, str]]
) -> None:
    points: dict[str, list[tuple[float, float]]] = {}
    for one in scored:
        for quantity, metric in one.quantities().items():
            predicted = one.prediction.metrics.get(metric)
            if quantity in quantities and predicted is not None and np.isfinite(predicted):
                measured = one.row.measured[metric]
                shown = min(max(predicted, measured / FARTHEST), measured * FARTHEST)
                points.setdefault(one.prediction.engine, []).append((measured, shown))
    every = [value for pairs in points.values() for pair in pairs for value in pair]
    low, high = (min(every) / 1.4, max(every) * 1.4) if every else (1.0, 10.0)
    line = np.array([low, high])
    for half, dark in BANDS:
        axes.fill_between(line, line * (1 - half), line * (1 + half), color=INK, alpha=dark, linewidth=0, zorder=0)
    axes.plot(line, line, color=SOFT, linewidth=0.7, zorder=1)
    for engine, pairs in sorted(points.items(), key=lambda item: -len(item[1])):
        color, marker = marks[engine]
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
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", size=HEAD, color=SOFT)


def _key(figure: Any, marks: dict[str, tuple[str, str]], scored: Sequence[PredictedRow], height: float) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [], [], marker=marker, color=color, linestyle="none", markersize=5, label=f"{name} ({_count(scored, name)})"
        )
        for name, (color, marker) in marks.items()
    ]
    if handles:
        figure.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0.02, 0.02 / height),
            ncols=min(6, len(handles)),
            frameon=False,
            fontsize=SMALL,
            labelcolor=INK,
            handletextpad=0.1,
            columnspacing=1.2,
        )


def _count(scored: Sequence[PredictedRow], engine: str) -> int:
    return sum(one.prediction.engine == engine for one in scored)
