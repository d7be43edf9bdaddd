"""The clock of a fleet: SimPy's events, and wake-up calls between them in one order."""

from abc import ABC, abstractmethod
from math import inf

import simpy


class Wakeable(ABC):
    """Object that a wake-up call wakes."""

    __slots__ = ()

    @abstractmethod
    def wake(self) -> None:
        """Act on the wake-up call, which is due."""


class WakeupCall:
    """Wake-up call: an entry of the clock's heap, small and of one type, since entries are compared often."""

    __slots__ = ("at_s", "order", "place", "sleeper")

    def __init__(self, sleeper: Wakeable) -> None:
        self.at_s = inf
        """Time of the call [s]."""
        self.order = 0
        """Number of the call in the order in which calls were scheduled."""
        self.place = -1
        """Place of the call in the clock's heap; -1 if it is not there."""
        self.sleeper = sleeper


class TimedWakeup(Wakeable):
    """Object with one wake-up call, which the clock moves."""

    __slots__ = ("call",)

    def __init__(self) -> None:
        self.call = WakeupCall(self)


class _Callbacks(Wakeable):
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
        self._calls: list[WakeupCall] = []
        """Heap of the calls, by time and order."""
        self._scheduled = 0
        """Number of calls scheduled so far."""

    def timeout(self, delay_s: float) -> simpy.Event:
        """Schedule an event after *delay_s*. Return it, for its callbacks."""
        self._events._now = self.now
        event = self._events.timeout(delay_s)
        self._move(WakeupCall(_Callbacks(event)), self._events._queue.pop()[0])
        return event

    def move_call(self, sleeper: TimedWakeup, at_s: float) -> None:
        """Move the wake-up call of *sleeper* to *at_s*, or to now if that time has passed; inf cancels the call."""
        self._move(sleeper.call, at_s)

    def _move(self, call: WakeupCall, at_s: float) -> None:
        if at_s == inf:
            if call.place >= 0:
                self._remove(call)
            return
        call.at_s = at_s if at_s > self.now else self.now
        self._scheduled += 1
        call.order = self._scheduled
        if call.place < 0:
            self._calls.append(call)
            self._settle(call, len(self._calls) - 1)
        else:
            self._settle(call, call.place)

    def _remove(self, call: WakeupCall) -> None:
        """Remove *call* from the heap."""
        place, call.place = call.place, -1
        last = self._calls.pop()
        if last is not call:
            self._settle(last, place)

    def _settle(self, call: WakeupCall, place: int) -> None:
        """Move *call* from *place* of the heap, which is free, to where it belongs."""
        calls, at_s, order = self._calls, call.at_s, call.order
        while place > 0:
            other = calls[(place - 1) >> 1]
            if other.at_s < at_s or (other.at_s == at_s and other.order < order):
                break
            calls[place] = other
            other.place, place = place, (place - 1) >> 1
        size = len(calls)
        child = 2 * place + 1
        while child < size:
            other = calls[child]
            if child + 1 < size:
                right = calls[child + 1]
                if right.at_s < other.at_s or (right.at_s == other.at_s and right.order < other.order):
                    child, other = child + 1, right
            if at_s < other.at_s or (at_s == other.at_s and order < other.order):
                break
            calls[place] = other
            other.place, place = place, child
            child = 2 * place + 1
        calls[place] = call
        call.place = place

    def step(self) -> None:
        """Process the next event or wake-up call."""
        call = self._calls[0]
        self.now, order = call.at_s, call.order
        call.sleeper.wake()
        # most sleepers move their call meanwhile, which costs less from the top of the heap
        if call.order == order and call.place >= 0:
            self._remove(call)

    def next_s(self) -> float:
        """Return the time of the next event or wake-up call [s], or of the current one; inf if there is none."""
        return self._calls[0].at_s if self._calls else inf
