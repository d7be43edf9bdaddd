"""The clock of a fleet: SimPy's events, and wake-up calls between them in one order."""

from abc import ABC, abstractmethod
from heapq import heappop, heappush
from math import inf
from typing import Any

import simpy


class TimedWakeup(ABC):
    """Object that the clock can wake."""

    __slots__ = ()

    @abstractmethod
    def wake(self) -> None:
        """Act on the wake-up call, which is due."""


class _Callbacks(TimedWakeup):
    """SimPy event whose callbacks are due."""

    __slots__ = ("_event",)

    def __init__(self, event: simpy.Event) -> None:
        self._event = event

    def wake(self) -> None:
        """Call the callbacks of the event as SimPy's step does, without its handling of failed events."""
        callbacks, self._event.callbacks = self._event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(self._event)


class FleetClock:
    """Simulated time of a fleet, with the events of a SimPy environment and wake-up calls.

    A wake-up call is no event object: it has one callback, cannot fail and cannot be waited for. Replicas ask for
    several per request. What is due at one time happens in the order in which it was scheduled.
    """

    # not a subclass of `simpy.Environment`: compiled code reads its own fields directly, inherited ones by name
    __slots__ = ("_due", "_events", "now", "pending")

    def __init__(self) -> None:
        self._events = simpy.Environment()
        self.now = 0.0
        """Simulated time [s]."""
        # bare times: with 2,000 replicas, tuples would exceed the CPU's caches
        self.pending: list[Any] = []
        """Heap of the times of events and wake-up calls to come, and of those that were cancelled [s]."""
        self._due: dict[Any, Any] = {}
        """Time -> the object to wake, or a list of several in their order."""

    def timeout(self, delay_s: float) -> simpy.Event:
        """Schedule an event after *delay_s*. Return it, for its callbacks."""
        self._events._now = self.now
        event = self._events.timeout(delay_s)
        self.move_call(_Callbacks(event), inf, self._events._queue.pop()[0])
        return event

    def move_call(self, sleeper: TimedWakeup, planned_s: float, at_s: float) -> float:
        """Move the only wake-up call of *sleeper* from *planned_s* to *at_s*, or to now if that is over.

        Inf stands for no call. Return the time at which the call is planned now [s].
        """
        if planned_s < inf:
            self._cancel(sleeper, planned_s)
        if at_s == inf:
            return inf
        at_s = at_s if at_s > self.now else self.now
        key: Any = at_s  # one object for heap and dict
        there = self._due.setdefault(key, sleeper)
        if there is sleeper:
            heappush(self.pending, key)
        elif isinstance(there, list):
            there.append(sleeper)
        else:
            self._due[key] = [there, sleeper]
        return at_s

    def _cancel(self, sleeper: TimedWakeup, at_s: Any) -> None:
        there = self._due[at_s]
        if isinstance(there, list) and len(there) > 1:
            there.remove(sleeper)
        else:
            del self._due[at_s]

    def step(self) -> None:
        """Process the next event or wake-up call, or pass the time of one that was cancelled."""
        at_s = self.pending[0]
        self.now = at_s
        due = self._due.get(at_s)
        if isinstance(due, list) and len(due) > 1:
            sleeper: TimedWakeup = due.pop(0)
        else:
            heappop(self.pending)
            if due is None:
                return
            del self._due[at_s]
            sleeper = due[0] if isinstance(due, list) else due
        sleeper.wake()

    def next_s(self) -> float:
        """Return the time of the next event or wake-up call [s]; inf if there is none."""
        return float(self.pending[0]) if self.pending else inf

    def skip_to(self, at_s: float) -> None:
        """Advance to *at_s*, which is before the next event, without an event of its own."""
        self.now = at_s
