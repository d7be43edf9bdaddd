"""Readers of stacks with Mamba-2 layers (arXiv 2405.21060): Nemotron-H and 3, Granite 4 H, Bamba, Falcon-H1."""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields
from sim.catalogue.entries.hf_config.plain import llama, moe

SHORT_CONVOLUTION = 4
"""Inputs that the convolution before a layer with a state sees, in all models so far."""
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Of `hybrid_override_pattern`, a letter a block."""


def _mamba(config: Config, heads: str, size: str, groups: str, state: str, convolution: str) -> Fields:
    """Dimensions of a Mamba-2 layer by the names of their keys; states at 16 bit where the config says nothing."""
    if config.whole(convolution, SHORT_CONVOLUTION) != SHORT_CONVOLUTION:
        raise config.no_step_time(convolution, "a convolution of other width than 4")
    return {
        "linear_attention": {
            "rule": "mamba2",
            "key_heads": config.whole(groups, 1) or 1,
            "value_heads": config.count(heads),
            "key_head_dim": config.count(state),
            "value_head_dim": config.count(size),
            "state_bits": 32 if config.get("mamba_ssm_cache_dtype", str, "") == "float32" else 16,
        }
    }


def _mamba_beside_ibm(config: Config, inner: int) -> Fields:
    """With the keys of Bamba, Granite 4 and Falcon-H1; *inner* is the width of all heads together."""
    heads = config.count("mamba_n_heads")
    size = config.keys.get("mamba_d_head")
    if size is None or size == "auto":
        size = inner // heads
    named = Config(config.path, config.keys | {"mamba_d_head": size})
    return _mamba(named, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")


def _expanded(config: Config) -> int:
    return config.count("hidden_size") * (config.whole("mamba_expand", 2) or 2)


def _nemotron_h(config: Config) -> Fields:
    """Mamba-2, attention and feed-forward blocks one at a time: a layer here is one that mixes tokens, and where one
    follows, its feed-forward block.
    """
    blocks = config.get("layers_block_type", list, [])
    if not blocks:
        pattern = config.get("hybrid_override_pattern", str, "")[: config.count("num_hidden_layers")]
        blocks = [LETTERS.get(letter, letter) for letter in pattern]
    key = "layers_block_type" if "layers_block_type" in config.keys else "hybrid_override_pattern"
    states, heads, dense, sparse = (blocks.count(kind) for kind in LETTERS.values())
    if states + heads + dense + sparse != len(blocks) or not states or not heads or dense + sparse > states + heads:
        raise config.no_step_time(key, "a stack of other blocks than Mamba-2, attention and as many feed-forward ones")
    inner = config.count("intermediate_size", "moe_intermediate_size")
    stack = {"num_hidden_layers": states + heads, "intermediate_size": inner}
    stack["head_dim"] = config.count("head_dim", "attention_head_dim")
    fields = llama(Config(config.path, config.keys | stack)) | {"gated_mlp": False}
    fields |= {"linear_attention_layers": states, "layers_without_feed_forward": states + heads - dense - sparse}
    fields |= _mamba(config, "mamba_num_heads", "mamba_head_dim", "n_groups", "ssm_state_size", "conv_kernel")
    if not sparse:
        return fields
    width = config.count("moe_intermediate_size")
    shared = config.whole("moe_shared_expert_intermediate_size", 0) * config.whole("n_shared_experts", 1)
    sizes = {"shared_experts": shared // width, "latent": config.whole("moe_latent_size", 0), "dense_layers": dense}
    return fields | moe(config, "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _granite_hybrid(config: Config) -> Fields:
    """Granite 4: experts beside a shared block, or that block alone; layers are attention or Mamba-2."""
    shared = config.count("shared_intermediate_size", "intermediate_size")
    fields = llama(Config(config.path, config.keys | {"intermediate_size": shared}), tied=True)
    if states := config.get("layer_types", list, []).count("mamba"):
        fields |= {"linear_attention_layers": states} | _mamba_beside_ibm(config, _expanded(config))
    if not config.whole("num_local_experts", 0):
        return fields
    sizes = {"shared_experts": shared // config.count("intermediate_size")}
    return fields | moe(config, "num_local_experts", "intermediate_size", "num_experts_per_tok", **sizes)


def _bamba(config: Config) -> Fields:
    heads = len(config.get("attn_layer_indices", list, []))
    states = config.count("num_hidden_layers") - heads
    if not heads or states < 1:
        raise config.no_step_time("attn_layer_indices", "a stack without attention or without states")
    return llama(config) | {"linear_attention_layers": states} | _mamba_beside_ibm(config, _expanded(config))


def _falcon_h1(config: Config) -> Fields:
    """Heads and a state beside each other in every layer."""
    inner = config.whole("mamba_d_ssm", 0) or _expanded(config)
    fields = llama(config) | _mamba_beside_ibm(config, inner)
    fields["linear_attention"]["beside_heads"] = True
    return fields | {"linear_attention_layers": config.count("num_hidden_layers")}


HYBRID: dict[str, Callable[[Config], Fields]] = {
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite_hybrid,
    "nemotron_h": _nemotron_h,
}
"""By `model_type`."""
