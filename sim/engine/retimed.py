"""Engine that repeats recorded steps with other durations.

What the steps of a saturated engine contain hardly depends on how long they take: waiting requests join in order, as
KV blocks and places become free, and a client sends its next request at the end of a step. `RetimedEngine` repeats such
steps under another step-time model, and detects where an engine with that model would take other steps.
"""

from collections.abc import Callable
from copy import copy
from math import inf

from sim.engine.limits import SchedulerLimits
from sim.engine.metering import RecordedSteps, book, leap_s
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.synchronous import EventLeapingEngine
from sim.records import Leap, Meters, Request, StepTime

ROUNDING = 0.01
"""Margin by which a request must be read before a step is formed, as times are rounded [time between two reads]."""
More = Callable[[], bool]
"""Function that records further steps and returns whether there are any."""


class RetimedEngine(EventLeapingEngine):
    """Engine of one rank that repeats recorded steps with the durations of its own step-time model.

    Notes
    -----
    Each of *clients* clients sends a request at time 0, and its next one when the one before is finished. Requests are
    read *turn_s* apart. The steps are those that were recorded if, whenever steps are formed, all requests sent before
    have been read, or more than have been admitted: the scheduler reads the head of the queue only. Steps of a batch
    must not end before they were recorded to, because their durations change unevenly.

    """

    def __init__(
        self,
        steptime: StepTime,
        limits: SchedulerLimits,
        recorded: list[RecordedSteps],
        more: More,
        ahead: bool,
        clients: int,
        turn_s: float,
    ) -> None:
        """Repeat the steps *recorded*, to which *more* adds; *ahead*: each was formed one step ahead."""
        super().__init__(steptime, limits, [])
        self._recorded, self._more = recorded, more
        self._ahead, self._turn_s = ahead, turn_s
        self._place = -1
        """Position of the steps under way among the recorded ones; -1 before the first."""
        self._sending = clients
        """Number of requests that are sent when the steps under way start."""
        self._sent = 0
        """Number of requests that `_send` has sent."""
        self._read_s = -inf
        """Time at which all requests that `_send` has sent have been read [s]."""
        self.exact = True
        """False where an engine with these step times would have taken other steps."""

    def run(self, until_s: float) -> None:
        """Take steps up to the one that is under way at *until_s*."""
        now = self._end_s if self._steps else 0.0
        while (end_s := self.plan(now)) < until_s:
            self.advance()
            now = end_s

    def _rank_for(self, request: Request) -> Scheduler:
        raise ValueError("recorded steps have no place for further requests")

    def _totals(self) -> Meters:
        return copy(self._meters)

    def _form(self, now: float) -> int:
        place = self._place + 1
        self.exact = self.exact and (place < len(self._recorded) or self._more())
        if not self.exact:
            return 0
        following = self._recorded[place]
        leap = self._steptime.leap(following.batch)
        self.exact = self._repeats(following, leap, now)
        self._place, self._leap = place, leap
        return following.steps if self.exact else 0

    def _repeats(self, following: RecordedSteps, leap: Leap, now: float) -> bool:
        """Return whether an engine takes the steps *following* from *now* on, where they have the durations *leap*."""
        if following.steps > leap.valid_steps:
            return False
        if self._place < 0 or not self._turn_s:
            return True
        before = self._recorded[self._place]
        formed_s = self._start_s + leap_s(self._leap, before.steps - 1) if self._ahead else now
        if formed_s > self._start_s:
            self._send()
        late = (self._read_s - formed_s) / self._turn_s + ROUNDING
        unread = 1 + int(late) if late > 0 else 0
        exact = not unread or self._sent - unread > following.admitted
        if formed_s == self._start_s:
            self._send()
        self._sending = before.left
        return exact

    def _send(self) -> None:
        """Send the requests of the start of the steps under way, which are read after those sent before."""
        self._read_s = max(self._read_s, self._start_s) + self._sending * self._turn_s
        self._sent += self._sending

    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        one, leap = self._recorded[self._place], self._leap
        load_s, second_load_s = leap.load * duration_s, leap.second_load * duration_s
        book(meters, one.batch, one.recomputed, "", duration_s, load_s, whole_steps, second_load_s)
