"""How far predicted training runs are from measured ones: medians over pairs of GPU and model family."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sim.benchdata.training import TrainingRow
from sim.study.fidelity.validate.training.names import LANGUAGE
from sim.study.fidelity.validate.training.predict import TrainingPrediction

SPEEDS = ("tokens_per_s", "samples_per_s", "step_s")
UNTRUSTED = "not trusted"


@dataclass(frozen=True, slots=True)
class PredictedTraining:
    """A measured run and its prediction."""

    row: TrainingRow
    prediction: TrainingPrediction

    @property
    def category(self) -> str:
        """The class it is scored in: language models together, others by family."""
        if self.row.text("trust") == "C":
            return UNTRUSTED
        family = self.row.text("family")
        return "language model" if family in LANGUAGE or not family else family

    @property
    def pair(self) -> tuple[str, str]:
        """(GPU, model family)."""
        return self.prediction.gpu or self.row.text("gpu"), self.row.text("family") or self.row.text("model")

    def error(self, metric: str) -> float | None:
        """predicted / measured - 1; None where either is missing."""
        measured, predicted = self.row.measured.get(metric), self.prediction.metrics.get(metric)
        return None if not measured or predicted is None else predicted / measured - 1

    def quantities(self) -> dict[str, str]:
        """Scored quantity -> the column that shows it."""
        found = {}
        speed = next((name for name in SPEEDS if name in self.row.measured), None)
        if speed is not None:
            found["throughput"] = speed
        if "peak_memory_gb" in self.row.measured:
            found["peak memory"] = "peak_memory_gb"
        return found


@dataclass(frozen=True, slots=True)
class TrainingScore:
    """One quantity in one group of runs."""

    group: tuple[str, ...]
    quantity: str
    rows: int
    covered: int
    pairs: int
    median_error: float | None
    """Median over pairs of the pair's median |error|."""
    p90_error: float | None
    bias: float | None
    """Median over pairs of the pair's median error."""


def scores(
    runs: Iterable[PredictedTraining], group: Callable[[PredictedTraining], tuple[str, ...]]
) -> list[TrainingScore]:
    """Scores of all quantities in all groups, in the order of their names."""
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
