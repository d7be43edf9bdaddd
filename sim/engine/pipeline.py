"""Engines of replicas with pipeline parallelism: several batches are in flight over the stages of one replica.

A batch enters a stage when it has left the previous stage and the stage is free; the step-time model gives the time of
one stage. Two engines form the batches by different rules.

`PipelineEngine` forms batches of the requests in no batch, until as many batches as stages are in flight or none can be
scheduled; the next one is formed when the oldest has ended, and requests that arrive in between wait for that. Requests
admitted together stay together, so each batch is a lane of its own. Lanes share KV blocks and the queue. A virtual
engine of vLLM V0 has its share of the requests. In TensorRT-LLM and SGLang a lane admits all that wait, up to the token
budget and its own limit of requests (max_batch_size, pp_max_micro_batch_size), so that few requests which come together
leave the other stages idle. Up to TensorRT-LLM 0.10 the batches take turns: one enters the first stage when the one
before it has left the last. In SGLang, and in TensorRT-LLM from 1.2 on (`py_executor.py`, `_add_inflight_ids`), the
batch that is formed next, in whichever lane, continues a prompt that was cut: its chunks follow each other through the
stages. Where prompts are computed in pieces (llama.cpp), a stage passes each piece of a batch on as soon as it is
computed, and a batch that yields no token makes room for the next one when it has left the first stage.

`StagesEngine` follows vLLM V1 (`EngineCore.step_with_batch_queue`): as many batches are in flight as there are stages,
one more if steps are formed ahead, and batches are formed at the same times. A batch enters the first stage once the
previous tokens of its requests have left the last stage. From 0.16 to 0.21 batches take turns unless `async_scheduling`
is off, because each stage waits for the tokens that the last one samples
(`_pp_receive_prev_sampled_token_ids_to_input_batch` in `v1/worker/gpu_model_runner.py`); a request decodes in every
batch, formed ahead.
"""

from abc import abstractmethod
from collections import deque
from copy import copy
from dataclasses import replace
from math import inf

from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.group_pool import GroupPool, StatePool
from sim.engine.limits import SchedulerLimits
from sim.engine.metering import book
from sim.engine.protocol import NoKvTransfer
from sim.engine.schedulers.kv_groups import GroupPipelineScheduler, StatePipelineScheduler
from sim.engine.schedulers.pipeline import InFlightBatch, InFlightSequence, PipelineScheduler, PipelineTiming
from sim.engine.schedulers.scheduler import Scheduler, switch_shares
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.schedulers.waiting_queue import WaitingQueue
from sim.engine.sequence import Sequence
from sim.records import Batch, Meters, ReplicaProgress, Request, StepSpan, StepTime


class PipelineLane(PipelineTiming):
    """Scheduler of one lane, with the times of its batch in flight."""

    __slots__ = ("rank",)

    def __init__(self, rank: Scheduler) -> None:
        super().__init__()
        self.rank = rank


