"""Reading of a model's dimensions and stored number formats from its Hugging Face `config.json`.

`model_from_config` chooses a reader by `model_type`. Most readers differ from that of Llama in a few facts that the
config leaves to the code (biases, norms, sliding layers). Keys with a default in transformers may be missing; any other
missing key is an error naming it. Architectures with a part that has no step time are refused, naming the part.
`stored` returns the formats in which a quantised checkpoint stores its tensors.
"""

import json
import os
import re
from difflib import get_close_matches
from pathlib import Path

from pydantic import ValidationError

from sim.catalogue.hf_config.config import Config, ConfigError, Fields, as_published, shown
from sim.catalogue.hf_config.full_attention import PLAIN, RECENT, WINDOWED
from sim.catalogue.hf_config.mixed_attention import GATED, HYBRID, MIXED
from sim.catalogue.model import Model
from sim.infile import opened
from sim.message import OR, Message, joined

MXFP4_PACKED = "mxfp4-pack-quantized"
"""Format of compressed-tensors whose weights are mxfp4 (experts of Kimi-K3)."""
CHANNEL = -1
"""Group size that means one group per channel."""
INTEGERS = {
    (4, 128): "gptq-int4",
    (4, 32): "int4-g32",
    (4, CHANNEL): "int4-wo",
    (8, 128): "gptq-int8",
    (8, CHANNEL): "int8-w8a16",
}
"""Formats of integer weights computed at 16 bits, by bits and group size."""
MLX = {("affine", 4, 64): "mlx-4bit", ("affine", 8, 64): "mlx-8bit"}
"""Formats of MLX, by mode, bits and group size."""
MLX_WIDER = ("gate", "router")
"""Parts of the names of small matrices that MLX stores with more bits than the rest."""
NO_QUANT_METHOD = "a quantization_config without quant_method"
EIGHT_BITS = {("float", True): "fp8", ("float", False): "fp8", ("int", True): "int8-w8a8", ("int", False): "int8-w8a16"}
"""Formats with a scale per channel or tensor, by number type and whether activations are quantised."""


def stored(config: Config) -> Fields:
    """Return `native_dtype`, and `native_quantization` where the former does not determine the format."""
    keys = Config(config.path, config.get("quantization_config", dict, {}) or config.get("quantization", dict, {}))
    method = keys.get("quant_method", str, NO_QUANT_METHOD if keys.keys else "")
    dtype = config.get("torch_dtype", str, config.get("dtype", str, "bfloat16"))
    usual = {"native_dtype": "float16" if dtype == "float16" else "bfloat16"}
    if method == "mxfp4" or keys.keys.get("format") == MXFP4_PACKED:
        return {"native_dtype": "mxfp4"}
    if keys.keys.get("moe_quant_algo") == "NVFP4" and method == "fp8":
        return usual | {"native_quantization": "nvfp4-fp8"}
    if "fp4" in (config.keys.get("expert_dtype"), keys.keys.get("expert_dtype")):
        return {"native_dtype": "mxfp4"} | ({"native_quantization": "mxfp4-fp8"} if method == "fp8" else {})
    if method == "fp8" and keys.keys.get("weight_block_size"):
        return {"native_dtype": "float8"}
    return usual | ({"native_quantization": _format(keys, method, _mixture(config))} if method else {})


def _mixture(config: Config) -> bool:
    return any(config.keys.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))


def _format(keys: Config, method: str, mixture: bool) -> str:
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method == NO_QUANT_METHOD and keys.keys.get("bits") is not None:
        return _of_mlx(keys)
    if method == "quark":
        return _of_quark(keys, mixture) or method
    if method in ("awq", "gptq", "auto-round"):
        width = keys.whole("bits", 4)
        group = CHANNEL if keys.keys.get("group_size") == CHANNEL else keys.whole("group_size", 128)
        usual = "awq-int4" if method == "awq" and (width, group) == (4, 128) else ""
        return usual or INTEGERS.get(
            (width, group), Message("{method}, {bits} bits in groups of {group}", method, width, group)
        )
    if method == "modelopt":
        algorithm = keys.get("quant_algo", str, "")
        mixed = _of_layers(keys, mixture) if algorithm == "MIXED_PRECISION" else ""
        return mixed or _of_algorithm(algorithm, _spared(keys, mixture)) or method
    return _of_groups(keys, _spared(keys, mixture)) or method if method == "compressed-tensors" else method


