"""What a row of a training table names: card, network, precision, links."""

import re

from sim.benchdata.training import TrainingRow
from sim.catalogue.catalog import Catalog, UnknownId
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.hf_config import ConfigError
from sim.catalogue.entries.link import Link
from sim.study.fidelity.validate.aliases import model_of
from sim.training.figures import TrainedNetwork, TrainingData
from sim.training.job import Method, Precision
from sim.training.named import trained_network
from sim.training.network import Network, of_dimensions, of_model, of_size

GPUS = {
    "a100-40gb": "a100-40gb-sxm",
    "a100-80gb": "a100-80gb-sxm",
    "h100-80gb": "h100-80gb-sxm",
    "h100-sxm-96gb": "h100-80gb-sxm",
    "h200-nvl-141gb": "h200-141gb-sxm",
    "v100-16gb": "v100-16gb-sxm2",
    "v100-32gb": "v100-32gb-sxm2",
    "h200-sxm-141gb": "h200-141gb-sxm",
    "b200-sxm-180gb": "b200-180gb-sxm",
    "h100-nvl-94gb": "h100-94gb-nvl",
    "gb300": "b300-288gb-sxm",
    "gh200-96gb": "gh200-96gb",
}
"""Names of training tables that leave out the form factor, or name a card whose chip another entry holds."""
MODELS = {
    "deepseekv3": "deepseek-v3",
    "deepseek v3 671b": "deepseek-v3",
    "qwen3 moe 30b": "qwen3-30b-a3b",
    "kimi k2": "kimi-k2.5",
    "kimi_k2": "kimi-k2.5",
    "llama-4-scout moe": "llama4-scout",
    "llama-4-maverick moe": "llama4-maverick",
}
"""Names of training tables -> models of the catalogue."""
PRECISIONS: dict[str, Precision] = {
    "fp32": "fp32",
    "tf32": "tf32",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "nvfp4": "nvfp4",
    "float32": "fp32",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float8": "fp8",
    "mxfp8": "fp8",
    "amp": "fp16",
    "mixed": "bf16",
}
STORED = re.compile(r"(nf4|fp4|int4|4bit|int8|8bit)\+")
"""Storage of frozen weights in front of the precision that is computed in: `int4+bf16`, as bitsandbytes has it."""
FOUR_BITS = ("nf4", "fp4", "int4", "4bit")
DIMENSIONS = {
    name: re.compile(rf"\b{word} 0*([1-9]\d{{0,8}})\b", re.ASCII)
    for name, word in {
        "layers": "layers",
        "hidden": "hidden",
        "heads": "heads",
        "vocab": "vocab",
        "kv_heads": "kv",
        "intermediate": "ffn",
    }.items()
}
LANGUAGE = (
    "llama",
    "gpt-large",
    "gpt2",
    "mpt",
    "qwen",
    "moe",
    "nemotron",
    "mistral",
    "gemma",
    "phi",
    "falcon",
    "deepseek",
)
"""Families of language models."""
OTHER_TASKS = re.compile(r"image|vision|detection|segmentation|diffusion|speech|audio|video|recommend", re.IGNORECASE)
"""Tasks whose network is no language model."""
GATED_FAMILIES = ("llama", "qwen", "mistral")
USUAL_VOCAB = 51200
ADAPTERS = (
    ("xdr 800", 100e9),
    ("ndr 400", 50e9),
    ("cx7", 50e9),
    ("connectx-7", 50e9),
    ("hdr 200", 25e9),
    ("hdr200", 25e9),
    ("edr 100", 12.5e9),
    ("omnipath", 12.5e9),
    ("200gb", 25e9),
    ("400gb", 50e9),
    ("100gb", 12.5e9),
)
"""What a text says of a network adapter -> bytes/s of one."""


class NotCovered(ValueError):
    """A row names what nobody knows."""


def gpu_of(name: str, catalog: Catalog) -> Gpu:
    """The card called *name*. Raises NotCovered."""
    try:
        return catalog.gpu(GPUS.get(name.strip().lower(), name))
    except UnknownId:
        raise NotCovered(f"unknown gpu {name!r}") from None


def network_of(row: TrainingRow, catalog: Catalog, data: TrainingData) -> Network:
    """The row's network: its own dimensions, a network of training benchmarks, a language model, or a GPT of that
    size. Raises NotCovered, also for a network of unknown dimensions that is no language model.
    """
    name, said = row.text("model"), dimensions(row.text("arch_note"))
    known = next(((key, one) for key, one in data.networks.items() if _called(name, key, one)), None)
    params = (row.params_b or 0.0) * 1e9
    if known:
        return trained_network(*known)
    if {"layers", "hidden", "heads"} <= said.keys():
        if row.text("family") in GATED_FAMILIES and "intermediate" not in said and params:
            return _gated(name, said, params)
        return of_dimensions(name, {"vocab": USUAL_VOCAB} | said)
    try:
        return of_model(model_of(MODELS.get(name.lower(), re.sub(r"[ _]", "-", name)), catalog))
    except UnknownId:
        pass
    except ConfigError as error:
        raise NotCovered(f"unknown model {name!r}: {error}") from None
    size = params or _size_in(name)
    if not size or not _is_language_model(row):
        raise NotCovered(f"unknown model {name!r}")
    try:
        return of_size(name, size, int(said.get("hidden", 0)), int(said.get("heads", 0)), int(said.get("layers", 0)))
    except ValueError as error:
        raise NotCovered(f"unknown model {name!r}: {error}") from None


