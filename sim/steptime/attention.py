"""Attention time of one step on one GPU, for a single layer and for all layers of a pipeline stage.

`LayerAttention` has the costs of a layer with a KV cache, `FullAttentionCall` of decodes that share a kernel call with
prompts, `StateAttention` of linear attention, `indexing` and `sparse_attention` of sparse attention (DeepSeek-V3.2,
MiniMax M3), `WindowAttention` of compressed attention (DeepSeek-V4). `Attention` sums them over a stage.

All costs are linear in a batch's sums, so that a step's time stays affine in its contexts.
"""

from dataclasses import dataclass, fields, replace
from math import inf

from sim.catalogue.model import (
    CompressedAttention,
    Indexer,
    LinearAttention,
    Model,
    index_key_bytes,
    index_keys_per_token,
    kv_bytes_per_token_layer,
    state_bytes,
)
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.coefficients import OneCallAttention
from sim.steptime.gemm import p_norm_s
from sim.steptime.inputs import ACTIVATION_BYTES, FLOP_PER_WEIGHT, GpuRates, RooflineInputs, peak_flops

SMALL_HEAD = 64
"""Maximum width of a head to which `small_heads` applies."""


@dataclass(frozen=True, slots=True)
class LayerAttention:
    """Costs of one attention layer on one tensor-parallel rank [s].

    Notes
    -----
        decode:  context tokens * (c^p + r^p)^(1/p)      c arithmetic, r cache read, per context token
        prefill: query-key pairs * arithmetic per pair + earlier tokens * cache read

    A rank's cache holds its share of the KV heads, at least one; MLA's latent is replicated on every rank. Decoding
    absorbs MLA's up-projections, so scores and values are computed in the latent space; prefill does not.

    References
    ----------
    DeepSeek-V2, arXiv 2405.04434.

    """

    decode_s: float
    """Time per context token of a decoding sequence [s]."""
    decode_peak_s: float
    """Arithmetic of `decode_s` at the dense peak [s]."""
    read_s: float
    """Time per earlier token that a prompt chunk reads [s]."""
    pair_s: float
    """Time per query-key pair of a prompt chunk [s]."""
    pair_peak_s: float
    stream_s: float
    """Part of `read_s` in which the GPU reads its own memory [s]."""

    @classmethod
    def of(cls, rates: GpuRates, whole: bool = False) -> "LayerAttention":
        """Return the costs from the model's heads and the GPU's rates.

        *whole*: the layer attends to all tokens, in models where these layers have different heads.
        """
        inputs, coefficients = rates.inputs, rates.inputs.coefficients
        peak = peak_flops(inputs.gpu, "fp16")
        reached = peak * rates.compute_efficiency * coefficients.prefill_attention_efficiency.value
        decode_flop, pair_flop = attention_flop(inputs.model, whole)
        heads_share, small = 1 / inputs.tensor_parallel_size, small_heads(inputs)
        ranks, element_bytes = inputs.tensor_parallel_size, inputs.kv_bytes_per_element
        token_bytes = cache_bytes(inputs.model, ranks, element_bytes, whole)
        read_s, decode_read_s = (token_bytes / _read_rate(rates, decodes) for decodes in (False, True))
        return cls(
            decode_s=p_norm_s(decode_flop * heads_share / reached, decode_read_s, coefficients.gemm_exponent.value),
            decode_peak_s=decode_flop * heads_share / peak,
            read_s=read_s,
            pair_s=pair_flop * heads_share / reached * (small.value if small else 1.0) + scores_s(rates, whole),
            pair_peak_s=pair_flop * heads_share / peak,
            stream_s=read_s,
        )

    def scaled(self, layers: float) -> "LayerAttention":
        """Return the costs of *layers* such layers."""
        return LayerAttention(*(layers * getattr(self, one.name) for one in fields(self)))

    def plus(self, other: "LayerAttention") -> "LayerAttention":
        """Return the sum of both costs."""
        return LayerAttention(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def mixed(self, other: "LayerAttention", share: float) -> "LayerAttention":
        """Return the mean costs of layers of which the fraction *share* are like *other*."""
        pairs = ((getattr(self, one.name), getattr(other, one.name)) for one in fields(self))
        return LayerAttention(*(mine * (1 - share) + its * share for mine, its in pairs))


def cache_bytes(model: Model, tensor_parallel_size: int, bytes_per_element: float, whole: bool = False) -> float:
    """Return the cache size of one token in one layer on one rank [bytes]."""
    ranks = 1 if model.mla is not None else min(tensor_parallel_size, model.attends_by(whole).kv_heads)
    return kv_bytes_per_token_layer(model, bytes_per_element, whole) / ranks


def attention_flop(model: Model, whole: bool = False) -> tuple[float, float]:
    """Return the arithmetic of all heads of a layer, per context token of a decode and per query-key pair of a prompt.

    Notes
    -----
        2 * heads * (key width + value width) FLOP for both, with grouped-query attention
        2 * heads * (2 * latent + rope width) FLOP in decodes, with multi-head latent attention
        2 * heads * (nope + rope + value width) FLOP in prompts, with multi-head latent attention

    """
    mla = model.mla
    if mla is None:
        by = model.attends_by(whole)
        flop = FLOP_PER_WEIGHT * by.heads * (by.head_dim + by.value_dim)
        return flop, flop
    latent = mla.kv_lora_rank + mla.qk_rope_head_dim + mla.kv_lora_rank
    explicit = mla.qk_nope_head_dim + mla.qk_rope_head_dim + mla.v_head_dim
    return FLOP_PER_WEIGHT * model.heads * latent, FLOP_PER_WEIGHT * model.heads * explicit


def scores_s(rates: GpuRates, whole: bool = False) -> float:
    """Return the time to store and read the scores of a query-key pair of a prompt in a layer; 0 if fused [s]."""
    stored, model = rates.inputs.prompt_kernels.get("score_bytes"), rates.inputs.model
    heads = model.heads if model.mla is not None else model.attends_by(whole).heads
    if stored is None:
        return 0.0
    return stored.value * heads / rates.inputs.tensor_parallel_size / rates.kernel_bytes_per_s


def small_heads(inputs: RooflineInputs) -> Value | None:
    """Return the factor on the time of a prompt's query-key pair due to small heads; None: 1."""
    if inputs.model.mla is not None or inputs.model.head_dim > SMALL_HEAD:
        return None
    return inputs.coefficients.attention.small_heads_factor(inputs.gpu.architecture)


def decodes_read(inputs: RooflineInputs) -> Value | None:
    """Return the factor on the time of decodes to read a byte of the KV cache on the inputs' GPU; None: 1."""
    if inputs.model.mla is not None:
        return None
    return inputs.coefficients.attention.cache_reading_factor(inputs.engine.id, inputs.gpu)


def _read_rate(rates: GpuRates, decodes: bool) -> float:
    """Return the rate of reading the KV cache [B/s].

    It is the rate for weights over the engine's factors, at most the memory's bandwidth.
    """
    overheads, bandwidth = rates.overheads, rates.inputs.gpu.memory_bytes_per_s.value
    of_card = decodes_read(rates.inputs) if decodes else None
    factor = overheads.kv_read_time_factor.value * (of_card.value if of_card else 1.0)
    rate = min(rates.bytes_per_s / factor, bandwidth)
    if rates.inputs.kv_8bit and overheads.kv_8bit_read_time_factor is not None:
        rate = min(rate / overheads.kv_8bit_read_time_factor.value, bandwidth)
    return rate


MOST_HEAD_DIM = 256
"""Maximum head width of FlashAttention 2's kernels."""


@dataclass(frozen=True, slots=True)
class FullAttentionCall:
    """Costs of a stage's full-context layers where decodes and prompts share a call, on one tensor-parallel rank.

    Notes
    -----
    Sequences that decode in one FlashAttention-2 call with prompts (vLLM's V1 engine) take longer. FlashAttention 2
    packs the query heads of a KV head, and splits a long cache, only if every sequence of the call has one new token.
    Otherwise each query head of each sequence is a thread block of its own, which computes a whole tile of 64 rows for
    its single query and reads the cache of its KV head by itself::

        t = max(arithmetic of the tiles, cache read * rereads, the packed call)
        rereads = 1 while the cache of a KV head of all sequences fits into L2; beyond it, query heads of a KV head
                  over those of them that run at the same time

    A block reads its context alone: with few blocks, a part of the GPU is idle. The longest prompt chunk sets the
    number of tiles launched for every sequence; all but one of a decoding sequence's tiles have no work. Drafts are not
    included: their kernels are unmeasured, and measured gains of drafting contradict such costs.

    References
    ----------
    vLLM pull request 58013.

    """

    packed_s: float
    """Time per context token if all sequences have one new token [s]."""
    read_s: float
    """Time per context token to read its cache entry once [s]."""
    tile_s: float
    """Time per context token of the arithmetic of its tiles [s]."""
    idle_s: float
    """Time per sequence and tile without work [s]."""
    blocks: float
    """Thread blocks of a sequence in a layer."""
    group: float
    """Query heads per KV head on the rank."""
    rows: float
    """Queries per tile."""
    head_bytes: float
    """Size of one token in the cache of a KV head [bytes]."""
    processors: float
    """Thread blocks that the GPU runs at the same time."""
    l2_bytes: float

    @classmethod
    def of(cls, rates: GpuRates, whole: LayerAttention, layers: float) -> "FullAttentionCall | None":
        """Return the costs of *layers* full-context layers whose summed costs are *whole*.

        Return None if decodes have a call of their own.
        """
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
        """Return the time (arithmetic, reading) of the decoding sequences; one of the two is 0 [s].

        *prompts_s* is the time of the prompts in the same call.
        """
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
    """Return the length of the longest prompt chunk, estimated from the batch's sums [tokens].

    The estimate is the mean chunk length over queries and keys. It is exact for equal chunks and never above the
    maximum.
    """
    if not batch.prefill_seqs:
        return 0.0
    tokens, earlier = batch.prefill_tokens, batch.prefill_context_tokens
    squares = 2 * batch.prefill_attention_pairs - tokens  # sum of c (c + 2 k)
    return max(tokens / batch.prefill_seqs, squares / (tokens + 2 * earlier))


def one_call(inputs: RooflineInputs) -> OneCallAttention | None:
    """Return the rule for decodes in one call with prompts in the inputs' engine and GPU; None: separate calls.

    Models with latents, sparse attention or attention sinks, an 8-bit cache, and heads too wide for FlashAttention 2
    use other kernels.
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
"""Tokens scanned together (C), in vLLM, SGLang and TensorRT-LLM (flash-linear-attention's chunks)."""
MAMBA_SCAN_TOKENS = 128
"""Tokens scanned together (C) with Mamba-2: `chunk_size` of Nemotron 3. Efficiencies refer to this value, also where a
config has 256."""


@dataclass(frozen=True, slots=True)
class StateAttention:
    """Costs of all linear attention layers of a stage on one tensor-parallel rank [s].

    Notes
    -----
        decode:  state bytes * (read once + written after each token) / rate
        prompt:  state read and written once per chunk, and the arithmetic of `scan_flop` per token

    """

    move_s: float
    """Time to read or write the states of one sequence once [s]."""
    token_s: float
    """Arithmetic of a prompt token [s]."""
    token_peak_s: float
    """Arithmetic of a prompt token at the dense peak [s]."""

    @classmethod
    def of(cls, rates: GpuRates, linear: LinearAttention, layers: float) -> "StateAttention":
        """Return the costs of *layers* layers; heads are split over the ranks."""
        inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
        share = layers / inputs.tensor_parallel_size
        peak_s = scan_flop(linear) * share / peak_flops(inputs.gpu, "fp16")
        scan = coefficients.scan(linear.rule, inputs.engine.id, inputs.gpu.architecture)
        token_s = scan.layer_token_s.value * layers if scan.layer_token_s else peak_s / scan.share.value
        return cls(
            move_s=state_bytes(inputs.model) * share / rates.bytes_per_s * coefficients.state_time_factor.value,
            token_s=token_s / inputs.speed,
            token_peak_s=peak_s,
        )

    def times(self, batch: Batch) -> tuple[float, float]:
        """Return the time (moving states, scanning prompts) in the next step of *batch* [s]."""
        written = batch.decode_seqs + batch.draft_tokens + batch.prefill_seqs
        moves = batch.decode_seqs + batch.prefill_seqs + written
        return self.move_s * moves, self.token_s * batch.prefill_tokens


def scan_flop(linear: LinearAttention) -> float:
    """Return the arithmetic of one prompt token in one linear attention layer, without its projections [FLOP].

    Notes
    -----
        2 (3 K V + C (3 K + 2 V)) per value head                     gated delta rule, KDA
        2 (2 K V + C V) per value head, and 2 C K per key group      Mamba-2
        2 * 3 per number                                             gated convolution over three tokens

    with K and V the widths of a key and a value and C the tokens scanned together. The products are with the state
    (three; two in Mamba-2, which removes nothing from it), and among the C tokens of a block: keys with keys, queries
    with keys, and the block's values; in Mamba-2 queries with keys once per group, and values.

    References
    ----------
    Gated DeltaNet, arXiv 2412.06464; Kimi Delta Attention, arXiv 2510.26692; Mamba-2, arXiv 2405.21060.

    """
    keys, values = linear.key_head_dim, linear.value_head_dim
    if linear.rule == "convolution":
        return float(FLOP_PER_WEIGHT * 3 * linear.value_heads * values)
    if linear.rule == "mamba2":
        in_heads = linear.value_heads * (2 * keys * values + MAMBA_SCAN_TOKENS * values)
        return FLOP_PER_WEIGHT * (in_heads + linear.key_heads * MAMBA_SCAN_TOKENS * keys)
    with_state = 3 * keys * values
    in_block = SCAN_TOKENS * (3 * keys + 2 * values)
    return FLOP_PER_WEIGHT * linear.value_heads * (with_state + in_block)


SCORE_BYTES = 4
"""Size of a score, a 32-bit number [bytes]."""


def indexing(rates: GpuRates, indexer: Indexer) -> LayerAttention:
    """Return the cost that one indexer adds per context token and per query-key pair [s].

    Notes
    -----
        decode: context tokens * (key + score, written and read) / rate
        prompt: query-key pairs * (2 * heads * width FLOP, and the selection among the scores)

    """
    inputs, coefficients = rates.inputs, rates.inputs.coefficients.attention
    model = inputs.model
    tokens_per_score = indexer.block_tokens * indexer.tokens_per_key
    scores_bytes = 2 * SCORE_BYTES / tokens_per_score
    read_bytes = index_key_bytes(model) + scores_bytes
    read_s = read_bytes / rates.bytes_per_s * coefficients.index_read_time_factor.value
    ranks = 1 if indexer.of_latents else min(inputs.tensor_parallel_size, indexer.heads)
    peak = peak_flops(inputs.gpu, "fp8" if indexer.key_bits == 8 else "fp16")
    pair_peak_s = FLOP_PER_WEIGHT * indexer.heads * indexer.head_dim / indexer.tokens_per_key / ranks / peak
    chosen_bytes = coefficients.choice_bytes_per_pair.value / tokens_per_score
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


def sparse_attention(rates: GpuRates, layer: LayerAttention) -> LayerAttention:
    """Return the costs of *layer* if each query of a prompt attends to its own selection of tokens.

    Decodes attend to the best tokens as to a window of that size. In prompts, latent attention is then computed in the
    latent space, since the queries' tokens differ.
    """
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
    """Costs of the windows and residual streams of a stage with compressed attention, on one tensor-parallel rank [s].

    Notes
    -----
    Compressed attention (DeepSeek-V4) reads entries that stand for several tokens, and a window of single tokens::

        decode:  context / 128 entries in coarse layers
                 keys of context / 4 entries in fine layers, and the best of these entries
                 window entries in every layer, per token
        prompt:  the same numbers of query-key pairs, in latents
        both:    streams of hyper-connections: a time per layer, and passes over the streams of each token

    This class has the windows and the streams.

    """

    decode_s: float
    """Time of the window of a decoding token [s]."""
    token_s: float
    """Time of the window of a prompt token [s]."""
    token_peak_s: float
    """Arithmetic of `token_s` at the dense peak [s]."""
    stream_s: float
    """Time of the residual streams per token [s]."""
    step_s: float
    """Time of the residual streams per step, independent of its tokens [s]."""

    @classmethod
    def of(
        cls, rates: GpuRates, compressed: CompressedAttention, entry: LayerAttention, layers: float
    ) -> "WindowAttention":
        """Return the costs of *layers* layers whose window has entries like *entry*."""
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
        """Return the time (reading and mixing, arithmetic of prompts) in the next step of *batch* [s]."""
        decoded = batch.decode_seqs + batch.draft_tokens
        streams_s = self.step_s + self.stream_s * (decoded + batch.prefill_tokens)
        return self.decode_s * decoded + streams_s, self.token_s * batch.prefill_tokens


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention costs on one tensor-parallel rank, summed over the layers of a stage [s]."""

    whole: LayerAttention
    """Costs of layers that attend to the whole context."""
    windowed: LayerAttention
    """Costs of layers that attend to at most `window` tokens of the context."""
    window: int | None
    context_free: StateAttention | WindowAttention | None
    """Costs that do not grow with the context; None: no such layers."""
    peak_per_pair: float
    """Fraction of the prompts' attention time that is arithmetic at the dense peak [1]."""
    stream_per_read: float

    @classmethod
    def of(cls, rates: GpuRates, layer: LayerAttention, full_layer: LayerAttention, layers_share: float) -> "Attention":
        """Return the costs of a stage with *layers_share* of all layers.

        *layer* is the mean layer with heads, *full_layer* the mean layer without a window.
        """
        model = rates.inputs.model
        if model.compressed is not None and model.indexer is not None:
            return cls._compressed(rates, model.compressed, model.indexer, layer, layers_share)
        windowed_layers = limited_layers(model) * layers_share
        inside, whole = layer, full_layer.scaled(whole_layers(model) * layers_share)
        if model.indexer is not None:
            inside = sparse_attention(rates, layer)
            whole = whole.plus(indexing(rates, model.indexer).scaled(model.indexer.indexing_layers * layers_share))
        states = None
        if model.linear_attention is not None:
            states = StateAttention.of(rates, model.linear_attention, model.linear_attention_layers * layers_share)
        return cls(
            whole=whole,
            windowed=inside.scaled(windowed_layers),
            window=window_of(model),
            context_free=states,
            peak_per_pair=inside.pair_peak_s / inside.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )

    @classmethod
    def _compressed(
        cls, rates: GpuRates, compressed: CompressedAttention, indexer: Indexer, layer: LayerAttention, share: float
    ) -> "Attention":
        entry = sparse_attention(rates, layer)
        coarse = entry.scaled(compressed.coarse_layers / compressed.coarse_ratio * share)
        return cls(
            whole=coarse.plus(indexing(rates, indexer).scaled(index_keys_per_token(rates.inputs.model)[1] * share)),
            windowed=entry.scaled((compressed.fine_layers + compressed.whole_layers) / compressed.fine_ratio * share),
            window=indexer.best_tokens,
            context_free=WindowAttention.of(rates, compressed, entry, rates.inputs.model.layers * share),
            peak_per_pair=entry.pair_peak_s / entry.pair_s,
            stream_per_read=layer.stream_s / layer.read_s,
        )


def limited_layers(model: Model) -> int:
    """Return the number of layers with heads that attend to part of a long context: a window, or the best tokens."""
    return model.indexer.sparse_layers if model.indexer is not None else model.sliding_window_layers


def whole_layers(model: Model) -> int:
    """Return the number of layers with heads that attend to the whole context."""
    return model.cached_layers - limited_layers(model)


def window_of(model: Model) -> int | None:
    """Return the maximum number of tokens that a limited layer attends to; None if no layer is limited."""
    if model.indexer is not None:
        return model.indexer.best_tokens
    return model.sliding_window if model.sliding_window_layers else None


def window_tokens_per_query(rates: GpuRates) -> float:
    """Return the number of tokens that a query of a long prompt costs in a limited layer.

    The number is the window plus `window_margin_tokens`, since kernels compute whole tiles.
    """
    margin = attention_values(rates).get("window_margin_tokens")
    return (window_of(rates.inputs.model) or 0) + (margin.value if margin is not None else 0.0)


def least_pairs(rates: GpuRates) -> float:
    """Return the minimum number of query-key pairs per prompt token in layers that attend to the best tokens only."""
    places = attention_values(rates).get("sparse_least_places")
    return places.value * (window_of(rates.inputs.model) or 0) if places is not None else 0.0


def attention_values(rates: GpuRates) -> dict[str, Value]:
    """Return the coefficients of attention that apply to these inputs, by name in data/attention.yaml."""
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
        scan = coefficients.scan(linear.rule, inputs.engine.id, inputs.gpu.architecture)
        values["scan_efficiency"] = scan.layer_token_s or scan.share
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
