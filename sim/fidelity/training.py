"""Prediction and scores of measured training runs.

Errors are medians over pairs of GPU and model family; the folder gets validation.csv, summary_by_*.csv and
validation.png.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.benchdata.training import METRICS, TrainingRow
from sim.catalogue.catalog import Catalog
from sim.csvio import write_csv
from sim.fidelity.picture import Points, clipped_to_diagonal, key_of, scatter
from sim.fidelity.training_rows import LANGUAGE, TrainingCase, TrainingNotCovered, case_of
from sim.language import N_, _, translate_rendered
from sim.report.charts.panels import style
from sim.report.charts.picture import picture
from sim.report.terminal_table import FittedTable
from sim.steptime.coefficients import StepTimeCoefficients, load_coefficients
from sim.training.figures import TrainingData, framework_memory, load_training, rates
from sim.training.memory import memory
from sim.training.steptime import TrainingRates, backward_passes, repeated_passes, step_time

BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class TrainingPrediction:
    """Predicted metrics of a row, in the units of its columns."""

    id: str
    status: str
    """Status: covered or not_covered."""
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    gpu: str = ""
    stack: str = ""


@dataclass(frozen=True, slots=True)
class PredictionBasis:
    """Catalogue and fitted figures from which predictions are computed."""

    catalog: Catalog
    data: TrainingData
    kernels: StepTimeCoefficients

    @classmethod
    def of(cls, catalog: Catalog) -> "PredictionBasis":
        """Load the figures in the data folder of *catalog*."""
        return cls(catalog, load_training(catalog.root), load_coefficients(catalog.root / "steptime.yaml"))


def predict_training(row: TrainingRow, basis: PredictionBasis) -> TrainingPrediction:
    """Predict all metrics of *row*."""
    try:
        case = case_of(row, basis.catalog, basis.data)
    except TrainingNotCovered as error:
        return TrainingPrediction(row.id, "not_covered", str(error))
    job = case.job
    reached = rates(basis.data, basis.kernels, job.gpu, job.link, job.network, job.precision, case.stack)
    metrics = speed(case, reached)
    longest = basis.data.stacks[case.stack].longest_sequence
    fullest = replace(job, sequence=longest) if longest and row.count("seq_len") is None else job
    metrics["peak_memory_gb"] = memory(fullest, framework_memory(basis.data, case.stack)).total_bytes / BYTES_PER_GB
    return TrainingPrediction(row.id, "covered", "", metrics, job.gpu.id, case.stack)


def speed(case: TrainingCase, reached: TrainingRates) -> dict[str, float]:
    """Return step_s, samples_per_s and tokens_per_s of *case*."""
    job = case.job
    step = step_time(job, reached)
    passes = 1 + backward_passes(job) + repeated_passes(job, reached)
    forward_s = (step.matrix_s + step.attention_s + step.stream_s) / passes
    step_s = step.step_s + case.evaluation_forwards * forward_s
    samples = job.global_batch / step_s / case.counted_samples
    tokens = job.sequence if job.network.is_transformer else job.network.tokens_per_sample
    seconds = step_s / job.micro_batches if case.step_is_micro_batch else step_s
    return {"step_s": seconds, "samples_per_s": samples, "tokens_per_s": samples * tokens}


SPEEDS = ("tokens_per_s", "samples_per_s", "step_s")
UNTRUSTED = "not trusted"


@dataclass(frozen=True, slots=True)
class PredictedTraining:
    """Measured run with its prediction."""

    row: TrainingRow
    prediction: TrainingPrediction

    @property
    def category(self) -> str:
        """Class in which the run is scored: all language models together, others by family."""
        if self.row.text("trust") == "C":
            return UNTRUSTED
        family = self.row.text("family")
        return "language model" if family in LANGUAGE or not family else family

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and model family."""
        return self.prediction.gpu or self.row.text("gpu"), self.row.text("family") or self.row.text("model")

    def error(self, metric: str) -> float | None:
        """Return predicted / measured - 1; None if either is missing."""
        measured, predicted = self.row.measured.get(metric), self.prediction.metrics.get(metric)
        return None if not measured or predicted is None else predicted / measured - 1

    def quantities(self) -> dict[str, str]:
        """Return the column of each scored quantity."""
        found = {}
        speed = next((name for name in SPEEDS if name in self.row.measured), None)
        if speed is not None:
            found["throughput"] = speed
        if "peak_memory_gb" in self.row.measured:
            found["peak memory"] = "peak_memory_gb"
        return found


@dataclass(frozen=True, slots=True)
class TrainingScore:
    """Score of one quantity in one group of runs."""

    group: tuple[str, ...]
    quantity: str
    rows: int
    covered: int
    pairs: int
    median_error: float | None
    """Median over pairs of the pair's median absolute error."""
    p90_error: float | None
    bias: float | None
    """Median over pairs of the pair's median signed error."""


def scores(
    runs: Iterable[PredictedTraining], group: Callable[[PredictedTraining], tuple[str, ...]]
) -> list[TrainingScore]:
    """Return the scores of all quantities in all groups, sorted by name."""
    members: dict[tuple[tuple[str, ...], str], list[tuple[PredictedTraining, str]]] = defaultdict(list)
    for run in runs:
        for quantity, metric in run.quantities().items():
            members[group(run), quantity].append((run, metric))
    return [_score(*key, found) for key, found in sorted(members.items())]


