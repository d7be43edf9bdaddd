"""Rows of a search for the cheapest fleet, one per candidate, and its answer."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

from sim.catalogue.catalog import Catalog
from sim.message import joined
from sim.scenario.experiment import Experiment
from sim.scenario.resolving import resolved
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Fleet, InheritedKeys, nearest
from sim.scenario.sections.size import CostCeiling
from sim.scenario.slo import Slo
from sim.study.confidence import WinProbability
from sim.study.metrics.service_level import ServiceLevelAttainment, unanswered_by_ending
from sim.study.size.bounds import FleetNeeds, operating_usd_per_month
from sim.study.size.mixed_fleets import MixedSearch
from sim.study.size.search_space import StandBy
from sim.study.size.trials import ServiceTrial, Trial

Status = Literal["meets", "misses", "not simulated", "over budget", "impossible"]


@dataclass(frozen=True, slots=True)
class CandidateFleet:
    """Candidate fleet with its status, cost and metrics; a row of the result."""

    name: str
    machine: str
    """Key of the hardware: equal for fleets that differ only in number and in purchase option."""
    gpu: str
    """Catalogue ids of the fleet's GPUs."""
    replicas: int
    """Replicas that carry the load, without spares; 0 where no number could."""
    gpus: int
    status: Status
    usd_per_h: float | None
    """Mean cost over replications [USD/h]; None where the fleet was not simulated in full."""
    floor_usd_per_h: float | None
    """Lower bound of the cost [USD/h]; None without prices."""
    reason: str = ""
    """Reason why the fleet is impossible or over the budget."""
    overloaded: bool = False
    metrics: dict[str, float | None] | None = None
    """Means over the simulated replications; None for a fleet that was not simulated."""
    replications: int | None = None
    """Number of simulated replications; None for a fleet that was not simulated."""
    fleet: Fleet | None = None
    service_level: ServiceLevelAttainment | None = None
    """Verdict on the service level, with the attained value of each goal; None for a fleet that was not simulated."""
    needs: FleetNeeds | None = None
    """Money and power of the fleet; None where unknown."""
    output_tokens_per_s: float | None = None
    """Mean rate of output tokens over the simulated replications [tokens/s]; None for a fleet not simulated."""
    unanswered: Mapping[str, float] = field(default_factory=dict)
    """Shares of the requests that were rejected, timed out or lost [1], by column; empty for a fleet not simulated."""
    choice: str = ""
    """Key equal for fleets that differ only in the host chosen by the search, and in number."""
    standby: StandBy | None = None
    """Warm or cold spares, which do not carry the load."""
    services: Mapping[str, ServiceTrial] = field(default_factory=dict)
    """Service -> trial, where the fleet serves several services, was simulated and could run."""

    def with_results(self, outcome: Trial, levels: Mapping[str, Slo] | None = None) -> "CandidateFleet":
        """Return this row with its simulated results, except cost; *levels* are the SLOs of several services."""
        return replace(
            self,
            metrics=outcome.metrics,
            output_tokens_per_s=outcome.output_tokens_per_s,
            unanswered=unanswered_by_ending([case.metrics for case in outcome.cases]),
            replications=len(outcome.cases),
            service_level=outcome.service_level,
            overloaded=outcome.service_level.overloaded,
            services=outcome.services(levels or {}),
        )

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """Cost divided by output tokens [USD per million]; None where the fleet was not simulated in full."""
        if self.usd_per_h is None or not self.output_tokens_per_s:
            return None
        return self.usd_per_h / (self.output_tokens_per_s * 3600) * 1e6

    @property
    def tokens_per_s_per_user(self) -> float | None:
        """Output speed that 95 % of the requests reach, 1 / p95 TPOT [tokens/s]; None for a fleet not simulated."""
        tpot_s = (self.metrics or {}).get("tpot_s_p95")
        return 1 / tpot_s if tpot_s else None

    def costs_at_most(self, ceiling: CostCeiling) -> bool:
        """Return whether the cost of the fleet is known and within *ceiling*."""
        limits = (
            (self.usd_per_h, ceiling.usd_per_h),
            (self.usd_per_million_output_tokens, ceiling.usd_per_million_output_tokens),
        )
        return all(limit is None or (cost is not None and cost <= limit) for cost, limit in limits)

    @property
    def autoscaled(self) -> bool:
        """True if an autoscaler starts and stops replicas."""
        return self.fleet is not None and any(pool.autoscaling is not None for pool in self.fleet.pools)

    @property
    def inconclusive(self) -> bool:
        """True if the verdict on the service level is inconclusive."""
        return self.service_level is not None and self.service_level.verdict == "inconclusive"

    @property
    def total(self) -> int:
        """Number of replicas, warm and cold spares included."""
        return self.replicas + (self.standby.count if self.standby is not None else 0)

    @property
    def serving(self) -> str:
        """Key of the hardware of the replicas that carry the load."""
        return self.machine if self.standby is None else self.standby.machine

    @property
    def servers(self) -> str:
        """Catalogue ids of the fleet's servers; empty without a server."""
        return _joined_names(self.fleet, "server")

    @property
    def least_usd_per_h(self) -> float | None:
        """Cost of the fleet, or its lower bound where it was not simulated in full [USD/h]."""
        return self.usd_per_h if self.usd_per_h is not None else self.floor_usd_per_h

    @property
    def operating_usd_per_month(self) -> float | None:
        """Operating cost, or its lower bound where the fleet was not simulated in full [USD/month]."""
        return None if self.needs is None else operating_usd_per_month(self.needs, self.usd_per_h)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Answer of a search."""

    winner: CandidateFleet | None
    candidates: tuple[CandidateFleet, ...]
    """All candidates: the winner first, or else the best within the budget, then in the order of `rank`."""
    simulated: int
    """Number of cases that this call has simulated; other cases were found on disk."""
    mixed: MixedSearch | None = None
    """Result of the search among fleets of several kinds, where the section asks for it."""
    best_within_budget: CandidateFleet | None = None
    """Fleet of one kind that attains the most within the budget, where none meets the service level within it."""
    fastest: CandidateFleet | None = None
    """Fleet with the highest output speed per user among those that meet the service level within the ceiling on cost.

    None without a ceiling, and where no fleet meets the service level within it.
    """
    win_probability: WinProbability | None = None
    """Probability that the winner stays cheaper than the next fleet with other GPUs, under the model's own error."""

    @property
    def rival(self) -> CandidateFleet | None:
        """Cheapest fleet with other GPUs than the winner's that meets the service level, or may meet it."""
        best = self.winner
        if best is None:
            return None
        others = [one for one in self.candidates if one.gpu != best.gpu and one.status in ("meets", "not simulated")]
        others = [one for one in others if best.inconclusive or not one.inconclusive]
        return min(others, key=lambda one: inf if one.least_usd_per_h is None else one.least_usd_per_h, default=None)


