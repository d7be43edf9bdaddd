"""A cluster and its queue in simulated time: from jobs to when each of them runs."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import inf, isnan
from typing import Any

from sim.jobs.job import Job, Work
from sim.jobs.policies.protocol import Policy, View


@dataclass(frozen=True, slots=True)
class Schedule:
    """What became of all jobs."""

    works: tuple[Work, ...]
    """In the order of arrival; those that are larger than the cluster have no segments."""
    end_s: float
    """Of the last job, or of the window."""


def simulate(
    jobs: Sequence[Job], gpus: int, policy: Policy, until_s: float = inf, held: Sequence[tuple[float, int]] = ()
) -> Schedule:
    """Run *jobs* on *gpus* under *policy*; at *until_s* everything stops, and what has not finished is unfinished.

    *held*: (when, how many of the GPUs a service beside the jobs holds from then on), in order of time, the first at 0.
    It takes free GPUs first, then those of running jobs in the policy's order.
    Jobs that end give their GPUs back before the service takes its own, and both before jobs that arrive at the same
    moment are looked at. A job that asks for more GPUs than the service ever leaves is never started.
    """
    return _Cluster(gpus, policy, held).run(sorted(jobs, key=lambda job: job.arrived_s), until_s)


class _Queue(Sequence[Work]):
    """Waiting jobs in the order of a policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._entries: list[tuple[Any, int, Work]] = []

    def add(self, work: Work, index: int) -> None:
        insort(self._entries, (self._policy.order(work.job), index, work))

    def remove(self, work: Work, index: int) -> None:
        del self._entries[bisect_left(self._entries, (self._policy.order(work.job), index))]

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [work for *_, work in self._entries[place]]
        return self._entries[place][2]


class _Cluster:
    def __init__(self, gpus: int, policy: Policy, held: Sequence[tuple[float, int]]) -> None:
        self._free = gpus
        self._largest = gpus - min((count for _, count in held), default=0)
        """Jobs that need more GPUs can never run."""
        before = [0, *(count for _, count in held)]
        self._coming = [(at_s, count - last) for (at_s, count), last in zip(held, before, strict=False)]
        """(when, GPUs) that the service takes and has not taken yet."""
        self._policy = policy
        self._waiting = _Queue(policy)
        self._running: dict[int, Work] = {}
        self._ends: list[tuple[float, int, float]] = []
        """(when, index, start of that run): an entry of a run that was preempted is passed over."""
        self._index: dict[int, int] = {}

    def run(self, jobs: Sequence[Job], until_s: float) -> Schedule:
        works = [Work(job) for job in jobs]
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
        return Schedule(tuple(works), end_s)

    def _finish(self, now_s: float, works: Sequence[Work]) -> bool:
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

    def _preempt(self, work: Work, now_s: float) -> None:
        del self._running[self._index[id(work)]]
        self._free += work.job.gpus
        work.stop(now_s)
        work.preemptions += 1
        self._queue(work)

    def _queue(self, work: Work) -> bool:
        """Whether it can ever run."""
        if work.job.gpus > self._largest:
            return False
        self._waiting.add(work, self._index[id(work)])
        return True

    def _decide(self, now_s: float) -> None:
        running = tuple(self._running.values())
        found = self._policy.decide(View(now_s, self._free, self._waiting, running, self._coming))
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


def is_finished(work: Work) -> bool:
    """Whether all of it was done."""
    return not isnan(work.finished_s)
