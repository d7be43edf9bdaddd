"""A queue of jobs on every cluster at every point of its sweep: waiting, utilisation, energy, money.

The schedule; what the GPUs did between meter readings; the bill and each job's part of it; and the columns of
summary.csv and jobs.csv, declared once: name, unit, meaning, value.
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
from sim.scenario.sweep import at_point, axes_at, axis_labels, points
from sim.training.outcome import WorkColumn, WorkRow, energy_kwh, total_usd, wall_j
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR

PHASES = ("working", "lost", "restarting")
SERVING = "serving"
"""What GPUs do that a service beside the jobs holds."""
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ClusterTimeline:
    """GPU-seconds by what the GPUs did, between readings."""

    edges_s: Numbers
    busy: dict[str, Numbers]
    """Phase -> GPU-seconds between each two readings."""
    loaded: dict[str, Numbers]
    """Phase -> the same times the jobs' loads."""

    @classmethod
    def of(
        cls, works: Sequence[JobState], edges_s: Numbers, held: Sequence[tuple[float, int]] = (), held_load: float = 1.0
    ) -> "ClusterTimeline":
        """From the segments of all *works*, and *held*: (when, GPUs that a service at *held_load* has from then on)."""
        busy, loaded = {}, {}
        for phase in PHASES:
            spans = np.array(
                [(*_span(one, phase), work.job.gpus, work.job.load) for work in works for one in work.segments]
            ).reshape(-1, 4)
            load = spans[:, 3] if phase != "restarting" else np.zeros(len(spans))
            busy[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2], edges_s)
            loaded[phase] = between(spans[:, 0], spans[:, 1], spans[:, 2] * load, edges_s)
        since = np.array(held, dtype=float).reshape(-1, 2)
        until = np.append(since[1:, 0], max(edges_s[-1], since[-1, 0])) if len(since) else since[:, 0]
        busy[SERVING] = between(since[:, 0], until, since[:, 1], edges_s)
        loaded[SERVING] = held_load * busy[SERVING]
        return cls(edges_s, busy, loaded)

    def gpu_s(self, phase: str, place: int | None = None) -> float:
        """GPU-seconds of a phase, of all readings or of one."""
        return float(self.busy[phase].sum() if place is None else self.busy[phase][place])

    def load_s(self, phase: str, place: int) -> float:
        """GPU-seconds times load."""
        return float(self.loaded[phase][place])

    @property
    def used(self) -> Numbers:
        """Mean number of GPUs that have a job between each two readings."""
        return self._mean(np.sum([self.busy[phase] for phase in PHASES], axis=0))

    @property
    def serving(self) -> Numbers:
        """Mean number of GPUs that the service holds between each two readings."""
        return self._mean(self.busy[SERVING])

    def _mean(self, total: Numbers) -> Numbers:
        lengths = np.diff(self.edges_s)
        return np.asarray(np.divide(total, lengths, out=np.zeros_like(lengths), where=lengths > 0))


def _span(one: JobSegment, phase: str) -> tuple[float, float]:
    start_s, end_s = one.start_s, one.end_s
    works_s, lost_s = start_s + one.restart_s, end_s - one.lost_s
    return {"restarting": (start_s, works_s), "working": (works_s, lost_s), "lost": (lost_s, end_s)}[phase]


