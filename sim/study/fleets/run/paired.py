"""Fleet less fleet at every sweep point: request i is the same request in both, so that what they share cancels out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan

from sim.study.fleets.run.point import FinishedCase, Point, fleets_of
from sim.study.metrics.averages import Ratio
from sim.study.metrics.columns import PAIRED, column, named_percentiles
from sim.study.metrics.statistics import mean, paired_difference, ratio, ratio_difference


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of one metric between two fleets at one point, paired by seed."""

    first: Point
    second: Point
    metric: str
    pairs: int
    """Replications that both fleets have."""
    values: tuple[float, float]
    difference: float
    """nan where both are infinite."""
    half_width: float | None
    """Half of the 95 % interval; None for fewer than three pairs, or where a value is infinite."""

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


def of_one_model(found: Sequence[Difference], models: Mapping[str, str]) -> list[Difference]:
    """Return the differences between fleets of the same model; all where *models*, fleet -> model, is empty."""
    return [one for one in found if models.get(one.first.fleet) == models.get(one.second.fleet)]


def differences(points: Sequence[Point], metrics: Sequence[str] = PAIRED) -> list[Difference]:
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
                found += between(there[pair[0]], there[pair[1]], [*metrics, *named])
    return found


def between(first: Point, second: Point, metrics: Sequence[str]) -> Iterator[Difference]:
    """First less second in each of *metrics* that both have, over the replications that both have."""
    others = {case.replication: case for case in second.cases}
    both = [(case, others[case.replication]) for case in first.cases if case.replication in others]
    for metric in metrics if both else ():
        average = column(metric).average
        compared = _ratios(both, average) if isinstance(average, Ratio) else _means(both, metric)
        if compared is not None:
            values, difference, half = compared
            yield Difference(first, second, metric, len(both), values, difference, half)


Compared = tuple[tuple[float, float], float, float | None]
Pairs = Sequence[tuple[FinishedCase, FinishedCase]]


def _means(both: Pairs, metric: str) -> Compared | None:
    columns = [[case.metrics[metric] for case in side] for side in zip(*both, strict=True)]
    if any(value is None or isnan(value) for column in columns for value in column):
        return None
    difference, half = paired_difference(*columns)
    return (mean(columns[0]), mean(columns[1])), difference, half


def _ratios(both: Pairs, average: Ratio) -> Compared | None:
    sides = [[case.metrics for case in side] for side in zip(*both, strict=True)]
    if any(average.top(one) is None for side in sides for one in side):
        return None
    tops = [[average.top(one) or 0.0 for one in side] for side in sides]
    bottoms = [[average.below(one) for one in side] for side in sides]
    values = [ratio(top, bottom)[0] for top, bottom in zip(tops, bottoms, strict=True)]
    difference, half = ratio_difference((tops[0], tops[1]), (bottoms[0], bottoms[1]))
    return (values[0], values[1]), difference, half
