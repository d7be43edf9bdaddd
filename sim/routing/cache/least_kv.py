"""Requests go to the replica with the least KV in use."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.spec import Spec


class LeastKv(Spec):
    """The fewest prompt tokens of outstanding requests, which is the KV that a router can count; a tie goes to the
    replica with fewer requests, then to the first.
    """

    policy: Literal["least_kv"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Emptiest":
        """The running router over replicas of these *pools*, one name a replica."""
        return Emptiest(len(pools))


class Emptiest(Loads):
    """The running policy."""

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        return min(self.open, key=lambda replica: (self.kv_tokens[replica], self.requests[replica]), default=-1)
