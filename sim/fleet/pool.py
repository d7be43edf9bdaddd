"""Replicas of one pool: the engine that its batching policy and its parallelism ask for."""

from sim.engine.limits import RankLimits
from sim.engine.lockstep import LockstepEngine
from sim.engine.pipeline import PipelineEngine
from sim.engine.protocol import Engine
from sim.engine.vllm import VllmEngine
from sim.scenario.plan import PoolPlan


def replica_engines(pool: PoolPlan) -> list[Engine]:
    """The engines of *pool*. Data-parallel ranks that need not step together are replicas of their own."""
    independent_ranks = 1 if pool.lockstep else pool.data_parallel_size
    return [_engine(pool) for _ in range(pool.replicas * independent_ranks)]


def gpus_per_engine(pool: PoolPlan) -> float:
    """GPUs that one engine of *pool* keeps busy."""
    return pool.gpus_per_replica / (1 if pool.lockstep else pool.data_parallel_size)


def _engine(pool: PoolPlan) -> Engine:
    limits = rank_limits(pool)
    if pool.pipeline_parallel_size > 1:
        return PipelineEngine(pool.steptime, limits, pool.pipeline_parallel_size)
    if pool.lockstep:
        return LockstepEngine(pool.steptime, limits, pool.data_parallel_size)
    return VllmEngine(pool.steptime, limits)


def rank_limits(pool: PoolPlan) -> RankLimits:
    """The scheduler's limits, all of them set by now."""
    batching = pool.batching
    values = {
        name: getattr(batching, name)
        for name in ("num_gpu_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len")
    }
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise ValueError(f"pool {pool.name}: {', '.join(missing)} not resolved")
    return RankLimits(
        **values,
        block_size=batching.block_size,
        enable_prefix_caching=batching.enable_prefix_caching,
        scheduling=batching.scheduling,
        window=pool.steptime.window,
    )
