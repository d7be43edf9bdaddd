"""Memory of one GPU: whether weights, activations and KV cache fit, and which other cards or slices would suffice."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import copysign, inf
from typing import Any, Self

from sim.catalogue.engine import Engine, EngineMemory, HostWeights, Offload, default_share
from sim.catalogue.gpu import Gpu, sliced
from sim.catalogue.model import Matrix, Model, entries_per_token, index_key_bytes, index_keys_per_token, matrices
from sim.catalogue.quantization import KvCacheDtype, Quantization, padded
from sim.catalogue.stages import stage_matrices, stage_models
from sim.memory.kv_cache import KvLayout, StateCache, layer_bytes, place_bytes, window_sequence_bytes, window_step_bytes
from sim.memory.weights import (
    HostResidentBytes,
    ReplicaLayout,
    check_parallel,
    host_weight_bytes,
    host_weights,
    stage_weight_bytes,
)
from sim.message import Message, joined
from sim.units import GB


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Memory that a drafter needs on each GPU [bytes]."""

    weights_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0

    @classmethod
    def of_model(
        cls, model: Model, quantization: Quantization, layout: ReplicaLayout, dtype: KvCacheDtype
    ) -> "DraftMemory":
        """Return the memory of a separate draft *model*, split over GPUs as the target model is."""
        stored = padded(quantization, model)
        weights = stage_weight_bytes(stored, quantization, matrices(stored), layout)
        return cls(weights, _kv_bytes_per_layer(model, layout, dtype) * model.stored_layers)

    @classmethod
    def of_heads(
        cls, model: Model, quantization: Quantization, layout: ReplicaLayout, dtype: KvCacheDtype
    ) -> "DraftMemory":
        """Return the memory of draft heads: one more layer of *model* of mean size, without embedding and LM head."""
        stored = padded(quantization, model)
        layers = tuple(matrix for matrix in matrices(stored) if matrix.role not in ("embedding", "lm_head"))
        weights = stage_weight_bytes(stored, quantization, layers, layout)
        return cls(weights / model.layers, _kv_bytes_per_layer(model, layout, dtype))


def _kv_bytes_per_layer(model: Model, layout: ReplicaLayout, dtype: KvCacheDtype) -> float:
    return layer_bytes(model, layout.tensor_parallel_size, dtype)


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one GPU of one pipeline stage [bytes]."""

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
        shapes: tuple[Matrix, ...],
        quantization: Quantization,
        need: EngineMemory,
        layout: ReplicaLayout,
        ends: tuple[bool, bool],
        share: float,
        max_num_seqs: int,
        tokens: int,
        host: HostWeights,
        further_weights_bytes: float,
        window_bytes: float,
    ) -> "StageMemory":
        """Return the memory of one GPU of the pipeline stage with the layers of *model*, for the largest step.

        *shapes* (its matrices) and *ends*: see `stage_weight_bytes`. *share* is the fraction of the GPU memory that the
        engine may use (`gpu_memory_utilization`); *max_num_seqs* and *tokens* are the sequences and new tokens of the
        largest step. Weights in *host* memory are subtracted; *further_weights_bytes* (drafter, LoRA slots) and
        *window_bytes* (uncompressed tokens and compressor states during a step, with compressed attention) are added.
        """
        weights = further_weights_bytes + stage_weight_bytes(model, quantization, shapes, layout, ends)
        if host != HostWeights():
            weights -= host_weight_bytes(host, model, quantization, layout)
        activations = _activation_bytes(model, need, layout, max_num_seqs, tokens, ends[1]) + window_bytes
        graphs = need.graph_bytes_per_layer.value * model.layers
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
            # SGLang's share is of the memory that is free after the ranks have met and before the weights are loaded
            usable = min(share * (room - comms), room - working)
            kv = usable - weights
        else:
            usable = room
            kv = share * (room - weights - working) if room > weights + working else room - weights - working
        return cls(model.layers, usable, weights, activations, library, graphs, comms, kv)


def _activation_bytes(
    model: Model, need: EngineMemory, layout: ReplicaLayout, max_num_seqs: int, tokens: int, samples: bool
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
    sampling = need.sampling_bytes_per_logit.value * max_num_seqs * model.vocab
    return max(peak, sampling + 2.0 * tokens * need.sampling_hidden_rows.value * model.hidden)


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """Memory of a replica's fullest GPU, the one with the least KV cache [bytes, per GPU].

    Where `fits` is False, the block counts are 0.
    """

    gpus: int
    """GPUs of one replica."""
    total_bytes: float
    """GPU memory as the driver reports it."""
    usable_bytes: float
    """Memory that the engine may use for weights, activations and KV cache (context, and graphs outside the share,
    excluded)."""
    weights_bytes: float
    activations_bytes: float
    context_bytes: float
    """Memory of the CUDA context and libraries."""
    graphs_bytes: float
    comms_bytes: float
    kv_bytes: float
    """Memory left for the KV cache; a negative value is the amount that is missing."""
    block_bytes: float
    block_size: int
    num_gpu_blocks: int
    """KV blocks of one data-parallel rank, the null block included."""
    kv_tokens: int
    max_model_len: int
    """Longest sequence [tokens]: the configured limit, otherwise the longest that model and cache allow."""
    fits: bool
    reason: str
    """Reason why the model does not fit; empty if it fits."""
    host_weights_bytes: float = 0.0
    """Weights of the replica in host memory."""
    host_kv_bytes: float = 0.0
    """KV cache in host memory, for all sequences that run together (layers computed by the CPU)."""
    states_bytes: float = 0.0
    """Memory of a separate cache of recurrent states."""
    state_places: int = 0
    """Sequence states that the separate cache of recurrent states holds, per data-parallel rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedMemory:
    """Memory-related settings of the engine."""

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
    """Usual length of a request at its end [tokens], which sets the mean cost of a token in sliding-window layers.
    None: max_model_len."""
    offload: Offload | None = None
    """Offloading of weights, and of the KV cache of layers that the CPU computes, to host memory of
    `host_memory_bytes`."""
    host_memory_bytes: float = 0.0
    drafts: DraftMemory = field(default_factory=DraftMemory)
    """Memory of drafting in one pipeline stage."""
    groups: KvLayout | None = None
    """Groups of layers with blocks of their own. None: a block spans all layers."""
    adapter_bytes: float = 0.0
    """Memory of the slots for LoRA adapters on one GPU."""
    states: StateCache | None = None
    """Separate cache of recurrent states beside the KV cache."""

    @property
    def layout(self) -> ReplicaLayout:
        """Parallel layout of the replica."""
        degrees = self.tensor_parallel_size, self.pipeline_parallel_size, self.data_parallel_size
        return ReplicaLayout(*degrees, self.enable_expert_parallel)

    def context(self, model: Model) -> int:
        """Return the longest sequence that *model* and `max_model_len` allow [tokens]."""
        return min(model.max_context, self.max_model_len or model.max_context)


