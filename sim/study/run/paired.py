"""Fleet less fleet at every sweep point: request i is the same request in both, so that what they share cancels out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan

from sim.study.metrics.statistics import mean, paired_difference, ratio, ratio_difference
from sim.study.run.point import FinishedCase, Point, fleets_of
from sim.study.run.summary import TOKENS, named_percentiles

METRICS = [
    *["slo_attainment", "ttft_s_mean", "ttft_s_p50", "ttft_s_p95", "ttft_s_p99", "tpot_s_mean", "tpot_s_p95"],
    *["e2e_s_mean", "e2e_s_p95", "goodput_rps", "output_tokens_per_s", "gpu_busy_fraction", "facility_power_w_mean"],
    *["usd_per_million_output_tokens", "usd_per_million_good_tokens"],
]


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of the first fleet less that of the second, at one point."""

    first: Point
    second: Point
    metric: str
    pairs: int
    """Replications that both fleets have."""
    values: tuple[float, float]
    difference: float
    """nan where both are infinite."""
    half_width: float | None
    """Of the 95 % interval; None for one pair, or where a value is infinite."""

    @property
    def horizon_dependent(self) -> bool:
        """Whether a fleet is overloaded there, so that a longer run would give another difference."""
        listed = (str(point.row["horizon_dependent"] or "").split() for point in (self.first, self.second))
        return any(self.metric in names for names in listed)

    @property
    def verdict(self) -> str:
        """`differs`, `cannot tell` or, without any difference in any pair, `same`; empty for a single pair."""
        if self.pairs < 2:
            return ""
        if self.half_width is None:
            return "cannot tell"
        if self.difference == 0 == self.half_width:
            return "same"
        return "differs" if abs(self.difference) > self.half_width else "cannot tell"


def differences(points: Sequence[Point], metrics: Sequence[str] = METRICS) -> list[Difference]:
    """Every pair of fleets (in their order) at every point where both could run, every metric that both have, and the
    percentiles that the service level names.
    """
    places: dict[str, dict[str, Point]] = {}
    for point in points:
        if point.ok:
            places.setdefault(repr(dict(point.axes)), {})[point.fleet] = point
    found: list[Difference] = []
    named = named_percentiles({name for point in points for name in point.row})
    for pair in combinations(fleets_of(points), 2):
        for there in places.values():
            if all(fleet in there for fleet in pair):
                found += _at(there[pair[0]], there[pair[1]], [*metrics, *named])
    return found


def _at(first: Point, second: Point, metrics: Sequence[str]) -> Iterator[Difference]:
    others = {case.replication: case for case in second.cases}
    both = [(case, others[case.replication]) for case in first.cases if case.replication in others]
    for metric in metrics if both else ():
        compared = _ratios(both, metric) if metric in TOKENS else _means(both, metric)
        if compared is not None:
            values, difference, half = compared
            yield Difference(first, second, metric, len(both), values, difference, half)


Compared = tuple[tuple[float, float], float, float | None]
Pairs = Sequence[tuple[FinishedCase, FinishedCase]]


def _means(both: Pairs, metric: str) -> Compared | None:
    columns = [[case.metrics.get(metric) for case in side] for side in zip(*both, strict=True)]
    if any(value is None or isnan(value) for column in columns for value in column):
        return None
    difference, half = paired_difference(*columns)
    return (mean(columns[0]), mean(columns[1])), difference, half


def _ratios(both: Pairs, metric: str) -> Compared | None:
    sides = list(zip(*both, strict=True))
    usd = [[case.metrics.get("cost_usd") for case in side] for side in sides]
    if any(amount is None for column in usd for amount in column):
        return None
    millions = [[case.metrics[TOKENS[metric]] / 1e6 for case in side] for side in sides]
    values = [ratio(top, bottom)[0] for top, bottom in zip(usd, millions, strict=True)]
    difference, half = ratio_difference((usd[0], usd[1]), (millions[0], millions[1]))
    return (values[0], values[1]), difference, half
