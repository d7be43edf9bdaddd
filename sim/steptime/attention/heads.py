"""Attention of one step on one GPU: reading the cache for decodes, arithmetic for prompts.

Both are linear in what a batch counts, so that a step stays affine in its contexts:

    decode:  sum of contexts * (c^p + r^p)^(1/p)     c arithmetic, r cache read, per context token
    prefill: query-key pairs * arithmetic per pair + earlier tokens * cache read

The cache of a rank holds its share of the KV heads, at least one; MLA's latent is whole on every rank (DeepSeek-V2,
arXiv 2405.04434: decoding absorbs the up-projections, so scores and values are taken in the latent space; prefill does
not).
"""

from dataclasses import dataclass, fields

from sim.catalogue.entries.model import Model, kv_bytes_per_token_layer
from sim.catalogue.value import Value
from sim.steptime.gemm import FLOP_PER_WEIGHT, together
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
