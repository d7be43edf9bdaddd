"""Bytes of weights on each GPU: parallel layouts, pipeline stages, and weights or KV cache in host memory."""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from sim.catalogue.engine import HostWeights, Offload
from sim.catalogue.model import Matrix, Model, matrices
from sim.catalogue.quantization import Quantization, bits, covers, padded
from sim.catalogue.stages import PipelineSplit
from sim.message import Message
from sim.spec import NonNegative, Positive, Spec
from sim.units import GB

VOCAB_MULTIPLE = 64
"""Multiple to which vLLM pads the vocabulary before splitting it (layers/vocab_parallel_embedding.py)."""


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """Parallel layout of one replica: the degrees of tensor, pipeline, data and expert parallelism."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False

    @property
    def joined(self) -> int:
        """GPUs that communicate with each other: data-parallel ranks only where they share experts."""
        ranks = self.data_parallel_size if self.enable_expert_parallel else 1
        return self.tensor_parallel_size * self.pipeline_parallel_size * ranks

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size


def stage_weight_bytes(
    model: Model,
    quantization: Quantization,
    matrices: tuple[Matrix, ...],
    layout: ReplicaLayout,
    ends: tuple[bool, bool] = (True, True),
) -> float:
    """Return the weights on each GPU of one pipeline stage, the rotary table included [bytes].

    *model* has the stage's layers (`stage_models`) as the quantised checkpoint stores them (see `padded`), *matrices*
    are its matrices; *ends*: whether the stage is the first, which has the embedding, and the last, with the LM head.
    """
    total = _rotary_table_bytes(model)
    for matrix in matrices:
        count = copies(model, matrix, layout, ends)
        if count:
            total += count * rank_bytes(model, quantization, matrix, layout)
    return total


def copies(model: Model, matrix: Matrix, layout: ReplicaLayout, ends: tuple[bool, bool] = (True, True)) -> int:
    """Return the number of copies of *matrix*, or of the rank's part of it, on one GPU of a stage.

    See `stage_weight_bytes` for *model* and *ends*.
    """
    count = matrix.count if matrix.last_layer else int(_stage_has(model, matrix, *ends))
    if matrix.role == "expert" and layout.enable_expert_parallel and model.moe is not None:
        ranks = layout.tensor_parallel_size * layout.data_parallel_size
        count = count // model.moe.experts * -(-model.moe.experts // ranks)
    return count


def _stage_has(model: Model, matrix: Matrix, first_stage: bool, last_stage: bool) -> bool:
    """Return True if a stage has a *matrix* that belongs to no layer; a tied embedding is in the first and last."""
    if matrix.role == "embedding":
        return first_stage or (last_stage and model.tie_embeddings and matrix.split == "vocab")
    return last_stage


def rank_bytes(model: Model, quantization: Quantization, matrix: Matrix, layout: ReplicaLayout) -> float:
    """Return the bytes of one copy of *matrix* on one rank."""
    tp, inputs, outputs = layout.tensor_parallel_size, float(matrix.inputs), float(matrix.outputs)
    if matrix.split == "vocab":
        vocab = -(-model.vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE
        inputs, outputs = vocab / tp, float(model.hidden)
    elif matrix.role == "expert" and layout.enable_expert_parallel:
        pass
    elif matrix.split == "outputs":
        outputs /= tp
    elif matrix.split == "inputs":
        inputs /= tp
    elif matrix.split == "kv_heads":
        kv_heads = matrix.kv_heads or model.kv_heads
        outputs = outputs / kv_heads * max(1, kv_heads // tp)
    size = inputs * outputs * bits(quantization, matrix, model.tie_embeddings) / 8
    return size + inputs * quantization.input_row_bytes if covers(quantization, matrix) else size


def _rotary_table_bytes(model: Model) -> float:
    """Return the bytes of cosines and sines of all positions at 16 bit (0.03 GiB for 131,072 positions)."""
    if model.learned_positions:
        return 0.0
    width = model.head_dim if model.mla is None else model.mla.qk_rope_head_dim
    return 2.0 * model.max_context * width


def check_parallel(
    model: Model, quantization: Quantization, layout: ReplicaLayout, split: PipelineSplit = "before_last"
) -> list[str]:
    """Return the problems of *layout* for *model*, one line each; empty if there are none.

    Attention heads must divide evenly. Fewer KV heads than ranks are replicated, which needs an even division as well.
    A quantised rank holds whole scale groups. *split* is the engine's rule for layers that stages do not divide.
    """
    tp = layout.tensor_parallel_size
    found = _head_problems(model, tp) if tp > 1 else []
    if layout.pipeline_parallel_size > model.layers:
        found.append(
            Message(
                "pipeline_parallel_size {pipeline_parallel_size} exceeds the {layers} layers of {id}",
                layout.pipeline_parallel_size,
                model.layers,
                model.id,
            )
        )
    elif split == "even" and model.layers % layout.pipeline_parallel_size:
        found.append(
            Message(
                "pipeline_parallel_size {pipeline_parallel_size} does not divide the {layers} layers of {id}",
                layout.pipeline_parallel_size,
                model.layers,
                model.id,
            )
        )
    if layout.enable_expert_parallel and model.moe is None:
        found.append(Message("enable_expert_parallel: {id} has no experts", model.id))
    for name, size in _split_sizes(padded(quantization, model), layout):
        found += _size_problems(model, quantization, name, size, tp)
    return found


def _head_problems(model: Model, tp: int) -> list[str]:
    if model.heads % tp:
        usable = ", ".join(str(n) for n in range(1, min(model.heads, 16) + 1) if model.heads % n == 0)
        return [
            Message(
                "tensor_parallel_size {tp} does not divide {heads} attention heads of {id} (it could be {usable})",
                tp,
                model.heads,
                model.id,
                usable,
            )
        ]
    if model.mla is None and model.kv_heads % tp and tp % model.kv_heads:
        return [
            Message(
                "tensor_parallel_size {tp} neither divides nor is a multiple of {kv_heads} KV heads of {id}",
                tp,
                model.kv_heads,
                model.id,
            )
        ]
    return []


def _split_sizes(model: Model, layout: ReplicaLayout) -> list[tuple[str, int]]:
    """Return the names and values of the input sizes that tensor parallelism splits."""
    sizes = []
    if model.feed_forward_layers > model.expert_layers:
        sizes.append(("intermediate size", model.intermediate))
    if model.moe is not None and not layout.enable_expert_parallel:
        sizes.append(("expert intermediate size", model.moe.moe_intermediate))
    values = model.head_dim if model.mla is None else model.mla.v_head_dim
    return [*sizes, ("attention output size", model.heads * values)]


def _size_problems(model: Model, quantization: Quantization, name: str, size: int, tp: int) -> list[str]:
    if tp > 1 and size % tp:
        return [
            Message("tensor_parallel_size {tp} does not divide the {name} {size} of {id}", tp, name, size, model.id)
        ]
    group = quantization.group_size
    if tp == 1 or group is None or not quantization.whole_groups_per_rank or (size // tp) % group == 0:
        return []
    if quantization.applies_to == "experts" and "expert" not in name:
        return []
    return [
        Message(
            "tensor_parallel_size {tp} cuts the {name} {size} of {model} into {part}, which is not a "
            "multiple of the group of {group} in {quantization}",
            tp,
            name,
            size,
            model.id,
            size // tp,
            group,
            quantization.id,
        )
    ]


@dataclass(frozen=True, slots=True)
class HostResidentBytes:
    """Host memory that one replica needs [bytes]."""

    weights_bytes: float
    block_bytes: float
    """Size of one KV block's layers in host memory."""

    @classmethod
    def of(
        cls, host: HostWeights, model: Model, quantization: Quantization, layout: ReplicaLayout, block_bytes: float
    ) -> "HostResidentBytes":
        """Return the host memory for the weights of all GPUs of a replica and for KV blocks of *block_bytes*."""
        per_gpu = host_weight_bytes(host, padded(quantization, model), quantization, layout)
        return cls(per_gpu * layout.gpus, block_bytes)

    def blocks(self, host_memory_bytes: float) -> float:
        """Return the KV blocks that fit beside the weights."""
        return (host_memory_bytes - self.weights_bytes) // self.block_bytes if self.block_bytes else inf

    def shortfall(self, blocks: int, host_memory_bytes: float) -> str:
        """Compose the reason why *blocks* KV blocks do not fit in host memory; empty if they fit."""
        needed = self.weights_bytes + blocks * self.block_bytes
        if needed <= host_memory_bytes:
            return ""
        what = "weights and KV cache" if self.block_bytes else "weights"
        return Message(
            "needs {needed:.1f} GB of host memory for {use}, a replica's part is {available:.1f}",
            needed / GB,
            what,
            host_memory_bytes / GB,
        )


