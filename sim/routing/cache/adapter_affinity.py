"""Requests for a LoRA adapter go where it is, within limits of load."""

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.spec import Count, Positive, Spec


class AdapterAffinity(Spec):
    """The replica with the fewest outstanding requests among those that had the adapter of the request last; where all
    of them have `load_factor` times the mean, or there is none, among all.
    """

    policy: Literal["adapter_affinity"]
    load_factor: Annotated[Positive, Field(gt=1)] = 1.25
    """Most outstanding requests of a replica over the mean of all, the new request included."""
    adapters_per_replica: Count = 1
    """Adapters that the router believes to be at a replica: those that it sent there last."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Believed":
        """The running router over replicas of these *pools*, one name a replica."""
        return Believed(len(pools), self.load_factor, self.adapters_per_replica)


class Believed(Loads):
    """Which adapters the replicas had last."""

    def __init__(self, replicas: int, load_factor: float, adapters: int) -> None:
        super().__init__(replicas)
        self._load_factor, self._most = load_factor, adapters
        self._last: list[OrderedDict[str, None]] = [OrderedDict() for _ in range(replicas)]

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        if not self.open or not request.adapter:
            return self.least()
        outstanding = sum(self.requests[replica] for replica in self.open)
        most = ceil(self._load_factor * (outstanding + 1) / len(self.open))
        there = [i for i in self.open if request.adapter in self._last[i] and self.requests[i] < most]
        return self.least(there) if there else self.least()

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*, which has its adapter from now on."""
        super().joined(replica, request)
        if request.adapter:
            last = self._last[replica]
            last[request.adapter] = None
            last.move_to_end(request.adapter)
            if len(last) > self._most:
                last.popitem(last=False)

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* takes new requests, and has forgotten its adapters."""
        super().opened(replica, outstanding)
        self._last[replica].clear()
