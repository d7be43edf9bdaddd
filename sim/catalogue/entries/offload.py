"""Weights that stay in the host's memory: what an engine does with them, and which of a model's weights they are."""

from dataclasses import dataclass
from typing import Literal

from sim.catalogue.entries.model import Matrix, Model
from sim.catalogue.value import Sourced, Value

OffloadOption = Literal["cpu_offload_gb", "n_gpu_layers", "n_cpu_moe"]


class EngineOffload(Sourced):
    """How an engine works with weights in host memory; source and `where` are those of its rules."""

    options: tuple[OffloadOption, ...]
    """What its operator may set."""
    experts_in_host: bool = False
    """All routed experts lie in host memory where the operator says nothing."""
    streaming: Literal["copied", "in_place", "none"]
    """How the GPU gets at them: copied before they are used, read over the link by its kernels, or never."""
    stream_from_tokens: Value | None = None
    """Smallest step whose weights go to the GPU; smaller ones are multiplied by the CPU. Absent: all steps."""
    micro_batch_tokens: Value | None = None
    """Tokens that share one pass over the weights; absent: those of the step."""
    link_efficiency: Value | None = None
    """Share of the link's rate that weights stream at."""
    memory_efficiency: Value | None = None
    """Share of the host memory's rate that the CPU reads weights at."""
    expert_memory_efficiency: Value | None = None
    """The same share for routed experts, which are read in pieces."""


@dataclass(frozen=True, slots=True)
class Offload:
    """What an operator leaves in host memory, under the engines' own names."""

    cpu_offload_gb: float | None = None
    """Weights of the layers, per GPU [GiB]."""
    n_gpu_layers: int | None = None
    """Layers on the GPU, the last ones; the LM head counts as one more, before all others."""
    n_cpu_moe: int | None = None
    """Leading layers whose routed experts stay in host memory."""

    @property
    def given(self) -> dict[OffloadOption, float]:
        """The options that are set."""
        found: dict[OffloadOption, float | None] = {
            "cpu_offload_gb": self.cpu_offload_gb,
            "n_gpu_layers": self.n_gpu_layers,
            "n_cpu_moe": self.n_cpu_moe,
        }
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class HostWeights:
    """Which of a model's weights lie in host memory."""

    layer_share: float = 0.0
    """Of every layer's weights: an even share stands for the leading layers of a model whose layers are alike."""
    layers: int = 0
    """Leading layers, all of their weights and their part of the KV cache."""
    expert_layers: int = 0
    """Leading layers whose routed experts lie there."""
    head: bool = False
    """The LM head, too."""
    embedding: bool = False
    """The table that token ids are looked up in, unless it is the LM head as well."""

    def share(self, matrix: Matrix, model: Model) -> float:
        """Share of the copies of *matrix* that lie in host memory."""
        if matrix.last_layer == 0:
            return float(self._outside(matrix, model))
        layers = max(self.layers, self.expert_layers if matrix.role == "expert" else 0)
        if model.linear_attention is not None and matrix.role == "attention":
            return max(self.layer_share, layers / model.layers)  # both kinds of layers alternate
        held = max(0, min(layers, matrix.last_layer) - matrix.first_layer)
        return max(self.layer_share, held / (matrix.last_layer - matrix.first_layer))

    def _outside(self, matrix: Matrix, model: Model) -> bool:
        if matrix.role == "embedding" and not (model.tie_embeddings and matrix.split == "vocab"):
            return self.embedding
        return self.head and matrix.role in ("embedding", "lm_head")

    @classmethod
    def of(cls, offload: Offload, model: Model, layer_bytes: float) -> "HostWeights":
        """Where *offload* puts the weights of *model*, whose layers take *layer_bytes* on one GPU.

        llama.cpp deals the LM head to the GPU first, then the layers from the last one on.
        """
        if offload.cpu_offload_gb is not None:
            return cls(layer_share=min(1.0, offload.cpu_offload_gb * 2**30 / layer_bytes))
        on_gpu = model.layers + 1 if offload.n_gpu_layers is None else offload.n_gpu_layers
        return cls(
            layers=min(model.layers, model.layers + 1 - on_gpu),
            expert_layers=offload.n_cpu_moe or 0,
            head=on_gpu == 0,
            embedding=True,
        )
