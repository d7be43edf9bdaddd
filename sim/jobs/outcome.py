"""Results of a job queue on every cluster at every sweep point: waiting, utilisation, energy, cost.

Contains the GPUs' time between meter readings, the cost of the cluster and of each job, and the columns of summary.csv
and jobs.csv. Every column is declared once: name, unit, meaning, and the function that computes it from an outcome.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, fsum, inf, isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.catalogue.catalog import Catalog
from sim.cost.ledger import Ledger, split
from sim.jobs.cluster import JobSchedule, JobSegment, JobState, is_finished, simulate
from sim.jobs.plan import QueuePlan, resolve_queue
from sim.jobs.schema import LONGEST_H, QueueScenario
from sim.power import PoolPower
from sim.records import Interval
from sim.scenario.sweep import fleets_at_points
from sim.training.outcome import (
    JobEmissions,
    WorkColumn,
    WorkRow,
    emission_columns,
    energy_kwh,
    states_scopes,
    total_usd,
    wall_j,
)
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR

PHASES = ("working", "lost", "restarting")
SERVING = "serving"
"""Phase of GPUs that a service on the cluster uses."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClusterTimeline:
    """GPU time between meter readings by phase."""

    edges_s: Numbers
    """Times of the meter readings [s]."""
    busy: dict[str, Numbers]
    """GPU-seconds between consecutive readings, keyed by phase."""
    loaded: dict[str, Numbers]
    """GPU-seconds times load between consecutive readings, keyed by phase."""

    @classmethod
    def of(
        cls,
        job_states: Sequence[JobState],
        edges_s: Numbers,
        serving_gpus: Sequence[tuple[float, int]] = (),
        serving_load: float = 1.0,
    ) -> "ClusterTimeline":
        """Return the timeline of the segments of all *job_states*.

        *serving_gpus* has the GPUs of a service with load *serving_load*, as (time [s], number from then on).
        """
        busy, loaded = {}, {}
        for phase in PHASES:
            spans = np.array(
                [(*_span(one, phase), work.job.gpus, work.job.load) for work in job_states for one in work.segments]
            ).reshape(-1, 4)
            load = spans[:, 3] if phase != "restarting" else np.zeros(len(spans))
            busy[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2], edges_s)
            loaded[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2] * load, edges_s)
        since = np.array(serving_gpus, dtype=float).reshape(-1, 2)
        until = np.append(since[1:, 0], max(edges_s[-1], since[-1, 0])) if len(since) else since[:, 0]
        busy[SERVING] = between(since[:, 0], until, since[:, 1], edges_s)
        loaded[SERVING] = serving_load * busy[SERVING]
        return cls(edges_s, busy, loaded)

    def gpu_s(self, phase: str, place: int | None = None) -> float:
        """Return the GPU-seconds of *phase*, in total or after the reading *place*."""
        return float(self.busy[phase].sum() if place is None else self.busy[phase][place])

    def load_s(self, phase: str, place: int) -> float:
        """Return the GPU-seconds times load of *phase* after the reading *place*."""
        return float(self.loaded[phase][place])

    @property
    def used(self) -> Numbers:
        """Mean number of GPUs with a job between consecutive readings."""
        return self._mean(np.sum([self.busy[phase] for phase in PHASES], axis=0))

    @property
    def serving(self) -> Numbers:
        """Mean number of GPUs of the service between consecutive readings."""
        return self._mean(self.busy[SERVING])

    def _mean(self, total: Numbers) -> Numbers:
        lengths = np.diff(self.edges_s)
        return np.asarray(np.divide(total, lengths, out=np.zeros_like(lengths), where=lengths > 0))


def _span(one: JobSegment, phase: str) -> tuple[float, float]:
    start_s, end_s = one.start_s, one.end_s
    works_s, lost_s = start_s + one.restart_s, end_s - one.lost_s
    return {"restarting": (start_s, works_s), "working": (works_s, lost_s), "lost": (lost_s, end_s)}[phase]


def between(starts: Numbers, ends: Numbers, weights: Numbers, edges: Numbers) -> Numbers:
    """Integrate the sum of *weights*, each active from its start to its end, between consecutive *edges*.

    >>> between(np.array([1.0]), np.array([4.0]), np.array([2.0]), np.array([0.0, 2.0, 3.0, 9.0]))
    array([2., 2., 2.])
    """
    times = np.concatenate([starts, ends, [0.0]])
    steps = np.concatenate([weights, -weights, [0.0]])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    integral = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    return np.asarray(np.maximum(0.0, np.diff(np.interp(edges, times, integral))))


