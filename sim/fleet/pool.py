"""The engines of one pool: schedulers by its batching policy and parallelism, behind the API server's intake.

`replica_engines` builds the engines. `IntakeEngine` and `SequentialIntakeEngine` put an engine behind an API server,
whose one thread reads requests in. `Acceptance` draws how many tokens of a speculative draft an engine accepts.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from sim.batching import Dynamic, EngineOptions, PrefillFirst, QueueLimits, RegisteredBatching, Reserve, Slots
from sim.batching.limits import Speculative, VllmLimits
from sim.batching.policies import MICRO_BATCH_TOKENS
from sim.batching.sharing import Swapped
from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.dynamic_batching import DynamicEngine
from sim.engine.kv.blocks import BlockPool
from sim.engine.kv.tiers import Tier, Tiers
from sim.engine.limits import SchedulerLimits
from sim.engine.lora import AdapterSlots
from sim.engine.multi_model import SleepModeEngine, TimeSharedEngine
from sim.engine.pipeline import PipelineEngine, StagesEngine
from sim.engine.protocol import KvTransit, ReplicaEngine
from sim.engine.schedulers.kv_groups import GroupScheduler
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler, SglangScheduler
from sim.engine.schedulers.reserve import (
    BatchWaitingScheduler,
    MaxUtilizationScheduler,
    ReserveScheduler,
    UnifiedCacheScheduler,
)
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.speculative import AsyncDraftScheduler, DraftScheduler
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.sequence import Sequence
from sim.engine.synchronous import LateOutputEngine, LockstepEngine, VllmEngine
from sim.memory.weights import KvTier
from sim.message import Message
from sim.records import Batch, Meters, ReplicaProgress, Request, StepSpan
from sim.scenario.resolving.resolved import AdapterPlan, PoolPlan
from sim.units import GB

PendingRequest = tuple[Request, bool]
"""A request, and whether only its prompt is wanted."""


class IntakeEngine:
    """Engine behind an API server whose event loop reads requests in turns, *intake_s* per request.

    All requests that have come when a turn begins are read in that turn; the engine gets them together at its end.
    Requests that come during a turn form the next one. An event loop handles everything that is ready before it polls
    again: of a thousand requests that come at once, none reaches the engine before the last has been read.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        self.engine = engine
        self._intake_s = intake_s
        self._serves = serves
        self._turn: list[PendingRequest] = []
        self._next: list[PendingRequest] = []
        self._turn_end_s = inf
        self._engine_end_s = inf
        self._with_kv: set[Request] = set()
        """Requests that came with the KV of their prompts from another replica, past the API server."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._with_kv:
            self._with_kv.discard(request)
            return self.engine.offer(request, now, prompt_only)
        if not self._serves(Sequence(request, prompt_only)):
            request.rejected = True
            return False
        self._next.append((request, prompt_only))
        if self._turn_end_s < inf:
            return False
        self._begin_turn(now)
        return True

    def _begin_turn(self, now: float) -> None:
        self._turn, self._next = self._next, []
        self._turn_end_s = now + self._intake_s * len(self._turn) if self._turn else inf

    def kv_transit(self) -> KvTransit | None:
        """See `ReplicaEngine.kv_transit`."""
        return None if self.engine.kv_transit() is None else self

    def reserve(self, request: Request, now: float) -> bool:
        """See `KvTransit.reserve`."""
        transit = self.engine.kv_transit()
        if transit is None or not transit.reserve(request, now):
            return False
        self._with_kv.add(request)
        return True

    def release_kv(self, request: Request, now: float) -> None:
        """See `KvTransit.release_kv`."""
        self._with_kv.discard(request)
        if (transit := self.engine.kv_transit()) is not None:
            transit.release_kv(request, now)

    def evict(self, request: Request, now: float) -> ReplicaProgress:
        """See `ReplicaEngine.evict`. Evicting a request does not shorten the turn in which it would have been read."""
        for held in (self._turn, self._next):
            for taken in held:
                if taken[0] is request:
                    held.remove(taken)
                    return ReplicaProgress(0, 0)
        return self.engine.evict(request, now)

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        self._turn, self._next, self._turn_end_s = [], [], inf
        self._with_kv.clear()
        self.engine.crash(now)

    def plan(self, now: float) -> float:
        """See `ReplicaEngine.plan`."""
        self._engine_end_s = self.engine.plan(now)
        return min(self._engine_end_s, self._turn_end_s)

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        turn_end_s, engine_end_s = self._turn_end_s, self._engine_end_s
        if turn_end_s <= engine_end_s:
            for request, prompt_only in self._turn:
                self.engine.offer(request, turn_end_s, prompt_only)
            self._begin_turn(turn_end_s)
        return self.engine.advance() if engine_end_s <= turn_end_s else []

    def meters(self, now: float) -> Meters:
        """See `ReplicaEngine.meters`."""
        return self.engine.meters(now)

    def share_time(self, on: bool, now: float) -> None:
        """See `ReplicaEngine.share_time`."""
        self.engine.share_time(on, now)

    def under_way(self, request_index: int = -1) -> list[StepSpan]:
        """See `ReplicaEngine.under_way`."""
        return self.engine.under_way(request_index)

    def caches(self) -> list[BlockPool]:
        """See `ReplicaEngine.caches`."""
        return self.engine.caches()

    def kv_usage(self, now: float) -> float:
        """See `ReplicaEngine.kv_usage`."""
        return self.engine.kv_usage(now)

    def adapters(self) -> list[AdapterSlots]:
        """See `ReplicaEngine.adapters`."""
        return self.engine.adapters()

    def last_waiting(self) -> Request | None:
        """See `ReplicaEngine.last_waiting`. Only requests that the engine has are considered."""
        return self.engine.last_waiting()

    def waiting(self) -> int:
        """See `ReplicaEngine.waiting`. Requests that have yet to be read count."""
        return len(self._turn) + len(self._next) + self.engine.waiting()


class SequentialIntakeEngine(IntakeEngine):
    """Engine behind an API server that reads requests one after another and passes each on as soon as it is read.

    A single request is not delayed here: its reading time is part of the time before its first token. Requests that
    come together, such as those of a benchmark's clients, reach the engine *intake_s* apart, so that the engine begins
    with the first while the others are read; clients that began together desynchronise.
    """

    def __init__(self, engine: ReplicaEngine, intake_s: float, serves: Callable[[Sequence], bool]) -> None:
        super().__init__(engine, intake_s, serves)
        self._free_s = -inf
        """Time at which the thread has read all requests so far [s]."""

    def offer(self, request: Request, now: float, prompt_only: bool = False) -> bool:
        """See `ReplicaEngine.offer`."""
        if request in self._with_kv or self._turn_end_s < inf or now < self._free_s:
            return super().offer(request, now, prompt_only)
        if self._serves(Sequence(request, prompt_only)):
            self._free_s = now + self._intake_s
        return self.engine.offer(request, now, prompt_only)

    def _begin_turn(self, now: float) -> None:
        self._turn, self._next = self._next[:1], self._next[1:]
        self._turn_end_s = self._free_s if self._turn else inf

    def advance(self) -> list[Request]:
        """See `ReplicaEngine.advance`."""
        if self._turn_end_s <= self._engine_end_s and self._turn:
            self._free_s = self._turn_end_s + self._intake_s
        return super().advance()

    def crash(self, now: float) -> None:
        """See `ReplicaEngine.crash`."""
        super().crash(now)
        self._free_s = -inf


Draws = Callable[[str], np.random.Generator]
"""Function from a stream name to a fresh random generator."""


class Acceptance:
    """Number of draft tokens accepted per step of an answer: a given mean, or drawn once for the whole answer.

    The number of steps of the answer is drawn: each step accepts the drafts before the first rejected one, and each
    draft is accepted with the probability of its position, independently of other steps. The answer's tokens are then
    spread evenly over its steps, so that the steps of a batch stay alike.
    """

    def __init__(self, spec: Speculative, draws: Draws) -> None:
        self._accepted = spec.accepted
        self._rates = np.array(spec.rates)
        self._draws = draws

    def __call__(self, request: Request, tokens: int) -> float:
        """Return the drafts accepted per step of the next *tokens* of the answer to *request*."""
        if self._accepted is not None:
            return self._accepted
        draws = self._draws(f"drafts of {request.index}")
        holds = draws.random((max(1, tokens), len(self._rates))) < self._rates
        made = np.cumsum(1 + np.cumprod(holds, axis=1).sum(axis=1))
        steps = int(np.searchsorted(made, tokens)) + 1
        return max(1.0, tokens / steps) - 1


SCHEDULERS: dict[str, type[Scheduler]] = {
    "vllm": VllmScheduler,
    "prefill_first": PrefillFirstScheduler,
    "reserve": ReserveScheduler,
    "slots": ReserveScheduler,
    "static": StaticScheduler,
}


def replica_engines(pool: PoolPlan, draws: Draws) -> list[ReplicaEngine]:
    """Return the engines of *pool*; *draws* maps names to random streams.

    Data-parallel ranks that need not step together are separate engines.
    """
    new_tiers = tiers_of(pool) if pool.kv_tiers else None
    engines = [_engine(pool, draws, new_tiers) for _ in range(pool.replicas * pool.engines_per_replica)]
    if not pool.intake_s and not pool.turn_s:
        return engines
    limits = rank_limits(pool)
    if not pool.intake_s:
        return [SequentialIntakeEngine(engine, pool.turn_s, limits.serves) for engine in engines]
    return [IntakeEngine(engine, pool.intake_s, limits.serves) for engine in engines]


def tiers_of(pool: PoolPlan) -> Callable[[], Tiers]:
    """Return a function that builds the tiers below one engine's KV cache; shared tiers are the same objects."""
    block_bytes = pool.kv_bytes_per_token * pool.batching.block_size
    common = {tier.name: _tier(tier, tier.capacity_gb * GB, block_bytes) for tier in pool.kv_tiers if tier.shared}
    recompute_s = pool.batching.block_size * _recompute_s_per_token(pool)

    def made() -> Tiers:
        own_gb = GB / pool.engines_per_replica
        tiers = [common.get(tier.name) or _tier(tier, tier.capacity_gb * own_gb, block_bytes) for tier in pool.kv_tiers]
        return Tiers(tiers, recompute_s)

    return made


