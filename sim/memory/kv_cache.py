"""Layout of a model's KV cache in an engine: groups of layers, compressed attention, recurrent states.

Groups (vLLM, `v1/core/kv_cache_utils.py`): layers that keep all tokens, layers with a sliding window and layers with
a state are dealt to groups of the same number of layers. A block of any group takes the same memory: that many
layers, `block_size` tokens. Where states are larger than such a block, the block grows until it holds one.

Compressed attention (DeepSeek-V4, as vLLM lays it out): beside its compressed entries, a layer keeps the uncompressed
entries of its sliding window. Compressors keep a value and a weight at 32 bit for each number of each token that waits
to be compressed: the last 8 tokens where entries overlap, the last 128 where they do not. In 8 bit, all of it lies in
blocks as large as one of 64 entries, so a compressor's block holds 4 or 8 tokens, an indexer's 4. While a step computes
a prompt, all of the prompt's tokens in the step have their places. Every rank holds all of it
(vllm: models/deepseek_v4/compressor.py, v1/attention/backends/mla/sparse_swa.py).

Recurrent states in a separate cache (SGLang, `handle_max_mamba_cache`):

    memory of the states = ratio / (1 + ratio) of the memory that the weights leave; the KV cache gets the rest
    requests at once     = places // places of a request

A place holds the states of all linear layers for one sequence. With a prefix cache, a request needs places for the
states that it leaves there (three), and for those that are written while the next step is formed (two more).
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from sim.catalogue.model import (
    CompressedAttention,
    Model,
    index_key_bytes,
    kv_bytes_per_token,
    kv_bytes_per_token_layer,
    kv_share,
    state_bytes,
)
from sim.catalogue.quantization import KvCacheDtype, kv_element_bytes
from sim.message import Message
from sim.units import GB

STATE = 0
"""Window value of a group of recurrent layers, which keep one state of fixed size per sequence."""
SIMILAR_SIZE = 1.5
"""Ratio of the largest to the smallest kind of layers below which groups have the size of the largest kind."""


def _layers_by_window(model: Model, widths: tuple[int, int]) -> list[tuple[int | None, int]]:
    """Return (window, number of layers) of each kind of layers in *model*; see `KvLayout` for windows and *widths*."""
    inside, whole = widths
    kinds = [
        (None, whole * (model.stored_layers - model.stored_window_layers)),
        (model.sliding_window, inside * model.stored_window_layers),
        (STATE, model.linear_attention_layers),
    ]
    return [(window, layers) for window, layers in kinds if layers]


def layer_bytes(model: Model, tensor_parallel_size: int, dtype: KvCacheDtype, whole: bool = False) -> float:
    """Return the bytes of one token in the cache of one layer on one GPU."""
    element_bytes = float(kv_element_bytes(dtype))
    return kv_bytes_per_token_layer(model, element_bytes, whole) * kv_share(model, tensor_parallel_size, whole)


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Groups of layers that share a pool of blocks."""

    windows: tuple[int | None, ...]
    """Sliding window of each group [tokens]; None where the group keeps all tokens, or `STATE`."""
    layers: int
    """Layers of a group, padding included."""
    block_size: int
    """Tokens in a block."""
    layer_bytes: float
    """Bytes of a token in one layer on a GPU. Where numbers of heads differ, a layer with more heads counts as
    several."""
    steps_in_flight: int = 1
    """Concurrent steps whose tokens a window keeps while they are computed."""
    states: int = 1
    """Most states that a sequence holds in a group of recurrent layers."""
    widths: tuple[int, int] = (1, 1)
    """Number of layers of `layer_bytes` that one layer counts as: with a window, without."""

    @classmethod
    def of(
        cls, model: Model, block_size: int, dtype: KvCacheDtype = "auto", tensor_parallel_size: int = 1
    ) -> "KvLayout":
        """Return the groups of *model* with blocks of *block_size* tokens, or of more where states or heads need it.

        States are split over the ranks, KV heads up to their number, and MLA's latents not at all.
        """
        inside, whole = (layer_bytes(model, tensor_parallel_size, dtype, kind) for kind in (False, True))
        unit = min(inside, whole) if model.whole_heads is not None else whole
        widths = round(inside / unit), round(whole / unit)
        kinds = _layers_by_window(model, widths)
        fewest, most = (pick(layers for _, layers in kinds) for pick in (min, max))
        size = most if most < SIMILAR_SIZE * fewest else fewest
        windows = [window for window, layers in kinds for _ in range(-(-layers // size))]
        blocks = ceil(state_bytes(model) / tensor_parallel_size / (block_size * unit))
        return cls(tuple(windows), size, block_size * max(1, blocks, *widths), unit, widths=widths)

    def fullest_group(self, stage: Model) -> int:
        """Return the number of layers of the fullest group on a GPU of a pipeline stage with the layers of *stage*.

        The layers of a kind are dealt to its groups in turn, so that no stage lacks a group.
        """
        kinds = _layers_by_window(stage, self.widths)
        return max((-(-layers // self.windows.count(window)) for window, layers in kinds), default=0)

    def blocks(self, tokens: int, budget: int) -> int:
        """Return the most blocks that a request of *tokens* holds at once, with steps of up to *budget* tokens."""
        whole = -(-tokens // self.block_size)
        total = 0
        for window in self.windows:
            inside = -(-((window or 0) - 1 + budget * self.steps_in_flight) // self.block_size) + 1
            total += whole if window is None else min(whole, self.states if window == STATE else inside)
        return total

    def longest(self, blocks: int, budget: int) -> int:
        """Return the length [tokens] of the longest request that never holds more than *blocks* blocks."""
        return self.block_size * (
            bisect_right(range(blocks + 1), blocks, key=lambda places: self.blocks(places * self.block_size, budget))
            - 1
        )

    @property
    def has_states(self) -> bool:
        """True if some layers keep a recurrent state."""
        return STATE in self.windows


BLOCK_ENTRIES = 64
ALIGNED_TO = 576
"""Alignment of block sizes in 8 bit [bytes]."""
STATE_NUMBER_BYTES = 4
VALUE_AND_WEIGHT = 2
OVERLAP = 2
"""Overlap of fine layers: an entry is made of twice its tokens, and each number exists twice."""
FINE_BLOCK, COARSE_BLOCK = 4, 8
"""Tokens in a compressor's block, for fine and coarse layers."""


@dataclass(frozen=True, slots=True)
class WindowBlocks:
    """Blocks of one kind of recent, uncompressed data in all layers."""

    window: int
    """Most recent tokens that are kept."""
    block_tokens: int
    bytes_per_block: float

    def bytes(self, tokens: int) -> float:
        """Return the bytes of a sequence with *tokens* tokens, of which the window keeps the last."""
        return (ceil(min(tokens, self.window) / self.block_tokens) + 1) * self.bytes_per_block

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token that is being computed."""
        return self.bytes_per_block / self.block_tokens


def window_blocks(model: Model, compressed: CompressedAttention, dtype: KvCacheDtype) -> Iterator[WindowBlocks]:
    """Yield the blocks of recent tokens and compressor states of *model*, on each GPU of a stage with all layers."""
    eight_bit = kv_element_bytes(dtype) == 1

    def block(payload: float, own: float) -> float:
        return ceil(payload / ALIGNED_TO) * ALIGNED_TO if eight_bit else own

    entries = BLOCK_ENTRIES * kv_bytes_per_token_layer(model, kv_element_bytes(dtype))
    numbers = VALUE_AND_WEIGHT * STATE_NUMBER_BYTES * model.head_dim
    overlap = OVERLAP if compressed.overlapping else 1
    fine, coarse = FINE_BLOCK * overlap * numbers, COARSE_BLOCK * numbers
    yield WindowBlocks(compressed.window, BLOCK_ENTRIES, model.layers * block(entries, entries))
    fine_bytes = compressed.stored_fine_layers * block(entries, fine)
    yield WindowBlocks(overlap * compressed.fine_ratio, FINE_BLOCK, fine_bytes)
    yield WindowBlocks(compressed.coarse_ratio, COARSE_BLOCK, compressed.coarse_layers * block(entries, coarse))
    if (indexer := model.indexer) is not None and compressed.overlapping:  # V4.1 derives keys from entries
        keys = BLOCK_ENTRIES * index_key_bytes(model) * indexer.tokens_per_key
        state = FINE_BLOCK * OVERLAP * VALUE_AND_WEIGHT * STATE_NUMBER_BYTES * indexer.head_dim
        yield WindowBlocks(OVERLAP * compressed.fine_ratio, FINE_BLOCK, indexer.indexing_layers * block(keys, state))


def window_sequence_bytes(model: Model, dtype: KvCacheDtype, tokens: int) -> float:
    """Return the window and compressor bytes of a sequence on each GPU; 0 without compressed attention."""
    return sum(one.bytes(tokens) for one in window_blocks(model, model.compressed, dtype)) if model.compressed else 0.0


def window_step_bytes(model: Model, dtype: KvCacheDtype, tokens: int) -> float:
    """Return the window and compressor bytes of a step's *tokens* on each GPU; 0 without compressed attention."""
    if model.compressed is None:
        return 0.0
    return tokens * sum(one.bytes_per_token for one in window_blocks(model, model.compressed, dtype))


@dataclass(frozen=True, slots=True)
class SequenceCache:
    """Bytes of a sequence's entries and states in the caches of all layers, each stored once."""

    token_bytes: float = 0.0
    """Bytes per token in layers that keep all tokens, with index keys and compressed entries."""
    window: int = 0
    """Last tokens that layers with a sliding window keep."""
    window_token_bytes: float = 0.0
    """Bytes per token in these layers."""
    recent: tuple[WindowBlocks, ...] = ()
    """Uncompressed tokens and compressor states of compressed attention."""
    state_bytes: float = 0.0
    """Bytes of the recurrent states."""

    @property
    def has_states(self) -> bool:
        """True if a sequence has states, or windows of compressed attention, which depend on where it ends."""
        return bool(self.recent or self.state_bytes)

    def stored_token_bytes(self, tokens: int) -> float:
        """Return the bytes per token in a store that serves prefixes, with states after each *tokens* tokens.

        A prefix may end at any token, so windows contain all of them.
        """
        return self.token_bytes + self.window_token_bytes + self._end_bytes(tokens) / tokens

    @classmethod
    def of(cls, model: Model, dtype: KvCacheDtype = "auto") -> "SequenceCache":
        """Return the cache of a sequence in *model* with a KV cache of *dtype*."""
        element_bytes = float(kv_element_bytes(dtype))
        windowed = model.stored_window_layers * kv_bytes_per_token_layer(model, element_bytes)
        return cls(
            token_bytes=kv_bytes_per_token(model, element_bytes) - windowed,
            window=model.sliding_window or 0,
            window_token_bytes=windowed,
            recent=tuple(window_blocks(model, model.compressed, dtype)) if model.compressed is not None else (),
            state_bytes=float(state_bytes(model) * model.linear_attention_layers),
        )

    def bytes(self, tokens: int) -> float:
        """Return the bytes of a sequence of *tokens* tokens."""
        return self.part_bytes(0, tokens, tokens)

    def part_bytes(self, first: int, last: int, tokens: int) -> float:
        """Return the bytes of the tokens from *first* to *last* (exclusive) of a sequence of *tokens* tokens.

        Windows keep the last tokens of the sequence only; states are those of its end.
        """
        return (last - first) * self.token_bytes + self.beside_bytes(first, last, tokens)

    def beside_bytes(self, first: int, last: int, tokens: int) -> float:
        """Return the part of `part_bytes` that lies in windows and states."""
        windowed = max(0, last - max(first, tokens - self.window)) * self.window_token_bytes
        if last < tokens:
            return windowed
        return windowed + self._end_bytes(tokens)

    def _end_bytes(self, tokens: int) -> float:
        """Return the bytes that belong to the end of a sequence of *tokens* tokens."""
        return sum(one.bytes(tokens) for one in self.recent) + self.state_bytes


@dataclass(frozen=True, slots=True)
class StateCache:
    """Sizing rule of an engine's separate cache of recurrent states."""

    kv_ratio: float
    """Ratio of the state memory to the KV cache memory."""
    per_request: int
    """Places that a running request counts for."""
    places: int | None = None
    """Number of places set by the operator. None: as many as the state memory holds."""

    def places_in(self, free_bytes: float, place_bytes: float) -> int:
        """Return the number of places of *place_bytes* where weights leave *free_bytes* of a GPU."""
        if self.places is not None:
            return self.places
        return max(0, int(self.kv_ratio / (1 + self.kv_ratio) * free_bytes // place_bytes))

    def requests(self, places: int) -> int:
        """Return the most requests that run at once on *places* places."""
        return places // self.per_request

    def shortfall(self, free_bytes: float, place_bytes: float) -> str:
        """Compose the reason why no request runs where weights leave *free_bytes*; empty if requests run.

        Also empty if the weights leave nothing at all, which is reported elsewhere.
        """
        if self.places is not None and self.places < self.per_request:
            return Message(
                "{places} places for recurrent states are fewer than the {per_request} of a request",
                self.places,
                self.per_request,
            )
        needed = (self.places or self.per_request) * place_bytes
        allocated = self.places_in(free_bytes, place_bytes) * place_bytes
        if free_bytes <= 0 or needed <= allocated < free_bytes:
            return ""
        return Message(
            "needs {needed:.2f} GB for recurrent states, {free_bytes:.2f} GB are left beside the weights",
            needed / GB,
            free_bytes / GB,
        )


def place_bytes(model: Model, tensor_parallel_size: int) -> float:
    """Return the bytes of one sequence's states on one GPU of a stage that has the layers of *model*."""
    return state_bytes(model) * model.linear_attention_layers / tensor_parallel_size
