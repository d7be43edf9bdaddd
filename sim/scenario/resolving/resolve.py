"""Resolution of a fleet to its plan: ids become sourced values, memory, step times, power and prices are computed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from sim.batching import Dynamic, Scheduler, Slots, Vllm
from sim.batchtime import OnePass, unit_of
from sim.catalogue.catalog import Catalog
from sim.cost import CarbonPlan, Clock, CostPlan
from sim.memory import MemoryFit, fit, slot_bytes, what_fits, which_slices
from sim.message import joined
from sim.records import ONLY_SERVICE, StepTime
from sim.registry import versions
from sim.rng import stream
from sim.routing.kv_transfer import TransferPlan
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.reading.layers import files_of, state_of
from sim.scenario.resolving.bind import BoundPool, bind, one_pass_step_time
from sim.scenario.resolving.facts import cost_facts, pool_facts, roofline_inputs
from sim.scenario.resolving.hardware import (
    facts_of,
    gpus_per_replica,
    kv_bytes,
    power_of,
    servers_per_replica,
    slices_of,
    transfer_facts,
    transfer_of,
)
from sim.scenario.resolving.replicas import adapted, adapters_of, failures_of, models_of, start_of_pool, why_no_sleep
from sim.scenario.resolving.resolved import Fact, PoolPlan, Slices
from sim.scenario.resolving.scheduler import draft_memory, padded_tokens, seated, state_note
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.steptime import Drafting, DraftModel, RegisteredStepTime, Roofline, RooflineStepTime
from sim.workload import Workload

SAMPLED_REQUESTS = 1000
"""Requests that are drawn to estimate the mean context."""
NOT_OF_FLEETS = ("name", "question", "seed", "replications", "slo", "horizon_s", "warmup_s", "sweep")
"""Keys of a scenario that no fleet's plan depends on. The arrivals of the workload are further ones."""
MOST_PLANS = 50
"""Plans of fleets that are kept for each catalogue."""
_OF_FLEETS: dict[str, Any] = dict.fromkeys(Experiment.model_fields.keys() - {*NOT_OF_FLEETS}, True) | {
    "workload": {*Workload.model_fields} - {"arrivals"}
}
"""Keys of a scenario that the plan of a fleet depends on, as pydantic's `include`."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """The part of a plan that is the same for all replications."""

    pools: tuple[PoolPlan, ...]
    costs: CostPlan | None
    carbon: CarbonPlan | None
    machines: Machines
    clock: Clock | None
    pue: float
    infeasible: str
    facts: tuple[Fact, ...]
    kv_transfer: TransferPlan | None = None


_PLANS: WeakKeyDictionary[Catalog, dict[str, FleetPlan]] = WeakKeyDictionary()


def resolve_fleet(
    scenario: Experiment, fleet: Fleet, catalog: Catalog, models: Sequence[Sequence[BoundPool]] | None = None
) -> FleetPlan:
    """Return the plan of *fleet*, from a cache if its keys, the files that they name and the *catalog* are unchanged.

    A fleet with user-defined policies is planned anew each time. *models* are the bound models of each pool, if the
    caller has them already. Raises CostError that lists every missing price.
    """
    alone = scenario.model_copy(update={"fleets": (fleet,)})
    said = alone.model_dump(mode="json", exclude_unset=True, include=_OF_FLEETS)
    if versions(said):
        return _planned(scenario, fleet, catalog, models)
    key = json.dumps([said, [state_of(file) for file in files_of(said)]])
    plans = _PLANS.setdefault(catalog, {})
    if key not in plans:
        plan = _planned(scenario, fleet, catalog, models)
        while len(plans) >= MOST_PLANS:
            del plans[next(iter(plans))]
        plans[key] = plan
    return plans[key]


def _planned(
    scenario: Experiment, fleet: Fleet, catalog: Catalog, models: Sequence[Sequence[BoundPool]] | None
) -> FleetPlan:
    models = models or [pool_models(scenario, fleet, pool, catalog) for pool in fleet.pools]
    bound = [each[0] for each in models]
    names = pool_names(bound)
    slices = slices_of(bound, fleet, names)
    servers = servers_per_replica(bound, fleet, slices)
    settings = [_fit_settings(pool, _workload_of(scenario, pool)) for pool in bound]
    fits = [_memory_fit(pool, wanted) for pool, wanted in zip(bound, settings, strict=True)]
    reasons = [_refusal(*one, catalog) for one in zip(bound, fits, settings, strict=True)]
    pools = tuple(
        _pool_plan(pool, name, memory, part, share, scenario.measured_at, catalog)
        for pool, name, memory, part, share in zip(bound, names, fits, slices, servers, strict=True)
    )
    shared = [_shared(scenario, *one, catalog) for one in zip(fleet.pools, models, pools, servers, strict=True)]
    pools = tuple(plan for plan, _ in shared)
    reasons = [reason or its for reason, (_, its) in zip(reasons, shared, strict=True)]
    fallbacks = {pool.spot.fallback for pool in fleet.pools if pool.spot is not None}
    pools = tuple(replace(pool, on_call=True) if pool.name in fallbacks else pool for pool in pools)
    machines = Machines(
        pools=tuple(facts_of(pool, plan) for pool, plan in zip(bound, pools, strict=True)),
        servers=sum(share * pool.spec.most_replicas for share, pool in zip(servers, bound, strict=True)),
    )
    terms = FleetTerms.of(scenario, fleet)
    costs, carbon = terms.costs(machines, catalog), terms.carbon_plan(machines, catalog)
    facts = [
        fact
        for i, each in enumerate(models)
        for place, pool in enumerate(each)
        for fact in pool_facts(
            f"fleets.{fleet.name}.pools.{i}{f'.models.{place}' if place else ''}", pool, catalog, terms.by_height
        )
    ]
    facts += [Fact(f"fleets.{fleet.name}.{path}", value) for path, value in transfer_facts(fleet, catalog)]
    facts += [
        Fact(f"fleets.{fleet.name}.pools.{i}.cold_start.{name}", value)
        for i, pool in enumerate(pools)
        for name, value in pool.start.values.items()
    ]
    return FleetPlan(
        pools=pools,
        costs=costs,
        carbon=carbon,
        machines=machines,
        clock=terms.clock,
        pue=terms.facility_factor,
        infeasible="; ".join(
            reason if len(bound) == 1 else f"pool {name}: {reason}"
            for name, reason in zip(names, reasons, strict=True)
            if reason
        ),
        kv_transfer=transfer_of(fleet, bound, catalog),
        facts=(*facts, *cost_facts(f"fleets.{fleet.name}.cost", costs), *_grid_facts(carbon)),
    )


def pool_models(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> list[BoundPool]:
    """Return *pool*, bound to each model that its services run. Raises the errors of `bind`."""
    return models_of(scenario, fleet, pool, catalog) if pool.services else [bind(scenario, fleet, pool, catalog)]


def _shared(
    scenario: Experiment, pool: Pool, models: Sequence[BoundPool], plan: PoolPlan, servers: float, catalog: Catalog
) -> tuple[PoolPlan, str]:
    """Return the *plan* of the first of *models* with the others added, and why they cannot start together, if so."""
    if len(models) == 1:
        return plan, ""
    settings = [_fit_settings(one, _workload_of(scenario, one)) for one in models]
    fits = [_memory_fit(*one) for one in zip(models, settings, strict=True)]
    reasons = [_refusal(*one, catalog) for one in zip(models, fits, settings, strict=True)]
    plans = tuple(
        _pool_plan(one, plan.name, memory, None, servers, scenario.measured_at, catalog)
        for one, memory in zip(models, fits, strict=True)
    )
    told = [f"{', '.join(one.spec.services)}: {reason}" for one, reason in zip(models, reasons, strict=True) if reason]
    whole = replace(plan, services=pool.services, service=" + ".join(pool.services), models=plans)
    return whole, "; ".join(told) or why_no_sleep(models[0], fits)


def _grid_facts(carbon: CarbonPlan | None) -> Iterator[Fact]:
    if carbon is not None and carbon.grid is not None:
        yield Fact(f"carbon.grid.{carbon.grid.id}.g_per_kwh", carbon.grid.g_per_kwh)


def pool_names(bound: Sequence[BoundPool]) -> list[str]:
    """Return the names of the pools: as given, else the GPU's id, numbered where several pools would have it."""
    wanted = [pool.spec.name or (pool.gpu.id if pool.gpu else "pool") for pool in bound]
    return [
        name if pool.spec.name or wanted.count(name) == 1 else f"{name}-{wanted[:i].count(name) + 1}"
        for i, (name, pool) in enumerate(zip(wanted, bound, strict=True))
    ]


