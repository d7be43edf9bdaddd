"""How far a server that nobody measured may be from its prediction: data/fidelity/intervals.yaml.

An interval holds 80 % of measured over predicted: from its 10th percentile to its 90th. It was taken from measurements
whose pair of GPU and model, or whose GPU, was left out of the fit, each with the mark that it had without them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from sim.catalogue.value import Sourced
from sim.spec import Count, NonNegative, Positive, Spec
from sim.study.fidelity.marks.distance import Mark
from sim.yamlio import read

METRICS = ("throughput", "tpot", "ttft", "power")
COVERED = 0.8
"""Share of measurements inside an interval."""
Factors = tuple[float, float]


class Interval(Spec):
    """Measured over predicted: 10th and 90th percentile, pairs of GPU and model family weighing the same."""

    low: Positive
    high: Positive
    common_sd: NonNegative
    """Of the logarithm: the part that all settings of one host or engine have in common."""
    rows: Count
    pairs: Count


class Intervals(Sourced):
    """All intervals of data/fidelity/intervals.yaml."""

    metrics: dict[str, dict[Mark, Interval]]
    """By metric of METRICS; a mark is left out where too little was measured."""
    calibrated: dict[str, Interval]
    """By metric: other loads of servers that were calibrated on two."""

    def of(self, metric: str, mark: Mark) -> Interval | None:
        """None where too little was measured."""
        return self.metrics.get(metric, {}).get(mark)


@cache
def read_intervals(path: Path) -> Intervals:
    """Read data/fidelity/intervals.yaml. Raises pydantic.ValidationError or sim.yamlio.YamlError."""
    return Intervals.model_validate(read(path).data)


@dataclass(frozen=True, slots=True)
class Worth:
    """What the predictions of one setting are worth."""

    mark: Mark
    why: tuple[str, ...]
    """A phrase for each direction in which nothing near was measured, or that the owner measured; else empty."""
    factors: Mapping[str, Factors] = field(default_factory=dict)
    """Metric of METRICS -> what a prediction is multiplied by for the 10th and 90th percentile of an unseen host."""

    common_sd: float = 0.0
    """Of the logarithm of throughput: the part of the error that fleets on hosts of one kind have in common."""

    def factor(self, column: str) -> Factors | None:
        """Factors of a column of summary.csv such as `ttft_s_p95`; None where it has none."""
        metric = column.partition("_s_")[0]
        if metric == "e2e" and {"ttft", "tpot"} <= self.factors.keys():
            both = self.factors["ttft"], self.factors["tpot"]
            return min(low for low, _ in both), max(high for _, high in both)
        return self.factors.get(metric)
