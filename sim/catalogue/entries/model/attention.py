"""Kinds of attention other than heads that all look at the whole context."""

from typing import Literal

from sim.spec import Count, Spec


class Mla(Spec):
    """Multi-head latent attention (DeepSeek)."""

    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class LinearAttention(Spec):
    """Gated delta rule (Qwen3-Next): a state per value head instead of a cache."""

    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    state_bits: Literal[16, 32] = 32
    """Of a number in the state: `mamba_ssm_dtype` of the config, else the model's own dtype."""