def _workload_of(scenario: Experiment, pool: BoundPool) -> Workload:
    service = scenario.service_of(pool.spec)
    return scenario.workload if service is None else service.workload


def _fit_settings(pool: BoundPool, workload: Workload) -> dict[str, Any]:
    """Return keyword arguments of `fit` and `what_fits`."""
    batching, layout = pool.batching, pool.layout
    settings: dict[str, Any] = {
        "tensor_parallel_size": layout.tensor_parallel_size,
        "pipeline_parallel_size": layout.pipeline_parallel_size,
        "data_parallel_size": layout.data_parallel_size,
        "enable_expert_parallel": layout.enable_expert_parallel,
        "max_num_seqs": batching.max_num_seqs,
        "max_num_batched_tokens": batching.step_tokens,
        "max_model_len": batching.max_model_len,
        "gpu_memory_utilization": batching.gpu_memory_utilization,
        "block_size": batching.block_size,
        "kv_cache_dtype": pool.kv_cache_dtype,
    }
    if pool.offload is not None and pool.engine.offload is not None:
        settings["offload"] = pool.offload
        if pool.server is not None and pool.server.host_memory_bytes is not None:
            settings["host_memory_bytes"] = pool.server.host_memory_bytes.value / pool.replicas_per_host
    drafts = draft_memory(batching, pool.drafter, pool.model, pool.quantization, layout, pool.kv_cache_dtype)
    if drafts is not None:
        settings["drafts"] = drafts
    if pool.spec.lora is not None and pool.model is not None:
        per_slot = slot_bytes(pool.model, pool.spec.lora, layout.tensor_parallel_size)
        settings["adapter_bytes"] = pool.spec.lora.max_loras * per_slot
    if pool.kv_layout is not None:
        in_flight = layout.pipeline_parallel_size + bool(getattr(batching, "async_scheduling", False))
        states = 1 + in_flight * bool(getattr(batching, "enable_prefix_caching", False))
        settings["groups"] = replace(pool.kv_layout, steps_in_flight=in_flight, states=states)
    if pool.state_cache is not None:
        settings["states"] = pool.state_cache
    if pool.model is not None and (pool.model.sliding_window is not None or pool.model.compressed is not None):
        settings["context_tokens"] = _usual_context(workload)
    return settings


