"""What a validation of services leaves in its folder: every row's errors, their medians by group, a picture."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sim.benchdata.mlperf import SERVICE_METRICS
from sim.csvio import write_csv
from sim.language import N_, _
from sim.report.charts.curves import DOTS_PER_INCH
from sim.report.charts.draw import HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.report.fidelity.validate.frame import Marks, Points, draw_key, draw_panel
from sim.report.terminal.fitted import FittedTable
from sim.study.fidelity.validate.services.predict import ServiceOutcome
from sim.study.fidelity.validate.services.score import ServiceScore, service_scores

GROUPS: dict[str, Callable[[ServiceOutcome], str]] = {
    "scenario": lambda one: one.row.scenario,
    "benchmark": lambda one: one.row.benchmark,
    "accelerator": lambda one: one.gpu,
}
SCORE_COLUMNS = ("metric", "rows", "pairs", "median_error", "p90_error", "bias")
TITLES = {"samples_s": N_("Samples per second of the system"), "mean_latency_ms": N_("Mean latency of a query [ms]")}
MOST_REASONS = 12


def write_services(folder: Path, outcomes: Sequence[ServiceOutcome]) -> None:
    """validation.csv, summary_by_*.csv and validation.png in *folder*."""
    metrics = [f"{metric}{tail}" for metric in SERVICE_METRICS for tail in ("", "_predicted", "_error")]
    told = (
        "id",
        "status",
        "reason",
        "accelerator",
        "n_accelerators",
        "benchmark",
        "scenario",
        "gpu",
        "model",
        "precision",
    )
    write_csv(folder / "validation.csv", (*told, *metrics), (_cells(one) for one in outcomes))
    for name, group in GROUPS.items():
        lines = (
            [score.group, *(getattr(score, column) for column in SCORE_COLUMNS)]
            for score in service_scores(outcomes, group)
        )
        write_csv(folder / f"summary_by_{name}.csv", (name, *SCORE_COLUMNS), lines)
    _picture(folder / "validation.png", outcomes)


def service_tables(outcomes: Sequence[ServiceOutcome]) -> list[FittedTable | str]:
    """What the terminal prints: coverage, why rows have no prediction, errors by scenario and by benchmark."""
    covered = sum(one.status == "covered" for one in outcomes)
    parts: list[FittedTable | str] = [_("{covered:,} of {len:,} rows predicted", covered=covered, len=len(outcomes))]
    reasons = Counter(one.reason for one in outcomes if one.reason).most_common()
    if reasons:
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons[:MOST_REASONS])
        more = len(reasons) - MOST_REASONS
        parts.append(
            _("no prediction: {told}{more}", told=told, more=_("; {more} more reasons", more=more) if more > 0 else "")
        )
    return [*parts, *(_table(name, service_scores(outcomes, GROUPS[name])) for name in ("scenario", "benchmark"))]


def _table(name: str, scores: Sequence[ServiceScore]) -> FittedTable:
    heads = (name, _("metric"), _("rows"), _("pairs"), _("median |error|"), _("90 % of pairs"), _("bias"))
    rows = [
        [one.group, one.metric, str(one.rows), str(one.pairs), f"{100 * one.median_error:.1f} %",
         f"{100 * one.p90_error:.1f} %", f"{100 * one.bias:+.0f} %"]
        for one in scores
    ]  # fmt: skip
    return FittedTable(heads, rows, frozenset({0, 1}), 2)


def _cells(one: ServiceOutcome) -> list[Any]:
    row = one.row
    told = [row.id, one.status, one.reason, row.accelerator, row.n_accelerators, row.benchmark, row.scenario]
    figures = [
        value
        for metric in SERVICE_METRICS
        for value in (row.measured.get(metric), one.metrics.get(metric), one.error(metric))
    ]
    return [*told, one.gpu, one.model, one.precision, *figures]


def _picture(path: Path, outcomes: Sequence[ServiceOutcome]) -> None:
    """Predicted against measured on logarithmic axes, a panel a metric, a colour a service."""
    from matplotlib.figure import Figure

    shown = [one for one in outcomes if any(one.error(metric) is not None for metric in TITLES)]
    marks = style(sorted({one.model for one in shown}))
    with settings():
        figure = Figure(figsize=(9.6, 5.4), dpi=DOTS_PER_INCH, facecolor="white")
        scores = {one.metric: one for one in service_scores(outcomes, lambda _: "")}
        for place, (metric, title) in enumerate(TITLES.items()):
            axes = figure.add_axes((0.08 + 0.49 * place, 0.22, 0.40, 0.66))
            told = (
                _(", median error {median_error:.0f} %", median_error=100 * scores[metric].median_error)
                if metric in scores
                else ""
            )
            axes.set_title(title + told, loc="left", size=HEAD, color=INK, pad=6)
            _panel(axes, metric, outcomes, marks)
            axes.set_xlabel(_("measured"), size=SMALL, color=SOFT)
            axes.set_ylabel(_("predicted"), size=SMALL, color=SOFT)
        draw_key(figure, marks, 6)
        figure.savefig(path)


def _panel(axes: Any, metric: str, outcomes: Sequence[ServiceOutcome], marks: Marks) -> None:
    points: Points = {}
    for one in outcomes:
        if one.error(metric) is not None:
            points.setdefault(one.model, []).append((one.row.measured[metric], one.metrics[metric]))
    draw_panel(axes, points, marks)
