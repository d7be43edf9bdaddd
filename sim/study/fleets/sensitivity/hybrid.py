"""Fleets that never were: each group of properties taken from one of two fleets, simulated and billed.

Groups, and what belongs to each:

    price per GPU     charges by the clock per GPU-hour (capital, rent, hosting, ...), tariffs of energy and traffic
    GPUs and layout   number of GPUs, replicas, ranks, and what runs on them: engine, scheduler, kernels, formats, host
    memory bandwidth  of one GPU, and the share of it that kernels reach
    compute           rates of one GPU, and the share of them that kernels reach
    memory size       tokens that the whole fleet's KV caches hold, and the longest request
    link              between the GPUs, and what all-reduces reach of it
    power             of one GPU and its part of the server: idle, limit, energy of the work; a power cap

With all groups from one fleet the hybrid is that fleet.
"""

from collections.abc import Set
from dataclasses import replace
from math import fsum
from typing import Any

from sim.batching import Slots
from sim.catalogue.entries.gpu import Gpu
from sim.cost import CostPlan
from sim.cost.bill.charge import amount_usd
from sim.cost.bill.window import Window
from sim.fleet import RunningFleet
from sim.power import LoadLaw, PoolPower
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.steptime import RooflineStepTime
from sim.steptime.attention.coefficients import CacheReading
from sim.steptime.coefficients import AllReduceFactor, Coefficients, Efficiency
from sim.steptime.inputs import RooflineInputs

PRICE, LAYOUT, BANDWIDTH, COMPUTE = "price per GPU", "GPUs and layout", "memory bandwidth", "compute"
MEMORY, LINK, POWER = "memory size", "link", "power"
PHYSICAL = (LAYOUT, BANDWIDTH, COMPUTE, MEMORY, LINK, POWER)
GROUPS = (LAYOUT, PRICE, *PHYSICAL[1:])
RATES = tuple(name for name in Gpu.model_fields if name.endswith(("_flops", "_ops_per_s")))


def why_not(plan: CasePlan) -> str:
    """What keeps the fleet of *plan* from being taken apart; empty if nothing does."""
    if plan.infeasible:
        return plan.infeasible
    if len(plan.pools) != 1:
        return "it has several pools"
    pool = plan.pools[0]
    if not isinstance(pool.steptime, RooflineStepTime):
        return "its step time is not a roofline"
    if isinstance(pool.batching, Slots):
        return "its memory is cut into slots"
    if pool.slices is not None:
        return "its GPUs are cut into MIG slices"
    if plan.switched:
        return "its replicas are switched on and off"
    return "" if plan.costs is not None else "it has no cost"


