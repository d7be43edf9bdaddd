"""Language models, and networks that process each sample in one pass (`kind: other`).

Dimensions are in data/models/<id>.yaml or in a Hugging Face config.json. Parameters, bytes and arithmetic are all
derived from the list of weight matrices that `matrices` returns.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import model_validator

from sim.catalogue.value import Sourced, Value
from sim.message import Message
from sim.spec import Count, Positive, Spec, Tagged, WholeNumber
from sim.units import BITS_PER_BYTE


class Heads(Spec):
    """Grouped-query attention heads: query heads that share keys and values in groups."""

    heads: Count
    kv_heads: Count
    head_dim: Count
    value_head_dim: Count | None = None
    """Width of a head's value; None: as wide as its key."""
    keys_are_values: bool = False
    """True if keys and values are one projection with separate norms; both are stored in the cache (Gemma 4)."""

    @property
    def value_dim(self) -> int:
        """Width of a head's value."""
        return self.value_head_dim or self.head_dim


class Mla(Spec):
    """Dimensions of multi-head latent attention (DeepSeek)."""

    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: WholeNumber
    """Width of the rotated part of a key, which all heads share; 0 without positions (GLM-5.3-Flash)."""
    v_head_dim: Count


class LinearAttention(Spec):
    """Dimensions of linear attention: a state per value head instead of a KV cache."""

    rule: Literal["gated_delta", "kda", "mamba2", "convolution"] = "gated_delta"
    """Update rule: Gated DeltaNet (Qwen3-Next, arXiv 2412.06464), Kimi Delta Attention with a gate per channel (arXiv
    2510.26692), Mamba-2 (arXiv 2405.21060; its groups are the key heads, its state size is the key width), or a gated
    convolution over three tokens without any state (LFM2; keys and values have the width of the model)."""
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    low_rank_gate: bool = False
    """True if KDA's output gate is a low-rank product of the width of a key, like its decay (Kimi-Linear)."""
    whole_decay: bool = False
    """True if KDA's decay has a full-rank projection (Ling 3)."""
    state_bits: Literal[16, 32] = 32
    """Bits of a number in the state: `mamba_ssm_dtype` of the config, else the model's own dtype."""
    beside_heads: bool = False
    """True if the same layers also have attention heads and a KV cache (Falcon-H1)."""


class CompressedAttention(Spec):
    """Compressed attention of DeepSeek-V4 (CSA and HCA).

    One KV head stores entries that each stand for several tokens; a window of recent tokens is stored uncompressed.
    """

    q_lora_rank: Count
    o_lora_rank: Count
    o_groups: Count
    """Groups of heads with separate down-projections to `o_lora_rank` each."""
    window: Count
    """Window of most recent tokens that every layer attends to uncompressed."""
    rope_head_dim: Count = 64
    """Numbers of an entry that encode its position; they stay at 16 bits where the others are stored in 8."""
    fine_layers: WholeNumber
    """Number of layers with an entry per `fine_ratio` tokens, from which the indexer selects (CSA)."""
    coarse_layers: WholeNumber
    """Number of layers with an entry per `coarse_ratio` tokens, all of which are read (HCA); remaining layers have the
    window only."""
    fine_ratio: Count = 4
    coarse_ratio: Count = 128
    whole_layers: WholeNumber = 0
    """Number of layers with an entry per token, from which the indexer selects as many as in fine layers (V4.1)."""
    fine_sources: Count | None = None
    """Number of fine layers that store entries and index keys, which the layers up to the next of them read (V4.1);
    None: all, each with entries that overlap."""
    whole_sources: WholeNumber = 0
    """Number of `whole_layers` that store entries and index keys."""
    whole_indexing_layers: WholeNumber = 0
    """Number of `whole_layers` with an indexer."""
    streams: Count = 1
    """Copies of the residual stream that hyper-connections mix around each block."""

    @property
    def overlapping(self) -> bool:
        """True if an entry of a fine layer also contains the tokens of the one before it (V4)."""
        return self.fine_sources is None

    @property
    def stored_fine_layers(self) -> int:
        """Number of fine layers that store entries."""
        return self.fine_layers if self.fine_sources is None else self.fine_sources


