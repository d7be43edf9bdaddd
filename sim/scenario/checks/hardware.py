"""Checks of a pool's hardware against what the scenario asks of it, with alternatives that would fit.

GPUs without the server they need, MIG slices that the driver would refuse, batches larger than the memory, and weights,
KV blocks or adapters in host memory that the engine, the model or the host does not support.
"""

from collections.abc import Iterator

from sim.batching import Vllm
from sim.batchtime.memory import BatchMemory
from sim.batchtime.one_pass import OnePass
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import Engine, EngineOffload, Offload, OffloadOption
from sim.catalogue.gpu import Gpu, Mig, sliced
from sim.catalogue.model import Model
from sim.catalogue.server import Server
from sim.cost.buying import Buy
from sim.cost.cost_plan import Cost
from sim.memory.lora import adapter_bytes, module_names
from sim.message import Message
from sim.scenario.experiment import Pool
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import at_point, points
from sim.steptime.options import Roofline
from sim.units import GB
from sim.validation import Place, ValidationIssue, did_you_mean


def gpus_without_server_notes(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Return a note for every fleet of *scenario* whose bill or power excludes hosts, at any sweep point.

    Rented GPUs include the power of their hosts in the rent.
    """
    touched = (
        {path: value for path, value in at.items() if path.startswith("fleets.")} for at in points(scenario.sweep)
    )
    distinct = {repr(one): one for one in touched}
    found: dict[str, None] = {}
    for overrides in distinct.values():
        at = at_point(scenario, overrides)
        for fleet in at.fleets:
            bought, unpaid = _gpus_without_server(fleet, _other_ways(at, fleet), catalog)
            if bought:
                gpus = " and ".join(dict.fromkeys(bought))
                found[
                    Message(
                        "Host not included: {name} buys {gpus} without a server, so neither its price nor its power "
                        "is on the bill: give the pool a server.",
                        fleet.name,
                        gpus,
                    )
                ] = None
            elif unpaid:
                gpus = " and ".join(dict.fromkeys(unpaid))
                unknown = " and ".join(gpu for gpu in dict.fromkeys(unpaid) if catalog.gpu(gpu).tdp_w is None)
                found[
                    Message(
                        "The power of {name} is not known: the catalogue has no power limit of {unknown}.",
                        fleet.name,
                        unknown,
                    )
                    if unknown
                    else Message(
                        "Host not included: the power of {name} is that of {gpus} alone: give the pool a server.",
                        fleet.name,
                        gpus,
                    )
                ] = None
            for gpu in dict.fromkeys([*bought, *unpaid]):
                found |= dict.fromkeys(_watts(catalog.gpu(gpu), catalog))
    return list(found)


def _gpus_without_server(fleet: Fleet, also: tuple[Cost, ...], catalog: Catalog) -> tuple[list[str], list[str]]:
    """Return (GPUs that are bought, GPUs without costs) that have no server."""
    bought, unpaid = [], []
    for pool, cost in zip(fleet.pools, fleet.costs, strict=True):
        if not _needs_host(pool, catalog):
            continue
        assert pool.gpu is not None
        if any(isinstance(way, Buy) for way in (cost, *also)):
            bought.append(pool.gpu)
        elif cost is None:
            unpaid.append(pool.gpu)
    return bought, unpaid


def _needs_host(pool: Pool, catalog: Catalog) -> bool:
    return pool.gpu is not None and pool.server is None and not catalog.gpu(pool.gpu).is_host


def _watts(gpu: Gpu, catalog: Catalog) -> Iterator[str]:
    """Yield a note on the power of the smallest server for cards such as *gpu*, without the cards."""
    hosts = [server for server in map(catalog.server, catalog.ids("servers")) if _carries(server, gpu)]
    if not hosts:
        return
    host = min(hosts, key=lambda server: (server.gpu_slots.value, server.id))
    assert host.base_power_w is not None
    low_w, high_w = host.base_power_w.range or (host.base_power_w.value, host.base_power_w.value)
    yield (
        Message(
            "A server for {gpu}: {host} (GPU slots: {slots:g}) draws {power_w:g} W, {low_w:g} to {high_w:g} "
            "W, beside its GPUs.",
            gpu.id,
            host.id,
            host.gpu_slots.value,
            host.base_power_w.value,
            low_w,
            high_w,
        )
    )


def _carries(server: Server, gpu: Gpu) -> bool:
    built_for = server.gpu == gpu.id or (server.gpu is None and gpu.pcie_card)
    return built_for and server.base_power_w is not None


def _other_ways(scenario: Scenario, fleet: Fleet) -> tuple[Cost, ...]:
    """Return the other acquisitions of the fleet that `breakeven` compares."""
    return tuple(scenario.breakeven.also.get(fleet.name, {}).values()) if scenario.breakeven is not None else ()


RANKS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def slice_issues(pool: BoundPool, place: Place, catalog: Catalog) -> Iterator[ValidationIssue]:
    """Yield issues of MIG slices: unknown profiles, and ranks, schedules or power caps on slices."""
    profile = pool.spec.mig
    if profile is None:
        return
    if pool.slicing is None:
        yield ValidationIssue((*place, "mig"), _no_such_profile(pool, profile, catalog))
        return
    for name in RANKS:
        if getattr(pool.spec, name) != 1:
            text: str = Message(
                "must be 1: MIG slices have no link between them; {larger}", _larger(pool.slicing.mig, profile)
            )
            yield ValidationIssue((*place, name), text)
    for key in ("schedule", "autoscaling"):
        if getattr(pool.spec, key) is not None:
            text = "needs whole GPUs: a GPU stays on while any of its slices is used"
            yield ValidationIssue((*place, key), text)
    if pool.power.cap_w is not None:
        text = Message(
            "{cap_w:g} W is the cap of the whole GPU; the speed of its slices under it is not known", pool.power.cap_w
        )
        yield ValidationIssue((*place, "mig"), Message("with power.cap_w: {text}", text))


def _no_such_profile(pool: BoundPool, profile: str, catalog: Catalog) -> str:
    if pool.gpu is None:
        return "needs a gpu that is cut into slices"
    if pool.gpu.mig is None:
        able = ", ".join(name for name in catalog.ids("gpus") if catalog.gpu(name).mig is not None)
        return Message("{id} has no MIG profiles in the catalogue; these GPUs have: {able}", pool.gpu.id, able)
    known = pool.gpu.mig.profiles
    each = ", ".join(Message("{name} ({instances} on a GPU)", name, one.instances) for name, one in known.items())
    return Message(
        "{gpu} has no profile {profile!r}: it has {known}{hint}",
        pool.gpu.id,
        profile,
        each,
        did_you_mean(profile, known),
    )


def _larger(mig: Mig, profile: str) -> str:
    memory = mig.profiles[profile].memory_slices
    larger = [name for name, one in mig.profiles.items() if one.memory_slices > memory]
    return Message("a larger slice is {larger}", ", ".join(larger)) if larger else "remove mig for whole GPUs"


def batch_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield an issue for a model or batch larger than the GPU memory, for services with computed batch times."""
    memory = memory_of(pool)
    batch = getattr(pool.batching, "max_batch_size", None)
    if memory is None or pool.gpu is None or pool.service is None or batch is None:
        return
    has = pool.gpu.memory_bytes.value
    most = memory.largest_batch(has)
    if memory.fixed_bytes > has:
        parts = "weights and tables" if pool.service.table_elements else "weights"
        text = Message(
            "{id} needs {fixed_bytes:.1f} GB for its {parts}", pool.service.id, memory.fixed_bytes / GB, parts
        )
        text = Message("{text}, {name} has {available:.1f}", text, pool.gpu.name, has / GB) + _slices_that_fit(
            pool, memory
        )
        yield ValidationIssue((*place, "model"), text)
    elif memory.needed_bytes(batch) > has and memory.request_bytes:
        each = (
            Message("batches of {batch} on each of {instances} instances", batch, memory.instances)
            if memory.instances > 1
            else f"{batch}"
        )
        text = Message(
            "{copies} need at least {needed:.1f} GB, {name} has {available:.1f}",
            each,
            memory.needed_bytes(batch) / GB,
            pool.gpu.name,
            has / GB,
        )
        yield ValidationIssue(
            (*place, "batching", "max_batch_size"),
            Message("{text}: at most {most} fit{elsewhere}", text, most, _slices_that_fit(pool, memory)),
        )


def memory_of(pool: BoundPool) -> BatchMemory | None:
    """Return the memory that batches of *pool* need; None where the batch time is not computed."""
    steptime, dynamic = pool.steptime, pool.batching
    if not isinstance(steptime, OnePass) or pool.service is None or pool.quantization is None:
        return None
    precision = pool.quantization.compute
    if precision == "fp4":
        return None
    instances = getattr(dynamic, "instances", 1)
    samples = steptime.samples_per_request
    return BatchMemory.of(pool.service, precision, instances, samples, steptime.resolution, steptime.table_bytes)


def _slices_that_fit(pool: BoundPool, memory: BatchMemory) -> str:
    """Compose a hint on slices of the card, or the whole card, that hold the batch."""
    if pool.slicing is None:
        return ""
    batch, card = getattr(pool.batching, "max_batch_size", 1), pool.slicing.card
    needed = memory.needed_bytes(batch)
    slices = [name for name in pool.slicing.mig.profiles if sliced(card, name).memory_bytes.value >= needed]
    if slices:
        return Message("; {batch} fit on a slice {slices}", batch, ", ".join(slices))
    return Message("; {batch} fit on the whole {name}", batch, card.name) if card.memory_bytes.value >= needed else ""


def offload_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of offloading to host memory; none where nothing is offloaded."""
    offload, use = pool.offload, pool.engine.offload
    if offload is None:
        return
    given = {name: value for name, value in offload.given.items() if getattr(pool.spec, name) is not None}
    foreign = [name for name in given if use is None or name not in use.options]
    for name in foreign:
        yield ValidationIssue((*place, name), _foreign(name, pool.engine))
    if foreign or use is None:
        return
    if not isinstance(pool.steptime, Roofline):
        for name in given:
            yield ValidationIssue(
                (*place, name), Message("does not affect the step time of {model}: remove it", pool.steptime.model)
            )
        return
    key = str(next(iter(given), "engine"))
    if pool.model is not None:
        for wrong, text in _too_much_offload(offload, pool.model):
            yield ValidationIssue((*place, wrong), text)
    yield from _layout_issues(pool, key, place)
    yield from _host_issues(pool, use, key, place)


def _foreign(name: OffloadOption, engine: Engine) -> str:
    if engine.offload is None:
        return Message("{id} has no such option: it keeps all weights on its GPUs", engine.id)
    return Message("{id} has no such option; it has {options}", engine.id, " and ".join(engine.offload.options))


def _too_much_offload(offload: Offload, model: Model) -> Iterator[tuple[str, str]]:
    """Yield (key, message) where the layers or experts to offload exceed those of the model."""
    layers = model.layers
    if offload.n_gpu_layers is not None and offload.n_gpu_layers > layers + 1:
        text = Message(
            "must be at most {limit}, not {value}: {model} has {layers} layers and its LM head",
            layers + 1,
            offload.n_gpu_layers,
            model.id,
            layers,
        )
        yield "n_gpu_layers", text
    if offload.n_cpu_moe is not None and model.moe is None:
        yield "n_cpu_moe", Message("{id} has no experts", model.id)
    elif offload.n_cpu_moe is not None and offload.n_cpu_moe > layers:
        yield (
            "n_cpu_moe",
            Message(
                "must be at most {layers}, the layers of {id}, not {n_cpu_moe}", layers, model.id, offload.n_cpu_moe
            ),
        )


def _layout_issues(pool: BoundPool, key: str, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of layouts that are not modelled with offloading."""
    if pool.slicing is not None:
        yield ValidationIssue(
            (*place, "mig"), Message("cannot have weights in host memory ({key}): slices would share the link", key)
        )
    sizes = ["pipeline_parallel_size", "data_parallel_size"]
    if pool.offload is not None and pool.offload.cpu_offload_gb is None:
        sizes.insert(0, "tensor_parallel_size")
    for name in sizes:
        if getattr(pool.spec, name) != 1:
            yield ValidationIssue((*place, name), Message("must be 1 with weights in host memory ({key})", key))


def _host_issues(pool: BoundPool, use: EngineOffload, key: str, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of host properties that offloading needs and that are unknown."""
    if pool.gpu is not None and pool.gpu.is_host:
        yield ValidationIssue(
            (*place, key),
            Message("{id} has one memory for processors and GPU: all weights are in it", pool.gpu.id),
        )
        return
    if pool.server is None:
        yield ValidationIssue((*place, key), "needs a server: it gives the capacity and speed of the host memory")
        return
    needed = ["host_memory_bytes"]
    if use.streaming == "none" or use.stream_from_tokens is not None:
        needed += ["host_memory_bytes_per_s", "host_flops"]
    lacks = [name for name in needed if getattr(pool.server, name) is None]
    if lacks:
        yield ValidationIssue(
            (*place, "server"),
            Message("{id} has no known {lacks}, which {key} needs", pool.server.id, " and ".join(lacks), key),
        )
    if use.streaming != "none" and pool.gpu is not None and pool.host_link is None:
        yield ValidationIssue(
            (*place, "gpu"), Message("{id} has no known PCIe generation and lanes, which {key} needs", pool.gpu.id, key)
        )


def tier_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of KV tiers without a prefix cache, or on an engine whose tiers are not modelled."""
    tiers, batching, layout = pool.spec.kv_tiers, pool.batching, pool.layout
    if not tiers:
        return
    at = (*place, "kv_tiers")
    names = [tier.name for tier in tiers]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield ValidationIssue(at, Message("the tier {name!r} is given twice", name))
    if not isinstance(batching, Vllm):
        yield ValidationIssue(at, "needs batching: {policy: vllm}, the only scheduler whose tiers are modelled")
    elif not batching.enable_prefix_caching:
        yield ValidationIssue(at, "needs the prefix cache, which is off: set enable_prefix_caching: true")
    elif batching.async_scheduling or batching.speculative is not None or batching.kv_groups not in (None, "mean"):
        text = "is modelled without async_scheduling, speculative and kv_groups: remove those that are set"
        yield ValidationIssue(at, text)
    if layout.pipeline_parallel_size > 1 or (layout.enable_expert_parallel and layout.data_parallel_size > 1):
        yield ValidationIssue(
            at, "is modelled for one rank that steps alone: no pipeline stages, no expert parallel ranks"
        )
    if pool.spec.role != "both":
        yield ValidationIssue(at, "is modelled for pools that compute prompts and answers: remove role")
    if pool.model is None and pool.spec.kv_bytes_per_token is None:
        yield ValidationIssue(
            (*place, "kv_bytes_per_token"), "is missing: without a model the tokens that a tier holds are unknown"
        )


def adapter_issues(pool: BoundPool, place: Place) -> Iterator[ValidationIssue]:
    """Yield issues of LoRA slots on engines where they are not modelled, or on models without such matrices."""
    lora, batching, layout = pool.spec.lora, pool.batching, pool.layout
    if lora is None:
        return
    at = (*place, "lora")
    if not isinstance(batching, Vllm):
        yield ValidationIssue(at, "needs batching: {policy: vllm}, the only scheduler whose adapters are modelled")
    elif batching.kv_groups not in (None, "mean"):
        yield ValidationIssue(at, "is modelled without kv_groups: set kv_groups: mean")
    if layout.pipeline_parallel_size > 1 or (layout.enable_expert_parallel and layout.data_parallel_size > 1):
        yield ValidationIssue(
            at, "is modelled for one rank that steps alone: no pipeline stages, no expert parallel ranks"
        )
    if pool.spec.role != "both":
        yield ValidationIssue(at, "is modelled for pools that compute prompts and answers: remove role")
    if pool.offload is not None:
        yield ValidationIssue(
            at, "is modelled with all weights on the GPUs: remove the options that leave some in host memory"
        )
    if not isinstance(pool.steptime, Roofline) or pool.model is None or pool.gpu is None:
        yield ValidationIssue(at, "needs a gpu, a model and the step time that is computed from them")
        return
    if pool.gpu.pcie_gen is None or pool.gpu.pcie_lanes is None:
        yield ValidationIssue(
            (*place, "gpu"), Message("{id} has no known PCIe generation and lanes, which lora needs", pool.gpu.id)
        )
    known = module_names(pool.model)
    for name in lora.target_modules or ():
        if name not in known:
            text = Message(
                "{model} has no matrix {name!r} that adapters change{hint}",
                pool.model.id,
                name,
                did_you_mean(name, known),
            )
            yield ValidationIssue((*at, "target_modules"), text)
    needed = lora.in_host * adapter_bytes(pool.model, lora) * pool.replicas_per_host
    if pool.server is not None and (host := pool.server.host_memory_bytes) is not None and needed > host.value:
        text = Message(
            "{needed:.0f} GB of adapters do not fit the {value:.0f} GB of {id}",
            needed / GB,
            host.value / GB,
            pool.server.id,
        )
        yield ValidationIssue((*at, "max_cpu_loras"), text)
