"""The sourced values that a plan rests on, and only those: a flag on an unused value would be noise.

Those of a computed step time are read off the inputs of its roofline, which are put together here.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from sim.batching import Slots
from sim.batchtime import OnePass
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import default_limit
from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.catalogue.model import Model, activations_per_token, params_total
from sim.catalogue.quantization import Quantization, kv_element_bytes, padded
from sim.catalogue.value import WEAK_KINDS, Value
from sim.cost import CostPlan
from sim.memory import host_weights
from sim.power import LoadLaw, unpacks
from sim.scenario.resolving.bind import BoundPool, batch_coefficients, host_of, one_pass_step_time, power_coefficients
from sim.scenario.resolving.hardware import host_stretch, lanes_stretch, link_of, network_facts, network_of
from sim.scenario.resolving.replicas import adapter_facts
from sim.scenario.resolving.resolved import Fact
from sim.scenario.resolving.scheduler import OPEN_LIMITS, OPEN_SWITCHES, OPTION_OF, STATE_LIMITS, host_beside
from sim.spec import Spec
from sim.steptime import Coefficients, Host, Roofline, RooflineInputs, load_coefficients
from sim.steptime.attention_heads import one_call
from sim.steptime.collective import exchange_table, nearest_entry, table_for
from sim.steptime.inputs import SIXTEEN_BIT_BYTES
from sim.steptime.roofline import used_values


def roofline_inputs(pool: BoundPool, catalog: Catalog) -> RooflineInputs:
    """What the roofline step time of *pool* is built from. Raises ValueError where it lacks a GPU or a model."""
    link = link_of(pool)
    if pool.gpu is None or pool.model is None or pool.quantization is None or link is None or pool.kernel is None:
        raise ValueError("a roofline needs a gpu and a model")
    coefficients = _steptime_coefficients(catalog.root)
    return RooflineInputs(
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
        lanes_stretch=lanes_stretch(pool, catalog),
        network=network_of(pool, catalog),
    )


def _forms_ahead(pool: BoundPool) -> bool:
    if pool.layout.pipeline_parallel_size > 1 or pool.offload:
        return False
    return host_beside(pool.batching, pool.engine)


def _host(pool: BoundPool, catalog: Catalog) -> Host | None:
    """The host as the step time sees it; None where all weights lie on the GPUs."""
    if pool.offload is None or pool.model is None or pool.quantization is None:
        return None
    weights = host_weights(pool.offload, pool.model, pool.quantization, pool.layout)
    host = host_of(pool.engine, weights, pool.server, pool.host_link, pool.replicas_per_host)
    if host is None or host.link_bytes_per_s is None or (stretch := host_stretch(pool, catalog)) == 1:
        return host
    return replace(host, link_bytes_per_s=_part(host.link_bytes_per_s, stretch))


def _part(rate: Value, stretch: float) -> Value:
    """*rate* of lanes that are shared."""
    span = (rate.range[0] / stretch, rate.range[1] / stretch) if rate.range else None
    note = f"{rate.value:g} over lanes that GPUs of a server share"
    return rate.model_copy(update={"value": rate.value / stretch, "range": span, "note": note})


@cache
def _steptime_coefficients(root: Path) -> Coefficients:
    return load_coefficients(root / "steptime.yaml")


def _load_law(gpu: Gpu, model: Model, weights: Quantization, pool: BoundPool, catalog: Catalog) -> LoadLaw | None:
    """How hard steps of *pool* work each GPU."""
    ranks = pool.layout.tensor_parallel_size * pool.layout.pipeline_parallel_size
    activations = activations_per_token(model) / ranks
    return LoadLaw.of(gpu, power_coefficients(catalog), pool.power.cap_w, activations, unpacks(gpu, weights))


HOST_FIELDS = ("host_memory_bytes", "host_memory_bytes_per_s", "host_flops")


def pool_facts(prefix: str, pool: BoundPool, catalog: Catalog, by_height: bool) -> Iterator[Fact]:
    """What one pool rests on; *prefix* is its place, for example `fleets.4x RTX 4090.pools.0`.

    *by_height*: the servers' height is paid for.
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
    if computed:
        yield from _steptime_facts(prefix, pool, catalog)
    yield from (Fact(f"{prefix}.lora.{name}", value) for name, value in adapter_facts(pool, catalog))
    for kind, one in pool.spec.failures.components.items() if pool.spec.failures is not None else ():
        if one.rate is not None:
            yield Fact(f"{prefix}.failures.{kind}.mtbf_h", catalog.failure_rate(one.rate).mtbf_h)


def _host_fields(pool: BoundPool) -> tuple[str, ...]:
    """What counts of the server's host where weights lie in its memory."""
    use = pool.engine.offload
    if pool.offload is None or use is None:
        return ()
    computes = use.streaming == "none" or use.stream_from_tokens is not None
    return HOST_FIELDS if computes else ("host_memory_bytes",)