def _tier(tier: KvTier, capacity_bytes: float, block_bytes: float) -> Tier:
    read_s = block_bytes / tier.read_bytes_per_s
    return Tier(int(capacity_bytes / block_bytes), read_s, tier.latency_s, tier.write == "through")


def _recompute_s_per_token(pool: PoolPlan) -> float:
    """Return the mean time that one more prompt token adds to a step, from half to all of the token budget [s]."""
    whole = pool.batching.max_num_batched_tokens or 1
    half = max(1, whole // 2)

    def step_s(tokens: int) -> float:
        pairs = tokens * (tokens + 1) // 2
        return pool.steptime.leap(
            Batch(prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=pairs, sampled_seqs=1)
        ).first_s

    return (step_s(whole) - step_s(half)) / (whole - half) if whole > half else step_s(1)


def _engine(pool: PoolPlan, draws: Draws, new_tiers: Callable[[], Tiers] | None) -> ReplicaEngine:
    batching = pool.batching
    if pool.models:
        return _multi_model_engine(pool, [_engine(one, draws, new_tiers) for one in pool.models])
    if isinstance(batching, Dynamic):
        mps = batching.sharing == "mps"
        sizes = (batching.max_batch_size, batching.max_queue_delay_s, batching.instances)
        return DynamicEngine(pool.steptime, *sizes, mps)
    limits, schedule = replace(rank_limits(pool), new_tiers=new_tiers), _scheduler_class(pool)
    if pool.adapters is not None:
        limits = replace(limits, new_adapters=_new_adapters(pool.adapters))
    grouped = limits.kv_groups != (None,)
    in_flight = pool.pipeline_parallel_size > 1 or limits.caches_states
    if in_flight and schedule is VllmScheduler and isinstance(batching, VllmLimits):
        return StagesEngine(pool.steptime, limits, pool.pipeline_parallel_size, bool(batching.async_scheduling))
    if grouped and schedule is VllmScheduler and isinstance(batching, VllmLimits):
        if not batching.async_scheduling:
            return VllmEngine(pool.steptime, limits, GroupScheduler)
        return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), GroupScheduler)
    if pool.pipeline_parallel_size > 1:
        lanes, piece_tokens = (1, MICRO_BATCH_TOKENS) if isinstance(pool.batching, Slots) else (None, None)
        lane_of = (pool.pipeline_parallel_size, schedule, lanes, piece_tokens)
        return PipelineEngine(pool.steptime, limits, *lane_of, one_scheduler=isinstance(batching, Reserve))
    if pool.lockstep and isinstance(batching, VllmLimits) and batching.async_scheduling and schedule is VllmScheduler:
        return AsyncLockstepEngine(pool.steptime, limits, pool.data_parallel_size)
    if pool.lockstep:
        return LockstepEngine(pool.steptime, limits, pool.data_parallel_size, schedule)
    if isinstance(batching, VllmLimits) and batching.speculative is not None:
        drafts = Acceptance(batching.speculative, draws)
        limits = replace(limits, draft_tokens=batching.speculative.num_speculative_tokens, accepts=drafts)
        if batching.async_scheduling:
            return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), AsyncDraftScheduler)
        return VllmEngine(pool.steptime, limits, DraftScheduler)
    if isinstance(batching, VllmLimits) and batching.async_scheduling and schedule is VllmScheduler:
        return AsyncEngine(pool.steptime, limits)
    if isinstance(batching, PrefillFirst) and batching.overlap_schedule:
        return AsyncEngine(pool.steptime, limits, SglangScheduler)
    if isinstance(batching, PrefillFirst) and batching.late_output:
        return LateOutputEngine(pool.steptime, limits, schedule)
    return VllmEngine(pool.steptime, limits, schedule)