STATE = "serving"
HELD = "held"
"""State in the meter readings, and phase of the ledger, of GPUs that the service uses."""
SERVICE = 1
"""Replica number of the service in the meter readings; all other GPUs have 0."""
MOST_READINGS = 5000
"""Largest number of meter readings without a clock."""
ENERGY = "energy"
"""Ledger component split by the energy of jobs; all others are split by time."""
LEDGER_PHASES = {"working": "decode", "lost": "recompute", "restarting": "prefill"}
"""Ledger phases of the phases of jobs."""


@dataclass(frozen=True, slots=True)
class QueueOutcome:
    """Schedule, meter readings and cost of a queue on one cluster at one sweep point."""

    plan: QueuePlan
    schedule: JobSchedule
    timeline: ClusterTimeline
    intervals: tuple[Interval, ...]
    ledger: Ledger | None
    """Cost of the cluster; None without a `cost`."""
    job_nano_usd: tuple[int, ...]
    """Cost of each job in the order of the schedule [nano-USD]; empty without a ledger.

    The rest of the ledger is the cost of the service and of idle time.
    """

    @property
    def serving_nano_usd(self) -> int:
        """Cost of the service on the cluster [nano-USD]."""
        return sum(row.amount_nano_usd for row in self.ledger.rows if row.phase == HELD) if self.ledger else 0


def queue_outcomes(scenario: QueueScenario, catalog: Catalog) -> list[QueueOutcome]:
    """Return the outcomes of every cluster at every sweep point, cluster by cluster."""
    return [
        outcome(resolve_queue(here, here.fleets[place], axes, catalog))
        for here, place, axes in fleets_at_points(scenario)
    ]


def outcome(plan: QueuePlan) -> QueueOutcome:
    """Simulate *plan*. Return its schedule, meter readings and cost."""
    jobs = () if plan.infeasible else plan.jobs
    schedule = simulate(jobs, plan.pool.gpus, plan.policy, plan.horizon_s, plan.serving_gpus)
    if schedule.end_s > LONGEST_H * SECONDS_PER_HOUR:
        schedule = simulate(jobs, plan.pool.gpus, plan.policy, LONGEST_H * SECONDS_PER_HOUR)
    end_s = schedule.end_s if jobs else 0.0
    serving_gpus, load = (plan.serving_gpus, plan.serving.load) if plan.serving is not None and jobs else ((), 1.0)
    timeline = ClusterTimeline.of(schedule.job_states, _edges(plan, end_s), serving_gpus, load)
    intervals = tuple(_intervals(plan, timeline))
    if plan.pool.costs is None or not intervals:
        return QueueOutcome(plan, schedule, timeline, intervals, None, ())
    ledger = Ledger.of(intervals, plan.pool.costs, 0.0, end_s)
    return QueueOutcome(
        plan, schedule, timeline, intervals, ledger, tuple(_job_costs(plan, schedule.job_states, ledger))
    )


def _edges(plan: QueuePlan, end_s: float) -> NDArray[np.float64]:
    """Return the times of the meter readings [s].

    They are at every full hour if the site has a clock, else every hour (every few hours for long schedules), and at
    the end.
    """
    if plan.pool.clock is None:
        every_h = max(1, ceil(end_s / SECONDS_PER_HOUR / MOST_READINGS))
        return np.append(np.arange(0.0, end_s, every_h * SECONDS_PER_HOUR), end_s)
    edges = [0.0]
    while edges[-1] < end_s:
        edges.append(min(end_s, plan.pool.clock.next_hour_s(edges[-1])))
    return np.array(edges)


def _intervals(plan: QueuePlan, timeline: ClusterTimeline) -> list[Interval]:
    found = []
    pool, edges = plan.pool, timeline.edges_s
    for place in range(len(edges) - 1):
        start_s, end_s = float(edges[place]), float(edges[place + 1])
        if end_s <= start_s:
            continue
        seconds = {phase: timeline.gpu_s(phase, place) / pool.gpus for phase in (*PHASES, SERVING)}
        loads = {phase: timeline.load_s(phase, place) / pool.gpus for phase in (*PHASES, SERVING)}
        if (serving_s := seconds.pop(SERVING)) > 0:
            found.append(_serving_interval(plan, start_s, end_s, serving_s, loads[SERVING]))
        if (left_s := end_s - start_s - serving_s) <= 0:
            continue
        # readings are per second of the interval, but the jobs have the pool for left_s only: quantities are stretched
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


