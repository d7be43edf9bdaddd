"""How weights are stored: data/quantizations/<id>.yaml."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from sim.catalogue.model import Matrix, Model
from sim.catalogue.value import Value
from sim.spec import Count, Spec

ComputeType = Literal["fp16", "fp8", "int8", "fp4"]
KvCacheDtype = Literal["auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"]


FEED_FORWARD = ("mlp", "shared_expert")
"""Roles of matrices of blocks that every token passes."""
BESIDE = ("attention", *FEED_FORWARD)


class Quantization(Spec):
    """One weight format: bits with scales, which tensors it covers, and the arithmetic it runs in."""

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    """Other names under which benchmarks and engines know it."""
    weight_dtype: str
    """Storage type of a quantised weight."""
    bits_per_weight: Value
    """Of a quantised matrix: scales and zero points included [bits]."""
    applies_to: Literal["linear", "feed_forward", "experts", "all"] = "linear"
    """linear: attention and feed-forward matrices; feed_forward: without attention; experts: routed experts alone;
    all: embeddings and LM head too. Routers, norms and biases stay at 16 bit, as does all that is not covered."""
    beside_bits_per_weight: Value | None = None
    """With `experts` or `feed_forward`: bits of attention and the blocks beside them, in fp8 arithmetic; None: 16."""
    embedding_bits_per_weight: Value | None = None
    """With `all`: the embedding's own bits."""
    lm_head_bits_per_weight: Value | None = None
    """With `all`: the LM head's own bits; a tied embedding is stored once, at these."""
    group_size: Count | None = None
    """Weights along the input dimension that share a scale; None: one per channel or tensor."""
    whole_groups_per_rank: bool = False
    """Tensor parallelism may not cut through a group."""
    pad_odd_groups_to: Count | None = None
    """Checkpoints whose intermediate size is an odd number of groups come padded to a multiple of as many groups."""
    input_row_bytes: float = 0.0
    """Extra bytes per input row of a matrix (GPTQ's g_idx)."""
    compute: ComputeType = "fp16"
    """The tensor rate it uses where the GPU has it; fp16 elsewhere."""
    kernel: str
    """Id in data/kernels of the usual kernel."""
    weight_only_kernel: str | None = None
    """That of cards without the rate of `compute`, which unpack the weights to 16 bit; None: the same."""
    native: dict[str, str] = Field(default={})
    """By the model's own dtype: the quantisation that its weights already have. Only `none` has it."""


def kv_element_bytes(dtype: KvCacheDtype) -> int:
    """Bytes of one number in the KV cache; `auto` is the activations' 16 bit."""
    return 2 if dtype in ("auto", "bfloat16", "float16") else 1


def native_quantization(
    quantization: Quantization, model: Model, lookup: Callable[[str], Quantization]
) -> Quantization:
    """What `none` means for *model*: DeepSeek-V3 ships in fp8, gpt-oss in mxfp4, Kimi-K2.6 with experts in int4, most
    others at 16 bit.
    """
    native = quantization.native.get(model.native_dtype)
    if quantization.native and model.native_quantization:
        native = model.native_quantization
    return quantization if native is None else lookup(native)


def bits(quantization: Quantization, matrix: Matrix, tied: bool) -> float:
    """Stored bits per parameter of *matrix*, scales included. *tied*: the embedding is the LM head as well."""
    if quantization.applies_to == "all" and matrix.role in ("embedding", "lm_head"):
        head = tied or matrix.role == "lm_head"
        own = quantization.lm_head_bits_per_weight if head else quantization.embedding_bits_per_weight
        if own is not None:
            return own.value
    if covers(quantization, matrix):
        return quantization.bits_per_weight.value
    beside = quantization.beside_bits_per_weight
    return beside.value if beside is not None and matrix.role in BESIDE else 16.0


def arithmetic(quantization: Quantization, matrix: Matrix) -> ComputeType:
    """The tensor rate that *matrix* uses where the GPU has it."""
    if covers(quantization, matrix):
        return quantization.compute
    beside = quantization.beside_bits_per_weight
    return "fp8" if beside is not None and matrix.role in BESIDE else "fp16"


def covers(quantization: Quantization, matrix: Matrix) -> bool:
    """Whether *matrix* is stored in the quantised format."""
    if matrix.role == "expert":
        return True
    if matrix.role in FEED_FORWARD:
        return quantization.applies_to != "experts"
    if matrix.role == "attention":
        return quantization.applies_to not in ("experts", "feed_forward")
    return matrix.role in ("embedding", "lm_head") and quantization.applies_to == "all"


def padded(quantization: Quantization, model: Model) -> Model:
    """*model* with the intermediate size that the quantised checkpoint really has.

    Groups run along the intermediate size. With an odd number of them the matrix cannot be split over even two GPUs, so
    publishers pad to a multiple of eight groups: Qwen2-72B, 29568 = 231 x 128 -> 29696 = 232 x 128 (Qwen documentation,
    GPTQ page).
    """
    group, multiple = quantization.group_size, quantization.pad_odd_groups_to
    if group is None or multiple is None or model.moe is not None or model.intermediate % (2 * group) == 0:
        return model
    step = group * multiple
    return model.model_copy(update={"intermediate": -(-model.intermediate // step) * step})
