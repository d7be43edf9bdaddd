"""What drafting takes of a GPU's memory: weights, and KV cache beside each token's own."""

from dataclasses import dataclass

from sim.catalogue.entries.model import Model, matrices
from sim.catalogue.entries.quantization import KvCacheDtype, Quantization, padded
from sim.memory.groups import layer_bytes
from sim.memory.shard import Layout, stage_weight_bytes


@dataclass(frozen=True, slots=True)
class DraftMemory:
    """Per GPU [bytes]."""

    weights_bytes: float = 0.0
    kv_bytes_per_token: float = 0.0

    @classmethod
    def of_model(cls, model: Model, quantization: Quantization, layout: Layout, dtype: KvCacheDtype) -> "DraftMemory":
        """A model of its own, split as the one that it drafts for."""
        stored = padded(quantization, model)
        weights = stage_weight_bytes(stored, quantization, matrices(stored), layout, 0)
        return cls(weights, _kv_bytes_per_layer(model, layout, dtype) * model.cached_layers)

    @classmethod
    def of_heads(cls, model: Model, quantization: Quantization, layout: Layout, dtype: KvCacheDtype) -> "DraftMemory":
        """One more layer of *model*, its mean one; embedding and LM head are the model's."""
        stored = padded(quantization, model)
        layers = tuple(matrix for matrix in matrices(stored) if matrix.role not in ("embedding", "lm_head"))
        weights = stage_weight_bytes(stored, quantization, layers, layout, 0)
        return cls(weights / model.layers, _kv_bytes_per_layer(model, layout, dtype))


def _kv_bytes_per_layer(model: Model, layout: Layout, dtype: KvCacheDtype) -> float:
    return layer_bytes(model, layout.tensor_parallel_size, dtype)