class StagedEngine(NoKvTransfer):
    """Base of the engines whose layers are spread over several groups of GPUs, the stages."""

    def __init__(
        self, steptime: StepTime, limits: SchedulerLimits, pool: BlockPool, waiting: WaitingQueue, stages: int
    ) -> None:
        self._steptime = steptime
        self._limits = limits
        self._pool = pool
        self._waiting = waiting
        self._stage_free_s = [0.0] * stages
        self._meters = Meters()
        self._sharing = False
        self._waits = False
        """True if no batch is formed before the oldest one in flight has ended."""

    @abstractmethod
    def _preemptions(self) -> int:
        """Return the number of preemptions so far."""

    @abstractmethod
    def _in_flight(self) -> list[tuple[Batch, int, str, PipelineTiming]]:
        """Return the batches in flight: batch, recomputed tokens, `StepSpan.blocked_by`, and times in the stages."""

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`; busy time is that of one stage, `sequence_s` that of the mean batch."""
        totals = copy(self._meters)
        totals.preemptions = self._preemptions()
        totals.kv_peak_blocks = self._pool.peak
        for batch, recomputed, blocked_by, timing in self._in_flight():
            busy_s = timing.busy_s(now)
            load_s, second_load_s = timing.load * busy_s, timing.second_load * busy_s
            book(totals, batch, recomputed, blocked_by, busy_s, load_s, 0, second_load_s)
        return totals

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return [self._pool]

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`."""
        return len(self._waiting)


class PipelineEngine(StagedEngine):
    """Replica with pipeline stages under any policy, whose requests are divided into lanes."""

    def __init__(
        self,
        steptime: StepTime,
        limits: SchedulerLimits,
        stages: int,
        schedule: type[Scheduler] = VllmScheduler,
        lanes: int | None = None,
        piece_tokens: int | None = None,
        one_scheduler: bool = False,
        lane_seqs: int | None = None,
    ) -> None:
        """Create the lanes, each with a scheduler of class *schedule*.

        *lanes* is the most batches in flight (default: one per stage; with 1, batches pass the stages one after the
        other). *piece_tokens*: prompt tokens per piece, if prompts are computed in pieces.
        *one_scheduler*: whether the time to form a batch depends on the running requests of all lanes.
        *lane_seqs*: most requests of one lane (default: its share of those here, up to `max_num_seqs` in all lanes).
        """
        super().__init__(steptime, limits, limits.new_pool(), limits.new_queue(), stages)
        self._lanes = [PipelineLane(schedule(limits, self._pool, self._waiting)) for _ in range(lanes or stages)]
        self._piece_tokens, self._one_scheduler, self._lane_seqs = piece_tokens, one_scheduler, lane_seqs
        self._aborted: list[Request] = []
        """Requests that their lanes have aborted and that leave now."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        sequence = Sequence(request, prompt_only)
        if self._limits.refuses(sequence):
            return False
        self._waiting.add(sequence)
        return not self._waits

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`: a batch in flight keeps *request* until it leaves the last stage."""
        waiting = self._waiting.remove(request)
        if waiting is not None:
            self._pool.forget(waiting)
            return ReplicaProgress(0, waiting.made)
        lane = next(lane for lane in self._lanes if any(one.request is request for one in lane.rank.running))
        progress = lane.rank.evict(request, 0, stepping=lane.end_s < inf)
        ahead = sum(other.rank.chunk_in_flight(request) for other in self._lanes if other is not lane)
        return replace(progress, computed_tokens=progress.computed_tokens - ahead) if ahead else progress

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        for lane in self._lanes:
            if lane.end_s < inf:
                self._complete(lane, lane.busy_s(now), now, 0)
        self._waits = False
        self._stage_free_s = [now] * len(self._stage_free_s)

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
        # requests that have been in a batch are scheduled before new requests get an empty lane
        for lane in sorted(self._lanes, key=lambda lane: not lane.rank.running):
            if lane.end_s == inf and not self._waits:
                self._launch(lane, now)
        end_s = min(lane.end_s for lane in self._lanes)
        self._waits = end_s < inf
        return now if self._aborted else end_s

    def _launch(self, lane: PipelineLane, now: float) -> None:
        rank = lane.rank
        for other in self._lanes:
            if other is not lane and rank.has_room() and (prompt := other.rank.hand_over_prompt()) is not None:
                rank.take_over_prompt(prompt)
        running = sum(len(other.rank.running) for other in self._lanes)
        others = running - len(rank.running)
        if self._lane_seqs is not None:
            free_seats, rank.max_num_seqs = 0, self._lane_seqs
        else:
            free_seats = self._limits.max_num_seqs - running
            share = -(-(running + len(self._waiting)) // len(self._lanes))
            rank.max_num_seqs = min(len(rank.running) + free_seats, share)
        steps = rank.form(now)
        if free_seats and rank.blocked_by == "seats":
            rank.blocked_by = ""
        if not steps:
            aborted = rank.abort_without_blocks()
            if aborted is not None:
                self._aborted.append(aborted)
            return
        rank.batch.standing_seqs = others if self._one_scheduler else 0
        leap = self._steptime.leap(rank.batch)
        ready_s = now if self._limits.overlaps_batches else max(now, self._stage_free_s[-1])
        lane.enter(leap, self._stage_free_s, ready_s, self._pieces(rank.batch))
        if self._piece_tokens is not None and not rank.batch.sampled_seqs:
            lane.end_s = self._stage_free_s[0]
        self._meters.cached_tokens += rank.cached_in_step

    def _pieces(self, batch: Batch) -> int:
        return -(-max(1, batch.prefill_tokens) // self._piece_tokens) if self._piece_tokens else 1

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`: aborted requests, or the batch that leaves the pipeline first."""
        if self._aborted:
            left, self._aborted = self._aborted, []
            for request in left:
                request.rejected = True
            return left
        self._waits = False
        lane = min(self._lanes, key=lambda lane: lane.end_s)
        return [sequence.request for sequence in self._complete(lane, lane.stage_s, lane.end_s, 1)]

    def _complete(self, lane: PipelineLane, busy_s: float, end_s: float, whole_steps: int) -> list[Sequence]:
        """End the batch of *lane* at *end_s* [s]; return the sequences that leave.

        *whole_steps* is 1 if the batch is complete, 0 if it is dropped.
        """
        rank = lane.rank
        load_s, second_load_s = lane.load * busy_s, lane.second_load * busy_s
        recomputed, blocked_by = rank.recomputed_in_step, rank.blocked_by
        book(self._meters, rank.batch, recomputed, blocked_by, busy_s, load_s, whole_steps, second_load_s)
        if self._sharing:
            lane.rank.share_time(busy_s)
            lane.rank.shares.shared_s = 0.0
        lane.end_s = inf
        return lane.rank.commit(1, end_s)

    def _preemptions(self) -> int:
        return sum(lane.rank.preemptions for lane in self._lanes)

    def _in_flight(self) -> list[tuple[Batch, int, str, PipelineTiming]]:
        working = [(lane.rank, lane) for lane in self._lanes if lane.end_s < inf]
        return [(rank.batch, rank.recomputed_in_step, rank.blocked_by, lane) for rank, lane in working]

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self._sharing = on
        for lane in self._lanes:
            switch_shares(lane.rank, on, lane.busy_s(now) if lane.end_s < inf else 0.0)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        return [
            lane.rank.span(lane.entered_s, lane.end_s, 1, request_index) for lane in self._lanes if lane.end_s < inf
        ]


def _scheduler_of(limits: SchedulerLimits, waiting: WaitingQueue, ahead: int) -> PipelineScheduler:
    """Return the scheduler of pipelined batches for the KV caches of *limits*, with an empty pool of its own."""
    blocks, size, groups = limits.num_gpu_blocks, limits.block_size, limits.kv_groups
    if limits.caches_states:
        return StatePipelineScheduler(limits, StatePool(blocks, size, groups), waiting, ahead)
    if groups == (None,):
        return PipelineScheduler(limits, limits.new_pool(), waiting, ahead)
    pool = GroupPool(blocks, size, groups, limits.enable_prefix_caching)
    return GroupPipelineScheduler(limits, pool, waiting, ahead)


class StagesEngine(StagedEngine):
    """Replica with pipeline stages under vLLM's rules."""

    def __init__(self, steptime: StepTime, limits: SchedulerLimits, stages: int, asynchronous: bool = False) -> None:
        self._in_turn = stages > 1 and not limits.overlaps_batches
        self._depth = stages if self._in_turn else stages + asynchronous
        limits = replace(limits, batches_in_flight=self._depth)
        ahead = 1 if self._in_turn else stages if asynchronous else 0
        self._schedule = _scheduler_of(limits, limits.new_queue(), ahead)
        super().__init__(steptime, limits, self._schedule.pool, self._schedule.waiting, stages)
        self._batches_in_flight: deque[InFlightBatch] = deque()
        self._evicted: list[InFlightSequence] = []
        """Evicted requests that leave when the oldest batch in flight ends."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        sequence = InFlightSequence(request, prompt_only)
        if self._limits.refuses(sequence):
            return False
        self._waiting.add(sequence)
        return not self._waits

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`: the place in the batch and the blocks are free when the oldest batch ends."""
        self._schedule.dissolve()
        waiting = self._waiting.remove(request)
        if isinstance(waiting, InFlightSequence):
            self._pool.forget(waiting)
            waiting.evicted = True
            return ReplicaProgress(0, waiting.made)
        one = next(one for one in self._schedule.running if one.request is request)
        one.evicted = True
        if self._waits:
            self._evicted.append(one)
        else:
            self._schedule.leave(one)
        return ReplicaProgress(max(0, one.computed - one.tokens_in_flight), one.made)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        for in_flight in self._batches_in_flight:
            self._book(in_flight, in_flight.busy_s(now), 0)
        self._drop_evicted()
        for in_flight in self._batches_in_flight:
            self._schedule.update(in_flight, now)
        self._batches_in_flight.clear()
        self._waits = False
        self._stage_free_s = [now] * len(self._stage_free_s)

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
        while (
            not self._waits and len(self._batches_in_flight) < self._depth and (self._waiting or self._schedule.running)
        ):
            in_flight = self._schedule.form(now)
            if in_flight is not None:
                self._enter(in_flight, now)
            elif self._batches_in_flight:
                break
        self._waits = bool(self._batches_in_flight)
        return self._batches_in_flight[0].end_s if self._batches_in_flight else inf

    def _enter(self, in_flight: InFlightBatch, now: float) -> None:
        leap = self._steptime.leap(in_flight.batch)
        ready_s = max([one.last_end_s for one in in_flight.chunks], default=now)
        ready_s = max(now, ready_s, in_flight.ready_s)
        if self._in_turn:
            ready_s = max(ready_s, self._stage_free_s[-1])
        in_flight.enter(leap, self._stage_free_s, ready_s)
        for one in in_flight.sampled:
            one.last_end_s = in_flight.end_s
        if in_flight.cohort is not None:
            in_flight.cohort.last_end_s = in_flight.end_s
        self._batches_in_flight.append(in_flight)
        self._meters.cached_tokens += self._schedule.cached_in_step

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`: the oldest batch leaves the last stage."""
        in_flight = self._batches_in_flight.popleft()
        self._waits = False
        self._book(in_flight, in_flight.stage_s, 1)
        self._drop_evicted()
        return self._schedule.update(in_flight, in_flight.end_s)

    def _book(self, in_flight: InFlightBatch, busy_s: float, whole_steps: int) -> None:
        """Add the busy time of *in_flight* to the meters; *whole_steps* is 1 if the batch is complete, 0 if not."""
        batch, recomputed, blocked_by = in_flight.batch, in_flight.recomputed_in_step, in_flight.blocked_by
        load_s, second_load_s = in_flight.load * busy_s, in_flight.second_load * busy_s
        book(self._meters, batch, recomputed, blocked_by, busy_s, load_s, whole_steps, second_load_s)
        if self._sharing:
            self._share(in_flight, busy_s)

    def _drop_evicted(self) -> None:
        for one in self._evicted:
            if one in self._schedule.running:
                self._schedule.leave(one)
        self._evicted.clear()

    def _share(self, in_flight: InFlightBatch, elapsed_s: float) -> None:
        """Charge the busy time of *in_flight* up to *elapsed_s* [s] to its requests, evenly per new token."""
        batch = in_flight.batch
        token_s = (elapsed_s - in_flight.shared_s) / (batch.decode_seqs + batch.prefill_tokens)
        in_flight.shared_s = elapsed_s
        prompts = set()
        for one, first_time, again, _ in in_flight.parts:
            one.busy.prefill_s += token_s * first_time
            one.busy.recompute_s += token_s * again
            prompts.add(one)
        for one in in_flight.chunks:
            if one not in prompts:
                one.busy.decode_s += token_s

    def _preemptions(self) -> int:
        return self._schedule.preemptions

    def _in_flight(self) -> list[tuple[Batch, int, str, PipelineTiming]]:
        return [(one.batch, one.recomputed_in_step, one.blocked_by, one) for one in self._batches_in_flight]

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self._sharing = on
        self._schedule.use_cohorts(not on)
        for in_flight in self._batches_in_flight:
            busy_s = in_flight.busy_s(now)
            if on:
                in_flight.shared_s = busy_s
            else:
                self._share(in_flight, busy_s)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        self._schedule.dissolve()
        return [in_flight.span(self._schedule.place(request_index)) for in_flight in self._batches_in_flight]
