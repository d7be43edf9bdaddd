"""The share of requests within the limits over failures: what each state of a fleet attains, by its share of the time.

Failures are rare and long beside requests, so a simulation of both together would have to run for years. Instead the
states (how many replicas serve, and for what share of the time) are found by a simulation of failures alone, and what
is attained in each of them by one of requests with the replicas of that state: stratified sampling over the states. A
request that is on a replica when it fails counts as missed, and so does one that is sent there before the failure is
detected.
"""

from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, TypeVar

import numpy as np

from sim.cost.operations import Operations
from sim.failures import FailureSpec
from sim.fleet.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.experiment import Fleet, Pool
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.slo import Slo
from sim.study.metrics.case_metrics import CaseMetrics, without_load
from sim.study.metrics.service_level import cases_overloaded, values_of
from sim.study.metrics.statistics import half_width
from sim.units import SECONDS_PER_HOUR

FAILURES = 10_000
"""That are simulated: enough for the share of rare states."""
BATCHES = 10
"""Parts of the simulated time that show how exact the shares are."""

Counts = tuple[int, ...]
"""Replicas that serve, pool by pool."""


@dataclass(frozen=True, slots=True)
class ServingStates:
    """What a fleet has to serve with, in the long run."""

    shares: dict[Counts, tuple[float, ...]]
    """State -> its share of each batch of the time; the shares of a batch sum to 1."""
    strikes_per_s: float
    """Failures that hit replicas while they serve."""
    detection_s: float
    """From a failure until the router knows, the mean over failures [s]."""

    def share(self, counts: Counts) -> float:
        """Of the time."""
        return float(np.mean(self.shares[counts]))

    @property
    def by_share(self) -> list[Counts]:
        """The states, the most frequent one first."""
        return sorted(self.shares, key=lambda counts: (-self.share(counts), counts))

    @property
    def full(self) -> Counts:
        """All that ever serve."""
        return max(self.shares, key=sum)

    @property
    def mean_serving(self) -> float:
        """Replicas that serve in the mean."""
        return sum(self.share(counts) * sum(counts) for counts in self.shares)

    def hit_share(self, latency_s: float) -> float:
        """Share of the requests that are on a replica when it fails, or are sent there before anybody knows, where an
        answer takes *latency_s* in the mean. Each replica has an equal part of the requests.
        """
        serving = self.mean_serving
        return min(1.0, self.strikes_per_s * (latency_s + self.detection_s) / serving) if serving else 1.0


def serving_states(plan: CasePlan, failures: int = FAILURES) -> ServingStates:
    """States of the fleet of *plan*, for as long as that number of *failures* takes."""
    rates = [_strikes_per_s(pool) for pool in plan.pools]
    per_s = sum(_failures_per_s(pool) for pool in plan.pools)
    whole = tuple(pool.replicas - pool.standing_by for pool in plan.pools)
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
    """Everything that takes replicas of *pool* out."""
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
    """Failures of serving replicas, each domain counted once for each of its replicas."""
    if pool.failures is None:
        return 0.0
    serving = (pool.replicas - pool.standing_by) / pool.replicas
    return serving * sum(len(one.replicas) / (one.law.mtbf_s + one.law.repair_s) for one in pool.failures.domains)


def _shares(log: FleetLog, pools: Sequence[PoolPlan], length_s: float) -> dict[Counts, tuple[float, ...]]:
    """Share of each batch in which so many replicas serve."""
    first_of_pool = [log.pool_of_replica.index(position) for position in range(len(pools))]
    changes: dict[float, list[int]] = defaultdict(lambda: [0] * len(pools))
    for one in log.intervals:
        position = log.pool_of_replica[one.replica]
        place = one.replica - first_of_pool[position]
        if one.state == "serving" and place % pools[position].engines_per_replica == 0:
            changes[one.start_s][position] += 1
            changes[one.end_s][position] -= 1
    # changes of nothing cut the time into batches
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


Asked = TypeVar("Asked")
Cases = Sequence[CaseMetrics]
"""Replications of one state; none where it cannot run."""


@dataclass(frozen=True, slots=True)
class OverFailures:
    """What a fleet attains over its failures at one load."""

    share: float
    """Of the requests within the limits; where the answer was certain early, a bound."""
    half_width: float | None
    """Of the 95 % interval; None where one replication has no spread."""
    hit_share: float
    """Of the requests: on a replica when it failed, or sent there before that was noticed."""
    meets: bool


def over_failures(states: ServingStates, wanted: float) -> Generator[Counts, Cases, OverFailures]:
    """Asks for the cases of one state after the other, the most frequent first, until it is certain whether the share
    reaches *wanted*.
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
    """Share of requests within the limits, in each replication. A queue that grows without end attains nothing in a
    state that lasts for hours.
    """
    if not cases or cases_overloaded(cases):
        return [0.0]
    return values_of(cases, "slo_attainment") or [0.0]


def _mean_latency_s(cases: Cases) -> float:
    known = values_of(cases, "e2e_s_mean")
    return float(np.mean(known)) if known else 0.0


def _half(states: ServingStates, attained: dict[Counts, list[float]]) -> float | None:
    """Half of the 95 % interval: of the time in each state, and of what is attained there."""
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
    """*fleet* with the replicas that serve in a state and nothing that ever fails."""
    pools = [_serving(pool, count) for pool, count in zip(fleet.pools, counts, strict=True) if count]
    up = "+".join(map(str, counts))
    return fleet.model_copy(update={"name": f"{fleet.name} ({up} serve)", "pools": tuple(pools)})


def _serving(pool: Pool, count: int) -> Pool:
    """*count* replicas of *pool*; where none has failed also its spares, which are on the bill."""
    spares = pool.failures.spares if pool.failures is not None else None
    changed: dict[str, Any] = {"failures": None, "spot": None, "cold_start": None, "replicas": count}
    if spares is not None and spares.kind != "hot" and count == pool.replicas - spares.count:
        changed |= {"failures": FailureSpec(spares=spares), "replicas": pool.replicas}
    return pool.model_copy(update=changed)


def pools_as_data(fleet: Fleet, counts: Counts) -> list[dict[str, Any]]:
    """The pools of `in_state`, as a scenario says them."""
    gone = {"spot", "cold_start"}
    return [
        pool.model_dump(mode="json", exclude_unset=True, exclude=gone if pool.failures else gone | {"failures"})
        for pool in in_state(fleet, counts).pools
    ]


def answered(search: Generator[Asked, Cases, OverFailures], ask: Callable[[Asked], Cases]) -> OverFailures:
    """Runs *search* to its end; *ask* has the cases of a state."""
    try:
        counts = next(search)
        while True:
            counts = search.send(ask(counts))
    except StopIteration as end:
        found: OverFailures = end.value
        return found


def why_no_availability(slo: Slo, fleets: Sequence[Fleet], operations: Operations | None = None) -> str:
    """What keeps the long-run share from being found; empty if nothing. *operations* are those of the scenario."""
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
            return f"slo.availability: fleet {fleet.name} is scaled while it runs; availability needs a fixed number"
        if any(pool.spot is not None and pool.spot.trace is not None for pool in fleet.pools):
            return (
                f"slo.availability: fleet {fleet.name} has spot instances by a trace of hours; "
                "availability over years needs interruptions_per_h"
            )
    return ""