def _score(group: tuple[str, ...], quantity: str, members: Sequence[tuple[PredictedTraining, str]]) -> TrainingScore:
    signed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run, metric in members:
        error = run.error(metric)
        if error is not None:
            # a step that takes twice as long is half the throughput
            signed[run.pair].append(1 / (1 + error) - 1 if metric == "step_s" else error)
    medians = [float(np.median(np.abs(errors))) for errors in signed.values()]
    return TrainingScore(
        group,
        quantity,
        rows=len(members),
        covered=sum(map(len, signed.values())),
        pairs=len({run.pair for run, _ in members}),
        median_error=float(np.median(medians)) if medians else None,
        p90_error=float(np.percentile(medians, 90)) if medians else None,
        bias=float(np.median([np.median(errors) for errors in signed.values()])) if signed else None,
    )


PROGRESS_EVERY = 200


def validate_training(
    rows: Sequence[TrainingRow], catalog: Catalog, workers: int, progress: Callable[[int, int, int], None]
) -> list[PredictedTraining]:
    """Predict every row, in the order of the table; *workers* is ignored, as a row needs a millisecond."""
    basis = PredictionBasis.of(catalog)
    done = []
    for row in rows:
        done.append(PredictedTraining(row, predict_training(row, basis)))
        if len(done) % PROGRESS_EVERY == 0 or len(done) == len(rows):
            progress(len(done), len(rows), 0)
    return done


GROUPS: dict[str, tuple[tuple[str, ...], Callable[[PredictedTraining], tuple[str, ...]]]] = {
    "class": (("class",), lambda one: (one.category,)),
    "pair": (("class", "gpu", "family"), lambda one: (one.category, *one.pair)),
    "stack": (("class", "stack"), lambda one: (one.category, one.prediction.stack)),
}
"""Summaries as (leading columns, function row -> group), keyed by name."""
SCORE_COLUMNS = ("quantity", "rows", "covered", "pairs", "median_error", "p90_error", "bias")
LEADING_COLUMNS = ("id", "status", "reason", "class", "gpu", "family", "model", "stack", "trust")
PANELS = {"throughput": N_("Throughput [tokens/s or samples/s]"), "peak memory": N_("Peak memory of a GPU [GB]")}
MOST_REASONS = 12


def write_training(folder: Path, runs: Sequence[PredictedTraining]) -> None:
    """Write validation.csv, summary_by_*.csv and validation.png to *folder*."""
    columns = [*LEADING_COLUMNS, *(f"{metric}{tail}" for metric in METRICS for tail in ("", "_predicted", "_error"))]
    write_csv(folder / "validation.csv", columns, ([_row(one).get(name) for name in columns] for one in runs))
    for name, (leading, group) in GROUPS.items():
        lines = ([*score.group, *(getattr(score, column) for column in SCORE_COLUMNS)] for score in scores(runs, group))
        write_csv(folder / f"summary_by_{name}.csv", [*leading, *SCORE_COLUMNS], lines)
    write_training_picture(folder / "validation.png", runs)


def training_tables(runs: Sequence[PredictedTraining]) -> list[FittedTable | str]:
    """Return errors by class within 80 columns, and the reasons for missing predictions."""
    parts: list[FittedTable | str] = []
    reasons = Counter(one.prediction.reason for one in runs if one.prediction.status != "covered")
    if reasons:
        listed = _("; ").join(
            f"{translate_rendered(reason)} ({count})" for reason, count in reasons.most_common(MOST_REASONS)
        )
        parts.append(_("no prediction: {reasons}", reasons=listed))
    heads = (_("class"), _("quantity"), _("rows"), _("pairs"), _("median |error|"), _("90 % of pairs"), _("bias"))
    rows, before = [], ""
    for score in scores(runs, GROUPS["class"][1]):
        shown = _(score.group[0]) if score.group[0] != before else ""
        before = score.group[0]
        bias = "" if score.bias is None else f"{100 * score.bias:+.0f} %"
        errors = (_percent(score.median_error), _percent(score.p90_error))
        rows.append([shown, _(score.quantity), str(score.rows), str(score.pairs), *errors, bias])
    parts.append(FittedTable(heads, rows, frozenset({0, 1}), 2))
    return parts


def write_training_picture(path: Path, runs: Sequence[PredictedTraining]) -> None:
    """Write predicted against measured values, a panel per quantity, without untrusted rows."""
    trusted = [one for one in runs if one.category != UNTRUSTED and one.prediction.status == "covered"]
    classes = [name for name, _ in Counter(one.category for one in trusted).most_common()]
    marks = style(classes)
    subtitle = _("{len:,} training runs. Shaded: within 10 and 20 % of the measurement.", len=len(trusted))
    figures = [
        scatter(_(label), _("predicted"), _("measured"), _points(trusted, quantity), marks)
        for quantity, label in PANELS.items()
    ]
    picture(figures, "", [subtitle], key_of(marks)).save(path)


def _points(runs: Sequence[PredictedTraining], quantity: str) -> Points:
    points: Points = {}
    for one in runs:
        metric = one.quantities().get(quantity)
        if metric is None:
            continue
        measured, predicted = one.row.measured[metric], one.prediction.metrics[metric]
        if metric == SPEEDS[-1]:
            measured, predicted = 1 / measured, 1 / predicted
        points.setdefault(one.category, []).append(clipped_to_diagonal(predicted, measured))
    return points


def _row(one: PredictedTraining) -> dict[str, Any]:
    row, prediction = one.row, one.prediction
    cells: dict[str, Any] = {
        "id": row.id,
        "status": prediction.status,
        "reason": prediction.reason,
        "class": one.category,
    }
    cells |= {"gpu": one.pair[0], "family": one.pair[1], "stack": prediction.stack}
    cells |= {name: row.text(name) for name in ("model", "trust")}
    for metric in METRICS:
        cells[metric] = row.measured.get(metric)
        cells[f"{metric}_predicted"] = prediction.metrics.get(metric)
        cells[f"{metric}_error"] = one.error(metric)
    return cells


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
