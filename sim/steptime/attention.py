"""Attention of one step on one GPU: of a single layer, and of all layers of a pipeline stage.

One layer: reading the cache for decodes, arithmetic for prompts.
Both are linear in what a batch counts, so that a step stays affine in its contexts:

    decode:  sum of contexts * (c^p + r^p)^(1/p)     c arithmetic, r cache read, per context token
    prefill: query-key pairs * arithmetic per pair + earlier tokens * cache read

The cache of a rank holds its share of the KV heads, at least one; MLA's latent is whole on every rank (DeepSeek-V2,
arXiv 2405.04434: decoding absorbs the up-projections, so scores and values are taken in the latent space; prefill
does not).

Decoding sequences that share one FlashAttention-2 call with prompts (vLLM's V1 engine) take longer
(`FullAttentionCall`). FlashAttention 2 packs the query heads of a KV head, and splits a long cache, only in a call in
which every sequence has one new token (vLLM's pull request 58013). Where one has more, each query head of each
sequence is a thread block of its own, which works through a tile of 64 rows for its single one and reads the cache of
its KV head by itself:

    t = max(arithmetic of the tiles, cache read * rereads, the packed call)
    rereads = 1 while a KV head's cache of all sequences fits into L2; beyond, query heads of a KV head over those of
              them that run at the same time

A block walks a context alone, so few of them leave the GPU idle; and the longest prompt chunk sets the number of tiles
that are launched for every sequence, of which all but one have nothing to do. Drafts are not costed so: nobody has
measured those kernels, and measured gains of drafts speak against it.

All layers of a stage: some read the whole context, others a part of it, or a state.
Layers with a state instead of a cache (Gated DeltaNet, arXiv 2412.06464; Kimi Delta Attention, 2510.26692; Mamba-2,
2405.21060):

    decode:  state bytes * (read once + written after each token) / rate
    prompt:  state read and written once a chunk; per token and value head 2 (3 K V + C (3 K + 2 V)) FLOP
             Mamba-2: 2 (2 K V + C V) FLOP, and 2 C K for each group

with K and V the sizes of a key and a value and C the tokens that are scanned together. The products are with the
state (three; two of Mamba-2, which takes nothing out of it), and among the C tokens of a block: keys with keys,
queries with keys, and the block's values; of Mamba-2 queries with keys once a group, and values.

Sparse attention, in which an indexer scores all tokens and attention reads the best of them (DeepSeek-V3.2, MiniMax
M3):

    decode:  context tokens * (key + score, written and read) / rate      in each layer with an indexer
             best tokens as attention over a window of so many
    prompt:  query-key pairs * (2 heads * size FLOP, choosing among the scores)
             pairs with the best tokens only; in latents where the model has them, as every query has others

Attention to a compressed context (DeepSeek-V4), of entries that stand for several tokens and a window of single ones:

    decode:  context / 128 entries in coarse layers; keys of context / 4 entries in fine ones, and the best of them
             window entries in every layer, for each token
    prompt:  the same of query-key pairs, in latents
    both:    streams of hyper-connections: a time per layer, and passes over the streams of each token
"""

from dataclasses import dataclass, fields, replace
from math import inf

from sim.catalogue.model import (
    CompressedAttention,
    Indexer,
    LinearAttention,
    Model,
    index_key_bytes,
    kv_bytes_per_token_layer,
    state_bytes,
)
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.coefficients import OneCallAttention
from sim.steptime.gemm import together
from sim.steptime.inputs import ACTIVATION_BYTES, FLOP_PER_WEIGHT, GpuRates, RooflineInputs, peak_flops

