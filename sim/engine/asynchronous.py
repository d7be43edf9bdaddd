"""Engines that form the next step while one runs, as vLLM (asynchronous scheduling), SGLang and TensorRT-LLM do.

Each step is formed when the one before it starts, from what is known then: a request that arrives meanwhile waits one
step more, and a request that finishes in the step that starts still holds its place and its KV blocks. Equal steps are
taken in one leap; the step after a leap is formed when the leap's last step starts.

    leap of 3 steps   |--------|--------|--------|
    next step                           |--------|
                                        ^ formed here, when the leap's last step starts

A replica has one rank, or data-parallel ranks that step together because they share experts. All ranks then form the
next step at the same time, and the slowest determines its duration. A rank without work takes part in the steps.
"""

from abc import abstractmethod
from collections.abc import Callable
from math import inf

from sim.engine.limits import SchedulerLimits
from sim.engine.metering import RecordedSteps, book, cut_steps, leap_s
from sim.engine.schedulers.vllm import EqualSteps, InFlightStep, VllmScheduler
from sim.engine.sequence import Sequence
from sim.engine.synchronous import RankEngine, gathered_tokens, least_loaded_rank, slowest
from sim.records import Leap, Meters, ReplicaProgress, Request, StepSpan, StepTime


class AsyncSchedulingEngine(RankEngine[VllmScheduler]):
    """Engine of one or several ranks that form each step one ahead."""

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, ranks: list[VllmScheduler]) -> None:
        super().__init__(steptime, limits, ranks)
        self._runs: EqualSteps | None = None
        self._next: EqualSteps | None = None
        """Steps that run next; None until they are formed, or where there is no work."""
        self._begun = False
        """True if the last of the current steps has started: the next one can be formed."""

    @abstractmethod
    def _form(self, begins_s: float) -> EqualSteps | None:
        """Form the next steps, the first of which starts at *begins_s*. Return None if there is no work."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        sequence = Sequence(request, prompt_only)
        if self._limits.refuses(sequence):
            return False
        rank = self._rank_for(request)
        is_head = rank.enqueue(sequence)
        if self._runs is None:
            return True
        return is_head and rank.may_admit(sequence) and self._cut(self._runs, now, rank.steps_until_read)

    def reserve(self, request: Request, now: float) -> bool:
        """See `KvTransit.reserve`."""
        if self._limits.refuses(Sequence(request)):
            return False
        rank, runs = self._rank_for(request), self._runs
        if not rank.reserve(request, self._steps_begun(now)):
            return False
        if runs is not None and runs.closed:
            runs = self._next
        if runs is not None and runs.steps > 1:
            runs.steps = rank.steps_with_blocks(runs.steps)
        return True

    def release_kv(self, request: Request, now: float) -> None:
        """See `KvTransit.release_kv`."""
        for rank in self._ranks:
            rank.transit.release_kv(request, stepping=self._runs is not None)
        if self._runs is not None:
            self._cut(self._runs, now)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`."""
        runs = self._runs
        if runs is None:  # no step runs, so the request waits
            return next((one for rank in self._ranks if (one := rank.remove_waiting(request))), ReplicaProgress(0, 0))
        progress = runs.evict(request, runs.whole(now, runs.steps - 1))
        self._cut(runs, now)
        return progress

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        if self._runs is not None:
            self._book(self._runs, now, self._runs.whole(now, self._runs.steps))
        while self._runs is not None:
            if not self._runs.closed:
                self._runs.close()
            self._runs.finish(now)
            self._runs, self._next = self._next, None
        self._begun, self._end_s = False, inf

    def _cut(self, runs: EqualSteps, now: float, first: Callable[[int], int] = int) -> bool:
        """Form the next step at the first step boundary at or after *now*, or at the *first* allowed one after it.

        Return whether the next event has moved.
        """
        if runs.closed:
            if self._next is not None:
                self._next.steps = min(self._next.steps, first(1))
            return False
        steps = runs.steps
        if steps > 1:
            over = now > runs.start_s and cut_steps(runs.leap, runs.start_s, now, steps - 1)
            steps = min(first(1 + over), runs.steps)
        moved = steps < runs.steps
        runs.steps = steps
        return moved

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`. The start of a leap's last step counts, because the next step is formed then."""
        runs = self._runs
        if runs is None:
            runs = self._form(now)
            while runs is None and any(rank.preempted for rank in self._ranks):
                runs = self._form(now)
            if runs is None:
                self._end_s = inf
                return inf
            self._runs = runs
            runs.start_s = now
        if not runs.closed and (self._begun or runs.steps == 1):
            self._begun = False
            runs.close()
            self._end_s = runs.start_s + leap_s(runs.leap, runs.steps)
            self._next = self._form(self._end_s)
        else:
            self._end_s = runs.start_s + leap_s(runs.leap, runs.steps if runs.closed else runs.steps - 1)
        return self._end_s

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        runs = self._runs
        if runs is None or not runs.closed:
            self._begun = True
            return []
        self._book(runs, self._end_s, runs.steps)
        left, changed = runs.finish(self._end_s)
        if self.record is not None:
            for one in runs.working():
                recomputed, admitted = one.recomputed_in_step, one.admitted
                self.record.append(RecordedSteps(one.batch, recomputed, runs.steps, admitted, len(left)))
        self._runs, self._next = self._next, None
        if self._runs is not None:
            self._runs.start_s = self._end_s
            if changed:
                self._runs.steps = 1
        return left

    def _book(self, runs: EqualSteps, end_s: float, whole_steps: int) -> None:
        """Add *runs*, which end at *end_s* with *whole_steps* steps completed, to the meters."""
        duration_s = end_s - runs.start_s
        self._add(self._meters, runs, duration_s, whole_steps)
        if self._sharing:
            self._share(runs, duration_s)
            for rank in self._ranks:
                rank.shares.shared_s = 0.0

    def _add(self, meters: Meters, runs: EqualSteps, duration_s: float, whole_steps: int) -> None:
        """Add to *meters*: working ranks share the replica's time evenly, and idle ranks get none."""
        working = runs.working()
        for one in working:
            leap, ranks = one.leap, len(self._ranks)
            busy_s, load_s = duration_s / len(working), leap.load * duration_s / ranks
            second_load_s = leap.second_load * duration_s / ranks
            recomputed, blocked_by = one.recomputed_in_step, one.blocked_by
            book(meters, one.batch, recomputed, blocked_by, busy_s, load_s, whole_steps, second_load_s)
            if whole_steps == runs.steps:
                meters.output_tokens -= one.dropped_tokens

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`. `sequence_s` is that of the mean working rank."""
        totals, runs = self._totals(), self._runs
        if runs is not None and now > runs.start_s:
            self._add(totals, runs, now - runs.start_s, runs.whole(now, runs.steps))
        totals.output_tokens += self._accepted(totals)
        return totals

    def _share(self, runs: EqualSteps, elapsed_s: float) -> None:
        working = runs.working()
        part_s = elapsed_s / len(working)
        for one in working:
            if part_s > one.rank.shares.shared_s:
                one.rank.shares.share(part_s, one.batch, one.parts, one.excluded)

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self._sharing = on
        runs = self._runs
        elapsed_s = 0.0 if runs is None else max(0.0, now - runs.start_s)
        working = () if runs is None else runs.working()
        if on:
            for rank in self._ranks:
                rank.shares.shared_s = 0.0
            for one in working:
                one.rank.shares.shared_s = elapsed_s / len(working)
        elif runs is not None:
            self._share(runs, elapsed_s)
            for rank in self._ranks:
                rank.shares.settle(rank.running)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`. Each working rank has one span."""
        return [] if self._runs is None else [one.span(request_index) for one in self._runs.working()]

    def _steps_begun(self, now: float) -> int:
        """See `RankEngine._steps_begun`. The step after the current one has its blocks already."""
        return 1 if self._runs is None else self._runs.formed(now)


