"""The engines of one pool: schedulers by its batching policy and parallelism, behind the API server's intake.

`replica_engines` builds the engines. `Acceptance` draws how many tokens of a speculative draft an engine accepts.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from sim.batching import Dynamic, EngineOptions, PrefillFirst, QueueLimits, RegisteredBatching, Reserve, Slots
from sim.batching.limits import Speculative, VllmLimits
from sim.batching.policies import MICRO_BATCH_TOKENS
from sim.batching.sharing import Swapped
from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.dynamic_batching import DynamicEngine
from sim.engine.kv.tiers import Tier, Tiers
from sim.engine.limits import SchedulerLimits
from sim.engine.lora import AdapterSlots
from sim.engine.multi_model import SleepModeEngine, TimeSharedEngine
from sim.engine.pipeline import PipelineEngine, StagesEngine
from sim.engine.protocol import ReplicaEngine
from sim.engine.schedulers.kv_groups import GroupScheduler
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler, SglangScheduler
from sim.engine.schedulers.reserve import (
    BatchWaitingScheduler,
    MaxUtilizationScheduler,
    OverlapScheduler,
    ReserveScheduler,
    UnifiedCacheScheduler,
)
from sim.engine.schedulers.scheduler import Scheduler
from sim.engine.schedulers.speculative import AsyncDraftScheduler, DraftScheduler
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.synchronous import BalancedLockstepEngine, LateOutputEngine, LockstepEngine, VllmEngine
from sim.fleet.intake import IntakeEngine, SequentialIntakeEngine
from sim.memory.kv_cache import SequenceCache
from sim.memory.weights import KvTier
from sim.message import Message
from sim.records import Batch, Request
from sim.scenario.resolving.resolved import AdapterPlan, PoolPlan
from sim.units import GB

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
    known: dict[int, SchedulerLimits] = {}

    def limits_of(one: PoolPlan) -> SchedulerLimits:
        if id(one) not in known:
            adapters = _new_adapters(one.adapters) if one.adapters is not None else None
            known[id(one)] = replace(rank_limits(one), new_tiers=new_tiers, new_adapters=adapters)
        return known[id(one)]

    engines = [_engine(pool, draws, limits_of) for _ in range(pool.replicas * pool.engines_per_replica)]
    if not pool.intake_s and not pool.turn_s:
        return engines
    limits = rank_limits(pool)
    if not pool.intake_s:
        return [SequentialIntakeEngine(engine, pool.turn_s, limits.serves) for engine in engines]
    return [IntakeEngine(engine, pool.intake_s, limits.serves) for engine in engines]


def tiers_of(pool: PoolPlan) -> Callable[[], Tiers]:
    """Return a function that builds the tiers below one engine's KV cache; shared tiers are the same objects."""
    cache, block_size = pool.sequence_cache, pool.batching.block_size
    common = {tier.name: _tier(tier, tier.capacity_gb * GB, pool) for tier in pool.kv_tiers if tier.shared}
    recompute_s = block_size * _recompute_s_per_token(pool)
    # without windows and states the bytes of a block are the same wherever it lies in a sequence
    beside = cache.beside_bytes if cache != SequenceCache(cache.token_bytes) else None

    def made() -> Tiers:
        own_gb = GB / pool.engines_per_replica
        tiers = [common.get(tier.name) or _tier(tier, tier.capacity_gb * own_gb, pool) for tier in pool.kv_tiers]
        return Tiers(tiers, recompute_s, block_size, beside)

    return made


def _tier(tier: KvTier, capacity_bytes: float, pool: PoolPlan) -> Tier:
    cache, block_size = pool.sequence_cache, pool.batching.block_size
    usual = pool.usual_tokens or block_size
    # vLLM stores states at the end of each step of a prompt (`mamba_cache_mode: align`)
    prompt_tokens = min(usual, pool.batching.step_tokens or usual)
    blocks = int(capacity_bytes / (cache.stored_token_bytes(prompt_tokens) * block_size))
    read_s = cache.token_bytes * block_size / tier.read_bytes_per_s
    return Tier(blocks, read_s, tier.latency_s, tier.write == "through", tier.read_bytes_per_s)


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