SMALL_HEAD = 64
"""Numbers of a small head."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Costs of one attention layer on one tensor-parallel rank [s]."""

    decode_s: float
    """Per context token of a decoding sequence."""
    decode_peak_s: float
    """Its arithmetic at the dense peak."""
    read_s: float
    """Per earlier token that a prompt chunk reads."""
    pair_s: float
    """Per query-key pair of a prompt chunk."""
    pair_peak_s: float
    stream_s: float
    """Part of `read_s` in which the GPU reads its own memory."""

    @classmethod
    def of(cls, rates: GpuRates, whole: bool = False) -> "LayerAttention":
        """From the model's heads and the GPU's rates; *whole*: of a layer that sees all tokens, where others do not."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients
        peak = peak_flops(inputs.gpu, "fp16")
        reached = peak * rates.compute_efficiency * coefficients.prefill_attention_efficiency.value
        decode_flop, pair_flop = attention_flop(inputs.model, whole)
        heads_share, small = 1 / inputs.tensor_parallel_size, small_heads(inputs)
        ranks, element_bytes = inputs.tensor_parallel_size, inputs.kv_bytes_per_element
        token_bytes = cache_bytes(inputs.model, ranks, element_bytes, whole)
        read_s, decode_read_s = (token_bytes / _read_rate(rates, decodes) for decodes in (False, True))
        return cls(
            decode_s=together(decode_flop * heads_share / reached, decode_read_s, coefficients.gemm_exponent.value),
            decode_peak_s=decode_flop * heads_share / peak,
            read_s=read_s,
            pair_s=pair_flop * heads_share / reached * (small.value if small else 1.0),
            pair_peak_s=pair_flop * heads_share / peak,
            stream_s=read_s,
        )

    def scaled(self, layers: float) -> "LayerAttention":
        """Of so many *layers* like this one."""
        return LayerAttention(*(layers * getattr(self, one.name) for one in fields(self)))

    def plus(self, other: "LayerAttention") -> "LayerAttention":
        """Both of them."""
        return LayerAttention(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def mixed(self, other: "LayerAttention", share: float) -> "LayerAttention":
        """The mean layer where *share* of them is like *other*."""
        pairs = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return LayerAttention(*(mine * (1 - share) + its * share for mine, its in pairs))


def cache_bytes(model: Model, tensor_parallel_size: int, bytes_per_element: float, whole: bool = False) -> float:
    """Bytes that one token has in the cache of one layer on one rank."""
    ranks = 1 if model.mla is not None else min(tensor_parallel_size, model.attends_by(whole).kv_heads)
    return kv_bytes_per_token_layer(model, bytes_per_element, whole) / ranks


def attention_flop(model: Model, whole: bool = False) -> tuple[float, float]:
    """Arithmetic over all heads of a layer: (per context token of a decode, per query-key pair of a prompt) [FLOP]."""
    mla = model.mla
    if mla is None:
        by = model.attends_by(whole)
        flop = FLOP_PER_WEIGHT * by.heads * (by.head_dim + by.value_dim)
        return flop, flop
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim + mla.kv_lora_rank
    explicit = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    return FLOP_PER_WEIGHT * model.heads * latent, FLOP_PER_WEIGHT * model.heads * explicit


def small_heads(inputs: RooflineInputs) -> Value | None:
    """How much longer a query-key pair of a prompt takes, as its heads are small; None: as its arithmetic."""
    if inputs.model.mla is not None or inputs.model.head_dim > SMALL_HEAD:
        return None
    return inputs.coefficients.attention.small_heads_factor(inputs.gpu.architecture)


def decodes_read(inputs: RooflineInputs) -> Value | None:
    """How much longer decodes read a byte of keys and values on that card than the engine usually does."""
    if inputs.model.mla is not None:
        return None
    return inputs.coefficients.attention.cache_reading_factor(inputs.engine.id, inputs.gpu)


def _read_rate(rates: GpuRates, decodes: bool) -> float:
    """Cache bytes per second: the weights' rate over the engine's factors, at most the memory's bandwidth."""
    overheads, bandwidth = rates.overheads, rates.inputs.gpu.memory_bytes_per_s.value
    of_card = decodes_read(rates.inputs) if decodes else None
    factor = overheads.kv_read_time_factor.value * (of_card.value if of_card else 1.0)
    rate = min(rates.bytes_per_s / factor, bandwidth)
    if rates.inputs.kv_8bit and overheads.kv_8bit_read_time_factor is not None:
        rate = min(rate / overheads.kv_8bit_read_time_factor.value, bandwidth)
    return rate


