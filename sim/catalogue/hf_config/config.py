"""Keys of one config.json under their published names, each checked when a reader reads it.

`as_published` gives configs saved by transformers 5 the keys and layer names of the published ones. Based on
transformers 5.23: `_LEGACY_LAYER_TYPE_REMAP` in configuration_utils.py, `attribute_map` and `__post_init__` of the
models' configuration files.
"""

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from sim.message import OR, Message, joined, placed

Fields = dict[str, Any]
Kind = TypeVar("Kind", bool, str, dict[str, Any], list[Any])

LARGEST = 1_000_000_000
"""Upper limit of all counts and sizes; larger values are rejected as errors."""
_TYPE_NAMES: dict[type[Any], str] = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}


class ConfigError(ValueError):
    """A config.json that cannot be read as a language model; the message gives file, key and reason."""

    def __init__(self, path: Path, key: str, message: str) -> None:
        self.path, self.key, self.message = path, key, message
        super().__init__(placed(path, placed(key, message) if key else message))

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.key, self.message)


class Config:
    """Keys of one config.json, with checked access."""

    def __init__(self, path: Path, keys: Fields) -> None:
        self.path = path
        self.keys = keys

    def get(self, key: str, kind: type[Kind], default: Kind) -> Kind:
        """Return the value of *key*, checked to be of type *kind*; *default* if missing or null. Raises ConfigError."""
        value = self.keys.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise ConfigError(
                self.path, key, Message("{needed} is needed, not {value}", _TYPE_NAMES[kind], shown(value))
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """Return the boolean value of *key*; *default* if missing or null. Raises ConfigError."""
        return self.get(key, bool, default)

    def whole(self, key: str, default: int) -> int:
        """Return the value of *key*, a whole number from 0; *default* if missing or null. Raises ConfigError."""
        return default if self.keys.get(key) is None else _checked_number(self.path, key, self.keys[key], 0)

    def count(self, *names: str) -> int:
        """Return the value of the first key of *names* that is present, a positive whole number. Raises ConfigError."""
        for name in names:
            value = self.keys.get(name)
            if value is not None:
                return _checked_number(self.path, name, value, 1)
        raise ConfigError(self.path, joined(OR, names), "missing")

    def check_divides(self, key: str, part: int, whole: int) -> None:
        """Raise ConfigError unless *part*, the value of *key*, divides *whole* evenly."""
        if whole % part:
            raise ConfigError(self.path, key, Message("{part} does not divide {whole}", part, whole))

    def no_step_time(self, key: str, what: str) -> "ConfigError":
        """Return the error for a model with a part, requested by *key*, for which no step time is known."""
        return ConfigError(self.path, key, Message("{part} cannot be costed: no step time is known for it here", what))


def _checked_number(path: Path, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        needed = "a positive whole number" if least else "a whole number from 0"
        raise ConfigError(path, key, Message("{needed} is needed, not {value}", needed, shown(value)))
    if value > LARGEST:
        raise ConfigError(path, key, Message("at most {largest:,} is accepted, not {value}", LARGEST, shown(value)))
    return value


def shown(value: Any) -> str:
    """Return *value* for a message, shortened so that hostile values are not formatted in full."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, int) and abs(value) > LARGEST**2:
        return "a number of many digits"
    return repr(value)[:40]


RENAMED = {
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_token",
    "max_position_embeddings": "model_max_length",
}
"""Published key -> key that replaces it in transformers 5."""
STATES = {"linear_attention": "mamba", "full_attention": "attention"}
"""Layer type of Mamba-2 stacks in transformers 5 -> in published configs."""
ENTRIES = ("compressed_sparse_attention", "heavily_compressed_attention")
"""Types of DeepSeek-V4's layers with compressed entries; other layers have a window only."""
SPARSE = {
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
}
"""Published key -> transformers 5 key of MiniMax-M3's sparse attention."""


def as_published(keys: Fields) -> Fields:
    """Return *keys* completed with the published names of keys that transformers 5 stores differently."""
    found = {ours: keys[theirs] for ours, theirs in RENAMED.items() if theirs in keys}
    if blocks := _listed(keys, "mlp_layer_types"):
        found["first_k_dense_replace"] = len(list(takewhile(lambda one: one == "dense", blocks)))
    restore = RESTORED_BY_MODEL_TYPE.get(str(keys.get("model_type")))
    found |= restore(keys) if restore else {}
    renamed = {name: found[name] for name in ("layer_types", "layers_block_type", "head_dim") if name in found}
    return found | keys | renamed


def _listed(keys: Fields, name: str) -> list[Any]:
    value = keys.get(name)
    return value if isinstance(value, list) else []


def _mamba2(keys: Fields) -> Fields:
    names = [name for name in ("layer_types", "layers_block_type") if _listed(keys, name)]
    return {name: [STATES.get(str(one), one) for one in keys[name]] for name in names}


def _deepseek_v4(keys: Fields) -> Fields:
    rates = keys.get("compress_rates")
    if not isinstance(rates, dict):
        return {}
    return {"compress_ratios": [rates.get(one) if one in ENTRIES else 0 for one in _listed(keys, "layer_types")]}


def _kimi_linear(keys: Fields) -> Fields:
    states = [number for number, one in enumerate(_listed(keys, "layer_types")) if one == "linear_attention"]
    sizes = {"num_heads": "linear_num_heads", "head_dim": "linear_head_dim"}
    sizes |= {"short_conv_kernel_size": "linear_conv_kernel_dim"}
    linear = {ours: keys.get(theirs) for ours, theirs in sizes.items()}
    return {"linear_attn_config": linear | {"kda_layers": states}} if states else {}


def _bailing_hybrid(keys: Fields) -> Fields:
    """Return the published `head_dim`; the saved key of that name is the width of the rotary part."""
    return {"head_dim": keys["linear_head_dim"]} if "linear_head_dim" in keys else {}


def _mimo_v2(keys: Fields) -> Fields:
    kinds, blocks = _listed(keys, "layer_types"), _listed(keys, "mlp_layer_types")
    windows = {"hybrid_layer_pattern": [int(one == "sliding_attention") for one in kinds]} if kinds else {}
    return windows | ({"moe_layer_freq": [int(one != "dense") for one in blocks]} if blocks else {})


def _minimax_m3(keys: Fields) -> Fields:
    sparse = [int(one == "minimax_m3_sparse") for one in _listed(keys, "layer_types")]
    inner, shared = keys.get("intermediate_size"), keys.get("shared_intermediate_size")
    found: Fields = {"use_qk_norm": True}
    if isinstance(inner, int) and isinstance(shared, int) and inner:
        found["n_shared_experts"] = shared // inner
    if any(sparse):
        sizes = {ours: keys.get(theirs) for ours, theirs in SPARSE.items()}
        found["sparse_attention_config"] = sizes | {"use_sparse_attention": True, "sparse_attention_freq": sparse}
    return found


def _step(keys: Fields) -> Fields:
    windowed = {"num_attention_heads": keys.get("num_sliding_attention_heads")}
    return {"moe_num_experts": keys.get("n_routed_experts"), "attention_other_setting": windowed}


def _solar_open(keys: Fields) -> Fields:
    """Return the published `intermediate_size`; no layer is dense, so the saved config omits it."""
    return {"intermediate_size": keys.get("moe_intermediate_size")}


RESTORED_BY_MODEL_TYPE: dict[str, Callable[[Fields], Fields]] = {
    "bailing_hybrid": _bailing_hybrid,
    "deepseek_v4": _deepseek_v4,
    "granitemoehybrid": _mamba2,
    "kimi_linear": _kimi_linear,
    "mimo_v2_flash": _mimo_v2,
    "minimax_m3_vl_text": _minimax_m3,
    "nemotron_h": _mamba2,
    "solar_open": _solar_open,
    "step3p5": _step,
    "step3p7": _step,
}
"""Functions that restore published keys, by `model_type`."""