def between(starts: Numbers, ends: Numbers, weights: Numbers, edges: Numbers) -> Numbers:
    """Integral of the sum of *weights* that are on from *starts* to *ends*, between each two *edges*.

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
    schedule: JobSchedule
    timeline: ClusterTimeline
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
    timeline = ClusterTimeline.of(schedule.works, _edges(plan, end_s), held, load)
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


def _intervals(plan: QueuePlan, timeline: ClusterTimeline) -> list[Interval]:
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
    interval.prefill_energy_j = wall_j(power, seconds["restarting"], loads["restarting"])
    interval.recompute_energy_j = wall_j(power, seconds["lost"], loads["lost"])
    interval.idle_energy_j = wall_j(power, max(0.0, duration_s - sum(seconds.values())), 0.0)


def _shares(plan: QueuePlan, works: Sequence[JobState], ledger: Ledger) -> list[int]:
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


def _seconds(work: JobState, phase: str) -> float:
    field = {"working": "useful_s", "lost": "lost_s", "restarting": "restart_s"}[phase]
    return fsum(getattr(one, field) for one in work.segments)


def is_late(work: JobState) -> bool | None:
    """Whether it missed its deadline; None without one."""
    if work.job.deadline_s == inf:
        return None
    return not work.finished_s <= work.job.deadline_s


LEAST_S = 10.0
"""Shorter jobs count as so long in the bounded slowdown (Feitelson et al., JSSPP 1997)."""
Value = Callable[[QueueOutcome], Any]


QueueColumn = WorkColumn[QueueOutcome]
QueueRow = WorkRow[QueueOutcome]


def works_finished(one: QueueOutcome) -> list[JobState]:
    """Jobs that were done."""
    return [work for work in one.schedule.works if is_finished(work)]


def _count(status: str) -> Value:
    return lambda one: sum(status_of(work, one) == status for work in one.schedule.works)


def status_of(work: JobState, one: QueueOutcome) -> str:
    """finished, rejected (larger than what jobs ever have) or unfinished."""
    if is_finished(work):
        return "finished"
    return "rejected" if work.job.gpus > one.plan.most_gpus else "unfinished"


def waited_s(work: JobState) -> float:
    """From arrival to the first start; nan if it never started."""
    return work.started_s - work.job.arrived_s


def _waited_by_the_end_s(work: JobState, one: QueueOutcome) -> float:
    """With those that wait still: a cluster that starts fewer jobs must not look as if its jobs waited less."""
    waits = status_of(work, one) == "unfinished" and isnan(work.started_s)
    so_far_s = one.schedule.end_s - work.job.arrived_s
    return so_far_s if waits and so_far_s >= 0 else waited_s(work)


def _waiting(show: Callable[[Any], Any]) -> Value:
    def value(one: QueueOutcome) -> float | None:
        waits = [wait for work in one.schedule.works if not isnan(wait := _waited_by_the_end_s(work, one))]
        return float(show(np.array(waits))) / SECONDS_PER_HOUR if waits else None

    return value


def _slowdown(one: QueueOutcome) -> float | None:
    done = works_finished(one)
    ratios = [(work.finished_s - work.job.arrived_s) / max(LEAST_S, work.job.duration_s) for work in done]
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


def _left_usd(one: QueueOutcome) -> float | None:
    """The cost less the service's part."""
    return None if one.ledger is None else (one.ledger.total_nano_usd - one.serving_nano_usd) / NANO_PER_USD


def _idle_gpu_h(one: QueueOutcome) -> float:
    there = one.plan.pool.gpus * one.schedule.end_s / SECONDS_PER_HOUR
    return max(0.0, there - float(_gpu_h(*PHASES, SERVING)(one)))


def _usd_per_job(one: QueueOutcome) -> float | None:
    usd, done = _left_usd(one), len(works_finished(one))
    return None if usd is None or not done else usd / done


def _usd_per_useful_hour(one: QueueOutcome) -> float | None:
    usd, hours = _left_usd(one), _gpu_h("working")(one)
    return None if usd is None or not hours else usd / hours


def _kg(one: QueueOutcome) -> float | None:
    carbon = one.plan.pool.carbon
    if carbon is None or one.plan.pool.power is None:
        return None
    return carbon.operational_kg(one.intervals) + carbon.embodied_kg_per_h * one.schedule.end_s / SECONDS_PER_HOUR


