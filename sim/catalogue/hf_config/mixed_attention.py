"""Readers of architectures that mix or change attention: layers with states, selected or compressed context, gates.

`HYBRID` reads stacks with Mamba-2 layers (arXiv 2405.21060), `MIXED` other mixtures and sparse or compressed attention,
`GATED` families with a gate on the output of attention. A part without a step time is either replaced by a part that
costs at least as much, with a `note`, or the model is refused with an error that names the part. Gates of one number
per head are ignored: such a gate is a thousandth of a layer.
"""

from collections.abc import Callable

from sim.catalogue.hf_config.config import Config, Fields
from sim.catalogue.hf_config.full_attention import (
    deepseek,
    gated_moe,
    latent_heads,
    llama,
    moe,
    qwen3,
    shared_moe,
    sliding,
)
from sim.catalogue.model import GATED_CONVOLUTION_ROWS
from sim.message import Message

SHORT_CONVOLUTION = 4
"""Width of the convolution before a layer with a state; other widths are refused."""
LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Block types by the letters of `hybrid_override_pattern`."""


def _mamba(config: Config, heads: str, size: str, groups: str, state: str, convolution: str) -> Fields:
    """Return the fields of a Mamba-2 layer, given the names of its config keys; states default to 16 bits."""
    if config.whole(convolution, SHORT_CONVOLUTION) != SHORT_CONVOLUTION:
        raise config.no_step_time(convolution, "a convolution of a width other than 4")
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


def _mamba_with_bamba_keys(config: Config, inner: int) -> Fields:
    """Return the fields of a Mamba-2 layer with the keys of Bamba, Granite 4 and Falcon-H1.

    *inner* is the width of all heads together.
    """
    heads = config.count("mamba_n_heads")
    size = config.keys.get("mamba_d_head")
    if size is None or size == "auto":
        size = inner // heads
    named = Config(config.path, config.keys | {"mamba_d_head": size})
    return _mamba(named, "mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")


def _inner_width(config: Config) -> int:
    return config.count("hidden_size") * (config.whole("mamba_expand", 2) or 2)


def _nemotron_h(config: Config) -> Fields:
    """Return the fields of Nemotron-H: a stack of single Mamba-2, attention and feed-forward blocks.

    A layer is a block that mixes tokens together with the feed-forward block that follows it, if one does.
    """
    blocks = config.get("layers_block_type", list, [])
    if not blocks:
        pattern = config.get("hybrid_override_pattern", str, "")[: config.count("num_hidden_layers")]
        blocks = [LETTERS.get(letter, letter) for letter in pattern]
    key = "layers_block_type" if "layers_block_type" in config.keys else "hybrid_override_pattern"
    states, heads, dense, sparse = (blocks.count(kind) for kind in LETTERS.values())
    if states + heads + dense + sparse != len(blocks) or not states or not heads or dense + sparse > states + heads:
        raise config.no_step_time(
            key, "a stack of blocks other than Mamba-2, attention and at most as many feed-forward blocks"
        )
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
    """Return the fields of Granite 4: attention or Mamba-2 layers, a shared block, and experts where it has them."""
    shared = config.count("shared_intermediate_size", "intermediate_size")
    fields = llama(Config(config.path, config.keys | {"intermediate_size": shared}), tied=True)
    if states := config.get("layer_types", list, []).count("mamba"):
        fields |= {"linear_attention_layers": states} | _mamba_with_bamba_keys(config, _inner_width(config))
    if not config.whole("num_local_experts", 0):
        return fields
    sizes = {"shared_experts": shared // config.count("intermediate_size")}
    return fields | moe(config, "num_local_experts", "intermediate_size", "num_experts_per_tok", **sizes)


def _bamba(config: Config) -> Fields:
    heads = len(config.get("attn_layer_indices", list, []))
    states = config.count("num_hidden_layers") - heads
    if not heads or states < 1:
        raise config.no_step_time("attn_layer_indices", "a stack without attention or without Mamba-2 layers")
    return llama(config) | {"linear_attention_layers": states} | _mamba_with_bamba_keys(config, _inner_width(config))


def _falcon_h1(config: Config) -> Fields:
    """Return the fields of Falcon-H1, with heads and a state in parallel in every layer."""
    inner = config.whole("mamba_d_ssm", 0) or _inner_width(config)
    fields = llama(config) | _mamba_with_bamba_keys(config, inner)
    fields["linear_attention"]["beside_heads"] = True
    return fields | {"linear_attention_layers": config.count("num_hidden_layers")}


HYBRID: dict[str, Callable[[Config], Fields]] = {
    "bamba": _bamba,
    "falcon_h1": _falcon_h1,
    "granitemoehybrid": _granite_hybrid,
    "nemotron_h": _nemotron_h,
}
"""Readers of stacks with Mamba-2 layers, by `model_type`."""


LINEAR_INTERVAL = 4
"""Period of layers with full attention in Qwen3-Next and Qwen3.5, for configs without layer types."""
FINE, COARSE = 4, 128
"""Tokens per cache entry of DeepSeek-V4: where an indexer selects entries (CSA), and where all are read (HCA)."""
SHARED = 2
"""Tokens of an entry in the first of DeepSeek-V4.1's layers with entries; in the others an entry is a token."""
ENGRAM_BITS = 8.25
"""Bits of a number in DeepSeek-V4.1's tables of n-grams: 8, and a scale of 8 for 32 numbers."""
INDEX_HEADS, INDEX_HEAD_DIM = 64, 128
"""Defaults of DeepSeek-V3.2's indexer, where the config leaves them out."""


