"""A language model's dimensions: data/models/<id>.yaml, or a Hugging Face config.json."""

from typing import Literal

from sim.catalog.value import Sourced, Value
from sim.spec import Count, Spec


class Moe(Spec):
    """Mixture of experts."""

    experts: Count
    experts_per_token: Count
    moe_intermediate: Count
    shared_experts: int = 0
    dense_layers: int = 0
    """Leading layers with an ordinary feed-forward block."""


class Mla(Spec):
    """Multi-head latent attention (DeepSeek)."""

    q_lora_rank: int | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class Model(Spec):
    """Dimensions as in the model's config; parameters are counted from them."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    hf_id: str = ""
    family: str = ""
    """Groups sizes and tunings that share an architecture (validation groups by it)."""
    dimensions: Sourced
    """Where the figures below come from."""
    layers: Count
    hidden: Count
    intermediate: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    max_context: Count
    native_dtype: Literal["bfloat16", "float16", "float8", "mxfp4"] = "bfloat16"
    gated_mlp: bool = True
    """SwiGLU-like: three matrices instead of two."""
    tie_embeddings: bool = False
    qkv_bias: bool = False
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: Count | None = None
    sliding_window_layers: int = 0
    """Layers that see only the last `sliding_window` tokens."""
    linear_attention_layers: int = 0
    """Layers whose state does not grow with the context."""
    params_quoted: Value | None = None
    params_active_quoted: Value | None = None
