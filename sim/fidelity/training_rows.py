"""Training jobs that repeat rows of tables of training runs.

GPU, network, precision, method and links follow from the row's names and notes; parallel sizes and batches that it
lacks are those that its framework usually uses.
"""

import re
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from math import ceil

from sim.benchdata.training import TrainingRow
from sim.catalogue.catalog import Catalog
from sim.catalogue.checkpoint_names import model_of
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.gpu import Gpu
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.link import Link
from sim.message import Message
from sim.training.figures import Stack, TrainedNetwork, TrainingData, trained_network
from sim.training.job import Method, OptimizerStep, Parallel, Precision, Recompute
from sim.training.memory import EIGHT_BIT, EIGHT_BIT_BYTES
from sim.training.network import ForwardCost, of_dimensions, of_model, of_size
from sim.training.steptime import LORA_SHARE

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
"""GPU ids for names of training tables that lack the form factor, or that share the chip of another entry."""
MODELS = {
    "deepseekv3": "deepseek-v3",
    "deepseek v3 671b": "deepseek-v3",
    "qwen3 moe 30b": "qwen3-30b-a3b",
    "gpt-3-175b": "gpt3-175b",
    "deepseekv4 flash": "deepseek-v4-flash",
    "kimi k2": "kimi-k2.5",
    "kimi_k2": "kimi-k2.5",
    "nemotron_3_nano": "nemotron-3-nano",
    "nemotron v3 nano 30b": "nemotron-3-nano",
    "nemotron_3_5_lightning": "nemotron-3.5-lightning",
    "nemotron_3_super": "nemotron-3-super",
    "nemotron v3 super 120b": "nemotron-3-super",
    "nemotron_3_ultra": "nemotron-3-ultra",
    "nemotron v3 ultra 550b": "nemotron-3-ultra",
    "llama-4-scout moe": "llama4-scout",
    "llama-4-maverick moe": "llama4-maverick",
}
"""Model ids for names of training tables."""
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
"""Pattern of the storage format of frozen weights before the compute precision, as in `int4+bf16`."""
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
"""Pattern of tasks whose network is not a language model."""
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
"""Rates of a network adapter [bytes/s], by a phrase that describes it."""


class TrainingNotCovered(ValueError):
    """Error for a row with unknown names; the message states them."""


def gpu_of(name: str, catalog: Catalog) -> Gpu:
    """Return the GPU called *name*. Raises TrainingNotCovered."""
    try:
        return catalog.gpu(GPUS.get(name.strip().lower(), name))
    except UnknownId:
        raise TrainingNotCovered(Message("unknown gpu {name!r}", name)) from None


def network_of(row: TrainingRow, catalog: Catalog, data: TrainingData) -> ForwardCost:
    """Return the network of *row*.

    It follows from the row's dimensions, data/training/networks.yaml, a language model of the catalogue, or the size
    of a GPT. Raises TrainingNotCovered, also for a network of unknown dimensions that is not a language model.
    """
    name, stated = row.text("model"), dimensions(row.text("arch_note"))
    known = next(((key, one) for key, one in data.networks.items() if _is_called(name, key, one)), None)
    params = (row.params_b or 0.0) * 1e9
    if known:
        return trained_network(*known)
    if {"layers", "hidden", "heads"} <= stated.keys():
        if row.text("family") in GATED_FAMILIES and "intermediate" not in stated and params:
            return _gated(name, stated, params)
        return of_dimensions(name, {"vocab": USUAL_VOCAB} | stated)
    try:
        return of_model(model_of(MODELS.get(name.lower(), re.sub(r"[ _]", "-", name)), catalog))
    except UnknownId:
        pass
    except ConfigError as error:
        raise TrainingNotCovered(Message("unknown model {name!r}: {error}", name, error)) from None
    size = params or _size_in(name)
    if not size or not _is_language_model(row):
        raise TrainingNotCovered(Message("unknown model {name!r}", name))
    try:
        return of_size(
            name, size, int(stated.get("hidden", 0)), int(stated.get("heads", 0)), int(stated.get("layers", 0))
        )
    except ValueError as error:
        raise TrainingNotCovered(Message("unknown model {name!r}: {error}", name, error)) from None


