"""Resolution of a fleet to its plan: ids become sourced values, memory, step times, power and prices are computed.

A plan lists the sourced values that it rests on, and only those: a flag on an unused value would be noise. Values of
a computed step time are read off the inputs of its roofline, which `roofline_inputs` puts together.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from sim.batching import Dynamic, Scheduler, Slots, Vllm
from sim.batchtime.one_pass import OnePass, unit_of
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import default_limit
from sim.catalogue.gpu import DENSE_RATES, Gpu
from sim.catalogue.link import Link
from sim.catalogue.model import Model, activations_per_token, params_total
from sim.catalogue.quantization import Quantization, kv_element_bytes, padded
from sim.catalogue.value import WEAK_KINDS, Value
from sim.cost.carbon import CarbonPlan
from sim.cost.clock import SiteClock
from sim.cost.cost_plan import CostPlan
from sim.infile import state_of
from sim.memory.fit import MemoryFit, fit, suggest_changes, suggest_slices
from sim.memory.lora import slot_bytes
from sim.memory.weights import host_weights
from sim.message import Message, joined, placed
from sim.power import load_law, unpacks
from sim.records import ONLY_SERVICE, LoadLaw, StepTime
from sim.registry import versions
from sim.rng import stream
from sim.routing.kv_transfer import TransferPlan
from sim.scenario.experiment import Experiment, Fleet, Pool
from sim.scenario.reading.layers import files_of
from sim.scenario.resolving.bind import (
    BoundPool,
    batch_coefficients,
    bind,
    host_of,
    one_pass_step_time,
    power_coefficients,
)
from sim.scenario.resolving.hardware import (
    adapted,
    adapter_facts,
    adapters_of,
    facts_of,
    failures_of,
    gpus_per_replica,
    host_stretch,
    lanes_stretch,
    link_of,
    models_of,
    network_facts,
    network_of,
    power_of,
    sequence_cache,
    servers_per_replica,
    sleep_shortfall,
    slices_of,
    start_of_pool,
    transfer_facts,
    transfer_of,
)
from sim.scenario.resolving.resolved import Fact, PoolPlan, Slices
from sim.scenario.resolving.scheduler import (
    OPEN_LIMITS,
    OPEN_SWITCHES,
    OPTION_OF,
    STATE_LIMITS,
    draft_memory,
    graph_size_multiple,
    graph_tokens,
    limited_by_states,
    overlaps_batches,
    overlaps_chunks,
    overlaps_host,
    padded_tokens,
    state_note,
)
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.spec import Spec
from sim.steptime.affine import Affine, RegisteredStepTime
from sim.steptime.attention import one_call
from sim.steptime.coefficients import StepTimeCoefficients, load_coefficients
from sim.steptime.collective import exchange_table, nearest_entry, table_for
from sim.steptime.drafting import ComputedStepTime, DraftHeadStepTime, DraftModelStepTime
from sim.steptime.inputs import SIXTEEN_BIT_BYTES, HostOffload, RooflineInputs
from sim.steptime.kernels import measured_kernels, reached_shares
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime, by_delta_rule, roofline_step_time, used_values
from sim.workload import Workload


def roofline_inputs(pool: BoundPool, catalog: Catalog) -> RooflineInputs:
    """Return the inputs of the roofline step time of *pool*. Raises ValueError where it lacks a GPU or a model."""
    link = link_of(pool)
    if pool.gpu is None or pool.model is None or pool.quantization is None or link is None or pool.kernel is None:
        raise ValueError("a roofline needs a gpu and a model")
    coefficients = _steptime_coefficients(catalog.root)
    with_prompts, without_prompts = _graph_tokens(pool, pool.gpu, pool.model)
    inputs = RooflineInputs(
        gpu=pool.gpu,
        model=padded(pool.quantization, pool.model),
        quantization=pool.quantization,
        kernel=pool.kernel,
        engine=pool.engine,
        link=link,
        coefficients=pool.calibration.coefficients(coefficients, pool.gpu) if pool.calibration else coefficients,
        tensor_parallel_size=pool.layout.tensor_parallel_size,
        pipeline_parallel_size=pool.layout.pipeline_parallel_size,
        data_parallel_size=pool.layout.data_parallel_size,
        enable_expert_parallel=pool.layout.enable_expert_parallel,
        serial_stages=isinstance(pool.batching, Slots),
        kv_bytes_per_element=float(kv_element_bytes(pool.kv_cache_dtype)),
        speed=pool.speed.value if pool.speed else 1.0,
        load=_load_law(pool.gpu, pool.model, pool.quantization, pool, catalog),
        host=_host(pool, catalog),
        forms_ahead=_forms_ahead(pool),
        one_thread=_one_thread(pool),
        graph_tokens=with_prompts,
        decode_graph_tokens=without_prompts,
        graph_size_multiple=graph_size_multiple(pool.engine, pool.gpu),
        lanes_stretch=lanes_stretch(pool, catalog),
        network=network_of(pool, catalog),
        moe_backend=getattr(pool.steptime, "moe_backend", None),
    )
    if pool.engine.overheads is None:
        return inputs
    backend = getattr(pool.steptime, "fp8_gemm_backend", None)
    measured = measured_kernels(catalog) if pool.gpu.blackwell else ()  # slow to read; other cards have no such limit
    return replace(inputs, reached=reached_shares(inputs, measured, catalog, backend))


def _graph_tokens(pool: BoundPool, gpu: Gpu, model: Model) -> tuple[float, float]:
    """Return `graph_tokens` of *pool*, which serves *model* on *gpu*."""
    layout, stated = pool.layout, getattr(pool.steptime, "graph_tokens", None)
    one_rank = layout.pipeline_parallel_size == layout.data_parallel_size == 1
    return graph_tokens(pool.batching, pool.engine, gpu, model, one_rank, stated)


def _padded_tokens(pool: BoundPool) -> tuple[float, float]:
    """Return `padded_tokens` of *pool*; none without CUDA graphs."""
    if not isinstance(pool.steptime, Roofline) or not pool.steptime.cuda_graphs or not pool.gpu or not pool.model:
        return 0, 0
    return padded_tokens(pool.engine, _graph_tokens(pool, pool.gpu, pool.model))


def _forms_ahead(pool: BoundPool) -> bool:
    if pool.offload:
        return False
    if pool.layout.pipeline_parallel_size > 1:
        return isinstance(pool.batching, Vllm) and not _overlaps_batches(pool)
    return overlaps_host(pool.batching)


def _one_thread(pool: BoundPool) -> bool:
    """Return whether the thread that forms the steps of *pool* launches their kernels.

    vLLM launches from a process per GPU on several GPUs (MultiprocExecutor), and from its scheduler's process on one
    (UniProcExecutor); SGLang (event_loop_overlap) and TensorRT-LLM (_executor_loop_overlap) form and launch in one.
    """
    layout = pool.layout
    return not isinstance(pool.batching, Vllm) or layout.tensor_parallel_size * layout.pipeline_parallel_size == 1


def _overlaps_batches(pool: BoundPool) -> bool:
    return overlaps_batches(pool.engine if isinstance(pool.steptime, Roofline) else None, pool.spec.batching)


def _host(pool: BoundPool, catalog: Catalog) -> HostOffload | None:
    """Return the host memory and processors of offloaded weights; None if all weights are on the GPUs."""
    if pool.offload is None or pool.model is None or pool.quantization is None:
        return None
    weights = host_weights(pool.offload, pool.model, pool.quantization, pool.layout)
    host = host_of(pool.engine, weights, pool.server, pool.host_link, pool.replicas_per_host)
    if host is None or host.link_bytes_per_s is None or (stretch := host_stretch(pool, catalog)) == 1:
        return host
    return replace(host, link_bytes_per_s=_part(host.link_bytes_per_s, stretch))


def _part(rate: Value, stretch: float) -> Value:
    """Return *rate* divided by *stretch*, for lanes that several GPUs share."""
    span = (rate.range[0] / stretch, rate.range[1] / stretch) if rate.range else None
    note = Message("{value:g} over lanes that GPUs of a server share", rate.value)
    return rate.model_copy(update={"value": rate.value / stretch, "range": span, "note": note})


@cache
def _steptime_coefficients(root: Path) -> StepTimeCoefficients:
    return load_coefficients(root / "steptime.yaml")


def _load_law(gpu: Gpu, model: Model, weights: Quantization, pool: BoundPool, catalog: Catalog) -> LoadLaw | None:
    """Return the law of GPU power by load for the steps of *pool*."""
    ranks = pool.layout.tensor_parallel_size * pool.layout.pipeline_parallel_size
    activations = activations_per_token(model) / ranks
    return load_law(gpu, power_coefficients(catalog), pool.power.cap_w, activations, unpacks(gpu, weights))


HOST_FIELDS = ("host_memory_bytes", "host_memory_bytes_per_s", "host_flops")


def pool_facts(prefix: str, pool: BoundPool, steptime: StepTime, catalog: Catalog, by_height: bool) -> Iterator[Fact]:
    """Yield the sourced values of one pool with its *steptime*.

    *prefix* is its place, for example `fleets.4x RTX 4090.pools.0`. With *by_height*, the height of servers is charged
    for.
    """
    computed = isinstance(pool.steptime, Roofline)
    if pool.gpu is not None:
        card = pool.slicing.card if pool.slicing else pool.gpu
        yield from _some(f"{prefix}.gpu", card, _power_fields(card))
        yield from _some(f"{prefix}.gpu", pool.gpu, _gpu_fields(pool, computed))
    if pool.model is not None:
        yield Fact(f"{prefix}.model.parameters", _parameters(pool.model))
    if pool.service is not None and isinstance(pool.steptime, OnePass):
        yield from _service_facts(prefix, pool, catalog)
    elif pool.quantization is not None:
        yield from _all(f"{prefix}.quantization", pool.quantization)
    yield from _engine_facts(f"{prefix}.engine", pool, computed)
    if pool.drafter is not None:
        yield Fact(f"{prefix}.drafter.parameters", _parameters(pool.drafter.model))
    if pool.accepted is not None:
        yield Fact(f"{prefix}.accepted_per_step", pool.accepted)
    if pool.server is not None:
        unused = ("idle_power_w", *HOST_FIELDS, *(() if by_height else ("rack_units",)))
        yield from _all(f"{prefix}.server", pool.server, without=unused)
        yield from _some(f"{prefix}.server", pool.server, _host_fields(pool))
    if pool.gpu is not None and pool.power.mode == "load":
        yield from _power_facts(f"{prefix}.power", pool, catalog)
    if computed and isinstance(steptime, ComputedStepTime):
        yield from _steptime_facts(prefix, pool, steptime.inputs, catalog)
    yield from (Fact(f"{prefix}.lora.{name}", value) for name, value in adapter_facts(pool, catalog))
    for kind, one in pool.spec.failures.components.items() if pool.spec.failures is not None else ():
        if one.rate is not None:
            yield Fact(f"{prefix}.failures.{kind}.mtbf_h", catalog.failure_rate(one.rate).mtbf_h)


def _host_fields(pool: BoundPool) -> tuple[str, ...]:
    """Return the fields of the server's host that matter where weights are in its memory."""
    use = pool.engine.offload
    if pool.offload is None or use is None:
        return ()
    computes = use.streaming == "none" or use.stream_from_tokens is not None
    return HOST_FIELDS if computes else ("host_memory_bytes",)


