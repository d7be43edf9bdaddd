"""What drafting takes of a GPU's memory: weights, and KV cache beside each token's own."""

from dataclasses import dataclass

from sim.catalogue.entries.model import Model, kv_elements_per_token_layer, matrices
from sim.catalogue.entries.quantization import KvCacheDtype, Quantization, kv_element_bytes, padded
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
        return cls(weights, _kv_bytes_per_layer(model, layout, dtype) * (model.layers - model.linear_attention_layers))

    @classmethod
    def of_heads(cls, model: Model, quantization: Quantization, layout: Layout, dtype: KvCacheDtype) -> "DraftMemory":
        """One more layer of *model*, its mean one; embedding and LM head are the model's."""
        stored = padded(quantization, model)
        layers = tuple(matrix for matrix in matrices(stored) if matrix.role not in ("embedding", "lm_head"))
        weights = stage_weight_bytes(stored, quantization, layers, layout, 0)
        return cls(weights / model.layers, _kv_bytes_per_layer(model, layout, dtype))


def _kv_bytes_per_layer(model: Model, layout: Layout, dtype: KvCacheDtype) -> float:
    tp = layout.tensor_parallel_size
    heads = 1.0 if model.mla is not None else max(1, model.kv_heads // tp) / model.kv_heads
    return kv_elements_per_token_layer(model) * kv_element_bytes(dtype) * heads