def host_weights(offload: Offload, model: Model, quantization: Quantization, layout: ReplicaLayout) -> HostWeights:
    """Return the weights that *offload* leaves in host memory, for a replica without pipeline stages."""
    stored = padded(quantization, model)
    layer_bytes = sum(
        copies(stored, matrix, layout) * rank_bytes(stored, quantization, matrix, layout)
        for matrix in matrices(stored)
        if matrix.last_layer
    )
    return HostWeights.of(offload, stored, layer_bytes)


def host_weight_bytes(host: HostWeights, model: Model, quantization: Quantization, layout: ReplicaLayout) -> float:
    """Return the weights that one GPU leaves in host memory [bytes].

    *model* is the one that the quantised checkpoint stores (see `padded`).
    """
    return sum(
        host.share(matrix, model) * copies(model, matrix, layout) * rank_bytes(model, quantization, matrix, layout)
        for matrix in matrices(model)
    )


class KvTier(Spec):
    """Storage tier below the GPU's KV cache, with LRU eviction to the next tier (the last tier drops its blocks)."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """Name of the tier: host, ssd, store, ..."""
    capacity_gb: Positive
    """KV capacity for one replica, or with `shared` for all replicas of the pool [10^9 bytes]."""
    read_bytes_per_s: Positive
    """Read rate from the tier to the GPUs of a replica [bytes/s]."""
    latency_s: NonNegative = 0.0
    """Latency of a request that reads from the tier, regardless of the size [s]."""
    write: Literal["evict", "through"] = "evict"
    """Write policy: evict writes blocks that the tier above evicts, through writes blocks as soon as they are
    computed."""
    shared: bool = False
    """True if all replicas of the pool share the tier."""
