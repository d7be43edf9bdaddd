"""Kinds of attention other than heads that all look at the whole context."""

from typing import Literal

from sim.spec import Count, Spec, WholeNumber


class Heads(Spec):
    """Query heads that share keys and values in groups."""

    heads: Count
    kv_heads: Count
    head_dim: Count
    value_head_dim: Count | None = None
    """None: as wide as keys."""
    keys_are_values: bool = False
    """Keys and values are one projection, normed apart: both stand in the cache (Gemma 4)."""

    @property
    def value_dim(self) -> int:
        """Width of a head's value."""
        return self.value_head_dim or self.head_dim


class Mla(Spec):
    """Multi-head latent attention (DeepSeek)."""

    q_lora_rank: Count | None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: Count
    v_head_dim: Count


class LinearAttention(Spec):
    """A state per value head instead of a cache."""

    rule: Literal["gated_delta", "kda", "mamba2"] = "gated_delta"
    """Gated DeltaNet (Qwen3-Next, arXiv 2412.06464), Kimi Delta Attention with a gate per channel (2510.26692), or
    Mamba-2 (2405.21060): its groups are the key heads, its states' size is that of a key.
    """
    key_heads: Count
    value_heads: Count
    key_head_dim: Count
    value_head_dim: Count
    low_rank_gate: bool = False
    """KDA's output gate goes through the size of a key, as its decay does (Kimi-Linear)."""
    whole_decay: bool = False
    """KDA's decay does not (Ling 3)."""
    state_bits: Literal[16, 32] = 32
    """Of a number in the state: `mamba_ssm_dtype` of the config, else the model's own dtype."""
    beside_heads: bool = False
    """The same layers have heads and a cache, too (Falcon-H1)."""


class CompressedAttention(Spec):
    """One KV head whose entries stand for several tokens, and a window of single ones (DeepSeek-V4's CSA and HCA)."""

    q_lora_rank: Count
    o_lora_rank: Count
    o_groups: Count
    """Groups of heads that are projected down apart, to `o_lora_rank` each."""
    window: Count
    """Last tokens that every layer attends to one by one."""
    rope_head_dim: Count = 64
    """Numbers of an entry that carry its position; they stay at 16 bit where the others are stored in 8."""
    fine_layers: WholeNumber
    """Layers with an entry for `fine_ratio` tokens, of which the indexer chooses (CSA)."""
    coarse_layers: WholeNumber
    """Layers with an entry for `coarse_ratio` tokens, all of which are read (HCA); those left have the window only."""
    fine_ratio: Count = 4
    coarse_ratio: Count = 128
    streams: Count = 1
    """Copies of the residual that hyper-connections mix around each block."""


class Indexer(Spec):
    """Scores all tokens before attention reads the best of them: DeepSeek Sparse Attention, MiniMax M3."""

    heads: Count
    head_dim: Count
    best_tokens: Count
    """That a query attends to."""
    sparse_layers: Count
    """Layers that attend to the best tokens only; the others attend to all."""
    indexing_layers: Count
    """Of those, layers that score tokens; each other one takes what a layer before it has chosen (GLM-5.2)."""
    of_latents: bool = False
    """Queries come from the latent of MLA's queries, and every rank scores for all heads; else heads are split."""
    key_bits: Literal[8, 16] = 8
    """Of a number in the cache of keys; with 8 bits each key has a 32-bit scale."""
    tokens_per_key: Count = 1
    """Tokens that share a key, where they share an entry of the cache (DeepSeek-V4)."""
    block_tokens: Count = 1
    """Tokens that are chosen together, by the best score among them."""