def _new_adapters(plan: AdapterPlan) -> Callable[[], AdapterSlots]:
    return lambda: AdapterSlots(plan.on_gpu, plan.in_host, plan.swap_s, plan.fetch_s)


def _multi_model_engine(pool: PoolPlan, engines: list[ReplicaEngine]) -> TimeSharedEngine:
    """Return one engine that runs the *engines* of several models in turn."""
    able = [engine for engine in engines if isinstance(engine, VllmEngine)]
    if len(able) < len(engines):
        raise ValueError(Message("pool {name}: only engines of one rank share a replica", pool.name))
    of_service = {service: place for place, one in enumerate(pool.models) for service in one.served}
    if not isinstance(pool.sharing, Swapped):
        return TimeSharedEngine(able, of_service)
    wake_s = [sum(stage.alone_s for stage in one.start.wake) for one in pool.models]
    return SleepModeEngine(able, of_service, wake_s, pool.sharing.max_awake_s)


def _scheduler_class(pool: PoolPlan) -> Any:
    """Return the scheduler's constructor, which gets a rank's limits, its KV blocks and its waiting queue."""
    batching = pool.batching
    if isinstance(batching, Reserve) and batching.capacity_scheduler_policy == "max_utilization":
        return MaxUtilizationScheduler
    if isinstance(batching, Reserve) and batching.batch_wait_timeout_iters:
        return BatchWaitingScheduler
    if isinstance(batching, PrefillFirst) and batching.schedule_conservativeness is not None:
        return SglangScheduler
    if isinstance(batching, Slots) and batching.kv_unified:
        return UnifiedCacheScheduler
    if not isinstance(batching, RegisteredBatching):
        return SCHEDULERS[batching.policy]
    if batching.order is not None:
        return VllmScheduler
    return lambda limits, blocks, waiting: batching.made(limits=limits, pool=blocks, waiting=waiting)