MOST_HEAD_DIM = 256
"""Widest heads that FlashAttention 2 has kernels for."""


@dataclass(frozen=True, slots=True)
class FullAttentionCall:
    """Costs of all layers of a stage that see the whole context, on one tensor-parallel rank."""

    packed_s: float
    """Per context token where all sequences have one new token [s]."""
    read_s: float
    """Per context token: its cache read once [s]."""
    tile_s: float
    """Per context token: the arithmetic of its tiles [s]."""
    idle_s: float
    """Per sequence and tile that has nothing to do [s]."""
    blocks: float
    """Thread blocks of a sequence in a layer."""
    group: float
    """Query heads of a KV head on the rank."""
    rows: float
    """Queries of a tile."""
    head_bytes: float
    """That a token has in the cache of a KV head."""
    processors: float
    """Thread blocks that the GPU runs at the same time."""
    l2_bytes: float

    @classmethod
    def of(cls, rates: GpuRates, whole: LayerAttention, layers: float) -> "FullAttentionCall | None":
        """Where *whole* are the *layers* that see the whole context; None: decodes have a call of their own."""
        inputs, stated = rates.inputs, one_call(rates.inputs)
        if stated is None:
            return None
        gpu, by, ranks = inputs.gpu, inputs.model.attends_by(whole=True), inputs.tensor_parallel_size
        processors = gpu.sm_count.value if gpu.sm_count else 0.0
        blocks, rows = by.heads / ranks, stated.tile_rows.value
        idle_s = stated.idle_block_s.value / processors if processors else 0.0
        return cls(
            packed_s=whole.decode_s,
            read_s=whole.read_s,
            tile_s=rows * whole.pair_s,
            idle_s=idle_s * blocks * layers,
            blocks=blocks,
            group=blocks / max(by.kv_heads / ranks, 1.0),
            rows=rows,
            head_bytes=ACTIVATION_BYTES * (by.head_dim + by.value_dim),
            processors=processors,
            l2_bytes=gpu.l2_bytes.value if gpu.l2_bytes else inf,
        )

    def parts(self, batch: Batch, prompts_s: float) -> tuple[float, float]:
        """(arithmetic, reading) of the decoding sequences, of which one is 0, beside *prompts_s* of the others [s]."""
        sequences, tokens = batch.decode_seqs, batch.kv_tokens
        idle_s = self.idle_s * sequences * max(longest_chunk(batch) / self.rows - 1.0, 0.0)
        tile_s, read_s = self.tile_s * tokens, self.read_s * tokens * self._rereads(sequences, tokens)
        read_s = max(read_s, self.packed_s * tokens)
        if read_s > tile_s:
            return 0.0, read_s + idle_s
        alone_s = tile_s * self.processors / (self.blocks * sequences)
        return max(tile_s + idle_s, alone_s - prompts_s), 0.0

    def _rereads(self, sequences: float, tokens: float) -> float:
        if not self.processors:
            return 1.0
        missed = min(max(tokens * self.head_bytes / self.l2_bytes - 1.0, 0.0), 1.0)
        apart = min(self.group, max(self.group * sequences / self.processors, 1.0))
        return 1.0 + missed * (apart - 1.0)


def longest_chunk(batch: Batch) -> float:
    """Tokens of the longest prompt chunk, as far as the batch's sums tell: that of the mean query and key.

    It is exact where chunks are alike, and never more than the longest is.
    """
    if not batch.prefill_seqs:
        return 0.0
    tokens, earlier = batch.prefill_tokens, batch.prefill_context_tokens
    squares = 2 * batch.prefill_attention_pairs - tokens  # sum of c (c + 2 k)
    return max(tokens / batch.prefill_seqs, squares / (tokens + 2 * earlier))


