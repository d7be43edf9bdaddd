"""Requests go to a replica drawn at random."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.substitutes import Substitutes
from sim.spec import Spec


class Random(Spec):
    """Every replica with the same probability."""

    policy: Literal["random"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Draws":
        """The running router over replicas of these *pools*, one name a replica."""
        return Draws(len(pools), rng)


class Draws:
    """Uniform draws, taken from numpy in blocks because single draws are slow."""

    BLOCK = 4096

    def __init__(self, replicas: int, rng: np.random.Generator) -> None:
        self._replicas = replicas
        self._rng = rng
        self._drawn: list[int] = []
        self._substitutes = Substitutes(replicas, rng)

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        if not self._drawn:
            self._drawn = self._rng.integers(self._replicas, size=self.BLOCK).tolist()
        drawn = self._drawn.pop()
        return self._substitutes.one() if drawn in self._substitutes.closed else drawn

    def joined(self, replica: int, request: Request) -> None:
        """A random choice does not look at load."""

    def left(self, replica: int, request: Request) -> None:
        """A random choice does not look at load."""

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* may be drawn again."""
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Where *replica* is drawn another takes its place."""
        self._substitutes.close(replica)
