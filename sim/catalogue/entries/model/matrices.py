"""The weight matrices of a language model, and what is counted from them: parameters, activations."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from sim.catalogue.entries.model.attention import CompressedAttention, Heads, Indexer, LinearAttention, Mla
from sim.catalogue.entries.model.language import Model

Role = Literal["embedding", "lm_head", "attention", "mlp", "shared_expert", "expert", "router", "vector"]
Split = Literal["outputs", "inputs", "kv_heads", "vocab", "none"]


COMPRESSOR_WIDTHS = 4
"""Widths of an entry that a compressor with overlap computes for each token."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Equal weight matrices of a model, `inputs` x `outputs` parameters each.

    A layer from `first_layer` up to, not including, `last_layer` holds `per_layer` of them; outside the layers
    (embedding, LM head) both are 0. `split` says how tensor parallelism cuts them: along outputs (column parallel),
    inputs (row parallel), by KV heads (replicated beyond their number), along the vocabulary, or not at all.
    """

    name: str
    role: Role
    inputs: int
    outputs: int
    split: Split
    first_layer: int = 0
    last_layer: int = 0
    per_layer: int = 1
    kv_heads: int = 0
    """Parts of a split by KV heads; 0: as many as the model has."""

    @property
    def count(self) -> int:
        """How many there are in the whole model."""
        return self.per_layer * max(1, self.last_layer - self.first_layer)

    @property
    def params(self) -> int:
        """Parameters of all of them."""
        return self.inputs * self.outputs * self.count


@lru_cache(maxsize=64)
def matrices(model: Model) -> tuple[Matrix, ...]:
    """All weights of *model*, alike ones together. Biases and norms are `vector` rows."""
    found = [Matrix("embed_tokens", "embedding", model.vocab, model.hidden, "vocab"), *_attention(model)]
    if model.learned_positions:
        found.append(Matrix("embed_positions", "embedding", model.learned_positions, model.hidden, "none"))
    moe = model.moe
    sparse_from = model.layers - model.expert_layers
    if sparse_from > model.layers_without_feed_forward:
        found += _feed_forward(model, "mlp", model.intermediate, (model.layers_without_feed_forward, sparse_from))
    if moe is not None:
        span = (sparse_from, model.layers)
        found += _feed_forward(model, "expert", moe.moe_intermediate, span, moe.experts, moe.latent)
        if moe.latent:
            found.append(Matrix("latent_down_proj", "shared_expert", model.hidden, moe.latent, "none", *span))
            found.append(Matrix("latent_up_proj", "shared_expert", moe.latent, model.hidden, "none", *span))
        if moe.shared_experts:
            found += _feed_forward(model, "shared_expert", moe.moe_intermediate * moe.shared_experts, span)
        found.append(Matrix("router", "router", model.hidden, moe.experts, "none", *span))
        if moe.shared_expert_gate:
            found.append(Matrix("shared_expert_gate", "router", model.hidden, 1, "none", *span))
        if model.linear_bias:
            found.append(Matrix("router_bias", "vector", 1, moe.experts, "none", *span))
    if not model.tie_embeddings:
        found.append(Matrix("lm_head", "lm_head", model.hidden, model.vocab, "vocab"))
    norm = model.hidden * (2 if model.norm_bias else 1)
    found.append(Matrix("norms", "vector", 1, norm, "none", 0, model.layers, model.norms_per_layer))
    found.append(Matrix("final_norm", "vector", 1, norm, "none"))
    return tuple(found)


def _attention(model: Model) -> list[Matrix]:
    chosen = [] if model.indexer is None else _indexer(model, model.indexer)
    states = [] if model.linear_attention is None else _linear_attention(model, model.linear_attention)
    if model.compressed is not None:
        heads = _compressed_attention(model, model.compressed)
    else:
        heads = _whole_attention(model) if model.mla is None else _latent_attention(model, model.mla)
    return [*chosen, *states, *heads]


def _span_of_heads(model: Model) -> tuple[int, int]:
    """Layers with heads. Both kinds of layers alternate; only their numbers matter, so those with states come first."""
    return (model.layers - model.cached_layers if model.linear_attention is not None else 0, model.layers)


def _whole_attention(model: Model) -> list[Matrix]:
    span = _span_of_heads(model)
    if model.whole_heads is None:
        return _grouped_heads(model, model.attends_by(), span)
    windows_end = span[0] + model.sliding_window_layers
    near = _grouped_heads(model, model.attends_by(), (span[0], windows_end))
    return near + _grouped_heads(model, model.whole_heads, (windows_end, span[1]))


def _grouped_heads(model: Model, by: Heads, span: tuple[int, int]) -> list[Matrix]:
    queries, answers = by.heads * by.head_dim, by.heads * by.value_dim
    stored, width = ("k_proj", by.head_dim) if by.keys_are_values else ("kv_proj", by.head_dim + by.value_dim)
    gates = 2 if model.attention_output_gate else 1
    found = [
        Matrix("q_proj", "attention", model.hidden, gates * queries, "outputs", *span),
        Matrix(stored, "attention", model.hidden, by.kv_heads * width, "kv_heads", *span, 1, by.kv_heads),
        Matrix("o_proj", "attention", answers, model.hidden, "inputs", *span),
    ]
    if model.qkv_bias or model.linear_bias:
        found.append(Matrix("qkv_bias", "vector", 1, queries + by.kv_heads * width, "none", *span))
    if model.linear_bias:
        found.append(Matrix("o_bias", "vector", 1, model.hidden, "none", *span))
    if model.qk_norm:
        found.append(Matrix("qk_norm", "vector", 1, 2 * by.head_dim, "none", *span))
    return found


def _linear_attention(model: Model, linear: LinearAttention) -> list[Matrix]:
    """Queries, keys, values, output gate; two scalars per value head (arXiv 2412.06464), one (Mamba-2, 2405.21060), or
    a decay per channel of keys through their size and one scalar per head (2510.26692).
    """
    keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
    span = (0, model.linear_attention_layers)
    out = Matrix("linear_o_proj", "attention", values, model.hidden, "inputs", *span)
    whole = 2 * keys + values + (0 if linear.low_rank_gate else values)
    found = [Matrix("linear_qkvz_proj", "attention", model.hidden, whole, "outputs", *span)]
    if linear.rule != "kda":
        scalars = (2 if linear.rule == "gated_delta" else 1) * linear.value_heads
        found.append(Matrix("linear_scalars_proj", "attention", model.hidden, scalars, "outputs", *span))
        return [*found, out]
    size, narrow = linear.key_head_dim, [] if linear.whole_decay else [("decay", keys)]
    if linear.whole_decay:
        found.append(Matrix("linear_decay_proj", "attention", model.hidden, keys, "outputs", *span))
    if linear.low_rank_gate:
        narrow.append(("gate", values))
    found.append(Matrix("linear_scalars_proj", "attention", model.hidden, linear.value_heads, "outputs", *span))
    for name, width in narrow:
        found.append(Matrix(f"linear_{name}_a_proj", "attention", model.hidden, size, "none", *span))
        found.append(Matrix(f"linear_{name}_b_proj", "attention", size, width, "outputs", *span))
    return [*found, out]


def _indexer(model: Model, indexer: Indexer) -> list[Matrix]:
    """Queries, one key, and of DeepSeek's a weight per head (DeepSeek-V3.2 report; arXiv 2606.13392)."""
    span = (model.layers - indexer.indexing_layers, model.layers)
    width = indexer.heads * indexer.head_dim
    latents = model.mla or model.compressed
    size = indexer.head_dim * (COMPRESSOR_WIDTHS if indexer.tokens_per_key > 1 else 1)
    key = Matrix("index_k_proj", "attention", model.hidden, size, "none", *span)
    if not indexer.of_latents or latents is None or latents.q_lora_rank is None:
        return [Matrix("index_q_proj", "attention", model.hidden, width, "kv_heads", *span), key]
    return [
        Matrix("index_q_proj", "attention", latents.q_lora_rank, width, "none", *span),
        key,
        Matrix("index_weights_proj", "router", model.hidden, indexer.heads, "none", *span),
    ]


