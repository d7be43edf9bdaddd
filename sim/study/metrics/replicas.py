"""Number of replicas that serve over the window, and of GPUs held for them."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, fsum

from sim.case import CaseResult
from sim.cost.bill.charge import Paid
from sim.cost.bill.window import NOT_RENTED
from sim.fleet.lifecycle import State
from sim.fleet.pool import engines_per_replica
from sim.records import Interval
from sim.scenario.resolving.resolved import PoolPlan, gpus_of
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Level:
    """A number over the window, weighted by time."""

    mean: float
    p95: float
    """Least number that is not exceeded in 95 % of the time."""
    highest: float

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float, float]]) -> "Level":
        """Return the level of the sum of *spans* (start [s], end [s], amount), over the time that any of them covers.

        >>> Level.of([(0.0, 10.0, 1.0), (6.0, 10.0, 2.0)])
        Level(mean=1.8, p95=3.0, highest=3.0)
        """
        steps: dict[float, float] = {}
        for start_s, end_s, amount in spans:
            steps[start_s] = steps.get(start_s, 0.0) + amount
            steps[end_s] = steps.get(end_s, 0.0) - amount
        times = sorted(steps)
        levels = [round(level, 9) for level in accumulate(steps[time] for time in times)]
        lasted = sorted((level, end - start) for level, start, end in zip(levels, times, times[1:], strict=False))
        whole_s = fsum(length for _, length in lasted)
        if not whole_s:
            return cls(0.0, 0.0, 0.0)
        reached = accumulate(length for _, length in lasted)
        least_s = 0.95 * whole_s * EXACT
        p95 = next(level for (level, _), so_far in zip(lasted, reached, strict=True) if so_far >= least_s)
        return cls(fsum(level * length for level, length in lasted) / whole_s, p95, lasted[-1][0])


EXACT = 1 - 1e-12
"""A sum of lengths that is 95 % of the window may be a rounding error short of it."""


@dataclass(frozen=True, slots=True)
class Held:
    """GPUs and servers of the fleet in the window."""

    gpus: float
    """GPUs of the fleet, spares included; of replicas that are paid while they are switched on the most at a time."""
    servers: int
    """Servers that these GPUs fill."""
    gpu_hours_per_day: float


def serving(result: CaseResult) -> Level:
    """Return the number of serving replicas of all pools together."""
    of_pool = {pool.name: pool for pool in result.plan.pools}
    return Level.of(
        (one.start_s, one.end_s, _part(one, of_pool[one.pool]) if one.state == State.SERVING else 0.0)
        for one in _inside(result)
    )


def _part(interval: Interval, pool: PoolPlan) -> float:
    """Return what part of a replica *interval* is of: one of several engines, or what one of several services has."""
    if not pool.gpus_per_replica:
        return 1 / engines_per_replica(pool)
    return interval.gpu_s / (interval.end_s - interval.start_s) / float(pool.gpus_per_replica)


def held(result: CaseResult) -> Held:
    """Return what is held for the fleet: what is bought or reserved all the time, else while it is switched on."""
    plan, inside = result.plan, _inside(result)
    charges = () if plan.costs is None else plan.costs.charges
    by_time = {charge.pool for charge in charges if charge.paid is Paid.SWITCHED_ON}
    on = [one for one in inside if one.state not in NOT_RENTED or (plan.costs is not None and one.pool not in by_time)]
    start_s, end_s = result.window_s
    gpu_h = fsum(one.gpu_s for one in on) / SECONDS_PER_HOUR
    switched = {pool.name for pool in plan.pools if pool.scaled and (plan.costs is None or pool.name in by_time)}
    whole = gpus_of(plan.pools)
    gpus = whole
    if switched:
        spans = ((one.start_s, one.end_s, one.gpu_s / (one.end_s - one.start_s)) for one in on if one.pool in switched)
        gpus = gpus_of(pool for pool in plan.pools if pool.name not in switched) + Level.of(spans).highest
        gpus = int(gpus) if gpus == int(gpus) else gpus
    servers = ceil(plan.servers * gpus / whole - 1e-9) if whole else plan.servers
    hours = (end_s - start_s) / SECONDS_PER_HOUR
    return Held(gpus, servers, HOURS_PER_DAY * gpu_h / hours if hours else 0.0)


def _inside(result: CaseResult) -> list[Interval]:
    start_s, end_s = result.window_s
    return [one for one in result.log.intervals if one.is_within(start_s, end_s) and one.end_s > one.start_s]
