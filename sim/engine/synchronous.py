"""Engines that form a step when the one before it has ended.

`RankEngine` is the common base of engines of ranks, also of those with asynchronous scheduling. A replica has one rank
(tensor parallelism included: its GPUs step together), or data-parallel ranks that step together because they share
experts: then the slowest rank determines the duration of a step. Equal steps are taken in one leap.
"""

from abc import ABC, abstractmethod
from copy import copy
from math import inf, nan
from typing import Generic, TypeVar

from sim.engine.kv.blocks import BlockPool
from sim.engine.limits import SchedulerLimits
from sim.engine.lora import AdapterSlots
from sim.engine.metering import RecordedSteps, book, cut_steps, leap_s, steps_within
from sim.engine.protocol import KvTransit, ReplicaEngine
from sim.engine.schedulers.reserve import BalancedScheduler, PromptBalance
from sim.engine.schedulers.scheduler import Scheduler, switch_shares
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.schedulers.waiting_queue import EntryQueue
from sim.engine.sequence import Sequence
from sim.records import Batch, Leap, Meters, ReplicaProgress, Request, StepSpan, StepTime

R = TypeVar("R", bound=Scheduler)


class RankEngine(ReplicaEngine, KvTransit, ABC, Generic[R]):
    """Engine of one rank (tensor parallelism included: its GPUs step together) or of several."""

    __slots__ = ("_end_s", "_limits", "_meters", "_ranks", "_sharing", "_steptime", "record")

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, ranks: list[R]) -> None:
        self._steptime = steptime
        self._limits = limits
        self._ranks = ranks
        self._meters = Meters()
        self._end_s = inf
        self._sharing = False
        self.record: list[RecordedSteps] | None = None
        """Completed steps of all ranks, if they are to be recorded."""

    @abstractmethod
    def _rank_for(self, request: Request) -> R:
        """Return the rank that serves *request*."""

    @abstractmethod
    def _steps_begun(self, now: float) -> int:
        """Return the number of current steps that have their KV blocks at *now*; 1 if no step runs."""

    @abstractmethod
    def reserve(self, request: Request, now: float) -> bool:
        """See `KvTransit.reserve`."""

    @abstractmethod
    def release_kv(self, request: Request, now: float) -> None:
        """See `KvTransit.release_kv`."""

    def kv_transit(self) -> KvTransit:
        """See `ReplicaEngine.kv_transit`."""
        return self

    def serves(self, request: Request) -> bool:
        """Return whether *request* can ever fit."""
        return self._limits.serves(Sequence(request))

    def _totals(self) -> Meters:
        """Return the totals of the steps completed so far."""
        totals = copy(self._meters)
        totals.preemptions = sum(rank.preemptions for rank in self._ranks)
        totals.kv_peak_blocks = max(rank.pool.peak for rank in self._ranks)
        return totals

    def _accepted(self, totals: Meters) -> int:
        """Return the number of drafted tokens among *totals* that answers have accepted."""
        return round(totals.accepted_tokens - sum(rank.overshoot for rank in self._ranks))

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return [rank.pool for rank in self._ranks]

    def kv_usage(self, now: float) -> float:
        """See `ReplicaEngine.kv_usage`."""
        begun = self._steps_begun(now)
        used = sum(rank.pool.usable - rank.pool.free + rank.blocks_ahead(begun) for rank in self._ranks)
        return used / sum(rank.pool.usable for rank in self._ranks)

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`."""
        return [rank.adapters for rank in self._ranks if rank.adapters is not None]

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`. Always None where several ranks have queues."""
        if len(self._ranks) > 1:
            return None
        waiting = self._ranks[0].waiting
        return waiting.last() if isinstance(waiting, EntryQueue) else None

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return sum(rank.queued() for rank in self._ranks)


def least_loaded_rank(ranks: list[R], request: Request) -> R:
    """Return the rank where KV blocks are reserved for *request*, or that with the fewest outstanding requests."""
    reserved = next((rank for rank in ranks if request in rank.transit.reserved), None)
    return reserved or min(ranks, key=lambda rank: rank.queued() + len(rank.running))


class EventLeapingEngine(RankEngine[Scheduler]):
    """Engine that takes equal steps of its ranks in one leap, which ends at its end or where it is cut short."""

    __slots__ = ("_leap", "_start_s", "_stepping", "_steps")

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, ranks: list[Scheduler]) -> None:
        super().__init__(steptime, limits, ranks)
        self._leap = Leap(0.0)
        self._start_s = 0.0
        self._stepping = tuple(ranks)
        """Ranks that have work in the current leap, or in the last one."""
        self._steps = 0
        """Number of steps of the current leap; 0 between leaps."""

    @abstractmethod
    def _form(self, now: float) -> int:
        """Form the next steps and set `_leap`. Return the number of steps; 0 if there is no work."""

    @abstractmethod
    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        """Add *duration_s* of the current leap, with *whole_steps* completed steps, to *meters*."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        sequence = Sequence(request, prompt_only)
        if self._limits.refuses(sequence):
            return False
        rank = self._rank_for(request)
        is_head = rank.enqueue(sequence)
        if not self._steps:
            return True
        if self._steps == 1 or not is_head or not rank.may_admit(sequence):
            return False
        steps = rank.steps_until_read(cut_steps(self._leap, self._start_s, now, self._steps))
        return self._shorten(min(steps, self._steps))

    def reserve(self, request: Request, now: float) -> bool:
        """See `KvTransit.reserve`."""
        if self._limits.refuses(Sequence(request)):
            return False
        rank = self._rank_for(request)
        stepping = self._works(rank)
        if not isinstance(rank, VllmScheduler) or not rank.reserve(request, self._steps_begun(now) if stepping else 1):
            return False
        if stepping and self._steps > 1:
            self._shorten(rank.steps_with_blocks(self._steps))
        return True

    def release_kv(self, request: Request, now: float) -> None:
        """See `KvTransit.release_kv`."""
        for rank in self._ranks:
            rank.transit.release_kv(request, self._works(rank))
        if self._steps:
            self._cut(now)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`."""
        progress = self._leave_queue(request)
        if progress is None:
            rank = next(rank for rank in self._ranks if any(one.request is request for one in rank.running))
            stepping = self._works(rank)
            # an earlier eviction at this time has ended the leap here
            most = self._steps if self._end_s <= now else self._steps - 1
            whole = steps_within(self._leap, now - self._start_s, most) if stepping else 0
            progress = rank.evict(request, whole, stepping)
        if self._steps:
            self._cut(now)
        return progress

    def _leave_queue(self, request: Request) -> ReplicaProgress | None:
        """Remove *request* from its queue. Return its progress; None if it is in no queue."""
        for rank in self._ranks:
            if (progress := rank.remove_waiting(request)) is not None:
                return progress
        return None

    def _works(self, rank: Scheduler) -> bool:
        """Return whether *rank* has work in the current leap."""
        return self._steps > 0 and rank in self._stepping

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        if self._steps:
            self._complete(now, steps_within(self._leap, now - self._start_s, self._steps))
        self._end_s = inf

    def _cut(self, now: float) -> bool:
        """End the leap at its first step boundary at or after *now*. Return whether its end has moved."""
        return self._shorten(cut_steps(self._leap, self._start_s, now, self._steps))

    def _shorten(self, steps: int) -> bool:
        """End the leap after *steps* steps. Return whether its end has moved."""
        if steps == self._steps:
            return False
        self._steps = steps
        self._end_s = self._start_s + leap_s(self._leap, steps)
        return True

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
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
        """See `ReplicaEngine.advance`."""
        return self._complete(self._end_s, self._steps)

    def _complete(self, end_s: float, whole_steps: int) -> list[Request]:
        """End the current leap at *end_s* with *whole_steps* completed steps. Return the requests that leave."""
        duration_s = end_s - self._start_s
        self._book(self._meters, duration_s, whole_steps)
        if self._sharing:
            for rank in self._stepping:
                rank.share_time(duration_s / len(self._stepping))
                rank.shares.shared_s = 0.0
        steps, self._steps = self._steps, 0
        left: list[Request] = []
        for rank in self._stepping:
            finished = rank.commit(steps, end_s)
            if finished:
                left += [sequence.request for sequence in finished]
            if self.record is not None:
                recomputed, admitted = rank.recomputed_in_step, rank.admitted
                self.record.append(RecordedSteps(copy(rank.batch), recomputed, steps, admitted, len(finished)))
        return left

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`. `sequence_s` is that of the mean working rank."""
        totals, elapsed_s = self._totals(), now - self._start_s
        if self._steps and elapsed_s > 0:
            self._book(totals, elapsed_s, steps_within(self._leap, elapsed_s, self._steps))
        totals.output_tokens += self._accepted(totals)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self._sharing = on
        elapsed_s = max(0.0, now - self._start_s) if self._steps else 0.0
        for rank in self._ranks:
            switch_shares(rank, on, elapsed_s / len(self._stepping) if rank in self._stepping else 0.0)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`. Each working rank has one span."""
        if not self._steps:
            return []
        return [rank.span(self._start_s, self._end_s, self._steps, request_index) for rank in self._stepping]

    def _steps_begun(self, now: float) -> int:
        most = self._steps - 1
        return 1 + steps_within(self._leap, now - self._start_s, most) if most > 0 else 1


