"""Readers of models of 2025 and 2026 whose configs have keys of their own."""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields
from sim.catalogue.entries.hf_config.plain import (
    deepseek,
    latent_heads,
    llama,
    mistral,
    moe,
    qwen3,
    qwen3_moe,
    shared_moe,
    sliding,
)

LETTERS = "sliding_window_pattern"
"""Of EXAONE: a letter a layer, L with a window and G without, over and over; or every how many layers have none."""
PATTERNS = (("", 4), ("prefix_dense_", 1))
"""Of Command A+: behind the dense layers, and of these: every how many layers see all tokens, where none says."""
CHUNKED = 4
"""Of Llama 4: every fourth layer sees all tokens, the others those of their chunk."""


def _cohere2(config: Config) -> Fields:
    """Attention and feed-forward block beside each other behind one norm (Command R7B, Command A)."""
    every = config.whole("sliding_window_pattern", 4) or 4
    window = sliding(config, lambda layers: layers - layers // every)
    return llama(config, tied=True) | {"norms_per_layer": 1, "qk_norm": config.flag("use_qk_norm")} | window


def _cohere2_moe(config: Config) -> Fields:
    """Command A+, North: as wide as the dense models' blocks are here the experts, routed and shared."""
    inner, leading = config.count("intermediate_size"), config.whole("first_k_dense_replace", 0)
    dense = config.whole("prefix_dense_intermediate_size", inner) or inner
    sizes = {"shared_experts": config.whole("num_shared_experts", 0), "dense_layers": leading}
    experts = moe(config, "num_experts", "intermediate_size", "num_experts_per_tok", **sizes)
    fields = _cohere2(Config(config.path, config.keys | {"intermediate_size": dense})) | experts
    every, first = (config.whole(f"{prefix}sliding_window_pattern", usual) or usual for prefix, usual in PATTERNS)
    behind = config.count("num_hidden_layers") - leading
    windowed = behind - behind // every + leading - leading // first
    return fields | sliding(config, lambda _: windowed)


def _exaone4(config: Config) -> Fields:
    pattern, layers = config.keys.get(LETTERS), config.count("num_hidden_layers")
    if isinstance(pattern, str) and pattern:
        whole, rest = divmod(layers, len(pattern))
        windowed = whole * pattern.count("L") + pattern[:rest].count("L")
    else:
        windowed = layers - layers // (config.whole(LETTERS, layers) or layers)
    return qwen3(config) | sliding(config, lambda _: windowed)


def _exaone_moe(config: Config) -> Fields:
    shared, dense = config.whole("num_shared_experts", 0), config.whole("first_k_dense_replace", 0)
    sizes = {"shared_experts": shared, "dense_layers": dense}
    return _exaone4(config) | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _olmo(config: Config) -> Fields:
    """Norms behind the blocks, and one over all queries and all keys."""
    return qwen3(config) | sliding(config, lambda layers: layers - layers // 4)


def _granite(config: Config) -> Fields:
    return llama(config, tied=True)


def _seed_oss(config: Config) -> Fields:
    return llama(config) | {"qkv_bias": config.flag("attention_bias", True)}


def _squared_relu(config: Config) -> Fields:
    """Feed-forward blocks of two matrices (Nemotron-4, Apertus, Arcee)."""
    return llama(config) | {"gated_mlp": False}


def _apertus(config: Config) -> Fields:
    return _squared_relu(config) | {"qk_norm": True}


def _ernie(config: Config) -> Fields:
    return llama(config, tied=True) | {"linear_bias": config.flag("use_bias")}


def _ernie_moe(config: Config) -> Fields:
    shared, start = config.whole("moe_num_shared_experts", 0), config.whole("moe_layer_start_index", 0)
    if config.whole("moe_layer_interval", 1) != 1:
        raise config.no_step_time("moe_layer_interval", "experts in some of the layers between others")
    sizes = {"shared_experts": shared, "dense_layers": start}
    return _ernie(config) | moe(config, "moe_num_experts", "moe_intermediate_size", "moe_k", **sizes)


def _hunyuan(config: Config) -> Fields:
    return llama(config, tied=True) | {"qk_norm": config.flag("use_qk_norm", True)}


def _hunyuan_moe(config: Config) -> Fields:
    """Each size is a number, or a list with one for each layer, all alike so far."""
    sizes = ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")
    alike = {key: value[0] for key in sizes if isinstance(value := config.keys.get(key), list) and value}
    flat = Config(config.path, config.keys | alike)
    if flat.keys.get("moe_intermediate_size") is None:
        flat.keys["moe_intermediate_size"] = config.count("intermediate_size")
    shared = flat.whole("num_shared_expert", 1) if flat.flag("use_mixed_mlp_moe", True) else 0
    return _hunyuan(flat) | moe(flat, "num_experts", "moe_intermediate_size", "moe_topk", shared_experts=shared)


def _dots(config: Config) -> Fields:
    """Grouped heads with norms, routed and shared experts."""
    return qwen3(config) | shared_moe(config)


def _plain_shared_moe(config: Config) -> Fields:
    return llama(config) | shared_moe(config)


def _bailing(config: Config) -> Fields:
    """Ling: all shared experts together may have a width of their own."""
    inner, several = config.count("moe_intermediate_size"), config.whole("num_shared_experts", 0)
    shared = max(1, config.whole("moe_shared_expert_intermediate_size", inner) // inner) * several
    sizes = {"shared_experts": shared, "dense_layers": config.whole("first_k_dense_replace", 0)}
    heads = llama(config) | {"qk_norm": config.flag("use_qk_norm"), "qkv_bias": config.flag("use_qkv_bias")}
    return heads | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _hy_v3(config: Config) -> Fields:
    sizes = {"shared_experts": config.whole("num_shared_experts", 0)}
    sizes |= {"dense_layers": config.whole("first_k_dense_replace", 0)}
    norms = {"qk_norm": config.flag("qk_norm", config.flag("use_qk_norm"))}
    return llama(config) | norms | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _mellum(config: Config) -> Fields:
    """Qwen3 with experts, and a window in most layers."""
    return qwen3_moe(config) | sliding(config, lambda _: 0)


def _phimoe(config: Config) -> Fields:
    return llama(config) | {"norm_bias": True} | moe(config, "num_local_experts", "intermediate_size")


def _llama4(config: Config) -> Fields:
    """Every so many layers have experts beside a shared one; the others a wider block. Chunks are taken as a window."""
    layers, step = config.count("num_hidden_layers"), config.whole("interleave_moe_layer_step", 1) or 1
    dense = Config(config.path, config.keys | {"intermediate_size": config.count("intermediate_size_mlp")})
    kinds = config.get("layer_types", list, [])
    chunked = kinds.count("chunked_attention") if kinds else layers - layers // CHUNKED
    sizes = {"shared_experts": 1, "dense_layers": layers - layers // step}
    chunk = config.whole("attention_chunk_size", 0)
    window = {"sliding_window": chunk, "sliding_window_layers": chunked} if chunk and chunked else {}
    return llama(dense) | moe(config, "num_local_experts", "intermediate_size", "num_experts_per_tok", **sizes) | window


def _longcat(config: Config) -> Fields:
    """Each of its layers is two with latents and a dense block, the first beside experts: the block stands as shared
    experts. Some of the chosen experts compute nothing; as many as chance has it are taken away.
    """
    pairs, inner = config.count("num_layers", "num_hidden_layers"), config.count("expert_ffn_hidden_size")
    block, idle = config.count("ffn_hidden_size"), config.whole("zero_expert_num", 0)
    experts = config.count("n_routed_experts")
    keys = {"num_hidden_layers": 2 * pairs, "intermediate_size": block, "moe_intermediate_size": inner}
    chosen = max(1, round(config.count("moe_topk") * experts / (experts + idle)))
    flat = Config(config.path, config.keys | keys | {"num_experts_per_tok": chosen})
    sizes = {"shared_experts": block // inner, "dense_layers": pairs}
    note = {"note": f"{chosen} of the chosen experts compute, on average"}
    return (
        latent_heads(flat)
        | moe(flat, "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
        | note
    )


def _sarvam_mla(config: Config) -> Fields:
    """Latent attention, with Ling's names of the experts' numbers."""
    names = {"n_routed_experts": config.count("num_experts"), "n_shared_experts": config.whole("num_shared_experts", 1)}
    return deepseek(Config(config.path, config.keys | names))


RECENT: dict[str, Callable[[Config], Fields]] = {
    "apertus": _apertus,
    "arcee": _squared_relu,
    "bailing_moe": _bailing,
    "bailing_moe_v2": _bailing,
    "cohere2": _cohere2,
    "cohere2_moe": _cohere2_moe,
    "deepseek": _plain_shared_moe,
    "dots1": _dots,
    "ernie4_5": _ernie,
    "ernie4_5_moe": _ernie_moe,
    "exaone4": _exaone4,
    "exaone_moe": _exaone_moe,
    "granite": _granite,
    "hunyuan_v1_dense": _hunyuan,
    "hunyuan_v1_moe": _hunyuan_moe,
    "hy_v3": _hy_v3,
    "iquestcoder": llama,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "longcat_flash": _longcat,
    "mellum": _mellum,
    "olmo2": qwen3,
    "olmo3": _olmo,
    "phimoe": _phimoe,
    "sarvam_mla": _sarvam_mla,
    "sarvam_moe": _bailing,
    "seed_oss": _seed_oss,
    "smollm3": _granite,
    "solar_open": _plain_shared_moe,
    "spark2_5": mistral,
    "telechat3": llama,
}
"""By `model_type`."""
