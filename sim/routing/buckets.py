"""Replicas in buckets by their number of outstanding requests; a module without specs, so that it can be compiled."""

from collections.abc import Iterable

from sim.records import Request


class Buckets:
    """Open replicas in buckets by their number of outstanding requests: every operation is O(1).

    A dict keeps insertion order, so the first key of a bucket is the replica that has been at this count for longest.
    """

    def __init__(self, replicas: Iterable[int]) -> None:
        self._count = dict.fromkeys(replicas, 0)
        self._buckets: list[dict[int, None]] = [dict.fromkeys(self._count)]
        self._lowest = 0

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        return next(iter(self._buckets[self._lowest]), -1)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
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
        """Discount *request*, which has left *replica*."""
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
        """Open *replica*, which comes after all others with as many requests."""
        self._lowest = min(self._lowest, outstanding) if self._count else outstanding
        while len(self._buckets) <= outstanding:
            self._buckets.append({})
        self._buckets[outstanding][replica] = None
        self._count[replica] = outstanding

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        del self._buckets[self._count.pop(replica)][replica]
        while not self._buckets[self._lowest] and self._lowest < len(self._buckets) - 1:
            self._lowest += 1
