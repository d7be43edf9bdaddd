"""validation.png: predicted against measured, one panel a quantity, one colour an engine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sim.language import N_, _
from sim.report.charts.curves import DOTS_PER_INCH
from sim.report.charts.draw import HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.report.fidelity.validate.frame import Marks, Points, at_most_far, draw_key, draw_panel
from sim.study.fidelity.validate.score import SCORED, PredictedRow, scores

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
