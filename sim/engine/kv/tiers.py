"""KV blocks that have left the GPU, or have copies outside: host memory, SSD, a store that replicas share."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Tier:
    """One place for blocks by name, those not used for longest given up first."""

    blocks: int
    """Room."""
    read_s_per_block: float
    latency_s: float
    """Of a request that reads from it, however much."""
    through: bool
    """Blocks come as soon as they are computed; else when the tier above gives them up."""
    names: OrderedDict[object, None] = field(default_factory=OrderedDict)
    """The block not used for longest first."""

    def put(self, name: object) -> object | None:
        """Keeps *name*; what it gives up for it, None if nothing."""
        self.names[name] = None
        self.names.move_to_end(name)
        return self.names.popitem(last=False)[0] if len(self.names) > self.blocks else None


class Tiers:
    """The tiers below the KV cache of one rank, the nearest first.

    A request that finds blocks there reads them before its first step, or computes them again if that is faster.
    """

    __slots__ = ("_recompute_s", "_tiers")

    def __init__(self, tiers: Sequence[Tier], recompute_s_per_block: float) -> None:
        self._tiers = list(tiers)
        self._recompute_s = recompute_s_per_block

    def stored(self, names: Sequence[object]) -> None:
        """The GPU has *names* from now on."""
        through = [place for place, tier in enumerate(self._tiers) if tier.through]
        for name in names:
            if isinstance(name, int):  # nobody asks for the others again
                for place in through:
                    self._put(place, name)

    def evicted(self, names: Sequence[object]) -> None:
        """The GPU has given *names* up."""
        if not self._tiers[0].through:
            for name in names:
                if isinstance(name, int):
                    self._put(0, name)

    def _put(self, place: int, name: object) -> None:
        given_up = self._tiers[place].put(name)
        below = place + 1
        if given_up is not None and below < len(self._tiers) and not self._tiers[below].through:
            self._put(below, given_up)

    def found(self, names: Sequence[object]) -> int:
        """Leading *names* that are here and faster to read than to compute; 0 where they are not."""
        places = self._places(names)
        return len(places) if places and self._read_s(places) < len(places) * self._recompute_s else 0

    def read(self, names: Sequence[object]) -> float:
        """Reads *names*, all of which are here; how long that takes [s]."""
        places = self._places(names)
        for name, place in zip(names, places, strict=True):
            self._tiers[place].names.move_to_end(name)
        return self._read_s(places)

    def clear(self) -> None:
        """The machine starts anew."""
        for tier in self._tiers:
            tier.names.clear()

    def _places(self, names: Sequence[object]) -> list[int]:
        """The nearest tier of each leading name, up to the first one that no tier has."""
        places: list[int] = []
        for name in names:
            place = next((i for i, tier in enumerate(self._tiers) if name in tier.names), None)
            if place is None:
                break
            places.append(place)
        return places

    def _read_s(self, places: Sequence[int]) -> float:
        """One tier after the other."""
        return sum(
            self._tiers[place].latency_s + places.count(place) * self._tiers[place].read_s_per_block
            for place in sorted(set(places))
        )