def fit(gpu: Gpu, model: Model, quantization: Quantization, engine: Engine, **settings: Any) -> MemoryFit:
    """Compute the memory use of *model* on each GPU of one replica, and in the replica's part of host memory.

    Parameters
    ----------
    gpu, engine
        GPU, or MIG slice, of the replica, and the engine with its memory needs.
    model
        Model with its layers, heads and vocabulary.
    quantization
        Format in which the weights are really stored (see `native_quantization`).
    **settings
        Fields of `RequestedMemory`.

    Returns
    -------
    MemoryFit
        With `fits` False and a `reason` where the model does not fit or the layout is impossible.

    """
    wanted, need = RequestedMemory(**settings), engine.memory
    layout = wanted.layout
    problems = check_parallel(model, quantization, layout, engine.pipeline_split)
    if need is None:
        problems.append(Message("how {name} uses GPU memory is not known", engine.name))
    if problems or need is None:
        return _refused_fit(gpu, layout, wanted.block_size, joined("; ", problems))
    host = HostWeights()
    if wanted.offload is not None:
        host = host_weights(wanted.offload, model, quantization, layout)
    stored = padded(quantization, model)
    parts = stage_models(stored, wanted.pipeline_parallel_size, engine.pipeline_split)
    stages = _stages(gpu, stored, parts, quantization, engine, need, wanted, host)
    places = _state_places(wanted, parts, stages)
    tightest, part, blocks, on_gpu = _tightest(wanted, parts, stages, places, host)
    state_bytes = place_bytes(part, wanted.tensor_parallel_size)
    free_bytes = tightest.kv_bytes + places * state_bytes
    in_host = HostResidentBytes.of(host, model, quantization, layout, blocks.host_bytes)
    count = max(0, int(min(on_gpu, in_host.blocks(wanted.host_memory_bytes))))
    reason = wanted.states.shortfall(free_bytes, state_bytes) if wanted.states is not None else ""
    if not reason and on_gpu < blocks.needed:
        reason = _shortfall(gpu, quantization, layout, stages, tightest, blocks.needed * blocks.gpu_bytes, wanted)
    reason = reason or in_host.shortfall(blocks.needed, wanted.host_memory_bytes)
    tokens, longest = blocks.capacity(count, model, wanted)
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
    parts: list[Model],
    quantization: Quantization,
    engine: Engine,
    need: EngineMemory,
    wanted: RequestedMemory,
    host: HostWeights,
) -> list[StageMemory]:
    """Return the memory of one GPU of each pipeline stage; *parts* are the models of the stages of *model*."""
    share, tokens = wanted.gpu_memory_utilization, wanted.max_num_batched_tokens
    return [
        StageMemory.of(
            gpu,
            part,
            stage_matrices(model, part),
            quantization,
            need,
            wanted.layout,
            (stage == 0, stage == len(parts) - 1),
            default_share(engine, need, gpu) if share is None else share,
            wanted.max_num_seqs,
            tokens,
            host,
            wanted.drafts.weights_bytes + wanted.adapter_bytes,
            window_step_bytes(part, wanted.kv_cache_dtype, min(tokens, wanted.context(part))),
        )
        for stage, part in enumerate(parts)
    ]