def cost_facts(prefix: str, costs: CostPlan | None) -> Iterator[Fact]:
    """Yield the catalogue's prices of *costs*; quotes are the planner's own."""
    for offer, value in (costs.values if costs else {}).items():
        yield Fact(f"{prefix}.{offer}", value)


def _some(prefix: str, spec: Spec, names: tuple[str, ...]) -> Iterator[Fact]:
    for name in names:
        value = getattr(spec, name)
        if isinstance(value, Value):
            yield Fact(f"{prefix}.{name}", value)


def _all(prefix: str, spec: Spec, without: tuple[str, ...] = ()) -> Iterator[Fact]:
    yield from _some(prefix, spec, tuple(name for name in type(spec).model_fields if name not in without))


def _power_fields(gpu: Gpu) -> tuple[str, ...]:
    return "tdp_w", "idle_w" if gpu.loaded_idle_w is None else "loaded_idle_w"


def _gpu_fields(pool: BoundPool, computed: bool) -> tuple[str, ...]:
    names = []
    if pool.model is not None:
        names.append("memory_bytes")
    if computed and pool.quantization is not None:
        names += ["memory_bytes_per_s", "fp16_flops", DENSE_RATES[pool.quantization.compute]]
    return tuple(dict.fromkeys(names))


def _more_rates(inputs: RooflineInputs) -> tuple[str, ...]:
    """Return the GPU's rates that matter besides those of 16 bits and of the weight format's own arithmetic."""
    chosen = inputs.chosen_kernel if inputs.model.moe is not None else None
    beside = inputs.quantization.beside_bits_per_weight is not None
    used = [chosen.compute] if chosen is not None else []
    used += [inputs.quantization.beside_compute] if beside else []
    used += ["int8"] if "int8_share" in inputs.prompt_kernels else []
    return tuple(DENSE_RATES[one] for one in dict.fromkeys(used) if one not in ("fp16", inputs.quantization.compute))