def _deepseek_sparse(config: Config) -> Fields:
    """Return the fields of DeepSeek Sparse Attention, whose indexer selects `index_topk` tokens for every query.

    Source: the report on DeepSeek-V3.2-Exp.
    """
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
    """Return the fields of MiniMax Sparse Attention, with one 16-bit key per token (arXiv 2606.13392)."""
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
    """Return the fields of layers with the gated delta rule."""
    return {
        "key_heads": config.count("linear_num_key_heads"),
        "value_heads": config.count("linear_num_value_heads"),
        "key_head_dim": config.count("linear_key_head_dim"),
        "value_head_dim": config.count("linear_value_head_dim"),
        "state_bits": 32 if config.get("mamba_ssm_dtype", str, "") == "float32" else 16,
    }


def _gated_delta(config: Config) -> Fields:
    """Return the fields of Qwen3-Next and Qwen3.5: gated delta rule in most layers, gated attention in others."""
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
    fields = llama(config, tied=True) | {"norms_per_layer": 4, "qk_norm": True} | sliding(config, lambda layers: 0)
    if width := config.whole("hidden_size_per_layer_input", 0):
        fields |= {"per_layer_embedding": width, "norms_per_layer": 5}
    if shared := config.whole("num_kv_shared_layers", 0):
        windowed = config.get("layer_types", list, [])[-shared:].count("sliding_attention")
        wide = 2 * fields["intermediate"] if config.flag("use_double_wide_mlp") else None
        fields["shared_caches"] = {"layers": shared, "windowed_layers": windowed, "intermediate": wide}
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
    return (
        fields
        | experts
        | {"note": Message("the dense block beside the experts is counted as {shared} shared experts", shared)}
    )


def _deepseek_v4(config: Config) -> Fields:
    """Return the fields of DeepSeek-V4 (CSA and HCA), from `compress_ratios`.

    Entries stand for 4 or 128 tokens; a ratio beyond the number of layers belongs to the draft layer.
    """
    layers, ratios = config.count("num_hidden_layers"), config.get("compress_ratios", list, [])
    if len(ratios) < layers or any(ratio not in (0, FINE, COARSE) for ratio in ratios) or FINE not in ratios[:layers]:
        raise config.no_step_time(
            "compress_ratios", "attention to a compressed context in another form than DeepSeek-V4's"
        )
    fine, coarse = (ratios[:layers].count(ratio) for ratio in (FINE, COARSE))
    compressed = _entries(config) | {"fine_layers": fine, "coarse_layers": coarse}
    compressed |= {"fine_ratio": FINE, "coarse_ratio": COARSE}
    indexer = _entry_indexer(config, FINE, fine, fine) | {"tokens_per_key": FINE}
    return _of_entries(config, compressed, indexer)