def _is_language_model(row: TrainingRow) -> bool:
    """Return whether *row* trains a decoder, by its family, token throughput or sequence length."""
    if (family := row.text("family").lower()) in LANGUAGE:
        return True
    if OTHER_TASKS.search(row.text("task")) or OTHER_TASKS.search(family):
        return False
    return "tokens_per_s" in row.measured or (not family and row.count("seq_len") is not None)


def _gated(name: str, stated: dict[str, float], params: float) -> ForwardCost:
    """Return a SwiGLU decoder whose feed-forward width follows from its size; the default vocabulary is Qwen's."""
    layers, hidden = stated["layers"], stated["hidden"]
    vocab = stated.get("vocab", 151936)
    keys = hidden * stated.get("kv_heads", stated["heads"]) / stated["heads"]
    tied = params < 4e9
    body = params - vocab * hidden * (1 if tied else 2) - layers * 2 * hidden * (hidden + keys)
    return of_dimensions(
        name,
        stated
        | {"vocab": vocab, "gated": 1, "params": params, "intermediate": max(hidden, body / 3 / layers / hidden)},
    )


def dimensions(text: str) -> dict[str, float]:
    """Return the dimensions that a note states.

    >>> dimensions("layers 22, hidden 2048, heads 32, kv 4, ffn 5632")["kv_heads"]
    4.0
    """
    return {name: float(found[1]) for name, pattern in DIMENSIONS.items() if (found := pattern.search(text))}


def precision_of(row: TrainingRow, gpu: Gpu, network: ForwardCost, data: TrainingData, stack: str) -> Precision:
    """Return the precision of *row*, else the framework's default on *gpu*. Raises TrainingNotCovered."""
    stated = row.text("precision").lower()
    if stated:
        computed = STORED.sub("", stated)
        if computed not in PRECISIONS:
            raise TrainingNotCovered(Message("unknown precision {precision!r}", row.text("precision")))
        return PRECISIONS[computed]
    usual = data.stacks[stack].precision
    if not network.is_transformer:
        return "fp16"
    return next(
        (value for start, value in usual.items() if gpu.architecture.startswith(start)), usual.get("other", "bf16")
    )


def method_of(row: TrainingRow) -> Method:
    """Return the training method: full, LoRA and similar, or LoRA over 4-bit weights."""
    task, precision = row.text("task"), row.text("precision")
    if "qlora" in task or precision.lower().startswith(FOUR_BITS) or "bnb" in row.text("note"):
        return "qlora"
    return "lora" if "lora" in task or "adapter" in task else "full"


def link_of(row: TrainingRow, gpu: Gpu, catalog: Catalog) -> Link:
    """Return the link that the row describes; the GPU's own if it describes none."""
    stated = row.text("interconnect_intra").lower()
    own = catalog.link("nvlink5-nvl72" if row.text("gpu").lower().startswith("gb3") else gpu.link)
    if "bridge" in stated and "not stated" not in stated and not gpu.link.startswith("nvlink"):
        return catalog.link("nvlink3-bridge" if gpu.id.startswith(("a100", "a30")) else "nvlink-bridge-ga102")
    if "nvlink" in stated or "xgmi" in stated or "fabric" in stated:
        return own
    found = re.search(r"pcie\D*([345])", stated)
    if "pcie" in stated and not stated.startswith("host") and (found or own.id.startswith("nvlink")):
        staged = "-no-p2p" if own.id.endswith("no-p2p") else ""
        return catalog.link(f"pcie{found[1] if found else 4}-x16{staged}")
    return own


def node_bytes_per_s(text: str, gpu: Gpu, gpus_per_node: int) -> float:
    """Return the network rate of a node [bytes/s].

    It is the number of adapters times their rate in *text*, else one adapter per GPU with the usual rate at the time.
    """
    stated = text.lower()
    if "compute" in stated or "management" in stated:
        stated = stated.rpartition("compute:")[2] if "compute:" in stated else ""
    if "roce-1600" in stated:
        return 200e9
    if "gig ethernet" in stated:
        return 50e9
    usual = 12.5e9 if gpu.id.startswith("v100") else 25e9 if gpu.architecture.startswith("Ampere") else 50e9
    one = next((rate for key, rate in ADAPTERS if key in stated), usual)
    count = re.search(r"(\d+)\s*x\s*(?:connectx|bf3|nvidia|mellanox|mt\d)", stated) or re.search(
        r"(?:omnipath-|hdr200x)(\d)", stated
    )
    adapters = int(count[1]) if count else (4 if "omnipath" in stated else gpus_per_node)
    return max(1, adapters) * one