def _serving_interval(plan: QueuePlan, start_s: float, end_s: float, serving_s: float, load_s: float) -> Interval:
    """Return the meter reading of the service's GPUs.

    *serving_s* is their time as seconds of the whole pool; *load_s* is that time multiplied by the load.
    """
    pool = plan.pool
    found = Interval(
        pool.name, pool.server, SERVICE, HELD, start_s, end_s, pool.gpus * serving_s, busy_s=end_s - start_s
    )
    if pool.power is not None:
        found.peak_w = pool.power.peak_w * (serving_s / (end_s - start_s))
        found.gpu_energy_j = pool.power.gpu_energy_j(serving_s, load_s)
        found.server_energy_j = pool.power.server_energy_j(serving_s, found.gpu_energy_j)
    return found


def _add_energy(
    interval: Interval, power: PoolPower, duration_s: float, seconds: dict[str, float], loads: dict[str, float]
) -> None:
    """Set the power and energy of *interval*.

    *duration_s*, *seconds* and *loads* are times of the whole pool; with a service, they are shorter than the
    interval.
    """
    interval.peak_w = power.peak_w * (duration_s / (interval.end_s - interval.start_s))
    interval.gpu_energy_j = power.gpu_energy_j(duration_s, sum(loads.values()))
    interval.server_energy_j = power.server_energy_j(duration_s, interval.gpu_energy_j)
    interval.prefill_energy_j = wall_j(power, seconds["restarting"], loads["restarting"])
    interval.recompute_energy_j = wall_j(power, seconds["lost"], loads["lost"])
    interval.idle_energy_j = wall_j(power, max(0.0, duration_s - sum(seconds.values())), 0.0)


def _job_costs(plan: QueuePlan, job_states: Sequence[JobState], ledger: Ledger) -> list[int]:
    """Return the cost of each job [nano-USD]: energy split by its consumption, the rest by GPU time, per phase."""
    totals = [0] * len(job_states)
    gpu = plan.pool.power.gpu if plan.pool.power is not None else None
    idle, more = (gpu.idle_w, gpu.limit_w - gpu.idle_w) if gpu is not None else (1.0, 0.0)
    for phase, booked in LEDGER_PHASES.items():
        by_time = [work.job.gpus * _seconds(work, phase) for work in job_states]
        load = 0.0 if phase == "restarting" else 1.0
        drawn = [
            seconds * (idle + more * load * work.job.load) for seconds, work in zip(by_time, job_states, strict=True)
        ]
        for energy, weights in ((True, drawn), (False, by_time)):
            amount = sum(
                row.amount_nano_usd
                for row in ledger.rows
                if row.phase == booked and (row.component == ENERGY) is energy
            )
            for place, part in enumerate(split(amount, weights) if amount else ()):
                totals[place] += part
    return totals


def _seconds(work: JobState, phase: str) -> float:
    field = {"working": "useful_s", "lost": "lost_s", "restarting": "restart_s"}[phase]
    return fsum(getattr(one, field) for one in work.segments)


def is_late(work: JobState) -> bool | None:
    """Return whether the job missed its deadline; None without a deadline."""
    if work.job.deadline_s == inf:
        return None
    return not work.finished_s <= work.job.deadline_s


SHORTEST_S = 10.0
"""Shortest duration in the bounded slowdown [s]; shorter jobs count as this long (Feitelson et al., JSSPP 1997)."""
Value = Callable[[QueueOutcome], Any]


QueueColumn = WorkColumn[QueueOutcome]
QueueRow = WorkRow[QueueOutcome]


def finished_jobs(one: QueueOutcome) -> list[JobState]:
    """Return the completed jobs."""
    return [work for work in one.schedule.job_states if is_finished(work)]


def _count(status: str) -> Value:
    return lambda one: sum(status_of(work, one) == status for work in one.schedule.job_states)


def status_of(work: JobState, one: QueueOutcome) -> str:
    """Return the status: finished, rejected (larger than jobs ever get), or unfinished."""
    if is_finished(work):
        return "finished"
    return "rejected" if work.job.gpus > one.plan.most_gpus else "unfinished"


def waited_s(work: JobState) -> float:
    """Return the time from arrival to the first start [s]; nan if the job never started."""
    return work.started_s - work.job.arrived_s


def _wait_until_end_s(work: JobState, one: QueueOutcome) -> float:
    """Return the waiting time, including that of jobs still waiting at the end [s].

    A cluster that starts fewer jobs must not appear to have shorter waits.
    """
    waits = status_of(work, one) == "unfinished" and isnan(work.started_s)
    so_far_s = one.schedule.end_s - work.job.arrived_s
    return so_far_s if waits and so_far_s >= 0 else waited_s(work)


