"""What a sequence leaves in memory: numbers and bytes per token, states."""

from sim.catalogue.entries.model.language import Model


def kv_elements_per_token_layer(model: Model) -> int:
    """Numbers that one token leaves in one attention layer's cache: all KV heads, or MLA's latent and rope key."""
    if model.mla is not None:
        return model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    return 2 * model.kv_heads * model.head_dim


def kv_bytes_per_token(model: Model, element_bytes: float = 2) -> float:
    """Bytes that one token leaves in the cache of a single GPU, all layers whose cache grows or slides [bytes]."""
    return kv_elements_per_token_layer(model) * (model.layers - model.linear_attention_layers) * element_bytes
