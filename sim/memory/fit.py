"""Memory of one GPU: whether weights, activations and KV cache fit, and which other cards or slices would do."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import copysign, inf
from typing import Any, Self

from sim.catalogue.engine import Engine, EngineMemory, HostWeights, Offload, default_share
from sim.catalogue.gpu import Gpu, sliced
from sim.catalogue.model import Model, entries_per_token, index_key_bytes, matrices
from sim.catalogue.quantization import KvCacheDtype, Quantization, padded
from sim.memory.kv_cache import KvLayout, StateCache, layer_bytes, near_sequence_bytes, near_step_bytes, place_bytes
from sim.memory.weights import (
    HostResidentBytes,
    ReplicaLayout,
    check_parallel,
    host_weight_bytes,
    host_weights,
    stage_layers,
    stage_weight_bytes,
)
from sim.message import Message, joined
from sim.units import GB


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Per GPU [bytes]."""

    weights_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0

    @classmethod
    def of_model(
        cls, model: Model, quantization: Quantization, layout: ReplicaLayout, dtype: KvCacheDtype
    ) -> "DraftMemory":
        """A model of its own, split as the one that it drafts for."""
        stored = padded(quantization, model)
        weights = stage_weight_bytes(stored, quantization, matrices(stored), layout, 0)
        return cls(weights, _kv_bytes_per_layer(model, layout, dtype) * model.cached_layers)

    @classmethod
    def of_heads(
        cls, model: Model, quantization: Quantization, layout: ReplicaLayout, dtype: KvCacheDtype
    ) -> "DraftMemory":
        """One more layer of *model*, its mean one; embedding and LM head are the model's."""
        stored = padded(quantization, model)
        layers = tuple(matrix for matrix in matrices(stored) if matrix.role not in ("embedding", "lm_head"))
        weights = stage_weight_bytes(stored, quantization, layers, layout, 0)
        return cls(weights / model.layers, _kv_bytes_per_layer(model, layout, dtype))


def _kv_bytes_per_layer(model: Model, layout: ReplicaLayout, dtype: KvCacheDtype) -> float:
    return layer_bytes(model, layout.tensor_parallel_size, dtype)


@dataclass(frozen=True, slots=True)
class StageMemory:
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
        layout: ReplicaLayout,
        stage: int,
        share: float,
        seats: int,
        tokens: int,
        host: HostWeights,
        further_weights_bytes: float,
        near_layer_bytes: float,
    ) -> "StageMemory":
        """The GPU of *stage* with the layers of a stage of *layout*, *seats* sequences and *tokens* a step, where the
        engine may use *share*; *near_layer_bytes* are those of a layer's tokens that are kept beside its cache.
        """
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
    model: Model, need: EngineMemory, layout: ReplicaLayout, seats: int, tokens: int, samples: bool
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMemory:
    """What the engine is told of its memory."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    block_size: int = 16
    kv_cache_dtype: KvCacheDtype = "auto"
    context_tokens: int | None = None
    """Usual length of a request at its end: with sliding-window layers a token of a longer context costs less; None:
    max_model_len."""
    offload: Offload | None = None
    """Leaves weights, and the KV cache of layers that the CPU computes, in `host_memory_bytes`."""
    host_memory_bytes: float = 0.0
    drafts: DraftMemory = field(default_factory=DraftMemory)
    """What drafting takes, of one pipeline stage."""
    groups: KvLayout | None = None
    """A block is one of a group of layers; None: of all of them."""
    adapter_bytes: float = 0.0
    """What slots for LoRA adapters take of a GPU."""
    states: StateCache | None = None
    """Recurrent states that lie beside the KV cache."""

    @property
    def layout(self) -> ReplicaLayout:
        """How the replica's GPUs share the model."""
        degrees = self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size
        return ReplicaLayout(*degrees, self.enable_expert_parallel)

    def context(self, model: Model) -> int:
        """The longest that a request may get [tokens]."""
        return min(model.max_context, self.max_model_len or model.max_context)


