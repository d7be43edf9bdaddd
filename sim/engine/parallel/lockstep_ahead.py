"""Data-parallel ranks that step together, and whose next step is formed while one runs: vLLM's asynchronous
scheduling of a mixture of experts.

As `AsyncEngine` for each rank and `LockstepEngine` between them: all ranks form the next step when the one before it
begins, and the slowest decides how long it lasts. A rank with nothing to do steps along.
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from math import inf, nan

from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, cut_steps, formed_steps, leap_s, steps_within
from sim.engine.parallel.lockstep import gathered_tokens, slowest
from sim.engine.schedulers.ahead import AsyncRank, Flight
from sim.engine.sequence import Sequence
from sim.records import Leap, Meters, Progress, Request, Span, StepTime


@dataclass(slots=True)
class Together:
    """Equal steps that all ranks take at once."""

    flights: list[tuple[AsyncRank, Flight]]
    leap: Leap
    steps: int
    start_s: float = nan
    """nan until they run."""
    closed: bool = False
    """The number of steps is settled: the step after the last one has been formed."""

    @property
    def end_s(self) -> float:
        """When the last of them ends."""
        return self.start_s + leap_s(self.leap, self.steps)

    def working(self) -> Iterator[tuple[AsyncRank, Flight]]:
        """Ranks with tokens in these steps."""
        return ((rank, one) for rank, one in self.flights if one.batch.decode_seqs + one.batch.prefill_tokens)

    def whole(self, now: float, most: int) -> int:
        """Steps, at most *most*, that are over at *now*."""
        return steps_within(self.leap, now - self.start_s, most)

    def close(self) -> None:
        """No further step is added: every rank takes as many as it says."""
        self.closed = True
        for rank, one in self.flights:
            one.steps, one.start_s = self.steps, self.start_s
            rank.close(one)
            rank.drop_evicted(formed=False)
            rank.transit.settle()


class AsyncLockstepEngine:
    """Each rank has its own queue and KV blocks; a request goes to the rank with the fewest outstanding ones."""

    def __init__(self, steptime: StepTime, limits: RankLimits, ranks: int) -> None:
        self._steptime = steptime
        self._limits = limits
        self._ranks = [AsyncRank(limits, limits.new_pool(), limits.new_queue()) for _ in range(ranks)]
        self._meters = Meters()
        self._runs: Together | None = None
        self._next: Together | None = None
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
        rank = next((rank for rank in self._ranks if request in rank.transit.reserved), None) or self._emptiest()
        is_head = rank.enqueue(sequence)
        if self._runs is None:
            return True
        return is_head and rank.may_admit(sequence) and self._cut(self._runs, now)

    def _emptiest(self) -> AsyncRank:
        return min(self._ranks, key=lambda rank: rank.queued() + len(rank.running))

    def reserve(self, request: Request, now: float) -> bool:
        """See `Engine.reserve`."""
        if not self._limits.serves(Sequence(request)):
            request.rejected = True
            return False
        rank, runs, begun = self._emptiest(), self._runs, 1
        if runs is not None and runs.closed:
            runs = self._next
        elif runs is not None:
            # the step after the one under way is the last one that can be kept
            begun = formed_steps(runs.leap, runs.start_s, now, runs.steps)
        if not rank.reserve(request, begun):
            return False
        if runs is not None and runs.steps > 1:
            runs.steps = rank.steps_with_blocks(runs.steps)
        return True

    def let_go(self, request: Request, now: float) -> None:
        """See `Engine.let_go`."""
        for rank in self._ranks:
            rank.transit.let_go(request, stepping=self._runs is not None)
        if self._runs is not None:
            self._cut(self._runs, now)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`."""
        runs = self._runs
        if runs is None:  # it waits, and nothing runs yet
            return next((one for rank in self._ranks if (one := rank.turn_away(request))), Progress(0, 0))
        whole = runs.whole(now, runs.steps - 1)
        rank, flight = next((rank, one) for rank, one in runs.flights if _has(rank, one, request))
        flight.steps = runs.steps
        progress = rank.give_up(request, flight, whole)
        self._cut(runs, now)
        return progress

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        if self._runs is not None:
            self._book(self._runs, now, self._runs.whole(now, self._runs.steps))
        while self._runs is not None:
            if not self._runs.closed:
                self._runs.close()
            self._finish(self._runs, now)
            self._runs, self._next = self._next, None
        self._begun, self._end_s = False, inf

    def _cut(self, runs: Together, now: float) -> bool:
        """A step is formed at the first boundary at or after *now*; whether that moved the next event."""
        if runs.closed:
            if self._next is not None:
                self._next.steps = 1
            return False
        steps = runs.steps
        if steps > 1:
            over = now > runs.start_s and cut_steps(runs.leap, runs.start_s, now, steps - 1)
            steps = min(1 + over, runs.steps)
        moved = steps < runs.steps
        runs.steps = steps
        return moved

    def plan(self, now: float) -> float:
        """See `Engine.plan`; the begin of a leap's last step counts, because the next step is formed then."""
        if self._runs is None:
            self._runs = self._form(now)
            if self._runs is None:
                self._end_s = inf
                return inf
            self._runs.start_s = now
        runs = self._runs
        if not runs.closed and (self._begun or runs.steps == 1):
            self._begun = False
            runs.close()
            self._next = self._form(runs.end_s, again=False)
        self._end_s = runs.end_s if runs.closed else runs.start_s + leap_s(runs.leap, runs.steps - 1)
        return self._end_s

    def _form(self, begins_s: float, again: bool = True) -> Together | None:
        """The next steps of all ranks, the first of which *begins_s*: who joins starts then.

        *again*: where preemptions leave nothing to do, another step is formed at once.
        """
        possible = [rank.form(begins_s) for rank in self._ranks]
        while again and not any(possible) and any(rank.preempted for rank in self._ranks):
            possible = [rank.form(begins_s) for rank in self._ranks]
        if not any(possible):
            return None
        gathered = gathered_tokens([rank.batch for rank in self._ranks], self._limits.padded_tokens)
        leaps = [
            self._leap(rank, gathered) if steps else Leap(0.0)
            for rank, steps in zip(self._ranks, possible, strict=True)
        ]
        lead = slowest([leap for leap, steps in zip(leaps, possible, strict=True) if steps])
        # an idle rank whose queue waits for what runs looks again after one step
        most = min(steps or (1 if rank.queued() else inf) for rank, steps in zip(self._ranks, possible, strict=True))
        steps = max(1, int(min(most, lead.valid_steps)))
        pairs = zip(self._ranks, leaps, strict=True)
        return Together([(rank, Flight(rank, steps, _stretched(leap, lead))) for rank, leap in pairs], lead, steps)

    def _leap(self, rank: AsyncRank, gathered: int) -> Leap:
        rank.batch.replica_tokens = gathered
        self._meters.cached_tokens += rank.cached_in_step
        leap = self._steptime.leap(rank.batch)
        return Leap(leap.first_s + rank.read_s, leap.growth_s, leap.valid_steps, leap.load)

    def advance(self) -> list[Request]:
        """See `Engine.advance`."""
        runs = self._runs
        if runs is None or not runs.closed:
            self._begun = True
            return []
        self._book(runs, self._end_s, runs.steps)
        left, changed = self._finish(runs, self._end_s)
        self._runs, self._next = self._next, None
        if self._runs is not None:
            self._runs.start_s = self._end_s
            if changed:
                self._runs.steps = 1
        return left

    def _finish(self, runs: Together, end_s: float) -> tuple[list[Request], bool]:
        """*runs* end at *end_s*: who leaves, and whether what was formed since may be another."""
        left, changed = [], False
        for rank, one in runs.flights:
            left += rank.finish(one, end_s)
            changed |= rank.drop_evicted(formed=True) or bool(one.finished and rank.queued())
            rank.transit.settle()
        return left, changed

    def _book(self, runs: Together, end_s: float, whole_steps: int) -> None:
        """*runs* end at *end_s*, *whole_steps* of which were made."""
        duration_s = end_s - runs.start_s
        self._add(self._meters, runs, duration_s, whole_steps)
        if whole_steps == runs.steps:
            self._meters.output_tokens -= sum(one.lost for _, one in runs.flights)
        if self._sharing:
            self._share(runs, duration_s)
            for rank in self._ranks:
                rank.shares.shared_s = 0.0

    def _add(self, meters: Meters, runs: Together, duration_s: float, steps: int) -> None:
        """The ranks that work share the replica's time evenly; an idle one steps along with nothing to show for it."""
        working = list(runs.working())
        for _, one in working:
            load_s = one.leap.load * duration_s / len(self._ranks)
            book(meters, one, duration_s / len(working), load_s, steps)

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; `sequence_s` is of the mean working rank."""
        totals, runs = copy(self._meters), self._runs
        totals.preemptions = sum(rank.preemptions for rank in self._ranks)
        totals.kv_peak_blocks = max(rank.pool.peak for rank in self._ranks)
        if runs is not None and now > runs.start_s:
            self._add(totals, runs, now - runs.start_s, runs.whole(now, runs.steps))
        return totals

    def _share(self, runs: Together, elapsed_s: float) -> None:
        working = list(runs.working())
        for rank, one in working:
            part_s = elapsed_s / len(working)
            if part_s > rank.shares.shared_s:
                rank.shares.share(part_s, one.batch, one.parts, one.standing)

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        runs = self._runs
        elapsed_s = max(0.0, now - runs.start_s) if runs is not None else 0.0
        if not on and runs is not None:
            self._share(runs, elapsed_s)
        working = [rank for rank, _ in runs.working()] if runs is not None else []
        for rank in self._ranks:
            if on:
                rank.shares.shared_s = elapsed_s / len(working) if rank in working else 0.0
            elif runs is not None:
                rank.shares.settle(rank.running)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`: one of each rank that works."""
        spans: list[Span] = []
        runs = self._runs
        if runs is None:
            return spans
        for rank, one in runs.working():
            one.steps, one.start_s = runs.steps, runs.start_s
            spans.append(rank.flying(one, asked))
        return spans

    def adapters(self) -> list[AdapterSlots]:
        """See `Engine.adapters`: none, as no request may ask for one here."""
        return []

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [rank.pool for rank in self._ranks]

    def kv_usage(self, now: float) -> float:
        """See `Engine.kv_usage`; the step after the one under way has its blocks already."""
        runs, formed = self._runs, 1
        if runs is not None and not runs.closed and runs.steps > 1:
            formed = formed_steps(runs.leap, runs.start_s, now, runs.steps)
        used = sum(rank.pool.usable - rank.pool.free + rank.blocks_ahead(formed) for rank in self._ranks)
        return used / sum(rank.pool.usable for rank in self._ranks)

    def last_waiting(self) -> Request | None:
        """See `Engine.last_waiting`: nobody."""
        return None

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return sum(rank.queued() for rank in self._ranks)


def _has(rank: AsyncRank, flight: Flight, request: Request) -> bool:
    known = (*rank.running, *rank.joining, *flight.finished)
    return rank.waiting.has(request.index) or any(one.request is request for one in known)


def _stretched(leap: Leap, lead: Leap) -> Leap:
    """*lead*'s steps, in which a rank works as hard as it would alone, for the part that it would take alone."""
    load = leap.load * leap.first_s / lead.first_s if lead.first_s else 0.0
    return Leap(lead.first_s, lead.growth_s, lead.valid_steps, load)