def _of_mlx(keys: Config) -> str:
    """Return the format of an MLX checkpoint, which names no method; matrices with other bits are listed by name."""
    width, group = keys.whole("bits", 4), keys.whole("group_size", 64)
    mode = keys.get("mode", str, "affine")
    others = [
        name
        for name, how in keys.keys.items()
        if isinstance(how, dict) and how.get("bits") != width and not any(part in name for part in MLX_WIDER)
    ]
    mixed = ", mixed" if others else ""
    known = "" if mixed else MLX.get((mode, width, group), "")
    return known or Message("MLX's {mode}, {bits} bits in groups of {group}{mixed}", mode, width, group, mixed)


def _of_quark(keys: Config, mixture: bool) -> str:
    """Return the format of an AMD Quark checkpoint with one format for all linear layers that are not excluded."""
    whole = Config(keys.path, keys.get("global_quant_config", dict, {}))
    if keys.keys.get("layer_quant_config"):
        return ""
    weights = Config(keys.path, whole.get("weight", dict, {}))
    match weights.get("dtype", str, ""), _spared(keys, mixture):
        case "fp8_e4m3", "":
            return "fp8" if whole.keys.get("input_tensors") else ""
        case "fp4", spared if weights.whole("group_size", 0) == 32:
            return {"": "mxfp4-linear", "-experts": "mxfp4"}.get(spared, "")
    return ""


def _of_layers(keys: Config, mixture: bool) -> str:
    """Return the format of a Model Optimizer checkpoint with several formats, listed per layer.

    Recognised are feed-forward blocks or experts in nvfp4, with all other layers in 8-bit floats.
    """
    layers = keys.get("quantized_layers", dict, {})
    formats: dict[bool, set[str]] = {True: set(), False: set()}
    for name, how in layers.items():
        layer = Config(keys.path, how if isinstance(how, dict) else {})
        formats["experts" in name or (not mixture and ".mlp." in name)].add(layer.get("quant_algo", str, ""))
    if not formats[False] & {"FP8", "MXFP8"}:
        return ""
    if any(one.startswith("W4A16") for one in formats[True]):
        return "nvfp4-w4a16"
    return "nvfp4-fp8" if mixture and any("NVFP4" in one for one in formats[True]) else ""


def _of_algorithm(algorithm: str, spared: str) -> str:
    return {"FP8": "fp8", "NVFP4": f"nvfp4{spared}"}.get(algorithm, "")


def _of_groups(keys: Config, spared: str) -> str:
    groups = keys.get("config_groups", dict, {})
    if len(groups) != 1 or not isinstance(first := next(iter(groups.values())), dict):
        return ""
    group = Config(keys.path, first)
    weights = Config(keys.path, group.get("weights", dict, {}))
    kind, size, activations = (
        weights.get("type", str, ""),
        weights.whole("group_size", 0),
        bool(group.keys.get("input_activations")),
    )
    match weights.whole("num_bits", 0):
        case 4 if kind == "float" and size == 16:
            return f"nvfp4{spared}"
        case 4 if kind == "int" and activations:
            return "w4a8" if size == 128 else ""
        case 4 if kind == "int" and spared:
            return f"int4{spared}" if size == 32 else ""
        case 8 if kind in ("float", "int") and not size:
            return "fp8-block" if weights.keys.get("strategy") == "block" else EIGHT_BITS[kind, activations]
        case bits if kind == "int" and not activations:
            return INTEGERS.get((bits, size), "")
    return ""


def _spared(keys: Config, mixture: bool) -> str:
    """Return the suffix of the format's name if the checkpoint's attention stays at 16 bits; else empty."""
    left_out = [name for key in ("ignore", "exclude_modules", "exclude") for name in keys.get(key, list, [])]
    attention = any(isinstance(name, str) and "attn" in name for name in left_out)
    return "" if not attention else "-experts" if mixture else "-mlp"


