"""Weights in host memory: options that an engine lacks, layers that a model lacks, hosts that nobody has described."""

from collections.abc import Iterator

from sim.batching import Vllm
from sim.catalogue.entries.engine import Engine
from sim.catalogue.entries.model import Model
from sim.catalogue.entries.offload import EngineOffload, Offload, OffloadOption
from sim.memory import adapter_bytes, module_names
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.resolving.bind import BoundPool
from sim.steptime import Roofline
from sim.units import GB


def offload_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    """All that is wrong with what stays in host memory; nothing where nothing does."""
    asked, use = pool.offload, pool.engine.offload
    if asked is None:
        return
    given = {name: value for name, value in asked.given.items() if getattr(pool.spec, name) is not None}
    foreign = [name for name in given if use is None or name not in use.options]
    for name in foreign:
        yield Complaint((*place, name), _foreign(name, pool.engine))
    if foreign or use is None:
        return
    if not isinstance(pool.steptime, Roofline):
        for name in given:
            yield Complaint((*place, name), f"has no part in a step time of {pool.steptime.model}: remove it")
        return
    key = str(next(iter(given), "engine"))
    if pool.model is not None:
        for wrong, text in _beyond(asked, pool.model):
            yield Complaint((*place, wrong), text)
    yield from _layout(pool, key, place)
    yield from _host(pool, use, key, place)


def _foreign(name: OffloadOption, engine: Engine) -> str:
    if engine.offload is None:
        return f"{engine.id} has no such option: it keeps all weights on its GPUs"
    return f"{engine.id} has no such option; it has {' and '.join(engine.offload.options)}"


def _beyond(asked: Offload, model: Model) -> Iterator[tuple[str, str]]:
    """More layers than the model has, or experts of one that has none."""
    layers = model.layers
    if asked.n_gpu_layers is not None and asked.n_gpu_layers > layers + 1:
        text = f"must be at most {layers + 1}, not {asked.n_gpu_layers}: {model.id} has {layers} layers and its LM head"
        yield "n_gpu_layers", text
    if asked.n_cpu_moe is not None and model.moe is None:
        yield "n_cpu_moe", f"{model.id} has no experts"
    elif asked.n_cpu_moe is not None and asked.n_cpu_moe > layers:
        yield "n_cpu_moe", f"must be at most {layers}, the layers of {model.id}, not {asked.n_cpu_moe}"


def _layout(pool: BoundPool, key: str, place: Place) -> Iterator[Complaint]:
    """Layouts that are not computed here."""
    if pool.slicing is not None:
        yield Complaint((*place, "mig"), f"takes no weights in host memory ({key}): slices would share the link")
    sizes = ["pipeline_parallel_size", "data_parallel_size"]
    if pool.offload is not None and pool.offload.cpu_offload_gb is None:
        sizes.insert(0, "tensor_parallel_size")
    for name in sizes:
        if getattr(pool.spec, name) != 1:
            yield Complaint((*place, name), f"must be 1 with weights in host memory ({key})")


def _host(pool: BoundPool, use: EngineOffload, key: str, place: Place) -> Iterator[Complaint]:
    """What the step time and the memory fit need to know of the host."""
    if pool.gpu is not None and pool.gpu.is_host:
        yield Complaint(
            (*place, key), f"{pool.gpu.id} has one memory for processors and GPU: nothing can be left elsewhere"
        )
        return
    if pool.server is None:
        yield Complaint((*place, key), "needs a server: it says how much memory the host has and how fast that is")
        return
    needed = ["host_memory_bytes"]
    if use.streaming == "none" or use.stream_from_tokens is not None:
        needed += ["host_memory_bytes_per_s", "host_flops"]
    lacks = [name for name in needed if getattr(pool.server, name) is None]
    if lacks:
        yield Complaint((*place, "server"), f"{pool.server.id} has no known {' and '.join(lacks)}, which {key} needs")
    if use.streaming != "none" and pool.gpu is not None and pool.host_link is None:
        yield Complaint((*place, "gpu"), f"{pool.gpu.id} has no known PCIe generation and lanes, which {key} needs")


def tier_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    """Tiers below a KV cache that names no blocks, or of an engine whose rules for them are not known."""
    tiers, batching, layout = pool.spec.kv_tiers, pool.batching, pool.layout
    if not tiers:
        return
    at = (*place, "kv_tiers")
    names = [tier.name for tier in tiers]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Complaint(at, f"the tier {name!r} stands twice")
    if not isinstance(batching, Vllm):
        yield Complaint(at, "needs batching: {policy: vllm}, the only scheduler whose tiers are modelled")
    elif not batching.enable_prefix_caching:
        yield Complaint(at, "keeps blocks by name, and the prefix cache is off: say enable_prefix_caching: true")
    elif batching.async_scheduling or batching.speculative is not None or batching.kv_groups not in (None, "mean"):
        text = "is modelled without async_scheduling, speculative and kv_groups: remove what is set of them"
        yield Complaint(at, text)
    if layout.pipeline_parallel_size > 1 or (layout.enable_expert_parallel and layout.data_parallel_size > 1):
        yield Complaint(at, "is modelled for one rank that steps alone: no pipeline stages, no expert parallel ranks")
    if pool.spec.role != "both":
        yield Complaint(at, "is modelled for pools that compute prompts and answers: remove role")
    if pool.model is None and pool.spec.kv_bytes_per_token is None:
        yield Complaint((*place, "kv_bytes_per_token"), "is missing: without a model nobody knows what a tier holds")


def adapter_complaints(pool: BoundPool, place: Place) -> Iterator[Complaint]:
    """Slots for LoRA adapters in engines whose rules for them are not modelled, or of a model without such matrices."""
    lora, batching, layout = pool.spec.lora, pool.batching, pool.layout
    if lora is None:
        return
    at = (*place, "lora")
    if not isinstance(batching, Vllm):
        yield Complaint(at, "needs batching: {policy: vllm}, the only scheduler whose adapters are modelled")
    elif batching.kv_groups not in (None, "mean"):
        yield Complaint(at, "is modelled without kv_groups: say kv_groups: mean")
    if layout.pipeline_parallel_size > 1 or (layout.enable_expert_parallel and layout.data_parallel_size > 1):
        yield Complaint(at, "is modelled for one rank that steps alone: no pipeline stages, no expert parallel ranks")
    if pool.spec.role != "both":
        yield Complaint(at, "is modelled for pools that compute prompts and answers: remove role")
    if pool.offload is not None:
        yield Complaint(at, "is modelled with all weights on the GPUs: remove what leaves some in host memory")
    if not isinstance(pool.steptime, Roofline) or pool.model is None or pool.gpu is None:
        yield Complaint(at, "needs a gpu, a model and the step time that is computed from them")
        return
    if pool.gpu.pcie_gen is None or pool.gpu.pcie_lanes is None:
        yield Complaint((*place, "gpu"), f"{pool.gpu.id} has no known PCIe generation and lanes, which lora needs")
    known = module_names(pool.model)
    for name in lora.target_modules or ():
        if name not in known:
            text = f"{pool.model.id} has no matrix {name!r} that adapters change{did_you_mean(name, known)}"
            yield Complaint((*at, "target_modules"), text)
    needed = lora.in_host * adapter_bytes(pool.model, lora) * pool.replicas_per_host
    if pool.server is not None and (host := pool.server.host_memory_bytes) is not None and needed > host.value:
        text = f"{needed / GB:.0f} GB of adapters do not fit the {host.value / GB:.0f} GB of {pool.server.id}"
        yield Complaint((*at, "max_cpu_loras"), text)
