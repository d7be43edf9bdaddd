"""One replica: a rank's schedule on a clock, with decode-only stretches taken in one leap."""

from copy import copy
from math import inf, nan

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, cut_steps, leap_s, steps_within, switch_shares
from sim.engine.schedulers.queues.waiting import EntryQueue
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence
from sim.records import Leap, Meters, Progress, Request, Span, StepTime


class VllmEngine:
    """One rank (tensor parallelism included: its GPUs step together) under the rules of *schedule*."""

    __slots__ = (
        "_end_s", "_leap", "_limits", "_meters", "_pool", "_rank", "_sharing", "_start_s", "_steps",
        "_steptime", "_waiting",
    )  # fmt: skip

    def __init__(self, steptime: StepTime, limits: RankLimits, schedule: type[RankSchedule] = Rank) -> None:
        self._steptime = steptime
        self._limits = limits
        self._pool = limits.new_pool()
        self._waiting = limits.new_queue()
        self._rank = schedule(limits, self._pool, self._waiting)
        self._meters = Meters()
        self._leap = Leap(0.0)
        self._start_s = 0.0
        self._end_s = inf
        self._sharing = False
        self._steps = 0
        """Steps of the leap under way; 0 between leaps."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Sequence(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        is_head = self._rank.enqueue(sequence)
        if not self._steps:
            return True
        if self._steps == 1 or not is_head or not self._rank.may_admit(sequence):
            return False
        heard = self._rank.steps_until_read(cut_steps(self._leap, self._start_s, now, self._steps))
        return self._shorten(min(heard, self._steps))

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        if not self._limits.serves(Sequence(request)):
            request.rejected = True
            return False
        rank, steps = self._rank, self._steps
        begun = 1 + steps_within(self._leap, now - self._start_s, steps - 1) if steps else 1
        if not isinstance(rank, Rank) or not rank.reserve(request, begun):
            return False
        if steps > 1:
            self._shorten(rank.steps_with_blocks(steps))
        return True

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        self._rank.transit.let_go(request, stepping=self._steps > 0)
        if self._steps:
            self._cut(now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        steps = self._steps
        progress = self._rank.turn_away(request)
        if progress is None:
            # others that left just now have cut the leap here
            most = steps if self._end_s <= now else steps - 1
            whole = steps_within(self._leap, now - self._start_s, most) if steps else 0
            progress = self._rank.evict(request, whole, stepping=steps > 0)
        if steps:
            self._cut(now)
        return progress

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        if self._steps:
            self._complete(now, steps_within(self._leap, now - self._start_s, self._steps))
        self._end_s = inf

    def serves(self, request: Request) -> bool:
        """Whether *request* can ever fit."""
        return self._limits.serves(Sequence(request))

    def pause(self, now: float) -> bool:
        """Ends the steps under way at the first boundary at or after *now*, after one step at least, for somebody else
        to have the GPUs; whether that moved the end.
        """
        return self._steps > 1 and self._cut(now)

    def _cut(self, now: float) -> bool:
        """Ends the leap at its first step boundary at or after *now*; whether that moved the end."""
        return self._shorten(cut_steps(self._leap, self._start_s, now, self._steps))

    def _shorten(self, steps: int) -> bool:
        """Ends the leap after *steps* steps; whether that moved the end."""
        if steps == self._steps:
            return False
        self._steps = steps
        self._end_s = self._start_s + leap_s(self._leap, steps)
        return True

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        if self._steps:
            return self._end_s
        rank = self._rank
        steps = rank.form(now)
        if not steps:
            self._end_s = inf
            return inf
        self._leap = leap = self._steptime.leap(rank.batch)
        if rank.batch.draft_tokens:
            leap.growth_s *= rank.pace
        leap.first_s += rank.read_s
        if steps > leap.valid_steps:
            steps = max(1, int(leap.valid_steps))
        self._steps = steps
        self._start_s = now
        self._end_s = now + leap_s(leap, steps)
        self._meters.cached_tokens += rank.cached_in_step
        return self._end_s

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        left = self._complete(self._end_s, self._steps)
        return [sequence.request for sequence in left] if left else []

    def _complete(self, end_s: float, whole_steps: int) -> list[Sequence]:
        """The leap under way ends at *end_s*, *whole_steps* of which were made; who leaves with the last token."""
        steps = self._steps
        duration_s = end_s - self._start_s
        book(self._meters, self._rank, duration_s, self._leap.load * duration_s, whole_steps)
        if self._sharing:
            self._rank.share_time(duration_s)
            self._rank.shares.shared_s = 0.0
        self._steps = 0
        return self._rank.commit(steps, end_s)

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`."""
        totals = copy(self._meters)
        totals.preemptions = self._rank.preemptions
        totals.kv_peak_blocks = self._pool.peak
        elapsed_s = now - self._start_s
        if self._steps and elapsed_s > 0:
            load_s = self._leap.load * elapsed_s
            book(totals, self._rank, elapsed_s, load_s, steps_within(self._leap, elapsed_s, self._steps))
        totals.output_tokens += round(totals.accepted_tokens - self._rank.overshoot)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        elapsed_s = max(0.0, now - self._start_s) if self._steps else 0.0
        switch_shares(self._rank, on, elapsed_s)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        return [self._rank.span(self._start_s, self._end_s, self._steps, asked)] if self._steps else []

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [self._pool]

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`."""
        most = self._steps - 1
        begun = 1 + steps_within(self._leap, now - self._start_s, most) if most > 0 else 1
        pool = self._pool
        return (pool.usable - pool.free + self._rank.blocks_ahead(begun)) / pool.usable

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`."""
        return [] if self._rank.adapters is None else [self._rank.adapters]

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`."""
        return self._waiting.last() if isinstance(self._waiting, EntryQueue) else None

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return self._rank.queued()


class LateOutputEngine(VllmEngine):
    """A step's tokens are there for the client when the next step ends, or at once where there is none.

    vLLM 0.6 and 0.7 turn a step's tokens into answers while the GPU computes the next one, in a thread of the process
    that the client's event loop runs in; the loop wakes up when that step is done.
    """

    __slots__ = ("_first", "_left")

    def __init__(self, steptime: StepTime, limits: RankLimits, schedule: type[RankSchedule] = Rank) -> None:
        super().__init__(steptime, limits, schedule)
        self._first: list[Request] = []
        """Whose first token nobody has seen yet."""
        self._left: list[Request] = []
        """Whose last token nobody has seen yet: their seats and blocks are free."""

    def plan(self, now: float) -> float:
        """See `Engine.plan`: the step that somebody's tokens wait for is taken by itself."""
        begins = not self._steps
        super().plan(now)
        if begins and (self._first or self._left):
            if self._steps:
                self._shorten(1)
            else:
                self._end_s = now
        return self._end_s

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        end_s, seen, gone = self._end_s, self._first, self._left
        self._first, self._left = [], []
        if self._steps:
            self._left = super().advance()
            here = (*self._left, *(sequence.request for sequence in self._rank.running))
            self._first = [request for request in here if request.first_token_s == end_s]
            for request in self._first:
                request.first_token_s = nan
            for request in self._left:
                request.finished_s = nan
        for request in seen:
            request.first_token_s = end_s
        for request in gone:
            request.finished_s = end_s
        return gone

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        if request in self._first:
            self._first.remove(request)
        if request in self._left:
            self._left.remove(request)
            return Progress(request.prompt_tokens + request.output_tokens - 1, request.output_tokens)
        return super().evict(request, now)

    def crash(self, now: float) -> None:
        """See `Engine.crash`: nobody sees what has not been handed over."""
        super().crash(now)
        self._first, self._left = [], []
