"""Requests go to the replicas in turn."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.spec import Spec


class RoundRobin(Spec):
    """Each replica in turn, whatever its load."""

    policy: Literal["round_robin"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Turns":
        """The running router over replicas of these *pools*, one name a replica."""
        return Turns(len(pools))


class Turns:
    """State of a round robin: whose turn it is among the open replicas."""

    def __init__(self, replicas: int) -> None:
        self._open = list(range(replicas))
        self._next = 0
        """Place in `_open`."""

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        replicas = self._open
        if not replicas:
            return -1
        place = self._next
        self._next = (place + 1) % len(replicas)
        return replicas[place]

    def joined(self, replica: int, request: Request) -> None:
        """Round robin does not look at load."""

    def left(self, replica: int, request: Request) -> None:
        """Round robin does not look at load."""

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* takes its turn in the order of replicas; the others keep theirs."""
        place = bisect_left(self._open, replica)
        self._open.insert(place, replica)
        if place < self._next:
            self._next += 1

    def closed(self, replica: int) -> None:
        """The turn of *replica* goes to the replica after it."""
        place = bisect_left(self._open, replica)
        del self._open[place]
        if place < self._next:
            self._next -= 1
        if self._next == len(self._open):
            self._next = 0
