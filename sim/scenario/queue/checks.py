"""What keeps a queue from being simulated as it is written."""

from collections.abc import Iterator

from sim.catalogue.catalog import Catalog
from sim.jobs.traces import JobTraceError
from sim.scenario.job.checks import hardware_complaints, placed_complaints, training_complaints
from sim.scenario.job.schema import TrainingJob
from sim.scenario.queue.schema import QueuedJob, QueueFleet, QueueScenario, TracedJobs
from sim.scenario.reading.errors import Complaint, InputError, Place


def queue_complaints(scenario: QueueScenario, catalog: Catalog) -> Iterator[Complaint | InputError]:
    """All that contradicts itself in a scenario whose ids are known."""
    for i, fleet in enumerate(scenario.fleets):
        place: Place = ("fleets", i, "pools", 0)
        pool = fleet.pools[0]
        if pool.gpus is None:
            yield Complaint((*place, "gpus"), "is missing: the size of the cluster")
        yield from hardware_complaints(pool, place, catalog)
        yield from _of_serving(scenario, fleet, i)
    if isinstance(scenario.jobs, TracedJobs):
        yield from _of_trace(scenario.jobs)
        return
    names = [one.name for one in scenario.jobs]
    for j, one in enumerate(scenario.jobs):
        if one.name is not None and one.name in names[:j]:
            yield Complaint(("jobs", j, "name"), f"the name {one.name!r} stands twice: count makes several alike")
        yield from _of_job(one, ("jobs", j))
        if one.training is not None:
            yield from _of_training(scenario, one.training, one.gpus, ("jobs", j), catalog)


def _of_serving(scenario: QueueScenario, fleet: QueueFleet, place: int) -> Iterator[Complaint]:
    serving, gpus = fleet.serving, fleet.pools[0].gpus
    if serving is None:
        return
    if gpus is not None and serving.most_gpus > gpus:
        text = f"holds up to {serving.most_gpus} GPUs ({serving.most} x {serving.gpus_per_replica})"
        yield Complaint(("fleets", place, "serving", "replicas"), f"{text}, the cluster has {gpus}")
    if scenario.horizon_h is None:
        yield Complaint(("horizon_h",), "is missing: the service goes on for ever")


def _of_trace(jobs: TracedJobs) -> Iterator[Complaint | InputError]:
    try:
        jobs.trace.reading()
    except JobTraceError as error:
        for path, line, message in error.errors:
            if line == 0 and message.startswith("cannot be read"):
                yield Complaint(("jobs", "trace", "path"), f"{path} {message}")
            else:
                yield InputError(path, line, "", message)


def _of_training(
    scenario: QueueScenario, job: TrainingJob, gpus: int | None, place: Place, catalog: Catalog
) -> Iterator[Complaint]:
    """Of a training *job* whose entry stands at *place*, on every cluster."""
    at = (*place, "training")
    yield from training_complaints(job, at, catalog)
    for i, fleet in enumerate(scenario.fleets):
        sized = fleet.pools[0].model_copy(update={"gpus": gpus})
        for one in placed_complaints(job, at, sized, ("fleets", i, "pools", 0), catalog):
            yield Complaint((*place, "gpus"), one.message) if one.place[-1] == "gpus" else one


def _of_job(one: QueuedJob, place: Place) -> Iterator[Complaint]:
    if (one.duration_h is None) == (one.training is None):
        text = "needs duration_h or training" + ("" if one.duration_h is None else ", not both")
        yield Complaint(place, text)
    if one.training is None and one.gpus is None:
        yield Complaint((*place, "gpus"), "is missing: GPUs that the job needs at once")
    if one.training is not None:
        for key in ("checkpoint_h", "restart_h", "load"):
            if key in one.model_fields_set:
                yield Complaint((*place, key), "follows from training: remove it")
    if one.deadline_h is not None and one.deadline_h <= one.arrival_h:
        yield Complaint((*place, "deadline_h"), f"lies before the arrival at {one.arrival_h:g} h")