def fit(gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, **settings: Any) -> MemoryFit:
    """How *model* lies in the memory of each GPU of one replica, and in the replica's part of the host's.

    *quantization* is the one that the weights really have (see `native_quantization`); *settings* are those of
    `RequestedMemory`.
    """
    wanted, need = RequestedMemory(**settings), engine.memory
    layout = wanted.layout
    problems = check_parallel(model, quantization, layout)
    if need is None:
        problems.append(Message("how {name} uses GPU memory is not known", engine.name))
    if problems or need is None:
        return _refused(gpu, layout, wanted.block_size, joined("; ", problems))
    host = HostWeights()
    if wanted.offload is not None:
        host = host_weights(wanted.offload, model, quantization, layout)
    stages = _stages(gpu, model, quantization, engine, need, wanted, host)
    tightest = min(stages, key=lambda stage: stage.kv_bytes / stage.layers)
    free_bytes, state_bytes = tightest.kv_bytes, place_bytes(model, wanted.tensor_parallel_size, tightest.layers)
    places = wanted.states.places_in(free_bytes, state_bytes) if wanted.states is not None else 0
    tightest = replace(tightest, kv_bytes=free_bytes - places * state_bytes)
    blocks = _Blocks.of(model, wanted, tightest.layers, host)
    in_host = HostResidentBytes.of(host, model, quantization, layout, blocks.host_bytes)
    on_gpu = tightest.kv_bytes // blocks.gpu_bytes if blocks.gpu_bytes else copysign(inf, tightest.kv_bytes)
    count = max(0, int(min(on_gpu, in_host.blocks(wanted.host_memory_bytes))))
    reason = wanted.states.why_not(free_bytes, state_bytes) if wanted.states is not None else ""
    if not reason and on_gpu < blocks.needed:
        reason = _why_not(gpu, quantization, layout, stages, tightest, blocks.needed * blocks.gpu_bytes, wanted)
    reason = reason or in_host.why_not(blocks.needed, wanted.host_memory_bytes)
    tokens, longest = blocks.held(count, model, wanted)
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
        block_bytes=blocks.gpu_bytes,
        block_size=wanted.block_size,
        num_gpu_blocks=0 if reason else count,
        kv_tokens=0 if reason else tokens,
        max_model_len=wanted.max_model_len if wanted.max_model_len is not None else min(model.max_context, longest),
        fits=not reason,
        reason=reason,
        host_weights_bytes=in_host.weights_bytes,
        host_kv_bytes=in_host.block_bytes * min(wanted.max_num_seqs, count),
        states_bytes=places * state_bytes,
        state_places=places,
    )


def _stages(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    need: EngineMemory,
    wanted: RequestedMemory,
    host: HostWeights,
) -> list[StageMemory]:
    """The GPU of every pipeline stage."""
    share, tokens = wanted.gpu_memory_utilization, wanted.max_num_batched_tokens
    near_bytes = near_step_bytes(model, wanted.kv_cache_dtype, min(tokens, wanted.context(model)))
    return [
        StageMemory.of(
            gpu,
            model,
            quantization,
            need,
            wanted.layout,
            stage,
            default_share(engine, need, gpu) if share is None else share,
            wanted.max_num_seqs,
            tokens,
            host,
            wanted.drafts.weights_bytes + wanted.adapter_bytes,
            near_bytes / model.layers,
        )
        for stage in range(wanted.pipeline_parallel_size)
    ]


@dataclass(frozen=True, slots=True)
class _Blocks:
    """KV blocks of a GPU with some of a model's layers."""

    gpu_bytes: float
    """Of one block, on the GPU."""
    host_bytes: float
    """Of one block, in host memory."""
    needed: int
    """The fewest with which the engine starts."""

    @classmethod
    def of(cls, model: Model, wanted: RequestedMemory, layers: int, host: HostWeights) -> Self:
        size, groups, longest = wanted.block_size, wanted.groups, wanted.max_model_len
        if groups is None:
            context = wanted.context_tokens or wanted.context(model)
            per_layer = _kv_bytes_per_token_layer(model, wanted.tensor_parallel_size, wanted.kv_cache_dtype, context)
            whole_bytes = per_layer * size * layers * model.cached_layers / model.layers
            needed = -(-longest // size) if longest is not None else 2
        else:
            whole_bytes = groups.layer_bytes * size * groups.layers * layers / model.layers
            needed = groups.blocks(longest or size, wanted.max_num_batched_tokens) + 1
        drafts_bytes = wanted.drafts.kv_bytes_per_token * size
        gpu_bytes = whole_bytes * (1 - host.layers / model.layers) + drafts_bytes
        return cls(gpu_bytes, whole_bytes + drafts_bytes - gpu_bytes, needed)

    def held(self, count: int, model: Model, wanted: RequestedMemory) -> tuple[int, int]:
        """(tokens, those of the longest request) that *count* blocks hold."""
        groups, tokens = wanted.groups, wanted.max_num_batched_tokens
        if groups is None:
            return count * wanted.block_size, count * wanted.block_size
        usual = wanted.context_tokens or wanted.context(model)
        return int(count * usual / groups.blocks(usual, tokens)), groups.longest(max(0, count - 1), tokens)


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
    layout: ReplicaLayout,
    stages: list[StageMemory],
    tightest: StageMemory,
    smallest_kv: float,
    wanted: RequestedMemory,
) -> str:
    """Why what the tightest stage has left is less than *smallest_kv*."""
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    weights = sum(stage.weights_bytes for stage in stages) * ranks
    working = sum(stage.usable_bytes - stage.weights_bytes - stage.kv_bytes for stage in stages) * ranks
    left = sum(stage.usable_bytes for stage in stages) * ranks - working
    cards = f"{layout.gpus}x {gpu.memory_nominal_gib.value:g} GB"
    if tightest.kv_bytes <= 0:
        return Message(
            "needs {weights:.1f} GB for {name} weights, {cards} leave {left:.1f}",
            weights / GB,
            quantization.name,
            cards,
            left / GB,
        )
    what = (
        Message("one request of {max_model_len} tokens", wanted.max_model_len)
        if wanted.max_model_len
        else "one KV block"
    )
    return Message(
        "needs {smallest_kv:.2f} GB of KV cache per GPU for {what}, {cards} leave {kv_bytes:.2f} "
        "beside {weights_bytes:.1f} GB of weights",
        smallest_kv / GB,
        what,
        cards,
        tightest.kv_bytes / GB,
        tightest.weights_bytes / GB,
    )


