"""Requests go to the replica with the fewest unfinished ones."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.spec import Spec


class LeastOutstanding(Spec):
    """The fewest outstanding requests (waiting and running); a tie goes to the replica unchanged for longest."""

    policy: Literal["least_outstanding"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Buckets":
        """The running router over replicas of these *pools*, one name a replica."""
        return Buckets(range(len(pools)))


class Buckets:
    """Open replicas in buckets by their number of outstanding requests: every operation is O(1).

    A dict keeps insertion order, so the first key of a bucket is the replica that has been at this count for longest.
    """

    def __init__(self, replicas: Iterable[int]) -> None:
        self._count = dict.fromkeys(replicas, 0)
        self._buckets: list[dict[int, None]] = [dict.fromkeys(self._count)]
        self._lowest = 0

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        return next(iter(self._buckets[self._lowest]), -1)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        count = self._count[replica]
        buckets = self._buckets
        del buckets[count][replica]
        count += 1
        if count == len(buckets):
            buckets.append({})
        buckets[count][replica] = None
        self._count[replica] = count
        if not buckets[self._lowest]:
            self._lowest += 1

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*."""
        count = self._count[replica]
        del self._buckets[count][replica]
        count -= 1
        self._buckets[count][replica] = None
        self._count[replica] = count
        if count < self._lowest:
            self._lowest = count
        elif not self._buckets[self._lowest]:
            self._lowest += 1

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* comes after all others with as many requests."""
        self._lowest = min(self._lowest, outstanding) if self._count else outstanding
        while len(self._buckets) <= outstanding:
            self._buckets.append({})
        self._buckets[outstanding][replica] = None
        self._count[replica] = outstanding

    def closed(self, replica: int) -> None:
        """*replica* is not chosen until it opens again."""
        del self._buckets[self._count.pop(replica)][replica]
        while not self._buckets[self._lowest] and self._lowest < len(self._buckets) - 1:
            self._lowest += 1
