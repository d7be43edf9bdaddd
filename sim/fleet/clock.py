"""The clock of a fleet: SimPy's events, and wake-up calls between them in one order."""

from abc import ABC, abstractmethod
from math import inf

import simpy


class TimedWakeup(ABC):
    """Object with one wake-up call, which the clock moves.

    It is itself the entry of the clock's heap, so that what a wake-up reads first is in the CPU's caches.
    """

    __slots__ = ("order", "place", "wake_s")

    def __init__(self) -> None:
        self.wake_s = inf
        """Time of the call [s]."""
        self.order = 0
        """Number of the call in the order in which calls were scheduled."""
        self.place = -1
        """Place of the call in the clock's heap; -1 if it is not there."""

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
        # not of `heapq`: its entries are compared by Python's rules, and calls that are moved would stay in it
        self._calls: list[TimedWakeup] = []
        """Heap of the calls, by time and order."""
        self._scheduled = 0
        """Number of calls scheduled so far."""

    def timeout(self, delay_s: float) -> simpy.Event:
        """Schedule an event after *delay_s*. Return it, for its callbacks."""
        self._events._now = self.now
        event = self._events.timeout(delay_s)
        self.move_call(_Callbacks(event), self._events._queue.pop()[0])
        return event

    def move_call(self, call: TimedWakeup, at_s: float) -> None:
        """Move the wake-up *call* to *at_s*, or to now if that time has passed; inf cancels it."""
        if at_s == inf:
            if call.place >= 0:
                self._remove(call)
            return
        call.wake_s = at_s if at_s > self.now else self.now
        self._scheduled += 1
        call.order = self._scheduled
        if call.place < 0:
            self._calls.append(call)
            self._settle(call, len(self._calls) - 1)
        else:
            self._settle(call, call.place)

    def _remove(self, call: TimedWakeup) -> None:
        """Remove *call* from the heap."""
        place, call.place = call.place, -1
        last = self._calls.pop()
        if last is not call:
            self._settle(last, place)

    def _settle(self, call: TimedWakeup, place: int) -> None:
        """Move *call* from *place* of the heap, which is free, to where it belongs."""
        calls, at_s, order = self._calls, call.wake_s, call.order
        while place > 0:
            other = calls[(place - 1) >> 1]
            if other.wake_s < at_s or (other.wake_s == at_s and other.order < order):
                break
            calls[place] = other
            other.place, place = place, (place - 1) >> 1
        size = len(calls)
        child = 2 * place + 1
        while child < size:
            # compiled, `calls[child].wake_s` reads no more of a call, while a variable would count a reference to it
            child_s = calls[child].wake_s
            if child + 1 < size:
                right_s = calls[child + 1].wake_s
                if right_s < child_s or (right_s == child_s and calls[child + 1].order < calls[child].order):
                    child, child_s = child + 1, right_s
            if at_s < child_s or (at_s == child_s and order < calls[child].order):
                break
            other = calls[child]
            calls[place] = other
            other.place, place = place, child
            child = 2 * place + 1
        calls[place] = call
        call.place = place

    def step(self) -> None:
        """Process the next event or wake-up call."""
        call = self._calls[0]
        self.now, order = call.wake_s, call.order
        call.wake()
        # most calls are moved meanwhile, which costs less from the top of the heap
        if call.order == order and call.place >= 0:
            self._remove(call)

    def next_s(self) -> float:
        """Return the time of the next event or wake-up call [s], or of the current one; inf if there is none."""
        return self._calls[0].wake_s if self._calls else inf
