"""What a search for the cheapest fleet knows of every candidate, and its answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from sim.catalogue.catalog import Catalog
from sim.scenario.experiment import Experiment
from sim.scenario.resolving import resolved
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Fleet
from sim.scenario.slo import Slo
from sim.study.confidence import WinProbability
from sim.study.metrics.service_level import ServiceLevelAttainment
from sim.study.size.bounds import FleetNeeds, operating_usd_per_month
from sim.study.size.mixed_fleets import MixedSearch
from sim.study.size.search_space import StandBy
from sim.study.size.trials import ServiceTrial, Trial

Status = Literal["meets", "misses", "not simulated", "over budget", "impossible"]


@dataclass(frozen=True, slots=True)
class CandidateFleet:
    """One fleet and what is known of it."""

    name: str
    machine: str
    """Key of the hardware: equal for fleets that differ only in number and in how they are paid for."""
    gpu: str
    """Catalogue ids of its GPUs."""
    replicas: int
    """Those that carry the load, spares left out; 0 where none could."""
    gpus: int
    status: Status
    usd_per_h: float | None
    """Mean over replications; None where it was not simulated to the end."""
    floor_usd_per_h: float | None
    """What it costs at least; None without prices."""
    reason: str = ""
    """Why it is impossible or over the budget."""
    overloaded: bool = False
    metrics: dict[str, float | None] | None = None
    """Means over what was simulated; None for a fleet that was not."""
    replications: int | None = None
    """Simulated ones, which the metrics are means over; None for a fleet that was not simulated."""
    fleet: Fleet | None = None
    standing: ServiceLevelAttainment | None = None
    """The decision on the service level with what is attained of each goal; None for a fleet that was not simulated."""
    needs: FleetNeeds | None = None
    """What it asks of a budget; None where that is not known."""
    choice: str = ""
    """Key: equal for fleets that differ only in the host that the search has chosen, and in number."""
    standby: StandBy | None = None
    """Spares that do not carry the load."""
    services: Mapping[str, ServiceTrial] = field(default_factory=dict)
    """How each of several services fared, where it was simulated and could run."""

    def seen(self, outcome: Trial, levels: Mapping[str, Slo] | None = None) -> "CandidateFleet":
        """With what the simulations of it have shown, beside its cost; *levels* are those of several services."""
        return replace(
            self,
            metrics=outcome.metrics,
            replications=len(outcome.cases),
            standing=outcome.standing,
            overloaded=outcome.standing.overloaded,
            services=outcome.services(levels or {}),
        )

    @property
    def doubtful(self) -> bool:
        """True if it is inconclusive that it meets or misses the service level."""
        return self.standing is not None and self.standing.verdict == "inconclusive"

    @property
    def total(self) -> int:
        """All replicas, spares that stand by included."""
        return self.replicas + (self.standby.count if self.standby is not None else 0)

    @property
    def serving(self) -> str:
        """Key of the hardware of those that carry the load."""
        return self.machine if self.standby is None else self.standby.machine

    @property
    def servers(self) -> str:
        """Catalogue ids of what its GPUs stand in; empty without a server."""
        return _named(self.fleet, "server")

    @property
    def least_usd_per_h(self) -> float | None:
        """What it costs, or costs at the least where it was not simulated to the end."""
        return self.usd_per_h if self.usd_per_h is not None else self.floor_usd_per_h

    @property
    def operating_usd_per_month(self) -> float | None:
        """What is paid month by month; at the least, where it was not simulated to the end."""
        return None if self.needs is None else operating_usd_per_month(self.needs, self.usd_per_h)


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of a search."""

    winner: CandidateFleet | None
    tried: tuple[CandidateFleet, ...]
    """All candidates, the answer first: the winner, else the nearest; then as `rank` has them."""
    simulated: int
    """Cases that this call has simulated; others were found on disk."""
    mixed: MixedSearch | None = None
    """What came of fleets of several kinds, where they are asked for."""
    nearest: CandidateFleet | None = None
    """Where none meets the service level within the budget: the fleet of one kind that attains the most within it."""
    chance: WinProbability | None = None
    """How often the winner stays cheaper than the next fleet with other GPUs within the model's own error."""

    @property
    def rival(self) -> CandidateFleet | None:
        """The cheapest fleet with other GPUs than the winner's that meets the service level, or may."""
        best = self.winner
        if best is None:
            return None
        others = [one for one in self.tried if one.gpu != best.gpu and one.status in ("meets", "not simulated")]
        return min(others, key=lambda one: inf if one.least_usd_per_h is None else one.least_usd_per_h, default=None)