class Indexer(Spec):
    """Indexer of sparse attention: scores all tokens, of which attention reads the best.

    Used by DeepSeek Sparse Attention and MiniMax M3.
    """

    heads: Count
    head_dim: Count
    best_tokens: Count
    """Number of tokens that a query attends to."""
    sparse_layers: Count
    """Number of layers that attend to the best tokens only; the others attend to all tokens."""
    indexing_layers: Count
    """Number of sparse layers that score tokens; the others reuse the selection of a preceding layer (GLM-5.2)."""
    of_latents: bool = False
    """True if index queries are computed from MLA's query latent and every rank scores for all heads; False: the
    heads are split over the ranks."""
    key_bits: Literal[8, 16] = 8
    """Bits of a number in the cache of index keys; 8-bit keys have a 32-bit scale each."""
    tokens_per_key: Count = 1
    """Number of tokens that share a key because they share a cache entry (DeepSeek-V4)."""
    block_tokens: Count = 1
    """Number of tokens selected together, by the best score among them."""


class SharedCaches(Spec):
    """Last layers that attend to the cache of an earlier layer (Gemma 4 E2B and E4B).

    They have neither key and value projections nor a cache.
    """

    layers: Count
    windowed_layers: WholeNumber = 0
    """Number of these layers that attend to the last `sliding_window` tokens only."""
    intermediate: Count | None = None
    """Width of their feed-forward blocks; None: the model's own."""


class NgramEmbedding(Spec):
    """Tables of embeddings looked up by the last tokens (Qwen3.8-Flash-Next, DeepSeek-V4.1)."""

    rows: Count
    width: Count
    bits: Positive | None = None
    """Stored bits per number, with scales; None: those of the token embedding."""
    layers: WholeNumber = 0
    """Number of layers that look up rows and project them into keys, one for each residual stream, and a value."""
    rows_per_token: WholeNumber = 0
    """Number of rows that each of these layers looks up for a token."""


