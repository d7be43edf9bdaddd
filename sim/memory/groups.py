"""How vLLM groups the layers of a model whose KV caches differ (`v1/core/kv_cache_utils.py`).

Layers that keep all tokens, layers with a sliding window and layers with a state are dealt to groups of the same number
of layers. A block of any group takes the same memory: that many layers, `block_size` tokens. Where states are larger
than such a block, the block grows until it holds one.
"""

from bisect import bisect_right
from dataclasses import dataclass
from math import ceil

from sim.catalogue.entries.model import Model, kv_bytes_per_token_layer, kv_share, state_bytes
from sim.catalogue.entries.quantization import KvCacheDtype, kv_element_bytes

STATE = 0
"""Stands for the window of a group that keeps one state for a sequence, however long it is."""
FEW_MORE = 1.5
"""Groups are as large as the largest kind of layers where that has fewer than this multiple of the smallest kind's."""


def layer_bytes(model: Model, tensor_parallel_size: int, dtype: KvCacheDtype, whole: bool = False) -> float:
    """Bytes that a token has in the cache of one layer on one GPU."""
    element_bytes = float(kv_element_bytes(dtype))
    return kv_bytes_per_token_layer(model, element_bytes, whole) * kv_share(model, tensor_parallel_size, whole)


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Groups of layers that share a pool of blocks."""

    windows: tuple[int | None, ...]
    """Of each group: its sliding window [tokens], None where it keeps all tokens, or `STATE`."""
    layers: int
    """Layers of a group, padding included."""
    block_size: int
    """Tokens in a block."""
    layer_bytes: float
    """Bytes of a token in one of them on a GPU. Where heads differ, a layer with more counts as several."""
    steps_in_flight: int = 1
    """Steps whose tokens a window keeps while they are computed."""
    states: int = 1
    """Most states that a sequence holds in a group of them."""

    @classmethod
    def of(
        cls, model: Model, block_size: int, dtype: KvCacheDtype = "auto", tensor_parallel_size: int = 1
    ) -> "KvLayout":
        """The groups of *model* where blocks hold *block_size* tokens if nothing asks for larger ones.

        States are split over the ranks, KV heads up to their number, and MLA's latents not at all.
        """
        inside, whole = (layer_bytes(model, tensor_parallel_size, dtype, kind) for kind in (False, True))
        unit = min(inside, whole) if model.whole_heads is not None else whole
        wide = {kind: round(size / unit) for kind, size in ((False, inside), (True, whole))}
        kinds: list[tuple[int | None, int]] = [
            (None, wide[True] * (model.cached_layers - model.sliding_window_layers)),
            (model.sliding_window, wide[False] * model.sliding_window_layers),
            (STATE, model.linear_attention_layers),
        ]
        kinds = [(window, layers) for window, layers in kinds if layers]
        fewest, most = (pick(layers for _, layers in kinds) for pick in (min, max))
        size = most if most < FEW_MORE * fewest else fewest
        windows = [window for window, layers in kinds for _ in range(-(-layers // size))]
        blocks = ceil(state_bytes(model) / tensor_parallel_size / (block_size * unit))
        return cls(tuple(windows), size, block_size * max(1, blocks, *wide.values()), unit)

    def blocks(self, tokens: int, budget: int) -> int:
        """Most blocks that a request of so many *tokens* holds at once, where a step has up to *budget* tokens."""
        whole = -(-tokens // self.block_size)
        total = 0
        for window in self.windows:
            inside = -(-((window or 0) - 1 + budget * self.steps_in_flight) // self.block_size) + 1
            total += whole if window is None else min(whole, self.states if window == STATE else inside)
        return total

    def longest(self, blocks: int, budget: int) -> int:
        """Tokens of the longest request that never holds more than so many *blocks*."""
        return self.block_size * (
            bisect_right(range(blocks + 1), blocks, key=lambda places: self.blocks(places * self.block_size, budget))
            - 1
        )

    @property
    def has_states(self) -> bool:
        """Whether some layers keep a state."""
        return STATE in self.windows
