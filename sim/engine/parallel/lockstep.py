"""Data-parallel ranks of one replica that step together because they share experts: the slowest decides."""

from copy import copy
from math import inf

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, cut_steps, leap_s, steps_within, switch_shares
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.sequence import Sequence
from sim.records import Batch, Leap, Meters, Progress, Request, Span, StepTime


class LockstepEngine:
    """Each rank has its own queue and KV blocks; a request goes to the rank with the fewest outstanding ones."""

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: int, schedule: type[RankSchedule] = Rank) -> None:
        self._steptime = steptime
        self._limits = limits
        self._ranks = [schedule(limits, limits.new_pool(), limits.new_queue()) for _ in range(ranks)]
        self._stepping: list[tuple[RankSchedule, Leap]] = []
        self._meters = Meters()
        self._leap = Leap(0.0)
        self._start_s = 0.0
        self._end_s = inf
        self._steps = 0
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        if not self._limits.serves(Sequence(request, prompt_only)):
            request.rejected = True
            return False
        reserved = next((rank for rank in self._ranks if request in rank.transit.reserved), None)
        rank = reserved or self._emptiest()
        sequence = Sequence(request, prompt_only)
        is_head = rank.enqueue(sequence)
        if not self._steps:
            return True
        if not is_head or not rank.may_admit(sequence):
            return False
        return self._cut(now)

    def _emptiest(self) -> RankSchedule:
        return min(self._ranks, key=lambda rank: len(rank.waiting) + len(rank.joining) + len(rank.running))

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        if not self._limits.serves(Sequence(request)):
            request.rejected = True
            return False
        rank, steps = self._emptiest(), self._steps
        begun = 1 + steps_within(self._leap, now - self._start_s, steps - 1) if steps else 1
        stepping = any(other is rank for other, _ in self._stepping)
        if not isinstance(rank, Rank) or not rank.reserve(request, begun if stepping else 1):
            return False
        if steps > 1 and stepping:
            self._shorten(rank.steps_with_blocks(steps))
        return True

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        for rank in self._ranks:
            stepping = self._steps > 0 and any(other is rank for other, _ in self._stepping)
            rank.transit.let_go(request, stepping)
        if self._steps:
            self._cut(now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        steps = self._steps
        progress = self._leave_queue(request)
        if progress is None:
            most = steps if self._end_s <= now else steps - 1
            whole = steps_within(self._leap, now - self._start_s, most) if steps else 0
            rank = next(rank for rank in self._ranks if any(one.request is request for one in rank.running))
            stepping = steps > 0 and any(other is rank for other, _ in self._stepping)
            progress = rank.evict(request, whole if stepping else 0, stepping)
        if steps:
            self._cut(now)
        return progress

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        if self._steps:
            self._complete(now, steps_within(self._leap, now - self._start_s, self._steps))
        self._end_s = inf

    def _leave_queue(self, request: Request) -> Progress | None:
        """Takes *request* out of the queue that it waits in; None if it waits in none."""
        for rank in self._ranks:
            if (progress := rank.turn_away(request)) is not None:
                return progress
        return None

    def _cut(self, now: float) -> bool:
        """Ends the leap at its first step boundary at or after *now*; whether that moved the end."""
        return self._shorten(cut_steps(self._leap, self._start_s, now, self._steps))

    def _shorten(self, steps: int) -> bool:
        """Ends the leap after *steps* steps; whether that moved the end."""
        moved = steps < self._steps
        self._steps = steps
        self._end_s = self._start_s + leap_s(self._leap, steps)
        return moved

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        if self._steps:
            return self._end_s
        self._stepping = []
        forming: list[RankSchedule] = []
        steps = 0
        for rank in self._ranks:
            possible = rank.form(now)
            if possible:
                steps = min(steps, possible) if steps else possible
                forming.append(rank)
                self._meters.cached_tokens += rank.cached_in_step
        idle = [Batch()] * (len(self._ranks) - len(forming))
        gathered = gathered_tokens([*(rank.batch for rank in forming), *idle], self._limits.padded_tokens)
        for rank in forming:
            rank.batch.replica_tokens = gathered
            self._stepping.append((rank, copy(self._steptime.leap(rank.batch))))
        if not steps:
            self._end_s = inf
            return inf
        self._leap = slowest([leap for _, leap in self._stepping])
        self._steps = max(1, int(min(steps, self._leap.valid_steps)))
        self._start_s = now
        self._end_s = now + leap_s(self._leap, self._steps)
        return self._end_s

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        return self._complete(self._end_s, self._steps)

    def _complete(self, end_s: float, whole_steps: int) -> list[Request]:
        """The leap under way ends at *end_s*, *whole_steps* of which were made; who leaves with the last token."""
        duration_s = end_s - self._start_s
        self._book(self._meters, duration_s, whole_steps)
        if self._sharing:
            for rank, _ in self._stepping:
                rank.share_time(duration_s / len(self._stepping))
                rank.shares.shared_s = 0.0
        finished = [s.request for rank, _ in self._stepping for s in rank.commit(self._steps, end_s)]
        self._steps = 0
        return finished

    def _book(self, meters: Meters, duration_s: float, steps: int) -> None:
        """The ranks that work share the replica's time evenly; an idle one steps along with nothing to show for it.

        A rank works as hard as it would alone, for the part of the step that it would take alone.
        """
        for rank, leap in self._stepping:
            load = leap.load * leap.first_s / self._leap.first_s if self._leap.first_s else 0.0
            book(meters, rank, duration_s / len(self._stepping), load * duration_s / len(self._ranks), steps)

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; `sequence_s` is of the mean working rank."""
        totals = copy(self._meters)
        totals.preemptions = sum(rank.preemptions for rank in self._ranks)
        totals.kv_peak_blocks = max(rank.pool.peak for rank in self._ranks)
        elapsed_s = now - self._start_s
        if self._steps and elapsed_s > 0:
            whole = steps_within(self._leap, elapsed_s, self._steps)
            self._book(totals, elapsed_s, whole)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        elapsed_s = max(0.0, now - self._start_s) if self._steps else 0.0
        stepping = [rank for rank, _ in self._stepping]
        for rank in self._ranks:
            switch_shares(rank, on, elapsed_s / len(stepping) if rank in stepping else 0.0)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`: one of each rank that works."""
        ranks = [rank for rank, _ in self._stepping if self._steps]
        return [rank.span(self._start_s, self._end_s, self._steps, asked) for rank in ranks]

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`: none, as no request may ask for one here."""
        return []

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [rank.pool for rank in self._ranks]

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`: as of the last step that was looked at by itself."""
        caches = self.caches()
        return 1 - sum(cache.free for cache in caches) / sum(cache.usable for cache in caches)

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`: nobody."""
        return None

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return sum(len(rank.waiting) + len(rank.joining) for rank in self._ranks)


def gathered_tokens(batches: list[Batch], padded_tokens: int | None) -> int:
    """New tokens that the experts see in a step of all ranks, of which each has one of *batches*.

    In steps of up to *padded_tokens* (None: without prompts), which run from CUDA graphs, all ranks are padded to the
    fullest one.
    """
    tokens = [batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens for batch in batches]
    most = max(tokens)
    prompts = any(batch.prefill_tokens for batch in batches)
    padded = not prompts if padded_tokens is None else most <= padded_tokens
    return most * len(tokens) if padded else sum(tokens)


def slowest(leaps: list[Leap]) -> Leap:
    """The leap that decides when all must wait for the longest step, valid until another overtakes it."""
    lead = max(leaps, key=lambda leap: (leap.first_s, leap.growth_s))
    valid_steps = min(leap.valid_steps for leap in leaps)
    for leap in leaps:
        if leap.growth_s > lead.growth_s:
            valid_steps = min(valid_steps, 1 + (lead.first_s - leap.first_s) // (leap.growth_s - lead.growth_s))
    return Leap(lead.first_s, lead.growth_s, valid_steps, lead.load)
