"""Affinity: a request goes to the replica of its session, of a hash of its session, or of its adapter.

Consistent hashing and adapter affinity bound the load of a replica; session affinity does not.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from sim.records import Request
from sim.routing.least_loaded import OutstandingLoads
from sim.spec import Count, Positive, Spec


class SessionAffinity(Spec):
    """Session affinity: all requests of a session go to the replica that had the first one, whatever its load.

    A new session, a request without a session, and a session whose replica is closed go to the replica with the fewest
    outstanding requests.
    """

    policy: Literal["session_affinity"]

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "SessionReplicas":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return SessionReplicas(len(pools))


class SessionReplicas(OutstandingLoads):
    """Replica of each session."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self._assigned: dict[str, int] = {}

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        replica = self._assigned.get(request.session, -1)
        if replica in self.open:
            return replica
        chosen = self.least()
        if request.session and chosen >= 0:
            self._assigned[request.session] = chosen
        return chosen


class ConsistentHashing(Spec):
    """Consistent hashing with bounded loads: the first replica on the ring after the key that has room.

    A replica has room if it has fewer than `load_factor` times the mean number of outstanding requests (Mirrokni,
    Thorup and Zadimoghaddam, SODA 2018). The key is the session; without one the first block of the prompt that may be
    shared; otherwise the request itself.
    """

    policy: Literal["consistent_hashing"]
    load_factor: Annotated[Positive, Field(gt=1)] = 1.25
    """Most outstanding requests of a replica over the mean of all replicas, the new request included."""
    virtual_nodes: Count = 100
    """Number of places of each replica on the ring."""

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "HashRing":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return HashRing(len(pools), self.load_factor, self.virtual_nodes)


class HashRing(OutstandingLoads):
    """Ring of the replicas' virtual nodes."""

    def __init__(self, replicas: int, load_factor: float, virtual_nodes: int) -> None:
        super().__init__(replicas)
        self._load_factor = load_factor
        nodes = sorted((_place(f"{i} {node}"), i) for i in range(replicas) for node in range(virtual_nodes))
        self._places = [place for place, _ in nodes]
        self._replicas = [replica for _, replica in nodes]

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
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


class AdapterAffinity(Spec):
    """Adapter affinity: the least loaded of the replicas that are assumed to hold the adapter of the request.

    If no replica is assumed to hold it, or all that do have reached `load_factor` times the mean number of outstanding
    requests, the least loaded of all replicas is chosen.
    """

    policy: Literal["adapter_affinity"]
    load_factor: Annotated[Positive, Field(gt=1)] = 1.25
    """Most outstanding requests of a replica over the mean of all replicas, the new request included."""
    adapters_per_replica: Count = 1
    """Number of adapters that the router assumes to be loaded at a replica: those that it sent there last."""

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "AssumedAdapters":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return AssumedAdapters(len(pools), self.load_factor, self.adapters_per_replica)


class AssumedAdapters(OutstandingLoads):
    """Router by the adapters that each replica is assumed to hold: those of the last requests sent there."""

    def __init__(self, replicas: int, load_factor: float, adapters: int) -> None:
        super().__init__(replicas)
        self._load_factor, self._most = load_factor, adapters
        self._last: list[OrderedDict[str, None]] = [OrderedDict() for _ in range(replicas)]

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        if not self.open or not request.adapter:
            return self.least()
        outstanding = sum(self.requests[replica] for replica in self.open)
        most = ceil(self._load_factor * (outstanding + 1) / len(self.open))
        there = [i for i in self.open if request.adapter in self._last[i] and self.requests[i] < most]
        return self.least(there) if there else self.least()

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*; its adapter is assumed to be loaded there."""
        super().joined(replica, request)
        if request.adapter:
            last = self._last[replica]
            last[request.adapter] = None
            last.move_to_end(request.adapter)
            if len(last) > self._most:
                last.popitem(last=False)

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which is assumed to have no adapters loaded."""
        super().opened(replica, outstanding)
        self._last[replica].clear()