def _parameters(model: Model) -> Value:
    count, dimensions = float(params_total(model)), model.dimensions
    return Value(
        value=count,
        range=(count, count) if dimensions.kind == "assumed" else None,
        note="; ".join(part for part in ("counted from the dimensions", dimensions.note) if part),
        **dimensions.model_dump(exclude={"note"}),
    )


API_SERVER_OVERHEADS = (
    "per_sequence_s",
    "per_prompt_token_s",
    "per_request_s",
    "tp_request_factor",
    "moe_request_factor",
    "hopper_request_factor",
    "tokenising_s",
    "request_turn_s",
)
"""Names of an engine's host times in its API server, which a process that calls the engine as a library lacks."""


def _engine_facts(prefix: str, pool: BoundPool, computed: bool) -> Iterator[Fact]:
    engine, model, given = pool.engine, pool.model, pool.spec.batching
    if computed and engine.overheads is not None and model is not None:
        in_process = _in_process(pool)
        reads_chats = isinstance(pool.steptime, Roofline) and pool.steptime.chat_template and not in_process
        unused = [*(API_SERVER_OVERHEADS if in_process else ()), *(() if reads_chats else ("chat_template_s",))]
        others = _unused_prefixes(pool)
        unused += [name for name in type(engine.overheads).model_fields if name.startswith(others)]
        yield from _all(f"{prefix}.overheads", engine.overheads, tuple(unused))
        slow = engine.overheads.slow_cards
        if slow is not None and pool.gpu is not None and slow.matches(pool.gpu):
            yield Fact(f"{prefix}.overheads.slow_cards.factor", slow.factor)
    if engine.memory is not None and model is not None:
        free = default_limit(engine, pool.gpu, "kept_free_bytes")
        unused = [] if given.gpu_memory_utilization is None and free is None else ["gpu_memory_utilization"]
        if given.gpu_memory_utilization is None and free is not None:
            yield Fact(f"{prefix}.limits.kept_free_bytes", free)
        unused += [*_other_comms(pool), *(() if model.moe is not None else ("expert_chunk_tokens",))]
        yield from _all(f"{prefix}.memory", engine.memory, tuple(unused))
    if engine.limits is not None:
        for name in (*OPEN_LIMITS, *OPEN_SWITCHES, "max_model_len"):
            usual = default_limit(engine, pool.gpu, name, _in_process(pool))
            is_open = getattr(given, name, None) is None
            if usual is not None and is_open and usual.value == getattr(pool.batching, name, None):
                yield Fact(f"{prefix}.limits.{name}", usual)
        for name in (*STATE_LIMITS, "state_bits") if pool.state_cache is not None else ():
            usual = default_limit(engine, None, name)
            if usual is not None and getattr(given, OPTION_OF.get(name, name), None) is None:
                yield Fact(f"{prefix}.limits.{name}", usual)
        hybrid = engine.limits.hybrid_kv_cache_manager
        if hybrid is not None and pool.kv_layout is not None and getattr(given, "kv_groups", None) is None:
            yield Fact(f"{prefix}.limits.hybrid_kv_cache_manager", hybrid)


