"""How far predictions are from measurements: errors of a row, and medians over pairs of GPU and model family.

Within a group every pair of GPU and model family weighs the same, however many rows it has: the pair's error is the
median of its rows, the group's the median (and the 90th percentile) of its pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from sim.benchdata.row import BenchRow
from sim.study.fidelity.validate.predict import Prediction

NOT_COVERED_ERROR = 1.0
"""What a row counts that could not be predicted: 100 %."""
QUANTITIES: dict[str, tuple[str, ...]] = {
    "throughput": ("output_tok_s", "total_tok_s", "req_s"),
    "tpot": ("tpot_mean_ms", "tpot_p50_ms"),
    "ttft": ("ttft_mean_ms", "ttft_p50_ms"),
    "e2e": ("e2e_mean_ms",),
    "tpot p99": ("tpot_p99_ms",),
    "ttft p99": ("ttft_p99_ms",),
    "power": ("power_w",),
}
"""What is scored, and the columns that show it: the first one that was measured counts."""
SINGLE_LOADS = ("single", "static_batch")
SCORED, OWN_CLASS, UNTRUSTED, SPECULATIVE = "score", "own class", "not trusted", "speculative decoding"


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """A measured row and its prediction."""

    row: BenchRow
    prediction: Prediction

    @property
    def category(self) -> str:
        """Which class of rows it is scored in: by `use`, `trust` and what the simulation leaves out."""
        if self.row.trust == "C":
            return UNTRUSTED
        if self.row.use == "own_class":
            return OWN_CLASS
        return SPECULATIVE if self.row.spec_decode else SCORED

    @property
    def pair(self) -> tuple[str, str]:
        """(GPU, model family): the table's families where it has any, else the catalogue's."""
        told = self.prediction
        return told.gpu or self.row.gpu, self.row.model_family or told.family or self.row.model

    @property
    def covered(self) -> bool:
        """Whether there is a prediction."""
        return self.prediction.status == "covered"

    def error(self, metric: str) -> float | None:
        """predicted / measured - 1; None where either is missing."""
        measured, predicted = self.row.measured.get(metric), self.prediction.metrics.get(metric)
        return None if not measured or predicted is None or not isfinite(predicted) else predicted / measured - 1

    def quantities(self) -> dict[str, str]:
        """Scored quantity -> the column that shows it. TTFT is split by what it measures."""
        found = {}
        for quantity, metrics in QUANTITIES.items():
            metric = next((metric for metric in metrics if metric in self.row.measured), None)
            if metric is not None:
                found[self._ttft_kind(quantity) if quantity.startswith("ttft") else quantity] = metric
        return found

    def _ttft_kind(self, quantity: str) -> str:
        """Alone on the server, under load, or the length of a queue."""
        load = self.row.load
        if load in SINGLE_LOADS or (load == "closed_loop" and self.row.concurrency == 1):
            return f"{quantity} alone"
        return f"{quantity} saturated" if self.prediction.saturated else f"{quantity} loaded"


@dataclass(frozen=True, slots=True)
class Score:
    """One quantity in one group of rows."""

    group: tuple[str, ...]
    quantity: str
    rows: int
    covered: int
    pairs: int
    median_error: float
    """Median over pairs of the pair's median |error|; a row without a prediction counts 1."""
    p90_error: float
    """90th percentile over pairs of the pair's median |error|."""
    covered_median_error: float | None
    """The median again, of rows with a prediction alone."""
    bias: float | None
    """Median over pairs of the pair's median signed error, of rows with a prediction alone."""


def scores(outcomes: Iterable[PredictedRow], group: Callable[[PredictedRow], tuple[str, ...]]) -> list[Score]:
    """Scores of all quantities in all groups, in the order of their names."""
    members: dict[tuple[tuple[str, ...], str], list[tuple[PredictedRow, str]]] = defaultdict(list)
    for outcome in outcomes:
        for quantity, metric in outcome.quantities().items():
            members[group(outcome), quantity].append((outcome, metric))
    return [_score(*key, found) for key, found in sorted(members.items())]


def _score(group: tuple[str, ...], quantity: str, members: Sequence[tuple[PredictedRow, str]]) -> Score:
    by_pair: dict[tuple[str, str], list[float]] = defaultdict(list)
    signed: dict[tuple[str, str], list[float]] = defaultdict(list)
    for outcome, metric in members:
        error = outcome.error(metric)
        by_pair[outcome.pair].append(NOT_COVERED_ERROR if error is None else abs(error))
        if error is not None:
            signed[outcome.pair].append(error)
    pairs = [float(np.median(errors)) for errors in by_pair.values()]
    known = [float(np.median(np.abs(errors))) for errors in signed.values()]
    return Score(
        group,
        quantity,
        rows=len(members),
        covered=sum(map(len, signed.values())),
        pairs=len(pairs),
        median_error=float(np.median(pairs)),
        p90_error=float(np.percentile(pairs, 90)),
        covered_median_error=float(np.median(known)) if known else None,
        bias=float(np.median([np.median(errors) for errors in signed.values()])) if signed else None,
    )


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many rows of one class could be predicted."""

    category: str
    rows: int
    covered: int
    infeasible: int
    pairs: int
    pairs_covered: int
    """Pairs with at least one prediction."""

    @property
    def share(self) -> float:
        """Rows with a prediction over all rows."""
        return self.covered / self.rows


def coverage(outcomes: Sequence[PredictedRow]) -> list[Coverage]:
    """By class, the scored one first."""
    categories = sorted({one.category for one in outcomes}, key=lambda name: (name != SCORED, name))
    found = []
    for category in categories:
        members = [one for one in outcomes if one.category == category]
        covered = [one for one in members if one.covered]
        infeasible = sum(one.prediction.status == "infeasible" for one in members)
        pairs = {one.pair for one in members}, {one.pair for one in covered}
        found.append(Coverage(category, len(members), len(covered), infeasible, len(pairs[0]), len(pairs[1])))
    return found


def reasons(outcomes: Iterable[PredictedRow]) -> list[tuple[str, int]]:
    """Why rows have no prediction, the commonest reason first; a row may have several."""
    counted: dict[str, int] = defaultdict(int)
    for outcome in outcomes:
        told = outcome.prediction
        parts = told.reason.split("; ")
        for reason in {"not_covered": parts, "infeasible": parts[:1]}.get(told.status, []):
            counted[reason] += 1
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))
