"""Metrics of a fleet's machines in the window: bottleneck, utilisation, number, power and KV transfers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from math import ceil, fsum, isnan

import numpy as np

from sim.cost.charge import PaymentTime
from sim.cost.metering import NOT_RENTED, MeteredWindow
from sim.cost.rental import ReservedTime
from sim.fleet.replica import State
from sim.records import Interval
from sim.scenario.resolving.resolved import CasePlan, PoolPlan, gpus_of
from sim.study.metrics.averages import PLANNED_MEAN, FirstReplication, MeanShare, Mode
from sim.study.metrics.bottleneck import availability, kv_port_busy_fraction, limited_by, step_share
from sim.study.metrics.metric import MeasuredRun, figure, metric
from sim.study.metrics.window_requests import percentile
from sim.units import HOURS_PER_DAY, SECONDS_PER_HOUR

SHARE = MeanShare()


@dataclass(frozen=True, slots=True)
class TimeWeightedLevel:
    """Time-weighted statistics of a level, such as the number of serving replicas, over the window."""

    mean: float
    p95: float
    """Least level that is not exceeded in 95 % of the time."""
    highest: float

    @classmethod
    def of(cls, spans: Iterable[tuple[float, float, float]]) -> "TimeWeightedLevel":
        """Return the level of the sum of *spans* (start [s], end [s], amount), over the time that any of them covers.

        >>> TimeWeightedLevel.of([(0.0, 10.0, 1.0), (6.0, 10.0, 2.0)])
        TimeWeightedLevel(mean=1.8, p95=3.0, highest=3.0)
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
"""Relative tolerance of the p95 search: a sum of lengths may be a rounding error short of 95 % of the window."""


@dataclass(frozen=True, slots=True)
class FleetMachines:
    """Number of GPUs and servers of the fleet in the window."""

    gpus: float
    """GPUs of the fleet, spares included; the most at a time where replicas are paid only while switched on."""
    servers: int
    """Servers that hold these GPUs."""
    gpu_hours_per_day: float


def serving(run: MeasuredRun) -> TimeWeightedLevel:
    """Return the time-weighted number of serving replicas, all pools together."""
    of_pool = {pool.name: pool for pool in run.plan.pools}
    return TimeWeightedLevel.of(
        (one.start_s, one.end_s, _part(one, of_pool[one.pool]) if one.state == State.SERVING else 0.0)
        for one in _intervals_inside(run)
    )


def _part(interval: Interval, pool: PoolPlan) -> float:
    """Return the part of a replica that *interval* covers: one of its engines, or the share of one service [1]."""
    if not pool.gpus_per_replica:
        return 1 / pool.engines_per_replica
    return interval.gpu_s / (interval.end_s - interval.start_s) / float(pool.gpus_per_replica)


def fleet_machines(run: MeasuredRun) -> FleetMachines:
    """Return the GPUs and servers held for the fleet: purchased or reserved all the time, else while switched on."""
    plan, inside = run.plan, _intervals_inside(run)
    charges = () if plan.costs is None else plan.costs.charges
    by_time = {charge.pool for charge in charges if charge.paid is PaymentTime.SWITCHED_ON}
    on = [one for one in inside if one.state not in NOT_RENTED or (plan.costs is not None and one.pool not in by_time)]
    reserved = {charge.reserved for charge in charges if isinstance(charge, ReservedTime)}
    window = MeteredWindow.of(inside, run.start_s, run.end_s) if reserved else None
    uses = [
        window.coverage(one.pools, min(one.gpus, _slots(plan, one.pools))) for one in reserved if window is not None
    ]
    gpu_h = fsum([*(one.gpu_s for one in on), *(float(use.unused_gpu_s[-1]) for use in uses)]) / SECONDS_PER_HOUR
    switched = {pool.name for pool in plan.pools if pool.scaled and (plan.costs is None or pool.name in by_time)}
    whole = gpus_of(plan.pools)
    gpus = whole
    if switched:
        spans = ((one.start_s, one.end_s, one.gpu_s / (one.end_s - one.start_s)) for one in on if one.pool in switched)
        level = max([TimeWeightedLevel.of(spans).highest, *(use.gpus for use in uses)])
        gpus = gpus_of(pool for pool in plan.pools if pool.name not in switched) + level
        gpus = int(gpus) if gpus == int(gpus) else gpus
    servers = ceil(plan.servers * gpus / whole - 1e-9) if whole else plan.servers
    hours = (run.end_s - run.start_s) / SECONDS_PER_HOUR
    return FleetMachines(gpus, servers, HOURS_PER_DAY * gpu_h / hours if hours else 0.0)


def _slots(plan: CasePlan, pools: Sequence[str]) -> float:
    """Return the GPUs of *pools* with all their replicas."""
    return float(gpus_of(pool for pool in plan.pools if pool.name in pools))


def _intervals_inside(run: MeasuredRun) -> list[Interval]:
    return [one for one in run.inside if one.end_s > one.start_s]


