"""What a queue on one cluster at one sweep point comes to once every id is a sourced value.

What keeps it from being simulated as it is written; the plan; and the plan as plain data, for resolved.yaml,
`gpufleet check` and the report.
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
from sim.jobs.traces import JobTraceError
from sim.scenario.reading.errors import InputError, Place, ValidationIssue
from sim.scenario.resolving.describe import charges_of, sources_of, values_of
from sim.scenario.resolving.resolved import Fact
from sim.training.bind import JobHardware
from sim.training.checks import hardware_issues, placement_issues, training_issues
from sim.training.plan import PoolOfJobs, described_pool, hardware_facts, pool_of_jobs, training_facts
from sim.training.run import TrainingRun, training_run
from sim.training.schema import TrainingJob
from sim.units import SECONDS_PER_HOUR


def queue_issues(scenario: QueueScenario, catalog: Catalog) -> Iterator[ValidationIssue | InputError]:
    """All that contradicts itself in a scenario whose ids are known."""
    for i, fleet in enumerate(scenario.fleets):
        place: Place = ("fleets", i, "pools", 0)
        pool = fleet.pools[0]
        if pool.gpus is None:
            yield ValidationIssue((*place, "gpus"), "is missing: the size of the cluster")
        yield from hardware_issues(pool, place, catalog)
        yield from _of_serving(scenario, fleet, i)
    if isinstance(scenario.jobs, TracedJobs):
        yield from _of_trace(scenario.jobs)
        return
    names = [one.name for one in scenario.jobs]
    for j, one in enumerate(scenario.jobs):
        if one.name is not None and one.name in names[:j]:
            yield ValidationIssue(("jobs", j, "name"), f"the name {one.name!r} stands twice: count makes several alike")
        yield from _of_job(one, ("jobs", j))
        if one.training is not None:
            yield from _of_training(scenario, one.training, one.gpus, ("jobs", j), catalog)


def _of_serving(scenario: QueueScenario, fleet: QueueFleet, place: int) -> Iterator[ValidationIssue]:
    serving, gpus = fleet.serving, fleet.pools[0].gpus
    if serving is None:
        return
    if gpus is not None and serving.most_gpus > gpus:
        text = f"holds up to {serving.most_gpus} GPUs ({serving.most} x {serving.gpus_per_replica})"
        yield ValidationIssue(("fleets", place, "serving", "replicas"), f"{text}, the cluster has {gpus}")
    if scenario.horizon_h is None:
        yield ValidationIssue(("horizon_h",), "is missing: the service goes on for ever")


def _of_trace(jobs: TracedJobs) -> Iterator[ValidationIssue | InputError]:
    try:
        jobs.trace.reading()
    except JobTraceError as error:
        for path, line, message in error.errors:
            if line == 0 and message.startswith("cannot be read"):
                yield ValidationIssue(("jobs", "trace", "path"), f"{path} {message}")
            else:
                yield InputError(path, line, "", message)


def _of_training(
    scenario: QueueScenario, job: TrainingJob, gpus: int | None, place: Place, catalog: Catalog
) -> Iterator[ValidationIssue]:
    """Of a training *job* whose entry stands at *place*, on every cluster."""
    at = (*place, "training")
    yield from training_issues(job, at, catalog)
    for i, fleet in enumerate(scenario.fleets):
        sized = fleet.pools[0].model_copy(update={"gpus": gpus})
        for one in placement_issues(job, at, sized, ("fleets", i, "pools", 0), catalog):
            yield ValidationIssue((*place, "gpus"), one.message) if one.place[-1] == "gpus" else one


def _of_job(one: QueuedJob, place: Place) -> Iterator[ValidationIssue]:
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
        yield ValidationIssue((*place, "deadline_h"), f"lies before the arrival at {one.arrival_h:g} h")


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue on one cluster."""

    fleet: str
    axes: dict[str, Any]
    """Sweep axis -> value."""
    pool: PoolOfJobs
    jobs: tuple[ClusterJob, ...]
    policy: QueuePolicy
    horizon_s: float
    """inf: until the last job has finished."""
    notes: tuple[str, ...]
    infeasible: str
    """Why it cannot run; empty if it can."""
    facts: tuple[Fact, ...]
    serving: Serving | None = None
    held: tuple[tuple[float, int], ...] = ()
    """(when, GPUs that the service holds from then on) until the horizon; empty without a service."""

    @property
    def most_gpus(self) -> int:
        """The most that jobs ever have: what the service leaves when it holds least."""
        return self.pool.gpus - min((gpus for _, gpus in self.held), default=0)


def resolve_queue(scenario: QueueScenario, fleet: QueueFleet, axes: dict[str, Any], catalog: Catalog) -> QueuePlan:
    """The plan of *scenario*'s queue on *fleet*. Raises CostError with every price that is missing, JobTraceError."""
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
    held = fleet.serving.held(pool.clock or MIDNIGHT, horizon_s) if fleet.serving is not None else ()
    left = gpus - min((count for _, count in held), default=0)
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
        held=held,
    )


def _name(one: QueuedJob, place: int) -> str:
    """What the outputs call it."""
    return one.name or str(place + 1)


def _trainings(jobs: tuple[QueuedJob, ...], fleet: QueueFleet, catalog: Catalog) -> Iterator[tuple[int, TrainingRun]]:
    """(place in the list, run) of the jobs that train."""
    for place, one in enumerate(jobs):
        if one.training is not None:
            pool = fleet.pools[0].model_copy(update={"gpus": one.gpus})
            yield place, training_run(one.training, pool, catalog)


def _infeasible(jobs: tuple[ClusterJob, ...], refusals: list[str], gpus: int, left: int) -> str:
    """*left*: the most of the *gpus* that jobs ever have."""
    least = min(job.gpus for job in jobs)
    if not refusals and least > left:
        beside = f", of which the service leaves at most {left}" if left < gpus else ""
        return f"every job needs at least {least} GPUs, the cluster has {gpus}{beside}"
    return "; ".join(refusals)


def _jobs(one: QueuedJob, place: int, runs: dict[int, TrainingRun]) -> Iterator[ClusterJob]:
    name = _name(one, place)
    job = _given(one, name)
    if (run := runs.get(place)) is not None:
        job = _trained(job, run)
    for copy in range(one.count):
        yield job if one.count == 1 else replace(job, name=f"{name}-{copy + 1}")


def _given(one: QueuedJob, name: str) -> ClusterJob:
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


def _trained(job: ClusterJob, run: TrainingRun) -> ClusterJob:
    """*job* with what its training run says: GPUs, expected time, saves, restart, load on the GPUs."""
    time, interruptions = run.makespan, run.interruptions
    computing = (time.training_s + time.lost_s) / time.total_s if time.total_s < inf else 0.0
    found = replace(job, gpus=run.gpus, duration_s=time.total_s, load=run.load * computing)
    if run.spec.checkpoint is None:
        return found
    return replace(found, checkpoint_s=time.interval_s + interruptions.save_s, restart_s=interruptions.restart_s)


def describe_queue(plan: QueuePlan, catalog: Catalog) -> dict[str, Any]:
    """Everything that the queue rests on: cluster, policy, jobs in short, every value with its origin, sources."""
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
    """The service beside the jobs, with its schedule as times of day."""
    if plan.serving is None:
        return {}
    replicas = {f"{at // 60:02}:{at % 60:02}": count for at, count in sorted(plan.serving.replicas.items())}
    return {"serving": plan.serving.model_dump() | {"replicas": replicas}}
