"""A language model's dimensions: data/models/<id>.yaml, or a Hugging Face config.json."""

from typing import Literal, Self

from pydantic import model_validator

from sim.catalogue.entries.model.attention import CompressedAttention, Heads, Indexer, LinearAttention, Mla
from sim.catalogue.value import Sourced, Value
from sim.spec import Count, Spec, WholeNumber


class Moe(Spec):
    """Mixture of experts."""

    experts: Count
    experts_per_token: Count
    moe_intermediate: Count
    shared_experts: WholeNumber = 0
    """Experts that see every token; together one feed-forward block of `shared_experts * moe_intermediate`."""
    shared_expert_gate: bool = False
    """A gate on what the shared experts answer: one column beside the router (Qwen2-MoE and later)."""
    latent: WholeNumber = 0
    """Width that routed experts read and write, between a projection down and one up; 0: the model's own (Kimi-K3)."""
    dense_layers: WholeNumber = 0
    """Leading layers, of those with a feed-forward block, where it is an ordinary one."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(f"{self.experts_per_token} of {self.experts} experts for each token")
        return self


class Model(Spec):
    """A language model. Dimensions as in its config; parameters are counted from them."""

    kind: Literal["language"] = "language"
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
    value_head_dim: Count | None = None
    """Of values, where they are not as wide as keys (MiMo-V2); without latents."""
    vocab: Count
    max_context: Count
    native_dtype: Literal["bfloat16", "float16", "float8", "mxfp4"] = "bfloat16"
    native_quantization: str = ""
    """Id of the format that the published weights have, where `native_dtype` does not tell it; empty: it does."""
    published_nvfp4: str = ""
    """Id of the format that the published checkpoint called NVFP4 has, which tables of runs mean; empty: nvfp4 in all
    linear layers."""
    gated_mlp: bool = True
    """SwiGLU-like: three matrices instead of two."""
    tie_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    """A norm over each query and key head."""
    linear_bias: bool = False
    """Every linear layer has a bias, not only query, key and value."""
    norm_bias: bool = False
    """LayerNorm with a shift instead of RMSNorm."""
    norms_per_layer: Count = 2
    learned_positions: WholeNumber = 0
    """Rows of a learned position embedding (OPT, GPT-3)."""
    moe: Moe | None = None
    mla: Mla | None = None
    sliding_window: Count | None = None
    sliding_window_layers: WholeNumber = 0
    """Layers that see only the last `sliding_window` tokens."""
    whole_heads: Heads | None = None
    """Heads of the layers that see all tokens, where those with a window have others (Gemma 4); None: the same."""
    linear_attention_layers: WholeNumber = 0
    """Layers whose state does not grow with the context."""
    linear_attention: LinearAttention | None = None
    """Dimensions of those layers; left out: taken as those of the others."""
    layers_without_feed_forward: WholeNumber = 0
    """Of stacks of single blocks (Nemotron-H): there `layers` are those that attend or have a state."""
    compressed: CompressedAttention | None = None
    indexer: Indexer | None = None
    """Chooses the tokens that sparse attention reads."""
    attention_sinks: bool = False
    """Every head has a learned score that no token gets (gpt-oss)."""
    attention_output_gate: bool = False
    """A gate as wide as the queries on the output of (full) attention."""
    params_quoted: Value | None = None
    params_active_quoted: Value | None = None

    @model_validator(mode="after")
    def _enough_layers(self) -> Self:
        if self.cached_layers < 1:
            raise ValueError(f"no layer attends, and none keeps a cache: {self.linear_attention_layers} have states")
        if self.sliding_window_layers > self.cached_layers:
            raise ValueError(f"{self.sliding_window_layers} layers with a window of {self.cached_layers}")
        if self.expert_layers < 0 and self.moe is not None:
            raise ValueError(f"{self.moe.dense_layers} dense layers of {self.feed_forward_layers}")
        return self

    @property
    def cached_layers(self) -> int:
        """Layers with heads, which keep a cache."""
        beside = self.linear_attention is not None and self.linear_attention.beside_heads
        return self.layers if beside else self.layers - self.linear_attention_layers

    @property
    def expert_layers(self) -> int:
        """Layers with routed experts."""
        return 0 if self.moe is None else self.feed_forward_layers - self.moe.dense_layers

    @property
    def feed_forward_layers(self) -> int:
        """Layers with a feed-forward block."""
        return self.layers - self.layers_without_feed_forward

    def attends_by(self, whole: bool = False) -> Heads:
        """Heads of a layer that sees all tokens (*whole*), or of one with a window where those have others."""
        if whole and self.whole_heads is not None:
            return self.whole_heads
        return Heads(
            heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim, value_head_dim=self.value_head_dim
        )
