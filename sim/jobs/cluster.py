"""Discrete-event simulation of a cluster's job queue.

`simulate` runs jobs under a scheduling policy. Between events (arrivals, ends, changes of a service) nothing changes.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, isnan, nan
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """Job submitted to the cluster. Times in seconds from the start."""

    name: str
    arrived_s: float
    gpus: int
    """Number of GPUs, all allocated at once (gang scheduling)."""
    duration_s: float
    """Duration without preemptions on these GPUs [s]."""
    priority: int = 0
    """Priority; lower values first, as in vLLM."""
    deadline_s: float = inf
    walltime_s: float = 0.0
    """User's estimate of the duration, used by backfilling [s]; 0: the duration itself."""
    checkpoint_s: float = inf
    """Work between saves [s]; a preemption loses the work since the last save. inf: no saves."""
    restart_s: float = 0.0
    """Time after a preemption before work continues [s]."""
    load: float = 1.0
    """Load on the job's GPUs, from 0 (idle power) to 1 (power limit)."""

    @property
    def planned_s(self) -> float:
        """Duration known to the scheduler [s]."""
        return self.walltime_s or self.duration_s


@dataclass(slots=True)
class JobSegment:
    """Uninterrupted run of a job: a restart, then work that is kept, then work that is lost."""

    start_s: float
    end_s: float
    restart_s: float
    lost_s: float

    @property
    def useful_s(self) -> float:
        """Time of work that is kept [s]."""
        return self.end_s - self.start_s - self.restart_s - self.lost_s


@dataclass(slots=True, eq=False)
class JobState:
    """State of a job in the queue or on GPUs."""

    job: ClusterJob
    done_s: float = 0.0
    """Completed work that a preemption cannot undo [s]."""
    running_since_s: float = nan
    restarting_s: float = 0.0
    """Restart time at the beginning of the current run [s]."""
    segments: list[JobSegment] = field(default_factory=list)
    finished_s: float = nan
    preemptions: int = 0
    """Number of preemptions so far."""

    @property
    def ends_s(self) -> float:
        """Time at which the current run completes the job without preemption [s]."""
        return self.running_since_s + self.restarting_s + self.job.duration_s - self.done_s

    @property
    def planned_end_s(self) -> float:
        """Time at which a scheduler expects the current run to complete the job [s]."""
        left_s = self.job.planned_s - self.done_s
        return self.running_since_s + self.restarting_s + left_s

    def start(self, now_s: float) -> None:
        """Start a run at *now_s*, with a restart if the job ran before."""
        self.running_since_s = now_s
        self.restarting_s = self.job.restart_s if self.segments else 0.0

    def stop(self, now_s: float) -> None:
        """Preempt the run at *now_s*; only saved work is kept."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        reached_s = self.done_s + ran_s - restart_s
        every_s = self.job.checkpoint_s
        saved_s = max(self.done_s, reached_s // every_s * every_s if every_s < inf else 0.0)
        self.segments.append(JobSegment(self.running_since_s, now_s, restart_s, reached_s - saved_s))
        self.done_s, self.running_since_s = saved_s, nan

    def stop_at_horizon(self, now_s: float) -> None:
        """End the run at the horizon *now_s*; all work is kept, saved or not."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        self.segments.append(JobSegment(self.running_since_s, now_s, restart_s, 0.0))
        self.done_s, self.running_since_s = self.done_s + ran_s - restart_s, nan

    def finish(self, now_s: float) -> None:
        """Complete the job at *now_s*."""
        self.segments.append(JobSegment(self.running_since_s, now_s, self.restarting_s, 0.0))
        self.done_s, self.finished_s = self.job.duration_s, now_s

    @property
    def started_s(self) -> float:
        """Time of the first start [s]; nan if the job never started."""
        return self.segments[0].start_s if self.segments else self.running_since_s


@dataclass(frozen=True, slots=True)
class ClusterView:
    """State of the cluster that a policy decides on, after an event."""

    now_s: float
    free: int
    """Number of free GPUs."""
    waiting: Sequence[JobState]
    """Waiting jobs in the order of the policy."""
    running: Sequence[JobState]
    """Running jobs in the order of their starts."""
    service_changes: Sequence[tuple[float, int]] = ()
    """Future changes (time [s], additional GPUs) of a service on the cluster, in order of time.

    The number is negative if the service releases GPUs.
    """


@dataclass(slots=True)
class SchedulingDecision:
    """Jobs to preempt, and jobs to start after that."""

    start: list[JobState] = field(default_factory=list)
    preempt: list[JobState] = field(default_factory=list)


