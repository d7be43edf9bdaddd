"""One replica whose next step is formed while one runs: vLLM's asynchronous scheduling.

Each step is formed when the one before it begins, from what is known then: a request that arrives meanwhile waits one
step more, and who finishes in the step that begins still holds its seat and its KV blocks. Equal steps are taken in one
leap; the step after a leap is formed when its last step begins.
"""

from copy import copy
from math import inf

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, cut_steps, formed_steps, leap_s, steps_within
from sim.engine.schedulers.ahead import AsyncRank, Flight
from sim.engine.schedulers.queues.waiting import EntryQueue
from sim.engine.sequence import Sequence
from sim.records import Leap, Meters, Progress, Request, Span, StepTime


class AsyncEngine:
    """One rank (tensor parallelism included) under vLLM's rules with asynchronous scheduling."""

    def __init__(self, steptime: StepTime, limits: RankLimits, schedule: type[AsyncRank] = AsyncRank) -> None:
        self._steptime = steptime
        self._limits = limits
        self._pool = limits.new_pool()
        self._waiting = limits.new_queue()
        self._rank = schedule(limits, self._pool, self._waiting)
        self._meters = Meters()
        self._flight: Flight | None = None
        """What runs."""
        self._next: Flight | None = None
        """What runs then; None as long as it is not formed, or where there is nothing to do."""
        self._begun = False
        """The last step of what runs has begun: the next one can be formed."""
        self._end_s = inf
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Sequence(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        is_head = self._rank.enqueue(sequence)
        if self._flight is None:
            return True
        return is_head and self._rank.may_admit(sequence) and self._cut(self._flight, now, True)

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        if not self._limits.serves(Sequence(request)):
            request.rejected = True
            return False
        flight, begun = self._flight, 1
        if flight is not None and flight.closed:
            flight = self._next
        elif flight is not None:
            # the step after the one under way is the last one that can be kept
            begun = formed_steps(flight.leap, flight.start_s, now, flight.steps)
        if not self._rank.reserve(request, begun):
            return False
        if flight is not None and flight.steps > 1:
            flight.steps = self._rank.steps_with_blocks(flight.steps)
        return True

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        self._rank.transit.let_go(request, stepping=self._flight is not None)
        if self._flight is not None:
            self._cut(self._flight, now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        flight = self._flight
        if flight is None:  # it waits, and nothing runs yet
            return self._rank.turn_away(request) or Progress(0, 0)
        whole = steps_within(flight.leap, now - flight.start_s, flight.steps - 1)
        progress = self._rank.give_up(request, flight, whole)
        self._cut(flight, now)
        return progress

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        flight = self._flight
        if flight is not None:
            self._book(flight, now, steps_within(flight.leap, now - flight.start_s, flight.steps))
        while self._flight is not None:
            flight = self._flight
            if not flight.closed:
                self._rank.close(flight)
                self._rank.drop_evicted(formed=False)
            self._rank.finish(flight, now)
            self._rank.drop_evicted(formed=True)
            self._flight, self._next = self._next, None
        self._begun, self._end_s = False, inf

    def _cut(self, flight: Flight, now: float, arrived: bool = False) -> bool:
        """A step is formed at the first boundary at or after *now*; whether that moved the next event.

        Where that is for one who *arrived*, it is the first boundary at which the scheduler looks for arrivals.
        """
        first = self._rank.steps_until_read if arrived else int
        if flight.closed:
            if self._next is not None:
                self._next.steps = min(self._next.steps, first(1))
            return False
        steps = flight.steps
        if steps > 1:
            over = now > flight.start_s and cut_steps(flight.leap, flight.start_s, now, steps - 1)
            steps = min(first(1 + over), flight.steps)
        moved = steps < flight.steps
        flight.steps = steps
        return moved

    def plan(self, now: float) -> float:
        """See `Engine.plan`; the begin of a leap's last step counts, because the next step is formed then."""
        if self._flight is None:
            self._flight = self._form(now)
            while self._flight is None and self._rank.preempted:
                self._flight = self._form(now)
            if self._flight is None:
                self._end_s = inf
                return inf
            self._flight.start_s = now
        flight = self._flight
        if not flight.closed and (self._begun or flight.steps == 1):
            self._begun = False
            self._rank.close(flight)
            self._rank.drop_evicted(formed=False)
            self._rank.transit.settle()
            self._end_s = flight.start_s + leap_s(flight.leap, flight.steps)
            self._next = self._form(self._end_s)
        else:
            self._end_s = flight.start_s + leap_s(flight.leap, flight.steps if flight.closed else flight.steps - 1)
        return self._end_s

    def _form(self, begins_s: float) -> Flight | None:
        """The next steps, the first of which *begins_s*: who joins starts then."""
        steps = self._rank.form(begins_s)
        if not steps:
            return None
        rank = self._rank
        leap = self._steptime.leap(rank.batch)
        if rank.read_s or rank.batch.draft_tokens:
            growth_s = leap.growth_s * rank.pace if rank.batch.draft_tokens else leap.growth_s
            leap = Leap(leap.first_s + rank.read_s, growth_s, leap.valid_steps, leap.load)
        self._meters.cached_tokens += rank.cached_in_step
        return Flight(rank, steps if steps <= leap.valid_steps else max(1, int(leap.valid_steps)), leap)

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        flight = self._flight
        if flight is None or not flight.closed:
            self._begun = True
            return []
        self._book(flight, self._end_s, flight.steps)
        left = self._rank.finish(flight, self._end_s)
        changed = self._rank.drop_evicted(formed=True) or (flight.finished and self.waiting())
        self._rank.transit.settle()
        self._flight, self._next = self._next, None
        if self._flight is not None:
            self._flight.start_s = self._end_s
            if changed:
                self._flight.steps = 1
        return left

    def _book(self, flight: Flight, end_s: float, whole_steps: int) -> None:
        """*flight* ends at *end_s*, *whole_steps* of which were made."""
        duration_s = end_s - flight.start_s
        book(self._meters, flight, duration_s, flight.leap.load * duration_s, whole_steps)
        if whole_steps == flight.steps:
            self._meters.output_tokens -= flight.lost
        if self._sharing:
            self._share(flight, duration_s)
            self._rank.shares.shared_s = 0.0

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`."""
        totals = copy(self._meters)
        totals.preemptions = self._rank.preemptions
        totals.kv_peak_blocks = self._pool.peak
        flight = self._flight
        if flight is not None and now > flight.start_s:
            elapsed_s = now - flight.start_s
            whole = steps_within(flight.leap, elapsed_s, flight.steps)
            book(totals, flight, elapsed_s, flight.leap.load * elapsed_s, whole)
        totals.output_tokens += round(totals.accepted_tokens - self._rank.overshoot)
        return totals

    def _share(self, flight: Flight, elapsed_s: float) -> None:
        shares = self._rank.shares
        if elapsed_s > shares.shared_s:
            shares.share(elapsed_s, flight.batch, flight.parts, flight.standing)

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        flight, shares = self._flight, self._rank.shares
        elapsed_s = max(0.0, now - flight.start_s) if flight is not None else 0.0
        if on:
            shares.shared_s = elapsed_s
        elif flight is not None:
            self._share(flight, elapsed_s)
            shares.settle(self._rank.running)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        return [self._rank.flying(self._flight, asked)] if self._flight is not None else []

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [self._pool]

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`; the step after the one under way has its blocks already."""
        flight, formed = self._flight, 1
        if flight is not None and not flight.closed and flight.steps > 1:
            formed = formed_steps(flight.leap, flight.start_s, now, flight.steps)
        pool = self._pool
        return (pool.usable - pool.free + self._rank.blocks_ahead(formed)) / pool.usable

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`."""
        return [] if self._rank.adapters is None else [self._rank.adapters]

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`."""
        return self._waiting.last() if isinstance(self._waiting, EntryQueue) else None

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return self._rank.queued()
