"""By priority; a job of a higher one takes the GPUs of lower ones."""

from typing import Literal

from sim.jobs.job import Job
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

    def decide(self, view: View) -> Decision:
        """Starts jobs from the front as long as they fit, or as others can make room."""
        found, free = Decision(), view.free
        # those that have just begun lose least, as a rule
        victims = sorted(view.running, key=lambda work: (-work.job.priority, -work.running_since_s))
        for work in view.waiting:
            room, taken = free, 0
            lower = [one for one in victims if one.job.priority > work.job.priority] if self.preempt else []
            while room < work.job.gpus and taken < len(lower):
                room += lower[taken].job.gpus
                taken += 1
            if room < work.job.gpus:
                break
            found.preempt += lower[:taken]
            victims = [one for one in victims if one not in lower[:taken]]
            found.start.append(work)
            free = room - work.job.gpus
        return found
