"""Readers of architectures in which layers attend in more than one way, or to a chosen part of the context.

A part that has no step time is either taken as something that costs at least as much, with a `note` that says so, or
the model is refused with the part named.
"""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields
from sim.catalogue.entries.hf_config.hybrid import SHORT_CONVOLUTION
from sim.catalogue.entries.hf_config.plain import (
    deepseek,
    gated_moe,
    latent_heads,
    llama,
    moe,
    qwen3,
    shared_moe,
    sliding,
)

LINEAR_INTERVAL = 4
"""Of Qwen3-Next and Qwen3.5: every fourth layer has full attention where the config lists no layer types."""
FINE, COARSE = 4, 128
"""Tokens of an entry in DeepSeek-V4: where the indexer chooses (CSA), and where all are read (HCA)."""
INDEX_HEADS, INDEX_HEAD_DIM = 64, 128
"""Of DeepSeek-V3.2, where the config leaves them out."""


def _deepseek_sparse(config: Config) -> Fields:
    """DeepSeek Sparse Attention: an indexer chooses `index_topk` tokens for every query (DeepSeek-V3.2-Exp report)."""
    layers, kinds = config.count("num_hidden_layers"), config.get("indexer_types", list, [])
    indexer = {
        "heads": config.whole("index_n_heads", INDEX_HEADS),
        "head_dim": config.whole("index_head_dim", INDEX_HEAD_DIM),
        "best_tokens": config.count("index_topk"),
        "sparse_layers": layers,
        "indexing_layers": kinds.count("full") or layers,
        "of_latents": True,
    }
    return deepseek(config) | {"indexer": indexer}


def _minimax_m3(config: Config) -> Fields:
    dense = Config(config.path, {**config.keys, "intermediate_size": config.count("dense_intermediate_size")})
    shared = config.whole("n_shared_experts", 0)
    leading = config.whole("first_k_dense_replace", config.get("moe_layer_freq", list, []).count(0))
    inner = "moe_intermediate_size" if "moe_intermediate_size" in config.keys else "intermediate_size"
    return (
        llama(dense)
        | {"qk_norm": config.flag("use_qk_norm")}
        | moe(config, "num_local_experts", inner, shared_experts=shared, dense_layers=leading)
        | _block_sparse(config)
    )


def _block_sparse(config: Config) -> Fields:
    """MiniMax Sparse Attention: the best blocks by one key of 16 bit a token (arXiv 2606.13392)."""
    keys = config.get("sparse_attention_config", dict, {})
    if not keys.get("use_sparse_attention"):
        return {}
    sparse, where = Config(config.path, keys), keys.get("sparse_attention_freq")
    block, layers = sparse.count("sparse_block_size"), config.count("num_hidden_layers")
    limited = sum(map(bool, where)) if isinstance(where, list) else layers
    return {
        "indexer": {
            "heads": sparse.count("sparse_num_index_heads"),
            "head_dim": sparse.count("sparse_index_dim"),
            "best_tokens": sparse.count("sparse_topk_blocks") * block,
            "sparse_layers": limited,
            "indexing_layers": limited,
            "key_bits": 16,
            "block_tokens": block,
        }
    }


def delta_rule(config: Config) -> Fields:
    """Heads of layers with the gated delta rule."""
    return {
        "key_heads": config.count("linear_num_key_heads"),
        "value_heads": config.count("linear_num_value_heads"),
        "key_head_dim": config.count("linear_key_head_dim"),
        "value_head_dim": config.count("linear_value_head_dim"),
        "state_bits": 32 if config.get("mamba_ssm_dtype", str, "") == "float32" else 16,
    }