def _other_comms(pool: BoundPool) -> list[str]:
    """Return the names of unused communication buffers: those of the other kind of board; both for a single GPU."""
    names = {False: "comms_bytes", True: "comms_bytes_pcie"}
    card = pool.gpu is not None and pool.gpu.pcie_card
    return [name for kind, name in names.items() if pool.layout.gpus == 1 or kind != card]


def _in_process(pool: BoundPool) -> bool:
    return isinstance(pool.steptime, Roofline) and pool.steptime.in_process


def _unused_prefixes(pool: BoundPool) -> tuple[str, ...]:
    """Return the prefixes of overheads that are for another kind of model, GPU or layout than *pool* has."""
    if pool.model is None or pool.gpu is None:
        return ("",)  # every name begins with it
    applies = {
        "moe_": pool.model.moe is not None,
        "mla_": pool.model.mla is not None,
        "blackwell_": pool.gpu.blackwell,
        "hopper_": pool.gpu.hopper,
        "ada_": pool.gpu.ada,
        "recent_": pool.gpu.blackwell or pool.gpu.hopper,
        "cdna_": pool.gpu.cdna,
        "draft_": pool.drafter is not None,
        "kv_8bit_": kv_element_bytes(pool.kv_cache_dtype) < SIXTEEN_BIT_BYTES,
        "launch_linear_": by_delta_rule(pool.model),
        "launch_latent_": pool.model.mla is not None,
        "launch_indexer_": pool.model.indexer is not None,
        "tp_": pool.layout.tensor_parallel_size > 1,
    }
    return tuple(start for start, holds in applies.items() if not holds)


