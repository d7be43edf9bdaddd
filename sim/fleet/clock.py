"""The clock of a fleet: SimPy's events, and wake-up calls between them in one order."""

from heapq import heappop, heappush
from math import inf
from typing import Protocol

import simpy
from simpy.events import NORMAL


class TimedWakeup(Protocol):
    """Object that the clock can wake."""

    def wake(self, number: int) -> None:
        """Act on the wake-up call with this *number*, which is due."""
        ...


class FleetClock:
    """Simulated time of a fleet, with the events of a SimPy environment and wake-up calls.

    A wake-up call is an entry of SimPy's event queue without an event object: it has one callback, cannot fail and
    cannot be waited for. It keeps its place in the order of events. Replicas ask for several per request.
    """

    # not a subclass of `simpy.Environment`: compiled code reads its own fields directly, inherited ones by name
    __slots__ = ("_events", "_numbers", "now", "pending")

    def __init__(self) -> None:
        self._events = simpy.Environment()
        self._numbers = self._events._eid
        self.now = 0.0
        """Simulated time [s]."""
        self.pending: list[tuple[float, int, int, simpy.Event | TimedWakeup]] = self._events._queue  # type: ignore[assignment]
        """Heap of events and wake-up calls to come, each with its time first."""

    def timeout(self, delay_s: float) -> simpy.Event:
        """Schedule an event after *delay_s*. Return it, for its callbacks."""
        self._events._now = self.now
        return self._events.timeout(delay_s)

    def call(self, sleeper: TimedWakeup, at_s: float) -> int:
        """Schedule a wake-up call of *sleeper* at *at_s*, or now if that is over. Return the number of the call."""
        number = next(self._numbers)
        now = self.now
        heappush(self.pending, (at_s if at_s > now else now, NORMAL, number, sleeper))
        return number

    def step(self) -> None:
        """Process the next event or wake-up call."""
        self.now, _, number, due = heappop(self.pending)
        if not isinstance(due, simpy.Event):
            due.wake(number)
            return
        # as in SimPy's step, without the handling of failed events
        callbacks, due.callbacks = due.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(due)

    def next_s(self) -> float:
        """Return the time of the next event or wake-up call [s]; inf if there is none."""
        return self.pending[0][0] if self.pending else inf

    def skip_to(self, at_s: float) -> None:
        """Advance to *at_s*, which is before the next event, without an event of its own."""
        self.now = at_s
