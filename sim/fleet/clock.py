"""The clock of a fleet: SimPy's events, and wake-up calls between them in one order."""

from abc import ABC, abstractmethod
from math import inf

import simpy


class TimedWakeup(ABC):
    """Object that the clock can wake; it has one wake-up call at most."""

    __slots__ = ("_order", "_place", "call_s")

    def __init__(self) -> None:
        self.call_s = inf
        """Time of the wake-up call; inf if there is none [s]."""
        self._order = 0
        """Number of the call in the order in which calls were scheduled."""
        self._place = -1
        """Place of the call in the clock's heap; -1 if there is none."""

    @abstractmethod
    def wake(self) -> None:
        """Act on the wake-up call, which is due."""


class _Callbacks(TimedWakeup):
    """SimPy event whose callbacks are due."""

    __slots__ = ("_event",)

    def __init__(self, event: simpy.Event) -> None:
        super().__init__()
        self._event = event

    def wake(self) -> None:
        """Call the callbacks of the event as SimPy's step does, without its handling of failed events."""
        callbacks, self._event.callbacks = self._event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(self._event)


class FleetClock:
    """Simulated time of a fleet, with the events of a SimPy environment and wake-up calls.

    A wake-up call is no event object: it has one callback, cannot fail and cannot be waited for. Replicas move
    theirs several times per request. What is due at one time happens in the order in which it was scheduled.
    """

    # not a subclass of `simpy.Environment`: compiled code reads its own fields directly, inherited ones by name
    __slots__ = ("_calls", "_events", "_scheduled", "now")

    def __init__(self) -> None:
        self._events = simpy.Environment()
        self.now = 0.0
        """Simulated time [s]."""
        # not of `heapq`: its entries would be objects of their own, and calls that are moved would stay in it
        self._calls: list[TimedWakeup] = []
        """Heap of the objects to wake, by the time and the order of their calls."""
        self._scheduled = 0
        """Number of calls scheduled so far."""

    def timeout(self, delay_s: float) -> simpy.Event:
        """Schedule an event after *delay_s*. Return it, for its callbacks."""
        self._events._now = self.now
        event = self._events.timeout(delay_s)
        self.move_call(_Callbacks(event), self._events._queue.pop()[0])
        return event

    def move_call(self, sleeper: TimedWakeup, at_s: float) -> None:
        """Move the wake-up call of *sleeper* to *at_s*, or to now if that is over; inf cancels it."""
        if at_s == inf:
            if sleeper._place >= 0:
                self._remove(sleeper)
            return
        sleeper.call_s = at_s if at_s > self.now else self.now
        self._scheduled += 1
        sleeper._order = self._scheduled
        if sleeper._place < 0:
            self._calls.append(sleeper)
            self._settle(sleeper, len(self._calls) - 1)
        else:
            self._settle(sleeper, sleeper._place)

    def _remove(self, sleeper: TimedWakeup) -> None:
        """Remove the call of *sleeper* from the heap."""
        place = sleeper._place
        sleeper.call_s, sleeper._place = inf, -1
        last = self._calls.pop()
        if last is not sleeper:
            self._settle(last, place)

    def _settle(self, sleeper: TimedWakeup, place: int) -> None:
        """Move *sleeper* from *place* of the heap, which is free, to where its call belongs."""
        calls, at_s, order = self._calls, sleeper.call_s, sleeper._order
        while place > 0:
            other = calls[(place - 1) >> 1]
            if other.call_s < at_s or (other.call_s == at_s and other._order < order):
                break
            calls[place] = other
            other._place, place = place, (place - 1) >> 1
        size = len(calls)
        child = 2 * place + 1
        while child < size:
            other = calls[child]
            if child + 1 < size:
                right = calls[child + 1]
                if right.call_s < other.call_s or (right.call_s == other.call_s and right._order < other._order):
                    child, other = child + 1, right
            if at_s < other.call_s or (at_s == other.call_s and order < other._order):
                break
            calls[place] = other
            other._place, place = place, child
            child = 2 * place + 1
        calls[place] = sleeper
        sleeper._place = place

    def step(self) -> None:
        """Process the next event or wake-up call."""
        sleeper = self._calls[0]
        self.now = sleeper.call_s
        self._remove(sleeper)
        sleeper.wake()

    def next_s(self) -> float:
        """Return the time of the next event or wake-up call [s]; inf if there is none."""
        return self._calls[0].call_s if self._calls else inf

    def skip_to(self, at_s: float) -> None:
        """Advance to *at_s*, which is before the next event, without an event of its own."""
        self.now = at_s