COLUMNS: tuple[QueueColumn, ...] = (
    QueueColumn("status", "", "`ok`, or `infeasible` where nothing can run",
                lambda one: "infeasible" if one.plan.infeasible else "ok", always=True),
    QueueColumn("reason", "", "why it cannot", lambda one: one.plan.infeasible, always=True),
    QueueColumn("replications", "", "1: nothing is drawn", lambda one: 1, always=True),
    QueueColumn("policy", "", "who gets free GPUs", lambda one: one.plan.policy.policy, always=True),
    QueueColumn("gpus", "", "GPUs of the cluster", lambda one: one.plan.pool.gpus, always=True),
    QueueColumn("servers", "", "servers that they fill", lambda one: one.plan.pool.servers, always=True),
    QueueColumn("jobs", "", "jobs that arrived", lambda one: len(one.schedule.works)),
    QueueColumn("finished", "", "of them those that were done", _count("finished")),
    QueueColumn("rejected", "", "of them those that need more GPUs than they can ever have", _count("rejected")),
    QueueColumn("unfinished", "", "of them those that were not done at the horizon", _count("unfinished")),
    QueueColumn("makespan_h", "h", "from time 0 until the last job has finished, or the horizon",
                lambda one: one.schedule.end_s / SECONDS_PER_HOUR),
    QueueColumn("utilisation", "share", "GPU-hours that a job had over those that there were", _share(*PHASES)),
    QueueColumn("useful_share", "share", "GPU-hours of work that counts over those that there were", _share("working")),
    QueueColumn("utilisation_with_serving", "share", "with a service: GPU-hours of jobs and service over those that "
                "there were", _share(*PHASES, SERVING), with_service=True),
    QueueColumn("serving_gpu_h", "h", "GPU-hours of the service", _gpu_h(SERVING), with_service=True),
    QueueColumn("jobs_gpu_h", "h", "GPU-hours of jobs", _gpu_h(*PHASES), with_service=True),
    QueueColumn("idle_gpu_h", "h", "the other GPU-hours", _idle_gpu_h, with_service=True),
    QueueColumn("wait_h_mean", "h", "from arrival to the first start, or to the horizon",
                _waiting(np.mean)),
    QueueColumn("wait_h_p50", "h", "median of it", _waiting(lambda waits: np.percentile(waits, 50))),
    QueueColumn("wait_h_p95", "h", "95th percentile", _waiting(lambda waits: np.percentile(waits, 95))),
    QueueColumn("wait_h_p99", "h", "99th percentile", _waiting(lambda waits: np.percentile(waits, 99))),
    QueueColumn("slowdown_mean", "", "mean time from arrival to end over the duration (bounded slowdown)",
                _slowdown),
    QueueColumn("preemptions", "", "times that jobs gave their GPUs back",
                lambda one: sum(work.preemptions for work in one.schedule.works)),
    QueueColumn("lost_gpu_h", "h", "GPU-hours of work that preemptions undid", _gpu_h("lost")),
    QueueColumn("restarting_gpu_h", "h", "GPU-hours of restarts", _gpu_h("restarting")),
    QueueColumn("deadlines", "", "jobs with a deadline",
                lambda one: sum(is_late(work) is not None for work in one.schedule.works)),
    QueueColumn("deadlines_met", "", "of them those that were done in time",
                lambda one: sum(is_late(work) is False for work in one.schedule.works)),
    QueueColumn("energy_kwh", "kWh", "at the site's meter, cooling and idle GPUs included",
                lambda one: energy_kwh(one.plan.pool, one.intervals)),
    QueueColumn("kg_co2e", "kg", "greenhouse gases, where the scenario asks", _kg),
    QueueColumn("capex_usd", "USD", "to buy the machines; 0 when renting",
                lambda one: one.ledger.capex_usd if one.ledger else None, money=True),
    QueueColumn("cost_usd", "USD", "of the cluster from time 0 to the end",
                lambda one: total_usd(one.ledger), money=True),
    QueueColumn("cost_usd_per_h", "USD/h", "of it per hour", lambda one: one.ledger.usd_per_h if one.ledger else None,
                money=True),
    QueueColumn("idle_usd", "USD", "of it for GPUs that nobody had", _idle_usd, money=True),
    QueueColumn("serving_usd", "USD", "of it for the service",
                lambda one: one.serving_nano_usd / NANO_PER_USD if one.ledger else None, money=True, with_service=True),
    QueueColumn("jobs_usd", "USD", "of it for jobs",
                lambda one: sum(one.job_nano_usd) / NANO_PER_USD if one.ledger else None, money=True,
                with_service=True),
    QueueColumn("usd_per_job", "USD", "cost, less the service's, over finished jobs", _usd_per_job, money=True),
    QueueColumn("usd_per_useful_gpu_h", "USD", "cost, less the service's, over GPU-hours of work that counts",
                _usd_per_useful_hour, money=True),
)  # fmt: skip


def summary(found: Sequence[QueueOutcome]) -> list[QueueRow]:
    """Return one row per outcome, in order; columns of money only where something has a cost, of a service only beside
    one.
    """
    priced = any(one.plan.pool.costs is not None for one in found)
    serving = any(one.plan.serving is not None for one in found)
    columns = [one for one in COLUMNS if (priced or not one.money) and (serving or not one.with_service)]
    return [QueueRow.of(one, one.plan, columns) for one in found]


def job_cells(work: JobState, place: int, one: QueueOutcome) -> dict[str, Any]:
    """A row of jobs.csv: the job at *place* in the order of arrival."""
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