class AsyncEngine(AsyncSchedulingEngine):
    """Engine of one rank (tensor parallelism included) with asynchronous scheduling."""

    def __init__(
        self, steptime: StepTime, limits: SchedulerLimits, schedule: type[VllmScheduler] = VllmScheduler
    ) -> None:
        self._rank = schedule(limits, limits.new_pool(), limits.new_queue(), ahead=True)
        super().__init__(steptime, limits, [self._rank])

    def _rank_for(self, request: Request) -> VllmScheduler:
        return self._rank

    def _form(self, begins_s: float) -> InFlightStep | None:
        rank = self._rank
        steps = rank.form_ahead(begins_s)
        if not steps:
            return None
        leap = self._steptime.leap(rank.batch)
        if rank.read_s or rank.batch.draft_tokens:
            growth_s = leap.growth_s * rank.pace if rank.batch.draft_tokens else leap.growth_s
            leap = Leap(leap.first_s + rank.read_s, growth_s, leap.valid_steps, leap.load, 0.0, leap.second_load)
        self._meters.cached_tokens += rank.cached_in_step
        return InFlightStep(rank, steps if steps <= leap.valid_steps else max(1, int(leap.valid_steps)), leap)


class LockstepStep(EqualSteps):
    """Steps that all ranks take at once."""

    __slots__ = ("_flights",)

    def __init__(self, flights: list[InFlightStep], lead: Leap, steps: int) -> None:
        super().__init__(steps, lead)
        self._flights = flights

    def _settled(self) -> list[InFlightStep]:
        """Return the steps of all ranks, updated to the current number of steps."""
        for one in self._flights:
            one.steps, one.start_s = self.steps, self.start_s
        return self._flights

    def working(self) -> list[InFlightStep]:
        """See `EqualSteps.working`."""
        return [one for one in self._settled() if one.batch.decode_seqs + one.batch.prefill_tokens]

    def close(self) -> None:
        """See `EqualSteps.close`."""
        self.closed = True
        for one in self._settled():
            one.close()

    def finish(self, end_s: float) -> tuple[list[Request], bool]:
        """See `EqualSteps.finish`."""
        left, changed = zip(*(one.finish(end_s) for one in self._flights), strict=True)
        return [request for requests in left for request in requests], any(changed)

    def evict(self, request: Request, whole: int) -> ReplicaProgress:
        """See `EqualSteps.evict`."""
        return next(one for one in self._settled() if one.has(request)).evict(request, whole)


