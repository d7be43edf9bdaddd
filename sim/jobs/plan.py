"""Resolved plan of a job queue on one cluster at one sweep point.

Contains the validation of the queue, the plan, and the plan as plain data for resolved.yaml, `gpufleet check` and the
report.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost.clock import MIDNIGHT
from sim.jobs.cluster import ClusterJob
from sim.jobs.policies import QueuePolicy
from sim.jobs.schema import QueuedJob, QueueFleet, QueueScenario, Serving, TracedJobs
from sim.message import Message, joined
from sim.scenario.reading.errors import InputError
from sim.scenario.resolving.describe import charges_of, sources_of, values_of
from sim.scenario.resolving.resolved import Fact
from sim.training.bind import JobHardware
from sim.training.checks import hardware_issues, placement_issues, training_issues
from sim.training.plan import PoolOfJobs, described_pool, hardware_facts, pool_of_jobs, training_facts
from sim.training.run import TrainingRun, training_run
from sim.training.schema import TrainingJob
from sim.units import SECONDS_PER_HOUR
from sim.validation import Place, ValidationIssue
from sim.workload.traces.trace_file import TraceError


def queue_issues(scenario: QueueScenario, catalog: Catalog) -> Iterator[ValidationIssue | InputError]:
    """Report contradictions in a scenario whose ids are known."""
    for i, fleet in enumerate(scenario.fleets):
        place: Place = ("fleets", i, "pools", 0)
        pool = fleet.pools[0]
        if pool.gpus is None:
            yield ValidationIssue((*place, "gpus"), "is missing: the size of the cluster")
        yield from hardware_issues(pool, place, catalog)
        yield from _serving_issues(scenario, fleet, i)
    if isinstance(scenario.jobs, TracedJobs):
        yield from _trace_issues(scenario.jobs)
        return
    names = [one.name for one in scenario.jobs]
    for j, one in enumerate(scenario.jobs):
        if one.name is not None and one.name in names[:j]:
            yield ValidationIssue(
                ("jobs", j, "name"),
                Message("the name {name!r} is given twice: count creates several equal jobs", one.name),
            )
        yield from _job_issues(one, ("jobs", j))
        if one.training is not None:
            yield from _training_issues(scenario, one.training, one.gpus, ("jobs", j), catalog)


def _serving_issues(scenario: QueueScenario, fleet: QueueFleet, place: int) -> Iterator[ValidationIssue]:
    serving, gpus = fleet.serving, fleet.pools[0].gpus
    if serving is None:
        return
    if gpus is not None and serving.most_gpus > gpus:
        text = Message(
            "holds up to {most_gpus} GPUs ({replicas} x {gpus_per_replica})",
            serving.most_gpus,
            serving.most,
            serving.gpus_per_replica,
        )
        yield ValidationIssue(
            ("fleets", place, "serving", "replicas"), Message("{text}, the cluster has {gpus}", text, gpus)
        )
    if scenario.horizon_h is None:
        yield ValidationIssue(("horizon_h",), "is missing: the service has no end")


def _trace_issues(jobs: TracedJobs) -> Iterator[ValidationIssue | InputError]:
    try:
        jobs.trace.reading()
    except TraceError as error:
        for path, line, message in error.errors:
            if line == 0 and message.startswith("cannot be read"):
                yield ValidationIssue(("jobs", "trace", "path"), f"{path} " + message)
            else:
                yield InputError(path, line, "", message)


def _training_issues(
    scenario: QueueScenario, job: TrainingJob, gpus: int | None, place: Place, catalog: Catalog
) -> Iterator[ValidationIssue]:
    """Check the training *job* of the queue entry at *place* on every cluster."""
    at = (*place, "training")
    yield from training_issues(job, at, catalog)
    for i, fleet in enumerate(scenario.fleets):
        sized = fleet.pools[0].model_copy(update={"gpus": gpus})
        for one in placement_issues(job, at, sized, ("fleets", i, "pools", 0), catalog):
            yield ValidationIssue((*place, "gpus"), one.message) if one.place[-1] == "gpus" else one


def _job_issues(one: QueuedJob, place: Place) -> Iterator[ValidationIssue]:
    if (one.duration_h is None) == (one.training is None):
        text = "needs duration_h or training" + ("" if one.duration_h is None else ", not both")
        yield ValidationIssue(place, text)
    if one.training is None and one.gpus is None:
        yield ValidationIssue((*place, "gpus"), "is missing: GPUs that the job needs at once")
    if one.training is not None:
        for key in ("checkpoint_h", "restart_h", "load"):
            if key in one.model_fields_set:
                yield ValidationIssue((*place, key), "follows from training: remove it")
    if one.deadline_h is not None and one.deadline_h <= one.arrival_h:
        yield ValidationIssue(
            (*place, "deadline_h"), Message("lies before the arrival at {arrival_h:g} h", one.arrival_h)
        )


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """Resolved job queue on one cluster at one sweep point."""

    fleet: str
    axes: dict[str, Any]
    """Values of the sweep axes, keyed by axis."""
    pool: PoolOfJobs
    jobs: tuple[ClusterJob, ...]
    policy: QueuePolicy
    horizon_s: float
    """End of the simulation [s]; inf: when the last job has finished."""
    notes: tuple[str, ...]
    infeasible: str
    """Reason why no job can run; empty if some can."""
    facts: tuple[Fact, ...]
    serving: Serving | None = None
    serving_gpus: tuple[tuple[float, int], ...] = ()
    """GPUs of the service until the horizon, as (time [s], number from then on); empty without a service."""

    @property
    def most_gpus(self) -> int:
        """Largest number of GPUs that the service leaves to jobs."""
        return self.pool.gpus - min((gpus for _, gpus in self.serving_gpus), default=0)


def resolve_queue(scenario: QueueScenario, fleet: QueueFleet, axes: dict[str, Any], catalog: Catalog) -> QueuePlan:
    """Resolve the queue of *scenario* on *fleet*.

    Raises
    ------
    CostError
        Prices are missing; the message lists all of them.
    TraceError
        The trace cannot be read.

    """
    hardware, gpus = JobHardware.of(fleet.pools[0], catalog), fleet.pools[0].gpus or 0
    pool, prefix = pool_of_jobs(scenario, fleet, hardware, gpus, catalog), f"fleets.{fleet.name}"
    runs: dict[int, TrainingRun] = {}
    refusals: list[str] = []
    if isinstance(scenario.jobs, TracedJobs):
        jobs, notes = scenario.jobs.trace.jobs(), scenario.jobs.trace.reading().notes
    else:
        runs, notes = dict(_trainings(scenario.jobs, fleet, catalog)), ()
        jobs = tuple(job for place, one in enumerate(scenario.jobs) for job in _jobs(one, place, runs))
        refusals = [f"job {_name(scenario.jobs[i], i)}: {run.infeasible}" for i, run in runs.items() if run.infeasible]
    facts = [*hardware_facts(prefix, hardware, pool, catalog)]
    for run in runs.values():
        facts += training_facts(prefix, run.bound, hardware, catalog)
    horizon_s = scenario.horizon_h * SECONDS_PER_HOUR if scenario.horizon_h else inf
    serving_gpus = fleet.serving.gpu_schedule(pool.clock or MIDNIGHT, horizon_s) if fleet.serving is not None else ()
    left = gpus - min((count for _, count in serving_gpus), default=0)
    return QueuePlan(
        fleet=fleet.name,
        axes=axes,
        pool=pool,
        jobs=jobs,
        policy=fleet.queue or scenario.queue,
        horizon_s=horizon_s,
        notes=notes,
        infeasible=_infeasible(jobs, refusals, gpus, left),
        facts=tuple(dict.fromkeys(facts)),
        serving=fleet.serving,
        serving_gpus=serving_gpus,
    )


def _name(one: QueuedJob, place: int) -> str:
    """Return the name of a queue entry in the outputs."""
    return one.name or str(place + 1)


def _trainings(jobs: tuple[QueuedJob, ...], fleet: QueueFleet, catalog: Catalog) -> Iterator[tuple[int, TrainingRun]]:
    """Yield (index, run) of the queue entries with a training job."""
    for place, one in enumerate(jobs):
        if one.training is not None:
            pool = fleet.pools[0].model_copy(update={"gpus": one.gpus})
            yield place, training_run(one.training, pool, catalog)


def _infeasible(jobs: tuple[ClusterJob, ...], refusals: list[str], gpus: int, left: int) -> str:
    """Return the reason why jobs cannot run on *gpus* GPUs, of which the service leaves at most *left*."""
    least = min(job.gpus for job in jobs)
    if not refusals and least > left:
        remark = Message(", of which the service leaves at most {gpus}", left) if left < gpus else ""
        return Message("every job needs at least {least} GPUs, the cluster has {gpus}{remark}", least, gpus, remark)
    return joined("; ", refusals)


def _jobs(one: QueuedJob, place: int, runs: dict[int, TrainingRun]) -> Iterator[ClusterJob]:
    name = _name(one, place)
    job = _cluster_job(one, name)
    if (run := runs.get(place)) is not None:
        job = _with_training_run(job, run)
    for copy in range(one.count):
        yield job if one.count == 1 else replace(job, name=f"{name}-{copy + 1}")


def _cluster_job(one: QueuedJob, name: str) -> ClusterJob:
    hour = SECONDS_PER_HOUR
    return ClusterJob(
        name=name,
        arrived_s=one.arrival_h * hour,
        gpus=one.gpus or 1,
        duration_s=(one.duration_h or 0.0) * hour,
        priority=one.priority,
        deadline_s=one.deadline_h * hour if one.deadline_h else inf,
        walltime_s=(one.walltime_h or 0.0) * hour,
        checkpoint_s=one.checkpoint_h * hour if one.checkpoint_h else inf,
        restart_s=one.restart_h * hour,
        load=one.load,
    )


def _with_training_run(job: ClusterJob, run: TrainingRun) -> ClusterJob:
    """Return *job* with GPUs, expected time, saves, restart time and load of its training run."""
    time, interruptions = run.makespan, run.interruptions
    computing = (time.training_s + time.lost_s) / time.total_s if time.total_s < inf else 0.0
    found = replace(job, gpus=run.gpus, duration_s=time.total_s, load=run.load * computing)
    if run.spec.checkpoint is None:
        return found
    return replace(found, checkpoint_s=time.interval_s + interruptions.save_s, restart_s=interruptions.restart_s)


def describe_queue(plan: QueuePlan, catalog: Catalog) -> dict[str, Any]:
    """Return the plan as plain data: cluster, policy, summary of the jobs, values with origin, and sources."""
    pool, jobs = plan.pool, plan.jobs
    values = values_of(plan.fleet, plan.facts, pool.costs, pool.carbon, catalog)
    return {
        "fleet": plan.fleet,
        "infeasible": plan.infeasible,
        "notes": [*plan.notes, *pool.notes],
        "policy": plan.policy.model_dump(),
        "pool": described_pool(pool),
        **_serving(plan),
        "jobs": {
            "number": len(jobs),
            "last_arrival_h": jobs[-1].arrived_s / SECONDS_PER_HOUR,
            "largest_gpus": max(job.gpus for job in jobs),
            "gpu_hours": sum(job.gpus * job.duration_s for job in jobs) / SECONDS_PER_HOUR,
        },
        "capex_usd": pool.costs.capex_usd if pool.costs else None,
        "charges": charges_of(pool.costs),
        "values": values,
        "sources": sources_of(values, catalog),
    }


def _serving(plan: QueuePlan) -> dict[str, Any]:
    """Return the service on the cluster, with its schedule as times of day."""
    if plan.serving is None:
        return {}
    replicas = {f"{at // 60:02}:{at % 60:02}": count for at, count in sorted(plan.serving.replicas.items())}
    return {"serving": plan.serving.model_dump() | {"replicas": replicas}}
