"""Columns of a queue's summary.csv and jobs.csv, declared once: name, unit, meaning, value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, isnan
from typing import Any

import numpy as np

from sim.jobs.cluster import is_finished
from sim.jobs.job import Work
from sim.study.work.queue.outcome import QueueOutcome, is_late
from sim.study.work.queue.timeline import PHASES, SERVING
from sim.units import JOULES_PER_KWH, NANO_PER_USD, SECONDS_PER_HOUR

LEAST_S = 10.0
"""Shorter jobs count as so long in the bounded slowdown (Feitelson et al., JSSPP 1997)."""
Value = Callable[[QueueOutcome], Any]


@dataclass(frozen=True, slots=True)
class QueueColumn:
    """One column of summary.csv."""

    name: str
    unit: str
    meaning: str
    value: Value
    always: bool = False
    """Known of what cannot run, too."""
    money: bool = False
    """Only where something has a cost."""
    beside: bool = False
    """Only where a service stands beside the jobs."""


def works_finished(one: QueueOutcome) -> list[Work]:
    """Jobs that were done."""
    return [work for work in one.schedule.works if is_finished(work)]


def _count(status: str) -> Value:
    return lambda one: sum(status_of(work, one) == status for work in one.schedule.works)


def status_of(work: Work, one: QueueOutcome) -> str:
    """finished, rejected (larger than what jobs ever have) or unfinished."""
    if is_finished(work):
        return "finished"
    return "rejected" if work.job.gpus > one.plan.most_gpus else "unfinished"


def waited_s(work: Work) -> float:
    """From arrival to the first start; nan if it never started."""
    return work.started_s - work.job.arrived_s


def _waited_by_the_end_s(work: Work, one: QueueOutcome) -> float:
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


def _usd(one: QueueOutcome) -> float | None:
    return None if one.ledger is None else one.ledger.total_nano_usd / NANO_PER_USD


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


def _energy_kwh(one: QueueOutcome) -> float | None:
    if one.plan.pool.power is None:
        return None
    return one.plan.pool.pue * fsum(part.server_energy_j for part in one.intervals) / JOULES_PER_KWH


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
                "there were", _share(*PHASES, SERVING), beside=True),
    QueueColumn("serving_gpu_h", "h", "GPU-hours of the service", _gpu_h(SERVING), beside=True),
    QueueColumn("jobs_gpu_h", "h", "GPU-hours of jobs", _gpu_h(*PHASES), beside=True),
    QueueColumn("idle_gpu_h", "h", "the other GPU-hours", _idle_gpu_h, beside=True),
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
    QueueColumn("energy_kwh", "kWh", "at the site's meter, cooling and idle GPUs included", _energy_kwh),
    QueueColumn("kg_co2e", "kg", "greenhouse gases, where the scenario asks", _kg),
    QueueColumn("capex_usd", "USD", "to buy the machines; 0 when renting",
                lambda one: one.ledger.capex_usd if one.ledger else None, money=True),
    QueueColumn("cost_usd", "USD", "of the cluster from time 0 to the end", _usd, money=True),
    QueueColumn("cost_usd_per_h", "USD/h", "of it per hour", lambda one: one.ledger.usd_per_h if one.ledger else None,
                money=True),
    QueueColumn("idle_usd", "USD", "of it for GPUs that nobody had", _idle_usd, money=True),
    QueueColumn("serving_usd", "USD", "of it for the service",
                lambda one: one.serving_nano_usd / NANO_PER_USD if one.ledger else None, money=True, beside=True),
    QueueColumn("jobs_usd", "USD", "of it for jobs",
                lambda one: sum(one.job_nano_usd) / NANO_PER_USD if one.ledger else None, money=True, beside=True),
    QueueColumn("usd_per_job", "USD", "cost, less the service's, over finished jobs", _usd_per_job, money=True),
    QueueColumn("usd_per_useful_gpu_h", "USD", "cost, less the service's, over GPU-hours of work that counts",
                _usd_per_useful_hour, money=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueRow:
    """An outcome with its row of summary.csv."""

    outcome: QueueOutcome
    cells: dict[str, Any]

    @property
    def fleet(self) -> str:
        """Name of the cluster."""
        return self.outcome.plan.fleet

    @property
    def ok(self) -> bool:
        """Whether anything can run."""
        return not self.outcome.plan.infeasible


def summary(found: Sequence[QueueOutcome]) -> list[QueueRow]:
    """One row per outcome, in order; columns of money only where something has a cost, of a service only beside one."""
    priced = any(one.plan.pool.costs is not None for one in found)
    beside = any(one.plan.serving is not None for one in found)
    rows = []
    for one in found:
        cells: dict[str, Any] = {"fleet": one.plan.fleet, **one.plan.axes}
        for column in COLUMNS:
            if column.name not in cells and (priced or not column.money) and (beside or not column.beside):
                known = column.always or not one.plan.infeasible
                cells[column.name] = column.value(one) if known else None
        rows.append(QueueRow(one, cells))
    return rows


def job_cells(work: Work, place: int, one: QueueOutcome) -> dict[str, Any]:
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
