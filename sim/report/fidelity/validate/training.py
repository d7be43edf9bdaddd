"""What the validation of training runs leaves in its folder and prints."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sim.benchdata.training import METRICS
from sim.csvio import write_csv
from sim.language import N_, _
from sim.report.charts.curves import DOTS_PER_INCH
from sim.report.charts.draw import HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.report.fidelity.validate.frame import Marks, Points, at_most_far, draw_key, draw_panel
from sim.report.terminal.fitted import FittedTable
from sim.study.fidelity.validate.training.score import SPEEDS, UNTRUSTED, PredictedTraining, scores

GROUPS: dict[str, tuple[tuple[str, ...], Callable[[PredictedTraining], tuple[str, ...]]]] = {
    "class": (("class",), lambda one: (one.category,)),
    "pair": (("class", "gpu", "family"), lambda one: (one.category, *one.pair)),
    "stack": (("class", "stack"), lambda one: (one.category, one.prediction.stack)),
}
"""Name of the summary -> its leading columns, and how a row finds its group."""
SCORE_COLUMNS = ("quantity", "rows", "covered", "pairs", "median_error", "p90_error", "bias")
LEADING = ("id", "status", "reason", "class", "gpu", "family", "model", "stack", "trust")
PANELS = {"throughput": N_("Throughput [tokens/s or samples/s]"), "peak memory": N_("Peak memory of a GPU [GB]")}
SIDE_IN, GAP_IN = 4.2, 1.05
MOST_REASONS = 12


def write_training(folder: Path, runs: Sequence[PredictedTraining]) -> None:
    """validation.csv, summary_by_*.csv and validation.png in *folder*."""
    columns = [*LEADING, *(f"{metric}{tail}" for metric in METRICS for tail in ("", "_predicted", "_error"))]
    write_csv(folder / "validation.csv", columns, ([_row(one).get(name) for name in columns] for one in runs))
    for name, (leading, group) in GROUPS.items():
        lines = ([*score.group, *(getattr(score, column) for column in SCORE_COLUMNS)] for score in scores(runs, group))
        write_csv(folder / f"summary_by_{name}.csv", [*leading, *SCORE_COLUMNS], lines)
    write_training_picture(folder / "validation.png", runs)


def training_tables(runs: Sequence[PredictedTraining]) -> list[FittedTable | str]:
    """Errors by class within 80 columns, and why rows have no prediction."""
    parts: list[FittedTable | str] = []
    reasons = Counter(one.prediction.reason for one in runs if one.prediction.status != "covered")
    if reasons:
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons.most_common(MOST_REASONS))
        parts.append(_("no prediction: {told}", told=told))
    heads = (_("class"), _("quantity"), _("rows"), _("pairs"), _("median |error|"), _("90 % of pairs"), _("bias"))
    rows, before = [], ""
    for score in scores(runs, GROUPS["class"][1]):
        shown = score.group[0] if score.group[0] != before else ""
        before = score.group[0]
        bias = "" if score.bias is None else f"{100 * score.bias:+.0f} %"
        errors = (_percent(score.median_error), _percent(score.p90_error))
        rows.append([shown, score.quantity, str(score.rows), str(score.pairs), *errors, bias])
    parts.append(FittedTable(heads, rows, frozenset({0, 1}), 2))
    return parts


def write_training_picture(path: Path, runs: Sequence[PredictedTraining]) -> None:
    """Predicted against measured, one panel a quantity, one colour a class; untrusted rows are left out."""
    from matplotlib.figure import Figure

    trusted = [one for one in runs if one.category != UNTRUSTED and one.prediction.status == "covered"]
    classes = [name for name, _ in Counter(one.category for one in trusted).most_common()]
    marks = style(classes)
    width, height = len(PANELS) * (SIDE_IN + GAP_IN) + 0.2, SIDE_IN + 1.5
    with settings():
        figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")
        told = _("{len:,} training runs. Shaded: within 10 and 20 % of the measurement.", len=len(trusted))
        figure.text(0.25 / width, 1 - 0.3 / height, told, size=HEAD, color=INK, va="center")
        for index, (quantity, label) in enumerate(PANELS.items()):
            left = GAP_IN + index * (SIDE_IN + GAP_IN)
            axes = figure.add_axes((left / width, 0.85 / height, SIDE_IN / width, SIDE_IN / height))
            _panel(axes, trusted, quantity, marks)
            axes.set_title(label, loc="left", size=HEAD, color=INK, pad=6)
            axes.set_xlabel("measured", size=SMALL, color=SOFT)
            axes.set_ylabel(_("predicted"), size=SMALL, color=SOFT)
        draw_key(figure, marks, 5)
        figure.savefig(path)


def _panel(axes: Any, runs: Sequence[PredictedTraining], quantity: str, marks: Marks) -> None:
    points: Points = {}
    for one in runs:
        metric = one.quantities().get(quantity)
        if metric is None:
            continue
        measured, predicted = one.row.measured[metric], one.prediction.metrics[metric]
        if metric == SPEEDS[-1]:
            measured, predicted = 1 / measured, 1 / predicted
        points.setdefault(one.category, []).append(at_most_far(predicted, measured))
    draw_panel(axes, points, marks)


def _row(one: PredictedTraining) -> dict[str, Any]:
    row, told = one.row, one.prediction
    cells: dict[str, Any] = {"id": row.id, "status": told.status, "reason": told.reason, "class": one.category}
    cells |= {"gpu": one.pair[0], "family": one.pair[1], "stack": told.stack}
    cells |= {name: row.text(name) for name in ("model", "trust")}
    for metric in METRICS:
        cells[metric] = row.measured.get(metric)
        cells[f"{metric}_predicted"] = told.metrics.get(metric)
        cells[f"{metric}_error"] = one.error(metric)
    return cells


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