def _steptime_facts(prefix: str, pool: BoundPool, inputs: RooflineInputs, catalog: Catalog) -> Iterator[Fact]:
    graphics = inputs.kernel_compute is inputs.kernel.graphics_compute_time_factor
    unused = ["compute_time_factor" if graphics else "graphics_compute_time_factor"]
    if not inputs.server_blackwell:
        unused.append("server_blackwell_compute_factor")
    if inputs.model.moe is None:
        unused += ["moe_compute_time_factor", "moe_weight_time_factor"]
    yield from _all(f"{prefix}.kernel", inputs.kernel, tuple(unused))
    options = pool.steptime.values(inputs.coefficients) if isinstance(pool.steptime, Roofline) else {}
    for name, value in (used_values(inputs) | options).items():
        yield Fact(f"{prefix}.steptime.{name}", value)
    yield from _some(f"{prefix}.gpu", inputs.gpu, _more_rates(inputs))
    if one_call(inputs) is not None:
        yield from _some(f"{prefix}.gpu", inputs.gpu, ("sm_count", "l2_bytes"))
    if pool.layout.gpus > 1:
        yield from _link_facts(f"{prefix}.link", inputs)
    for name, value in network_facts(pool, catalog):
        yield Fact(f"{prefix}.network.{name}", value)
    if inputs.host is not None and inputs.host.streams_some and pool.host_link is not None:
        yield from _some(f"{prefix}.host_link", pool.host_link, ("theoretical_bytes_per_s",))


def _link_facts(prefix: str, inputs: RooflineInputs) -> Iterator[Fact]:
    """Yield the rate of the link and the collectives between a replica's GPUs inside a server."""
    link, network = inputs.link, inputs.network
    yield from _some(prefix, link, ("theoretical_bytes_per_s", "measured_bytes_per_s"))
    here = network.gpus_per_server if network is not None else inputs.expert_ranks
    ranks = min(inputs.tensor_parallel_size, here)
    if ranks > 1:
        nccl = table_for(link.nccl_tables, ranks)
        alone = nccl is not None and nccl.gpus >= ranks
        if not alone or inputs.own_all_reduce_bytes(inputs.tensor_parallel_size):
            yield from _collective_facts(prefix, link, "allreduce_tables", ranks)
        if alone:
            yield from _collective_facts(prefix, link, "nccl_tables", ranks)
    if inputs.model.moe is not None and inputs.expert_ranks > inputs.tensor_parallel_size and here > 1:
        yield from _collective_facts(prefix, link, "exchange_tables", min(inputs.expert_ranks, here))


def _collective_facts(prefix: str, link: Link, name: str, ranks: int) -> Iterator[Fact]:
    """Yield the largest message of the measured table for *ranks* ranks.

    Without such a table, or if it is assumed, latency and bus rate are yielded instead.
    """
    exchange = name == "exchange_tables"
    table = exchange_table(link, ranks) if exchange else table_for(getattr(link, name), ranks)
    if table is not None and table.kind not in WEAK_KINDS:
        note = Message(
            "time of an all-reduce of {bytes:g} bytes, the largest of {count} measured",
            table.bytes[-1],
            len(table.bytes),
        )
        if exchange:
            note = Message(
                "time of a gather and a scatter of {bytes:g} bytes, the largest of {count} measured",
                table.bytes[-1],
                len(table.bytes),
            )
        origin = table.model_dump(include={"source", "where", "kind", "as_of"})
        yield Fact(f"{prefix}.{name}.{table.gpus}", Value(value=table.time_s[-1], note=note, **origin))
        return
    for rest in ("allreduce_latency_s", "allreduce_bus_bytes_per_s"):
        by_gpus: dict[int, Value] = getattr(link, rest)
        gpus = nearest_entry({gpus: gpus for gpus in by_gpus}, ranks)
        yield Fact(f"{prefix}.{rest}.{gpus}", by_gpus[gpus])


def _service_facts(prefix: str, pool: BoundPool, catalog: Catalog) -> Iterator[Fact]:
    """Yield the values behind a batch time: work of the network, rates of the card, fitted fractions of them."""
    if pool.gpu is None or pool.service is None:
        return
    device = one_pass_step_time(pool, catalog).device
    rate = DENSE_RATES[device.precision]
    yield from _some(f"{prefix}.gpu", pool.gpu, ("memory_bytes_per_s", rate, "sm_count"))
    yield from _all(f"{prefix}.model", pool.service)
    coefficients = batch_coefficients(catalog)
    yield from _all(f"{prefix}.batchtime", coefficients.of(pool.service))
    unused = () if device.alone else ("slice_speed",)
    yield from _all(f"{prefix}.batchtime", coefficients, unused)
    for name, known in (("architecture", coefficients.architectures), ("gpu", coefficients.gpus)):
        value = known.get(device.architecture if name == "architecture" else device.gpu)
        if value is not None:
            yield Fact(f"{prefix}.batchtime.{name}", value)


