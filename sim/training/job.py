"""One training job: a network, its batches, and how it is spread over GPUs."""

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
    """Ranks by kind of parallelism, and what data-parallel ranks share."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    """Ranks that share one sequence."""
    expert: int = 1
    """Ranks, among those of data and tensor parallelism, that routed experts are spread over."""
    virtual_stages: int = 1
    """Chunks of layers per pipeline rank (interleaved schedule)."""
    zero: int = 0
    """ZeRO stage: 1 shards optimizer states over the data-parallel ranks, 2 gradients too, 3 weights too."""
    sequence: bool = False
    """Sequence parallelism (Korthikanti et al.): tensor-parallel ranks divide all activations."""

    @property
    def gpus(self) -> int:
        """All ranks."""
        return self.tensor * self.pipeline * self.data * self.context


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """One optimizer step of a training run, repeated."""

    gpu: Gpu
    link: Link
    """Between the GPUs of one node."""
    network: ForwardCost
    parallel: Parallel
    micro_batch: int
    """Samples that one data-parallel rank takes at once."""
    micro_batches: int
    """Of one step, one after the other: gradient accumulation."""
    sequence: float = 1.0
    """Tokens of a sample; 1 for what has none."""
    precision: Precision = "bf16"
    method: Method = "full"
    recompute: Recompute = "none"
    gpus_per_node: int = 8
    node_bytes_per_s: float = 0.0
    """Network of one node, per direction, all adapters together; not used within one node."""
    host_bytes_per_s: float = 0.0
    """Optimizer states in host memory: rate of their way there; 0: they stay on the GPU."""
    fill: float = 1.0
    """Share of a padded sequence that is computed, where padding is left out."""

    @property
    def global_batch(self) -> int:
        """Samples of one step over all ranks."""
        return self.micro_batch * self.micro_batches * self.parallel.data

    @property
    def units(self) -> float:
        """Tokens or samples that one rank computes in one micro-batch."""
        return self.micro_batch * self.sequence * self.fill / self.parallel.context

    @property
    def context(self) -> float:
        """Tokens that a token sees: half of its sequence behind a causal mask."""
        seen = self.sequence * self.fill
        return seen / 2 if self.network.causal else seen

    @property
    def held_params(self) -> float:
        """Parameters of the model as one copy of it lies on tensor- and pipeline-parallel ranks: routed experts are
        spread over more ranks than those, and count only with the share that stays.
        """
        network, parallel = self.network, self.parallel
        beyond = max(1.0, parallel.expert / parallel.tensor)
        return network.params - network.expert_params * (1 - 1 / beyond)

    @property
    def nodes(self) -> int:
        """Nodes that the ranks fill."""
        return -(-self.parallel.gpus // self.gpus_per_node)
