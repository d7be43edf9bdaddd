"""A cluster and its queue in simulated time: from jobs, by what a policy decides, to when each of them runs."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, isnan, nan
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class ClusterJob:
    """What is asked of the cluster. Times in seconds from the start."""

    name: str
    arrived_s: float
    gpus: int
    """All at once, or the job does not start."""
    duration_s: float
    """Of undisturbed work on these GPUs."""
    priority: int = 0
    """Lower first, as in vLLM."""
    deadline_s: float = inf
    walltime_s: float = 0.0
    """The user's estimate, which backfilling plans with; 0: the duration itself."""
    checkpoint_s: float = inf
    """Work between saves; what was done since the last one is lost in a preemption. inf: nothing is saved."""
    restart_s: float = 0.0
    """Before work goes on after a preemption."""
    load: float = 1.0
    """How hard it works its GPUs, from 0 at idle power to 1 at the power limit."""

    @property
    def planned_s(self) -> float:
        """How long it will take, as far as a scheduler knows."""
        return self.walltime_s or self.duration_s


@dataclass(slots=True)
class JobSegment:
    """GPUs of one job from one start to the next stop: restart, then work that counts, then work that is lost."""

    start_s: float
    end_s: float
    restart_s: float
    lost_s: float

    @property
    def useful_s(self) -> float:
        """Of the time, work that counts."""
        return self.end_s - self.start_s - self.restart_s - self.lost_s


@dataclass(slots=True, eq=False)
class JobState:
    """A job in the queue or at work."""

    job: ClusterJob
    done_s: float = 0.0
    """Work that no preemption can take away."""
    running_since_s: float = nan
    restarting_s: float = 0.0
    """Of the present run, before work goes on."""
    segments: list[JobSegment] = field(default_factory=list)
    finished_s: float = nan
    preemptions: int = 0
    """Times that it had to give its GPUs back to others."""

    @property
    def ends_s(self) -> float:
        """When the present run finishes the job, if nobody stops it."""
        return self.running_since_s + self.restarting_s + self.job.duration_s - self.done_s

    @property
    def planned_end_s(self) -> float:
        """When a scheduler expects the present run to finish the job."""
        left_s = self.job.planned_s - self.done_s
        return self.running_since_s + self.restarting_s + left_s

    def start(self, now_s: float) -> None:
        """Its GPUs are there."""
        self.running_since_s = now_s
        self.restarting_s = self.job.restart_s if self.segments else 0.0

    def stop(self, now_s: float) -> None:
        """Its GPUs are taken away: what was saved stays done."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        reached_s = self.done_s + ran_s - restart_s
        every_s = self.job.checkpoint_s
        saved_s = max(self.done_s, reached_s // every_s * every_s if every_s < inf else 0.0)
        self.segments.append(JobSegment(self.running_since_s, now_s, restart_s, reached_s - saved_s))
        self.done_s, self.running_since_s = saved_s, nan

    def break_off(self, now_s: float) -> None:
        """The horizon is there: nobody takes its GPUs, so what it has done counts, saved or not."""
        ran_s = now_s - self.running_since_s
        restart_s = min(ran_s, self.restarting_s)
        self.segments.append(JobSegment(self.running_since_s, now_s, restart_s, 0.0))
        self.done_s, self.running_since_s = self.done_s + ran_s - restart_s, nan

    def finish(self, now_s: float) -> None:
        """All of it is done."""
        self.segments.append(JobSegment(self.running_since_s, now_s, self.restarting_s, 0.0))
        self.done_s, self.finished_s = self.job.duration_s, now_s

    @property
    def started_s(self) -> float:
        """When it first had its GPUs; nan if never."""
        return self.segments[0].start_s if self.segments else self.running_since_s


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at a moment at which something has changed."""

    now_s: float
    free: int
    """GPUs."""
    waiting: Sequence[JobState]
    """In the order of the policy."""
    running: Sequence[JobState]
    """In the order of their starts."""
    coming: Sequence[tuple[float, int]] = ()
    """(when, GPUs) that a service beside the jobs takes later, in order of time; negative: gives back."""


@dataclass(slots=True)
class SchedulingDecision:
    """Jobs to stop, then jobs to start."""

    start: list[JobState] = field(default_factory=list)
    preempt: list[JobState] = field(default_factory=list)


