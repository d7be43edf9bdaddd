"""Load balancing of vLLM's client over data-parallel ranks (`v1/engine/core_client.py`, `DPLBAsyncMPClient`).

The rank with the lowest score is chosen. The score is the larger of the requests that the client has in flight at a
rank and those that wait and run there, plus a penalty for each waiting request where the KV cache is more than half
full. Before July 2026 it was four times the waiting requests plus the running ones. Waiting, running and KV usage are
statistics that the ranks' coordinator publishes at intervals (`v1/engine/coordinator.py`: 100 ms); in between the
client adds each request that it has sent to the waiting ones. Of equal scores the first rank is chosen, starting from a
rank that advances with each request. A new statistic replaces what the client has added.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.least_loaded import OutstandingLoads
from sim.spec import NonNegative, Spec

WAITING = 4
"""Weight of a waiting request relative to a running one in the score `queue`."""
PRESSURE, PRESSED_FROM = 6.0, 0.5
"""Additional weight of a waiting request per fraction of KV blocks in use beyond `PRESSED_FROM`."""


class VllmLoadBalancer(Spec):
    """Load balancer of vLLM over data-parallel ranks, by statistics that are published at intervals.

    The rank with the fewest requests in flight, or waiting and running, is chosen.
    """

    policy: Literal["vllm_load_balancer"]
    score: Literal["in_flight", "queue"] = "in_flight"
    """in_flight: the larger of the requests in flight and those that wait and run, plus 6 x waiting x (KV usage - 0.5)
    where more than half of the KV blocks are in use. queue: 4 x waiting + running, as in vLLM before July 2026."""
    statistics_interval_s: NonNegative = 0.1
    """Interval between two statistics of the ranks [s]; 0: statistics are always current."""

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "Balancer":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return Balancer(len(pools), self.statistics_interval_s, self.score == "in_flight")


class Balancer(OutstandingLoads):
    """Router with vLLM's scores and published statistics."""

    def __init__(self, replicas: int, interval_s: float, counts_in_flight: bool = True) -> None:
        super().__init__(replicas)
        self._interval_s = interval_s
        self._score = self._in_flight_score if counts_in_flight else self._queue_score
        self._clock: Callable[[], float] = lambda: 0.0
        self._waits: list[Callable[[], int]] = [lambda: 0] * replicas
        self._uses: list[Callable[[float], float]] = [lambda now: 0.0] * replicas
        self._waiting, self._running, self._kv_usage = [0] * replicas, [0] * replicas, [0.0] * replicas
        """Published statistics per replica: waiting requests, including those sent since; running requests; share of KV
        blocks in use."""
        self._published_s = -inf
        self._first = 0

    def attach(
        self, clock: Callable[[], float], waits: list[Callable[[], int]], uses: list[Callable[[float], float]]
    ) -> None:
        """Set the sources of the statistics.

        *clock* returns the time, *waits* the waiting requests of each replica, *uses* the fraction of its KV blocks in
        use.
        """
        self._clock, self._waits, self._uses = clock, waits, uses

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        now = self._clock()
        if now - self._published_s >= self._interval_s:
            self._publish(now)
        replicas, first = len(self._waiting), self._first
        order = self.open if not first else sorted(self.open, key=lambda replica: (replica - first) % replicas)
        chosen = min(order, key=self._score, default=-1)
        if chosen >= 0:
            self._waiting[chosen] += 1
            self._first = (first + 1) % replicas
        return chosen

    def _publish(self, now: float) -> None:
        self._published_s = now
        self._waiting = [waits() for waits in self._waits]
        self._running = [total - waiting for total, waiting in zip(self.requests, self._waiting, strict=True)]
        self._kv_usage = [uses(now) for uses in self._uses]

    def _in_flight_score(self, replica: int) -> float:
        waiting = self._waiting[replica]
        pressure = max(0.0, self._kv_usage[replica] - PRESSED_FROM)
        return max(self.requests[replica], waiting + self._running[replica]) + PRESSURE * waiting * pressure

    def _queue_score(self, replica: int) -> float:
        return WAITING * self._waiting[replica] + self._running[replica]