def _latent_attention(model: Model, mla: Mla) -> list[Matrix]:
    """Queries and KV through low-rank latents; every rank holds the down-projections (arXiv 2405.04434, 2.1)."""
    head, span = mla.qk_nope_head_dim + mla.qk_rope_head_dim, _span_of_heads(model)
    found = []
    if model.attention_output_gate:
        gate = model.heads * mla.v_head_dim
        found.append(Matrix("gate_proj", "attention", model.hidden, gate, "outputs", *span))
    if mla.q_lora_rank is None:
        found.append(Matrix("q_proj", "attention", model.hidden, model.heads * head, "outputs", *span))
    else:
        found.append(Matrix("q_a_proj", "attention", model.hidden, mla.q_lora_rank, "none", *span))
        found.append(Matrix("q_b_proj", "attention", mla.q_lora_rank, model.heads * head, "outputs", *span))
        found.append(Matrix("q_norm", "vector", 1, mla.q_lora_rank, "none", *span))
    latent, values = mla.kv_lora_rank, model.heads * mla.v_head_dim
    return [
        *found,
        Matrix("kv_a_proj", "attention", model.hidden, latent + mla.qk_rope_head_dim, "none", *span),
        Matrix("kv_b_proj", "attention", latent, model.heads * mla.qk_nope_head_dim + values, "outputs", *span),
        Matrix("kv_norm", "vector", 1, latent, "none", *span),
        Matrix("o_proj", "attention", values, model.hidden, "inputs", *span),
    ]