def cost_facts(prefix: str, costs: CostPlan | None) -> Iterator[Fact]:
    """The catalogue's prices; quotes are the planner's own."""
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
        rate = {"fp16": "fp16_flops", "fp8": "fp8_flops", "int8": "int8_ops_per_s", "fp4": "fp4_flops"}
        names += ["memory_bytes_per_s", "fp16_flops", rate[pool.quantization.compute]]
    return tuple(dict.fromkeys(names))


def _parameters(model: Model) -> Value:
    count, dimensions = float(params_total(model)), model.dimensions
    return Value(
        value=count,
        range=(count, count) if dimensions.kind == "assumed" else None,
        note="; ".join(part for part in ("counted from the dimensions", dimensions.note) if part),
        **dimensions.model_dump(exclude={"note"}),
    )


def _engine_facts(prefix: str, pool: BoundPool, computed: bool) -> Iterator[Fact]:
    engine, model, given = pool.engine, pool.model, pool.spec.batching
    if computed and engine.overheads is not None and model is not None:
        unused = ["per_sequence_s", "per_prompt_token_s", "per_request_s"] if _in_process(pool) else []
        unused += [] if isinstance(pool.steptime, Roofline) and pool.steptime.chat_template else ["chat_template_s"]
        unused += [name for name in type(engine.overheads).model_fields if _does_not_apply(name, pool)]
        yield from _all(f"{prefix}.overheads", engine.overheads, tuple(unused))
        slow = engine.overheads.slow_cards
        if slow is not None and pool.gpu is not None and slow.holds(pool.gpu):
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
            usual, is_open = default_limit(engine, pool.gpu, name), getattr(given, name, None) is None
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
    """Communication buffers of another kind of board, or all of them where a replica has one GPU."""
    names = {False: "comms_bytes", True: "comms_bytes_pcie"}
    card = pool.gpu is not None and pool.gpu.pcie_card
    return [name for kind, name in names.items() if pool.layout.gpus == 1 or kind != card]


def _in_process(pool: BoundPool) -> bool:
    return isinstance(pool.steptime, Roofline) and pool.steptime.in_process


def _does_not_apply(name: str, pool: BoundPool) -> bool:
    """Whether an overhead is for another kind of model, GPU or layout."""
    if pool.model is None or pool.gpu is None:
        return True
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
        "launch_linear_": pool.model.linear_attention is not None,
        "tp_": pool.layout.tensor_parallel_size > 1,
    }
    return any(name.startswith(start) and not holds for start, holds in applies.items())


def _steptime_facts(prefix: str, pool: BoundPool, catalog: Catalog) -> Iterator[Fact]:
    inputs = roofline_inputs(pool, catalog)
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
    if one_call(inputs) is not None:
        yield from _some(f"{prefix}.gpu", inputs.gpu, ("sm_count", "l2_bytes"))
    if pool.layout.gpus > 1:
        yield from _link_facts(f"{prefix}.link", inputs)
    for name, value in network_facts(pool, catalog):
        yield Fact(f"{prefix}.network.{name}", value)
    if inputs.host is not None and inputs.host.streams_some and pool.host_link is not None:
        yield from _some(f"{prefix}.host_link", pool.host_link, ("theoretical_bytes_per_s",))


def _link_facts(prefix: str, inputs: RooflineInputs) -> Iterator[Fact]:
    """The link's rate and the collectives that the GPUs of a replica do over it, inside a server."""
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
    """The largest message of the table for so many *ranks*; where there is none, or it is assumed, what it rests on."""
    exchange = name == "exchange_tables"
    table = exchange_table(link, ranks) if exchange else table_for(getattr(link, name), ranks)
    if table is not None and table.kind not in WEAK_KINDS:
        note = f"time of an all-reduce of {table.bytes[-1]:g} bytes, the largest of {len(table.bytes)} measured"
        if exchange:
            note = (
                f"time of a gather and a scatter of {table.bytes[-1]:g} bytes, "
                f"the largest of {len(table.bytes)} measured"
            )
        origin = table.model_dump(include={"source", "where", "kind", "as_of"})
        yield Fact(f"{prefix}.{name}.{table.gpus}", Value(value=table.time_s[-1], note=note, **origin))
        return
    for rest in ("allreduce_latency_s", "allreduce_bus_bytes_per_s"):
        by_gpus: dict[int, Value] = getattr(link, rest)
        gpus = nearest_entry({gpus: gpus for gpus in by_gpus}, ranks)
        yield Fact(f"{prefix}.{rest}.{gpus}", by_gpus[gpus])


def _service_facts(prefix: str, pool: BoundPool, catalog: Catalog) -> Iterator[Fact]:
    """What a batch time rests on: the network's work, the card's rates, the fitted shares of them."""
    if pool.gpu is None or pool.service is None:
        return
    device = one_pass_step_time(pool, catalog).device
    rate = {"fp16": "fp16_flops", "fp8": "fp8_flops", "int8": "int8_ops_per_s"}[device.precision]
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