def fastest_within(candidates: Iterable[CandidateFleet], ceiling: CostCeiling | None) -> CandidateFleet | None:
    """Return the fleet with the highest output speed per user within *ceiling*, the cheapest of equals."""
    if ceiling is None:
        return None
    within = [one for one in candidates if one.status == "meets" and one.costs_at_most(ceiling)]
    known = [one for one in within if one.tokens_per_s_per_user is not None]
    return max(known, key=lambda one: (one.tokens_per_s_per_user or 0.0, -(one.usd_per_h or 0.0)), default=None)


def gpus_of(fleet: Fleet, scenario: Experiment, catalog: Catalog) -> int:
    """Return the number of GPUs that *fleet* occupies, spares included; slices are counted as whole GPUs."""
    if any(pool.mig is not None for pool in fleet.pools):
        pools = tuple(pool.model_copy(update={"cost": None}) for pool in fleet.pools)
        free = fleet.model_copy(update={"cost": None, "pools": pools})
        return int(resolved.gpus_of(resolve_fleet(scenario, free, catalog).pools))
    sizes = (
        pool.most_replicas * pool.tensor_parallel_size * pool.pipeline_parallel_size * pool.data_parallel_size
        for pool in fleet.pools
    )
    return sum(sizes)


def kinds_of(fleet: Fleet) -> str:
    """Return the catalogue ids of the GPUs of *fleet*."""
    return _joined_names(fleet, "gpu")


