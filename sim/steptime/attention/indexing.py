"""Sparse attention: an indexer scores all tokens, attention reads the best of them (DeepSeek-V3.2, MiniMax M3).

decode:  context tokens * (key + score, written and read) / rate      in each layer with an indexer
         best tokens as attention over a window of so many
prompt:  query-key pairs * (2 heads * size FLOP, choosing among the scores)
         pairs with the best tokens only; in latents where the model has them, as every query has others
"""

from dataclasses import replace

from sim.catalogue.entries.model import Indexer, index_key_bytes
from sim.steptime.attention.heads import LayerAttention, attention_flop
from sim.steptime.gemm import FLOP_PER_WEIGHT
from sim.steptime.inputs import Rates, peak_flops

SCORE_BYTES = 4
"""A score is a 32-bit number."""


def indexing(rates: Rates, indexer: Indexer) -> LayerAttention:
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


def chosen(rates: Rates, layer: LayerAttention) -> LayerAttention:
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
