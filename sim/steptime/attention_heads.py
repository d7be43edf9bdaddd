"""Attention of one layer on one GPU: reading the cache for decodes, arithmetic for prompts.

Both are linear in what a batch counts, so that a step stays affine in its contexts:

    decode:  sum of contexts * (c^p + r^p)^(1/p)     c arithmetic, r cache read, per context token
    prefill: query-key pairs * arithmetic per pair + earlier tokens * cache read

The cache of a rank holds its share of the KV heads, at least one; MLA's latent is whole on every rank (DeepSeek-V2,
arXiv 2405.04434: decoding absorbs the up-projections, so scores and values are taken in the latent space; prefill
does not).

Decoding sequences that share one FlashAttention-2 call with prompts (vLLM's V1 engine) take longer (`OneCall`).
FlashAttention 2 packs the query heads of a KV head, and splits a long cache, only in a call in which every sequence
has one new token (vLLM's pull request 58013). Where one has more, each query head of each sequence is a thread block
of its own, which works through a tile of 64 rows for its single one and reads the cache of its KV head by itself:

    t = max(arithmetic of the tiles, cache read * rereads, the packed call)
    rereads = 1 while a KV head's cache of all sequences fits into L2; beyond, query heads of a KV head over those of
              them that run at the same time

A block walks a context alone, so few of them leave the GPU idle; and the longest prompt chunk sets the number of tiles
that are launched for every sequence, of which all but one have nothing to do. Drafts are not costed so: nobody has
measured those kernels, and measured gains of drafts speak against it.
"""

from dataclasses import dataclass, fields
from math import inf

from sim.catalogue.model import Model, kv_bytes_per_token_layer
from sim.catalogue.value import Value
from sim.records import Batch
from sim.steptime.coefficients import OneCallAttention
from sim.steptime.gemm import ACTIVATION_BYTES, FLOP_PER_WEIGHT, together
from sim.steptime.inputs import Rates, RooflineInputs, peak_flops

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
    def of(cls, rates: Rates, whole: bool = False) -> "LayerAttention":
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


def _read_rate(rates: Rates, decodes: bool) -> float:
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
class OneCall:
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
    def of(cls, rates: Rates, whole: LayerAttention, layers: float) -> "OneCall | None":
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
