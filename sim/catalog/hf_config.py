"""A model's dimensions from its Hugging Face `config.json`.

One reader per `model_type`; most differ from Llama in a few facts that the config leaves to the code (biases, norms,
sliding layers). Keys that transformers has defaults for may be missing; any other missing key is an error naming it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sim.catalog.model import Model

Fields = dict[str, Any]


class ConfigError(ValueError):
    """A config.json that cannot be read as a language model: file, key, what is wrong."""

    def __init__(self, path: Path, key: str, message: str) -> None:
        super().__init__(f"{path}: {key}: {message}" if key else f"{path}: {message}")


class Config:
    """The keys of one file."""

    def __init__(self, path: Path, keys: Fields) -> None:
        self.path = path
        self.keys = keys

    def get(self, key: str, default: Any = None) -> Any:
        """The key's value; *default* where it is missing or null."""
        value = self.keys.get(key)
        return default if value is None else value

    def count(self, *names: str) -> int:
        """The first of *names* that is there, a positive whole number."""
        for name in names:
            value = self.keys.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
                raise ConfigError(self.path, name, f"a positive whole number is needed, not {value!r}")
            return value
        raise ConfigError(self.path, " or ".join(names), "missing")


def model_from_config(path: Path) -> Model:
    """The model that *path* (a config.json, or a folder with one) describes; its id is the folder's name.

    Raises ConfigError for a file that is not there or not JSON, an unknown architecture, a missing or senseless key.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        keys = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(file, "", error.strerror or "cannot be read") from error
    except ValueError as error:
        raise ConfigError(file, "", f"not JSON: {error}") from error
    if not isinstance(keys, dict):
        raise ConfigError(file, "", "not a JSON object")
    if isinstance(keys.get("text_config"), dict):
        keys = {**keys, **keys["text_config"]}
    kind = keys.get("model_type")
    if kind not in READERS:
        raise ConfigError(file, "model_type", f"{kind!r} is not known; known are {', '.join(sorted(READERS))}")
    config = Config(file, keys)
    fields = READERS[kind](config)
    name = str(keys.get("_name_or_path") or file.resolve().parent.name)
    dimensions = {"source": "hf_config", "where": file.name, "kind": "quoted"}
    try:
        return Model(
            id=file.resolve().parent.name or "model",
            name=name,
            family=kind,
            dimensions=dimensions,
            native_dtype=_native_dtype(config),
            **fields,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(file, ".".join(str(part) for part in first["loc"]), first["msg"]) from error


def _native_dtype(config: Config) -> str:
    method = config.get("quantization_config", {}).get("quant_method")
    if method in ("fp8", "mxfp4"):
        return "float8" if method == "fp8" else "mxfp4"
    dtype = str(config.get("torch_dtype", config.get("dtype", "bfloat16")))
    return "float16" if dtype == "float16" else "bfloat16"


def _llama(config: Config, tied: bool = False) -> Fields:
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "intermediate": config.count("intermediate_size"),
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads", heads),
        "head_dim": config.get("head_dim", hidden // heads),
        "vocab": config.count("vocab_size"),
        "max_context": config.count("max_position_embeddings"),
        "tie_embeddings": config.get("tie_word_embeddings", tied),
        "qkv_bias": config.get("attention_bias", False),
    }


def _sliding(config: Config, every: Callable[[int], int]) -> Fields:
    """Window facts: counted in `layer_types` where it is there, else by the architecture's rule."""
    window = config.get("sliding_window")
    if window is None:
        return {}
    kinds = config.get("layer_types")
    layers = every(config.count("num_hidden_layers")) if kinds is None else kinds.count("sliding_attention")
    return {"sliding_window": window, "sliding_window_layers": layers} if layers else {}


def _mistral(config: Config) -> Fields:
    return _llama(config) | _sliding(config, lambda layers: layers)


def _qwen2(config: Config) -> Fields:
    window = _sliding(config, lambda layers: layers - config.get("max_window_layers", layers))
    return _llama(config) | {"qkv_bias": True} | (window if config.get("use_sliding_window", False) else {})


def _qwen3(config: Config) -> Fields:
    return _llama(config) | {"qk_norm": True}


def _moe(config: Config, experts: str, inner: str, **more: int) -> Fields:
    return {
        "moe": {
            "experts": config.count(experts),
            "experts_per_token": config.count("num_experts_per_tok"),
            "moe_intermediate": config.count(inner),
            **more,
        }
    }


