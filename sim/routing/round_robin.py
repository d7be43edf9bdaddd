"""Requests go to the replicas in turn."""

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
    """State of a round robin: whose turn it is."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._next = 0

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*."""
        chosen = self._next
        self._next = (chosen + 1) % self._replicas
        return chosen

    def joined(self, replica: int) -> None:
        """Round robin does not look at load."""

    def left(self, replica: int) -> None:
        """Round robin does not look at load."""