def _power_facts(prefix: str, pool: BoundPool, catalog: Catalog) -> Iterator[Fact]:
    if pool.gpu is None or pool.gpu.tdp_w is None:
        return
    coefficients = power_coefficients(catalog)
    for name in ("computing", "per_byte_j", "per_activation_j"):
        yield Fact(f"{prefix}.{name}", getattr(coefficients, name))
    if pool.quantization is not None and unpacks(pool.gpu, pool.quantization):
        yield Fact(f"{prefix}.narrow_weights", coefficients.narrow_weights)
    yield Fact(f"{prefix}.running", coefficients.running_of(pool.gpu))
    if pool.layout.gpus > 1:
        yield Fact(f"{prefix}.waiting", coefficients.waiting)
    family = coefficients.family(pool.gpu)
    if family is not None and family.factor is not None:
        yield Fact(f"{prefix}.factor", family.factor)
    if pool.speed is not None:
        yield Fact(f"{prefix}.speed_under_cap", pool.speed)
    if pool.gpu.loaded_idle_w is None:
        yield Fact(f"{prefix}.loaded_idle", coefficients.loaded_idle_of(pool.gpu))


SAMPLED_REQUESTS = 1000
"""Number of sampled requests from which the mean context is estimated."""
NOT_OF_FLEETS = ("name", "question", "seed", "replications", "slo", "horizon_s", "warmup_s", "sweep")
"""Keys of a scenario on which no fleet's plan depends; the plan ignores the arrivals of the workload, too."""
MOST_PLANS = 50
"""Largest number of cached plans per catalogue."""
_OF_FLEETS: dict[str, Any] = dict.fromkeys(Experiment.model_fields.keys() - {*NOT_OF_FLEETS}, True) | {
    "workload": {*Workload.model_fields} - {"arrivals"}
}
"""Keys of a scenario that the plan of a fleet depends on, as pydantic's `include`."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Part of a plan that is shared by all replications."""

    pools: tuple[PoolPlan, ...]
    costs: CostPlan | None
    carbon: CarbonPlan | None
    machines: Machines
    clock: SiteClock | None
    pue: float
    infeasible: str
    facts: tuple[Fact, ...]
    kv_transfer: TransferPlan | None = None


_PLANS: WeakKeyDictionary[Catalog, dict[str, FleetPlan]] = WeakKeyDictionary()


def resolve_fleet(
    scenario: Experiment,
    fleet: Fleet,
    catalog: Catalog,
    models: Sequence[Sequence[BoundPool]] | None = None,
    *,
    advised: bool = True,
) -> FleetPlan:
    """Return the plan of *fleet*, from a cache if its keys, the files that they name and the *catalog* are unchanged.

    A fleet with user-defined policies is planned anew each time. *models* are the bound models of each pool, if the
    caller has them already. A refusal names changes that fit if *advised*. Raises CostError that lists every missing
    price.
    """
    alone = scenario.model_copy(update={"fleets": (fleet,)})
    keys = alone.model_dump(mode="json", exclude_unset=True, include=_OF_FLEETS)
    if versions(keys):
        return _plan_fleet(scenario, fleet, catalog, models, advised)
    key = json.dumps([keys, [state_of(file) for file in files_of(keys)], advised])
    plans = _PLANS.setdefault(catalog, {})
    if key not in plans:
        plan = _plan_fleet(scenario, fleet, catalog, models, advised)
        while len(plans) >= MOST_PLANS:
            del plans[next(iter(plans))]
        plans[key] = plan
    return plans[key]


def _plan_fleet(
    scenario: Experiment,
    fleet: Fleet,
    catalog: Catalog,
    models: Sequence[Sequence[BoundPool]] | None,
    advised: bool,
) -> FleetPlan:
    models = models or [pool_models(scenario, fleet, pool, catalog) for pool in fleet.pools]
    bound = [each[0] for each in models]
    names = pool_names(bound)
    slices = slices_of(bound, fleet, names)
    servers = servers_per_replica(bound, fleet, slices)
    fits, reasons = _memory_fits(scenario, bound, catalog, advised)
    pools = tuple(
        _pool_plan(pool, _workload_of(scenario, pool), name, memory, part, share, scenario.measured_at, catalog)
        for pool, name, memory, part, share in zip(bound, names, fits, slices, servers, strict=True)
    )
    shared = [
        _shared(scenario, *one, catalog, advised) for one in zip(fleet.pools, models, pools, servers, strict=True)
    ]
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
        for i, (each, plan) in enumerate(zip(models, pools, strict=True))
        for place, (pool, part) in enumerate(zip(each, plan.models or (plan,), strict=True))
        for fact in pool_facts(
            f"fleets.{fleet.name}.pools.{i}{f'.models.{place}' if place else ''}",
            *(pool, part.steptime, catalog, terms.by_height),
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
        infeasible=joined(
            "; ",
            [
                reason if len(bound) == 1 else placed(f"pool {name}", reason)
                for name, reason in zip(names, reasons, strict=True)
                if reason
            ],
        ),
        kv_transfer=transfer_of(fleet, bound, catalog),
        facts=(*facts, *cost_facts(f"fleets.{fleet.name}.cost", costs), *_grid_facts(carbon)),
    )


