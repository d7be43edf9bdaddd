"""First in, first out: nobody overtakes the job that waits longest."""

from typing import Literal

from sim.jobs.job import Job, Work
from sim.jobs.policies.protocol import Decision, View
from sim.spec import Spec


class Fifo(Spec):
    """The queue waits behind its first job until all GPUs of that job are free."""

    policy: Literal["fifo"]

    def order(self, job: Job) -> float:
        """By arrival."""
        return job.arrived_s

    def kept(self, work: Work) -> float:
        """The latest started is preempted first: as a rule it loses least."""
        return -work.running_since_s

    def decide(self, view: View) -> Decision:
        """Starts jobs from the front as long as they fit."""
        found, free = Decision(), view.free
        for work in view.waiting:
            if work.job.gpus > free:
                break
            found.start.append(work)
            free -= work.job.gpus
        return found
