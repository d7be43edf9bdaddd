"""Replicas that form a step when the one before it has ended; equal steps are taken in one leap."""

from abc import abstractmethod
from math import inf

from sim.engine.limits import RankLimits
from sim.engine.metering import cut_steps, leap_s, steps_within, switch_shares
from sim.engine.ranks import RankEngine
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence
from sim.records import Leap, Meters, Progress, Request, Span, StepTime


class LeapingEngine(RankEngine[RankSchedule]):
    """Ranks on one clock: a leap ends for all of them at once, at its end or where somebody cuts it short."""

    __slots__ = ("_leap", "_start_s", "_stepping", "_steps")

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: list[RankSchedule]) -> None:
        super().__init__(steptime, limits, ranks)
        self._leap = Leap(0.0)
        self._start_s = 0.0
        self._stepping = ranks
        """Those that have something to do in the leap under way, or in the last one."""
        self._steps = 0
        """Steps of the leap under way; 0 between leaps."""

    @abstractmethod
    def _form(self, now: float) -> int:
        """Forms the next steps, how many of which the leap `_leap` is; 0 if there is nothing to do."""

    @abstractmethod
    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        """Adds what lasted *duration_s* of the leap under way to *meters*, *whole_steps* of which were made."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Sequence(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        rank = self._rank_for(request)
        is_head = rank.enqueue(sequence)
        if not self._steps:
            return True
        if self._steps == 1 or not is_head or not rank.may_admit(sequence):
            return False
        heard = rank.steps_until_read(cut_steps(self._leap, self._start_s, now, self._steps))
        return self._shorten(min(heard, self._steps))

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        if not self.serves(request):
            request.rejected = True
            return False
        rank = self._rank_for(request)
        stepping = self._works(rank)
        if not isinstance(rank, Rank) or not rank.reserve(request, self._steps_begun(now) if stepping else 1):
            return False
        if stepping and self._steps > 1:
            self._shorten(rank.steps_with_blocks(self._steps))
        return True

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        for rank in self._ranks:
            rank.transit.let_go(request, self._works(rank))
        if self._steps:
            self._cut(now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        progress = self._leave_queue(request)
        if progress is None:
            rank = next(rank for rank in self._ranks if any(one.request is request for one in rank.running))
            stepping = self._works(rank)
            # others that left just now have cut the leap here
            most = self._steps if self._end_s <= now else self._steps - 1
            whole = steps_within(self._leap, now - self._start_s, most) if stepping else 0
            progress = rank.evict(request, whole, stepping)
        if self._steps:
            self._cut(now)
        return progress

    def _leave_queue(self, request: Request) -> Progress | None:
        """Takes *request* out of the queue that it waits in; None if it waits in none."""
        for rank in self._ranks:
            if (progress := rank.turn_away(request)) is not None:
                return progress
        return None

    def _works(self, rank: RankSchedule) -> bool:
        """Whether *rank* has something to do in the leap under way."""
        return self._steps > 0 and rank in self._stepping

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        if self._steps:
            self._complete(now, steps_within(self._leap, now - self._start_s, self._steps))
        self._end_s = inf

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
        steps = self._form(now)
        if not steps:
            self._end_s = inf
            return self._end_s
        self._steps = steps
        self._start_s = now
        self._end_s = now + leap_s(self._leap, steps)
        return self._end_s

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        return self._complete(self._end_s, self._steps)

    def _complete(self, end_s: float, whole_steps: int) -> list[Request]:
        """The leap under way ends at *end_s*, *whole_steps* of which were made; who leaves with the last token."""
        duration_s = end_s - self._start_s
        self._book(self._meters, duration_s, whole_steps)
        if self._sharing:
            for rank in self._stepping:
                rank.share_time(duration_s / len(self._stepping))
                rank.shares.shared_s = 0.0
        steps, self._steps = self._steps, 0
        left: list[Request] = []
        for rank in self._stepping:
            if finished := rank.commit(steps, end_s):
                left += [sequence.request for sequence in finished]
        return left

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; `sequence_s` is of the mean working rank."""
        totals, elapsed_s = self._totals(), now - self._start_s
        if self._steps and elapsed_s > 0:
            self._book(totals, elapsed_s, steps_within(self._leap, elapsed_s, self._steps))
        totals.output_tokens += self._accepted(totals)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        elapsed_s = max(0.0, now - self._start_s) if self._steps else 0.0
        for rank in self._ranks:
            switch_shares(rank, on, elapsed_s / len(self._stepping) if rank in self._stepping else 0.0)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`: one of each rank that works."""
        if not self._steps:
            return []
        return [rank.span(self._start_s, self._end_s, self._steps, asked) for rank in self._stepping]

    def _steps_begun(self, now: float) -> int:
        most = self._steps - 1
        return 1 + steps_within(self._leap, now - self._start_s, most) if most > 0 else 1