def _waiting(show: Callable[[Any], Any]) -> Value:
    def value(one: QueueOutcome) -> float | None:
        waits = [wait for work in one.schedule.job_states if not isnan(wait := _wait_until_end_s(work, one))]
        return float(show(np.array(waits))) / SECONDS_PER_HOUR if waits else None

    return value


def _slowdown(one: QueueOutcome) -> float | None:
    done = finished_jobs(one)
    ratios = [(work.finished_s - work.job.arrived_s) / max(SHORTEST_S, work.job.duration_s) for work in done]
    return float(np.mean(np.maximum(1.0, ratios))) if ratios else None


def _gpu_h(*phases: str) -> Value:
    return lambda one: fsum(one.timeline.gpu_s(phase) for phase in phases) / SECONDS_PER_HOUR


def _share(*phases: str) -> Value:
    hours = _gpu_h(*phases)
    return lambda one: hours(one) * SECONDS_PER_HOUR / (one.plan.pool.gpus * one.schedule.end_s)


def _idle_usd(one: QueueOutcome) -> float | None:
    if one.ledger is None:
        return None
    return (one.ledger.total_nano_usd - one.serving_nano_usd - sum(one.job_nano_usd)) / NANO_PER_USD


def _jobs_and_idle_usd(one: QueueOutcome) -> float | None:
    """Return the cost without the service's part [USD]."""
    return None if one.ledger is None else (one.ledger.total_nano_usd - one.serving_nano_usd) / NANO_PER_USD


def _idle_gpu_h(one: QueueOutcome) -> float:
    there = one.plan.pool.gpus * one.schedule.end_s / SECONDS_PER_HOUR
    return max(0.0, there - float(_gpu_h(*PHASES, SERVING)(one)))


def _usd_per_job(one: QueueOutcome) -> float | None:
    usd, done = _jobs_and_idle_usd(one), len(finished_jobs(one))
    return None if usd is None or not done else usd / done


def _usd_per_useful_hour(one: QueueOutcome) -> float | None:
    usd, hours = _jobs_and_idle_usd(one), _gpu_h("working")(one)
    return None if usd is None or not hours else usd / hours


