"""Replicas of one pool: the engine that its batching policy and its parallelism ask for."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

from sim.batching import Dynamic, PrefillFirst, QueueLimits, RegisteredBatching, Reserve, Slots
from sim.batching.limits import VllmLimits
from sim.batching.sharing import Swapped
from sim.batching.slots import MICRO_BATCH_TOKENS
from sim.engine.asynchronous import AsyncEngine
from sim.engine.kv.adapters import AdapterSlots
from sim.engine.kv.tiers import Tier, Tiers
from sim.engine.limits import RankLimits
from sim.engine.parallel.dynamic import DynamicEngine
from sim.engine.parallel.lockstep import LockstepEngine
from sim.engine.parallel.lockstep_ahead import AsyncLockstepEngine
from sim.engine.parallel.pipeline import PipelineEngine
from sim.engine.parallel.stages import StagesEngine
from sim.engine.parallel.swapping import SwappingEngine
from sim.engine.parallel.turns import TurnsEngine
from sim.engine.protocol import ReplicaEngine
from sim.engine.schedulers.drafts.ahead import AsyncDraftRank
from sim.engine.schedulers.drafts.rank import DraftRank
from sim.engine.schedulers.groups import AsyncGroupRank, GroupRank
from sim.engine.schedulers.prefill_first.overlap import OverlapRank
from sim.engine.schedulers.prefill_first.rank import PrefillFirstRank
from sim.engine.schedulers.prefill_first.sglang import SglangRank
from sim.engine.schedulers.rank import Rank
from sim.engine.schedulers.rank_schedule import RankSchedule
from sim.engine.schedulers.reserve import HoldingRank, MaxUtilizationRank, ReserveRank, UnifiedRank
from sim.engine.schedulers.static import StaticRank
from sim.engine.vllm import LateOutputEngine, VllmEngine
from sim.fleet.arrivals.drafts import Acceptance, Draws
from sim.fleet.arrivals.intake import IntakeEngine, TakingTurns
from sim.memory import KvTier
from sim.records import Batch
from sim.scenario.resolving.resolved import AdapterPlan, PoolPlan
from sim.units import GB

SCHEDULES: dict[str, type[RankSchedule]] = {
    "vllm": Rank,
    "prefill_first": PrefillFirstRank,
    "reserve": ReserveRank,
    "slots": ReserveRank,
    "static": StaticRank,
}


def replica_engines(pool: PoolPlan, draws: Draws) -> list[ReplicaEngine]:
    """The engines of *pool*; *draws* maps names to random streams. Data-parallel ranks that need not step together are
    replicas of their own.
    """
    new_tiers = tiers_of(pool) if pool.kv_tiers else None
    engines = [_engine(pool, draws, new_tiers) for _ in range(pool.replicas * engines_per_replica(pool))]
    if not pool.intake_s and not pool.turn_s:
        return engines
    limits = rank_limits(pool)
    if not pool.intake_s:
        return [TakingTurns(engine, pool.turn_s, limits.serves) for engine in engines]
    return [IntakeEngine(engine, pool.intake_s, limits.serves) for engine in engines]


def tiers_of(pool: PoolPlan) -> Callable[[], Tiers]:
    """Makes the tiers below the KV cache of one engine of *pool*; those that are shared are the same for all."""
    block_bytes = pool.kv_bytes_per_token * pool.batching.block_size
    common = {tier.name: _tier(tier, tier.capacity_gb * GB, block_bytes) for tier in pool.kv_tiers if tier.shared}
    recompute_s = pool.batching.block_size * _recompute_s_per_token(pool)

    def made() -> Tiers:
        own_gb = GB / engines_per_replica(pool)
        tiers = [common.get(tier.name) or _tier(tier, tier.capacity_gb * own_gb, block_bytes) for tier in pool.kv_tiers]
        return Tiers(tiers, recompute_s)

    return made


def _tier(tier: KvTier, capacity_bytes: float, block_bytes: float) -> Tier:
    read_s = block_bytes / tier.read_bytes_per_s
    return Tier(int(capacity_bytes / block_bytes), read_s, tier.latency_s, tier.write == "through")


def _recompute_s_per_token(pool: PoolPlan) -> float:
    """What a prompt token more in a step costs, in the mean from half of the step's budget to all of it [s]."""
    whole = pool.batching.max_num_batched_tokens or 1
    half = max(1, whole // 2)

    def step_s(tokens: int) -> float:
        pairs = tokens * (tokens + 1) // 2
        return pool.steptime.leap(
            Batch(prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=pairs, sampled_seqs=1)
        ).first_s

    return (step_s(whole) - step_s(half)) / (whole - half) if whole > half else step_s(1)


def engines_per_replica(pool: PoolPlan) -> int:
    """Engines that one replica of *pool* consists of."""
    return 1 if pool.lockstep else pool.data_parallel_size


def gpus_per_engine(pool: PoolPlan) -> float | Fraction:
    """GPUs that one engine of *pool* keeps busy."""
    return pool.gpus_per_replica / engines_per_replica(pool)


def _engine(pool: PoolPlan, draws: Draws, new_tiers: Callable[[], Tiers] | None) -> ReplicaEngine:
    batching = pool.batching
    if pool.models:
        return _shared(pool, [_engine(one, draws, new_tiers) for one in pool.models])
    if isinstance(batching, Dynamic):
        mps = batching.sharing == "mps"
        sizes = (batching.max_batch_size, batching.max_queue_delay_s, batching.instances)
        return DynamicEngine(pool.steptime, *sizes, mps)
    limits, schedule = replace(rank_limits(pool), new_tiers=new_tiers), _schedule(pool)
    if pool.adapters is not None:
        limits = replace(limits, new_adapters=_new_adapters(pool.adapters))
    grouped = limits.kv_groups != (None,)
    flying = pool.pipeline_parallel_size > 1 or limits.caches_states
    if flying and schedule is Rank and isinstance(batching, VllmLimits):
        return StagesEngine(pool.steptime, limits, pool.pipeline_parallel_size, bool(batching.async_scheduling))
    if grouped and schedule is Rank and isinstance(batching, VllmLimits):
        if not batching.async_scheduling:
            return VllmEngine(pool.steptime, limits, GroupRank)
        return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), AsyncGroupRank)
    if pool.pipeline_parallel_size > 1:
        lanes, piece_tokens = (1, MICRO_BATCH_TOKENS) if isinstance(pool.batching, Slots) else (None, None)
        lane_of = (pool.pipeline_parallel_size, schedule, lanes, piece_tokens)
        return PipelineEngine(pool.steptime, limits, *lane_of, one_scheduler=isinstance(batching, Reserve))
    if pool.lockstep and isinstance(batching, VllmLimits) and batching.async_scheduling and schedule is Rank:
        return AsyncLockstepEngine(pool.steptime, limits, pool.data_parallel_size)
    if pool.lockstep:
        return LockstepEngine(pool.steptime, limits, pool.data_parallel_size, schedule)
    if isinstance(batching, VllmLimits) and batching.speculative is not None:
        drafts = Acceptance(batching.speculative, draws)
        limits = replace(limits, draft_tokens=batching.speculative.num_speculative_tokens, accepts=drafts)
        if batching.async_scheduling:
            return AsyncEngine(pool.steptime, replace(limits, batches_in_flight=2), AsyncDraftRank)
        return VllmEngine(pool.steptime, limits, DraftRank)
    if isinstance(batching, VllmLimits) and batching.async_scheduling and schedule is Rank:
        return AsyncEngine(pool.steptime, limits)
    if isinstance(batching, PrefillFirst) and batching.overlap_schedule:
        return AsyncEngine(pool.steptime, limits, OverlapRank)
    if isinstance(batching, PrefillFirst) and batching.late_output:
        return LateOutputEngine(pool.steptime, limits, schedule)
    return VllmEngine(pool.steptime, limits, schedule)


