"""Weight formats: data/quantizations/<id>.yaml."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from sim.catalogue.engine import family_of
from sim.catalogue.model import Matrix, Model
from sim.catalogue.value import Value
from sim.spec import Count, Spec

ComputeType = Literal["fp16", "fp8", "int8", "fp4"]
KvCacheDtype = Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"]


FEED_FORWARD = ("mlp", "shared_expert")
"""Roles of the feed-forward matrices that every token passes."""
BESIDE = ("attention", *FEED_FORWARD)


class Quantization(Spec):
    """Weight format: bits per weight with scales, the tensors it covers, and the arithmetic it runs in."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    """Alternative names in benchmarks and engines."""
    weight_dtype: str
    """Storage type of a quantised weight."""
    bits_per_weight: Value
    """Stored bits per weight of a quantised matrix, including scales and zero points [bits]."""
    applies_to: Literal["linear", "feed_forward", "experts", "all"] = "linear"
    """Matrices that are quantised. linear: attention and feed-forward; feed_forward: feed-forward only; experts: routed
    experts only; all: embeddings and LM head too. Routers, norms, biases and all other matrices stay at 16 bits."""
    beside_bits_per_weight: Value | None = None
    """Stored bits per weight of attention and of feed-forward blocks that are not covered; only with `experts` or
    `feed_forward`. None: 16 bits."""
    beside_compute: ComputeType = "fp8"
    """Arithmetic of the weights of `beside_bits_per_weight`."""
    embedding_bits_per_weight: Value | None = None
    """Stored bits per weight of the embedding; None: `bits_per_weight` with `applies_to: all`, else 16."""
    lm_head_bits_per_weight: Value | None = None
    """Stored bits per weight of the LM head, also of a tied embedding; None: as `embedding_bits_per_weight`."""
    group_size: Count | None = None
    """Weights along the input dimension that share a scale; None: one scale per channel or tensor."""
    whole_groups_per_rank: bool = False
    """True if a group must lie on one rank, so that tensor parallelism may not divide it."""
    pad_odd_groups_to: Count | None = None
    """Multiple to which checkpoints pad the number of groups along the intermediate size if that number is odd."""
    input_row_bytes: float = 0.0
    """Additional bytes per input row of a matrix (GPTQ's g_idx)."""
    compute: ComputeType = "fp16"
    """Arithmetic used on GPUs that support it; other GPUs compute in fp16."""
    kernel: str
    """Id of the usual kernel, in data/kernels."""
    weight_only_kernel: str | None = None
    """Id of the kernel on cards without `compute` arithmetic, which unpack the weights to 16 bits; None: `kernel`."""
    native: dict[str, str] = Field(default={})
    """Format of the published weights, by the model's `native_dtype`; set only for the format `none`."""


def kv_element_bytes(dtype: KvCacheDtype) -> int:
    """Return the bytes of one number in the KV cache; `auto` means 16 bits, as for activations."""
    return 2 if dtype in ("auto", "bfloat16", "float16") else 1


def native_quantization(
    quantization: Quantization, model: Model, lookup: Callable[[str], Quantization]
) -> Quantization:
    """Return the weight format that *quantization* means for *model*; `none` means the published checkpoint's format.

    DeepSeek-V3 is published in fp8, gpt-oss in mxfp4, Kimi-K2.6 with experts in int4, most others at 16 bits.
    """
    native = quantization.native.get(model.native_dtype)
    if quantization.native and model.native_quantization:
        native = model.native_quantization
    return quantization if native is None else lookup(native)


GGUF_ENGINES = ("llama.cpp", "ollama", "lm-studio")
"""Families of engines that read GGUF files, in which attention, embeddings and LM head of gpt-oss are Q8_0."""


def gguf_format(quantization: str, model: Model, engine: str) -> str:
    """Return the format that *engine* reads for *quantization*, all ids: the GGUF file's for a checkpoint in mxfp4."""
    own = model.native_dtype == "mxfp4" and quantization in ("none", "mxfp4")
    return "gguf-mxfp4" if own and family_of(engine) in GGUF_ENGINES else quantization


def bits(quantization: Quantization, matrix: Matrix, tied: bool) -> float:
    """Return the stored bits per parameter of *matrix*, including scales; *tied*: the embedding is also the LM head."""
    if matrix.stored_bits is not None:
        return matrix.stored_bits
    if matrix.role in ("embedding", "lm_head"):
        head = matrix.role == "lm_head" or (tied and matrix.split == "vocab")
        own = quantization.lm_head_bits_per_weight if head else quantization.embedding_bits_per_weight
        if own is not None:
            return own.value
    if covers(quantization, matrix):
        return quantization.bits_per_weight.value
    beside = quantization.beside_bits_per_weight
    return beside.value if beside is not None and matrix.role in BESIDE else 16.0


def arithmetic(quantization: Quantization, matrix: Matrix) -> ComputeType:
    """Return the arithmetic in which *matrix* is computed on GPUs that support it."""
    if covers(quantization, matrix):
        return quantization.compute
    beside = quantization.beside_bits_per_weight
    return quantization.beside_compute if beside is not None and matrix.role in BESIDE else "fp16"


def covers(quantization: Quantization, matrix: Matrix) -> bool:
    """Return whether *matrix* is stored in the quantised format."""
    if matrix.role == "expert":
        return True
    if matrix.role in FEED_FORWARD:
        return quantization.applies_to != "experts"
    if matrix.role == "attention":
        return quantization.applies_to not in ("experts", "feed_forward")
    return matrix.role in ("embedding", "lm_head") and quantization.applies_to == "all"


def padded(quantization: Quantization, model: Model) -> Model:
    """Return *model* with the intermediate size of its quantised checkpoint.

    Groups run along the intermediate size. An odd number of groups cannot be split over even two GPUs, so publishers
    pad to a multiple of eight groups: Qwen2-72B, 29568 = 231 x 128 -> 29696 = 232 x 128 (Qwen documentation, page on
    GPTQ).
    """
    group, multiple = quantization.group_size, quantization.pad_odd_groups_to
    if group is None or multiple is None or model.moe is not None or model.intermediate % (2 * group) == 0:
        return model
    step = group * multiple
    return model.model_copy(update={"intermediate": -(-model.intermediate // step) * step})