def one_call(inputs: RooflineInputs) -> OneCallAttention | None:
    """The statement about decodes beside prompts in the engine on that card; None: they have a call of their own.

    Other kernels run models with latents, chosen tokens or attention sinks, an 8-bit cache, and heads too wide for this
    one.
    """
    stated, model = inputs.coefficients.attention.one_call, inputs.model
    if not stated.applies(inputs.engine.id, inputs.gpu.architecture) or inputs.kv_8bit:
        return None
    if model.mla is not None or model.indexer is not None or model.attention_sinks:
        return None
    if model.attends_by(whole=True).head_dim > MOST_HEAD_DIM:
        return None
    return stated


SCAN_TOKENS = 64
"""C: tokens that are scanned together, in vLLM, SGLang and TensorRT-LLM (flash-linear-attention's chunks)."""
MAMBA_SCAN_TOKENS = 128
"""C of Mamba-2: `chunk_size` of Nemotron 3; efficiencies are stated against it also where a config has 256."""


@dataclass(frozen=True, slots=True)
class StateAttention:
    """Costs of all such layers of a stage on one tensor-parallel rank [s]."""

    move_s: float
    """To read or write the states of one sequence once."""
    token_s: float
    """Arithmetic of a prompt's token."""
    token_peak_s: float
    """At the dense peak."""

    @classmethod
    def of(cls, rates: GpuRates, linear: LinearAttention, layers: float) -> "StateAttention":
        """Of so many *layers*; heads are split over the ranks."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
        share = layers / inputs.tensor_parallel_size
        peak_s = scan_flop(linear) * share / peak_flops(inputs.gpu, "fp16")
        reached = coefficients.scan_efficiency(linear.rule, inputs.engine.id, inputs.gpu.architecture)
        return cls(
            move_s=state_bytes(inputs.model) * share / rates.bytes_per_s * coefficients.state_time_factor.value,
            token_s=peak_s / reached.value / inputs.speed,
            token_peak_s=peak_s,
        )

    def times(self, batch: Batch) -> tuple[float, float]:
        """(moving states, scanning prompts) in the next step of *batch* [s]."""
        written = batch.decode_seqs + batch.draft_tokens + batch.prefill_seqs
        moves = batch.decode_seqs + batch.prefill_seqs + written
        return self.move_s * moves, self.token_s * batch.prefill_tokens


def scan_flop(linear: LinearAttention) -> float:
    """Arithmetic of one token of a prompt in one layer, its projections aside [FLOP]."""
    keys, values = linear.key_head_dim, linear.value_head_dim
    if linear.rule == "mamba2":
        in_heads = linear.value_heads * (2 * keys * values + MAMBA_SCAN_TOKENS * values)
        return FLOP_PER_WEIGHT * (in_heads + linear.key_heads * MAMBA_SCAN_TOKENS * keys)
    with_state = 3 * keys * values
    in_block = SCAN_TOKENS * (3 * keys + 2 * values)
    return FLOP_PER_WEIGHT * linear.value_heads * (with_state + in_block)


SCORE_BYTES = 4
"""A score is a 32-bit number."""


def indexing(rates: GpuRates, indexer: Indexer) -> LayerAttention:
    """What one indexer adds, per context token and per query-key pair."""
    inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
    model = inputs.model
    together = indexer.block_tokens * indexer.tokens_per_key
    scores_bytes = 2 * SCORE_BYTES / together
    read_bytes = index_key_bytes(model) + scores_bytes
    read_s = read_bytes / rates.bytes_per_s * coefficients.index_read_time_factor.value
    ranks = 1 if indexer.of_latents else min(inputs.tensor_parallel_size, indexer.heads)
    peak = peak_flops(inputs.gpu, "fp8" if indexer.key_bits == 8 else "fp16")
    pair_peak_s = FLOP_PER_WEIGHT * indexer.heads * indexer.head_dim / indexer.tokens_per_key / ranks / peak
    chosen_bytes = coefficients.choice_bytes_per_pair.value / together
    choosing_s = chosen_bytes / inputs.gpu.memory_bytes_per_s.value
    arithmetic_s = pair_peak_s / coefficients.index_arithmetic_efficiency.value
    return LayerAttention(
        decode_s=read_s,
        decode_peak_s=pair_peak_s,
        read_s=read_s,
        pair_s=(arithmetic_s + choosing_s) / inputs.speed,
        pair_peak_s=pair_peak_s,
        stream_s=read_s,
    )


def chosen(rates: GpuRates, layer: LayerAttention) -> LayerAttention:
    """*layer* where each query of a prompt reads tokens of its own."""
    inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
    if inputs.model.mla is None and inputs.model.compressed is None:
        return layer
    in_latents, _ = attention_flop(inputs.model)
    heads, least = inputs.model.heads / inputs.tensor_parallel_size, coefficients.kernel_heads(inputs.gpu.architecture)
    peak_s = in_latents / inputs.tensor_parallel_size / peak_flops(inputs.gpu, "fp16")
    computed_s = peak_s * max(1.0, least.value / heads) if least is not None else peak_s
    reached = coefficients.sparse_arithmetic_efficiency.value
    return replace(layer, pair_s=computed_s / reached / inputs.speed, pair_peak_s=computed_s)


@dataclass(frozen=True, slots=True)
class WindowAttention:
    """The window and the streams of all layers of a stage on one tensor-parallel rank [s]."""

    decode_s: float
    """The window of a decoding token."""
    token_s: float
    """The window of a prompt's token."""
    token_peak_s: float
    """Its arithmetic at the dense peak."""
    stream_s: float
    """Streams of any token."""
    step_s: float
    """Streams of a step, however many tokens it has."""

    @classmethod
    def of(
        cls, rates: GpuRates, compressed: CompressedAttention, entry: LayerAttention, layers: float
    ) -> "WindowAttention":
        """Of so many *layers* whose window has entries like *entry*."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
        window, streams = compressed.window * layers, compressed.streams if compressed.streams > 1 else 0
        stream_bytes = streams * inputs.model.hidden * ACTIVATION_BYTES * coefficients.hyper_connection_passes.value
        return cls(
            decode_s=window * entry.decode_s,
            token_s=window * entry.pair_s,
            token_peak_s=window * entry.pair_peak_s,
            stream_s=layers * stream_bytes / inputs.gpu.memory_bytes_per_s.value / inputs.speed,
            step_s=layers * coefficients.hyper_connection_s.value if streams else 0.0,
        )

    def times(self, batch: Batch) -> tuple[float, float]:
        """(reading and mixing, arithmetic of prompts) in the next step of *batch* [s]."""
        decoded = batch.decode_seqs + batch.draft_tokens
        streams_s = self.step_s + self.stream_s * (decoded + batch.prefill_tokens)
        return self.decode_s * decoded + streams_s, self.token_s * batch.prefill_tokens


@dataclass(frozen=True, slots=True)
class Attention:
    """Costs on one tensor-parallel rank, summed over the layers of a stage [s]."""

    whole: LayerAttention
    """Of what grows with the context."""
    windowed: LayerAttention
    """Of what grows with the context up to `window`."""
    window: int | None
    beside: StateAttention | WindowAttention | None
    """Of what does not grow with the context."""
    peak_per_pair: float
    """Arithmetic at the dense peak over that which prompts take."""
    stream_per_read: float

    @classmethod
    def of(cls, rates: GpuRates, layer: LayerAttention, seeing_all: LayerAttention, layers_share: float) -> "Attention":
        """Where *layer* is the mean layer with heads, *seeing_all* that of layers without a window, and a stage has
        *layers_share* of all layers.
        """
        model = rates.inputs.model
        if model.compressed is not None and model.indexer is not None:
            return cls._compressed(rates, model.compressed, model.indexer, layer, layers_share)
        windowed_layers = limited_layers(model) * layers_share
        inside, whole = layer, seeing_all.scaled(whole_layers(model) * layers_share)
        if model.indexer is not None:
            inside = chosen(rates, layer)
            whole = whole.plus(indexing(rates, model.indexer).scaled(model.indexer.indexing_layers * layers_share))
        states = None
        if model.linear_attention is not None:
            states = StateAttention.of(rates, model.linear_attention, model.linear_attention_layers * layers_share)
        return cls(
            whole=whole,
            windowed=inside.scaled(windowed_layers),
            window=window_of(model),
            beside=states,
            peak_per_pair=inside.pair_peak_s / inside.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )

    @classmethod
    def _compressed(
        cls, rates: GpuRates, compressed: CompressedAttention, indexer: Indexer, layer: LayerAttention, share: float
    ) -> "Attention":
        entry = chosen(rates, layer)
        coarse = entry.scaled(compressed.coarse_layers / compressed.coarse_ratio * share)
        return cls(
            whole=coarse.plus(indexing(rates, indexer).scaled(indexer.indexing_layers * share)),
            windowed=entry.scaled(compressed.fine_layers / compressed.fine_ratio * share),
            window=indexer.best_tokens,
            beside=WindowAttention.of(rates, compressed, entry, rates.inputs.model.layers * share),
            peak_per_pair=entry.pair_peak_s / entry.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )


def limited_layers(model: Model) -> int:
    """Layers with heads that see a part of a long context: a window, or the best tokens."""
    return model.indexer.sparse_layers if model.indexer is not None else model.sliding_window_layers


def whole_layers(model: Model) -> int:
    """Layers with heads that see the whole context."""
    return model.cached_layers - limited_layers(model)


def window_of(model: Model) -> int | None:
    """Most tokens that such a layer sees; None where no layer is limited."""
    if model.indexer is not None:
        return model.indexer.best_tokens
    return model.sliding_window if model.sliding_window_layers else None


def seen_by_query(rates: GpuRates) -> float:
    """Tokens that a query of a long prompt costs in a layer that sees a part of it: a window's tiles are larger."""
    margin = attention_values(rates).get("window_margin_tokens")
    return (window_of(rates.inputs.model) or 0) + (margin.value if margin is not None else 0.0)


