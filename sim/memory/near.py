"""What compressed attention keeps of the last tokens beside its entries, as vLLM lays it out (DeepSeek-V4).

A layer keeps the entries of its window one by one. Compressors keep a value and a weight at 32 bit for each number of
each token that waits to be compressed: the last 8 tokens where entries overlap, the last 128 where they do not. In 8
bit all of it lies in blocks as large as one of 64 entries, so a compressor's block holds 4 or 8 tokens, an indexer's 4.
While a step computes a prompt, all of the prompt's tokens in it have their places. Every rank holds all of it
(vllm: models/deepseek_v4/compressor.py, v1/attention/backends/mla/sparse_swa.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from sim.catalogue.entries.model import CompressedAttention, Model, index_key_bytes, kv_bytes_per_token_layer
from sim.catalogue.entries.quantization import KvCacheDtype, kv_element_bytes

BLOCK_ENTRIES = 64
ALIGNED_TO = 576
"""Bytes of which a block in 8 bit is a multiple."""
STATE_NUMBER_BYTES = 4
VALUE_AND_WEIGHT = 2
OVERLAP = 2
"""Entries of fine layers are made of twice their tokens, and have two of each number."""
FINE_BLOCK, COARSE_BLOCK = 4, 8
"""Tokens in a compressor's block."""


@dataclass(frozen=True, slots=True)
class Near:
    """Blocks of one kind in all layers."""

    window: int
    """Tokens that stay."""
    block_tokens: int
    bytes_per_block: float

    def bytes(self, tokens: int) -> float:
        """Of a sequence that has so many *tokens* of its window."""
        return (ceil(min(tokens, self.window) / self.block_tokens) + 1) * self.bytes_per_block

    @property
    def bytes_per_token(self) -> float:
        """Of a token that is being computed."""
        return self.bytes_per_block / self.block_tokens


def near(model: Model, compressed: CompressedAttention, dtype: KvCacheDtype) -> Iterator[Near]:
    """What *model* keeps beside its entries, on each GPU of a stage with all layers."""
    eight_bit = kv_element_bytes(dtype) == 1

    def block(payload: float, own: float) -> float:
        return ceil(payload / ALIGNED_TO) * ALIGNED_TO if eight_bit else own

    entries = BLOCK_ENTRIES * kv_bytes_per_token_layer(model, kv_element_bytes(dtype))
    numbers = VALUE_AND_WEIGHT * STATE_NUMBER_BYTES * model.head_dim
    fine, coarse = FINE_BLOCK * OVERLAP * numbers, COARSE_BLOCK * numbers
    yield Near(compressed.window, BLOCK_ENTRIES, model.layers * block(entries, entries))
    yield Near(OVERLAP * compressed.fine_ratio, FINE_BLOCK, compressed.fine_layers * block(entries, fine))
    yield Near(compressed.coarse_ratio, COARSE_BLOCK, compressed.coarse_layers * block(entries, coarse))
    if (indexer := model.indexer) is not None:
        keys = BLOCK_ENTRIES * index_key_bytes(model) * indexer.tokens_per_key
        state = FINE_BLOCK * OVERLAP * VALUE_AND_WEIGHT * STATE_NUMBER_BYTES * indexer.head_dim
        yield Near(OVERLAP * compressed.fine_ratio, FINE_BLOCK, indexer.indexing_layers * block(keys, state))


def near_sequence_bytes(model: Model, dtype: KvCacheDtype, tokens: int) -> float:
    """Of a sequence of so many *tokens* on each GPU, all layers; 0 without compressed attention [bytes]."""
    return sum(one.bytes(tokens) for one in near(model, model.compressed, dtype)) if model.compressed else 0.0


def near_step_bytes(model: Model, dtype: KvCacheDtype, tokens: int) -> float:
    """Of the *tokens* that a step computes, on each GPU, all layers; 0 without compressed attention [bytes]."""
    if model.compressed is None:
        return 0.0
    return tokens * sum(one.bytes_per_token for one in near(model, model.compressed, dtype))