COLUMNS: tuple[QueueColumn, ...] = (
    QueueColumn("status", "", "`ok`, or `infeasible` where nothing can run",
                lambda one: "infeasible" if one.plan.infeasible else "ok", always=True),
    QueueColumn("reason", "", "why no job can run", lambda one: one.plan.infeasible, always=True),
    QueueColumn("replications", "", "always 1: nothing is random", lambda one: 1, always=True),
    QueueColumn("policy", "", "queue policy", lambda one: one.plan.policy.policy, always=True),
    QueueColumn("gpus", "", "GPUs of the cluster", lambda one: one.plan.pool.gpus, always=True),
    QueueColumn("servers", "", "servers that the GPUs fill", lambda one: one.plan.pool.servers, always=True),
    QueueColumn("jobs", "", "jobs that arrived", lambda one: len(one.schedule.job_states)),
    QueueColumn("finished", "", "jobs that were completed", _count("finished")),
    QueueColumn("rejected", "", "jobs that need more GPUs than they can ever get", _count("rejected")),
    QueueColumn("unfinished", "", "jobs that were not completed at the horizon", _count("unfinished")),
    QueueColumn("makespan_h", "h", "from time 0 until the last job has finished, or the horizon",
                lambda one: one.schedule.end_s / SECONDS_PER_HOUR),
    QueueColumn("utilisation", "share", "GPU-hours with a job over all GPU-hours", _share(*PHASES)),
    QueueColumn("useful_share", "share", "GPU-hours of work that is not lost over all GPU-hours", _share("working")),
    QueueColumn("utilisation_with_serving", "share", "with a service: GPU-hours of jobs and service over all "
                "GPU-hours", _share(*PHASES, SERVING), with_service=True),
    QueueColumn("serving_gpu_h", "h", "GPU-hours of the service", _gpu_h(SERVING), with_service=True),
    QueueColumn("jobs_gpu_h", "h", "GPU-hours of jobs", _gpu_h(*PHASES), with_service=True),
    QueueColumn("idle_gpu_h", "h", "GPU-hours without job or service", _idle_gpu_h, with_service=True),
    QueueColumn("wait_h_mean", "h", "mean time from arrival to the first start, or to the horizon",
                _waiting(np.mean)),
    QueueColumn("wait_h_p50", "h", "median waiting time", _waiting(lambda waits: np.percentile(waits, 50))),
    QueueColumn("wait_h_p95", "h", "95th percentile of the waiting time",
                _waiting(lambda waits: np.percentile(waits, 95))),
    QueueColumn("wait_h_p99", "h", "99th percentile of the waiting time",
                _waiting(lambda waits: np.percentile(waits, 99))),
    QueueColumn("slowdown_mean", "", "mean time from arrival to end over the duration (bounded slowdown)",
                _slowdown),
    QueueColumn("preemptions", "", "number of preemptions",
                lambda one: sum(work.preemptions for work in one.schedule.job_states)),
    QueueColumn("lost_gpu_h", "h", "GPU-hours of work lost to preemptions", _gpu_h("lost")),
    QueueColumn("restarting_gpu_h", "h", "GPU-hours of restarts", _gpu_h("restarting")),
    QueueColumn("deadlines", "", "jobs with a deadline",
                lambda one: sum(is_late(work) is not None for work in one.schedule.job_states)),
    QueueColumn("deadlines_met", "", "jobs that met their deadline",
                lambda one: sum(is_late(work) is False for work in one.schedule.job_states)),
    QueueColumn("energy_kwh", "kWh", "energy at the site's meter, cooling and idle GPUs included",
                lambda one: energy_kwh(one.plan.pool, one.intervals)),
    *emission_columns(lambda one: JobEmissions(one.plan.pool, one.intervals, one.schedule.end_s)),
    QueueColumn("capex_usd", "USD", "capital cost of the machines; 0 if rented",
                lambda one: one.ledger.capex_usd if one.ledger else None, money=True),
    QueueColumn("cost_usd", "USD", "cost of the cluster from time 0 to the end",
                lambda one: total_usd(one.ledger), money=True),
    QueueColumn("cost_usd_per_h", "USD/h", "cost per hour", lambda one: one.ledger.usd_per_h if one.ledger else None,
                money=True),
    QueueColumn("idle_usd", "USD", "cost of idle GPUs", _idle_usd, money=True),
    QueueColumn("serving_usd", "USD", "cost of the service",
                lambda one: one.serving_nano_usd / NANO_PER_USD if one.ledger else None, money=True, with_service=True),
    QueueColumn("jobs_usd", "USD", "cost of the jobs",
                lambda one: sum(one.job_nano_usd) / NANO_PER_USD if one.ledger else None, money=True,
                with_service=True),
    QueueColumn("usd_per_job", "USD", "cost without the service's, per finished job", _usd_per_job, money=True),
    QueueColumn("usd_per_useful_gpu_h", "USD", "cost without the service's, per GPU-hour of work that is not lost",
                _usd_per_useful_hour, money=True),
)  # fmt: skip


def summary(found: Sequence[QueueOutcome]) -> list[QueueRow]:
    """Return one row per outcome, in order.

    Cost columns are present only if something has a cost, service columns only if a cluster has a service.
    """
    priced = any(one.plan.pool.costs is not None for one in found)
    serving = any(one.plan.serving is not None for one in found)
    scopes = states_scopes(one.plan.pool for one in found)
    columns = [
        one
        for one in COLUMNS
        if (priced or not one.money) and (serving or not one.with_service) and (scopes or not one.scopes)
    ]
    return [QueueRow.of(one, one.plan, columns) for one in found]


def job_cells(work: JobState, place: int, one: QueueOutcome) -> dict[str, Any]:
    """Return the row of jobs.csv of the job at *place* in the order of arrival."""
    job, late = work.job, is_late(work)
    known = {"job": job.name, "gpus": job.gpus, "priority": job.priority, "status": status_of(work, one)}
    times = {"arrived_s": job.arrived_s, "started_s": work.started_s, "finished_s": work.finished_s}
    spent = {
        "waited_s": waited_s(work),
        "duration_s": job.duration_s,
        "useful_s": fsum(part.useful_s for part in work.segments),
        "lost_s": fsum(part.lost_s for part in work.segments),
        "restarting_s": fsum(part.restart_s for part in work.segments),
        "gpu_s": job.gpus * fsum(part.end_s - part.start_s for part in work.segments),
        "preemptions": work.preemptions,
        "deadline_s": None if late is None else job.deadline_s,
        "deadline_met": None if late is None else not late,
    }
    bill = {"cost_usd": one.job_nano_usd[place] / NANO_PER_USD} if one.job_nano_usd else {}
    return known | times | spent | bill