class VllmEngine(EventLeapingEngine):
    """Engine of one rank (tensor parallelism included: its GPUs step together) under the rules of *schedule*."""

    __slots__ = ("_rank",)

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, schedule: type[Scheduler] = VllmScheduler) -> None:
        self._rank = schedule(limits, limits.new_pool(), limits.new_queue())
        super().__init__(steptime, limits, [self._rank])

    def _rank_for(self, request: Request) -> Scheduler:
        return self._rank

    def pause(self, now: float) -> bool:
        """End the current leap at the first step boundary at or after *now*, for another model to use the GPUs.

        At least one step is completed. Return whether the end has moved.
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
        rank, leap = self._rank, self._leap
        load_s, second_load_s = leap.load * duration_s, leap.second_load * duration_s
        recomputed, blocked_by = rank.recomputed_in_step, rank.blocked_by
        book(meters, rank.batch, recomputed, blocked_by, duration_s, load_s, whole_steps, second_load_s)


class LateOutputEngine(VllmEngine):
    """Engine whose clients get a step's tokens when the next step ends, or at once where there is none.

    vLLM 0.6 and 0.7 turn a step's tokens into answers while the GPU computes the next one, in a thread of the process
    that the client's event loop runs in; the loop wakes up when that step is done.
    """

    __slots__ = ("_first", "_left")

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, schedule: type[Scheduler] = VllmScheduler) -> None:
        super().__init__(steptime, limits, schedule)
        self._first: list[Request] = []
        """Requests whose first token has not been delivered yet."""
        self._left: list[Request] = []
        """Requests whose last token has not been delivered yet; their batch places and blocks are free."""

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`. A step at whose end tokens are delivered is taken by itself."""
        begins = not self._steps
        super().plan(now)
        if begins and (self._first or self._left):
            if self._steps:
                self._shorten(1)
            else:
                self._end_s = now
        return self._end_s

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
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

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`."""
        if request in self._first:
            self._first.remove(request)
        if request in self._left:
            self._left.remove(request)
            return ReplicaProgress(request.prompt_tokens + request.output_tokens - 1, request.output_tokens)
        return super().evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`. Undelivered tokens are lost."""
        super().crash(now)
        self._first, self._left = [], []


class LockstepEngine(EventLeapingEngine):
    """Engine of data-parallel ranks that step together, each with its own queue and KV blocks.

    A request goes to the rank with the fewest outstanding requests.
    """

    def __init__(
        self, steptime: StepTime, limits: SchedulerLimits, ranks: int, schedule: type[Scheduler] = VllmScheduler
    ) -> None:
        own = [schedule(limits, limits.new_pool(), limits.new_queue()) for _ in range(ranks)]
        super().__init__(steptime, limits, own)
        self._leaps: list[Leap] = []
        """Leap of each working rank if it stepped alone."""

    def _rank_for(self, request: Request) -> Scheduler:
        return least_loaded_rank(self._ranks, request)

    def _possible(self, now: float) -> list[int]:
        """Form the next step of each rank. Return the steps that may follow; 0 for ranks without work."""
        return [rank.form(now) for rank in self._ranks]

    def _form(self, now: float) -> int:
        possible = self._possible(now)
        self._stepping = tuple(rank for rank, steps in zip(self._ranks, possible, strict=True) if steps)
        if not self._stepping:
            return 0
        idle = [Batch()] * (len(self._ranks) - len(self._stepping))
        gathered = gathered_tokens([*(rank.batch for rank in self._stepping), *idle], self._limits.padded_tokens)
        self._leaps = []
        for rank in self._stepping:
            self._meters.cached_tokens += rank.cached_in_step
            rank.batch.replica_tokens = gathered
            leap = self._steptime.leap(rank.batch)
            self._leaps.append(Leap(leap.first_s, leap.growth_s, leap.valid_steps, leap.load, leap.last_s))
        self._leap = slowest(self._leaps)
        return max(1, int(min(*filter(None, possible), self._leap.valid_steps)))

    def _book(self, meters: Meters, duration_s: float, whole_steps: int) -> None:
        """Add to *meters*: working ranks share the replica's time evenly, and idle ranks get none.

        A rank has the load that it would have alone, for the part of the step that it would take alone.
        """
        for rank, leap in zip(self._stepping, self._leaps, strict=True):
            load = leap.load * leap.first_s / self._leap.first_s if self._leap.first_s else 0.0
            busy_s, load_s = duration_s / len(self._stepping), load * duration_s / len(self._ranks)
            book(meters, rank.batch, rank.recomputed_in_step, rank.blocked_by, busy_s, load_s, whole_steps)


class BalancedLockstepEngine(LockstepEngine):
    """Engine of data-parallel ranks that compute prompts in the same steps (`PromptBalance`)."""

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, ranks: int) -> None:
        super().__init__(steptime, limits, ranks, BalancedScheduler)
        options = limits.options
        self._balance = PromptBalance(options.attention_dp_timeout_iters, options.attention_dp_batching_wait_iters)

    def _possible(self, now: float) -> list[int]:
        ranks = [rank for rank in self._ranks if isinstance(rank, BalancedScheduler)]
        for rank in ranks:
            rank.choose(now)
        work = [rank.work for rank in ranks]
        prompts = any(prompts for prompts, _ in work)
        if not prompts and not any(decodes for _, decodes in work):
            return [0] * len(ranks)
        holds = self._balance.holds(work, all(rank.has_free_place for rank in ranks))
        steps = [rank.complete(holds) for rank in ranks]
        if holds and prompts:
            steps = [min(one, self._balance.standing_steps) for one in steps]
        return steps

    def _complete(self, end_s: float, whole_steps: int) -> list[Request]:
        if self._steps > 1:
            self._balance.pass_steps(self._steps - 1)
        return super()._complete(end_s, whole_steps)


def gathered_tokens(batches: list[Batch], padded_tokens: tuple[float, float]) -> int:
    """Return the new tokens that the experts process in a step of all ranks, one of *batches* per rank.

    In steps of up to *padded_tokens*, with prompts on any rank and without, all ranks are padded to the fullest one.
    """
    tokens = [batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens for batch in batches]
    most = max(tokens)
    with_prompts, without_prompts = padded_tokens
    padded = with_prompts if any(batch.prefill_tokens for batch in batches) else without_prompts
    return most * len(tokens) if most <= padded else sum(tokens)


def slowest(leaps: list[Leap]) -> Leap:
    """Return the leap of ranks that wait for the slowest one, valid until another rank becomes the slowest."""
    lead = max(leaps, key=lambda leap: (leap.first_s, leap.growth_s))
    valid_steps = min(leap.valid_steps for leap in leaps)
    for leap in leaps:
        if leap.growth_s > lead.growth_s:
            valid_steps = min(valid_steps, 1 + (lead.first_s - leap.first_s) // (leap.growth_s - lead.growth_s))
    return Leap(lead.first_s, lead.growth_s, valid_steps, lead.load)