def _engine(pool: PoolPlan, draws: Draws, limits_of: Callable[[PoolPlan], SchedulerLimits]) -> ReplicaEngine:
    """Return an engine of *pool*; those of one pool share the limits from *limits_of*."""
    batching = pool.batching
    if pool.models:
        return _multi_model_engine(pool, [_engine(one, draws, limits_of) for one in pool.models])
    if isinstance(batching, Dynamic):
        mps = batching.sharing == "mps"
        sizes = (batching.max_batch_size, batching.max_queue_delay_s, batching.instances)
        return DynamicEngine(pool.steptime, *sizes, mps)
    limits, schedule = limits_of(pool), _scheduler_class(pool)
    grouped = limits.kv_groups != (None,)
    in_flight = pool.pipeline_parallel_size > 1 or limits.caches_states
    if in_flight and schedule is VllmScheduler and isinstance(batching, VllmLimits):
        return StagesEngine(pool.steptime, limits, pool.pipeline_parallel_size, bool(batching.async_scheduling))
    if grouped and schedule is VllmScheduler and isinstance(batching, VllmLimits):
        if not batching.async_scheduling:
            return VllmEngine(pool.steptime, limits, GroupScheduler)
        return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), GroupScheduler)
    if pool.pipeline_parallel_size > 1:
        stages = pool.pipeline_parallel_size
        if isinstance(batching, Slots):
            return PipelineEngine(pool.steptime, limits, stages, schedule, 1, MICRO_BATCH_TOKENS)
        reserves = isinstance(batching, Reserve)
        lane_seqs = limits.max_num_seqs if reserves else None  # TensorRT-LLM's max_batch_size is that of one batch
        if schedule is SglangScheduler:  # pp_max_micro_batch_size
            lane_seqs = max(1, limits.max_num_seqs // stages)
        return PipelineEngine(pool.steptime, limits, stages, schedule, one_scheduler=reserves, lane_seqs=lane_seqs)
    if pool.lockstep and isinstance(batching, Reserve) and batching.attention_dp_timeout_iters:
        return BalancedLockstepEngine(pool.steptime, limits, pool.data_parallel_size)
    ahead = _scheduler_ahead(batching, schedule)
    if pool.lockstep and ahead is not None:
        return AsyncLockstepEngine(pool.steptime, limits, pool.data_parallel_size, ahead)
    if pool.lockstep:
        return LockstepEngine(pool.steptime, limits, pool.data_parallel_size, schedule)
    if isinstance(batching, VllmLimits) and batching.speculative is not None:
        drafts = Acceptance(batching.speculative, draws)
        limits = replace(limits, draft_tokens=batching.speculative.num_speculative_tokens, accepts=drafts)
        if batching.async_scheduling:
            return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), AsyncDraftScheduler)
        return VllmEngine(pool.steptime, limits, DraftScheduler)
    if ahead is not None:
        return AsyncEngine(pool.steptime, limits, ahead)
    if isinstance(batching, PrefillFirst) and batching.late_output:
        return LateOutputEngine(pool.steptime, limits, schedule)
    return VllmEngine(pool.steptime, limits, schedule)


def _scheduler_ahead(batching: Any, schedule: Any) -> type[VllmScheduler] | None:
    """Return the scheduler of ranks that form each step one ahead; None if they form it when it begins."""
    if isinstance(batching, VllmLimits):
        return VllmScheduler if batching.async_scheduling and schedule is VllmScheduler else None
    if isinstance(batching, PrefillFirst):
        return SglangScheduler if batching.overlap_schedule else None
    if isinstance(batching, Reserve) and batching.overlap_scheduler and schedule is ReserveScheduler:
        return OverlapScheduler
    return None


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
    values |= {"overlaps_chunks": pool.overlaps_chunks, "overlaps_batches": pool.overlaps_batches}
    values["padded_tokens"] = pool.padded_tokens
    values |= {"block_size": batching.block_size, "window": pool.steptime.window}
    return SchedulerLimits(**values)