def _is_called(name: str, id: str, one: TrainedNetwork) -> bool:
    return name.lower() == id or name.lower() in (alias.lower() for alias in one.aliases)


def _size_in(name: str) -> float:
    """Return the number of parameters in a name.

    >>> _size_in("Megatron GPT 39.1B")
    39100000000.0
    """
    found = re.search(r"(\d+(?:\.\d+)?)\s*([BM])\b", name, re.IGNORECASE)
    return float(found[1]) * (1e9 if found[2].upper() == "B" else 1e6) if found else 0.0


USUAL_NODE = 8
COUNT = r"0*([1-9][0-9]{0,8})\b"
BATCH_PER_RANK = re.compile(rf"batch per DP {COUNT}")
"""Pattern of a batch that a rank computes at once, which requires recomputation."""
RECOMPUTED_LAYERS = re.compile(rf"recomputes {COUNT} layers")
"""Pattern of the number of layers that full recomputation repeats, where it does not repeat all."""
EIGHT_BIT_ATTENTION = re.compile("fp8 attention")
"""Pattern of attention in 8 bits, in a run whose matrix products have 8 bits or fewer."""
NVL72_GPUS = 72
LARGEST_SHARE = 0.6
"""Largest fraction of the memory for weights, gradients and states if the layout is not known."""
TIMESTAMPS = "rate from log timestamps"
"""Note of rows whose rate was computed from the timestamps of an MLPerf log."""
EVALUATION_FORWARDS = {
    "stable-diffusion-v2": 30_000 / 512_000 * (2 * 50 + 3.1),
    "flux.1-schnell": 29_696 / 262_144,
    "llama-2-70b": 173 / 384,
    "llama-3.1-8b": 1_024 / 12_288,
    "llama-3.1-405b": 5_760 / 46_080,
}
"""Forward passes of evaluations per trained sample, by MLPerf benchmark: evaluated over trained samples between two
evaluations (README.md of each benchmark in mlcommons/training). Stable Diffusion generates 30,000 images in 50 guided
steps; decoding one is as long as 3.1 calls of the denoiser (data/models/sd-2.1.yaml).
"""
TENSOR_CORE_ALIGNMENT = 8
"""Divisor of all dimensions of a 16-bit product on tensor cores before cuBLAS 11 (cuBLAS, release notes of 11.0)."""
FP16_PER_FP32 = 2
"""16-bit rate of Volta's and Turing's CUDA cores relative to their 32-bit rate."""
BYTES_PER_PARAM, STATE_SHARE = 18.0, 12.0
SEQUENCE = 2048
PCIE4_HOST_BYTES_PER_S = 20e9
"""Rate of optimizer states to host memory, both directions at once [bytes/s]."""


@dataclass(frozen=True, slots=True)
class TrainingCase:
    """Row with the job that repeats it."""

    row: TrainingRow
    job: OptimizerStep
    stack: str
    step_is_micro_batch: bool
    """True if `step_s` is the time of a micro-batch, as no global batch is known."""
    counted_samples: float = 1.0
    """Samples per unit that the row counts: those of an epoch if it counts epochs, else 1."""
    evaluation_forwards: float = 0.0
    """Forward passes of evaluations per trained sample that the row's rate includes."""


