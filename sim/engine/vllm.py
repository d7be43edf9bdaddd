"""One replica of one rank: its schedule on a clock, with decode-only stretches taken in one leap."""

from math import nan

from sim.engine.leaping import LeapingEngine
from sim.engine.limits import RankLimits
from sim.engine.metering import book
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.records import Meters, Progress, Request, StepTime


class VllmEngine(LeapingEngine):
    """One rank (tensor parallelism included: its GPUs step together) under the rules of *schedule*."""

    __slots__ = ("_rank",)

    def __init__(self, steptime: StepTime, limits: RankLimits, schedule: type[RankSchedule] = Rank) -> None:
        self._rank = schedule(limits, limits.new_pool(), limits.new_queue())
        super().__init__(steptime, limits, [self._rank])

    def _rank_for(self, request: Request) -> RankSchedule:
        return self._rank

    def pause(self, now: float) -> bool:
        """Ends the steps under way at the first boundary at or after *now*, after one step at least, for somebody else
        to have the GPUs; whether that moved the end.
        """
        return self._steps > 1 and self._cut(now)

    def _form(self, now: float) -> int:
        rank = self._rank
        steps = rank.form(now)
        if not steps:
            return 0
        self._leap = leap = self._steptime.leap(rank.batch)
        if rank.batch.draft_tokens:
            leap.growth_s *= rank.pace
        leap.first_s += rank.read_s
        self._meters.cached_tokens += rank.cached_in_step
        return steps if steps <= leap.valid_steps else max(1, int(leap.valid_steps))

    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        book(meters, self._rank, duration_s, self._leap.load * duration_s, whole_steps)


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