def memory_refusals(scenario: Experiment, fleet: Fleet, catalog: Catalog) -> list[str]:
    """Return why each pool of *fleet* cannot start with its first model; empty texts for those that can.

    This costs a third of a plan. Raises the errors of `bind`.
    """
    bound = [pool_models(scenario, fleet, pool, catalog)[0] for pool in fleet.pools]
    return _memory_fits(scenario, bound, catalog, advised=False)[1]


def _memory_fits(
    scenario: Experiment, bound: Sequence[BoundPool], catalog: Catalog, advised: bool
) -> tuple[list[MemoryFit | None], list[str]]:
    """Return the memory fit of each pool of *bound*, and why it cannot start; an empty text if it can."""
    settings = [_fit_settings(pool, _workload_of(scenario, pool)) for pool in bound]
    fits = [_memory_fit(pool, wanted) for pool, wanted in zip(bound, settings, strict=True)]
    return fits, [_refusal(*one, catalog, advised) for one in zip(bound, fits, settings, strict=True)]


def pool_models(scenario: Experiment, fleet: Fleet, pool: Pool, catalog: Catalog) -> list[BoundPool]:
    """Return *pool*, bound to each model that its services run. Raises the errors of `bind`."""
    return models_of(scenario, fleet, pool, catalog) if pool.services else [bind(scenario, fleet, pool, catalog)]


def _shared(
    scenario: Experiment,
    pool: Pool,
    models: Sequence[BoundPool],
    plan: PoolPlan,
    servers: float,
    catalog: Catalog,
    advised: bool,
) -> tuple[PoolPlan, str]:
    """Add the plans of the other *models* to the *plan* of the first.

    Return it with the reason why the models cannot start together; the reason is empty if they can.
    """
    if len(models) == 1:
        return plan, ""
    settings = [_fit_settings(one, _workload_of(scenario, one)) for one in models]
    fits = [_memory_fit(*one) for one in zip(models, settings, strict=True)]
    reasons = [_refusal(*one, catalog, advised) for one in zip(models, fits, settings, strict=True)]
    plans = tuple(
        _pool_plan(one, _workload_of(scenario, one), plan.name, memory, None, servers, scenario.measured_at, catalog)
        for one, memory in zip(models, fits, strict=True)
    )
    refused = [
        placed(", ".join(one.spec.services), reason) for one, reason in zip(models, reasons, strict=True) if reason
    ]
    whole = replace(plan, services=pool.services, service=" + ".join(pool.services), models=plans)
    return whole, joined("; ", refused) or sleep_shortfall(models[0], fits)


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
    """Return keyword arguments of `fit` and `suggest_changes`."""
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


def _refusal(
    pool: BoundPool, memory: MemoryFit | None, settings: dict[str, Any], catalog: Catalog, advised: bool
) -> str:
    """Return why the pool cannot start, and if *advised* changes that let it start; empty if it can.

    An explicit block pool is not checked.
    """
    if pool.gpu is not None and pool.engine.vendors and pool.gpu.vendor not in pool.engine.vendors:
        return Message("{engine} does not run on {gpu}", pool.engine.name, pool.gpu.name)
    slots = isinstance(pool.batching, Slots)
    if memory is None or memory.fits or (pool.batching.num_gpu_blocks is not None and not slots):
        return _slots_refusal(pool, memory) if memory is not None and slots else ""
    if not advised or pool.gpu is None or pool.model is None or pool.quantization is None or pool.offload is not None:
        return memory.reason
    candidates = [catalog.quantization(name) for name in catalog.ids("quantizations")]
    wanted = (pool.model, pool.quantization, pool.engine, candidates)
    if pool.slicing is None:
        advice = suggest_changes(pool.gpu, *wanted, **settings)
    else:
        advice = suggest_slices(pool.slicing.card, *wanted, pool.slicing.profile, **settings)
    return joined("; ", [memory.reason, advice] if advice else [memory.reason])