def _state_places(wanted: RequestedMemory, parts: list[Model], stages: list[StageMemory]) -> int:
    """Return the places of the separate cache of recurrent states: those of the stage that holds the fewest."""
    if wanted.states is None:
        return 0
    sizes = [place_bytes(part, wanted.tensor_parallel_size) for part in parts]
    held = [wanted.states.places_in(stage.kv_bytes, size) for stage, size in zip(stages, sizes, strict=True) if size]
    return min(held, default=0)


def _tightest(
    wanted: RequestedMemory, parts: list[Model], stages: list[StageMemory], places: int, host: HostWeights
) -> "tuple[StageMemory, Model, _Blocks, float]":
    """Return the stage that holds the fewest KV blocks beside *places* states: memory, model, block, number of blocks.

    All stages have as many blocks as that one.
    """
    found = []
    for part, stage in zip(parts, stages, strict=True):
        left = replace(stage, kv_bytes=stage.kv_bytes - places * place_bytes(part, wanted.tensor_parallel_size))
        blocks = _Blocks.of(part, wanted, host)
        count = left.kv_bytes // blocks.gpu_bytes if blocks.gpu_bytes else copysign(inf, left.kv_bytes)
        found.append((left, part, blocks, count))
    return min(found, key=lambda one: (one[3], one[0].kv_bytes / one[0].layers))


