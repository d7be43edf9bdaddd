"""What a scenario with `jobs` may say: the jobs, the policy of their queue, and the clusters to compare."""

from typing import Annotated

from pydantic import Field

from sim.cost.clock import SiteClock
from sim.jobs.policies import Fifo, QueuePolicy
from sim.jobs.traces import JobTrace
from sim.scenario.experiment import Name, ReplicasByDay
from sim.spec import Count, Fraction, NonNegative, Positive, Spec
from sim.training.schema import JobFleet, TrainingJob, WorkScenario
from sim.units import HOURS_PER_YEAR

LONGEST_H = 10 * HOURS_PER_YEAR
"""Machines hardly last longer."""


class QueuedJob(Spec):
    """One job, or several alike. Times in hours from the start."""

    name: Name | None = None
    """In jobs.csv; left out: its number."""
    arrival_h: NonNegative = 0.0
    """When it enters the queue."""
    count: Annotated[Count, Field(le=100_000)] = 1
    """Jobs of this kind, all with this arrival."""
    gpus: Count | None = None
    """All at once, or it does not start; of a `training` job left out: as many as its `parallel` needs."""
    duration_h: Positive | None = None
    """Of undisturbed work on these GPUs; or `training`."""
    training: TrainingJob | None = None
    """A training run, whose duration, saves and load on the GPUs follow from the fleet's hardware."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Lower first, for the policy of that name."""
    deadline_h: Positive | None = None
    """When it should be done; the policies do not look at it."""
    walltime_h: Positive | None = None
    """The user's estimate of its duration, which backfilling plans with; left out: the duration itself."""
    checkpoint_h: Positive | None = None
    """Work between saves: what was done since the last one is lost in a preemption. Left out: everything is."""
    restart_h: NonNegative = 0.0
    """Before work goes on after a preemption."""
    load: Fraction = 1.0
    """How hard it works its GPUs, from 0 at idle power to 1 at the power limit."""


class TracedJobs(Spec):
    """Jobs from a file."""

    trace: JobTrace
    """Recorded jobs in one of several public formats."""


class Serving(ReplicasByDay):
    """What an inference service holds of a cluster's GPUs by the time of day; jobs use what it leaves."""

    gpus_per_replica: Count
    """From switching a replica on: its start counts."""
    load: Fraction = 1.0
    """How hard it works its GPUs, as a job's."""

    @property
    def most_gpus(self) -> int:
        """The most that it holds at any time."""
        return self.most * self.gpus_per_replica

    def held(self, clock: SiteClock, until_s: float) -> tuple[tuple[float, int], ...]:
        """(simulated time, GPUs that it holds from then on), the first at 0, up to *until_s*."""
        times = [0.0, *self.switches_s(clock, until_s)]
        return tuple((at_s, self.gpus_per_replica * self.wanted(clock.second_of_day(at_s))) for at_s in times)


class QueueFleet(JobFleet):
    """One cluster to compare."""

    queue: QueuePolicy | None = None
    """In place of the scenario's."""
    serving: Serving | None = None
    """An inference service beside the jobs, which takes its GPUs from them."""


class QueueScenario(WorkScenario):
    """Jobs, and clusters x sweep points that work them off."""

    jobs: Annotated[tuple[QueuedJob, ...], Field(min_length=1)] | TracedJobs
    """A list of jobs, or {trace: {format: ..., path: ...}}."""
    queue: QueuePolicy = Fifo(policy="fifo")
    """Who gets free GPUs."""
    horizon_h: Annotated[Positive, Field(le=LONGEST_H)] | None = None
    """When everything stops and the bill ends; left out: when the last job has finished, or after 10 years."""
    fleets: Annotated[tuple[QueueFleet, ...], Field(min_length=1)]
    """The clusters to compare; `gpus` of a pool is the size of the cluster."""
