"""Scheduling policies of a job queue.

First in, first out; EASY backfilling, in which small jobs fill the gaps in front of a large one (Lifka, "The ANL/IBM
SP scheduling system", JSSPP 1995); and priorities, in which a job preempts less urgent ones. To add a policy, define
its class here and add it to `QueuePolicy`.
"""

from collections.abc import Sequence
from heapq import merge
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Annotated, Literal

from sim.jobs.cluster import ClusterJob, ClusterView, JobState, SchedulingDecision, SchedulingPolicy
from sim.spec import Count, Spec, Tagged


class Fifo(Spec):
    """First in, first out: the queue waits behind its first job until all GPUs of that job are free."""

    policy: Literal["fifo"]

    def order(self, job: ClusterJob) -> float:
        """Return the arrival time."""
        return job.arrived_s

    def preemption_key(self, work: JobState) -> float:
        """Return the key that preempts the latest started job first, which usually loses least."""
        return -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Start jobs from the front of the queue while they fit."""
        found, free = SchedulingDecision(), view.free
        for work in view.waiting:
            if work.job.gpus > free:
                break
            found.start.append(work)
            free -= work.job.gpus
        return found


class Backfill(Spec):
    """EASY backfilling: jobs may overtake the first one if they do not delay it.

    The first job has a reservation at the time when enough GPUs will be free according to the users' estimates.
    """

    policy: Literal["backfill"]
    depth: Count = 500
    """Number of jobs behind the first that are considered."""

    def order(self, job: ClusterJob) -> float:
        """Return the arrival time."""
        return job.arrived_s

    def preemption_key(self, work: JobState) -> float:
        """Return the key that preempts the latest started job first, which usually loses least."""
        return -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Start jobs from the front while they fit, then those that do not delay the first that does not fit."""
        found, free = SchedulingDecision(), view.free
        for place, work in enumerate(view.waiting):
            if work.job.gpus > free:
                self._backfill(work, view.waiting[place + 1 : place + 1 + self.depth], free, view, found)
                break
            found.start.append(work)
            free -= work.job.gpus
        return found

    def _backfill(
        self, first: JobState, others: Sequence[JobState], free: int, view: ClusterView, found: SchedulingDecision
    ) -> None:
        """Add to *found* those of *others* that do not delay the reservation of *first*."""
        if not others or not free:
            return
        reserved_s, spare = _reservation(first, free, view, found.start)
        for work in others:
            gpus = work.job.gpus
            if gpus > free:
                continue
            in_time = view.now_s + work.job.planned_s - work.done_s + _restart_s(work) <= reserved_s
            if in_time or gpus <= spare:
                found.start.append(work)
                free -= gpus
                spare -= 0 if in_time else gpus
            if not free:
                return


def _reservation(first: JobState, free: int, view: ClusterView, started: Sequence[JobState]) -> tuple[float, int]:
    """Return the latest start of *first* and the number of GPUs left over at that time; (inf, 0) if it can never start.

    A service that needs more GPUs than are free before then preempts the latest started jobs.
    """
    ends = [(max(view.now_s, work.planned_end_s), work.job.gpus) for work in view.running]
    ends += [(view.now_s + work.job.planned_s - work.done_s + _restart_s(work), work.job.gpus) for work in started]
    latest, preempted = list(range(len(ends))), set()
    events = sorted((*end, place) for place, end in enumerate(ends))
    changes = (
        (at_s, -gpus, -1) for at_s, gpus in view.service_changes
    )  # a service's change is counted before the ends
    for at_s, simultaneous in groupby(merge(changes, events, key=itemgetter(0)), key=itemgetter(0)):
        for _, gpus, place in simultaneous:
            free += 0 if place in preempted else gpus
            if free >= first.job.gpus:
                return at_s, free - first.job.gpus
        while free < 0:
            place = latest.pop()
            if ends[place][0] > at_s and place not in preempted:
                preempted.add(place)
                free += ends[place][1]
        if free >= first.job.gpus:
            return at_s, free - first.job.gpus
    return inf, 0


def _restart_s(work: JobState) -> float:
    return work.job.restart_s if work.segments else 0.0


class Priority(Spec):
    """Priorities: the most urgent job waits for GPUs and preempts less urgent jobs if that frees enough.

    Preempted jobs continue from their last checkpoint when they get GPUs again.
    """

    policy: Literal["priority"]
    preempt: bool = True
    """True if running jobs may be preempted."""

    def order(self, job: ClusterJob) -> tuple[int, float]:
        """Return priority (lower first) and arrival time."""
        return job.priority, job.arrived_s

    def preemption_key(self, work: JobState) -> tuple[int, float]:
        """Return the key that preempts the least urgent job first, of equals the latest started."""
        return -work.job.priority, -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Start jobs from the front of the queue while they fit, or while preemptions free enough GPUs."""
        found, free = SchedulingDecision(), view.free
        for work in view.waiting:
            if work.job.gpus > free:
                taken = self._victims(work, free, view, found)
                if not taken:
                    break
                found.preempt += taken
                free += sum(one.job.gpus for one in taken)
            found.start.append(work)
            free -= work.job.gpus
        return found

    def _victims(self, work: JobState, free: int, view: ClusterView, found: SchedulingDecision) -> list[JobState]:
        """Return the fewest running jobs whose preemption makes *work* fit; none if that is impossible."""
        lower = [one for one in view.running if one.job.priority > work.job.priority] if self.preempt else []
        if found.preempt:
            lower = [one for one in lower if one not in found.preempt]
        if free + sum(one.job.gpus for one in lower) < work.job.gpus:
            return []
        lower.sort(key=self.preemption_key)
        count = 0
        while free < work.job.gpus:
            free += lower[count].job.gpus
            count += 1
        return lower[:count]


QueuePolicy = Annotated[Fifo | Backfill | Priority, Tagged("policy")]

__all__ = ["Backfill", "ClusterView", "Fifo", "Priority", "QueuePolicy", "SchedulingDecision", "SchedulingPolicy"]