def _pool_plan(
    pool: BoundPool,
    workload: Workload,
    name: str,
    memory: MemoryFit | None,
    slices: Slices | None,
    servers: float,
    measured_at: str,
    catalog: Catalog,
) -> PoolPlan:
    steptime, layout, cache = pool.steptime, pool.layout, sequence_cache(pool)
    overhead_s = tokenising_s = intake_s = turn_s = 0.0
    if isinstance(steptime, Roofline) and pool.model is not None and pool.gpu is not None and measured_at == "client":
        overhead_s = steptime.request_overhead_s(pool.engine, pool.model, layout.tensor_parallel_size, pool.gpu)
        tokenising_s = steptime.tokenising_s(pool.engine)
        intake_s, turn_s = steptime.intake_s(pool.engine), steptime.turn_s(pool.engine)
    return PoolPlan(
        name=name,
        gpu=pool.gpu.id if pool.gpu else "",
        server=pool.server.id if pool.server else "",
        replicas=pool.spec.most_replicas,
        gpus_per_replica=gpus_per_replica(pool, slices) if pool.gpu else 0,
        batching=_with_memory_limits(pool, memory),
        steptime=_steptime(pool, catalog),
        pipeline_parallel_size=layout.pipeline_parallel_size,
        data_parallel_size=layout.data_parallel_size,
        lockstep=layout.enable_expert_parallel and layout.data_parallel_size > 1,
        overlaps_chunks=overlaps_chunks(pool.engine),
        overlaps_batches=_overlaps_batches(pool),
        padded_tokens=_padded_tokens(pool),
        request_overhead_s=overhead_s,
        tokenising_s=tokenising_s,
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
        usual_tokens=_usual_context(workload) if pool.spec.kv_tiers and cache.has_states else 0,
        adapters=adapters_of(pool, catalog),
        kv_note=pool.kv_note or state_note(pool.model, pool.state_cache, memory, pool.batching.max_num_seqs),
        sequence_cache=cache,
    )


BUILT: deque[RooflineStepTime] = deque(maxlen=64)
"""Rooflines built last in this process: equal pools of other cases reuse their costs by number of tokens."""


def roofline_of(spec: Roofline, inputs: RooflineInputs) -> RooflineStepTime:
    """Return the roofline of a pool, which keeps its costs by number of tokens: one of the last built, if equal."""
    for known in reversed(list(BUILT)):  # the last one is the most likely
        if known.spec == spec and known.inputs == inputs:
            return known
    built = roofline_step_time(spec, inputs)
    BUILT.append(built)
    return built


def _steptime(pool: BoundPool, catalog: Catalog) -> StepTime:
    if isinstance(pool.steptime, Roofline):
        built = roofline_of(pool.steptime, roofline_inputs(pool, catalog))
        drafted = _with_drafts(pool, pool.steptime, built)
        return drafted if pool.spec.lora is None else adapted(drafted, pool.spec.lora, catalog)
    if isinstance(pool.steptime, RegisteredStepTime):
        known = pool.gpu is not None and pool.model is not None
        return pool.steptime.build(roofline_inputs(pool, catalog) if known else None)
    if isinstance(pool.steptime, OnePass):
        return one_pass_step_time(pool, catalog)
    return pool.steptime.build() if isinstance(pool.steptime, Affine) else pool.steptime


def _with_drafts(
    pool: BoundPool, roofline: Roofline, built: RooflineStepTime
) -> RooflineStepTime | DraftHeadStepTime | DraftModelStepTime:
    """Return *built* with the passes that draft tokens; *built* itself without a draft model."""
    drafts = pool.batching.speculative if isinstance(pool.batching, Vllm) else None
    if drafts is None or drafts.method == "ngram":
        return built
    if pool.drafter is None:
        return DraftHeadStepTime(built, drafts.num_speculative_tokens)
    drafting = roofline_of(roofline, pool.drafter.inputs(built.inputs))
    return DraftModelStepTime(built, drafting, drafts.num_speculative_tokens)


def _with_memory_limits(pool: BoundPool, memory: MemoryFit | None) -> Scheduler:
    """Return the scheduler's limits with the block pool and the longest request for which the memory has room."""
    batching = pool.batching
    blocks, longest = (memory.num_gpu_blocks, memory.max_model_len) if memory else (0, 0)
    if isinstance(batching, Slots) and _has_too_many_slots(pool, memory):
        return batching.model_copy(update={"max_num_seqs": 1})
    return limited_by_states(batching.sized(blocks, longest), pool.state_cache, memory)


def _has_too_many_slots(pool: BoundPool, memory: MemoryFit | None) -> bool:
    """Return whether the memory holds fewer slots than are wanted; a unified cache holds any number of slots."""
    shared = isinstance(pool.batching, Slots) and pool.batching.kv_unified
    return memory is not None and not shared and memory.num_gpu_blocks < (pool.batching.max_num_seqs or 1)


def _slots_refusal(pool: BoundPool, memory: MemoryFit) -> str:
    """Return why the slots that the scenario asks for do not fit; empty if they do, or if it asks for no number."""
    if pool.spec.batching.max_num_seqs is None or not _has_too_many_slots(pool, memory):
        return ""
    slots, context = pool.batching.max_num_seqs, pool.batching.max_model_len
    return Message(
        "{slots} slots of {context} tokens asked for, the memory holds {num_gpu_blocks}",
        slots,
        context,
        memory.num_gpu_blocks,
    )
