"""What a queue on one cluster at one sweep point comes to once every id is a sourced value."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import MIDNIGHT
from sim.jobs.job import Job
from sim.jobs.policies import QueuePolicy
from sim.scenario.job.bind import Hardware
from sim.scenario.job.facts import hardware_facts, training_facts
from sim.scenario.job.pool import PoolOfJobs, pool_of_jobs
from sim.scenario.job.training import TrainingRun, training_run
from sim.scenario.queue.schema import QueuedJob, QueueFleet, QueueScenario, Serving, TracedJobs
from sim.scenario.resolving.resolved import Fact
from sim.units import SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """A queue on one cluster."""

    fleet: str
    axes: dict[str, Any]
    """Sweep axis -> value."""
    pool: PoolOfJobs
    jobs: tuple[Job, ...]
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
    hardware, gpus = Hardware.of(fleet.pools[0], catalog), fleet.pools[0].gpus or 0
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


def _infeasible(jobs: tuple[Job, ...], refusals: list[str], gpus: int, left: int) -> str:
    """*left*: the most of the *gpus* that jobs ever have."""
    least = min(job.gpus for job in jobs)
    if not refusals and least > left:
        beside = f", of which the service leaves at most {left}" if left < gpus else ""
        return f"every job needs at least {least} GPUs, the cluster has {gpus}{beside}"
    return "; ".join(refusals)


def _jobs(one: QueuedJob, place: int, runs: dict[int, TrainingRun]) -> Iterator[Job]:
    name = _name(one, place)
    job = _given(one, name)
    if (run := runs.get(place)) is not None:
        job = _trained(job, run)
    for copy in range(one.count):
        yield job if one.count == 1 else replace(job, name=f"{name}-{copy + 1}")


def _given(one: QueuedJob, name: str) -> Job:
    hour = SECONDS_PER_HOUR
    return Job(
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


def _trained(job: Job, run: TrainingRun) -> Job:
    """*job* with what its training run says: GPUs, expected time, saves, restart, load on the GPUs."""
    time, stops = run.makespan, run.stops
    computing = (time.training_s + time.lost_s) / time.total_s if time.total_s < inf else 0.0
    found = replace(job, gpus=run.gpus, duration_s=time.total_s, load=run.load * computing)
    if run.spec.checkpoint is None:
        return found
    return replace(found, checkpoint_s=time.interval_s + stops.save_s, restart_s=stops.restart_s)
