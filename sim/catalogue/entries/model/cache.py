"""What a sequence leaves in memory: numbers and bytes per token, states."""

from sim.catalogue.entries.model.language import Model

BITS_PER_BYTE = 8
CONVOLUTION_ROWS, CONVOLUTION_BYTES = 3, 2
"""Last inputs that a convolution of width 4 before a linear layer keeps, and the bytes of a number."""
INDEX_SCALE_BYTES = 4
"""One 32-bit scale for an indexer's key in 8 bits."""


def kv_elements_per_token_layer(model: Model) -> int:
    """Numbers that one token leaves in one attention layer's cache: all KV heads, MLA's latent and rope key, or an
    entry that is key and value at once.
    """
    if model.mla is not None:
        return model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    if model.compressed is not None:
        return model.head_dim
    return 2 * model.kv_heads * model.head_dim


def entries_per_token(model: Model) -> float:
    """Entries in the caches of all layers for one token of a long context, windows beside compressed entries aside."""
    if (compressed := model.compressed) is not None:
        return compressed.fine_layers / compressed.fine_ratio + compressed.coarse_layers / compressed.coarse_ratio
    return model.layers - model.linear_attention_layers


def index_key_bytes(model: Model) -> float:
    """Bytes that one token leaves in the keys of one indexer, whole on every rank; 0 without indexers."""
    indexer = model.indexer
    if indexer is None:
        return 0.0
    scale = INDEX_SCALE_BYTES if indexer.key_bits == BITS_PER_BYTE else 0
    return (indexer.head_dim * indexer.key_bits / BITS_PER_BYTE + scale) / indexer.tokens_per_key


def kv_bytes_per_token(model: Model, element_bytes: float = 2) -> float:
    """Bytes that one token leaves in the cache of a single GPU, all layers whose cache grows or slides [bytes]."""
    cached = kv_elements_per_token_layer(model) * entries_per_token(model) * element_bytes
    return cached + (index_key_bytes(model) * model.indexer.indexing_layers if model.indexer else 0.0)


def state_bytes(model: Model) -> int:
    """State and convolution of one layer for one sequence, all heads; 0 without such layers [bytes]."""
    linear = model.linear_attention
    if linear is None:
        return 0
    values = linear.value_heads * linear.value_head_dim
    inputs = 2 * linear.key_heads * linear.key_head_dim + values
    return (
        values * linear.key_head_dim * linear.state_bits // BITS_PER_BYTE
        + inputs * CONVOLUTION_ROWS * CONVOLUTION_BYTES
    )
