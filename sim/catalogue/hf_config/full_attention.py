"""Readers of architectures whose layers all attend alike, to the whole context or to a window.

Most differ from Llama in a few facts that the config leaves to the code (biases, norms, sliding layers). Models of
2025 and 2026 with config keys of their own, including for windowed layers, come last.
"""

from collections.abc import Callable

from sim.catalogue.hf_config.config import Config, Fields
from sim.message import Message


def llama(config: Config, tied: bool = False) -> Fields:
    """Return the fields of grouped-query attention with a gated feed-forward block.

    *tied* is the default of a missing `tie_word_embeddings`.
    """
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    kv_heads = config.whole("num_key_value_heads", heads)
    config.check_divides("num_key_value_heads", kv_heads or 1, heads)
    if not any(key.endswith("head_dim") for key in config.keys):
        config.check_divides("num_attention_heads", heads, hidden)
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "intermediate": config.count("intermediate_size"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": config.whole("head_dim", hidden // heads),
        "vocab": config.count("vocab_size"),
        "max_context": config.count("max_position_embeddings"),
        "tie_embeddings": config.flag("tie_word_embeddings", tied),
        "qkv_bias": config.flag("attention_bias"),
    }


def sliding(config: Config, every: Callable[[int], int]) -> Fields:
    """Return the window fields, counted in `layer_types` if present, else by *every*.

    *every* is the architecture's rule: number of layers -> number of layers with a window.
    """
    window, kinds = config.whole("sliding_window", 0), config.get("layer_types", list, [])
    if not window:
        return {}
    layers = kinds.count("sliding_attention") if kinds else max(0, every(config.count("num_hidden_layers")))
    return {"sliding_window": window, "sliding_window_layers": layers} if layers else {}


def mistral(config: Config) -> Fields:
    """Return the fields of Llama, with a window in every layer if the config has one."""
    return llama(config) | sliding(config, lambda layers: layers)


def _qwen2(config: Config) -> Fields:
    window = sliding(config, lambda layers: layers - config.whole("max_window_layers", layers))
    return llama(config) | {"qkv_bias": True} | (window if config.flag("use_sliding_window") else {})


def qwen3(config: Config) -> Fields:
    """Return the fields of Llama, with a norm over each query and key head."""
    return llama(config) | {"qk_norm": True}


def moe(config: Config, experts: str, inner: str, tokens: str = "num_experts_per_tok", **more: int) -> Fields:
    """Return the fields of routed experts.

    *experts*, *inner* and *tokens* are the config keys of their number, their width and their number per token; *more*
    are further fields of `Moe`.
    """
    return {
        "moe": {
            "experts": config.count(experts),
            "experts_per_token": config.count(tokens),
            "moe_intermediate": config.count(inner),
            **more,
        }
    }


def gated_moe(config: Config) -> Fields:
    """Return the fields of routed experts and one gated shared block (Qwen2-MoE, Qwen3-Next, Qwen3.5)."""
    shared = config.whole("shared_expert_intermediate_size", 0) // config.count("moe_intermediate_size")
    sizes = {"shared_experts": shared, "shared_expert_gate": shared > 0, "dense_layers": _dense_between(config)}
    return moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _dense_between(config: Config) -> int:
    """Return the number of layers without experts in Qwen's mixtures.

    Layers without experts are the listed ones, and all but every `decoder_sparse_step`-th.
    """
    layers, step = config.count("num_hidden_layers"), config.whole("decoder_sparse_step", 1) or 1
    listed = {one for one in config.get("mlp_only_layers", list, []) if isinstance(one, int) and 0 <= one < layers}
    return layers - layers // step + sum((one + 1) % step == 0 for one in listed)


def _qwen2_moe(config: Config) -> Fields:
    return _qwen2(config) | gated_moe(config)


def qwen3_moe(config: Config) -> Fields:
    """Return the fields of Qwen3 with routed experts."""
    return qwen3(config) | moe(config, "num_experts", "moe_intermediate_size", dense_layers=_dense_between(config))


def _mixtral(config: Config) -> Fields:
    return mistral(config) | moe(config, "num_local_experts", "intermediate_size")