class Moe(Spec):
    """Dimensions of a mixture of experts."""

    experts: Count
    experts_per_token: Count
    moe_intermediate: Count
    shared_experts: WholeNumber = 0
    """Number of experts that process every token; together one feed-forward block of `shared_experts *
    moe_intermediate`."""
    shared_expert_gate: bool = False
    """True if the output of the shared experts has a gate: one column next to the router (Qwen2-MoE and later)."""
    latent: WholeNumber = 0
    """Width that routed experts read and write, between a down- and an up-projection (Kimi-K3); 0: the model's own."""
    dense_layers: WholeNumber = 0
    """Number of leading feed-forward layers with an ordinary block instead of experts."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(
                Message(
                    "experts_per_token is {experts_per_token}, but there are only {experts} experts",
                    self.experts_per_token,
                    self.experts,
                )
            )
        return self


class Model(Spec):
    """Language model, with the dimensions of its config, from which parameters are counted."""

    kind: Literal["language"] = "language"
    id: str
    name: str
    aliases: tuple[str, ...] = ()
    hf_id: str = ""
    family: str = ""
    """Architecture family: groups sizes and tunings of one architecture (used to group validation results)."""
    dimensions: Sourced
    """Source of the dimensions below."""
    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    value_head_dim: Count | None = None
    """Width of a head's value if it differs from the key's (MiMo-V2); not used with latent attention."""
    vocab: Count
    max_context: Count
    native_dtype: Literal["bfloat16", "float16", "float8", "mxfp4"] = "bfloat16"
    native_quantization: str = ""
    """Id of the published weights' format if `native_dtype` does not determine it; empty: it does."""
    published_nvfp4: str = ""
    """Id of the format of the published NVFP4 checkpoint, as used in benchmark tables; empty: nvfp4 in all linear
    layers."""
    gated_mlp: bool = True
    """True if the feed-forward block is gated (SwiGLU and similar): three matrices instead of two."""
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    """True if each query and key head has a norm."""
    qk_norm_over_heads: bool = False
    """True if those norms are over all heads (MiniMax-M2), so that tensor-parallel ranks add up their squares."""
    linear_bias: bool = False
    """True if every linear layer has a bias, not only query, key and value."""
    norm_bias: bool = False
    """True if norms are LayerNorm with a shift instead of RMSNorm."""
    norms_per_layer: Count = 2
    learned_positions: WholeNumber = 0
    """Rows of a learned position embedding (OPT, GPT-3)."""
    per_layer_embedding: WholeNumber = 0
    """Width of the token embedding that every layer looks up for itself (Gemma 4 E2B and E4B); 0: none."""
    ngram_embedding: NgramEmbedding | None = None
    shared_caches: SharedCaches | None = None
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: Count | None = None
    sliding_window_layers: WholeNumber = 0
    """Number of layers that attend to the last `sliding_window` tokens only."""
    whole_heads: Heads | None = None
    """Heads of the layers that attend to all tokens, if they differ from layers with a window (Gemma 4); None: equal.
    """
    linear_attention_layers: WholeNumber = 0
    """Number of layers whose state does not grow with the context."""
    linear_attention: LinearAttention | None = None
    """Dimensions of the linear attention layers; None: treated like the other layers."""
    layers_without_feed_forward: WholeNumber = 0
    """Number of layers without a feed-forward block, in stacks of single blocks (Nemotron-H); `layers` then counts
    attention and state layers only."""
    compressed: CompressedAttention | None = None
    indexer: Indexer | None = None
    """Indexer that selects the tokens that sparse attention reads."""
    attention_sinks: bool = False
    """True if every head has a learned attention sink, a score that belongs to no token (gpt-oss)."""
    attention_output_gate: bool = False
    """True if the output of full attention has a gate as wide as the queries."""
    params_quoted: Value | None = None
    params_active_quoted: Value | None = None

    @model_validator(mode="after")
    def _enough_layers(self) -> Self:
        if self.cached_layers < 1:
            raise ValueError(
                Message(
                    "no layer keeps a KV cache: linear_attention_layers is {linear_attention_layers}",
                    self.linear_attention_layers,
                )
            )
        if self.sliding_window_layers > self.cached_layers:
            raise ValueError(
                Message(
                    "sliding_window_layers is {sliding_window_layers}, but only {cached_layers} layers keep a KV cache",
                    self.sliding_window_layers,
                    self.cached_layers,
                )
            )
        if (shared := self.shared_caches) is not None:
            windowed, layers = shared.windowed_layers, shared.layers
            if layers >= self.cached_layers or windowed > min(layers, self.sliding_window_layers):
                raise ValueError(
                    Message(
                        "shared_caches: {layers} layers, {windowed} of them with a window, of {cached} with attention",
                        layers,
                        windowed,
                        self.cached_layers,
                    )
                )
        if self.expert_layers < 0 and self.moe is not None:
            raise ValueError(
                Message(
                    "dense_layers is {dense_layers}, but only {feed_forward_layers} layers have a feed-forward block",
                    self.moe.dense_layers,
                    self.feed_forward_layers,
                )
            )
        return self

    @property
    def cached_layers(self) -> int:
        """Number of layers with attention heads, which keep a KV cache."""
        beside = self.linear_attention is not None and self.linear_attention.beside_heads
        return self.layers if beside else self.layers - self.linear_attention_layers

    @property
    def stored_layers(self) -> int:
        """Number of layers that store keys and values: those with attention heads that share no cache."""
        return self.cached_layers - (self.shared_caches.layers if self.shared_caches else 0)

    @property
    def stored_window_layers(self) -> int:
        """Number of layers with a sliding window that store keys and values."""
        return self.sliding_window_layers - (self.shared_caches.windowed_layers if self.shared_caches else 0)

    @property
    def expert_layers(self) -> int:
        """Number of layers with routed experts."""
        return 0 if self.moe is None else self.feed_forward_layers - self.moe.dense_layers

    @property
    def feed_forward_layers(self) -> int:
        """Number of layers with a feed-forward block."""
        return self.layers - self.layers_without_feed_forward

    def attends_by(self, whole: bool = False) -> Heads:
        """Return the heads of a layer that attends to all tokens (*whole*), or of a layer with a window.

        Both are equal unless the model sets `whole_heads`.
        """
        if whole and self.whole_heads is not None:
            return self.whole_heads
        return Heads(
            heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, value_head_dim=self.value_head_dim
        )


CONVOLUTION_ROWS, CONVOLUTION_BYTES = 3, 2
"""Number of last inputs kept by the convolution of width 4 before a linear layer, and bytes per number."""
INDEX_SCALE_BYTES = 4
"""Size of the 32-bit scale of an 8-bit indexer key [bytes]."""


class QuantizationScale(NamedTuple):
    """Scale of *bytes* bytes shared by *numbers* numbers stored in 8 bits."""

    numbers: int
    bytes: int


