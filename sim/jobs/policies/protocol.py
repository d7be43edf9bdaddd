"""What a policy sees and decides."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sim.jobs.job import Job, Work


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at a moment at which something has changed."""

    now_s: float
    free: int
    """GPUs."""
    waiting: Sequence[Work]
    """In the order of the policy."""
    running: Sequence[Work]
    """In the order of their starts."""
    coming: Sequence[tuple[float, int]] = ()
    """(when, GPUs) that a service beside the jobs takes later, in order of time; negative: gives back."""


@dataclass(slots=True)
class Decision:
    """Jobs to stop, then jobs to start."""

    start: list[Work] = field(default_factory=list)
    preempt: list[Work] = field(default_factory=list)


class Policy(Protocol):
    """Who gets the free GPUs."""

    def order(self, job: Job) -> Any:
        """Key by which waiting jobs are sorted; equal keys stay in the order of arrival."""

    def kept(self, work: Work) -> Any:
        """Key by which running jobs keep their GPUs where a service takes some: the lowest is preempted first."""

    def decide(self, view: View) -> Decision:
        """What to do now. Started jobs must fit what is free once preempted ones have stopped."""