def latent_heads(config: Config) -> Fields:
    """Return the fields of multi-head latent attention."""
    nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    mla = {
        "q_lora_rank": config.whole("q_lora_rank", 0) or None,
        "kv_lora_rank": config.count("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": config.count("v_head_dim"),
    }
    return llama(config) | {"head_dim": nope + rope, "mla": mla}


def deepseek(config: Config) -> Fields:
    """Return the fields of multi-head latent attention with routed and shared experts."""
    return latent_heads(config) | shared_moe(config)


def shared_moe(config: Config) -> Fields:
    """Return the fields of routed and shared experts that follow leading dense layers.

    Experts are in every `moe_layer_freq`-th of the layers after the dense ones.
    """
    shared, dense = config.whole("n_shared_experts", 0), config.whole("first_k_dense_replace", 0)
    step = config.whole("moe_layer_freq", 1) if isinstance(config.keys.get("moe_layer_freq"), int) else 1
    step, layers = step or 1, config.count("num_hidden_layers")
    # multiples of `step` among the layers after the dense ones
    sparse = max(0, (layers - 1) // step - (dense - 1) // step)
    sizes = {"shared_experts": shared, "dense_layers": max(dense, layers - sparse)}
    return moe(config, "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _gemma2(config: Config) -> Fields:
    return llama(config, tied=True) | {"norms_per_layer": 4} | sliding(config, lambda layers: layers // 2)


def _gemma3(config: Config) -> Fields:
    period = config.whole("sliding_window_pattern", 6) or 6
    window = sliding(config, lambda layers: layers - layers // period)
    return llama(config, tied=True) | {"norms_per_layer": 4, "qk_norm": True} | window


def _gpt_oss(config: Config) -> Fields:
    window = sliding(config, lambda layers: layers // 2)
    return (
        llama(config)
        | {"qkv_bias": False, "linear_bias": True, "attention_sinks": True}
        | moe(config, "num_local_experts", "intermediate_size")
        | window
    )


def _minimax_m2(config: Config) -> Fields:
    return (
        llama(config)
        | {
            "qk_norm": config.flag("use_qk_norm"),
            "qk_norm_over_heads": config.get("qk_norm_type", str, "") == "per_layer",
        }
        | moe(config, "num_local_experts", "intermediate_size")
    )


def _glm4(config: Config) -> Fields:
    return llama(config) | {"norms_per_layer": 4}


def _glm4_moe(config: Config) -> Fields:
    return llama(config) | {"qk_norm": config.flag("use_qk_norm")} | shared_moe(config)


def _plain_mlp(config: Config) -> Fields:
    """Return the fields of GPT-NeoX and similar models: ungated feed-forward, biases everywhere, LayerNorm."""
    return llama(config) | {"gated_mlp": False, "linear_bias": True, "qkv_bias": False, "norm_bias": True}


def _starcoder2(config: Config) -> Fields:
    biases = {"linear_bias": config.flag("use_bias", True), "tie_embeddings": config.flag("tie_word_embeddings", True)}
    return _plain_mlp(config) | biases | sliding(config, lambda layers: layers)


def _opt(config: Config) -> Fields:
    positions = config.count("max_position_embeddings")
    renamed = Config(config.path, {**config.keys, "intermediate_size": config.count("ffn_dim")})
    tied = config.flag("tie_word_embeddings", True)
    return _plain_mlp(renamed) | {"tie_embeddings": tied, "learned_positions": positions + 2}


def _bloom(config: Config) -> Fields:
    hidden = config.count("hidden_size", "n_embed")
    heads = config.count("n_head", "num_attention_heads")
    return {
        "layers": config.count("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "intermediate": 4 * hidden,
        "heads": heads,
        "kv_heads": heads,
        "head_dim": hidden // heads,
        "vocab": config.count("vocab_size"),
        "max_context": config.whole("seq_length", 2048),
        "tie_embeddings": config.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "linear_bias": True,
        "norm_bias": True,
    }


def _falcon(config: Config) -> Fields:
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads", "n_head")
    grouped = config.flag("new_decoder_architecture")
    kv_heads = config.whole("num_kv_heads", heads) if grouped else 1 if config.flag("multi_query", True) else heads
    return {
        "layers": config.count("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "intermediate": config.whole("ffn_hidden_size", 4 * hidden),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": hidden // heads,
        "vocab": config.count("vocab_size"),
        "max_context": config.whole("max_position_embeddings", 2048),
        "tie_embeddings": config.flag("tie_word_embeddings", True),
        "gated_mlp": False,
        "linear_bias": config.flag("bias"),
        "norm_bias": True,
        "norms_per_layer": 2 if grouped or not config.flag("parallel_attn", True) else 1,
    }


PLAIN: dict[str, Callable[[Config], Fields]] = {
    "bloom": _bloom,
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "falcon": _falcon,
    "gemma": lambda config: llama(config, tied=True),
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "glm4v": _glm4,
    "glm4v_moe": _glm4_moe,
    "glm4v_moe_text": _glm4_moe,
    "glm4v_text": _glm4,
    "glm4_moe_lite": deepseek,
    "gpt_neox": _plain_mlp,
    "gpt_oss": _gpt_oss,
    "internlm2": llama,
    "kimi_k2": deepseek,
    "llama": llama,
    "minimax_m2": _minimax_m2,
    "mimo": _qwen2,
    "ministral3": mistral,
    "mistral": mistral,
    "mistral4": deepseek,
    "mixtral": _mixtral,
    "opt": _opt,
    "phi3": mistral,
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2,
    "qwen2_5_vl_text": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen2_vl": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_omni_moe_text": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
    "qwen3_vl_text": qwen3,
    "starcoder2": _starcoder2,
}
"""`model_type` -> reader, for configs with the keys of Llama or older ones."""


EXAONE_PATTERN = "sliding_window_pattern"
"""Config key of EXAONE's window pattern.

The value is a string with a letter per layer, L with a window and G without, repeated over the layers; or a number
n, where every n-th layer has no window.
"""
COMMAND_A_PERIODS = (("", 4), ("prefix_dense_", 1))
"""Key prefixes and defaults of Command A+'s window period, after the dense layers and among them.

Every n-th layer attends to all tokens.
"""
LLAMA4_PERIOD = 4
"""Period of Llama 4's layers that attend to all tokens; the others attend to their chunk."""


def _cohere2(config: Config) -> Fields:
    """Return the fields of Command R7B and Command A: attention and feed-forward in parallel, after one norm."""
    every = config.whole("sliding_window_pattern", 4) or 4
    window = sliding(config, lambda layers: layers - layers // every)
    return llama(config, tied=True) | {"norms_per_layer": 1, "qk_norm": config.flag("use_qk_norm")} | window


def _cohere2_moe(config: Config) -> Fields:
    """Return the fields of Command A+ and North; their `intermediate_size` is the width of the experts."""
    inner, leading = config.count("intermediate_size"), config.whole("first_k_dense_replace", 0)
    dense = config.whole("prefix_dense_intermediate_size", inner) or inner
    sizes = {"shared_experts": config.whole("num_shared_experts", 0), "dense_layers": leading}
    experts = moe(config, "num_experts", "intermediate_size", "num_experts_per_tok", **sizes)
    fields = _cohere2(Config(config.path, config.keys | {"intermediate_size": dense})) | experts
    every, first = (
        config.whole(f"{prefix}sliding_window_pattern", usual) or usual for prefix, usual in COMMAND_A_PERIODS
    )
    behind = config.count("num_hidden_layers") - leading
    windowed = behind - behind // every + leading - leading // first
    return fields | sliding(config, lambda _: windowed)


def _exaone4(config: Config) -> Fields:
    pattern, layers = config.keys.get(EXAONE_PATTERN), config.count("num_hidden_layers")
    if isinstance(pattern, str) and pattern:
        whole, rest = divmod(layers, len(pattern))
        windowed = whole * pattern.count("L") + pattern[:rest].count("L")
    else:
        windowed = layers - layers // (config.whole(EXAONE_PATTERN, layers) or layers)
    return qwen3(config) | sliding(config, lambda _: windowed)


def _exaone_moe(config: Config) -> Fields:
    shared, dense = config.whole("num_shared_experts", 0), config.whole("first_k_dense_replace", 0)
    sizes = {"shared_experts": shared, "dense_layers": dense}
    return _exaone4(config) | moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _olmo(config: Config) -> Fields:
    """Return the fields of OLMo 3: norms after the blocks, and one norm over all queries and all keys."""
    return qwen3(config) | sliding(config, lambda layers: layers - layers // 4)


def _granite(config: Config) -> Fields:
    return llama(config, tied=True)


def _seed_oss(config: Config) -> Fields:
    return llama(config) | {"qkv_bias": config.flag("attention_bias", True)}


def _squared_relu(config: Config) -> Fields:
    """Return the fields of Nemotron-4, Apertus and Arcee, whose feed-forward blocks have two matrices."""
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
    """Return the fields of Hunyuan-MoE, whose sizes are numbers or lists with one equal number per layer."""
    sizes = ("num_experts", "moe_topk", "num_shared_expert", "moe_intermediate_size")
    alike = {key: value[0] for key in sizes if isinstance(value := config.keys.get(key), list) and value}
    flat = Config(config.path, config.keys | alike)
    if flat.keys.get("moe_intermediate_size") is None:
        flat.keys["moe_intermediate_size"] = config.count("intermediate_size")
    shared = flat.whole("num_shared_expert", 1) if flat.flag("use_mixed_mlp_moe", True) else 0
    return _hunyuan(flat) | moe(flat, "num_experts", "moe_intermediate_size", "moe_topk", shared_experts=shared)


def _dots(config: Config) -> Fields:
    """Return the fields of dots.llm1: grouped heads with norms, routed and shared experts."""
    return qwen3(config) | shared_moe(config)


def _plain_shared_moe(config: Config) -> Fields:
    return llama(config) | shared_moe(config)


def _bailing(config: Config) -> Fields:
    """Return the fields of Ling, where all shared experts together may have a width of their own."""
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
    """Return the fields of Mellum: Qwen3 with experts, and a window in most layers."""
    return qwen3_moe(config) | sliding(config, lambda _: 0)


def _phimoe(config: Config) -> Fields:
    return llama(config) | {"norm_bias": True} | moe(config, "num_local_experts", "intermediate_size")


def _llama4(config: Config) -> Fields:
    """Return the fields of Llama 4, with attention chunks taken as a window.

    Every `interleave_moe_layer_step`-th layer has routed experts and a shared one; other layers have a wider block.
    """
    layers, step = config.count("num_hidden_layers"), config.whole("interleave_moe_layer_step", 1) or 1
    dense = Config(config.path, config.keys | {"intermediate_size": config.count("intermediate_size_mlp")})
    kinds = config.get("layer_types", list, [])
    chunked = kinds.count("chunked_attention") if kinds else layers - layers // LLAMA4_PERIOD
    sizes = {"shared_experts": 1, "dense_layers": layers - layers // step}
    chunk = config.whole("attention_chunk_size", 0)
    window = {"sliding_window": chunk, "sliding_window_layers": chunked} if chunk and chunked else {}
    return llama(dense) | moe(config, "num_local_experts", "intermediate_size", "num_experts_per_tok", **sizes) | window


def _longcat(config: Config) -> Fields:
    """Return the fields of LongCat-Flash.

    Each of its layers counts as two layers with latents and a dense block, the first of them in parallel with experts;
    the dense block is taken as shared experts. Some of the chosen experts compute nothing: their expected number is
    subtracted.
    """
    pairs, inner = config.count("num_layers", "num_hidden_layers"), config.count("expert_ffn_hidden_size")
    block, idle = config.count("ffn_hidden_size"), config.whole("zero_expert_num", 0)
    experts = config.count("n_routed_experts")
    keys = {"num_hidden_layers": 2 * pairs, "intermediate_size": block, "moe_intermediate_size": inner}
    chosen = max(1, round(config.count("moe_topk") * experts / (experts + idle)))
    flat = Config(config.path, config.keys | keys | {"num_experts_per_tok": chosen})
    sizes = {"shared_experts": block // inner, "dense_layers": pairs}
    note = {"note": Message("{chosen} of the chosen experts compute, on average", chosen)}
    return (
        latent_heads(flat)
        | moe(flat, "n_routed_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)
        | note
    )


def _sarvam_mla(config: Config) -> Fields:
    """Return the fields of Sarvam: latent attention, with Ling's names of the experts' numbers."""
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
"""`model_type` -> reader, for models of 2025 and 2026 with config keys of their own."""


IQUEST_BLOCK = ["full_attention", *["sliding_attention"] * 3]


def _step(config: Config) -> Fields:
    """Return the fields of Step 3.5 and 3.7, whose layers with a window have more query heads than the others."""
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
    """Return the fields of MiMo-V2: layers with a window have KV heads of their own, values are narrower than keys."""
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
    """Return the fields of IQuest-Q1 and M1: first layers, a repeated block of layers, last layers.

    The feed-forward block of the first layer is dense.
    """
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
    "mimo_v2": _mimo_v2,
    "mimo_v2_flash": _mimo_v2,
    "step3p5": _step,
    "step3p7": _step,
}
"""`model_type` -> reader, for models whose layers with a window have other keys or sizes than the rest."""
