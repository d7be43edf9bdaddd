"""Pipeline parallelism: several batches in flight over the stages of one replica.

A batch enters a stage when it has left the one before and the stage is free; the step-time model gives the time of
one stage. (A serial sum of the stages would be wrong by up to the number of stages.) Two engines form the batches
by different rules.

`PipelineEngine` schedules a new batch whenever fewer batches than stages are in flight, out of the requests that
are in none. Requests that were admitted together stay together, so each batch is a lane of its own; lanes share KV
blocks and the queue, and no lane takes more than its share of the requests (as SGLang's micro-batches and vLLM's
former virtual engines do; without that the lane that meets a long prompt collects all arrivals and leaves the other
stages idle). Where prompts flow in pieces (llama.cpp), a stage hands each piece of a batch on as soon as it has it,
and a batch that yields no token makes room for the next one when it has left the first stage.

`StagesEngine` follows vLLM V1: as many batches are in flight as there are stages, one more where steps are formed
ahead (`EngineCore.step_with_batch_queue`). After a batch the next one is formed at once, until the queue is full or
nothing can be scheduled; then nothing is formed until the oldest batch has ended, and requests that arrive wait for
that. A batch enters the first stage not before the last tokens of its requests have left the last one.
"""

from collections import deque
from copy import copy
from dataclasses import replace
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.group_pool import GroupPool, StatePool
from sim.engine.limits import RankLimits
from sim.engine.metering import book, switch_shares
from sim.engine.protocol import Unsplit
from sim.engine.schedulers.kv_groups import GroupSchedule, StateSchedule
from sim.engine.schedulers.pipeline import Flying, Launch, StageSchedule
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.schedulers.vllm import Rank
from sim.engine.sequence import Sequence
from sim.records import Batch, Leap, Meters, Progress, Request, Span, StepTime


def pass_through(free_s: list[float], ready_s: float, leap: Leap, pieces: int = 1) -> float:
    """When a batch whose step is *leap* leaves the last stage, if it may enter the first one at *ready_s* [s].

    *free_s* says when each stage is free, and does so afterwards. A batch waits for each stage, not for a place behind
    it. Of several *pieces* each is handed on as soon as a stage has it.
    """
    stage_s, enters_s = leap.first_s - leap.last_s / len(free_s), ready_s
    for stage, stage_free_s in enumerate(free_s):
        enters_s = max(enters_s, stage_free_s)
        free_s[stage] = enters_s + stage_s
        enters_s += stage_s / pieces
    free_s[-1] += leap.last_s
    return free_s[-1]


class Lane:
    """One batch and its flight through the stages."""

    __slots__ = ("end_s", "entered_s", "load", "rank", "stage_s")

    def __init__(self, rank: RankSchedule) -> None:
        self.rank = rank
        self.entered_s = self.stage_s = self.load = 0.0
        self.end_s = inf
        """When it leaves the last stage; inf while it is not in flight."""

    def flown(self, now: float) -> float:
        """The share of its flight that is over at *now*."""
        return min(1.0, max(0.0, (now - self.entered_s) / (self.end_s - self.entered_s)))