def hybrid(first: CasePlan, second: CasePlan, of_first: Set[str]) -> CasePlan:
    """The plan with the groups *of_first* from *first* and all others from *second*, but for the price."""
    plans = {group: first if group in of_first else second for group in PHYSICAL}
    pools = {group: plan.pools[0] for group, plan in plans.items()}
    base = pools[LAYOUT]
    batching = base.batching
    per_rank = batching.block_size * base.replicas * base.data_parallel_size
    blocks = max(2, _kv_tokens(pools[MEMORY]) // per_rank)
    longest = min(pools[MEMORY].batching.max_model_len or 0, (blocks - 1) * batching.block_size)
    pool = replace(
        base,
        batching=batching.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": longest}),
        steptime=RooflineStepTime(_roofline(base).spec, _inputs(pools)),
        power=_power(pools[POWER], base),
    )
    return replace(plans[LAYOUT], pools=(pool,))


def alike(first: CasePlan, second: CasePlan) -> frozenset[str]:
    """The physical groups in which the two fleets are the same."""
    every = frozenset(PHYSICAL)

    def same(of_first: Set[str], others: Set[str]) -> bool:
        return _told(hybrid(first, second, of_first)) == _told(hybrid(first, second, others))

    return frozenset(
        group for group in PHYSICAL if same({group}, frozenset()) and same(every, every.difference({group}))
    )


def _told(plan: CasePlan) -> tuple[Any, ...]:
    """All that decides what a hybrid does."""
    pool = plan.pools[0]
    roofline = _roofline(pool)
    ranks = (pool.replicas, pool.gpus_per_replica, pool.pipeline_parallel_size, pool.data_parallel_size, pool.lockstep)
    gpu = roofline.inputs.gpu.model_copy(update={"name": "", "aliases": ()})
    return replace(roofline.inputs, gpu=gpu), roofline.spec, ranks, pool.batching, pool.power, plan.routing


def _kv_tokens(pool: PoolPlan) -> int:
    """Of all replicas and ranks together."""
    return (pool.batching.num_gpu_blocks or 0) * pool.batching.block_size * pool.replicas * pool.data_parallel_size


def _roofline(pool: PoolPlan) -> RooflineStepTime:
    assert isinstance(pool.steptime, RooflineStepTime)  # why_not has seen to it
    return pool.steptime


def _inputs(pools: dict[str, PoolPlan]) -> RooflineInputs:
    of = {group: _roofline(pool).inputs for group, pool in pools.items()}
    base = of[LAYOUT]
    rates = {name: getattr(of[COMPUTE].gpu, name) for name in RATES}
    rates |= {"memory_bytes_per_s": of[BANDWIDTH].gpu.memory_bytes_per_s}
    return replace(
        base,
        gpu=base.gpu.model_copy(update=rates),
        link=of[LINK].link,
        lanes_stretch=of[LINK].lanes_stretch,
        network=of[LINK].network,
        coefficients=_coefficients(of),
        speed=of[POWER].speed,
        load=_load(of),
    )


def _coefficients(of: dict[str, RooflineInputs]) -> Coefficients:
    """What kernels and all-reduces reach goes with the hardware that they were measured on."""
    compute = of[COMPUTE].coefficients.efficiency(of[COMPUTE].gpu).compute
    memory = of[BANDWIDTH].coefficients.efficiency(of[BANDWIDTH].gpu).memory
    factor = of[LINK].coefficients.allreduce_factor(of[LINK].gpu, of[LINK].link)
    base, attention = of[LAYOUT], of[BANDWIDTH].coefficients.attention
    reading = attention.cache_reading_factor(base.engine.id, of[BANDWIDTH].gpu)
    rules = (CacheReading(factor=reading),) if reading is not None else ()
    update = {
        "gpus": {base.gpu.id: Efficiency(compute=compute, memory=memory)},
        "allreduce_time_factors": (AllReduceFactor(factor=factor),),
        "attention": base.coefficients.attention.model_copy(update={"cache_reading": rules}),
    }
    return base.coefficients.model_copy(update=update)


def _load(of: dict[str, RooflineInputs]) -> Any:
    """Operations, bytes and tokens take the energy that they take on the power's card; a faster card makes more."""
    law, own = of[POWER].load, of[POWER].gpu
    if not isinstance(law, LoadLaw):
        return law
    compute = of[COMPUTE].gpu.fp16_flops.value / own.fp16_flops.value
    memory = of[BANDWIDTH].gpu.memory_bytes_per_s.value / own.memory_bytes_per_s.value
    return replace(law, compute=law.compute * compute, memory=law.memory * memory)


def _power(of: PoolPlan, base: PoolPlan) -> PoolPower | None:
    """The power of *of*, for the GPUs of *base*."""
    if of.power is None:
        return None
    part = float(base.gpus_per_replica / of.gpus_per_replica)
    nameplate_w = None if of.power.nameplate_w is None else of.power.nameplate_w * part
    return replace(
        of.power,
        gpus_per_replica=base.gpus_per_replica,
        base_w=of.power.base_w * part,
        nameplate_w=nameplate_w,
    )


def cost_of(plan: CasePlan, payers: tuple[CasePlan, CasePlan]) -> tuple[float, float, float]:
    """Simulates the hybrid *plan*; USD at the prices of each of *payers*, and millions of output tokens for them."""
    log = RunningFleet(plan).run()
    window = Window.of(log.intervals, *plan.window_s(log.end_s))
    tokens = sum(interval.output_tokens for rows in window.intervals.values() for interval in rows)
    prices = (_prices(payer, plan.pools[0]) for payer in payers)
    first_usd, second_usd = (fsum(amount_usd(charge, window) for charge in costs.charges) for costs in prices)
    return first_usd, second_usd, tokens / 1e6


def _prices(payer: CasePlan, pool: PoolPlan) -> CostPlan:
    """The charges of *payer* for the GPUs of *pool*: those by the clock in proportion to GPUs."""
    assert payer.costs is not None  # why_not has seen to it
    part = float(pool.gpus / payer.pools[0].gpus)
    return replace(payer.costs, charges=tuple(charge.scaled(part, pool.name) for charge in payer.costs.charges))