REFUSED: dict[str, tuple[str, str]] = {
    "bailing_moe_linear": ("layer_group_size", "lightning attention"),
    "bailing_moe_v2_5": ("layer_group_size", "lightning attention"),
    "dots3_note": ("swa_kv_lora_rank", "latents of two sizes"),
    "falcon_mamba": ("state_size", "Mamba"),
    "gemma3n": ("hidden_size_per_layer_input", "an embedding for every layer"),
    "gemma3n_text": ("hidden_size_per_layer_input", "an embedding for every layer"),
    "glm5_next": ("hc_mult", "hyper-connections beside Kimi Delta Attention"),
    "glm5_next_text": ("hc_mult", "hyper-connections beside Kimi Delta Attention"),
    "hy_v4": ("hc_mult", "hyper-connections around latent attention"),
    "inkling_model": ("use_sconv", "short convolutions beside attention"),
    "interns2_mobius": ("num_blocks", "experts that layers share"),
    "interns2_mobius_text": ("num_blocks", "experts that layers share"),
    "iquestloopcoder": ("loop_num", "layers that run several times"),
    "iquestpltcoder": ("plt_num_loops", "layers that run several times"),
    "jamba": ("attn_layer_period", "Mamba"),
    "mamba": ("state_size", "Mamba"),
    "mamba2": ("state_size", "a stack without attention"),
    "minicpm_sala": ("mixer_types", "lightning attention"),
    "minimax": ("layer_types", "lightning attention"),
    "minimax_text_01": ("attn_type_list", "lightning attention"),
    "mllama_text_model": ("cross_attention_layers", "attention to an image"),
    "nemotron-nas": ("block_configs", "layers of different sizes"),
    "nemotron_h_puzzle": ("block_configs", "layers of different sizes"),
    "plamo2": ("mamba_step", "PLaMo's variant of Mamba"),
    "qwen4_exp": ("hc_count", "hyper-connections and embeddings of n-grams"),
    "qwen4_exp_text": ("hc_count", "hyper-connections and embeddings of n-grams"),
    "recurrent_gemma": ("block_types", "recurrent blocks"),
    "step3_text": ("share_q_dim", "queries through a latent beside plain keys"),
    "telechat4": ("num_residual_streams", "hyper-connections around latent attention"),
    "xing4_0": ("num_residual_streams", "hyper-connections around latent attention"),
    "zamba2": ("layers_block_type", "attention that layers share"),
    "zaya": ("cca", "attention in a convolved latent"),
}
"""Refused architectures by `model_type`: the config key of the part without a step time, and the part's name."""


READERS = {**PLAIN, **MIXED, **RECENT, **HYBRID, **GATED, **WINDOWED}
"""Readers by `model_type`."""

KINDS = (
    *("full_attention", "attention", "sliding_attention", "chunked_attention"),
    *("indexed_attention", "deepseek_sparse_attention", "minimax_m3_sparse"),
    *("compressed_sparse_attention", "heavily_compressed_attention"),
)
STATES = ("linear_attention", "mamba", "conv")
"""Layer types with recurrent states, or the last inputs of a convolution, in `layer_types`."""
MOST_BYTES = 8_000_000
LONGEST_NAME = 200
INSIDE = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which multimodal models store the config of their language model."""
QUANTIZED = "hf_quant_config.json"
"""File in which Model Optimizer writes the weights' format, if it is not in config.json."""


def _printable(text: str) -> str:
    """Return *text* cleaned for use as a name in tables and pages."""
    return "".join(one if one.isprintable() else "?" for one in text[:LONGEST_NAME]) or "model"


def is_config(path: Path) -> bool:
    """Return whether *path* is a folder that contains a config.json."""
    try:
        return (path / "config.json").is_file()
    except OSError:  # the name is too long, or the folder is not accessible
        return False