def _gated_delta(config: Config) -> Fields:
    """Qwen3-Next and Qwen3.5: gated delta rule in most layers, gated full attention in the others."""
    kinds, layers = config.get("layer_types", list, []), config.count("num_hidden_layers")
    interval = config.whole("full_attention_interval", LINEAR_INTERVAL) or LINEAR_INTERVAL
    inner = config.keys.get("intermediate_size") or config.keys.get("moe_intermediate_size")
    return (
        qwen3(Config(config.path, {**config.keys, "intermediate_size": inner}))
        | {"attention_output_gate": config.flag("attn_output_gate", True), "linear_attention": delta_rule(config)}
        | {"linear_attention_layers": kinds.count("linear_attention") if kinds else layers - layers // interval}
        | (gated_moe(config) if config.whole("num_experts", 0) else {})
    )


def _gemma4(config: Config) -> Fields:
    if config.whole("hidden_size_per_layer_input", 0):
        raise config.no_step_time("hidden_size_per_layer_input", "an embedding for every layer")
    fields = llama(config, tied=True) | {"norms_per_layer": 4, "qk_norm": True} | sliding(config, lambda layers: 0)
    if fields.get("sliding_window_layers"):
        fields["whole_heads"] = {
            "heads": fields["heads"],
            "kv_heads": config.whole("num_global_key_value_heads", 0) or fields["kv_heads"],
            "head_dim": config.whole("global_head_dim", 0) or fields["head_dim"],
            "keys_are_values": config.flag("attention_k_eq_v"),
        }
    if not config.flag("enable_moe_block"):
        return fields
    shared = config.count("intermediate_size") // config.count("moe_intermediate_size")
    experts = moe(config, "num_experts", "moe_intermediate_size", "top_k_experts", shared_experts=shared)
    return fields | experts | {"note": f"the dense block beside the experts stands as {shared} shared experts"}


def _deepseek_v4(config: Config) -> Fields:
    """CSA and HCA: entries for 4 and for 128 tokens, by `compress_ratios`; one beyond the layers is the draft's."""
    layers, ratios = config.count("num_hidden_layers"), config.get("compress_ratios", list, [])
    if len(ratios) < layers or any(ratio not in (0, FINE, COARSE) for ratio in ratios) or FINE not in ratios[:layers]:
        raise config.no_step_time("compress_ratios", "attention to a context that is compressed otherwise than V4's")
    fine, coarse = (ratios[:layers].count(ratio) for ratio in (FINE, COARSE))
    compressed = {name: config.count(name) for name in ("q_lora_rank", "o_lora_rank", "o_groups")}
    compressed |= {"window": config.count("sliding_window"), "streams": config.whole("hc_mult", 1) or 1}
    compressed |= {"fine_layers": fine, "coarse_layers": coarse, "fine_ratio": FINE, "coarse_ratio": COARSE}
    indexer = {
        "heads": config.count("index_n_heads"),
        "head_dim": config.count("index_head_dim"),
        "best_tokens": config.count("index_topk") * FINE,
        "sparse_layers": fine,
        "indexing_layers": fine,
        "of_latents": True,
        "tokens_per_key": FINE,
    }
    inner = config.keys.get("intermediate_size") or config.count("moe_intermediate_size")
    plain = Config(config.path, {**config.keys, "intermediate_size": inner})
    return llama(plain) | shared_moe(config) | {"compressed": compressed, "indexer": indexer}


def _kimi_linear(config: Config) -> Fields:
    """Kimi Delta Attention in most layers, latent attention in the others (arXiv 2510.26692)."""
    linear = Config(config.path, config.get("linear_attn_config", dict, {}))
    if linear.whole("short_conv_kernel_size", SHORT_CONVOLUTION) != SHORT_CONVOLUTION:
        raise config.no_step_time("linear_attn_config", "a convolution of other width than 4")
    heads, size = linear.count("num_heads"), linear.count("head_dim")
    leading = config.whole("first_k_dense_replace", 0)
    latent, shared = config.whole("routed_expert_hidden_size", 0), config.whole("num_shared_experts", 0)
    sizes = {"latent": latent, "shared_experts": shared, "dense_layers": leading}
    return (
        latent_heads(config)
        | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_token", **sizes)
        | {"attention_output_gate": config.flag("mla_use_output_gate")}
        | {"linear_attention_layers": len(linear.get("kda_layers", list, []))}
        | {
            "linear_attention": {
                "rule": "kda",
                "key_heads": heads,
                "value_heads": heads,
                "key_head_dim": size,
                "value_head_dim": size,
                "low_rank_gate": not linear.flag("use_full_rank_gate"),
            }
        }
    )


MIXED: dict[str, Callable[[Config], Fields]] = {
    "deepseek_ref": _deepseek_v4,
    "deepseek_v32": _deepseek_sparse,
    "deepseek_v4": _deepseek_v4,
    "gemma4": _gemma4,
    "gemma4_text": _gemma4,
    "glm_moe_dsa": _deepseek_sparse,
    "kimi_linear": _kimi_linear,
    "minimax_m3": _minimax_m3,
    "minimax_m3_vl": _minimax_m3,
    "minimax_m3_vl_text": _minimax_m3,
    "qwen3_5_moe_text": _gated_delta,
    "qwen3_5_text": _gated_delta,
    "qwen3_next": _gated_delta,
}
"""By `model_type`."""
