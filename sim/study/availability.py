"""Share of requests within the limits over failures: the attainment in each state of a fleet, weighted by its time.

Failures are rare and long compared with requests, so a simulation of both together would have to run for years. Instead
a simulation of failures alone gives the states (the number of serving replicas) with their shares of the time, and a
simulation of requests with the replicas of one state gives the attainment in that state: stratified sampling over the
states.

    attainment = sum over states of (share of the time x attainment in the state) - share of requests hit by failures

A request counts as hit if it is on a replica when it fails, or is sent there before the failure is detected.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import numpy as np

from sim.case.run import without_load
from sim.cost.operations import Operations
from sim.failures import FailureSpec
from sim.fleet.fleet import RunningFleet
from sim.message import Message
from sim.records import FleetLog
from sim.scenario.experiment import Fleet, Pool
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.slo import Slo
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.service_level import cases_overloaded, values_of
from sim.study.metrics.statistics import half_width
from sim.units import SECONDS_PER_HOUR

FAILURES = 10_000
"""Number of failures that are simulated: enough for the shares of rare states."""
BATCHES = 10
"""Number of parts of the simulated time, whose spread gives the error of the shares."""

Counts = tuple[int, ...]
"""Number of serving replicas of each pool."""


@dataclass(frozen=True, slots=True)
class ServingStates:
    """Long-run states of a fleet under failures."""

    shares: dict[Counts, tuple[float, ...]]
    """State -> its share of each batch of the time [1]; the shares of a batch sum to 1."""
    strikes_per_s: float
    """Rate of failures of replicas that serve [1/s]."""
    detection_s: float
    """Mean time from a failure until the router detects it [s]."""

    def share(self, counts: Counts) -> float:
        """Return the share of the time in the state *counts* [1]."""
        return float(np.mean(self.shares[counts]))

    @property
    def by_share(self) -> list[Counts]:
        """States, the most frequent one first."""
        return sorted(self.shares, key=lambda counts: (-self.share(counts), counts))

    @property
    def full(self) -> Counts:
        """State in which all replicas serve."""
        return max(self.shares, key=sum)

    @property
    def mean_serving(self) -> float:
        """Mean number of serving replicas."""
        return sum(self.share(counts) * sum(counts) for counts in self.shares)

    def hit_share(self, latency_s: float) -> float:
        """Return the share of the requests hit by a failure [1], at a mean end-to-end latency of *latency_s*.

        A request is hit if it is on a replica when it fails, or is sent there before the failure is detected. The
        replicas are assumed to serve equal numbers of requests.
        """
        serving = self.mean_serving
        return min(1.0, self.strikes_per_s * (latency_s + self.detection_s) / serving) if serving else 1.0


def serving_states(plan: CasePlan, failures: int = FAILURES) -> ServingStates:
    """Return the states of the fleet of *plan*, from a simulation as long as *failures* failures take."""
    rates = [_strikes_per_s(pool) for pool in plan.pools]
    per_s = sum(_failures_per_s(pool) for pool in plan.pools)
    whole = tuple(pool.replicas - pool.standby_replicas for pool in plan.pools)
    if not per_s:
        return ServingStates({whole: (1.0,) * BATCHES}, 0.0, 0.0)
    length_s = failures / per_s
    quiet = replace(
        without_load(plan), warmup_s=0.0, horizon_s=length_s, drain_limit_s=0.0, meter_interval_s=length_s, clock=None
    )
    struck = sum(rates)
    unknown = sum(
        rate * pool.failures.detection_s for rate, pool in zip(rates, plan.pools, strict=True) if pool.failures
    )
    detection_s = unknown / struck if struck else 0.0
    return ServingStates(_shares(RunningFleet(quiet).run(), plan.pools, length_s), struck, detection_s)


def _failures_per_s(pool: PoolPlan) -> float:
    """Return the rate of events that take replicas of *pool* out of service [1/s]."""
    spot = pool.spot
    lost = 0.0
    if spot is not None and spot.interruptions_per_h is not None:
        lost += pool.replicas * spot.interruptions_per_h / SECONDS_PER_HOUR
    if pool.failures is not None:
        lost += sum(1 / (one.law.mtbf_s + one.law.repair_s) for one in pool.failures.domains)
        work = pool.failures.maintenance
        lost += len(pool.failures.servers) / (work.every_h * SECONDS_PER_HOUR) if work is not None else 0.0
    return lost


def _strikes_per_s(pool: PoolPlan) -> float:
    """Return the rate of failures of serving replicas [1/s]; a failure domain is counted once per replica in it."""
    if pool.failures is None:
        return 0.0
    serving = (pool.replicas - pool.standby_replicas) / pool.replicas
    return serving * sum(len(one.replicas) / (one.law.mtbf_s + one.law.repair_s) for one in pool.failures.domains)


def _shares(log: FleetLog, pools: Sequence[PoolPlan], length_s: float) -> dict[Counts, tuple[float, ...]]:
    """Return the share of each batch of the time, by the number of serving replicas of each pool."""
    first_of_pool = [log.pool_of_replica.index(position) for position in range(len(pools))]
    changes: dict[float, list[int]] = defaultdict(lambda: [0] * len(pools))
    for one in log.intervals:
        position = log.pool_of_replica[one.replica]
        place = one.replica - first_of_pool[position]
        if one.state == "serving" and place % pools[position].engines_per_replica == 0:
            changes[one.start_s][position] += 1
            changes[one.end_s][position] -= 1
    # an empty change at the end of each batch divides the time into batches
    changes |= {
        at_s: [0] * len(pools) for batch in range(BATCHES) if (at_s := length_s * (batch + 1) / BATCHES) not in changes
    }
    found: dict[Counts, list[float]] = defaultdict(lambda: [0.0] * BATCHES)
    now_s, counts = 0.0, [0] * len(pools)
    for at_s in sorted(changes):
        if at_s > now_s:
            batch = min(BATCHES - 1, int((now_s + at_s) / 2 / length_s * BATCHES))
            found[tuple(counts)][batch] += (min(at_s, length_s) - now_s) / length_s * BATCHES
            now_s = at_s
        counts = [count + change for count, change in zip(counts, changes[at_s], strict=True)]
        if now_s >= length_s:
            break
    return {state: tuple(parts) for state, parts in found.items() if sum(parts) > 0 and now_s < inf}


State = TypeVar("State")
Cases = Sequence[CaseMetrics]
"""Metrics of the replications of one state; empty where the fleet cannot run in it."""


@dataclass(frozen=True, slots=True)
class OverFailures:
    """Attainment of a fleet over its failures at one load."""

    share: float
    """Share of the requests within the limits [1]; a bound where the verdict was certain early."""
    half_width: float | None
    """Half of the 95 % interval of the share; None where one replication has no spread."""
    hit_share: float
    """Share of the requests on a replica when it failed, or sent there before the failure was detected [1]."""
    meets: bool


def over_failures(states: ServingStates, wanted: float) -> Generator[Counts, Cases, OverFailures]:
    """Yield states, the most frequent first, for which the caller sends the cases; return the attainment.

    The generator ends as soon as it is certain whether the share of requests reaches *wanted*.
    """
    attained: dict[Counts, list[float]] = {}
    hit, left = 0.0, 1.0
    for counts in states.by_share:
        left -= states.share(counts)
        if sum(counts):
            cases = yield counts
            attained[counts] = _attained(cases)
            if counts == states.full:
                hit = states.hit_share(_mean_latency_s(cases))
        else:
            attained[counts] = [0.0]
        known = sum(states.share(one) * float(np.mean(values)) for one, values in attained.items()) - hit
        if states.full in attained and (known >= wanted or known + left < wanted):
            break
    share = max(0.0, known + (left if known < wanted else 0.0))
    return OverFailures(share, _half(states, attained), hit, known >= wanted)


def _attained(cases: Cases) -> list[float]:
    """Return the share of requests within the limits in each replication [1].

    An overloaded state attains 0, since it lasts for hours.
    """
    if not cases or cases_overloaded(cases):
        return [0.0]
    return values_of(cases, "slo_attainment") or [0.0]


def _mean_latency_s(cases: Cases) -> float:
    known = values_of(cases, "e2e_s_mean")
    return float(np.mean(known)) if known else 0.0


def _half(states: ServingStates, attained: dict[Counts, list[float]]) -> float | None:
    """Return half of the 95 % interval, from the errors of the states' shares and of the attainment in each state."""
    means = {counts: float(np.mean(values)) for counts, values in attained.items()}
    batches = np.sum([np.array(states.shares[counts]) * mean for counts, mean in means.items()], axis=0)
    squares = [(half_width(batches.tolist()) or 0.0) ** 2]
    for counts, values in attained.items():
        if (half := half_width(values)) is not None:
            squares.append((states.share(counts) * half) ** 2)
        elif 0 < means[counts] < 1:
            return None
    return float(sum(squares) ** 0.5)


