"""How a checkpoint stores its weights, by `quantization_config`.

A format that is not known here keeps its own name: then the model resolves with any `quantization` but `none`.
"""

from sim.catalogue.hf_config.config import Config, Fields

MXFP4_PACKED = "mxfp4-pack-quantized"
"""Format of compressed-tensors whose weights are mxfp4 (experts of Kimi-K3)."""
CHANNEL = -1
"""The group that stands for a whole channel."""
INTEGERS = {
    (4, 128): "gptq-int4",
    (4, 32): "int4-g32",
    (4, CHANNEL): "int4-wo",
    (8, 128): "gptq-int8",
    (8, CHANNEL): "int8-w8a16",
}
"""By bits and group: formats of weights that are computed at 16 bit."""
MLX = {("affine", 4, 64): "mlx-4bit", ("affine", 8, 64): "mlx-8bit"}
"""By mode, bits and group."""
MLX_WIDER = ("gate", "router")
"""Parts of the names of small matrices to which MLX gives more bits than to the rest."""
UNNAMED = "a quantization_config without quant_method"
EIGHT_BITS = {("float", True): "fp8", ("float", False): "fp8", ("int", True): "int8-w8a8", ("int", False): "int8-w8a16"}
"""By type, and whether activations are quantised: formats with a scale for a channel or tensor."""


def stored(config: Config) -> Fields:
    """`native_dtype`, and `native_quantization` where that does not tell the format."""
    keys = Config(config.path, config.get("quantization_config", dict, {}) or config.get("quantization", dict, {}))
    method = keys.get("quant_method", str, UNNAMED if keys.keys else "")
    dtype = config.get("torch_dtype", str, config.get("dtype", str, "bfloat16"))
    usual = {"native_dtype": "float16" if dtype == "float16" else "bfloat16"}
    if method == "mxfp4" or keys.keys.get("format") == MXFP4_PACKED:
        return {"native_dtype": "mxfp4"}
    if keys.keys.get("moe_quant_algo") == "NVFP4" and method == "fp8":
        return usual | {"native_quantization": "nvfp4-fp8"}
    if config.keys.get("expert_dtype") == "fp4":
        return {"native_dtype": "mxfp4"} | ({"native_quantization": "mxfp4-fp8"} if method == "fp8" else {})
    if method == "fp8" and keys.keys.get("weight_block_size"):
        return {"native_dtype": "float8"}
    return usual | ({"native_quantization": _format(keys, method, _mixture(config))} if method else {})


def _mixture(config: Config) -> bool:
    return any(config.keys.get(key) for key in ("n_routed_experts", "num_experts", "num_local_experts"))


def _format(keys: Config, method: str, mixture: bool) -> str:
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8"
    if method == UNNAMED and keys.keys.get("bits") is not None:
        return _of_mlx(keys)
    if method == "quark":
        return _of_quark(keys, mixture) or method
    if method in ("awq", "gptq", "auto-round"):
        width = keys.whole("bits", 4)
        group = CHANNEL if keys.keys.get("group_size") == CHANNEL else keys.whole("group_size", 128)
        usual = "awq-int4" if method == "awq" and (width, group) == (4, 128) else ""
        return usual or INTEGERS.get((width, group), f"{method}, {width} bits in groups of {group}")
    if method == "modelopt":
        algorithm = keys.get("quant_algo", str, "")
        mixed = _of_layers(keys, mixture) if algorithm == "MIXED_PRECISION" else ""
        return mixed or _of_algorithm(algorithm, _spared(keys, mixture)) or method
    return _of_groups(keys, _spared(keys, mixture)) or method if method == "compressed-tensors" else method


def _of_mlx(keys: Config) -> str:
    """MLX names no method; matrices with other bits stand beside, by name."""
    width, group = keys.whole("bits", 4), keys.whole("group_size", 64)
    mode = keys.get("mode", str, "affine")
    others = [
        name
        for name, how in keys.keys.items()
        if isinstance(how, dict) and how.get("bits") != width and not any(part in name for part in MLX_WIDER)
    ]
    mixed = ", mixed" if others else ""
    known = "" if mixed else MLX.get((mode, width, group), "")
    return known or f"MLX's {mode}, {width} bits in groups of {group}{mixed}"


def _of_quark(keys: Config, mixture: bool) -> str:
    """AMD's: one format for all linear layers but those that are left out."""
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
    """Model Optimizer's mixtures, by layer: feed-forward blocks or experts in nvfp4, what stands beside them in 8-bit
    floats.
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
    """What is added to a format's name where attention is left at 16 bit."""
    left_out = [name for key in ("ignore", "exclude_modules", "exclude") for name in keys.get(key, list, [])]
    attention = any(isinstance(name, str) and "attn" in name for name in left_out)
    return "" if not attention else "-experts" if mixture else "-mlp"