def _joined_names(fleet: Fleet | None, key: str) -> str:
    names = (getattr(pool, key) for pool in fleet.pools) if fleet is not None else ()
    return " and ".join(dict.fromkeys(name for name in names if name))


def with_one_host(ranked: Sequence[CandidateFleet], kept: CandidateFleet | None) -> Iterator[CandidateFleet]:
    """Yield one row for fleets that differ only in the host chosen by the search: the best, or *kept*.

    Fleets that are impossible with every host become one row with all reasons.
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
            yield kept if kept is not None and kept in alike else one
        else:
            reasons = dict.fromkeys(other.reason for other in alike)
            yield replace(one, name=one.choice, reason=joined("; ", reasons))


def in_order(
    candidates: Iterable[CandidateFleet], first: CandidateFleet | None, scenario: Experiment
) -> list[CandidateFleet]:
    """Return the rows in the order of `rank`, with *first* before all others."""
    ranked = with_one_host(_without_repeats(sorted(candidates, key=rank), first, scenario), first)
    return sorted(ranked, key=lambda one: one is not first)


def _without_repeats(
    ranked: Sequence[CandidateFleet], kept: CandidateFleet | None, scenario: Experiment
) -> list[CandidateFleet]:
    """Return one row of rows with the same machines and terms: *kept*, or else the first.

    A fleet of the scenario may also be a combination of the section.
    """
    found: dict[str, CandidateFleet] = {}
    for place, one in enumerate(ranked):
        alike = str(place)
        if one.fleet is not None and one.status != "impossible":
            alike = _hardware_and_terms(one.fleet, scenario)
        if alike not in found or one is kept:
            found[alike] = one
    return list(found.values())


def _hardware_and_terms(fleet: Fleet, scenario: Experiment) -> str:
    """Return a key equal for fleets that differ only in their name, or in where their keys are stated."""
    pools = []
    for pool, cost in zip(fleet.pools, fleet.costs, strict=True):
        own = {key: nearest(getattr(pool, key), getattr(scenario, key)) for key in InheritedKeys.model_fields}
        pools.append(pool.model_copy(update=own | {"name": None, "cost": cost}))
    return fleet.model_copy(update={"name": "", "pools": tuple(pools), "cost": None}).model_dump_json()


def rank(one: CandidateFleet) -> tuple[int, float, str]:
    """Return the sort key of a row: by status (meets, misses, not simulated, over budget, impossible), then by cost."""
    order: dict[Status, int] = {"meets": 0, "misses": 1, "not simulated": 2, "over budget": 3, "impossible": 4}
    return order[one.status], one.usd_per_h or one.floor_usd_per_h or 0.0, one.name


def front(found: Sizing, names: Sequence[str]) -> list[CandidateFleet]:
    """Return the Pareto front by cost.

    The front has the fleets that meet the service level and that no other fleet beats in cost and in all metrics
    *names* at
    once.
    """
    met = [(one, _criteria(one, names)) for one in found.candidates if one.status == "meets"]
    return [
        one
        for one, mine in met
        if not any(all(a <= b for a, b in zip(other, mine, strict=True)) and other != mine for _, other in met)
    ]


def _criteria(one: CandidateFleet, names: Sequence[str]) -> tuple[float, ...]:
    values = ((one.metrics or {}).get(name) for name in names)
    return one.usd_per_h or 0.0, *(0.0 if value is None else value for value in values)