def _refused(gpu: Gpu, layout: ReplicaLayout, block_size: int, reason: str) -> MemoryFit:
    return MemoryFit(
        layout.gpus, gpu.memory_bytes.value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, block_size, 0, 0, 0, False, reason
    )


MOST_GPUS = 64
"""Largest replica that is suggested."""


def what_fits(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    **settings: Any,
) -> str:
    """The second half of a refusal: `fits at int8-w8a8, gptq-int4, or on 8 GPUs`; empty if nothing helps.

    *candidates* are tried in the layout of *settings* (the keywords of `fit`); named is the widest that fits of each
    kernel. Then more GPUs at the same quantisation: tensor-parallel sizes, and pipelines of the given tensor-parallel
    size.
    """
    ways = list(_formats(gpu, model, quantization, engine, candidates, settings))
    size = _smallest_tensor_parallel(gpu, model, quantization, engine, settings)
    if size is not None:
        ways.append(Message("on {size}x {name} (tensor_parallel_size {size})", size, gpu.name))
    depth = _smallest_pipeline(gpu, model, quantization, engine, settings)
    if depth is not None:
        tp = settings.get("tensor_parallel_size", 1)
        ways.append(
            Message(
                "on {tp}x {name} (tensor_parallel_size {tp_2}, pipeline_parallel_size {depth})",
                tp * depth,
                gpu.name,
                tp,
                depth,
            )
        )
    return "fits " + joined(", or ", ways) if ways else ""


def which_slices(
    card: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    profile: str,
    **settings: Any,
) -> str:
    """The second half of a refusal on a MIG slice *profile* of *card*; empty if nothing helps.

    *candidates* and *settings* as in `what_fits`; formats on the same slice come first, then larger slices.
    """
    ways = list(_formats(sliced(card, profile), model, quantization, engine, candidates, settings))
    profiles = card.mig.profiles if card.mig else {}
    slices = [
        Message("{name} ({instances} on a GPU)", name, one.instances)
        for name, one in profiles.items()
        if fit(sliced(card, name), model, quantization, engine, **settings).fits
    ]
    ways += [Message("on a slice {slices}", ", ".join(slices))] if slices else []
    return "fits " + joined(", or ", ways) if ways else ""


def _formats(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    settings: dict[str, Any],
) -> Iterator[str]:
    """`at fp8, gptq-int4`: of each kernel the widest narrower format that fits, the widest first."""
    widest: dict[str, str] = {}
    for other in sorted(candidates, key=lambda other: -other.bits_per_weight.value):
        narrower = other.bits_per_weight.value < quantization.bits_per_weight.value
        if narrower and other.kernel not in widest and fit(gpu, model, other, engine, **settings).fits:
            widest[other.kernel] = other.id
    if widest:
        yield f"at {', '.join(widest.values())}"


def _smallest_tensor_parallel(
    gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, settings: dict[str, Any]
) -> int | None:
    for size in range(settings.get("tensor_parallel_size", 1) + 1, MOST_GPUS + 1):
        if fit(gpu, model, quantization, engine, **{**settings, "tensor_parallel_size": size}).fits:
            return size
    return None


def _smallest_pipeline(
    gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, settings: dict[str, Any]
) -> int | None:
    tp = settings.get("tensor_parallel_size", 1)
    for depth in range(settings.get("pipeline_parallel_size", 1) + 1, MOST_GPUS // tp + 1):
        if fit(gpu, model, quantization, engine, **{**settings, "pipeline_parallel_size": depth}).fits:
            return depth
    return None
