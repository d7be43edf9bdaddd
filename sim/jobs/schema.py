"""Schema of a scenario with `jobs`: the jobs, the policy of their queue, and the clusters to compare."""

from typing import Annotated

from pydantic import Field

from sim.cost.clock import SiteClock
from sim.jobs.policies import Fifo, QueuePolicy
from sim.jobs.traces import JobTrace
from sim.scenario.experiment import Name
from sim.scenario.replica_schedule import ReplicasByDay
from sim.spec import Count, Fraction, NonNegative, Positive, Spec
from sim.training.schema import JobFleet, TrainingJob, WorkScenario
from sim.units import HOURS_PER_YEAR

LONGEST_H = 10 * HOURS_PER_YEAR
"""Longest simulated time [h]."""


class QueuedJob(Spec):
    """Job, or several equal jobs. Times in hours from the start."""

    name: Name | None = None
    """Name in jobs.csv. Default: the job's number."""
    arrival_h: NonNegative = 0.0
    """Arrival time [h]."""
    count: Annotated[Count, Field(le=100_000)] = 1
    """Number of equal jobs with this arrival time."""
    gpus: Count | None = None
    """Number of GPUs, all allocated at once. Default for a `training` job: the number of ranks in its `parallel`."""
    duration_h: Positive | None = None
    """Duration without preemptions on these GPUs [h]; alternative to `training`."""
    training: TrainingJob | None = None
    """Training run whose duration, saves and GPU load follow from the fleet's hardware."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Priority for the policy of that name; lower values first."""
    deadline_h: Positive | None = None
    """Deadline [h]; policies ignore it."""
    walltime_h: Positive | None = None
    """User's estimate of the duration, used by backfilling [h]. Default: the duration itself."""
    checkpoint_h: Positive | None = None
    """Work between saves [h]; a preemption loses the work since the last save. Default: no saves."""
    restart_h: NonNegative = 0.0
    """Time after a preemption before work continues [h]."""
    load: Fraction = 1.0
    """Load on the job's GPUs, from 0 (idle power) to 1 (power limit)."""


class TracedJobs(Spec):
    """Jobs recorded in a file."""

    trace: JobTrace
    """Recorded jobs in one of several public formats."""


class Serving(ReplicasByDay):
    """GPUs of an inference service on the cluster by time of day; jobs use the remaining ones."""

    gpus_per_replica: Count
    """GPUs per replica, occupied from the moment the replica is switched on."""
    load: Fraction = 1.0
    """Load on the service's GPUs, from 0 (idle power) to 1 (power limit)."""

    @property
    def most_gpus(self) -> int:
        """Largest number of GPUs that the service uses at any time."""
        return self.most * self.gpus_per_replica

    def gpu_schedule(self, clock: SiteClock, until_s: float) -> tuple[tuple[float, int], ...]:
        """Return the GPUs of the service up to *until_s*, as (time [s], number from then on), the first at 0."""
        times = [0.0, *self.switches_s(clock, until_s)]
        return tuple((at_s, self.gpus_per_replica * self.wanted(clock.second_of_day(at_s))) for at_s in times)


class QueueFleet(JobFleet):
    """Candidate cluster to compare."""

    queue: QueuePolicy | None = None
    """Queue policy that overrides the scenario's."""
    serving: Serving | None = None
    """Inference service that shares the cluster with the jobs."""


class QueueScenario(WorkScenario):
    """Scenario with jobs and the clusters and sweep points that run them."""

    jobs: Annotated[tuple[QueuedJob, ...], Field(min_length=1)] | TracedJobs
    """List of jobs, or {trace: {format: ..., path: ...}}."""
    queue: QueuePolicy = Fifo(policy="fifo")
    """Policy that allocates free GPUs."""
    horizon_h: Annotated[Positive, Field(le=LONGEST_H)] | None = None
    """End of the simulation and of the cost [h]. Default: when the last job has finished, or after 10 years."""
    fleets: Annotated[tuple[QueueFleet, ...], Field(min_length=1)]
    """Clusters to compare; `gpus` of a pool is the size of the cluster."""
