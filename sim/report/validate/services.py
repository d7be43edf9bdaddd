"""What a validation of services leaves in its folder: every row's errors, their medians by group, a picture."""

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from sim.benchdata.mlperf import SERVICE_METRICS
from sim.report.charts.curves import DOTS_PER_INCH
from sim.report.charts.draw import FAINT, HEAD, INK, SMALL, SOFT
from sim.report.charts.fonts import settings
from sim.report.charts.panels import style
from sim.report.run.tables import cell
from sim.report.terminal.fitted import FittedTable
from sim.study.validate.services.predict import ServiceOutcome
from sim.study.validate.services.score import ServiceScore, service_scores

GROUPS: dict[str, Callable[[ServiceOutcome], str]] = {
    "scenario": lambda one: one.row.scenario,
    "benchmark": lambda one: one.row.benchmark,
    "accelerator": lambda one: one.gpu,
}
SCORE_COLUMNS = ("metric", "rows", "pairs", "median_error", "p90_error", "bias")
TITLES = {"samples_s": "Samples per second of the system", "mean_latency_ms": "Mean latency of a query [ms]"}
BANDS = ((0.2, 0.10), (0.1, 0.16))
"""Half-width of a band and how dark it is."""
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
    _write(folder / "validation.csv", (*told, *metrics), (_cells(one) for one in outcomes))
    for name, group in GROUPS.items():
        lines = (
            [score.group, *(getattr(score, column) for column in SCORE_COLUMNS)]
            for score in service_scores(outcomes, group)
        )
        _write(folder / f"summary_by_{name}.csv", (name, *SCORE_COLUMNS), lines)
    _picture(folder / "validation.png", outcomes)


def service_tables(outcomes: Sequence[ServiceOutcome]) -> list[FittedTable | str]:
    """What the terminal prints: coverage, why rows have no prediction, errors by scenario and by benchmark."""
    covered = sum(one.status == "covered" for one in outcomes)
    parts: list[FittedTable | str] = [f"{covered:,} of {len(outcomes):,} rows predicted"]
    reasons = Counter(one.reason for one in outcomes if one.reason).most_common()
    if reasons:
        told = "; ".join(f"{reason} ({count})" for reason, count in reasons[:MOST_REASONS])
        more = len(reasons) - MOST_REASONS
        parts.append(f"no prediction: {told}{f'; {more} more reasons' if more > 0 else ''}")
    return [*parts, *(_table(name, service_scores(outcomes, GROUPS[name])) for name in ("scenario", "benchmark"))]


def _table(name: str, scores: Sequence[ServiceScore]) -> FittedTable:
    heads = (name, "metric", "rows", "pairs", "median |error|", "90 % of pairs", "bias")
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


def _write(path: Path, header: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([cell(value) for value in line] for line in lines)


def _picture(path: Path, outcomes: Sequence[ServiceOutcome]) -> None:
    """Predicted against measured on logarithmic axes, a panel a metric, a colour a service."""
    from matplotlib.figure import Figure

    marks = style(sorted({one.model for one in outcomes if one.model}))
    with settings():
        figure = Figure(figsize=(9.6, 5.4), dpi=DOTS_PER_INCH, facecolor="white")
        scores = {one.metric: one for one in service_scores(outcomes, lambda _: "")}
        for place, (metric, title) in enumerate(TITLES.items()):
            axes = figure.add_axes((0.08 + 0.49 * place, 0.22, 0.40, 0.66))
            told = f", median error {100 * scores[metric].median_error:.0f} %" if metric in scores else ""
            axes.set_title(title + told, loc="left", size=HEAD, color=INK, pad=6)
            _panel(axes, metric, outcomes, marks)
        handles = figure.axes[0].get_legend_handles_labels()
        more = figure.axes[1].get_legend_handles_labels()
        labelled = dict(zip((*handles[1], *more[1]), (*handles[0], *more[0]), strict=True))
        figure.legend(
            labelled.values(), labelled.keys(), loc="lower left", bbox_to_anchor=(0.07, 0.01), ncols=6, frameon=False,
            fontsize=SMALL, labelcolor=INK,
        )  # fmt: skip
        figure.savefig(path)


def _panel(axes: Any, metric: str, outcomes: Sequence[ServiceOutcome], marks: dict[str, tuple[str, str]]) -> None:
    points: dict[str, list[tuple[float, float]]] = {}
    for one in outcomes:
        if one.error(metric) is not None:
            points.setdefault(one.model, []).append((one.row.measured[metric], one.metrics[metric]))
    every = [value for pairs in points.values() for pair in pairs for value in pair]
    low, high = (min(every) / 1.4, max(every) * 1.4) if every else (1.0, 10.0)
    for half, dark in BANDS:
        axes.fill_between(
            (low, high), (low * (1 - half), high * (1 - half)), (low * (1 + half), high * (1 + half)),
            color=INK, alpha=dark, linewidth=0,
        )  # fmt: skip
    for model, pairs in sorted(points.items()):
        color, marker = marks[model]
        x, y = zip(*pairs, strict=True)
        axes.plot(x, y, marker, color=color, markersize=4, alpha=0.6, markeredgewidth=0, linestyle="none", label=model)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    axes.set_xlabel("measured", size=SMALL, color=SOFT)
    axes.set_ylabel("predicted", size=SMALL, color=SOFT)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.tick_params(which="both", length=2.5, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    axes.minorticks_off()
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not every:
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", size=HEAD, color=SOFT)
