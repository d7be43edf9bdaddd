"""Fleets side by side at every place of the axis: who is fit there, who is cheaper, and whether that is certain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.scenario.sections.slo import Slo
from sim.study.fleets.run.point import Point, fleets_of
from sim.study.fleets.run.summary import replication_costs
from sim.study.fleets.run.sweep import Setting, Sweep, sweep_of
from sim.study.metrics.statistics import differ

COST = "usd_per_million_output_tokens"


@dataclass(frozen=True, slots=True)
class Contest:
    """Place on the axis where two fleets or more are fit: the cheapest and the next."""

    value: Any
    winner: Point
    second: Point
    certain: bool | None
    """Whether the 95 % interval of the paired difference excludes zero; None below three replications."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All fleets at one setting of the other axes."""

    sweep: Sweep
    setting: Setting
    points: tuple[Point, ...]
    has_slo: bool
    """Without one a fleet is fit where it keeps up with the load."""
    model: str = ""
    """Model that these fleets serve, where others serve another; empty: all fleets are compared."""

    def fit(self, fleet: str) -> list[Any]:
        """Values of the axis at which the fleet meets the SLO for certain, in order."""
        return [self.sweep.value(point) for point in self.points if point.fleet == fleet and point.sure]

    def doubtful(self, fleet: str) -> list[Any]:
        """Values of the axis at which it is inconclusive whether the fleet meets the SLO, in order."""
        return [self.sweep.value(point) for point in self.points if point.fleet == fleet and point.doubtful]

    def missed(self, fleet: str) -> list[Any]:
        """Values of the axis at which the fleet misses the SLO for certain or its queue grows without end."""
        open_or_met = {*self.fit(fleet), *self.doubtful(fleet)}
        return [value for value in self.sweep.values if value not in open_or_met]

    def at(self, value: Any) -> list[Point]:
        """Fleets that meet the SLO there for certain."""
        return [point for point in self.points if point.sure and self.sweep.value(point) == value]

    @property
    def fleets(self) -> list[str]:
        """Fleets that could run."""
        return fleets_of(self.points)

    @property
    def contests(self) -> list[Contest]:
        """Every place where two fleets or more are fit and have a cost, in order."""
        found = []
        for value in self.sweep.values:
            rivals = [point for point in self.at(value) if point.number(COST) is not None]
            if len(rivals) > 1:
                first, second = sorted(rivals, key=lambda point: point.number(COST) or 0.0)[:2]
                certain = differ(replication_costs(first), replication_costs(second))
                found.append(Contest(value, first, second, certain))
        return found


def comparisons_of(
    points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any], models: Mapping[str, str] | None = None
) -> list[Comparison]:
    """One comparison per setting of the axes beside the main one, and per model where *models* has that of each fleet:
    a token of one model is not a token of another.
    """
    sweep, of_fleet = sweep_of(points, axes), models or {}
    has_slo = bool(Slo.model_validate(slo).goals) or any(point.services for point in points)
    found: dict[tuple[Setting, str], list[Point]] = {}
    for setting in sweep.settings:
        for line in sweep.lines:
            if line.setting == setting:
                found.setdefault((setting, of_fleet.get(line.fleet, "")), []).extend(line.points)
    return [Comparison(sweep, setting, tuple(own), has_slo, model) for (setting, model), own in found.items()]