def _usual_context(workload: Workload) -> int:
    """Return the mean length of prompt and output together [tokens], of the trace or else of sampled requests."""
    if workload.trace is not None:
        requests = workload.trace.requests(None)
        prompts, outputs = requests.prompt_tokens, requests.output_tokens
    else:
        prompts, outputs = workload.lengths_table(partial(stream, 0, 0), 0, SAMPLED_REQUESTS)
    return int(np.ceil(np.mean(prompts + outputs)))


def _memory_fit(pool: BoundPool, settings: dict[str, Any]) -> MemoryFit | None:
    """Return the memory of one replica; None without a model or GPU, where the scenario gives the block pool itself."""
    if pool.gpu is None or pool.model is None or pool.quantization is None:
        return None
    return fit(pool.gpu, pool.model, pool.quantization, pool.engine, **settings)


def _refusal(pool: BoundPool, memory: MemoryFit | None, settings: dict[str, Any], catalog: Catalog) -> str:
    """Return why the pool cannot start, and what would; empty if it can. An explicit block pool is not checked."""
    if pool.gpu is not None and pool.engine.vendors and pool.gpu.vendor not in pool.engine.vendors:
        return f"{pool.engine.name} does not run on {pool.gpu.name}"
    slots = isinstance(pool.batching, Slots)
    if memory is None or memory.fits or (pool.batching.num_gpu_blocks is not None and not slots):
        return _slots_refusal(pool, memory) if memory is not None and slots else ""
    if pool.gpu is None or pool.model is None or pool.quantization is None or pool.offload is not None:
        return memory.reason
    candidates = [catalog.quantization(name) for name in catalog.ids("quantizations")]
    wanted = (pool.model, pool.quantization, pool.engine, candidates)
    if pool.slicing is None:
        advice = what_fits(pool.gpu, *wanted, **settings)
    else:
        advice = which_slices(pool.slicing.card, *wanted, pool.slicing.profile, **settings)
    return joined("; ", [memory.reason, advice] if advice else [memory.reason])