def _new_adapters(plan: AdapterPlan) -> Callable[[], AdapterSlots]:
    return lambda: AdapterSlots(plan.on_gpu, plan.in_host, plan.swap_s, plan.fetch_s)


def _shared(pool: PoolPlan, engines: list[ReplicaEngine]) -> TurnsEngine:
    """The *engines* of several models as one replica."""
    able = [engine for engine in engines if isinstance(engine, VllmEngine)]
    if len(able) < len(engines):
        raise ValueError(f"pool {pool.name}: only engines of one rank share a replica")
    of_service = {service: place for place, one in enumerate(pool.models) for service in one.served}
    if not isinstance(pool.sharing, Swapped):
        return TurnsEngine(able, of_service)
    wake_s = [sum(stage.alone_s for stage in one.start.wake) for one in pool.models]
    return SwappingEngine(able, of_service, wake_s, pool.sharing.max_awake_s)


def _schedule(pool: PoolPlan) -> Any:
    """What makes the scheduler of a rank from its limits, its KV blocks and its queue."""
    batching = pool.batching
    if isinstance(batching, Reserve) and batching.capacity_scheduler_policy == "max_utilization":
        return MaxUtilizationRank
    if isinstance(batching, Reserve) and batching.batch_wait_timeout_iters:
        return HoldingRank
    if isinstance(batching, PrefillFirst) and batching.schedule_conservativeness is not None:
        return SglangRank
    if isinstance(batching, Slots) and batching.kv_unified:
        return UnifiedRank
    if not isinstance(batching, RegisteredBatching):
        return SCHEDULES[batching.policy]
    if batching.order is not None:
        return Rank
    return lambda limits, blocks, waiting: batching.made(limits=limits, pool=blocks, waiting=waiting)