def case_of(row: TrainingRow, catalog: Catalog, data: TrainingData) -> TrainingCase:
    """Return the job of *row*. Raises TrainingNotCovered."""
    row = completed(row, data)
    gpu = gpu_of(row.text("gpu"), catalog)
    network = network_of(row, catalog, data)
    stack = data.stack(row.text("source_key"), network.is_transformer and network.causal)
    facts = data.stacks[stack]
    precision = precision_of(row, gpu, network, data, stack)
    method, note = method_of(row), row.text("note")
    link = link_of(row, gpu, catalog)
    if facts.aligned_products and gpu.before_ampere and network.vocab % TENSOR_CORE_ALIGNMENT and gpu.fp32_flops:
        slower = gpu.fp16_flops.value / (FP16_PER_FP32 * gpu.fp32_flops.value)
        network = replace(network, head_flop=network.head_flop * slower)
    gpus = row.count("n_gpus") or 1
    host = row.count("gpus_per_node") or USUAL_NODE
    per_node = min(gpus, NVL72_GPUS if link.id == "nvlink5-nvl72" else host)
    known = data.networks.get(network.id)
    usual = network.image_tokens or (known.sequence if known else None) or facts.sequence or SEQUENCE
    sequence = (row.count("seq_len") or usual) if network.is_transformer else 1
    global_batch = row.count("global_batch")
    small = facts.eight_bit_weights and precision in EIGHT_BIT
    model_bytes = _model_bytes(network, method, small)
    parallel = _parallel(row, network, gpus, per_node, gpu.memory_bytes.value, global_batch, method, facts, model_bytes)
    micro, count = _batches(row, network, parallel, global_batch, sequence)
    repeated = RECOMPUTED_LAYERS.search(note)
    offloaded = "offload-opt" in note or "offload-master" in note
    job = OptimizerStep(
        gpu=gpu,
        link=link,
        network=network,
        parallel=parallel,
        micro_batch=micro,
        micro_batches=count,
        sequence=sequence,
        precision=precision,
        method=method,
        recompute=_recompute(row, (facts.adapters_recompute if method != "full" else None) or facts.recompute, network),
        recomputed_layers=min(1.0, int(repeated[1]) / network.layers) if repeated else 1.0,
        eight_bit_attention=bool(EIGHT_BIT_ATTENTION.search(note)) and precision in EIGHT_BIT,
        gpus_per_node=per_node,
        node_bytes_per_s=node_bytes_per_s(row.text("interconnect_inter"), gpu, host) * max(1.0, per_node / host),
        host_bytes_per_s=PCIE4_HOST_BYTES_PER_S if offloaded else 0.0,
        fill=facts.fill.get(network.id, 1.0),
        samples=global_batch,
    )
    evaluated = EVALUATION_FORWARDS.get(row.text("model").lower(), 0.0) if TIMESTAMPS in note else 0.0
    return TrainingCase(row, job, stack, global_batch is None, _counted_samples(row, data), evaluated)


def completed(row: TrainingRow, data: TrainingData) -> TrainingRow:
    """Return *row* with the cells that it lacks and its published configuration states."""
    name = f"{row.text('source_key')}:{row.text('source').partition(':')[2]}"
    texts, counts = dict(row.texts), dict(row.counts)
    for one in data.runs.values():
        if not fnmatch(row.text("gpu"), one.gpus) or not any(fnmatch(name, pattern) for pattern in one.runs):
            continue
        for column, value in one.cells.items():
            if column == "note":
                texts[column] = f"{texts[column]}; {value}"
            elif isinstance(value, int):
                counts.setdefault(column, value)
            else:
                texts[column] = texts[column] or value
    return replace(row, texts=texts, counts=counts)


def _counted_samples(row: TrainingRow, data: TrainingData) -> float:
    """Return the samples per unit that *row* counts: those of an epoch, or 1."""
    known = next((one for id, one in data.networks.items() if _is_called(row.text("model"), id, one)), None)
    if known is None or known.epoch_samples is None or TIMESTAMPS not in row.text("note"):
        return 1.0
    return known.epoch_samples.value


def _recompute(row: TrainingRow, usual: Recompute, network: ForwardCost) -> Recompute:
    stated = row.text("recompute").lower()
    if BATCH_PER_RANK.search(row.text("note")):
        return "full"
    if not stated:
        return usual if network.is_transformer else "none"
    return "full" if stated in ("full", "yes") else "selective" if stated == "selective" else "none"