metric(
    "limited_by", "",
    "main bottleneck: the shortage that keeps requests waiting, or what the steps spend their time on",
    "bottleneck", average=Mode(),
)(limited_by)  # fmt: skip
of_machines = partial(figure, part="machines")
of_machines("step_share")(lambda run: run.once(step_share))
use = partial(metric, group="use")
use("batch_mean", "", "mean number of sequences in a step, weighted by busy time", sheet="mean batch")(
    lambda run: run.total("sequence_s") / busy_s if (busy_s := run.total("busy_s")) else 0.0
)
use(
    "gpu_busy_fraction",
    "share",
    "fraction of time in which the GPUs compute",
    average=SHARE,
    heading="GPU busy",
    paired=True,
)(lambda run: run.total("busy_s") / (len(run.meters) * run.window_s))


@metric("kv_used_peak_fraction", "share", "highest fill level of any replica's KV cache", "memory",
        average=SHARE, heading="KV peak", brief="KV peak [%]")  # fmt: skip
def _kv_peak(run: MeasuredRun) -> float:
    blocks = [(pool.batching.num_gpu_blocks or 1) - 1 for pool in run.plan.pools]
    each = zip(run.meters, run.log.pool_of_replica, strict=True)
    return max((meters.kv_peak_blocks / max(1, blocks[pool]) for meters, pool in each), default=0.0)


size = partial(metric, group="size", average=PLANNED_MEAN)
size(
    "gpus", "",
    "GPUs of the fleet, spares included; for rented replicas that start and stop, the highest number at a time",
)(lambda run: run.once(fleet_machines).gpus)  # fmt: skip
size("servers", "", "servers that hold these GPUs")(lambda run: run.once(fleet_machines).servers)


def _mean_w(energy: str, run: MeasuredRun) -> float | None:
    return sum(getattr(one, energy) for one in run.inside) / run.window_s if run.powered else None


power = partial(metric, group="power")
power("gpu_power_w_mean", "W", "mean power of the GPUs", sheet="power of the GPUs, mean [W]")(
    partial(_mean_w, "gpu_energy_j")
)
power("it_power_w_mean", "W", "mean power at the servers' plugs", sheet="power of the servers, mean [W]")(
    partial(_mean_w, "server_energy_j")
)
of_machines("window_h")(lambda run: (run.end_s - run.start_s) / SECONDS_PER_HOUR)
of_machines("units", optional=True)(lambda run: run.total("output_tokens") if run.plan.unit else None)
metric("unit", "", "noun for a service's unit of work, such as image or sequence", "unit", average=FirstReplication(),
       optional=True)(lambda run: run.plan.unit or None)  # fmt: skip
metric(
    "availability", "share",
    "fraction of time in which replicas are neither failed nor under repair (with `failures`)", "availability",
    average=SHARE, heading="available", brief="available [%]", optional=True,
)(lambda run: availability(run.plan, run.inside))  # fmt: skip
scaling = partial(metric, group="scaling")
scaling("replicas_mean", "", "mean number of serving replicas over the window, all pools together",
        heading="replicas, mean", brief="replicas, mean")(lambda run: run.once(serving).mean)  # fmt: skip
scaling("replicas_p95", "", "number of serving replicas not exceeded in 95 % of the time",
        heading="replicas, p95", brief="p95")(lambda run: run.once(serving).p95)  # fmt: skip
scaling("replicas_max", "", "highest number of replicas serving at a time",
        heading="replicas, highest", brief="highest")(lambda run: run.once(serving).highest)  # fmt: skip
scaling(
    "gpu_hours_per_day", "h/day",
    "GPU-hours per day: of all bought or reserved GPUs, and of other GPUs while switched on",
    heading="GPU-hours a day", brief="GPU-hours a day",
)(lambda run: run.once(fleet_machines).gpu_hours_per_day)  # fmt: skip
# stores whether replicas start and stop while the fleet runs
of_machines("scaled", optional=True)(lambda run: any(pool.scaled for pool in run.plan.pools) or None)


def _kv_transfer_s(percent: float, run: MeasuredRun) -> float | None:
    measured = zip(run.log.requests, run.cohort.measured, strict=True)
    took_s = [one.kv_transfer_s for one, inside in measured if inside and not isnan(one.kv_transfer_s)]
    return percentile(np.array(took_s), percent) if took_s else None


transfers = partial(metric, group="transfers", part="transfers")
transfers(
    "kv_transfer_s_p50", "s",
    "median time from a request's first token to the arrival of its KV at the decoding replica",
    sheet="KV transfer p50 [s]",
)(partial(_kv_transfer_s, 50))  # fmt: skip
transfers(
    "kv_transfer_s_p95", "s",
    "95th percentile of the time from a request's first token to the arrival of its KV at the decoding replica",
    heading="KV transfer p95", brief="KV transfer p95 [s]", sheet="KV transfer p95 [s]",
)(partial(_kv_transfer_s, 95))  # fmt: skip
transfers(
    "kv_port_busy_fraction", "share",
    "transferred KV divided by the least capacity of sending ports, receiving ports and the network between them",
    average=SHARE, heading="KV ports busy",
)(lambda run: kv_port_busy_fraction(run.result))  # fmt: skip
