"""Comparison of fleets: differences of every metric, and the cheapest fleet along the axis of a sweep.

Differences are paired by seed: request i is the same request in both fleets, so that common noise cancels out. Each
value of the axis names the cheapest fleet that meets the service level, the next cheapest, and whether that is certain.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isnan
from typing import Any

from sim.scenario.slo import Slo
from sim.study.metrics.averages import Ratio
from sim.study.metrics.columns import PAIRED, column, named_percentiles
from sim.study.metrics.statistics import differ, mean, paired_difference, ratio, ratio_difference
from sim.study.points import FinishedCase, Point, Setting, Sweep, fleets_of, has_slo, replication_costs, sweep_of


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of one metric between two fleets at one point, paired by seed."""

    first: Point
    second: Point
    metric: str
    pairs: int
    """Number of replications that both fleets have."""
    values: tuple[float, float]
    difference: float
    """Value of the first fleet minus that of the second; nan where both are infinite."""
    half_width: float | None
    """Half of the 95 % interval; None for fewer than three pairs, or where a value is infinite."""

    @property
    def nonstationary(self) -> bool:
        """True if a fleet is overloaded at the point, so that a longer run would give another difference."""
        listed = (str(point.row["nonstationary_columns"] or "").split() for point in (self.first, self.second))
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
    """Return the differences between every two fleets, in their order, at every point where both could run.

    Beside *metrics*, the percentiles that the service level names are compared.
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
    """Yield the first point minus the second in each of *metrics* that both have, over their common replications."""
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


COST = "usd_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class Contest:
    """Value of the axis at which two fleets or more meet the SLO: the cheapest fleet and the next."""

    value: Any
    winner: Point
    second: Point
    certain: bool | None
    """True if the 95 % interval of the paired difference excludes zero; None below three replications."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Comparison of all fleets at one setting of the other axes."""

    sweep: Sweep
    setting: Setting
    points: tuple[Point, ...]
    has_slo: bool
    """True if there is an SLO; without one a fleet fits where it keeps up with the load."""
    model: str = ""
    """Model of the compared fleets, if the scenario's fleets serve several; empty: all fleets are compared."""

    def fit(self, fleet: str) -> list[Any]:
        """Return the values of the axis at which the fleet certainly meets the SLO, in order."""
        return [self.sweep.value(point) for point in self.points if point.fleet == fleet and point.certainly_good]

    def inconclusive(self, fleet: str) -> list[Any]:
        """Return the values of the axis at which the verdict on the fleet is inconclusive, in order."""
        return [self.sweep.value(point) for point in self.points if point.fleet == fleet and point.inconclusive]

    def missed(self, fleet: str) -> list[Any]:
        """Return the values of the axis at which the fleet certainly misses the SLO or its queue grows without end."""
        open_or_met = {*self.fit(fleet), *self.inconclusive(fleet)}
        return [value for value in self.sweep.values if value not in open_or_met]

    def at(self, value: Any) -> list[Point]:
        """Return the points of the fleets that certainly meet the SLO at *value*."""
        return [point for point in self.points if point.certainly_good and self.sweep.value(point) == value]

    @property
    def fleets(self) -> list[str]:
        """Fleets that could run, in their order."""
        return fleets_of(self.points)

    @property
    def contests(self) -> list[Contest]:
        """Contests at every value where two fleets or more meet the SLO and have a cost, in order."""
        found = []
        for value in self.sweep.values:
            rivals = [point for point in self.at(value) if point.number(COST) is not None]
            if len(rivals) > 1:
                first, second = sorted(rivals, key=lambda point: point.number(COST) or 0.0)[:2]
                certain = differ(replication_costs(first), replication_costs(second))
                found.append(Contest(value, first, second, certain))
        return found

    @property
    def cheaper_anyway(self) -> str | None:
        """Fleet that meets the SLO and costs less than every inconclusive fleet at the same value; None without one."""
        found = set()
        for rival in (point for point in self.points if point.inconclusive):
            fit = [point for point in self.at(self.sweep.value(rival)) if point.number(COST) is not None]
            best = min(fit, key=lambda point: point.number(COST) or 0.0, default=None)
            cost = rival.number(COST)
            if best is None or cost is None or (best.number(COST) or 0.0) >= cost:
                return None
            if differ(replication_costs(best), replication_costs(rival)) is False:
                return None
            found.add(best.fleet)
        return found.pop() if len(found) == 1 else None


def comparisons_of(
    points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any], models: Mapping[str, str] | None = None
) -> list[Comparison]:
    """Return one comparison per setting of the other axes, and per model if *models* (fleet -> model) is given.

    Tokens of different models are not compared.
    """
    sweep, of_fleet = sweep_of(points, axes), models or {}
    judged = has_slo(points, Slo.model_validate(slo))
    found: dict[tuple[Setting, str], list[Point]] = {}
    for setting in sweep.settings:
        for line in sweep.lines:
            if line.setting == setting:
                found.setdefault((setting, of_fleet.get(line.fleet, "")), []).extend(line.points)
    return [Comparison(sweep, setting, tuple(own), judged, model) for (setting, model), own in found.items()]
