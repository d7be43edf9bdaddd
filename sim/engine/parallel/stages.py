"""Pipeline parallelism as vLLM V1 does it: a queue of batches, formed whenever the oldest one leaves the last stage.

As many batches are in flight as there are stages, one more where steps are formed ahead (`EngineCore.
step_with_batch_queue`). After a batch the next one is formed at once, until the queue is full or nothing can be
scheduled; then nothing is formed until the oldest batch has ended, and requests that arrive wait for that. A batch
enters a stage when it has left the one before and the stage is free, and the first one not before the last tokens of
its requests have left the last one; the step-time model gives the time of one stage.
"""

from collections import deque
from copy import copy
from dataclasses import replace
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.groups import GroupPool
from sim.engine.kv.states import StatePool
from sim.engine.limits import RankLimits
from sim.engine.metering import book
from sim.engine.parallel.passage import pass_through
from sim.engine.parallel.unsplit import Unsplit
from sim.engine.schedulers.groups import GroupSchedule, StateSchedule
from sim.engine.schedulers.stages.launches import Flying, Launch
from sim.engine.schedulers.stages.schedule import StageSchedule
from sim.records import Meters, Progress, Request, Span, StepTime


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