LATENT_SCALE = QuantizationScale(128, 4)
"""Scale of DeepSeek-V3.2's latents."""
ENTRY_SCALE = QuantizationScale(64, 1)
"""Scale of DeepSeek-V4's entries: 7 scales for 448 numbers, padded to 8 bytes."""


def kv_elements_per_token_layer(model: Model, whole: bool = False) -> int:
    """Return the numbers that one token stores in one attention layer's cache.

    The count covers all KV heads; with MLA, the latent and the rope key; with compressed attention, one entry, which is
    key and value at once.

    Parameters
    ----------
    model
        The language model.
    whole
        Whether the layer attends to all tokens, in models where these layers have different heads.

    """
    if model.mla is not None:
        return model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    if model.compressed is not None:
        return model.head_dim
    by = model.attends_by(whole)
    return by.kv_heads * (by.head_dim + by.value_dim)


def kv_bytes_per_token_layer(model: Model, element_bytes: float = 2, whole: bool = False) -> float:
    """Return the bytes that one token stores in one attention layer's cache.

    With 8-bit elements, sparse attention stores latents and entries in 8 bits with their scales and the rope part at 16
    bits: 656 bytes per token of DeepSeek-V3.2, 584 per entry of V4 (vLLM's fp8_ds_mla). *whole*: see
    `kv_elements_per_token_layer`.
    """
    if element_bytes == 1 and model.indexer is not None and model.indexer.of_latents:
        if model.mla is not None:
            numbers, exact, scale = model.mla.kv_lora_rank, model.mla.qk_rope_head_dim, LATENT_SCALE
            return numbers + numbers / scale.numbers * scale.bytes + 2 * exact
        if model.compressed is not None:
            numbers, exact, scale = model.head_dim, model.compressed.rope_head_dim, ENTRY_SCALE
            return (numbers - exact) + (numbers / scale.numbers) * scale.bytes + 2 * exact
    return kv_elements_per_token_layer(model, whole) * element_bytes


