"""The keys of one config.json under their published names, each checked as a reader asks for it.

`as_published` gives configs that transformers 5 has saved the keys and layer names of the published ones. Read in
transformers 5.23: `_LEGACY_LAYER_TYPE_REMAP` in configuration_utils.py, `attribute_map` and `__post_init__` of the
models' configuration files.
"""

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

Fields = dict[str, Any]
Kind = TypeVar("Kind", bool, str, dict[str, Any], list[Any])

LARGEST = 1_000_000_000
"""Of all counts and sizes; more is no model's."""
_NEEDED: dict[type[Any], str] = {bool: "true or false", str: "text", dict: "a mapping", list: "a list"}


class ConfigError(ValueError):
    """A config.json that cannot be read as a language model: file, key, what is wrong."""

    def __init__(self, path: Path, key: str, message: str) -> None:
        self.path, self.key, self.message = path, key, message
        super().__init__(f"{path}: {key}: {message}" if key else f"{path}: {message}")

    def __reduce__(self) -> Any:
        return type(self), (self.path, self.key, self.message)


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
            raise ConfigError(self.path, key, f"{_NEEDED[kind]} is needed, not {shown(value)}")
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

    def check_divides(self, key: str, part: int, whole: int) -> None:
        """Raises ConfigError unless *whole* is cut evenly by *part*, the value of *key*."""
        if whole % part:
            raise ConfigError(self.path, key, f"{part} does not divide {whole}")

    def no_step_time(self, key: str, what: str) -> "ConfigError":
        """The refusal of a model for the part that *key* asks for."""
        return ConfigError(self.path, key, f"{what} cannot be costed: no step time is known for it here")


def _checked(path: Path, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        needed = "a positive whole number" if least else "a whole number from 0"
        raise ConfigError(path, key, f"{needed} is needed, not {shown(value)}")
    if value > LARGEST:
        raise ConfigError(path, key, f"at most {LARGEST:,} is believed, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """The beginning of it: no more of a hostile value is formatted."""
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
"""Published key -> the key that stands in its place."""
STATES = {"linear_attention": "mamba", "full_attention": "attention"}
"""What layers of Mamba-2 stacks are called now -> in published configs."""
ENTRIES = ("compressed_sparse_attention", "heavily_compressed_attention")
"""DeepSeek-V4's layers with compressed entries; the others see a window."""
SPARSE = {
    "sparse_block_size": "index_block_size",
    "sparse_topk_blocks": "index_topk_blocks",
    "sparse_num_index_heads": "index_n_heads",
    "sparse_index_dim": "index_head_dim",
}
"""Of MiniMax-M3."""


def as_published(keys: Fields) -> Fields:
    """*keys*, and under their published names those that are told in another way."""
    found = {ours: keys[theirs] for ours, theirs in RENAMED.items() if theirs in keys}
    if blocks := _listed(keys, "mlp_layer_types"):
        found["first_k_dense_replace"] = len(list(takewhile(lambda one: one == "dense", blocks)))
    told = OF_KINDS.get(str(keys.get("model_type")))
    found |= told(keys) if told else {}
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
    """Its `head_dim` has become that of the rotary part."""
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
    """No layer is dense, and the width of such a one has gone."""
    return {"intermediate_size": keys.get("moe_intermediate_size")}


OF_KINDS: dict[str, Callable[[Fields], Fields]] = {
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
"""By `model_type`."""