class SchedulingPolicy(Protocol):
    """Interface of policies that allocate free GPUs to jobs."""

    def order(self, job: ClusterJob) -> Any:
        """Return the sort key of waiting jobs; jobs with equal keys keep the order of arrival."""

    def preemption_key(self, work: JobState) -> Any:
        """Return the sort key by which a service preempts running jobs, the lowest first."""

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Return the jobs to preempt and to start now.

        Started jobs must fit the GPUs that are free after the preemptions.
        """


@dataclass(frozen=True, slots=True)
class JobSchedule:
    """Final states of all jobs of a simulation."""

    job_states: tuple[JobState, ...]
    """Job states in the order of arrival; jobs larger than the cluster have no segments."""
    end_s: float
    """Time of the last completion, or of the horizon [s]."""


def simulate(
    jobs: Sequence[ClusterJob],
    gpus: int,
    policy: SchedulingPolicy,
    until_s: float = inf,
    serving_gpus: Sequence[tuple[float, int]] = (),
) -> JobSchedule:
    """Simulate *jobs* on a cluster.

    Parameters
    ----------
    jobs
        Jobs in any order.
    gpus
        Number of GPUs of the cluster.
    policy
        Scheduling policy.
    until_s
        Horizon [s]; jobs that run or wait then remain unfinished.
    serving_gpus
        GPUs of a service that shares the cluster, as (time [s], number from then on) in order of time, the first at 0.
        The service uses free GPUs first, then those of running jobs in the order of the policy's key.

    Notes
    -----
    At equal times, jobs end first, then the service changes, then jobs arrive. A job that needs more GPUs than the
    service ever leaves is never started.

    """
    return _Cluster(gpus, policy, serving_gpus).run(sorted(jobs, key=lambda job: job.arrived_s), until_s)


class _Queue(Sequence[JobState]):
    """Waiting jobs in the order of a policy."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._policy = policy
        self._entries: list[tuple[Any, int, JobState]] = []

    def add(self, work: JobState, index: int) -> None:
        insort(self._entries, (self._policy.order(work.job), index, work))

    def remove(self, work: JobState, index: int) -> None:
        del self._entries[bisect_left(self._entries, (self._policy.order(work.job), index))]

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [work for *_, work in self._entries[place]]
        return self._entries[place][2]


class _Cluster:
    def __init__(self, gpus: int, policy: SchedulingPolicy, serving_gpus: Sequence[tuple[float, int]]) -> None:
        self._free = gpus
        self._largest = gpus - min((count for _, count in serving_gpus), default=0)
        """Largest number of GPUs that jobs ever have; larger jobs never run."""
        before = [0, *(count for _, count in serving_gpus)]
        self._service_changes = [
            (at_s, count - last) for (at_s, count), last in zip(serving_gpus, before, strict=False)
        ]
        """Future changes (time [s], additional GPUs) of the service."""
        self._policy = policy
        self._waiting = _Queue(policy)
        self._running: dict[int, JobState] = {}
        self._ends: list[tuple[float, int, float]] = []
        """Heap of (end [s], index, start of the run [s]); entries of preempted runs are skipped."""
        self._index: dict[int, int] = {}

    def run(self, jobs: Sequence[ClusterJob], until_s: float) -> JobSchedule:
        job_states = [JobState(job) for job in jobs]
        self._index = {id(work): index for index, work in enumerate(job_states)}
        place, now_s = 0, 0.0
        while place < len(job_states) or self._ends or (self._waiting and self._service_changes):
            next_s = min(
                self._ends[0][0] if self._ends else inf, self._service_changes[0][0] if self._service_changes else inf
            )
            if place < len(job_states):
                next_s = min(next_s, job_states[place].job.arrived_s)
            if next_s >= until_s:
                break
            now_s = next_s
            changed = self._finish(now_s, job_states)
            changed |= self._serve(now_s)
            while place < len(job_states) and job_states[place].job.arrived_s <= now_s:
                changed |= self._queue(job_states[place])
                place += 1
            if changed and self._waiting:
                self._decide(now_s)
        end_s = until_s if until_s < inf else now_s
        for work in self._running.values():
            work.stop_at_horizon(end_s)
        return JobSchedule(tuple(job_states), end_s)

    def _finish(self, now_s: float, job_states: Sequence[JobState]) -> bool:
        changed = False
        while self._ends and self._ends[0][0] <= now_s:
            _, index, began_s = heappop(self._ends)
            work = job_states[index]
            if index in self._running and work.running_since_s == began_s:
                work.finish(now_s)
                del self._running[index]
                self._free += work.job.gpus
                changed = True
        return changed

    def _serve(self, now_s: float) -> bool:
        """Apply the changes of the service up to *now_s*. Return whether there were any."""
        changed = False
        while self._service_changes and self._service_changes[0][0] <= now_s:
            self._free -= self._service_changes.pop(0)[1]
            changed = True
        if self._free < 0:
            # among jobs that started together, those further back in the queue are preempted first
            running = list(self._running.values())[::-1]
            for work in sorted(running, key=self._policy.preemption_key):
                self._preempt(work, now_s)
                if self._free >= 0:
                    break
        return changed

    def _preempt(self, work: JobState, now_s: float) -> None:
        del self._running[self._index[id(work)]]
        self._free += work.job.gpus
        work.stop(now_s)
        work.preemptions += 1
        self._queue(work)

    def _queue(self, work: JobState) -> bool:
        """Add a job to the queue. Return False for a job that can never run."""
        if work.job.gpus > self._largest:
            return False
        self._waiting.add(work, self._index[id(work)])
        return True

    def _decide(self, now_s: float) -> None:
        running = tuple(self._running.values())
        found = self._policy.decide(ClusterView(now_s, self._free, self._waiting, running, self._service_changes))
        for work in found.start:
            self._waiting.remove(work, self._index[id(work)])
        for work in found.preempt:
            self._preempt(work, now_s)
        for work in found.start:
            work.start(now_s)
            index = self._index[id(work)]
            self._running[index] = work
            self._free -= work.job.gpus
            heappush(self._ends, (work.ends_s, index, now_s))
        assert self._free >= 0, "a policy has started more jobs than fit"


def is_finished(work: JobState) -> bool:
    """Return whether the job was completed."""
    return not isnan(work.finished_s)
