"""LoRA adapters of a pool: the matrices that they change, their sizes, and the GPU memory of their slots."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.catalogue.model import Matrix, Model, matrices
from sim.message import Message
from sim.spec import Count, Positive, Spec

BYTES_PER_PARAMETER = 2
"""Bytes of an adapter parameter: 16 bit as activations, also beside quantised weights."""
ADAPTED = ("attention", "mlp", "shared_expert")
"""Roles of the matrices that may be adapted."""
PARTS = {"kv_proj": ("k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Matrices that are stored together, with the names that adapters use for their parts."""


class LoraAdapters(Spec):
    """LoRA adapters beside the weights, under vLLM's names; all adapters have the largest rank."""

    max_loras: Count = 1
    """Slots on the GPU: the most adapters that the requests of one batch may use."""
    max_cpu_loras: Count | None = None
    """Adapters that host memory keeps, those on the GPU included; left out: `max_loras`."""
    max_lora_rank: Count = 16
    """Rank of the adapters and of the slots."""
    target_modules: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the matrices that adapters change, such as q_proj; left out: all of attention and of the feed-forward
    blocks, routed experts excepted."""
    read_bytes_per_s: Positive | None = None
    """Read rate of the store of adapters, into host memory [bytes/s]. Default: the rate at which a drive of the server
    reads weights."""

    @model_validator(mode="after")
    def _host_holds_the_slots(self) -> Self:
        if self.max_cpu_loras is not None and self.max_cpu_loras < self.max_loras:
            raise ValueError(
                Message(
                    "max_cpu_loras ({max_cpu_loras}) must not be below max_loras ({max_loras})",
                    self.max_cpu_loras,
                    self.max_loras,
                )
            )
        return self

    @property
    def in_host(self) -> int:
        """Adapters that host memory keeps."""
        return self.max_cpu_loras or self.max_loras


@dataclass(frozen=True, slots=True)
class Projection:
    """Matrix of a layer, `inputs` x `outputs`, that an adapter changes in `layers` places."""

    name: str
    inputs: int
    outputs: int
    layers: int
    split: str


def projections(model: Model, lora: LoraAdapters) -> list[Projection]:
    """Return the matrices of *model* that *lora* changes."""
    wanted = lora.target_modules
    return [one for one in _adaptable(model) if wanted is None or one.name in wanted]


def module_names(model: Model) -> list[str]:
    """Return the names that `target_modules` may list for *model*."""
    return list(dict.fromkeys(one.name for one in _adaptable(model)))


def _adaptable(model: Model) -> Iterator[Projection]:
    for matrix in matrices(model):
        if matrix.role in ADAPTED and matrix.split != "vocab":
            names = PARTS.get(matrix.name, (matrix.name,))
            for name in names:
                yield Projection(name, matrix.inputs, matrix.outputs // len(names), _places(matrix), matrix.split)


def _places(matrix: Matrix) -> int:
    return (matrix.last_layer - matrix.first_layer) * matrix.per_layer


def adapter_bytes(model: Model, lora: LoraAdapters) -> float:
    """Return the stored size of one adapter [bytes]."""
    pairs = sum(one.layers * (one.inputs + one.outputs) for one in projections(model, lora))
    return float(pairs * lora.max_lora_rank * BYTES_PER_PARAMETER)


def slot_bytes(model: Model, lora: LoraAdapters, tensor_parallel_size: int) -> float:
    """Return the size of one adapter slot on each GPU [bytes].

    The low-rank matrix on the split side of a projection is split over the ranks, the other one is replicated (vLLM
    without `fully_sharded_loras`).
    """
    tp = tensor_parallel_size
    heads = max(1, model.kv_heads // tp) / model.kv_heads
    shares = {"outputs": (1.0, 1 / tp), "kv_heads": (1.0, heads), "inputs": (1 / tp, 1.0)}
    pairs = 0.0
    for one in projections(model, lora):
        inputs, outputs = shares.get(one.split, (1.0, 1.0))
        pairs += one.layers * (one.inputs * inputs + one.outputs * outputs)
    return pairs * lora.max_lora_rank * BYTES_PER_PARAMETER
