"""Readers of models of 2026 that put a gate on what attention yields. A gate of one number a head is left out: it is a
thousandth of a layer.
"""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields
from sim.catalogue.entries.hf_config.mixed import delta_rule
from sim.catalogue.entries.hf_config.plain import deepseek, latent_heads, moe, qwen3, sliding

SHORT_CONVOLUTION = 4


def _afmoe(config: Config) -> Fields:
    """Arcee Trinity: norms before and behind each block, most layers with a window."""
    every = config.whole("global_attn_every_n_layers", 4) or 4
    sizes = {"shared_experts": config.whole("num_shared_experts", 0)}
    sizes |= {"dense_layers": config.whole("num_dense_layers", 0)}
    experts = moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
    return (
        qwen3(config)
        | _GATE
        | {"norms_per_layer": 4}
        | experts
        | sliding(config, lambda layers: layers - layers // every)
    )


def _laguna(config: Config) -> Fields:
    """Poolside Laguna: layers with a window have more query heads than those that see all tokens."""
    kinds = config.get("layer_types", list, [])
    heads = config.get("num_attention_heads_per_layer", list, [])
    near = {kind: count for kind, count in zip(kinds, heads, strict=False) if isinstance(count, int)}
    inner = config.count("moe_intermediate_size")
    sizes = {"shared_experts": config.whole("shared_expert_intermediate_size", 0) // inner}
    sizes |= {"dense_layers": config.get("mlp_layer_types", list, ["dense"]).count("dense")}
    whole = near.get("full_attention", config.count("num_attention_heads"))
    windowed = near.get("sliding_attention", whole)
    fields = qwen3(Config(config.path, config.keys | {"num_attention_heads": windowed}))
    fields |= moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
    fields |= _GATE if config.keys.get("gating") == "per-element" else {}
    if window := sliding(config, lambda _: 0):
        by = {"heads": whole, "kv_heads": fields["kv_heads"], "head_dim": fields["head_dim"]}
        fields |= window | ({"whole_heads": by} if windowed != whole else {})
    return fields


def _muse_glimmer(config: Config) -> Fields:
    gate = _GATE if config.flag("use_attn_output_gate", True) else {}
    return qwen3(config) | gate | {"norms_per_layer": 4} | sliding(config, lambda layers: layers - layers // 4)


def _ling3(config: Config) -> Fields:
    """Kimi Delta Attention, and latent attention in the last layer of every group."""
    if config.whole("short_conv_kernel_size", 0) != SHORT_CONVOLUTION:
        raise config.no_step_time("short_conv_kernel_size", "lightning attention")
    layers, group = config.count("num_hidden_layers"), config.count("layer_group_size")
    heads, size = config.count("num_attention_heads"), config.count("head_dim")
    whole, inner = config.flag("no_kda_lora"), config.count("moe_intermediate_size")
    shared = max(1, config.whole("moe_shared_expert_intermediate_size", inner) // inner)
    sizes = {"shared_experts": shared * config.whole("num_shared_experts", 0)}
    sizes |= {"dense_layers": config.whole("first_k_dense_replace", 0)}
    linear = {"rule": "kda", "key_heads": heads, "value_heads": heads, "key_head_dim": size, "value_head_dim": size}
    return (
        latent_heads(config)
        | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
        | {"attention_output_gate": config.keys.get("gated_attention_proj_granularity_type") == "element_wise"}
        | {"linear_attention_layers": layers - -(-layers // group)}
        | {"linear_attention": linear | {"low_rank_gate": not whole, "whole_decay": whole}}
    )


def _gigachat35(config: Config) -> Fields:
    """Latent attention in some layers, the gated delta rule in the others. The gates of its norms, 16 wide, are left
    out.
    """
    kinds, whole = config.get("layer_types", list, []), config.get("full_attention_layers", list, [])
    layers = config.count("num_hidden_layers")
    fields = deepseek(config) | {"attention_output_gate": config.flag("gated_attention", True)}
    fields |= {"norms_per_layer": 4 if config.get("layernorm_type", str, "pre_post") == "pre_post" else 2}
    if "linear_attention_type" in config.keys and config.keys["linear_attention_type"] is None:
        return fields
    linear = kinds.count("linear_attention") if kinds else layers - len(whole)
    return fields | {"linear_attention_layers": linear, "linear_attention": delta_rule(config)}


_GATE = {"attention_output_gate": True}

GATED: dict[str, Callable[[Config], Fields]] = {
    "afmoe": _afmoe,
    "bailing_hybrid": _ling3,
    "gigachat3_5": _gigachat35,
    "laguna": _laguna,
    "muse_glimmer": _muse_glimmer,
    "muse_glimmer_text": _muse_glimmer,
}
"""By `model_type`."""
