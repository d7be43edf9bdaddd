"""Replicas in buckets by their number of outstanding requests; a module without specs, so that it can be compiled."""

from collections.abc import Iterable

from sim.records import Request


class _Place:
    """Place of a replica in the ring of its bucket, or the end of this ring."""

    __slots__ = ("after", "before", "count", "replica")

    def __init__(self, replica: int = -1) -> None:
        self.replica = replica
        """Index of the replica; -1 at the end of a ring."""
        self.count = 0
        """Number of its outstanding requests."""
        self.before = self.after = self

    def leave(self) -> None:
        """Leave the ring."""
        self.before.after, self.after.before = self.after, self.before

    def move_before(self, end: "_Place") -> None:
        """Move to the place before *end*, which may be in another ring."""
        self.leave()
        self.before, self.after = end.before, end
        end.before.after = end.before = self


class Buckets:
    """Open replicas in buckets by their number of outstanding requests: every operation is O(1).

    A bucket is a ring, from its end to the replica that has been at this count for longest, and on to the latest.
    """

    def __init__(self, replicas: Iterable[int]) -> None:
        self._ends = [_Place()]
        """End of each bucket, by count."""
        self._places: list[_Place] = []
        """Place of each replica; out of all rings while it is closed."""
        self._lowest = 0
        for replica in replicas:
            self.opened(replica, 0)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        return self._ends[self._lowest].after.replica

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        place = self._places[replica]
        self._move(place, place.count + 1)
        if self._ends[self._lowest].after.replica < 0:
            self._lowest += 1

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        place = self._places[replica]
        self._move(place, place.count - 1)
        if place.count < self._lowest:
            self._lowest = place.count

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which comes after all others with as many requests."""
        none_open = self._ends[self._lowest].after.replica < 0
        self._lowest = outstanding if none_open else min(self._lowest, outstanding)
        while len(self._places) <= replica:
            self._places.append(_Place())
        self._places[replica] = place = _Place(replica)
        self._move(place, outstanding)

    def _move(self, place: _Place, count: int) -> None:
        """Move *place* to the bucket of *count*."""
        while len(self._ends) <= count:
            self._ends.append(_Place())
        place.count = count
        place.move_before(self._ends[count])

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        self._places[replica].leave()
        while self._ends[self._lowest].after.replica < 0 and self._lowest < len(self._ends) - 1:
            self._lowest += 1
