"""Requests go to the replica with the fewest unfinished ones."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.spec import Spec


class LeastOutstanding(Spec):
    """The fewest outstanding requests (waiting and running); a tie goes to the replica unchanged for longest."""

    policy: Literal["least_outstanding"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Buckets":
        """The running router over replicas of these *pools*, one name a replica."""
        return Buckets(len(pools))


class Buckets:
    """Replicas in buckets by their number of outstanding requests: every operation is O(1).

    A dict keeps insertion order, so the first key of a bucket is the replica that has been at this count for longest.
    """

    def __init__(self, replicas: int) -> None:
        self._count = [0] * replicas
        self._buckets: list[dict[int, None]] = [dict.fromkeys(range(replicas))]
        self._lowest = 0

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*."""
        return next(iter(self._buckets[self._lowest]))

    def joined(self, replica: int) -> None:
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

    def left(self, replica: int) -> None:
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