def _parallel(
    row: TrainingRow,
    network: ForwardCost,
    gpus: int,
    per_node: int,
    memory_bytes: float,
    global_batch: int | None,
    method: Method,
    facts: Stack,
    model_bytes: float,
) -> Parallel:
    """Return the parallelism; *model_bytes* are the bytes of weights, gradients and states on one model copy."""
    tp, pp, dp = row.count("tp"), row.count("pp"), row.count("dp")
    note = row.text("note")
    zero = int(found[0]) if (found := re.search(r"[0-3]", row.text("zero"))) else None
    chunks, experts = re.search(rf"\bVP {COUNT}", note), re.search(rf"\bEP {COUNT}", note)
    context = int(found[1]) if (found := re.search(rf"\bCP {COUNT}", note)) else 1
    guessed = tp is None and pp is None and dp is None and facts.model_parallel
    if guessed:
        tp, pp = _usual_split(network, gpus, per_node, memory_bytes, method, model_bytes)
    if not network.hidden:  # nothing to exchange: the network cannot be split
        tp = pp = 1
    tp, pp = min(tp or 1, gpus), min(pp or 1, gpus)
    ranks = max(1, gpus // (tp * pp))
    if dp is None:
        dp = max(1, ranks // context)
        if global_batch is not None and dp > global_batch:  # ranks share samples, or are spare
            dp, context = global_batch, max(1, ranks // global_batch)
    else:
        dp = min(dp, ranks)  # the table's number may include context-parallel ranks, or refer to another number of GPUs
        context = context if tp * pp * dp * context <= gpus else 1
    if zero is None:
        fits = model_bytes <= LARGEST_SHARE * memory_bytes * tp * pp
        zero = (
            1 if tp * pp > 1 or facts.distributed_optimizer else 2 if "DeepSpeed" in note and fits else 0 if fits else 3
        )
    expert = min(tp * dp, int(experts[1]) if experts else USUAL_NODE) if network.expert_params else 1
    virtual = 1 if pp == 1 else int(chunks[1]) if chunks else _usual_chunks(network.layers, pp) if guessed else 1
    return Parallel(tp, pp, dp, context, expert, virtual, zero, facts.sequence_parallel)


def _usual_chunks(layers: int, pipeline: int) -> int:
    """Return the default number of chunks per stage: two layers each, as in published layouts."""
    return max(1, layers // pipeline // 2)


def _model_bytes(network: ForwardCost, method: Method, eight_bit_weights: bool) -> float:
    """Return the bytes of weights, gradients and optimizer states of one model copy."""
    if method == "full":
        return network.params * BYTES_PER_PARAM
    frozen = 0.6 if method == "qlora" else EIGHT_BIT_BYTES if eight_bit_weights else 2.0
    return network.params * (frozen + LORA_SHARE * BYTES_PER_PARAM)


def _usual_split(
    network: ForwardCost, gpus: int, per_node: int, memory_bytes: float, method: Method, model_bytes: float
) -> tuple[int, int]:
    """Return the tensor and pipeline ranks that hold the model, with its states sharded over the other ranks.

    Tensor ranks within a node are preferred.
    """
    sharded = network.params * STATE_SHARE if method == "full" else 0.0
    for pipeline in (1, 2, 4, 8, 16, 32):
        for tensor in (1, 2, 4, 8):
            if tensor * pipeline > gpus or tensor > per_node or (pipeline > 1 and tensor < min(4, per_node)):
                continue
            rest = gpus // (tensor * pipeline)
            if (model_bytes - sharded + sharded / rest) / (tensor * pipeline) <= LARGEST_SHARE * memory_bytes:
                return tensor, pipeline
    return min(8, per_node), max(1, min(16, gpus // min(8, per_node)))


def _batches(
    row: TrainingRow, network: ForwardCost, parallel: Parallel, global_batch: int | None, sequence: int
) -> tuple[int, int]:
    """Return the samples per micro-batch and the micro-batches per step of the rank with most samples."""
    micro = row.count("micro_batch")
    whole = BATCH_PER_RANK.search(row.text("note"))
    if whole and parallel.pipeline == 1:
        return int(whole[1]), 1
    if global_batch is None:
        stated = re.search(rf"(?:GA|accumulate) {COUNT}", row.text("note"))
        return micro or _usual_micro(sequence), int(stated[1]) if stated else (
            8 * parallel.pipeline if parallel.pipeline > 1 else 1
        )
    mine = ceil(global_batch / parallel.data)
    if micro is None:
        large = network.params > 1e9
        micro = (1 if parallel.pipeline > 1 else _usual_micro(sequence)) if large else mine
    count = ceil(mine / micro)
    return ceil(mine / count), count


def _usual_micro(sequence: int) -> int:
    """Return the samples of a micro-batch of about 8,192 tokens."""
    return max(1, 8192 // max(1, sequence))
