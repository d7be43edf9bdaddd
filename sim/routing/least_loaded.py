"""Least-loaded routing: by outstanding requests, or by KV in use.

`OutstandingLoads` counts the requests that a router has sent to each replica; policies of other modules build on it.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.buckets import Buckets
from sim.spec import Spec


class LeastOutstanding(Spec):
    """Least outstanding: the fewest requests waiting and running; a tie goes to the replica unchanged for longest."""

    policy: Literal["least_outstanding"]

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> Buckets:
        """Return the running router over replicas of these *pools*, one name per replica."""
        return Buckets(range(len(pools)))


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

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "RunningLeastKv":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return RunningLeastKv(len(pools))


class RunningLeastKv(OutstandingLoads):
    """Router that chooses the least KV."""

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        return min(self.open, key=lambda replica: (self.kv_tokens[replica], self.requests[replica]), default=-1)
