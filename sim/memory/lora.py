"""LoRA adapters of a pool: what they change in the model, how large they are, and what their slots take of a GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.catalogue.model import Matrix, Model, matrices
from sim.message import Message
from sim.spec import Count, Positive, Spec

BYTES_PER_PARAMETER = 2
"""Adapters are kept at the activations' 16 bit, also beside quantised weights."""
ADAPTED = ("attention", "mlp", "shared_expert")
"""Roles of the matrices that may be adapted."""
PARTS = {"kv_proj": ("k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
"""Matrices that are stored together, under the names that adapters give their parts."""


class LoraAdapters(Spec):
    """LoRA adapters beside the weights, under vLLM's names. All adapters have the largest rank."""

    max_loras: Count = 1
    """Slots on the GPU: the most adapters that the requests of one batch may ask for."""
    max_cpu_loras: Count | None = None
    """Adapters that host memory keeps, those on the GPU included; left out: `max_loras`."""
    max_lora_rank: Count = 16
    """Rank of the adapters, and what a slot has room for."""
    target_modules: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """Names of the matrices that adapters change, such as q_proj; left out: all of attention and of the feed-forward
    blocks, routed experts excepted."""
    read_bytes_per_s: Positive | None = None
    """From where adapters are stored into host memory; left out: as a drive of the server reads weights."""

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
    """One matrix of a layer, `inputs` x `outputs`, that an adapter changes in `layers` places."""

    name: str
    inputs: int
    outputs: int
    layers: int
    split: str


def projections(model: Model, lora: LoraAdapters) -> list[Projection]:
    """What *lora* changes in *model*."""
    wanted = lora.target_modules
    return [one for one in _adaptable(model) if wanted is None or one.name in wanted]


def module_names(model: Model) -> list[str]:
    """Names that `target_modules` may have for *model*."""
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
    """One adapter, as it is stored."""
    pairs = sum(one.layers * (one.inputs + one.outputs) for one in projections(model, lora))
    return float(pairs * lora.max_lora_rank * BYTES_PER_PARAMETER)


def slot_bytes(model: Model, lora: LoraAdapters, tensor_parallel_size: int) -> float:
    """One slot on each GPU: the matrix that meets the split side of a projection is split, the other one is whole
    (vLLM without `fully_sharded_loras`).
    """
    tp = tensor_parallel_size
    heads = max(1, model.kv_heads // tp) / model.kv_heads
    shares = {"outputs": (1.0, 1 / tp), "kv_heads": (1.0, heads), "inputs": (1 / tp, 1.0)}
    pairs = 0.0
    for one in projections(model, lora):
        inputs, outputs = shares.get(one.split, (1.0, 1.0))
        pairs += one.layers * (one.inputs * inputs + one.outputs * outputs)
    return pairs * lora.max_lora_rank * BYTES_PER_PARAMETER
