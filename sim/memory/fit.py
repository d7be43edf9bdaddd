"""The memory of one GPU, split as the engine splits it.

    device = reported - kept by the driver
    vLLM:  kv = utilization * device - weights - activations - libraries - communication [- graphs]
    SGLang: kv = utilization * (device - context - communication) - weights
    TensorRT-LLM: kv = utilization * (device - all else)
    activations = max(forward pass at the token budget, sampling at the seat limit)
    forward  = 2 bytes * tokens * (rows * hidden + feed-forward in and out per rank)
    sampling = bytes per logit * seats * vocabulary + 2 bytes * tokens * rows * hidden

The constants are the engine's (data/engines). Start-up logs pin them: vLLM on H100 with 1024 seats (llm-d-benchmark,
six models) shows a peak that grows with seats x vocabulary and hardly with the model, and older logs with 256 seats lie
on the same line. An RTX 4090 with Llama-3.1-8B, 256 seats and 2048 tokens has 41,408 KV tokens: a test, not an input.
"""

from dataclasses import dataclass, replace
from math import copysign, inf

from sim.catalogue.entries.engine import Engine, EngineMemory, default_share
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.model import Model, entries_per_token, index_key_bytes, matrices
from sim.catalogue.entries.offload import HostWeights, Offload
from sim.catalogue.entries.quantization import KvCacheDtype, Quantization, padded
from sim.memory.drafts import DraftMemory
from sim.memory.groups import KvLayout, layer_bytes
from sim.memory.host import InHost, host_weight_bytes, host_weights
from sim.memory.near import near_sequence_bytes, near_step_bytes
from sim.memory.parallel import check_parallel
from sim.memory.shard import Layout, stage_layers, stage_weight_bytes
from sim.memory.states import StateCache, place_bytes
from sim.units import GB


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The GPU with the least KV cache of a replica [bytes, per GPU]. With `fits` False the block counts are 0."""

    gpus: int
    """Of one replica."""
    total_bytes: float
    """As the driver reports."""
    usable_bytes: float
    """What the engine may use of it for all that follows, context and graphs outside the share aside."""
    weights_bytes: float
    activations_bytes: float
    context_bytes: float
    """CUDA context and libraries."""
    graphs_bytes: float
    comms_bytes: float
    kv_bytes: float
    """Negative: the amount that is missing."""
    block_bytes: float
    block_size: int
    num_gpu_blocks: int
    """Of one data-parallel rank, the null block included."""
    kv_tokens: int
    max_model_len: int
    """As asked for, else the most that model and cache allow."""
    fits: bool
    reason: str
    """Why it does not fit; empty if it does."""
    host_weights_bytes: float = 0.0
    """Weights of the replica that lie in host memory."""
    host_kv_bytes: float = 0.0
    """KV cache of the layers that lie there, of all sequences that run together."""
    states_bytes: float = 0.0
    """A cache of recurrent states of its own."""
    state_places: int = 0
    """Sequences whose states it holds, of one data-parallel rank."""


def fit(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    *,
    tensor_parallel_size: int = 1,
    pipeline_parallel_size: int = 1,
    data_parallel_size: int = 1,
    enable_expert_parallel: bool = False,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 2048,
    max_model_len: int | None = None,
    gpu_memory_utilization: float | None = None,
    block_size: int = 16,
    kv_cache_dtype: KvCacheDtype = "auto",
    context_tokens: int | None = None,
    offload: Offload | None = None,
    host_memory_bytes: float = 0.0,
    drafts: DraftMemory | None = None,
    groups: KvLayout | None = None,
    adapter_bytes: float = 0.0,
    states: StateCache | None = None,
) -> MemoryFit:
    """How *model* lies in the memory of each GPU of one replica, and in the replica's part of the host's.

    *quantization* is the one that the weights really have (see `native_quantization`). *context_tokens* is the usual
    length of a request at its end: with sliding-window layers a token of a longer context costs less (default:
    max_model_len). *offload* leaves weights, and the KV cache of layers that the CPU computes, in *host_memory_bytes*.
    *drafts* is what drafting takes, of one pipeline stage, *adapter_bytes* what slots for LoRA adapters take of a GPU.
    With *groups* a block is one of a group of layers. *states* lie beside the KV cache.
    """
    layout = Layout(tensor_parallel_size, pipeline_parallel_size, data_parallel_size, enable_expert_parallel)
    need = engine.memory
    problems = check_parallel(model, quantization, layout)
    if need is None:
        problems.append(f"how {engine.name} uses GPU memory is not known")
    if problems or need is None:
        return _refused(gpu, layout, block_size, "; ".join(problems))
    share = default_share(engine, need, gpu) if gpu_memory_utilization is None else gpu_memory_utilization
    context = min(model.max_context, max_model_len or model.max_context)
    per_token = _kv_bytes_per_token_layer(model, tensor_parallel_size, kv_cache_dtype, context_tokens or context)
    drafts = drafts or DraftMemory()
    host = host_weights(offload, model, quantization, layout) if offload is not None else HostWeights()
    stages = [
        _Stage.of(
            gpu,
            model,
            quantization,
            need,
            layout,
            stage,
            share,
            max_num_seqs,
            max_num_batched_tokens,
            host,
            drafts.weights_bytes + adapter_bytes,
            near_step_bytes(model, kv_cache_dtype, min(max_num_batched_tokens, context)) / model.layers,
        )
        for stage in range(pipeline_parallel_size)
    ]
    tightest = min(stages, key=lambda stage: stage.kv_bytes / stage.layers)
    free_bytes, state_bytes = tightest.kv_bytes, place_bytes(model, tensor_parallel_size, tightest.layers)
    places = states.places_in(free_bytes, state_bytes) if states is not None else 0
    tightest = replace(tightest, kv_bytes=free_bytes - places * state_bytes)
    whole_block_bytes = per_token * block_size * tightest.layers * model.cached_layers / model.layers
    if groups is not None:
        whole_block_bytes = groups.layer_bytes * block_size * groups.layers * tightest.layers / model.layers
    drafts_block_bytes = drafts.kv_bytes_per_token * block_size
    block_bytes = whole_block_bytes * (1 - host.layers / model.layers) + drafts_block_bytes
    needed = -(-max_model_len // block_size) if max_model_len is not None else 2
    if groups is not None:
        needed = groups.blocks(max_model_len or block_size, max_num_batched_tokens) + 1
    in_host = InHost.of(host, model, quantization, layout, whole_block_bytes + drafts_block_bytes - block_bytes)
    on_gpu = tightest.kv_bytes // block_bytes if block_bytes else copysign(inf, tightest.kv_bytes)
    blocks = max(0, int(min(on_gpu, in_host.blocks(host_memory_bytes))))
    reason = states.why_not(free_bytes, state_bytes) if states is not None else ""
    reason = reason or _why_not(
        gpu, quantization, layout, stages, tightest, needed * block_bytes, max_model_len, on_gpu < needed
    )
    reason = reason or in_host.why_not(needed, host_memory_bytes)
    tokens = longest = blocks * block_size
    if groups is not None:
        usual = context_tokens or context
        tokens = int(blocks * usual / groups.blocks(usual, max_num_batched_tokens))
        longest = groups.longest(max(0, blocks - 1), max_num_batched_tokens)
    return MemoryFit(
        gpus=layout.gpus,
        total_bytes=gpu.memory_bytes.value,
        usable_bytes=tightest.usable_bytes,
        weights_bytes=tightest.weights_bytes,
        activations_bytes=tightest.activations_bytes,
        context_bytes=need.context_bytes.value + need.library_bytes.value,
        graphs_bytes=tightest.graphs_bytes,
        comms_bytes=tightest.comms_bytes,
        kv_bytes=tightest.kv_bytes,
        block_bytes=block_bytes,
        block_size=block_size,
        num_gpu_blocks=0 if reason else blocks,
        kv_tokens=0 if reason else tokens,
        max_model_len=max_model_len if max_model_len is not None else min(model.max_context, longest),
        fits=not reason,
        reason=reason,
        host_weights_bytes=in_host.weights_bytes,
        host_kv_bytes=in_host.block_bytes * min(max_num_seqs, blocks),
        states_bytes=places * state_bytes,
        state_places=places,
    )


@dataclass(frozen=True, slots=True)
class _Stage:
    """One GPU of one pipeline stage."""

    layers: int
    usable_bytes: float
    weights_bytes: float
    activations_bytes: float
    library_bytes: float
    graphs_bytes: float
    comms_bytes: float
    kv_bytes: float

    @classmethod
    def of(
        cls,
        gpu: Gpu,
        model: Model,
        quantization: Quantization,
        need: EngineMemory,
        layout: Layout,
        stage: int,
        share: float,
        seats: int,
        tokens: int,
        host: HostWeights,
        further_weights_bytes: float,
        near_layer_bytes: float,
    ) -> "_Stage":
        stored = padded(quantization, model)
        shapes = matrices(stored)
        first, last = stage_layers(model.layers, layout.pipeline_parallel_size)[stage]
        weights = further_weights_bytes + stage_weight_bytes(stored, quantization, shapes, layout, stage)
        if host != HostWeights():
            weights -= host_weight_bytes(host, stored, quantization, layout)
        activations = _activation_bytes(stored, need, layout, seats, tokens, last == model.layers)
        activations += near_layer_bytes * (last - first)
        graphs = need.graph_bytes_per_layer.value * (last - first)
        buffers = need.comms_bytes_pcie if gpu.pcie_card else need.comms_bytes
        comms = buffers.value if layout.joined > 1 else 0.0
        library = need.library_bytes.value
        device = gpu.memory_bytes.value - need.driver_reserved_bytes.value
        if gpu.usable_memory_fraction is not None:
            device *= gpu.usable_memory_fraction.value
        working = activations + library + comms + (graphs if need.graphs_in_share else 0.0)
        room = device - need.context_bytes.value
        if need.share == "everything":
            usable = min(share * device, room)
            kv = usable - weights - working
        elif need.share == "weights_and_kv":
            # SGLang takes its share of what is free once the ranks have met, before it loads the weights
            usable = min(share * (room - comms), room - working)
            kv = usable - weights
        else:
            usable = room
            kv = share * (room - weights - working) if room > weights + working else room - weights - working
        return cls(last - first, usable, weights, activations, library, graphs, comms, kv)


def _activation_bytes(
    model: Model, need: EngineMemory, layout: Layout, seats: int, tokens: int, samples: bool
) -> float:
    tp = layout.tensor_parallel_size
    gates = 2 if model.gated_mlp else 1
    forward = tokens * (gates + 1) * model.intermediate / tp
    if model.moe is not None:
        inner = model.moe.moe_intermediate / (1 if layout.enable_expert_parallel else tp)
        at_once = tokens if need.expert_chunk_tokens is None else min(tokens, need.expert_chunk_tokens.value)
        forward = max(forward, at_once * model.moe.experts_per_token * (max(gates * inner, model.hidden) + inner))
    peak = 2.0 * (tokens * need.forward_hidden_rows.value * model.hidden + forward)
    if not samples:
        return peak
    sampling = need.sampling_bytes_per_logit.value * seats * model.vocab
    return max(peak, sampling + 2.0 * tokens * need.sampling_hidden_rows.value * model.hidden)


def _kv_bytes_per_token_layer(model: Model, tp: int, dtype: KvCacheDtype, context: int | None) -> float:
    """Bytes on one GPU, averaged over the layers that keep a cache: a window of w costs w / context of a full layer, as
    much as one without *context*. Keys of indexers are whole on every GPU, and so are compressed entries; what is kept
    of the last tokens beside them counts only with *context*.
    """
    cached = model.cached_layers
    window = 1.0 if model.sliding_window is None or context is None else min(1.0, model.sliding_window / context)
    windowed = model.sliding_window_layers
    indexers = 0.0 if model.indexer is None else index_key_bytes(model) * model.indexer.indexing_layers / cached
    if model.compressed is not None:
        beside = 0.0 if context is None else near_sequence_bytes(model, dtype, context) / context
        return (layer_bytes(model, tp, dtype) * entries_per_token(model) + beside) / cached + indexers
    inside, whole = (layer_bytes(model, tp, dtype, kind) for kind in (False, True))
    if whole == inside:
        return inside * ((cached - windowed * (1.0 - window)) / cached) + indexers
    return (inside * windowed * window + whole * (cached - windowed)) / cached + indexers


def _why_not(
    gpu: Gpu,
    quantization: Quantization,
    layout: Layout,
    stages: list[_Stage],
    tightest: _Stage,
    smallest_kv: float,
    max_model_len: int | None,
    short: bool,
) -> str:
    if not short:
        return ""
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    weights = sum(stage.weights_bytes for stage in stages) * ranks
    working = sum(stage.usable_bytes - stage.weights_bytes - stage.kv_bytes for stage in stages) * ranks
    left = sum(stage.usable_bytes for stage in stages) * ranks - working
    cards = f"{layout.gpus}x {gpu.memory_nominal_gib.value:g} GB"
    if tightest.kv_bytes <= 0:
        return f"needs {weights / GB:.1f} GB for {quantization.name} weights, {cards} leave {left / GB:.1f}"
    what = f"one request of {max_model_len} tokens" if max_model_len else "one KV block"
    return (
        f"needs {smallest_kv / GB:.2f} GB of KV cache per GPU for {what}, "
        f"{cards} leave {tightest.kv_bytes / GB:.2f} beside {tightest.weights_bytes / GB:.1f} GB of weights"
    )


def _refused(gpu: Gpu, layout: Layout, block_size: int, reason: str) -> MemoryFit:
    return MemoryFit(
        layout.gpus, gpu.memory_bytes.value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, block_size, 0, 0, 0, False, reason
    )