def _is_language_model(row: TrainingRow) -> bool:
    """Return whether *row* trains a decoder: its family is one, or it counts tokens or has a sequence length."""
    if (family := row.text("family").lower()) in LANGUAGE:
        return True
    if OTHER_TASKS.search(row.text("task")) or OTHER_TASKS.search(family):
        return False
    return "tokens_per_s" in row.measured or (not family and row.count("seq_len") is not None)


def _gated(name: str, said: dict[str, float], params: float) -> Network:
    """A SwiGLU decoder whose feed-forward width follows from its size; the vocabulary of Qwen where none is said."""
    layers, hidden = said["layers"], said["hidden"]
    vocab = said.get("vocab", 151936)
    keys = hidden * said.get("kv_heads", said["heads"]) / said["heads"]
    tied = params < 4e9
    body = params - vocab * hidden * (1 if tied else 2) - layers * 2 * hidden * (hidden + keys)
    return of_dimensions(
        name,
        said | {"vocab": vocab, "gated": 1, "params": params, "intermediate": max(hidden, body / 3 / layers / hidden)},
    )


def dimensions(text: str) -> dict[str, float]:
    """Dimensions that a note names.

    >>> dimensions("layers 22, hidden 2048, heads 32, kv 4, ffn 5632")["kv_heads"]
    4.0
    """
    return {name: float(found[1]) for name, pattern in DIMENSIONS.items() if (found := pattern.search(text))}


def precision_of(row: TrainingRow, gpu: Gpu, network: Network, data: TrainingData, stack: str) -> Precision:
    """What the row says, else what its framework uses on such a card. Raises NotCovered."""
    said = row.text("precision").lower()
    if said:
        computed = STORED.sub("", said)
        if computed not in PRECISIONS:
            raise NotCovered(f"unknown precision {row.text('precision')!r}")
        return PRECISIONS[computed]
    usual = data.stacks[stack].precision
    if not network.is_transformer:
        return "fp16"
    return next(
        (value for start, value in usual.items() if gpu.architecture.startswith(start)), usual.get("other", "bf16")
    )


def method_of(row: TrainingRow) -> Method:
    """Full training, LoRA and its like, or LoRA over 4-bit weights."""
    task, precision = row.text("task"), row.text("precision")
    if "qlora" in task or precision.lower().startswith(FOUR_BITS) or "bnb" in row.text("note"):
        return "qlora"
    return "lora" if "lora" in task or "adapter" in task else "full"


def link_of(row: TrainingRow, gpu: Gpu, catalog: Catalog) -> Link:
    """The link that the row speaks of, the card's own where it says nothing."""
    said = row.text("interconnect_intra").lower()
    own = catalog.link("nvlink5-nvl72" if row.text("gpu").lower().startswith("gb3") else gpu.link)
    if "bridge" in said and "not stated" not in said and not gpu.link.startswith("nvlink"):
        return catalog.link("nvlink3-bridge" if gpu.id.startswith(("a100", "a30")) else "nvlink-bridge-ga102")
    if "nvlink" in said or "xgmi" in said or "fabric" in said:
        return own
    found = re.search(r"pcie\D*([345])", said)
    if "pcie" in said and (found or own.id.startswith("nvlink")):
        staged = "-no-p2p" if own.id.endswith("no-p2p") else ""
        return catalog.link(f"pcie{found[1] if found else 4}-x16{staged}")
    return own


def node_bytes_per_s(text: str, gpu: Gpu, gpus_per_node: int) -> float:
    """Network of a node: adapters times their rate as *text* has it, else one adapter a GPU of the card's time."""
    said = text.lower()
    if "compute" in said or "management" in said:
        said = said.rpartition("compute:")[2] if "compute:" in said else ""
    if "roce-1600" in said:
        return 200e9
    if "gig ethernet" in said:
        return 50e9
    usual = 12.5e9 if gpu.id.startswith("v100") else 25e9 if gpu.architecture.startswith("Ampere") else 50e9
    one = next((rate for key, rate in ADAPTERS if key in said), usual)
    count = re.search(r"(\d+)\s*x\s*(?:connectx|bf3|nvidia|mellanox|mt\d)", said) or re.search(
        r"(?:omnipath-|hdr200x)(\d)", said
    )
    adapters = int(count[1]) if count else (4 if "omnipath" in said else gpus_per_node)
    return max(1, adapters) * one


def _called(name: str, id: str, one: TrainedNetwork) -> bool:
    return name.lower() == id or name.lower() in (alias.lower() for alias in one.aliases)


def _size_in(name: str) -> float:
    """Parameters that a name ends in.

    >>> _size_in("Megatron GPT 39.1B")
    39100000000.0
    """
    found = re.search(r"(\d+(?:\.\d+)?)\s*([BM])\b", name, re.IGNORECASE)
    return float(found[1]) * (1e9 if found[2].upper() == "B" else 1e6) if found else 0.0