def hub_copy(name: str) -> Path | None:
    """Return the newest config.json of *name* in the local cache of the Hugging Face Hub; None if there is none.

    *name* is a repository, organisation/model, or its last part. The cache is `HF_HUB_CACHE`, else hub/ in `HF_HOME`,
    else in ~/.cache/huggingface.
    """
    if not re.fullmatch(r"(\w[\w.-]*/)?\w[\w.-]*", name):
        return None
    organisation, _, model = name.rpartition("/")
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    found = cache.glob(f"models--{organisation or '*'}--{model}/snapshots/*/config.json")
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def model_from_config(path: Path) -> Model:
    """Return the model described by *path*, a config.json or its folder; its id is the folder's name.

    Raises
    ------
    ConfigError
        The file is missing or not JSON, the architecture is unknown, or a key is missing or invalid.

    """
    file = path / "config.json" if is_config(path) else path
    keys = _read(file)
    if "quantization_config" not in keys and (beside := file.with_name(QUANTIZED)).is_file():
        keys["quantization_config"] = {"quant_method": "modelopt"} | Config(beside, _read(beside)).get(
            "quantization", dict, {}
        )
    while inner := next((keys.pop(name) for name in INSIDE if isinstance(keys.get(name), dict)), None):
        keys = {**keys, **inner}
    kind = keys.get("model_type")
    if kind is None:
        raise ConfigError(file, "model_type", "missing")
    for name in (kind, kind.removesuffix("_text")) if isinstance(kind, str) else ():
        if name in REFUSED and kind not in READERS:
            raise Config(file, keys).no_step_time(*REFUSED[name])
    if not isinstance(kind, str) or kind not in READERS:
        near = get_close_matches(shown(kind).strip("'"), READERS, n=3)
        hint = Message("; did you mean {near}?", joined(OR, near)) if near else ""
        raise ConfigError(
            file, "model_type", Message("the architecture {name} is not supported{hint}", shown(kind), hint)
        )
    config = Config(file, as_published(keys))
    fields = READERS[kind](config)
    _check_layers(config, bool(fields.get("linear_attention_layers")))
    folder = file.resolve().parent.name
    name = config.get("_name_or_path", str, "") or folder
    dimensions = {"source": "hf_config", "where": file.name, "kind": "quoted", "note": fields.pop("note", "")}
    try:
        return Model(
            id=_printable(folder),
            name=_printable(name),
            family=kind,
            dimensions=dimensions,
            **stored(config),
            **fields,
        )
    except ValidationError as error:
        first = error.errors()[0]
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(file, ".".join(str(part) for part in first["loc"]), message) from error


def _check_layers(config: Config, with_states: bool) -> None:
    """Raise ConfigError if `layer_types` contains an unknown type; *with_states*: the reader supports states."""
    kinds = config.get("layer_types", list, [])
    layers = config.keys.get("num_hidden_layers")
    unknown = [one for one in kinds if one not in KINDS and not (with_states and one in STATES)]
    if unknown:
        raise config.no_step_time("layer_types", shown(unknown[0]))
    if kinds and isinstance(layers, int) and len(kinds) < layers:
        raise ConfigError(
            config.path, "layer_types", Message("{count} entries for {layers} layers", len(kinds), layers)
        )


def _read(file: Path) -> Fields:
    """Return the keys of the JSON object in *file*. Raises ConfigError."""
    try:
        with opened(file) as stream:
            text = stream.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ConfigError(file, "", Message("larger than {limit:g} MB", MOST_BYTES / 1e6))
        # Configs of Nemotron 3 contain Infinity; as text it is rejected where a number is needed.
        keys = json.loads(text.decode("utf-8-sig"), parse_constant=str)
    except OSError as error:
        raise ConfigError(file, "", error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise ConfigError(file, "", Message("no UTF-8 text (byte {position})", error.start)) from error
    except RecursionError as error:
        raise ConfigError(file, "", "not JSON: nested too deeply") from error
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(file, "", Message("not JSON: {error}", error)) from error
    if not isinstance(keys, dict):
        raise ConfigError(file, "", "not a JSON object")
    return keys
