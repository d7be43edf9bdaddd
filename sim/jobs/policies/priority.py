"""By priority; a job of a higher one takes the GPUs of lower ones."""

from typing import Literal

from sim.jobs.job import Job, Work
from sim.jobs.policies.protocol import Decision, View
from sim.spec import Spec


class Priority(Spec):
    """The most urgent job waits for GPUs, and preempts running jobs that are less urgent where that makes room for it.

    Preempted jobs go on from their last checkpoint when they get GPUs again.
    """

    policy: Literal["priority"]
    preempt: bool = True
    """Whether running jobs may be stopped."""

    def order(self, job: Job) -> tuple[int, float]:
        """Lower numbers first, then by arrival."""
        return job.priority, job.arrived_s

    def kept(self, work: Work) -> tuple[int, float]:
        """The least urgent is preempted first; of those the latest started, which lose least as a rule."""
        return -work.job.priority, -work.running_since_s

    def decide(self, view: View) -> Decision:
        """Starts jobs from the front as long as they fit, or as others can make room."""
        found, free = Decision(), view.free
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

    def _victims(self, work: Work, free: int, view: View, found: Decision) -> list[Work]:
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
