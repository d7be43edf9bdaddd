"""Readers of architectures in which every layer attends alike, but for windows; most differ from Llama in a few facts
that the config leaves to the code (biases, norms, sliding layers).
"""

from collections.abc import Callable

from sim.catalogue.entries.hf_config.config import Config, Fields


def llama(config: Config, tied: bool = False) -> Fields:
    """Grouped-query attention and a gated feed-forward block; *tied* is what a missing `tie_word_embeddings` means."""
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
    """Window facts: counted in `layer_types` where it is there, else by the architecture's rule."""
    window, kinds = config.whole("sliding_window", 0), config.get("layer_types", list, [])
    if not window:
        return {}
    layers = kinds.count("sliding_attention") if kinds else max(0, every(config.count("num_hidden_layers")))
    return {"sliding_window": window, "sliding_window_layers": layers} if layers else {}


def mistral(config: Config) -> Fields:
    """As Llama, with a window in every layer where the config has one."""
    return llama(config) | sliding(config, lambda layers: layers)


def _qwen2(config: Config) -> Fields:
    window = sliding(config, lambda layers: layers - config.whole("max_window_layers", layers))
    return llama(config) | {"qkv_bias": True} | (window if config.flag("use_sliding_window") else {})


def qwen3(config: Config) -> Fields:
    """As Llama, with a norm over each query and key head."""
    return llama(config) | {"qk_norm": True}


def moe(config: Config, experts: str, inner: str, tokens: str = "num_experts_per_tok", **more: int) -> Fields:
    """Routed experts; *experts*, *inner* and *tokens* are the keys of their number, width and number per token."""
    return {
        "moe": {
            "experts": config.count(experts),
            "experts_per_token": config.count(tokens),
            "moe_intermediate": config.count(inner),
            **more,
        }
    }


def gated_moe(config: Config) -> Fields:
    """Routed experts and one shared block behind a gate of its own (Qwen2-MoE, Qwen3-Next, Qwen3.5)."""
    shared = config.whole("shared_expert_intermediate_size", 0) // config.count("moe_intermediate_size")
    sizes = {"shared_experts": shared, "shared_expert_gate": shared > 0, "dense_layers": _dense_between(config)}
    return moe(config, "num_experts", "moe_intermediate_size", "num_experts_per_tok", **sizes)


def _dense_between(config: Config) -> int:
    """Layers of Qwen's mixtures without experts: those that are listed, and all but every so many."""
    layers, step = config.count("num_hidden_layers"), config.whole("decoder_sparse_step", 1) or 1
    listed = {one for one in config.get("mlp_only_layers", list, []) if isinstance(one, int) and 0 <= one < layers}
    return layers - layers // step + sum((one + 1) % step == 0 for one in listed)


def _qwen2_moe(config: Config) -> Fields:
    return _qwen2(config) | gated_moe(config)


def qwen3_moe(config: Config) -> Fields:
    """Qwen3 with routed experts."""
    return qwen3(config) | moe(config, "num_experts", "moe_intermediate_size", dense_layers=_dense_between(config))


def _mixtral(config: Config) -> Fields:
    return mistral(config) | moe(config, "num_local_experts", "intermediate_size")


def latent_heads(config: Config) -> Fields:
    """Multi-head latent attention."""
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
    """Multi-head latent attention, routed and shared experts."""
    return latent_heads(config) | shared_moe(config)


def shared_moe(config: Config) -> Fields:
    """Routed and shared experts behind leading dense layers, in every so many of the others."""
    shared, dense = config.whole("n_shared_experts", 0), config.whole("first_k_dense_replace", 0)
    step = config.whole("moe_layer_freq", 1) if isinstance(config.keys.get("moe_layer_freq"), int) else 1
    step, layers = step or 1, config.count("num_hidden_layers")
    sparse = max(0, (layers - 1) // step - (dense - 1) // step)  # multiples of step behind the leading layers
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
        llama(config) | {"qk_norm": config.flag("use_qk_norm")} | moe(config, "num_local_experts", "intermediate_size")
    )


def _glm4(config: Config) -> Fields:
    return llama(config) | {"norms_per_layer": 4}


def _glm4_moe(config: Config) -> Fields:
    return llama(config) | {"qk_norm": config.flag("use_qk_norm")} | shared_moe(config)


def _plain_mlp(config: Config) -> Fields:
    """GPT-NeoX and its like: two-matrix feed-forward, biases everywhere, LayerNorm."""
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
"""By `model_type`."""