def rank_limits(pool: PoolPlan) -> SchedulerLimits:
    """Return the scheduler limits of one rank of *pool*. Raises ValueError where one is not resolved."""
    batching = pool.batching
    values: dict[str, Any] = {
        name: getattr(batching, name)
        for name in ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    }
    values["max_num_batched_tokens"] = batching.step_tokens
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ValueError(Message("pool {name}: {missing} not resolved", pool.name, ", ".join(missing)))
    values["options"] = EngineOptions.model_construct(**dict(batching))
    if isinstance(batching, QueueLimits):
        values |= {"enable_prefix_caching": bool(batching.enable_prefix_caching), "scheduling": batching.scheduling}
    if isinstance(batching, VllmLimits):
        values |= {"chunked_prefill": batching.enable_chunked_prefill, "kv_groups": batching.windows}
    if isinstance(batching, RegisteredBatching):
        values["order"] = batching.order
    if isinstance(batching, PrefillFirst):
        values["chunked_prefill"] = batching.chunked_prefill_size is not None
    if isinstance(batching, Reserve):
        values["chunked_prefill"] = bool(batching.enable_chunked_prefill)
        values["batch_wait_tokens"] = batching.batch_wait_max_tokens_ratio * (batching.max_num_batched_tokens or 0)
    values |= {"block_size": batching.block_size, "window": pool.steptime.window, "padded_tokens": pool.padded_tokens}
    return SchedulerLimits(**values)
