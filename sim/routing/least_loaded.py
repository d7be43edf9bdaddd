"""Least-loaded routing: by outstanding requests, or by KV in use.

`OutstandingLoads` counts the requests that a router has sent to each replica; policies of other modules build on it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.spec import Spec


class LeastOutstanding(Spec):
    """Least outstanding: the fewest requests waiting and running; a tie goes to the replica unchanged for longest."""

    policy: Literal["least_outstanding"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Buckets":
        """Return the running router over replicas of these *pools*, one name per replica."""
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


class OutstandingLoads:
    """Outstanding requests of each replica, and their prompt tokens: the KV that a router can count.

    The length of an answer is unknown before its end. A replica that opens again still has earlier requests; they count
    as requests, not as tokens.
    """

    def __init__(self, replicas: int) -> None:
        self.open = dict.fromkeys(range(replicas))
        """Open replicas, in order."""
        self.requests = [0] * replicas
        self.kv_tokens = [0] * replicas
        self._counted: list[set[Request]] = [set() for _ in range(replicas)]

    def least(self, among: Iterable[int] | None = None) -> int:
        """Return the open replica with the fewest requests, of *among* where given; -1 if there is none."""
        return min(self.open if among is None else among, key=self.requests.__getitem__, default=-1)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self.requests[replica] += 1
        self.kv_tokens[replica] += request.prompt_tokens
        self._counted[replica].add(request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        self.requests[replica] -= 1
        if request in self._counted[replica]:
            self._counted[replica].remove(request)
            self.kv_tokens[replica] -= request.prompt_tokens

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which still has *outstanding* requests."""
        self.open = dict.fromkeys(sorted([*self.open, replica]))
        self.requests[replica], self.kv_tokens[replica] = outstanding, 0

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        del self.open[replica]
        self._counted[replica].clear()


class LeastKv(Spec):
    """Least KV: the fewest prompt tokens of outstanding requests, which is the KV that a router can count.

    A tie goes to the replica with fewer requests, then to the first.
    """

    policy: Literal["least_kv"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "RunningLeastKv":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return RunningLeastKv(len(pools))


class RunningLeastKv(OutstandingLoads):
    """Router that chooses the least KV."""

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        return min(self.open, key=lambda replica: (self.kv_tokens[replica], self.requests[replica]), default=-1)