def _pool_plan(
    pool: BoundPool,
    name: str,
    memory: MemoryFit | None,
    slices: Slices | None,
    servers: float,
    measured_at: str,
    catalog: Catalog,
) -> PoolPlan:
    steptime, layout = pool.steptime, pool.layout
    uses_graphs = isinstance(steptime, Roofline) and steptime.cuda_graphs
    overhead_s = intake_s = turn_s = 0.0
    if isinstance(steptime, Roofline) and pool.model is not None and pool.gpu is not None and measured_at == "client":
        overhead_s = steptime.request_overhead_s(pool.engine, pool.model, layout.tensor_parallel_size, pool.gpu)
        intake_s, turn_s = steptime.intake_s(pool.engine), steptime.turn_s(pool.engine)
    return PoolPlan(
        name=name,
        gpu=pool.gpu.id if pool.gpu else "",
        server=pool.server.id if pool.server else "",
        replicas=pool.spec.most_replicas,
        gpus_per_replica=gpus_per_replica(pool, slices) if pool.gpu else 0,
        batching=_sized(pool, memory),
        steptime=_steptime(pool, catalog),
        pipeline_parallel_size=layout.pipeline_parallel_size,
        data_parallel_size=layout.data_parallel_size,
        lockstep=layout.enable_expert_parallel and layout.data_parallel_size > 1,
        padded_tokens=padded_tokens(pool.batching, pool.engine, pool.gpu) if uses_graphs else 0,
        request_overhead_s=overhead_s,
        intake_s=intake_s,
        turn_s=turn_s,
        memory=memory,
        power=power_of(pool, slices, servers, catalog),
        schedule=pool.spec.schedule,
        autoscaling=pool.spec.autoscaling,
        first_replicas=pool.spec.first_replicas,
        start=start_of_pool(pool, memory, catalog),
        replicas_per_server=pool.replicas_per_host,
        failures=failures_of(pool, catalog),
        spot=pool.spec.spot,
        unit=unit_of(pool.steptime, pool.service) if isinstance(pool.batching, Dynamic) else "",
        slices=slices,
        service=" + ".join(pool.spec.served) or ONLY_SERVICE,
        services=pool.spec.services,
        sharing=pool.spec.sharing,
        role=pool.spec.role,
        kv_tiers=pool.spec.kv_tiers,
        adapters=adapters_of(pool, catalog),
        kv_note=pool.kv_note or state_note(pool.model, pool.state_cache, memory, pool.batching.max_num_seqs),
        kv_bytes_per_token=kv_bytes(pool),
    )


def _steptime(pool: BoundPool, catalog: Catalog) -> StepTime:
    if isinstance(pool.steptime, Roofline):
        built = pool.steptime.build(roofline_inputs(pool, catalog))
        drafted = _with_drafts(pool, pool.steptime, built, catalog)
        return drafted if pool.spec.lora is None else adapted(drafted, pool.spec.lora, catalog)
    if isinstance(pool.steptime, RegisteredStepTime):
        known = pool.gpu is not None and pool.model is not None
        return pool.steptime.build(roofline_inputs(pool, catalog) if known else None)
    if isinstance(pool.steptime, OnePass):
        return one_pass_step_time(pool, catalog)
    return pool.steptime


def _with_drafts(
    pool: BoundPool, roofline: Roofline, built: RooflineStepTime, catalog: Catalog
) -> RooflineStepTime | Drafting | DraftModel:
    """Return *built* with the passes that draft tokens; *built* itself without a draft model."""
    drafts = pool.batching.speculative if isinstance(pool.batching, Vllm) else None
    if drafts is None or drafts.method == "ngram":
        return built
    if pool.drafter is None:
        return Drafting(built, drafts.num_speculative_tokens)
    drafting = roofline.build(pool.drafter.inputs(roofline_inputs(pool, catalog)))
    return DraftModel(built, drafting, drafts.num_speculative_tokens)


def _sized(pool: BoundPool, memory: MemoryFit | None) -> Scheduler:
    """Return the scheduler's limits with the block pool and the longest request for which the memory has room."""
    batching = pool.batching
    blocks, longest = (memory.num_gpu_blocks, memory.max_model_len) if memory else (0, 0)
    if isinstance(batching, Slots) and _has_too_many_slots(pool, memory):
        return batching.model_copy(update={"max_num_seqs": 1})
    return seated(batching.sized(blocks, longest), pool.state_cache, memory)


def _has_too_many_slots(pool: BoundPool, memory: MemoryFit | None) -> bool:
    """Return whether the memory holds fewer slots than are wanted; a unified cache holds any number of slots."""
    shared = isinstance(pool.batching, Slots) and pool.batching.kv_unified
    return memory is not None and not shared and memory.num_gpu_blocks < (pool.batching.max_num_seqs or 1)


def _slots_refusal(pool: BoundPool, memory: MemoryFit) -> str:
    """Return why the slots that the scenario asks for do not fit; empty if they do, or if it asks for no number."""
    if pool.spec.batching.max_num_seqs is None or not _has_too_many_slots(pool, memory):
        return ""
    slots, context = pool.batching.max_num_seqs, pool.batching.max_model_len
    return f"{slots} slots of {context} tokens asked for, the memory holds {memory.num_gpu_blocks}"