def kv_share(model: Model, tensor_parallel_size: int, whole: bool = False) -> float:
    """Return the fraction of a layer's cache that one rank stores.

    KV heads are split over the ranks up to their number; latents are replicated on every rank.
    """
    kv_heads = model.attends_by(whole).kv_heads
    return 1.0 if model.mla is not None else max(1, kv_heads // tensor_parallel_size) / kv_heads


def entries_per_token(model: Model) -> float:
    """Return the cache entries of all layers per token of a long context, without compressed attention's windows."""
    if (compressed := model.compressed) is not None:
        coarse = compressed.coarse_layers / compressed.coarse_ratio
        return compressed.stored_fine_layers / compressed.fine_ratio + coarse + compressed.whole_sources
    return model.stored_layers


def index_keys_per_token(model: Model) -> tuple[float, float]:
    """Return the index keys of all layers per token (stored, read by a query), in units of `index_key_bytes`."""
    if (indexer := model.indexer) is None:
        return 0.0, 0.0
    compressed = model.compressed
    if compressed is None or compressed.overlapping:
        return float(indexer.indexing_layers), float(indexer.indexing_layers)
    fine = (indexer.indexing_layers - compressed.whole_indexing_layers) / compressed.fine_ratio
    return entries_per_token(model), fine + compressed.whole_indexing_layers


def index_key_bytes(model: Model) -> float:
    """Return the bytes per token of one indexer's keys, which every rank stores whole; 0 without an indexer."""
    indexer = model.indexer
    if indexer is None:
        return 0.0
    scale = INDEX_SCALE_BYTES if indexer.key_bits == BITS_PER_BYTE else 0
    return (indexer.head_dim * indexer.key_bits / BITS_PER_BYTE + scale) / indexer.tokens_per_key


def kv_bytes_per_token(model: Model, element_bytes: float = 2) -> float:
    """Return the bytes per token in the cache of a single GPU, over all layers whose cache grows or slides."""
    cached = kv_bytes_per_token_layer(model, element_bytes) * entries_per_token(model)
    if model.whole_heads is not None:
        layers = model.stored_layers - model.stored_window_layers
        more = [kv_bytes_per_token_layer(model, element_bytes, whole) for whole in (True, False)]
        cached += layers * (more[0] - more[1])
    return cached + index_key_bytes(model) * index_keys_per_token(model)[0]


GATED_CONVOLUTION_ROWS = 2
"""Earlier inputs that a gated convolution keeps (`conv_L_cache` of LFM2, less one)."""


def state_bytes(model: Model) -> int:
    """Return the bytes of state and convolution of one layer for one sequence, all heads; 0 without such layers."""
    linear = model.linear_attention
    if linear is None:
        return 0
    values = linear.value_heads * linear.value_head_dim
    inputs = 2 * linear.key_heads * linear.key_head_dim + values
    if linear.rule == "convolution":
        return values * GATED_CONVOLUTION_ROWS * CONVOLUTION_BYTES
    return (
        values * linear.key_head_dim * linear.state_bits // BITS_PER_BYTE
        + inputs * CONVOLUTION_ROWS * CONVOLUTION_BYTES
    )


Role = Literal["embedding", "lm_head", "attention", "mlp", "shared_expert", "expert", "router", "vector"]
Split = Literal["outputs", "inputs", "kv_heads", "vocab", "none"]


COMPRESSOR_WIDTHS = 4
"""Multiple of an entry's width that a compressor with overlap computes for each token."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Equal weight matrices of a model, `inputs` x `outputs` parameters each.

    Each layer from `first_layer` up to, but excluding, `last_layer` has `per_layer` of them; both are 0 for matrices
    outside the layers (embedding, LM head). `split` is the dimension that tensor parallelism divides: outputs (column
    parallel), inputs (row parallel), KV heads (replicated beyond their number), the vocabulary, or none.
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
    """Number of parts of a split by KV heads; 0: the model's number of KV heads."""
    stored_bits: float | None = None
    """Stored bits per parameter in any format; None: those of the format."""

    @property
    def count(self) -> int:
        """Number of such matrices in the whole model."""
        return self.per_layer * (self.last_layer - self.first_layer if self.last_layer else 1)

    @property
    def params(self) -> int:
        """Parameters of all such matrices together."""
        return self.inputs * self.outputs * self.count


@lru_cache(maxsize=64)
def matrices(model: Model) -> tuple[Matrix, ...]:
    """Return all weights of *model* as matrices, equal ones grouped; biases and norms are `vector` rows."""
    found = [Matrix("embed_tokens", "embedding", model.vocab, model.hidden, "vocab"), *_attention(model)]
    if model.learned_positions:
        found.append(Matrix("embed_positions", "embedding", model.learned_positions, model.hidden, "none"))
    found += _lookups(model)
    moe = model.moe
    sparse_from = model.layers - model.expert_layers
    shared = model.shared_caches
    wide_from = model.layers - shared.layers if shared and shared.intermediate else sparse_from
    if wide_from > model.layers_without_feed_forward:
        found += _feed_forward(model, "mlp", model.intermediate, (model.layers_without_feed_forward, wide_from))
    if shared and shared.intermediate:
        found += _feed_forward(model, "mlp", shared.intermediate, (wide_from, sparse_from))
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


def _lookups(model: Model) -> list[Matrix]:
    """Return the tables besides the token embedding, and the products that bring per-layer embeddings to the layers."""
    found = []
    if (ngrams := model.ngram_embedding) is not None:
        found.append(Matrix("embed_ngrams", "embedding", ngrams.rows, ngrams.width, "outputs", stored_bits=ngrams.bits))
        if ngrams.layers and model.compressed is not None:
            keys_and_value = (model.compressed.streams + 1) * model.hidden
            rows = ngrams.rows_per_token * ngrams.width
            found.append(Matrix("ngram_proj", "attention", rows, keys_and_value, "outputs", 0, ngrams.layers))
    if width := model.per_layer_embedding:
        every, span = model.layers * width, (0, model.layers)
        found.append(Matrix("embed_tokens_per_layer", "embedding", model.vocab, every, "outputs"))
        found.append(Matrix("per_layer_model_proj", "router", model.hidden, every, "none"))
        found.append(Matrix("per_layer_gate", "router", model.hidden, width, "none", *span))
        found.append(Matrix("per_layer_proj", "router", width, model.hidden, "none", *span))
    return found


def _attention(model: Model) -> list[Matrix]:
    chosen = [] if model.indexer is None else _indexer(model, model.indexer)
    states = [] if model.linear_attention is None else _linear_attention(model, model.linear_attention)
    if model.compressed is not None:
        heads = _compressed_attention(model, model.compressed)
    else:
        heads = _whole_attention(model) if model.mla is None else _latent_attention(model, model.mla)
    return [*chosen, *states, *heads]


def _span_of_heads(model: Model) -> tuple[int, int]:
    """Return the range of layers with heads.

    Layers with states and layers with heads alternate; only their numbers matter, so those with states are placed
    first.
    """
    return (model.layers - model.cached_layers if model.linear_attention is not None else 0, model.layers)


def _whole_attention(model: Model) -> list[Matrix]:
    span = _span_of_heads(model)
    if model.whole_heads is None or not model.sliding_window_layers:
        return _grouped_heads(model, model.attends_by(whole=True), span, model.stored_layers)
    windows_end = span[0] + model.sliding_window_layers
    near = _grouped_heads(model, model.attends_by(), (span[0], windows_end), model.stored_window_layers)
    stored = model.stored_layers - model.stored_window_layers
    return near + _grouped_heads(model, model.whole_heads, (windows_end, span[1]), stored)


def _grouped_heads(model: Model, by: Heads, span: tuple[int, int], stored_layers: int) -> list[Matrix]:
    """Return the matrices of layers in *span* with heads *by*; *stored_layers* of them have keys and values."""
    queries, answers = by.heads * by.head_dim, by.heads * by.value_dim
    stored, width = ("k_proj", by.head_dim) if by.keys_are_values else ("kv_proj", by.head_dim + by.value_dim)
    gates = 2 if model.attention_output_gate else 1
    found = [
        Matrix("q_proj", "attention", model.hidden, gates * queries, "outputs", *span),
        Matrix("o_proj", "attention", answers, model.hidden, "inputs", *span),
    ]
    if stored_layers:
        own = (span[0], span[0] + stored_layers)
        found.insert(
            1, Matrix(stored, "attention", model.hidden, by.kv_heads * width, "kv_heads", *own, 1, by.kv_heads)
        )
    if model.qkv_bias or model.linear_bias:
        found.append(Matrix("qkv_bias", "vector", 1, queries + by.kv_heads * width, "none", *span))
    if model.linear_bias:
        found.append(Matrix("o_bias", "vector", 1, model.hidden, "none", *span))
    if model.qk_norm:
        found.append(Matrix("qk_norm", "vector", 1, 2 * by.head_dim, "none", *span))
    return found


def _linear_attention(model: Model, linear: LinearAttention) -> list[Matrix]:
    """Return the matrices of linear attention layers.

    Gated DeltaNet (arXiv 2412.06464): queries, keys, values, output gate, two scalars per value head. Mamba-2
    (arXiv 2405.21060): one scalar. Kimi Delta Attention (arXiv 2510.26692): one scalar per head, and a decay per key
    channel, by default through a low-rank product of the width of a key. LFM2: two gates and the input.
    """
    keys, values = linear.key_heads * linear.key_head_dim, linear.value_heads * linear.value_head_dim
    span = (0, model.linear_attention_layers)
    out = Matrix("linear_o_proj", "attention", values, model.hidden, "inputs", *span)
    if linear.rule == "convolution":
        return [Matrix("linear_qkvz_proj", "attention", model.hidden, 2 * keys + values, "outputs", *span), out]
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
    """Return the matrices of an indexer: queries, one key, and for DeepSeek a weight per head.

    DeepSeek-V3.2 report; MiniMax, arXiv 2606.13392.
    """
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
    """Return the matrices of latent attention; every rank stores the down-projections (arXiv 2405.04434, 2.1)."""
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
    """Return the matrices of DeepSeek-V4's compressed attention (its config and code).

    Queries through a latent, one entry per token, compressors, outputs by groups. A compressor has a value and a weight
    for each number of an entry; with overlapping entries, both twice.
    """
    span, fine, coarse = (0, model.layers), (0, compressed.stored_fine_layers), (0, compressed.coarse_layers)
    queries, groups = model.heads * model.head_dim, compressed.o_groups
    found = [
        Matrix("q_a_proj", "attention", model.hidden, compressed.q_lora_rank, "none", *span),
        Matrix("q_b_proj", "attention", compressed.q_lora_rank, queries, "outputs", *span),
        Matrix("kv_proj", "attention", model.hidden, model.head_dim, "none", *span),
        Matrix("o_a_proj", "attention", queries // groups, compressed.o_lora_rank, "outputs", *span, groups),
        Matrix("o_b_proj", "attention", groups * compressed.o_lora_rank, model.hidden, "inputs", *span),
    ]
    if compressed.stored_fine_layers:
        width = COMPRESSOR_WIDTHS // (1 if compressed.overlapping else 2) * model.head_dim
        found.append(Matrix("fine_compressor", "router", model.hidden, width, "none", *fine))
    if compressed.whole_sources:
        whole = (0, compressed.whole_sources)
        found.append(Matrix("whole_compressor", "router", model.hidden, model.head_dim, "none", *whole))
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
    """Return the number of parameters, with embeddings, biases and norms, without multi-token-prediction layers."""
    return sum(matrix.params for matrix in matrices(model))


def params_active(model: Model) -> int:
    """Return the number of parameters that one token uses, including the whole input embedding.

    Of tables of n-grams and of embeddings per layer a token uses a few rows: they are left out.
    """
    used = params_total(model) - sum(table.params for table in _lookups(model) if table.role == "embedding")
    if model.moe is None:
        return used
    idle = 1 - model.moe.experts_per_token / model.moe.experts
    routed = sum(matrix.params for matrix in matrices(model) if matrix.role == "expert" or matrix.name == "expert_bias")
    return used - round(routed * idle)


def used_fraction(model: Model, matrix: Matrix) -> float:
    """Return the fraction of *matrix* that one token uses: of routed experts those chosen for it, of all others 1."""
    moe = model.moe
    return moe.experts_per_token / moe.experts if matrix.role == "expert" and moe is not None else 1.0


def activations_per_token(model: Model) -> float:
    """Return the numbers read and written by the matrix products of all layers per token, without the LM head."""
    passed = 0.0
    for matrix in matrices(model):
        if matrix.role in ("attention", "mlp", "shared_expert", "expert"):
            passed += (matrix.inputs + matrix.outputs) * matrix.count * used_fraction(model, matrix)
    return passed


class ImageGenerator(Spec):
    """Dependence of a diffusion model's work on denoiser steps and resolution."""

    resolution: Count
    """Width and height for which the model's figures hold [pixels]."""
    steps: Count
    """Default number of denoiser steps per image."""
    calls_per_step: Count
    """Denoiser calls per step, in one batch: 2 with classifier-free guidance."""
    attention_flops_per_call: Value
    """Part of a call's arithmetic that grows with the square of the number of pixels [FLOP]."""
    decoder_flops: Value
    """Arithmetic to decode the latents of one image to pixels [FLOP]."""
    decoder_traffic_elements: Value
    """Numbers that the decoder reads and writes per image besides its weights."""


class OtherModel(Spec):
    """Network that processes each sample in one pass: an image classifier, an encoder, an image generator."""

    kind: Literal["other"]
    id: str
    name: str
    aliases: tuple[str, ...] = ()
    family: str
    input: str
    """Description of one sample."""
    sample_unit: str
    """Noun for one sample in reports: image, sequence, volume, ..."""
    params: Value | None = None
    """Number of weights that one pass reads."""
    flops_per_sample: Value | None = None
    """Arithmetic of one inference pass, two operations per multiply-add [FLOP]; for an image generator, of one denoiser
    call."""
    traffic_elements_per_sample: Value | None = None
    """Numbers that one pass reads and writes per sample besides the weights, summed over layers."""
    widest_elements_per_sample: Value | None = None
    """Numbers read and written per sample by the layer with the most of them, which are in memory at the same time."""
    table_elements: Value | None = None
    """Numbers in embedding tables, of which a sample reads a few; None: no tables."""
    kernels: Value | None = None
    """Number of kernel launches per pass."""
    passes_per_sample: Value | None = None
    """Number of sequential passes per sample; None: 1."""
    generator: ImageGenerator | None = None


AnyModel = Annotated[Model | OtherModel, Tagged("kind")]

__all__ = [
    "AnyModel",
    "CompressedAttention",
    "Heads",
    "ImageGenerator",
    "Indexer",
    "LinearAttention",
    "Matrix",
    "Mla",
    "Model",
    "Moe",
    "NgramEmbedding",
    "OtherModel",
    "Role",
    "SharedCaches",
    "activations_per_token",
    "entries_per_token",
    "index_key_bytes",
    "index_keys_per_token",
    "kv_bytes_per_token",
    "kv_bytes_per_token_layer",
    "kv_elements_per_token_layer",
    "kv_share",
    "matrices",
    "params_active",
    "params_total",
    "state_bytes",
]