class AsyncLockstepEngine(AsyncSchedulingEngine):
    """Engine of data-parallel ranks that step together, each with its own queue and KV blocks.

    A request goes to the rank with the fewest outstanding requests.
    """

    def __init__(
        self, steptime: StepTime, limits: SchedulerLimits, ranks: int, schedule: type[VllmScheduler] = VllmScheduler
    ) -> None:
        own = [schedule(limits, limits.new_pool(), limits.new_queue(), ahead=True) for _ in range(ranks)]
        super().__init__(steptime, limits, own)

    def _rank_for(self, request: Request) -> VllmScheduler:
        return least_loaded_rank(self._ranks, request)

    def _form(self, begins_s: float) -> LockstepStep | None:
        possible = [rank.form_ahead(begins_s) for rank in self._ranks]
        if not any(possible):
            return None
        gathered = gathered_tokens([rank.batch for rank in self._ranks], self._limits.padded_tokens)
        leaps = [
            self._leap(rank, gathered) if steps else Leap(0.0)
            for rank, steps in zip(self._ranks, possible, strict=True)
        ]
        lead = slowest([leap for leap, steps in zip(leaps, possible, strict=True) if steps])
        # an idle rank with waiting requests tries again after one step
        most = min(steps or (1 if rank.queued() else inf) for rank, steps in zip(self._ranks, possible, strict=True))
        steps = max(1, int(min(most, lead.valid_steps)))
        pairs = zip(self._ranks, leaps, strict=True)
        return LockstepStep([InFlightStep(rank, steps, _stretched(leap, lead)) for rank, leap in pairs], lead, steps)

    def _leap(self, rank: VllmScheduler, gathered: int) -> Leap:
        rank.batch.replica_tokens = gathered
        self._meters.cached_tokens += rank.cached_in_step
        leap = self._steptime.leap(rank.batch)
        return Leap(leap.first_s + rank.read_s, leap.growth_s, leap.valid_steps, leap.load)


def _stretched(leap: Leap, lead: Leap) -> Leap:
    """Return the steps of *lead*, with the load of *leap* for the part of the step that it would take alone."""
    load = leap.load * leap.first_s / lead.first_s if lead.first_s else 0.0
    return Leap(lead.first_s, lead.growth_s, lead.valid_steps, load)
