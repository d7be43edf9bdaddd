"""How many replicas serve, and for what share of the time: a fleet's failures simulated alone, without requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from sim.fleet import RunningFleet
from sim.fleet.pool import engines_per_replica
from sim.records import FleetLog
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.study.metrics.idle import without_load
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
        if one.state == "serving" and place % engines_per_replica(pools[position]) == 0:
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