def rank_limits(pool: PoolPlan) -> RankLimits:
    """The scheduler's limits, all of them set by now."""
    batching = pool.batching
    values: dict[str, Any] = {
        name: getattr(batching, name)
        for name in ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    }
    values["max_num_batched_tokens"] = batching.step_tokens
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ValueError(f"pool {pool.name}: {', '.join(missing)} not resolved")
    if isinstance(batching, QueueLimits):
        values |= {"enable_prefix_caching": bool(batching.enable_prefix_caching), "scheduling": batching.scheduling}
    if isinstance(batching, VllmLimits):
        values |= {
            "chunked_prefill": batching.enable_chunked_prefill,
            "watermark": batching.watermark,
            "long_prefill_token_threshold": batching.long_prefill_token_threshold,
            "reserve_full_isl": batching.scheduler_reserve_full_isl,
            "prefill_schedule_interval": batching.prefill_schedule_interval,
            "kv_groups": batching.windows,
        }
    if isinstance(batching, RegisteredBatching):
        values["order"] = batching.order
    if isinstance(batching, PrefillFirst):
        values |= {"chunked_prefill": batching.chunked_prefill_size is not None, "watermark": batching.watermark}
        values["max_prefill_tokens"] = batching.max_num_batched_tokens or 0
        for name in ("scheduler_recv_interval", "schedule_conservativeness", "enable_mixed_chunk"):
            values[name] = getattr(batching, name)
        values["preemption_threshold"] = batching.priority_scheduling_preemption_threshold
        values["longest_prefix_first"] = batching.schedule_policy == "lpm"
    if isinstance(batching, Reserve):
        values["chunked_prefill"] = bool(batching.enable_chunked_prefill)
        values["batch_wait_steps"] = batching.batch_wait_timeout_iters
        values["batch_wait_tokens"] = batching.batch_wait_max_tokens_ratio * (batching.max_num_batched_tokens or 0)
    values |= {"block_size": batching.block_size, "window": pool.steptime.window, "padded_tokens": pool.padded_tokens}
    return RankLimits(**values)