def _compressed_attention(model: Model, compressed: CompressedAttention) -> list[Matrix]:
    """Queries through a latent, one entry a token, compressors, outputs by groups (config and code of DeepSeek-V4).

    A compressor has a value and a weight for each number of an entry; where entries overlap, both twice.
    """
    span, fine, coarse = (0, model.layers), (0, compressed.fine_layers), (0, compressed.coarse_layers)
    queries, groups = model.heads * model.head_dim, compressed.o_groups
    found = [
        Matrix("q_a_proj", "attention", model.hidden, compressed.q_lora_rank, "none", *span),
        Matrix("q_b_proj", "attention", compressed.q_lora_rank, queries, "outputs", *span),
        Matrix("kv_proj", "attention", model.hidden, model.head_dim, "none", *span),
        Matrix("o_a_proj", "attention", queries // groups, compressed.o_lora_rank, "outputs", *span, groups),
        Matrix("o_b_proj", "attention", groups * compressed.o_lora_rank, model.hidden, "inputs", *span),
    ]
    if compressed.fine_layers:
        width = COMPRESSOR_WIDTHS * model.head_dim
        found.append(Matrix("fine_compressor", "router", model.hidden, width, "none", *fine))
    if compressed.coarse_layers:
        width = COMPRESSOR_WIDTHS // 2 * model.head_dim
        found.append(Matrix("coarse_compressor", "router", model.hidden, width, "none", *coarse))
    if (streams := compressed.streams) > 1:
        mixed = streams * (2 + streams)
        found.append(Matrix("hyper_connections", "router", streams * model.hidden, mixed, "none", *span, 2))
    return found


def _feed_forward(
    model: Model, role: Role, intermediate: int, span: tuple[int, int], per_layer: int = 1, latent: int = 0
) -> list[Matrix]:
    outside = latent or model.hidden
    width = 2 * intermediate if model.gated_mlp else intermediate
    up = "gate_up_proj" if model.gated_mlp else "up_proj"
    found = [
        Matrix(up, role, outside, width, "outputs", *span, per_layer),
        Matrix("down_proj", role, intermediate, outside, "inputs", *span, per_layer),
    ]
    if model.linear_bias:
        found.append(Matrix(f"{role}_bias", "vector", 1, width + outside, "none", *span, per_layer))
    return found


def params_total(model: Model) -> int:
    """All parameters, embeddings, biases and norms included, a multi-token-prediction layer excluded."""
    return sum(matrix.params for matrix in matrices(model))


def params_active(model: Model) -> int:
    """Parameters that one token passes through, the whole input embedding included."""
    if model.moe is None:
        return params_total(model)
    idle = 1 - model.moe.experts_per_token / model.moe.experts
    routed = sum(matrix.params for matrix in matrices(model) if matrix.role == "expert" or matrix.name == "expert_bias")
    return params_total(model) - round(routed * idle)


def activations_per_token(model: Model) -> float:
    """Numbers that go into and come out of the matrix products of all layers for one token; the LM head is left out."""
    passed = 0.0
    for matrix in matrices(model):
        if matrix.role in ("attention", "mlp", "shared_expert", "expert"):
            share = model.moe.experts_per_token / model.moe.experts if matrix.role == "expert" and model.moe else 1.0
            passed += (matrix.inputs + matrix.outputs) * matrix.count * share
    return passed