def in_state(fleet: Fleet, counts: Counts) -> Fleet:
    """Return *fleet* with only the replicas that serve in the state *counts*, without failures."""
    pools = [_serving(pool, count) for pool, count in zip(fleet.pools, counts, strict=True) if count]
    up = "+".join(map(str, counts))
    return fleet.model_copy(update={"name": f"{fleet.name} ({up} serve)", "pools": tuple(pools)})


def _serving(pool: Pool, count: int) -> Pool:
    """Return *pool* with *count* replicas; its idle spares are included, for the bill, where no replica has failed."""
    spares = pool.failures.spares if pool.failures is not None else None
    changed: dict[str, Any] = {"failures": None, "spot": None, "cold_start": None, "replicas": count}
    if spares is not None and spares.kind != "hot" and count == pool.replicas - spares.count:
        changed |= {"failures": FailureSpec(spares=spares), "replicas": pool.replicas}
    return pool.model_copy(update=changed)


def pools_as_data(fleet: Fleet, counts: Counts) -> list[dict[str, Any]]:
    """Return the pools of `in_state` as data of a scenario."""
    gone = {"spot", "cold_start"}
    return [
        pool.model_dump(mode="json", exclude_unset=True, exclude=gone if pool.failures else gone | {"failures"})
        for pool in in_state(fleet, counts).pools
    ]


