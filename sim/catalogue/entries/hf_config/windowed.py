"""Readers of models of 2025 and 2026 whose layers with a window are listed by keys of their own, or have other heads
than those that see all tokens.
"""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields
from sim.catalogue.entries.hf_config.plain import llama, moe

IQUEST_BLOCK = ["full_attention", *["sliding_attention"] * 3]


def _step(config: Config) -> Fields:
    """Step 3.5 and 3.7: layers with a window have more query heads than those that see all tokens."""
    layers, kv_heads = config.count("num_hidden_layers"), config.count("num_attention_groups", "num_key_value_heads")
    other = Config(config.path, config.get("attention_other_setting", dict, {}))
    kinds = config.get("layer_types", list, [])[:layers]
    whole = {"heads": config.count("num_attention_heads"), "kv_heads": kv_heads, "head_dim": config.count("head_dim")}
    near = {
        "num_attention_heads": other.whole("num_attention_heads", whole["heads"]),
        "num_key_value_heads": other.whole("num_attention_groups", kv_heads),
        "head_dim": other.whole("head_dim", whole["head_dim"]),
    }
    experts = config.get("moe_layers_enum", str, "").split(",")
    dense = layers - len(experts) if experts[0] else config.whole("first_k_dense_replace", 0)
    shared = config.whole("share_expert_dim", 0) // config.count("moe_intermediate_size")
    renamed = {
        "moe_num_experts": config.count("moe_num_experts", "num_experts"),
        "moe_top_k": config.count("moe_top_k", "num_experts_per_tok"),
    }
    flat = Config(config.path, config.keys | near | renamed)
    sizes = {"shared_experts": shared, "dense_layers": dense}
    fields = (
        llama(flat) | {"qk_norm": True} | moe(flat, "moe_num_experts", "moe_intermediate_size", "moe_top_k", **sizes)
    )
    if windowed := kinds.count("sliding_attention"):
        fields |= {"sliding_window": config.count("sliding_window"), "sliding_window_layers": windowed}
        fields |= {"whole_heads": whole}
    return fields


def _mimo_v2(config: Config) -> Fields:
    """Layers with a window have KV heads of their own, and values are narrower than keys."""
    kinds, where = config.get("hybrid_layer_pattern", list, []), config.get("moe_layer_freq", list, [])
    whole = {"heads": config.count("num_attention_heads"), "kv_heads": config.count("num_key_value_heads")}
    whole |= {"head_dim": config.count("head_dim"), "value_head_dim": config.count("v_head_dim")}
    near = {
        "num_attention_heads": config.whole("swa_num_attention_heads", whole["heads"]),
        "num_key_value_heads": config.whole("swa_num_key_value_heads", whole["kv_heads"]),
        "head_dim": config.whole("swa_head_dim", whole["head_dim"]),
    }
    sizes = {"shared_experts": config.whole("n_shared_experts", 0), "dense_layers": where.count(0)}
    fields = llama(Config(config.path, config.keys | near))
    fields |= moe(config, "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
    fields["value_head_dim"] = config.whole("swa_v_head_dim", whole["value_head_dim"])
    window = {"sliding_window": config.count("sliding_window"), "sliding_window_layers": kinds.count(1)}
    return fields | (window | {"whole_heads": whole} if kinds.count(1) else {})


def _iquest(config: Config) -> Fields:
    """IQuest-Q1 and M1: a few layers, a block of layers over and over, a few more; the first feed-forward is dense."""
    if config.flag("use_over_encoding"):
        raise config.no_step_time("use_over_encoding", "embeddings of n-grams")
    if config.whole("shared_kv_num_layers", 0):
        raise config.no_step_time("shared_kv_num_layers", "attention to the cache of another layer")
    dense = config.get("mlp_only_layers", list, [0])
    fields = llama(Config(config.path, config.keys | {"intermediate_size": config.count("dense_intermediate_size")}))
    fields |= moe(config, "num_experts", "intermediate_size", "num_experts_per_tok", dense_layers=len(dense))
    if not config.flag("use_sliding_window", True) or not config.flag("use_hybrid_layers", True):
        return fields
    block = config.get("hybrid_layers_types_block", list, IQUEST_BLOCK).count("sliding_attention")
    ends = config.get("first_layers_types", list, []) + config.get("last_layers_types", list, [])
    windowed = block * config.whole("num_hybrid_layers_block", 21) + ends.count("sliding_attention")
    return fields | {"sliding_window": config.count("sliding_window"), "sliding_window_layers": windowed}


WINDOWED: dict[str, Callable[[Config], Fields]] = {
    "iquest_moe_v1_3": _iquest,
    "iquest_q1": _iquest,
    "mimo_v2_flash": _mimo_v2,
    "step3p5": _step,
    "step3p7": _step,
}
"""By `model_type`."""
