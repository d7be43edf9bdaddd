"""A model's dimensions from its Hugging Face `config.json`.

One reader per `model_type`; most differ from Llama in a few facts that the config leaves to the code (biases, norms,
sliding layers). Keys that transformers has defaults for may be missing; any other missing key is an error naming it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from sim.catalogue.entries.model import Model
from sim.infile import opened

Fields = dict[str, Any]
Kind = TypeVar("Kind", bool, str, dict[str, Any], list[Any])

MOST_BYTES = 8_000_000
LARGEST = 1_000_000_000
"""Of all counts and sizes; more is no model's."""
LONGEST_NAME = 200
_NEEDED: dict[type[Any], str] = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}


class ConfigError(ValueError):
    """A config.json that cannot be read as a language model: file, key, what is wrong."""

    def __init__(self, path: Path, key: str, message: str) -> None:
        super().__init__(f"{path}: {key}: {message}" if key else f"{path}: {message}")


class Config:
    """The keys of one file."""

    def __init__(self, path: Path, keys: Fields) -> None:
        self.path = path
        self.keys = keys

    def get(self, key: str, kind: type[Kind], default: Kind) -> Kind:
        """The key's value, of that *kind*; *default* where it is missing or null."""
        value = self.keys.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise ConfigError(self.path, key, f"{_NEEDED[kind]} is needed, not {_shown(value)}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Whether it is true; *default* where it is missing or null."""
        return self.get(key, bool, default)

    def whole(self, key: str, default: int) -> int:
        """A whole number from 0; *default* where it is missing or null."""
        return default if self.keys.get(key) is None else _checked(self.path, key, self.keys[key], 0)

    def count(self, *names: str) -> int:
        """The first of *names* that is there, a positive whole number."""
        for name in names:
            value = self.keys.get(name)
            if value is not None:
                return _checked(self.path, name, value, 1)
        raise ConfigError(self.path, " or ".join(names), "missing")


def _checked(path: Path, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        needed = "a positive whole number" if least else "a whole number from 0"
        raise ConfigError(path, key, f"{needed} is needed, not {_shown(value)}")
    if value > LARGEST:
        raise ConfigError(path, key, f"at most {LARGEST:,} is believed, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """The beginning of it: no more of a hostile value is formatted."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > LARGEST**2:
        return "a number of many digits"
    return repr(value)[:40]


def _nonsense(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _printable(text: str) -> str:
    """*text* as a name for tables and pages."""
    return "".join(one if one.isprintable() else "?" for one in text[:LONGEST_NAME]) or "model"


def is_config(path: Path) -> bool:
    """Whether *path* is a folder that holds a config.json."""
    try:
        return (path / "config.json").is_file()
    except OSError:  # too long for a name, not to be entered
        return False


def model_from_config(path: Path) -> Model:
    """The model that *path* (a config.json, or a folder with one) describes; its id is the folder's name.

    Raises ConfigError for a file that is not there or not JSON, an unknown architecture, a missing or senseless key.
    """
    file = path / "config.json" if is_config(path) else path
    try:
        with opened(file) as held:
            text = held.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ConfigError(file, "", f"larger than {MOST_BYTES / 1e6:g} MB")
        keys = json.loads(text.decode("utf-8-sig"), parse_constant=_nonsense)
    except OSError as error:
        raise ConfigError(file, "", error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise ConfigError(file, "", f"no UTF-8 text (byte {error.start})") from error
    except RecursionError as error:
        raise ConfigError(file, "", "not JSON: nested too deeply") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(file, "", f"not JSON: {error}") from error
    if not isinstance(keys, dict):
        raise ConfigError(file, "", "not a JSON object")
    if isinstance(keys.get("text_config"), dict):
        keys = {**keys, **keys["text_config"]}
    kind = keys.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise ConfigError(file, "model_type", f"{_shown(kind)} is not known; known are {', '.join(sorted(READERS))}")
    config = Config(file, keys)
    fields = READERS[kind](config)
    folder = file.resolve().parent.name
    name = config.get("_name_or_path", str, "") or folder
    dimensions = {"source": "hf_config", "where": file.name, "kind": "quoted"}
    try:
        return Model(
            id=_printable(folder),
            name=_printable(name),
            family=kind,
            dimensions=dimensions,
            native_dtype=_native_dtype(config),
            **fields,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(file, ".".join(str(part) for part in first["loc"]), first["msg"]) from error


def _native_dtype(config: Config) -> str:
    method = config.get("quantization_config", dict, {}).get("quant_method")
    if method in ("fp8", "mxfp4"):
        return "float8" if method == "fp8" else "mxfp4"
    dtype = config.get("torch_dtype", str, config.get("dtype", str, "bfloat16"))
    return "float16" if dtype == "float16" else "bfloat16"


def _llama(config: Config, tied: bool = False) -> Fields:
    heads, hidden = config.count("num_attention_heads"), config.count("hidden_size")
    return {
        "layers": config.count("num_hidden_layers"),
        "hidden": hidden,
        "intermediate": config.count("intermediate_size"),
        "heads": heads,
        "kv_heads": config.whole("num_key_value_heads", heads),
        "head_dim": config.whole("head_dim", hidden // heads),
        "vocab": config.count("vocab_size"),
        "max_context": config.count("max_position_embeddings"),
        "tie_embeddings": config.flag("tie_word_embeddings", tied),
        "qkv_bias": config.flag("attention_bias"),
    }


def _sliding(config: Config, every: Callable[[int], int]) -> Fields:
    """Window facts: counted in `layer_types` where it is there, else by the architecture's rule."""
    window, kinds = config.whole("sliding_window", 0), config.get("layer_types", list, [])
    if not window:
        return {}
    layers = kinds.count("sliding_attention") if kinds else max(0, every(config.count("num_hidden_layers")))
    return {"sliding_window": window, "sliding_window_layers": layers} if layers else {}


def _mistral(config: Config) -> Fields:
    return _llama(config) | _sliding(config, lambda layers: layers)


def _qwen2(config: Config) -> Fields:
    window = _sliding(config, lambda layers: layers - config.whole("max_window_layers", layers))
    return _llama(config) | {"qkv_bias": True} | (window if config.flag("use_sliding_window") else {})


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
    shared = config.whole("shared_expert_intermediate_size", 0) // config.count("moe_intermediate_size")
    return _qwen2(config) | _moe(config, "num_experts", "moe_intermediate_size", shared_experts=shared)


def _qwen3_moe(config: Config) -> Fields:
    return _qwen3(config) | _moe(config, "num_experts", "moe_intermediate_size")


def _mixtral(config: Config) -> Fields:
    return _mistral(config) | _moe(config, "num_local_experts", "intermediate_size")


def _deepseek(config: Config) -> Fields:
    nope, rope = config.count("qk_nope_head_dim"), config.count("qk_rope_head_dim")
    mla = {
        "q_lora_rank": config.whole("q_lora_rank", 0) or None,
        "kv_lora_rank": config.count("kv_lora_rank"),
        "qk_nope_head_dim": nope,
        "qk_rope_head_dim": rope,
        "v_head_dim": config.count("v_head_dim"),
    }
    return _llama(config) | {"head_dim": nope + rope, "mla": mla} | _shared_moe(config)


def _shared_moe(config: Config) -> Fields:
    shared, dense = config.whole("n_shared_experts", 0), config.whole("first_k_dense_replace", 0)
    return _moe(config, "n_routed_experts", "moe_intermediate_size", shared_experts=shared, dense_layers=dense)


def _gemma2(config: Config) -> Fields:
    return _llama(config, tied=True) | {"norms_per_layer": 4} | _sliding(config, lambda layers: layers // 2)


def _gemma3(config: Config) -> Fields:
    period = config.whole("sliding_window_pattern", 6) or 6
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
    return _llama(config) | {"qk_norm": config.flag("use_qk_norm")} | _shared_moe(config)


def _plain_mlp(config: Config) -> Fields:
    """GPT-NeoX and its like: two-matrix feed-forward, biases everywhere, LayerNorm."""
    return _llama(config) | {"gated_mlp": False, "linear_bias": True, "qkv_bias": False, "norm_bias": True}


def _starcoder2(config: Config) -> Fields:
    biases = {"linear_bias": config.flag("use_bias", True), "tie_embeddings": config.flag("tie_word_embeddings", True)}
    return _plain_mlp(config) | biases | _sliding(config, lambda layers: layers)


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
