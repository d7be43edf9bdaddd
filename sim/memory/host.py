"""What a replica keeps in the memory of its host: weights, and the KV cache of layers that the CPU computes."""

from dataclasses import dataclass
from math import inf

from sim.catalogue.entries.model import Model, matrices
from sim.catalogue.entries.offload import HostWeights, Offload
from sim.catalogue.entries.quantization import Quantization, padded
from sim.memory.shard import Layout, copies, rank_bytes
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
        return f"needs {needed / GB:.1f} GB of host memory for {what}, a replica's part is {host_memory_bytes / GB:.1f}"


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