class PipelineEngine(Unsplit):
    """One replica whose layers are spread over `stages` groups of GPUs.

    At most `lanes` batches are in flight, left out: one per stage; a single one passes the stages in series.
    """

    def __init__(
        self,
        steptime: StepTime,
        limits: RankLimits,
        stages: int,
        schedule: type[RankSchedule] = Rank,
        lanes: int | None = None,
        piece_tokens: int | None = None,
        one_scheduler: bool = False,
    ) -> None:
        """*piece_tokens*: prompt tokens of a piece, where prompts flow in pieces; *one_scheduler* goes through all that
        run for each batch.
        """
        self._steptime = steptime
        self._limits = limits
        self._waiting = limits.new_queue()
        self._pool = limits.new_pool()
        self._lanes = [Lane(schedule(limits, self._pool, self._waiting)) for _ in range(lanes or stages)]
        self._stage_free_s = [0.0] * stages
        self._piece_tokens, self._one_scheduler = piece_tokens, one_scheduler
        self._meters = Meters()
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Sequence(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        self._waiting.add(sequence)
        return any(lane.end_s == inf for lane in self._lanes)

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`: a batch in flight keeps *request* until it leaves the last stage."""
        waiting = self._waiting.remove(request)
        if waiting is not None:
            self._pool.forget(waiting)
            return Progress(0, waiting.made)
        lane = next(lane for lane in self._lanes if any(one.request is request for one in lane.rank.running))
        return lane.rank.evict(request, 0, stepping=lane.end_s < inf)

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        for lane in self._lanes:
            if lane.end_s < inf:
                self._complete(lane, lane.stage_s * lane.flown(now), now, 0)
        self._stage_free_s = [now] * len(self._stage_free_s)

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        # requests that were in a batch before are scheduled before new ones get an empty lane
        for lane in sorted(self._lanes, key=lambda lane: not lane.rank.running):
            if lane.end_s == inf:
                self._launch(lane, now)
        return min(lane.end_s for lane in self._lanes)

    def _launch(self, lane: Lane, now: float) -> None:
        rank = lane.rank
        running = sum(len(other.rank.running) for other in self._lanes)
        others = running - len(rank.running)
        free_seats = self._limits.max_num_seqs - running
        share = -(-(running + len(self._waiting)) // len(self._lanes))
        rank.seats = min(len(rank.running) + free_seats, share)
        steps = rank.form(now)
        if free_seats and rank.blocked_by == "seats":
            rank.blocked_by = ""
        if not steps:
            return
        rank.batch.standing_seqs = others if self._one_scheduler else 0
        leap = self._steptime.leap(rank.batch)
        lane.stage_s, lane.load = leap.first_s, leap.load
        lane.entered_s = max(now, self._stage_free_s[0])
        lane.end_s = pass_through(self._stage_free_s, now, leap, self._pieces(rank.batch))
        if self._piece_tokens is not None and not rank.batch.sampled_seqs:
            lane.end_s = self._stage_free_s[0]
        self._meters.cached_tokens += rank.cached_in_step

    def _pieces(self, batch: Batch) -> int:
        return -(-max(1, batch.prefill_tokens) // self._piece_tokens) if self._piece_tokens else 1

    def advance(self) -> list[Request]:
        """See `Engine.advance`: the batch that leaves the pipeline first."""
        lane = min(self._lanes, key=lambda lane: lane.end_s)
        return [sequence.request for sequence in self._complete(lane, lane.stage_s, lane.end_s, 1)]

    def _complete(self, lane: Lane, busy_s: float, end_s: float, whole_steps: int) -> list[Sequence]:
        """The batch of *lane* ends at *end_s*, with *whole_steps* of its one step made; who leaves with it."""
        book(self._meters, lane.rank, busy_s, lane.load * busy_s, whole_steps)
        if self._sharing:
            lane.rank.share_time(busy_s)
            lane.rank.shares.shared_s = 0.0
        lane.end_s = inf
        return lane.rank.commit(1, end_s)

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; busy time is that of one stage, `sequence_s` that of the mean batch."""
        totals = copy(self._meters)
        totals.preemptions = sum(lane.rank.preemptions for lane in self._lanes)
        totals.kv_peak_blocks = self._pool.peak
        for lane in self._lanes:
            if lane.end_s < inf:
                flown_s = lane.stage_s * lane.flown(now)
                book(totals, lane.rank, flown_s, lane.load * flown_s, 0)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        for lane in self._lanes:
            switch_shares(lane.rank, on, lane.stage_s * lane.flown(now) if lane.end_s < inf else 0.0)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        return [lane.rank.span(lane.entered_s, lane.end_s, 1, asked) for lane in self._lanes if lane.end_s < inf]

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [self._pool]

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return len(self._waiting)


def _group_pool(limits: RankLimits) -> GroupPool:
    if limits.caches_states:
        return StatePool(limits.num_gpu_blocks, limits.block_size, limits.kv_groups)
    return GroupPool(limits.num_gpu_blocks, limits.block_size, limits.kv_groups, limits.enable_prefix_caching)


class StagesEngine(Unsplit):
    """One replica whose layers are spread over *stages* groups of GPUs, under vLLM's rules."""

    def __init__(self, steptime: StepTime, limits: RankLimits, stages: int, asynchronous: bool = False) -> None:
        self._steptime = steptime
        grouped = limits.kv_groups != (None,)
        self._pool = _group_pool(limits) if grouped else limits.new_pool()
        self._waiting = limits.new_queue()
        self._depth = stages + asynchronous
        self._limits = limits = replace(limits, batches_in_flight=self._depth)
        schedule = StateSchedule if limits.caches_states else GroupSchedule if grouped else StageSchedule
        self._schedule = schedule(limits, self._pool, self._waiting, stages if asynchronous else 0)
        self._flying: deque[Launch] = deque()
        self._stage_free_s = [0.0] * stages
        self._waits = False
        """Nothing is formed before the oldest batch has ended."""
        self._evicted: list[Flying] = []
        self._meters = Meters()
        self._sharing = False

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `Engine.offer`."""
        sequence = Flying(request, prompt_only)
        if not self._limits.serves(sequence):
            request.rejected = True
            return False
        self._waiting.add(sequence)
        return not self._waits

    def evict(self, request: Request, now: float) -> Progress:
        """See `Engine.evict`: seat and blocks are free when the oldest batch ends."""
        self._schedule.dissolve()
        waiting = self._waiting.remove(request)
        if isinstance(waiting, Flying):
            self._pool.forget(waiting)
            waiting.gone = True
            return Progress(0, waiting.made)
        one = next(one for one in self._schedule.running if one.request is request)
        one.gone = True
        if self._waits:
            self._evicted.append(one)
        else:
            self._schedule.leave(one)
        return Progress(max(0, one.computed - one.flying), one.made)

    def crash(self, now: float) -> None:
        """See `Engine.crash`."""
        for launch in self._flying:
            self._book(launch, launch.stage_s * launch.flown(now), 0)
        self._drop_evicted()
        for launch in self._flying:
            self._schedule.update(launch, now)
        self._flying.clear()
        self._waits = False
        self._stage_free_s = [now] * len(self._stage_free_s)

    def plan(self, now: float) -> float:
        """See `Engine.plan`."""
        while not self._waits and len(self._flying) < self._depth and (self._waiting or self._schedule.running):
            launch = self._schedule.form(now)
            if launch is not None:
                self._enter(launch, now)
            elif self._flying:
                break
        self._waits = bool(self._flying)
        return self._flying[0].end_s if self._flying else inf

    def _enter(self, launch: Launch, now: float) -> None:
        leap = self._steptime.leap(launch.batch)
        launch.stage_s, launch.load = leap.first_s, leap.load
        ready_s = max([one.last_end_s for one in launch.chunks], default=now)
        ready_s = max(now, ready_s, launch.ready_s)
        launch.entered_s = max(ready_s, self._stage_free_s[0])
        launch.end_s = pass_through(self._stage_free_s, ready_s, leap)
        for one in launch.sampled:
            one.last_end_s = launch.end_s
        if launch.cohort is not None:
            launch.cohort.last_end_s = launch.end_s
        self._flying.append(launch)
        self._meters.cached_tokens += self._schedule.cached_in_step

    def advance(self) -> list[Request]:
        """See `Engine.advance`: the oldest batch leaves the last stage."""
        launch = self._flying.popleft()
        self._waits = False
        self._book(launch, launch.stage_s, 1)
        self._drop_evicted()
        return self._schedule.update(launch, launch.end_s)

    def _book(self, launch: Launch, busy_s: float, whole_steps: int) -> None:
        """*launch* has kept a stage busy for *busy_s*, and its one step is made or is not."""
        book(self._meters, launch, busy_s, launch.load * busy_s, whole_steps)
        if self._sharing:
            self._share(launch, busy_s)

    def _drop_evicted(self) -> None:
        for one in self._evicted:
            if one in self._schedule.running:
                self._schedule.leave(one)
        self._evicted.clear()

    def _share(self, launch: Launch, elapsed_s: float) -> None:
        """Shares out the time of *launch* up to *elapsed_s* among its tokens."""
        batch = launch.batch
        token_s = (elapsed_s - launch.shared_s) / (batch.decode_seqs + batch.prefill_tokens)
        launch.shared_s = elapsed_s
        prompts = set()
        for one, first_time, again, _ in launch.parts:
            one.busy.prefill_s += token_s * first_time
            one.busy.recompute_s += token_s * again
            prompts.add(one)
        for one in launch.chunks:
            if one not in prompts:
                one.busy.decode_s += token_s

    def meters(self, now: float) -> Meters:
        """See `Engine.meters`; busy time is that of one stage, `sequence_s` that of the mean batch."""
        totals = copy(self._meters)
        totals.preemptions = self._schedule.preemptions
        totals.kv_peak_blocks = self._pool.peak
        for launch in self._flying:
            flown_s = launch.stage_s * launch.flown(now)
            book(totals, launch, flown_s, launch.load * flown_s, 0)
        return totals

    def share_time(self, on: bool, now: float) -> None:
        """See `Engine.share_time`."""
        self._sharing = on
        self._schedule.by_itself(on)
        for launch in self._flying:
            flown_s = launch.stage_s * launch.flown(now)
            if on:
                launch.shared_s = flown_s
            else:
                self._share(launch, flown_s)

    def under_way(self, asked: int = -1) -> list[Span]:
        """See `Engine.under_way`."""
        self._schedule.dissolve()
        return [launch.span(self._schedule.place(asked)) for launch in self._flying]

    def caches(self) -> list[BlockPool]:
        """See `Engine.caches`."""
        return [self._pool]

    def waiting(self) -> int:
        """See `Engine.waiting`."""
        return len(self._waiting)