def least_pairs(rates: GpuRates) -> float:
    """Query-key pairs that each token of a prompt costs at least in layers that see the best tokens alone."""
    places = attention_values(rates).get("sparse_least_places")
    return places.value * (window_of(rates.inputs.model) or 0) if places is not None else 0.0


def attention_values(rates: GpuRates) -> dict[str, Value]:
    """The coefficients that attention other than heads over a cache rests on, by their name in data/attention.yaml."""
    inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
    values: dict[str, Value] = {}
    linear, indexer = inputs.model.linear_attention, inputs.model.indexer
    if (stated := one_call(inputs)) is not None:
        values["one_call_tile_rows"], values["one_call_idle_block_s"] = stated.tile_rows, stated.idle_block_s
    if (reading := decodes_read(inputs)) is not None:
        values["cache_reading_factor"] = reading
    if (small := small_heads(inputs)) is not None:
        values["small_heads_factor"] = small
    if inputs.model.sliding_window_layers and indexer is None:
        values["window_margin_tokens"] = coefficients.window_margin_tokens
    if linear is not None:
        values["state_time_factor"] = coefficients.state_time_factor
        values["scan_efficiency"] = coefficients.scan_efficiency(linear.rule, inputs.engine.id, inputs.gpu.architecture)
    if indexer is not None:
        values["index_read_time_factor"] = coefficients.index_read_time_factor
        values["index_arithmetic_efficiency"] = coefficients.index_arithmetic_efficiency
        values["choice_bytes_per_pair"] = coefficients.choice_bytes_per_pair
        if inputs.model.mla is not None or inputs.model.compressed is not None:
            values["sparse_arithmetic_efficiency"] = coefficients.sparse_arithmetic_efficiency
            if (heads := coefficients.kernel_heads(inputs.gpu.architecture)) is not None:
                values["sparse_kernel_heads"] = heads
            if inputs.model.mla is not None and inputs.engine.id in coefficients.sparse_least_places:
                values["sparse_least_places"] = coefficients.sparse_least_places[inputs.engine.id]
    if inputs.model.compressed is not None and inputs.model.compressed.streams > 1:
        values["hyper_connection_passes"] = coefficients.hyper_connection_passes
        values["hyper_connection_s"] = coefficients.hyper_connection_s
    return values
