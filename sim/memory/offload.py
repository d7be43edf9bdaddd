"""What a replica keeps outside GPU memory.

In host memory: weights, and the KV cache of layers that the CPU computes. In tiers below the GPU's KV cache (host
memory, an SSD, a store that replicas share): the KV that the GPU has no room for.
"""

from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

from pydantic import Field

from sim.catalogue.engine import HostWeights, Offload
from sim.catalogue.model import Model, matrices
from sim.catalogue.quantization import Quantization, padded
from sim.memory.parallelism import Layout, copies, rank_bytes
from sim.message import Message
from sim.spec import NonNegative, Positive, Spec
from sim.units import GB


@dataclass(frozen=True, slots=True)
class InHost:
    """One replica's needs [bytes]."""

    weights_bytes: float
    block_bytes: float
    """Of one KV block, the part of layers in host memory."""

    @classmethod
    def of(
        cls, host: HostWeights, model: Model, quantization: Quantization, layout: Layout, block_bytes: float
    ) -> "InHost":
        """The weights of all its GPUs, and *block_bytes*."""
        per_gpu = host_weight_bytes(host, padded(quantization, model), quantization, layout)
        return cls(per_gpu * layout.gpus, block_bytes)

    def blocks(self, host_memory_bytes: float) -> float:
        """KV blocks that fit beside the weights."""
        return (host_memory_bytes - self.weights_bytes) // self.block_bytes if self.block_bytes else inf

    def why_not(self, blocks: int, host_memory_bytes: float) -> str:
        """What is missing for so many KV blocks; empty if nothing is."""
        needed = self.weights_bytes + blocks * self.block_bytes
        if needed <= host_memory_bytes:
            return ""
        what = "weights and KV cache" if self.block_bytes else "weights"
        return Message(
            "needs {needed:.1f} GB of host memory for {what}, a replica's part is {host_memory_bytes:.1f}",
            needed / GB,
            what,
            host_memory_bytes / GB,
        )


def host_weights(offload: Offload, model: Model, quantization: Quantization, layout: Layout) -> HostWeights:
    """Which weights *offload* leaves in host memory, for a replica without pipeline stages."""
    stored = padded(quantization, model)
    layer_bytes = sum(
        copies(stored, matrix, layout, 0) * rank_bytes(stored, quantization, matrix, layout)
        for matrix in matrices(stored)
        if matrix.last_layer
    )
    return HostWeights.of(offload, stored, layer_bytes)


def host_weight_bytes(host: HostWeights, model: Model, quantization: Quantization, layout: Layout) -> float:
    """Weights that one GPU leaves in host memory [bytes]; *model* is as the quantised checkpoint stores it."""
    return sum(
        host.share(matrix, model) * copies(model, matrix, layout, 0) * rank_bytes(model, quantization, matrix, layout)
        for matrix in matrices(model)
    )


class KvTier(Spec):
    """One tier below the GPU's KV cache. It keeps the blocks used last; the others go to the next tier or are lost."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    """host, ssd, store, ..."""
    capacity_gb: Positive
    """Room for the KV of one replica, or with `shared` of all replicas of the pool [10^9 bytes]."""
    read_bytes_per_s: Positive
    """From the tier to the GPUs of a replica."""
    latency_s: NonNegative = 0.0
    """Of a request that reads from it, however much [s]."""
    write: Literal["evict", "through"] = "evict"
    """When blocks come: when the tier above gives them up, or as soon as they are computed."""
    shared: bool = False
    """One for all replicas of the pool."""
