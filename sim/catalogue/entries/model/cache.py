"""What a sequence leaves in memory: numbers and bytes per token, states."""

from typing import NamedTuple

from sim.catalogue.entries.model.language import Model
from sim.units import BITS_PER_BYTE

CONVOLUTION_ROWS, CONVOLUTION_BYTES = 3, 2
"""Last inputs that a convolution of width 4 before a linear layer keeps, and the bytes of a number."""
INDEX_SCALE_BYTES = 4
"""One 32-bit scale for an indexer's key in 8 bits."""


class Scale(NamedTuple):
    """A factor that so many numbers in 8 bit share."""

    numbers: int
    bytes: int


LATENT_SCALE = Scale(128, 4)
"""Of DeepSeek-V3.2's latents."""
ENTRY_SCALE = Scale(64, 1)
"""Of DeepSeek-V4's entries: 7 for 448 numbers, and a byte that fills the eighth place."""


def kv_elements_per_token_layer(model: Model, whole: bool = False) -> int:
    """Numbers that one token leaves in one attention layer's cache: all KV heads, MLA's latent and rope key, or an
    entry that is key and value at once. *whole*: in a layer that sees all tokens, where those have heads of their own.
    """
    if model.mla is not None:
        return model.mla.kv_lora_rank + model.mla.qk_rope_head_dim
    if model.compressed is not None:
        return model.head_dim
    by = model.attends_by(whole)
    return by.kv_heads * (by.head_dim + by.value_dim)


def kv_bytes_per_token_layer(model: Model, element_bytes: float = 2, whole: bool = False) -> float:
    """Bytes of those numbers. Sparse attention stores latents and entries in 8 bit with their scales and leaves what
    carries the position at 16 bit: 656 bytes a token of DeepSeek-V3.2, 584 an entry of V4 (vLLM's fp8_ds_mla).
    """
    if element_bytes == 1 and model.indexer is not None and model.indexer.of_latents:
        if model.mla is not None:
            numbers, exact, scale = model.mla.kv_lora_rank, model.mla.qk_rope_head_dim, LATENT_SCALE
            return numbers + numbers / scale.numbers * scale.bytes + 2 * exact
        if model.compressed is not None:
            numbers, exact, scale = model.head_dim, model.compressed.rope_head_dim, ENTRY_SCALE
            return (numbers - exact) + (numbers / scale.numbers) * scale.bytes + 2 * exact
    return kv_elements_per_token_layer(model, whole) * element_bytes


def kv_share(model: Model, tensor_parallel_size: int, whole: bool = False) -> float:
    """Part of a layer's cache that a rank holds: latents whole, KV heads split as far as there are any."""
    kv_heads = model.attends_by(whole).kv_heads
    return 1.0 if model.mla is not None else max(1, kv_heads // tensor_parallel_size) / kv_heads


def entries_per_token(model: Model) -> float:
    """Entries in the caches of all layers for one token of a long context, windows beside compressed entries aside."""
    if (compressed := model.compressed) is not None:
        return compressed.fine_layers / compressed.fine_ratio + compressed.coarse_layers / compressed.coarse_ratio
    return model.cached_layers


def index_key_bytes(model: Model) -> float:
    """Bytes that one token leaves in the keys of one indexer, whole on every rank; 0 without indexers."""
    indexer = model.indexer
    if indexer is None:
        return 0.0
    scale = INDEX_SCALE_BYTES if indexer.key_bits == BITS_PER_BYTE else 0
    return (indexer.head_dim * indexer.key_bits / BITS_PER_BYTE + scale) / indexer.tokens_per_key


def kv_bytes_per_token(model: Model, element_bytes: float = 2) -> float:
    """Bytes that one token leaves in the cache of a single GPU, all layers whose cache grows or slides [bytes]."""
    cached = kv_bytes_per_token_layer(model, element_bytes) * entries_per_token(model)
    if model.whole_heads is not None:
        layers = model.cached_layers - model.sliding_window_layers
        more = [kv_bytes_per_token_layer(model, element_bytes, whole) for whole in (True, False)]
        cached += layers * (more[0] - more[1])
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