def _qwen2_moe(config: Config) -> Fields:
    shared = config.get("shared_expert_intermediate_size", 0) // config.count("moe_intermediate_size")
    return _qwen2(config) | _moe(config, "num_experts", "moe_intermediate_size", shared_experts=shared)


def _qwen3_moe(config: Config) -> Fields:
    return _qwen3(config) | _moe(config, "num_experts", "moe_intermediate_size")


def _mixtral(config: Config) -> Fields:
    return _mistral(config) | _moe(config, "num_local_experts", "intermediate_size")


def _deepseek(config: Config) -> Fields:
    nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    mla = {
        "q_lora_rank": config.get("q_lora_rank"),
        "kv_lora_rank": config.count("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": config.count("v_head_dim"),
    }
    return _llama(config) | {"head_dim": nope + rope, "mla": mla} | _shared_moe(config)


def _shared_moe(config: Config) -> Fields:
    shared, dense = config.get("n_shared_experts", 0), config.get("first_k_dense_replace", 0)
    return _moe(config, "n_routed_experts", "moe_intermediate_size", shared_experts=shared, dense_layers=dense)


def _gemma2(config: Config) -> Fields:
    return _llama(config, tied=True) | {"norms_per_layer": 4} | _sliding(config, lambda layers: layers // 2)


def _gemma3(config: Config) -> Fields:
    period = config.get("sliding_window_pattern", 6)
    window = _sliding(config, lambda layers: layers - layers // period)
    return _llama(config, tied=True) | {"norms_per_layer": 4, "qk_norm": True} | window


def _gpt_oss(config: Config) -> Fields:
    window = _sliding(config, lambda layers: layers // 2)
    return (
        _llama(config)
        | {"qkv_bias": False, "linear_bias": True}
        | _moe(config, "num_local_experts", "intermediate_size")
        | window
    )


def _glm4(config: Config) -> Fields:
    return _llama(config) | {"norms_per_layer": 4}


def _glm4_moe(config: Config) -> Fields:
    return _llama(config) | {"qk_norm": config.get("use_qk_norm", False)} | _shared_moe(config)


def _plain_mlp(config: Config) -> Fields:
    """GPT-NeoX and its like: two-matrix feed-forward, biases everywhere, LayerNorm."""
    return _llama(config) | {"gated_mlp": False, "linear_bias": True, "qkv_bias": False, "norm_bias": True}


def _starcoder2(config: Config) -> Fields:
    biases = {"linear_bias": config.get("use_bias", True), "tie_embeddings": config.get("tie_word_embeddings", True)}
    return _plain_mlp(config) | biases | _sliding(config, lambda layers: layers)


def _opt(config: Config) -> Fields:
    positions = config.count("max_position_embeddings")
    renamed = Config(config.path, {**config.keys, "intermediate_size": config.count("ffn_dim")})
    tied = config.get("tie_word_embeddings", True)
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
        "max_context": config.get("seq_length", 2048),
        "tie_embeddings": config.get("tie_word_embeddings", True),
        "gated_mlp": False,
        "linear_bias": True,
        "norm_bias": True,
    }


def _falcon(config: Config) -> Fields:
    hidden, heads = config.count("hidden_size"), config.count("num_attention_heads", "n_head")
    grouped = config.get("new_decoder_architecture", False)
    kv_heads = config.get("num_kv_heads", heads) if grouped else 1 if config.get("multi_query", True) else heads
    return {
        "layers": config.count("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "intermediate": config.get("ffn_hidden_size", 4 * hidden),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": hidden // heads,
        "vocab": config.count("vocab_size"),
        "max_context": config.get("max_position_embeddings", 2048),
        "tie_embeddings": config.get("tie_word_embeddings", True),
        "gated_mlp": False,
        "linear_bias": config.get("bias", False),
        "norm_bias": True,
        "norms_per_layer": 2 if grouped or not config.get("parallel_attn", True) else 1,
    }


READERS: dict[str, Callable[[Config], Fields]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gemma3_text": _gemma3,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "gpt_neox": _plain_mlp,
    "gpt_oss": _gpt_oss,
    "internlm2": _llama,
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "opt": _opt,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "starcoder2": _starcoder2,
}
"""By `model_type`."""
