"""Who gets the free GPUs of a cluster. A new policy: its class here and its name in `QueuePolicy`.

First in, first out; EASY backfilling, in which small jobs fill the gaps in front of a large one (Lifka, "The ANL/IBM
SP scheduling system", JSSPP 1995); and by priority, in which a job takes the GPUs of less urgent ones.
"""

from collections.abc import Sequence
from heapq import merge
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Annotated, Literal

from pydantic import Field

from sim.jobs.cluster import ClusterJob, ClusterView, JobState, SchedulingDecision, SchedulingPolicy
from sim.spec import Count, Spec


class Fifo(Spec):
    """The queue waits behind its first job until all GPUs of that job are free."""

    policy: Literal["fifo"]

    def order(self, job: ClusterJob) -> float:
        """By arrival."""
        return job.arrived_s

    def kept(self, work: JobState) -> float:
        """The latest started is preempted first: as a rule it loses least."""
        return -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Starts jobs from the front as long as they fit."""
        found, free = SchedulingDecision(), view.free
        for work in view.waiting:
            if work.job.gpus > free:
                break
            found.start.append(work)
            free -= work.job.gpus
        return found


class Backfill(Spec):
    """The first job has a reservation at the time at which enough GPUs will be free; others may start before if they
    do not delay it, by their users' estimates.
    """

    policy: Literal["backfill"]
    depth: Count = 500
    """Jobs behind the first that are tried."""

    def order(self, job: ClusterJob) -> float:
        """By arrival."""
        return job.arrived_s

    def kept(self, work: JobState) -> float:
        """The latest started is preempted first: as a rule it loses least."""
        return -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Starts jobs from the front as long as they fit, then those that fit around the first one that does not."""
        found, free = SchedulingDecision(), view.free
        for place, work in enumerate(view.waiting):
            if work.job.gpus > free:
                self._around(work, view.waiting[place + 1 : place + 1 + self.depth], free, view, found)
                break
            found.start.append(work)
            free -= work.job.gpus
        return found

    def _around(
        self, first: JobState, others: Sequence[JobState], free: int, view: ClusterView, found: SchedulingDecision
    ) -> None:
        """Adds to *found* those of *others* that leave the reservation of *first* as it is."""
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
    """(when *first* can start at the latest, GPUs that are left over then); never: (inf, 0).

    A service that takes GPUs before then preempts the latest started jobs where too few are free.
    """
    ends = [(max(view.now_s, work.planned_end_s), work.job.gpus) for work in view.running]
    ends += [(view.now_s + work.job.planned_s - work.done_s + _restart_s(work), work.job.gpus) for work in started]
    latest, preempted = list(range(len(ends))), set()
    events = sorted((*end, place) for place, end in enumerate(ends))
    taken = ((at_s, -gpus, -1) for at_s, gpus in view.coming)  # a service's change is counted before the ends
    for at_s, together in groupby(merge(taken, events, key=itemgetter(0)), key=itemgetter(0)):
        for _, gpus, place in together:
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
    """The most urgent job waits for GPUs, and preempts running jobs that are less urgent where that makes room for it.

    Preempted jobs go on from their last checkpoint when they get GPUs again.
    """

    policy: Literal["priority"]
    preempt: bool = True
    """Whether running jobs may be stopped."""

    def order(self, job: ClusterJob) -> tuple[int, float]:
        """Lower numbers first, then by arrival."""
        return job.priority, job.arrived_s

    def kept(self, work: JobState) -> tuple[int, float]:
        """The least urgent is preempted first; of those the latest started, which lose least as a rule."""
        return -work.job.priority, -work.running_since_s

    def decide(self, view: ClusterView) -> SchedulingDecision:
        """Starts jobs from the front as long as they fit, or as others can make room."""
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
        """Running jobs that make room for *work*, as few as do; none where they cannot."""
        lower = [one for one in view.running if one.job.priority > work.job.priority] if self.preempt else []
        if found.preempt:
            lower = [one for one in lower if one not in found.preempt]
        if free + sum(one.job.gpus for one in lower) < work.job.gpus:
            return []
        lower.sort(key=self.kept)
        count = 0
        while free < work.job.gpus:
            free += lower[count].job.gpus
            count += 1
        return lower[:count]


QueuePolicy = Annotated[Fifo | Backfill | Priority, Field(discriminator="policy")]

__all__ = ["Backfill", "ClusterView", "Fifo", "Priority", "QueuePolicy", "SchedulingDecision", "SchedulingPolicy"]