def _entries(config: Config) -> Fields:
    """Return the fields of compressed attention that DeepSeek-V4 and V4.1 have in common."""
    sizes = {name: config.count(name) for name in ("q_lora_rank", "o_lora_rank", "o_groups")}
    return sizes | {"window": config.count("sliding_window"), "streams": config.whole("hc_mult", 1) or 1}


def _deepseek_v41(config: Config) -> Fields:
    """Return the fields of DeepSeek-V4.1: entries for 1 or 2 tokens, which source layers store for those after them.

    Ratios beyond the number of layers belong to draft layers; Engram layers look up n-grams.
    """
    layers, ratios = config.count("num_hidden_layers"), config.get("compress_ratios", list, [])
    if len(ratios) < layers or any(ratio not in (0, 1, SHARED) for ratio in ratios) or SHARED not in ratios[:layers]:
        raise config.no_step_time("compress_ratios", SHARED_OTHERWISE)
    ratios = ratios[:layers]
    fine, whole = ratios.count(SHARED), ratios.count(1)
    stored, indexing = (_sources(config, key, ratios) for key in ("kv_source_layer_ids", "index_source_layer_ids"))
    compressed = _entries(config) | {"fine_layers": fine, "fine_ratio": SHARED, "fine_sources": stored.count(SHARED)}
    compressed |= {"coarse_layers": 0, "whole_layers": whole, "whole_sources": stored.count(1)}
    compressed |= {"whole_indexing_layers": indexing.count(1)}
    fields = _of_entries(config, compressed, _entry_indexer(config, SHARED, fine + whole, len(indexing)))
    rows = config.get("engram_num_embeddings", list, [])
    if not rows:
        return fields
    rows = [Config(config.path, {"engram_num_embeddings": one}).count("engram_num_embeddings") for one in rows]
    looked_up = (config.count("engram_max_ngram_size") - 1) * config.count("engram_n_heads")
    if not looked_up:
        raise config.no_step_time("engram_max_ngram_size", "a table of n-grams that are single tokens")
    table = {"rows": sum(rows), "width": config.count("engram_head_dim"), "bits": ENGRAM_BITS, "layers": len(rows)}
    return fields | {"ngram_embedding": table | {"rows_per_token": looked_up}}


SHARED_OTHERWISE = "attention to shared entries in another form than DeepSeek-V4.1's"
"""Part that is refused where layers share entries otherwise."""


def _sources(config: Config, key: str, ratios: list[int]) -> list[int]:
    """Return the ratios of the layers that *key* lists, of all layers' *ratios*.

    Raises ConfigError where a layer listed has no entries, or one with entries has no source of its ratio before it.
    """
    ids = config.get(key, list, [])
    known = len(set(map(str, ids))) == len(ids) and all(type(one) is int and 0 <= one < len(ratios) for one in ids)
    first = {ratio: ratios.index(ratio) for ratio in set(ratios) if ratio}
    if not known or any(not ratios[one] for one in ids) or not set(first.values()) <= set(ids):
        raise config.no_step_time(key, SHARED_OTHERWISE)
    return [ratios[one] for one in ids]


def _entry_indexer(config: Config, ratio: int, layers: int, indexing: int) -> Fields:
    """Return the fields of an indexer that selects among entries for *ratio* tokens."""
    return {
        "heads": config.count("index_n_heads"),
        "head_dim": config.count("index_head_dim"),
        "best_tokens": config.count("index_topk") * ratio,
        "sparse_layers": layers,
        "indexing_layers": indexing,
        "of_latents": True,
    }


def _of_entries(config: Config, compressed: Fields, indexer: Fields) -> Fields:
    """Return the fields of a model whose attention reads *compressed* entries that *indexer* selects."""
    inner = config.keys.get("intermediate_size") or config.count("moe_intermediate_size")
    plain = Config(config.path, {**config.keys, "intermediate_size": inner})
    return llama(plain) | shared_moe(config) | {"compressed": compressed, "indexer": indexer}


