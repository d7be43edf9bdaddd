"""Requests go to data-parallel ranks as vLLM's own client sends them (`v1/engine/core_client.py`, `DPLBAsyncMPClient`).

The lowest score is chosen: four times the requests that wait at a rank, and those that run there. Both are statistics
that the ranks' coordinator publishes at intervals (`v1/engine/coordinator.py`: 100 ms); in between the client adds each
request that it has sent to those that wait, and of equal scores takes the first, from a rank that moves on with each
request. A new statistic takes the place of what the client has added.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.spec import NonNegative, Spec

WAITING = 4
"""Weight of a waiting request against a running one."""


class VllmLoadBalancer(Spec):
    """vLLM's choice among data-parallel ranks: fewest waiting (four times) and running requests, by statistics of a
    certain age.
    """

    policy: Literal["vllm_load_balancer"]
    statistics_interval_s: NonNegative = 0.1
    """Between two statistics of the ranks [s]; 0: always those of the moment."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Balancer":
        """The running router over replicas of these *pools*, one name a replica."""
        return Balancer(len(pools), self.statistics_interval_s)


class Balancer(Loads):
    """The running policy."""

    def __init__(self, replicas: int, interval_s: float) -> None:
        super().__init__(replicas)
        self._interval_s = interval_s
        self._clock: Callable[[], float] = lambda: 0.0
        self._waiting: list[Callable[[], int]] = [lambda: 0] * replicas
        """Of each replica, the requests that wait for admission."""
        self._scores = [0] * replicas
        self._published_s = -inf
        self._first = 0

    def attach(self, clock: Callable[[], float], waiting: list[Callable[[], int]]) -> None:
        """Statistics are those of *waiting*, the requests that wait at each replica, at times of *clock*."""
        self._clock, self._waiting = clock, waiting

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        now = self._clock()
        if now - self._published_s >= self._interval_s:
            self._published_s = now
            self._scores = [
                outstanding + (WAITING - 1) * waiting()
                for outstanding, waiting in zip(self.requests, self._waiting, strict=True)
            ]
        replicas, first = len(self._scores), self._first
        order = self.open if not first else sorted(self.open, key=lambda replica: (replica - first) % replicas)
        chosen = min(order, key=self._scores.__getitem__, default=-1)
        if chosen >= 0:
            self._scores[chosen] += WAITING
            self._first = (first + 1) % replicas
        return chosen
