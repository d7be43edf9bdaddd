"""One queue on one cluster: its schedule, what meters show, the bill, and each job's part of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import Catalog
from sim.cost import Ledger
from sim.cost.bill.split import split
from sim.jobs.cluster import Schedule, simulate
from sim.jobs.job import Work
from sim.power import PoolPower
from sim.records import Interval
from sim.scenario.queue.plan import QueuePlan, resolve_queue
from sim.scenario.queue.schema import LONGEST_H, QueueScenario
from sim.scenario.sweep import at_point, axes_at, axis_labels, points
from sim.study.work.queue.timeline import PHASES, SERVING, Timeline
from sim.units import SECONDS_PER_HOUR

STATE = "serving"
HELD = "held"
"""State, and phase of the ledger, of the GPUs of a service beside the jobs."""
SERVICE = 1
"""Replica, in the meters, that stands for the service; 0 for the rest."""
MOST_READINGS = 5000
ENERGY = "energy"
"""Component of the ledger that follows what jobs draw; all others follow time."""
LEDGER_PHASES = {"working": "decode", "lost": "recompute", "restarting": "prefill"}
"""What jobs' GPUs do -> phase of the ledger."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """What a queue came to."""

    plan: QueuePlan
    schedule: Schedule
    timeline: Timeline
    intervals: tuple[Interval, ...]
    ledger: Ledger | None
    """None without a `cost`."""
    job_nano_usd: tuple[int, ...]
    """What each job cost, in the order of the schedule; the rest of the bill is the service beside them and idle time.
    Empty without a bill."""

    @property
    def serving_nano_usd(self) -> int:
        """What the service beside the jobs cost."""
        return sum(row.amount_nano_usd for row in self.ledger.rows if row.phase == HELD) if self.ledger else 0


def queue_outcomes(scenario: QueueScenario, catalog: Catalog) -> list[QueueOutcome]:
    """Every cluster at every point of the sweep, cluster by cluster."""
    found = points(scenario.sweep)
    labels = axis_labels(path for point in found for path in point)
    at = [at_point(scenario, point) for point in found]
    return [
        outcome(resolve_queue(here, here.fleets[i], axes_at(labels, point, here), catalog))
        for i in range(len(scenario.fleets))
        for point, here in zip(found, at, strict=True)
    ]


def outcome(plan: QueuePlan) -> QueueOutcome:
    """Schedule, meters and bill of *plan*."""
    jobs = () if plan.infeasible else plan.jobs
    schedule = simulate(jobs, plan.pool.gpus, plan.policy, plan.horizon_s, plan.held)
    if schedule.end_s > LONGEST_H * SECONDS_PER_HOUR:
        schedule = simulate(jobs, plan.pool.gpus, plan.policy, LONGEST_H * SECONDS_PER_HOUR)
    end_s = schedule.end_s if jobs else 0.0
    held, load = (plan.held, plan.serving.load) if plan.serving is not None and jobs else ((), 1.0)
    timeline = Timeline.of(schedule.works, _edges(plan, end_s), held, load)
    intervals = tuple(_intervals(plan, timeline))
    if plan.pool.costs is None or not intervals:
        return QueueOutcome(plan, schedule, timeline, intervals, None, ())
    ledger = Ledger.of(intervals, plan.pool.costs, 0.0, end_s)
    return QueueOutcome(plan, schedule, timeline, intervals, ledger, tuple(_shares(plan, schedule.works, ledger)))


def _edges(plan: QueuePlan, end_s: float) -> NDArray[np.float64]:
    """Meter readings: every full hour of the clock, where there is one, else every hour or, in a long time, every few
    hours, and the end.
    """
    if plan.pool.clock is None:
        every_h = max(1, ceil(end_s / SECONDS_PER_HOUR / MOST_READINGS))
        return np.append(np.arange(0.0, end_s, every_h * SECONDS_PER_HOUR), end_s)
    edges = [0.0]
    while edges[-1] < end_s:
        edges.append(min(end_s, plan.pool.clock.next_hour_s(edges[-1])))
    return np.array(edges)