@dataclass(frozen=True, slots=True)
class _Blocks:
    """KV blocks on a GPU that holds some of a model's layers."""

    gpu_bytes: float
    """Size of one block on the GPU."""
    host_bytes: float
    """Size of one block's layers in host memory."""
    needed: int
    """Fewest blocks with which the engine starts."""

    @classmethod
    def of(cls, model: Model, wanted: RequestedMemory, host: HostWeights) -> Self:
        """Return the blocks on a GPU of a stage with the layers of *model*."""
        size, groups, longest = wanted.block_size, wanted.groups, wanted.max_model_len
        if groups is None:
            context = wanted.context_tokens or wanted.context(model)
            per_layer = _kv_bytes_per_token_layer(model, wanted.tensor_parallel_size, wanted.kv_cache_dtype, context)
            whole_bytes = per_layer * size * model.stored_layers
            needed = -(-longest // size) if longest is not None else 2
        else:
            whole_bytes = groups.layer_bytes * size * groups.fullest_group(model)
            needed = groups.blocks(longest or size, wanted.max_num_batched_tokens) + 1
        drafts_bytes = wanted.drafts.kv_bytes_per_token * size
        gpu_bytes = whole_bytes * (1 - host.layers / model.layers) + drafts_bytes
        return cls(gpu_bytes, whole_bytes + drafts_bytes - gpu_bytes, needed)

    def capacity(self, count: int, model: Model, wanted: RequestedMemory) -> tuple[int, int]:
        """Return the tokens that *count* blocks hold, and the tokens of the longest request among them."""
        groups, tokens = wanted.groups, wanted.max_num_batched_tokens
        if groups is None:
            return count * wanted.block_size, count * wanted.block_size
        usual = wanted.context_tokens or wanted.context(model)
        return int(count * usual / groups.blocks(usual, tokens)), groups.longest(max(0, count - 1), tokens)


def _kv_bytes_per_token_layer(model: Model, tp: int, dtype: KvCacheDtype, context: int | None) -> float:
    """Return the bytes of a token on one GPU, averaged over the layers that keep a cache.

    A layer with a sliding window w costs w / *context* of a full layer, or a full layer where *context* is None. Index
    keys and compressed entries are replicated on every GPU. Uncompressed recent tokens of compressed attention count
    only with a *context*.
    """
    if not (cached := model.stored_layers):
        return 0.0
    window = 1.0 if model.sliding_window is None or context is None else min(1.0, model.sliding_window / context)
    windowed = model.stored_window_layers
    indexers = index_key_bytes(model) * index_keys_per_token(model)[0] / cached
    if model.compressed is not None:
        beside = 0.0 if context is None else window_sequence_bytes(model, dtype, context) / context
        return (layer_bytes(model, tp, dtype) * entries_per_token(model) + beside) / cached + indexers
    inside, whole = (layer_bytes(model, tp, dtype, kind) for kind in (False, True))
    if whole == inside:
        return inside * ((cached - windowed * (1.0 - window)) / cached) + indexers
    return (inside * windowed * window + whole * (cached - windowed)) / cached + indexers


def _shortfall(
    gpu: Gpu,
    quantization: Quantization,
    layout: ReplicaLayout,
    stages: list[StageMemory],
    tightest: StageMemory,
    smallest_kv: float,
    wanted: RequestedMemory,
) -> str:
    """Compose the reason why the tightest stage lacks room for *smallest_kv* bytes of KV cache."""
    ranks = layout.tensor_parallel_size * layout.data_parallel_size
    weights = sum(stage.weights_bytes for stage in stages) * ranks
    working = sum(stage.usable_bytes - stage.weights_bytes - stage.kv_bytes for stage in stages) * ranks
    left = sum(stage.usable_bytes for stage in stages) * ranks - working
    cards = f"{layout.gpus}x {gpu.memory_nominal_gib.value:g} GB"
    if tightest.kv_bytes <= 0:
        name = Message("the model's own dtype") if quantization.id == "none" else quantization.name
        if weights < left:  # the stages together have room
            return Message(
                "needs {weights:.1f} GB for {name} weights per GPU of the fullest pipeline stage, {left:.1f} are left",
                tightest.weights_bytes / GB,
                name,
                (tightest.weights_bytes + tightest.kv_bytes) / GB,
            )
        return Message(
            "needs {weights:.1f} GB for {name} weights, {cards} leave {left:.1f}", weights / GB, name, cards, left / GB
        )
    what = (
        Message("one request of {max_model_len} tokens", wanted.max_model_len)
        if wanted.max_model_len
        else "one KV block"
    )
    return Message(
        "needs {needed:.2f} GB of KV cache per GPU for {requests}, {cards} leave {left:.2f} "
        "beside {weights:.1f} GB of weights",
        smallest_kv / GB,
        what,
        cards,
        tightest.kv_bytes / GB,
        tightest.weights_bytes / GB,
    )


def _refused_fit(gpu: Gpu, layout: ReplicaLayout, block_size: int, reason: str) -> MemoryFit:
    return MemoryFit(
        layout.gpus, gpu.memory_bytes.value, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, block_size, 0, 0, 0, False, reason
    )


MOST_GPUS = 64
"""Largest replica that is suggested [GPUs]."""


def suggest_changes(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    **settings: Any,
) -> str:
    """Compose the advice that follows a refusal: `fits at int8-w8a8, gptq-int4, or on 8 GPUs`; empty if nothing helps.

    The *candidates* are tried first, in the layout of *settings* (the keywords of `fit`); the widest format that fits
    is named for each kernel. Larger tensor-parallel sizes follow, then deeper pipelines of the given size.
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
                "on {gpus}x {name} (tensor_parallel_size {tp}, pipeline_parallel_size {pp})",
                tp * depth,
                gpu.name,
                tp,
                depth,
            )
        )
    return Message("fits {ways}", joined(", or ", ways)) if ways else ""


def suggest_slices(
    card: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    profile: str,
    **settings: Any,
) -> str:
    """Compose the advice that follows a refusal on the MIG slice *profile* of *card*; empty if nothing helps.

    *candidates* and *settings* are those of `suggest_changes`. Formats on the same slice are named first, then larger
    slices.
    """
    ways = list(_formats(sliced(card, profile), model, quantization, engine, candidates, settings))
    profiles = card.mig.profiles if card.mig else {}
    slices = [
        Message("{name} ({instances} on a GPU)", name, one.instances)
        for name, one in profiles.items()
        if fit(sliced(card, name), model, quantization, engine, **settings).fits
    ]
    ways += [Message("on a slice {slices}", ", ".join(slices))] if slices else []
    return Message("fits {ways}", joined(", or ", ways)) if ways else ""


def _formats(
    gpu: Gpu,
    model: Model,
    quantization: Quantization,
    engine: Engine,
    candidates: Iterable[Quantization],
    settings: dict[str, Any],
) -> Iterator[str]:
    """Yield `at fp8, gptq-int4`: for each kernel the widest narrower format that fits, in falling order of width."""
    widest: dict[str, str] = {}
    for other in sorted(candidates, key=lambda other: -other.bits_per_weight.value):
        narrower = other.bits_per_weight.value < quantization.bits_per_weight.value
        if narrower and other.kernel not in widest and fit(gpu, model, other, engine, **settings).fits:
            widest[other.kernel] = other.id
    if widest:
        yield Message("at {names}", ", ".join(widest.values()))


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