def gpus_of(fleet: Fleet, scenario: Experiment, catalog: Catalog) -> int:
    """GPUs that *fleet* takes of *scenario*, spares included, and for slices whole ones."""
    if any(pool.mig is not None for pool in fleet.pools):
        pools = tuple(pool.model_copy(update={"cost": None}) for pool in fleet.pools)
        free = fleet.model_copy(update={"cost": None, "pools": pools})
        return int(resolved.gpus_of(resolve_fleet(scenario, free, catalog).pools))
    sizes = (
        pool.replicas * pool.tensor_parallel_size * pool.pipeline_parallel_size * pool.data_parallel_size
        for pool in fleet.pools
    )
    return sum(sizes)


def kinds_of(fleet: Fleet) -> str:
    """Catalogue ids of its GPUs."""
    return _named(fleet, "gpu")


def _named(fleet: Fleet | None, key: str) -> str:
    names = (getattr(pool, key) for pool in fleet.pools) if fleet is not None else ()
    return " and ".join(dict.fromkeys(name for name in names if name))


def with_one_host(ranked: Sequence[CandidateFleet], nearest: CandidateFleet | None) -> Iterator[CandidateFleet]:
    """Of fleets that differ only in the host chosen for them the best, or *nearest*; of those that cannot be, all
    reasons in one.
    """
    possible = {one.choice for one in ranked if one.choice and one.replicas}
    shown: set[tuple[str, int]] = set()
    for one in ranked:
        alike = [one]
        if one.choice:
            if (one.choice, one.replicas) in shown or (one.choice in possible and not one.replicas):
                continue
            shown.add((one.choice, one.replicas))
            alike = [other for other in ranked if (other.choice, other.replicas) == (one.choice, one.replicas)]
        if one.replicas or len(alike) == 1:
            yield nearest if nearest is not None and nearest in alike else one
        else:
            reasons = dict.fromkeys(other.reason for other in alike)
            yield replace(one, name=one.choice, reason="; ".join(reasons))


def in_order(tried: Iterable[CandidateFleet], nearest: CandidateFleet | None) -> list[CandidateFleet]:
    """By `rank`, but *nearest* before all others."""
    ranked = with_one_host(sorted(tried, key=rank), nearest)
    return sorted(ranked, key=lambda one: one is not nearest)


def rank(one: CandidateFleet) -> tuple[int, float, str]:
    """Those that meet, those that miss, those not simulated, those over the budget, each by cost; the impossible."""
    order: dict[Status, int] = {"meets": 0, "misses": 1, "not simulated": 2, "over budget": 3, "impossible": 4}
    return order[one.status], one.usd_per_h or one.floor_usd_per_h or 0.0, one.name


def front(found: Sizing, names: Sequence[str]) -> list[CandidateFleet]:
    """The Pareto front, by cost: fleets that meet and that no other beats in cost and all the metrics *names* at
    once.
    """
    met = [(one, _criteria(one, names)) for one in found.tried if one.status == "meets"]
    return [
        one
        for one, mine in met
        if not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for _, other in met)
    ]


def _criteria(one: CandidateFleet, names: Sequence[str]) -> tuple[float, ...]:
    values = ((one.metrics or {}).get(name) for name in names)
    return one.usd_per_h or 0.0, *(0.0 if value is None else value for value in values)