def run_state_search(search: Generator[State, Cases, OverFailures], cases_of: Callable[[State], Cases]) -> OverFailures:
    """Return the result of *search*, which is run to its end; *cases_of* returns the cases of a state."""
    try:
        counts = next(search)
        while True:
            counts = search.send(cases_of(counts))
    except StopIteration as end:
        found: OverFailures = end.value
        return found


def why_no_availability(slo: Slo, fleets: Sequence[Fleet], operations: Operations | None = None) -> str:
    """Return why the long-run share cannot be found; empty if it can. *operations* are those of the scenario."""
    if slo.availability is None:
        return ""
    if not slo.per_request:
        return "slo.availability: is a share of requests within limits of each request: give ttft_s, tpot_s or e2e_s"
    for fleet in fleets:
        booked = (fleet.operations or operations or Operations()).failures
        if booked is not None and booked.per_gpu_year is None and booked.rate is None:
            return (
                "operations.failures: slo.availability looks at the states of a fleet, in which no pool fails: "
                "give per_gpu_year or rate"
            )
        if any(pool.schedule is not None or pool.autoscaling is not None for pool in fleet.pools):
            return Message(
                "slo.availability: fleet {name} is scaled while it runs; availability needs a fixed number", fleet.name
            )
        if any(pool.spot is not None and pool.spot.trace is not None for pool in fleet.pools):
            return Message(
                "slo.availability: fleet {name} has spot instances by a trace of hours; "
                "availability over years needs interruptions_per_h",
                fleet.name,
            )
    return ""
