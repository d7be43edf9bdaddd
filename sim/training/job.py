"""Optimizer step of a training job: network, batches, and spread over GPUs."""

from dataclasses import dataclass
from typing import Literal

from sim.catalogue.gpu import Gpu
from sim.catalogue.link import Link
from sim.training.network import ForwardCost

Recompute = Literal["none", "selective", "full"]
Method = Literal["full", "lora", "qlora"]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4"]


@dataclass(frozen=True, slots=True)
class Parallel:
    """Number of ranks per kind of parallelism, and what data-parallel ranks shard."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    """Number of ranks that share a sequence."""
    expert: int = 1
    """Number of data- and tensor-parallel ranks over which routed experts are spread."""
    virtual_stages: int = 1
    """Number of layer chunks per pipeline rank (interleaved schedule)."""
    zero: int = 0
    """ZeRO stage: 1 shards optimizer states over the data-parallel ranks, 2 gradients too, 3 weights too."""
    sequence: bool = False
    """True if tensor-parallel ranks divide all activations (sequence parallelism, Korthikanti et al.)."""

    @property
    def gpus(self) -> int:
        """Total number of ranks."""
        return self.tensor * self.pipeline * self.data * self.context


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """Optimizer step that a training job repeats: hardware, network, parallelism and batches."""

    gpu: Gpu
    link: Link
    """Link between the GPUs of a node."""
    network: ForwardCost
    parallel: Parallel
    micro_batch: int
    """Samples that a data-parallel rank computes at once."""
    micro_batches: int
    """Number of micro-batches per step and rank, computed in sequence (gradient accumulation)."""
    sequence: float = 1.0
    """Tokens per sample; 1 for networks without sequences."""
    precision: Precision = "bf16"
    method: Method = "full"
    recompute: Recompute = "none"
    recomputed_layers: float = 1.0
    """Fraction of the layers that full recomputation repeats; unused with `selective` and `none`."""
    eight_bit_attention: bool = False
    """True if attention computes in 8 bits, not in 16."""
    gpus_per_node: int = 8
    node_bytes_per_s: float = 0.0
    """Network rate of a node per direction, all adapters together [bytes/s]; unused on one node."""
    host_bytes_per_s: float = 0.0
    """Transfer rate to optimizer states in host memory [bytes/s]; 0 if the states are on the GPU."""
    fill: float = 1.0
    """Fraction of a padded sequence that is computed, if padding is skipped."""
    samples: int | None = None
    """Samples per step where ranks have unequal shares, of which the fullest determines the time; None: all are full.
    """

    @property
    def global_batch(self) -> int:
        """Samples per step over all ranks."""
        return self.samples or self.micro_batch * self.micro_batches * self.parallel.data

    @property
    def units(self) -> float:
        """Tokens or samples that a rank computes per micro-batch."""
        return self.micro_batch * self.sequence * self.fill / self.parallel.context

    @property
    def context(self) -> float:
        """Mean number of tokens that a token attends to: half of the sequence behind a causal mask."""
        seen = self.sequence * self.fill
        return seen / 2 if self.network.causal else seen

    @property
    def repeated_layers(self) -> float:
        """Fraction of the layers whose whole forward pass is repeated before the backward pass."""
        return self.recomputed_layers if self.recompute == "full" else 0.0

    @property
    def held_params(self) -> float:
        """Parameters of one model copy that its tensor- and pipeline-parallel ranks hold.

        Routed experts may be spread over more ranks than those; only the remaining fraction of them counts.
        """
        network, parallel = self.network, self.parallel
        beyond = max(1.0, parallel.expert / parallel.tensor)
        return network.params - network.expert_params * (1 - 1 / beyond)

    @property
    def nodes(self) -> int:
        """Number of nodes that the ranks fill."""
        return -(-self.parallel.gpus // self.gpus_per_node)