class SchedulingPolicy(Protocol):
    """Who gets the free GPUs."""

    def order(self, job: ClusterJob) -> Any:
        """Key by which waiting jobs are sorted; equal keys stay in the order of arrival."""

    def kept(self, work: JobState) -> Any:
        """Key by which running jobs keep their GPUs where a service takes some: the lowest is preempted first."""

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """What to do now. Started jobs must fit what is free once preempted ones have stopped."""


@dataclass(frozen=True, slots=True)
class JobSchedule:
    """What became of all jobs."""

    works: tuple[JobState, ...]
    """In the order of arrival; those that are larger than the cluster have no segments."""
    end_s: float
    """Of the last job, or of the window."""


def simulate(
    jobs: Sequence[ClusterJob],
    gpus: int,
    policy: SchedulingPolicy,
    until_s: float = inf,
    held: Sequence[tuple[float, int]] = (),
) -> JobSchedule:
    """Run *jobs* on *gpus* under *policy*; at *until_s* everything stops, and what has not finished is unfinished.

    *held*: (when, how many of the GPUs a service beside the jobs holds from then on), in order of time, the first at 0.
    It takes free GPUs first, then those of running jobs in the policy's order.
    Jobs that end give their GPUs back before the service takes its own, and both before jobs that arrive at the same
    moment are looked at. A job that asks for more GPUs than the service ever leaves is never started.
    """
    return _Cluster(gpus, policy, held).run(sorted(jobs, key=lambda job: job.arrived_s), until_s)


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
    def __init__(self, gpus: int, policy: SchedulingPolicy, held: Sequence[tuple[float, int]]) -> None:
        self._free = gpus
        self._largest = gpus - min((count for _, count in held), default=0)
        """Jobs that need more GPUs can never run."""
        before = [0, *(count for _, count in held)]
        self._coming = [(at_s, count - last) for (at_s, count), last in zip(held, before, strict=False)]
        """(when, GPUs) that the service takes and has not taken yet."""
        self._policy = policy
        self._waiting = _Queue(policy)
        self._running: dict[int, JobState] = {}
        self._ends: list[tuple[float, int, float]] = []
        """(when, index, start of that run): an entry of a run that was preempted is passed over."""
        self._index: dict[int, int] = {}

    def run(self, jobs: Sequence[ClusterJob], until_s: float) -> JobSchedule:
        works = [JobState(job) for job in jobs]
        self._index = {id(work): index for index, work in enumerate(works)}
        place, now_s = 0, 0.0
        while place < len(works) or self._ends or (self._waiting and self._coming):
            next_s = min(self._ends[0][0] if self._ends else inf, self._coming[0][0] if self._coming else inf)
            if place < len(works):
                next_s = min(next_s, works[place].job.arrived_s)
            if next_s >= until_s:
                break
            now_s = next_s
            changed = self._finish(now_s, works)
            changed |= self._serve(now_s)
            while place < len(works) and works[place].job.arrived_s <= now_s:
                changed |= self._queue(works[place])
                place += 1
            if changed and self._waiting:
                self._decide(now_s)
        end_s = until_s if until_s < inf else now_s
        for work in self._running.values():
            work.break_off(end_s)
        return JobSchedule(tuple(works), end_s)

    def _finish(self, now_s: float, works: Sequence[JobState]) -> bool:
        changed = False
        while self._ends and self._ends[0][0] <= now_s:
            _, index, began_s = heappop(self._ends)
            work = works[index]
            if index in self._running and work.running_since_s == began_s:
                work.finish(now_s)
                del self._running[index]
                self._free += work.job.gpus
                changed = True
        return changed

    def _serve(self, now_s: float) -> bool:
        """Gives the service what it holds from now on; whether that has changed."""
        changed = False
        while self._coming and self._coming[0][0] <= now_s:
            self._free -= self._coming.pop(0)[1]
            changed = True
        if self._free < 0:
            # of jobs that started together, those that were behind in the queue go first
            running = list(self._running.values())[::-1]
            for work in sorted(running, key=self._policy.kept):
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
        """Whether it can ever run."""
        if work.job.gpus > self._largest:
            return False
        self._waiting.add(work, self._index[id(work)])
        return True

    def _decide(self, now_s: float) -> None:
        running = tuple(self._running.values())
        found = self._policy.decide(ClusterView(now_s, self._free, self._waiting, running, self._coming))
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
        assert self._free >= 0, "a policy has started more than fits"


def is_finished(work: JobState) -> bool:
    """Whether all of it was done."""
    return not isnan(work.finished_s)
