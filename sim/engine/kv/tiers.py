"""Storage tiers for KV blocks below the GPU: host memory, SSD, or a store that replicas share."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf


@dataclass(slots=True)
class Tier:
    """Storage tier with blocks by name; the least recently used ones are evicted first."""

    blocks: int
    """Capacity [blocks]."""
    read_s_per_block: float
    """Time to read a block of the layers that keep all tokens [s]."""
    latency_s: float
    """Latency of a request that reads from the tier, however many blocks [s]."""
    write_through: bool
    """True if blocks are written as soon as they are computed; otherwise when the tier above evicts them."""
    read_bytes_per_s: float = inf
    """Bandwidth for windows and states, whose size depends on the blocks read with them [B/s]."""
    names: OrderedDict[object, None] = field(default_factory=OrderedDict)
    """Names of the blocks, least recently used first."""

    def put(self, name: object) -> object | None:
        """Store *name*. Return the name evicted for it; None if none is."""
        self.names[name] = None
        self.names.move_to_end(name)
        return self.names.popitem(last=False)[0] if len(self.names) > self.blocks else None


class Tiers:
    """Tiers below the KV cache of one rank, the nearest first.

    A request whose blocks are in a tier reads them before its first step, or recomputes them if that is faster.
    """

    __slots__ = ("_beside_bytes", "_block_size", "_recompute_s", "_tiers")

    def __init__(
        self,
        tiers: Sequence[Tier],
        recompute_s_per_block: float,
        block_size: int = 1,
        beside_bytes: Callable[[int, int, int], float] | None = None,
    ) -> None:
        """Set the tiers, the nearest first.

        *beside_bytes* returns the bytes of windows and states for the first, last (exclusive) and number of tokens of a
        sequence; None: the model has none. Only these need *block_size*, the tokens of a block.
        """
        self._block_size, self._beside_bytes = block_size, beside_bytes
        self._tiers = list(tiers)
        self._recompute_s = recompute_s_per_block

    def stored(self, names: Sequence[object]) -> None:
        """Write *names*, which the GPU has computed, through to the tiers that store them at once."""
        through = [place for place, tier in enumerate(self._tiers) if tier.write_through]
        for name in names:
            if isinstance(name, int):  # blocks with other names are never looked up again
                for place in through:
                    self._put(place, name)

    def evicted(self, names: Sequence[object]) -> None:
        """Store *names*, which the GPU has evicted, in the first tier."""
        if not self._tiers[0].write_through:
            for name in names:
                if isinstance(name, int):
                    self._put(0, name)

    def _put(self, place: int, name: object) -> None:
        given_up = self._tiers[place].put(name)
        below = place + 1
        if given_up is not None and below < len(self._tiers) and not self._tiers[below].write_through:
            self._put(below, given_up)

    def found(self, names: Sequence[object]) -> int:
        """Return the number of leading *names* in the tiers, if reading them is faster than computing; 0 otherwise."""
        places = self._places(names)
        return len(places) if places and self._read_s(places) < len(places) * self._recompute_s else 0

    def read(self, names: Sequence[object]) -> float:
        """Read *names*, all of which are in a tier. Return the time this takes [s]."""
        places = self._places(names)
        for name, place in zip(names, places, strict=True):
            self._tiers[place].names.move_to_end(name)
        return self._read_s(places)

    def clear(self) -> None:
        """Empty all tiers: the server has restarted."""
        for tier in self._tiers:
            tier.names.clear()

    def _places(self, names: Sequence[object]) -> list[int]:
        """Return the nearest tier of each leading name, up to the first name that no tier has."""
        places: list[int] = []
        for name in names:
            place = next((i for i, tier in enumerate(self._tiers) if name in tier.names), None)
            if place is None:
                break
            places.append(place)
        return places

    def _read_s(self, places: Sequence[int]) -> float:
        """Return the time to read blocks from the tiers at *places*, one tier after the other [s]."""
        read_s = sum(
            self._tiers[place].latency_s + places.count(place) * self._tiers[place].read_s_per_block
            for place in sorted(set(places))
        )
        if self._beside_bytes is None:
            return read_s
        size, tokens = self._block_size, self._block_size * len(places)
        for block, place in enumerate(places):  # mypyc takes a sum that is added to a sum as an integer
            beside_bytes = self._beside_bytes(block * size, (block + 1) * size, tokens)
            read_s += beside_bytes / self._tiers[place].read_bytes_per_s
        return read_s