def _intervals(plan: QueuePlan, timeline: Timeline) -> list[Interval]:
    found = []
    pool, edges = plan.pool, timeline.edges_s
    for place in range(len(edges) - 1):
        start_s, end_s = float(edges[place]), float(edges[place + 1])
        if end_s <= start_s:
            continue
        seconds = {phase: timeline.gpu_s(phase, place) / pool.gpus for phase in (*PHASES, SERVING)}
        loads = {phase: timeline.load_s(phase, place) / pool.gpus for phase in (*PHASES, SERVING)}
        if (held_s := seconds.pop(SERVING)) > 0:
            found.append(_held(plan, start_s, end_s, held_s, loads[SERVING]))
        if (left_s := end_s - start_s - held_s) <= 0:
            continue
        # meters of the jobs' part read times: those GPUs are left_s / (end_s - start_s) of all
        stretched = (end_s - start_s) / left_s
        interval = Interval(
            pool=pool.name,
            server=pool.server,
            replica=0,
            state=STATE,
            start_s=start_s,
            end_s=end_s,
            gpu_s=pool.gpus * left_s,
            busy_s=min(end_s - start_s, stretched * sum(seconds.values())),
            prefill_s=stretched * seconds["restarting"],
            recompute_s=stretched * seconds["lost"],
        )
        if pool.power is not None:
            _add_energy(interval, pool.power, left_s, seconds, {phase: loads[phase] for phase in PHASES})
        found.append(interval)
    return found


def _held(plan: QueuePlan, start_s: float, end_s: float, held_s: float, load_s: float) -> Interval:
    """The service's part between two readings: *held_s* as time of the whole pool, *load_s* the same times its load."""
    pool = plan.pool
    found = Interval(pool.name, pool.server, SERVICE, HELD, start_s, end_s, pool.gpus * held_s, busy_s=end_s - start_s)
    if pool.power is not None:
        found.peak_w = pool.power.peak_w * (held_s / (end_s - start_s))
        found.gpu_energy_j = pool.power.gpu_energy_j(held_s, load_s)
        found.server_energy_j = pool.power.server_energy_j(held_s, found.gpu_energy_j)
    return found


def _add_energy(
    interval: Interval, power: PoolPower, duration_s: float, seconds: dict[str, float], loads: dict[str, float]
) -> None:
    """*duration_s*, *seconds* and *loads* as times of the whole pool: shorter than the interval beside a service."""
    interval.peak_w = power.peak_w * (duration_s / (interval.end_s - interval.start_s))
    interval.gpu_energy_j = power.gpu_energy_j(duration_s, sum(loads.values()))
    interval.server_energy_j = power.server_energy_j(duration_s, interval.gpu_energy_j)
    interval.prefill_energy_j = _wall_j(power, seconds["restarting"], loads["restarting"])
    interval.recompute_energy_j = _wall_j(power, seconds["lost"], loads["lost"])
    interval.idle_energy_j = _wall_j(power, max(0.0, duration_s - sum(seconds.values())), 0.0)


def _wall_j(power: PoolPower, duration_s: float, load_s: float) -> float:
    return power.server_energy_j(duration_s, power.gpu_energy_j(duration_s, load_s))


def _shares(plan: QueuePlan, works: Sequence[Work], ledger: Ledger) -> list[int]:
    """Each job's part [nano-USD]: of energy by what it drew, of all else by its GPUs' time, phase by phase."""
    totals = [0] * len(works)
    gpu = plan.pool.power.gpu if plan.pool.power is not None else None
    idle, more = (gpu.idle_w, gpu.limit_w - gpu.idle_w) if gpu is not None else (1.0, 0.0)
    for phase, booked in LEDGER_PHASES.items():
        by_time = [work.job.gpus * _seconds(work, phase) for work in works]
        load = 0.0 if phase == "restarting" else 1.0
        drawn = [seconds * (idle + more * load * work.job.load) for seconds, work in zip(by_time, works, strict=True)]
        for energy, weights in ((True, drawn), (False, by_time)):
            amount = sum(
                row.amount_nano_usd
                for row in ledger.rows
                if row.phase == booked and (row.component == ENERGY) is energy
            )
            for place, part in enumerate(split(amount, weights) if amount else ()):
                totals[place] += part
    return totals


def _seconds(work: Work, phase: str) -> float:
    field = {"working": "useful_s", "lost": "lost_s", "restarting": "restart_s"}[phase]
    return fsum(getattr(one, field) for one in work.segments)


def is_late(work: Work) -> bool | None:
    """Whether it missed its deadline; None without one."""
    if work.job.deadline_s == inf:
        return None
    return not work.finished_s <= work.job.deadline_s