def _kimi_linear(config: Config) -> Fields:
    """Return the fields of Kimi-Linear: Kimi Delta Attention, latent attention in some layers (arXiv 2510.26692)."""
    linear = Config(config.path, config.get("linear_attn_config", dict, {}))
    if linear.whole("short_conv_kernel_size", SHORT_CONVOLUTION) != SHORT_CONVOLUTION:
        raise config.no_step_time("linear_attn_config", "a convolution of a width other than 4")
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


GATED_CONVOLUTION = GATED_CONVOLUTION_ROWS + 1
"""Width of the gated convolution that step times and memory count."""


def _lfm2(config: Config) -> Fields:
    """Return the fields of LFM2 and LFM2.5: gated convolutions in most layers, attention in the others."""
    if config.whole("conv_L_cache", GATED_CONVOLUTION) != GATED_CONVOLUTION:
        raise config.no_step_time("conv_L_cache", "a convolution of a width other than 3")
    width, layers = config.count("hidden_size"), config.count("num_hidden_layers")
    kinds, whole = config.get("layer_types", list, []), config.get("full_attn_idxs", list, [])
    convolved = kinds.count("conv") if kinds else layers - len(whole)
    linear = {"rule": "convolution", "key_heads": 1, "value_heads": 1, "key_head_dim": width, "value_head_dim": width}
    experts = config.whole("num_experts", 0)
    inner = config.count("intermediate_size") if experts else _lfm2_width(config)
    plain = Config(config.path, {**config.keys, "intermediate_size": inner})
    tied = config.flag("tie_word_embeddings", config.flag("tie_embedding", True))
    dense = config.whole("num_dense_layers", 0)
    return (
        llama(plain)
        | {"qk_norm": True, "tie_embeddings": tied, "linear_attention_layers": convolved, "linear_attention": linear}
        | (moe(config, "num_experts", "moe_intermediate_size", dense_layers=dense) if experts else {})
    )


def _lfm2_width(config: Config) -> int:
    """Return the width of the dense layers: the stated one, or two thirds of it in whole blocks if it is adjusted."""
    stated = config.whole("block_ff_dim", 0) or config.count("intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", True):
        return stated
    block, factor = config.whole("block_multiple_of", 256) or 256, config.keys.get("block_ffn_dim_multiplier", 1.0)
    width = int((factor if isinstance(factor, int | float) else 1.0) * int(2 * stated / 3))
    return block * -(-width // block)


MIXED: dict[str, Callable[[Config], Fields]] = {
    "deepseek_ref": _deepseek_v4,
    "deepseek_v32": _deepseek_sparse,
    "deepseek_v4": _deepseek_v4,
    "deepseek_v41": _deepseek_v41,
    "deepseek_v41_text": _deepseek_v41,
    "gemma4": _gemma4,
    "gemma4_text": _gemma4,
    "gemma4_unified": _gemma4,
    "gemma4_unified_text": _gemma4,
    "glm_moe_dsa": _deepseek_sparse,
    "kimi_linear": _kimi_linear,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2,
    "minimax_m3": _minimax_m3,
    "minimax_m3_vl": _minimax_m3,
    "minimax_m3_vl_text": _minimax_m3,
    "qwen3_5_moe_text": _gated_delta,
    "qwen3_5_text": _gated_delta,
    "qwen3_next": _gated_delta,
}
"""Readers of linear, windowed, sparse and compressed attention, by `model_type`."""


def _afmoe(config: Config) -> Fields:
    """Return the fields of Arcee Trinity: norms before and after each block, a window in most layers."""
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
    """Return the fields of Poolside Laguna, whose layers with a window have more query heads than the others."""
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
    """Return the fields of Ling 3: Kimi Delta Attention, with latent attention in the last layer of every group."""
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
    """Return the fields of GigaChat 3.5: latent attention in some layers, the gated delta rule in the others.

    The gates of its norms, of width 16, are left out.
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
"""Readers of families with an output gate on attention, by `model_type`."""
