"""What the fleet asks of an engine, whatever its batching policy."""

from typing import Protocol

from sim.records import Batch, Leap, Meters, Request


class StepTime(Protocol):
    """The only thing that an engine knows about the hardware."""

    def leap(self, batch: Batch) -> Leap:
        """Duration of the next steps of *batch*."""
        ...


class ReplicaEngine(Protocol):
    """One replica. It keeps its own clock; the fleet calls `plan` after every change and `advance` when the planned
    end has come.

    Times are absolute [s]. At the end of a step all requests that arrived up to then are offered before the next step
    is formed.
    """

    def offer(self, request: Request, now: float) -> bool:
        """Takes *request*, which arrives at *now*; whether the planned end may have moved, so that `plan` must be
        asked.

        One that can never be served is marked `rejected` and not taken.
        """
        ...

    def plan(self, now: float) -> float:
        """When this replica next changes something that others see; inf if it is idle. Forms a step if none runs."""
        ...

    def advance(self) -> list[Request]:
        """Completes the step or leap that ends at the planned time; the requests that finished."""
        ...

    def meters(self, now: float) -> Meters:
        """Totals from the start to *now*, a step under way counted up to its last whole step, its time up to *now*."""
        ...

    def share_time(self, on: bool, now: float) -> None:
        """From *now* on, shares busy time out among requests (`Request.prefill_s` and so on), or stops doing so."""
        ...

    def waiting(self) -> int:
        """Requests that wait for admission."""
        ...
