"""A session's place on a ring decides, within limits of load."""

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.spec import Count, Positive, Spec


class ConsistentHashing(Spec):
    """Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam, SODA 2018): the first replica on the
    ring behind the key that has fewer than `load_factor` times the mean of outstanding requests.

    The key is the session; without one the first block of the prompt that may be shared; else the request itself.
    """

    policy: Literal["consistent_hashing"]
    load_factor: Annotated[Positive, Field(gt=1)] = 1.25
    """Most outstanding requests of a replica over the mean of all, the new request included."""
    virtual_nodes: Count = 100
    """Places of each replica on the ring."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Ring":
        """The running router over replicas of these *pools*, one name a replica."""
        return Ring(len(pools), self.load_factor, self.virtual_nodes)


class Ring(Loads):
    """Replicas by their places."""

    def __init__(self, replicas: int, load_factor: float, virtual_nodes: int) -> None:
        super().__init__(replicas)
        self._load_factor = load_factor
        nodes = sorted((_place(f"{i} {node}"), i) for i in range(replicas) for node in range(virtual_nodes))
        self._places = [place for place, _ in nodes]
        self._replicas = [replica for _, replica in nodes]

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        if not self.open:
            return -1
        outstanding = sum(self.requests[replica] for replica in self.open)
        most = ceil(self._load_factor * (outstanding + 1) / len(self.open))
        first = bisect_left(self._places, _place(_key(request)))
        around = (self._replicas[(first + step) % len(self._replicas)] for step in range(len(self._replicas)))
        return next(replica for replica in around if replica in self.open and self.requests[replica] < most)


def _key(request: Request) -> str:
    if request.session:
        return f"session {request.session}"
    return f"block {request.block_hashes[0]}" if request.block_hashes else f"request {request.index}"


def _place(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())
