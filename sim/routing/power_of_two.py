"""Two replicas are drawn at random and the less loaded one gets the request."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.substitutes import Substitutes
from sim.spec import Spec


class PowerOfTwo(Spec):
    """The better of two random choices (Mitzenmacher, IEEE TPDS 12(10), 2001); a tie goes to the first drawn."""

    policy: Literal["power_of_two"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Pairs":
        """The running router over replicas of these *pools*, one name a replica."""
        return Pairs(len(pools), rng)


class Pairs:
    """Outstanding requests by replica, and pairs drawn in blocks."""

    BLOCK = 4096

    def __init__(self, replicas: int, rng: np.random.Generator) -> None:
        self._count = [0] * replicas
        self._rng = rng
        self._drawn: list[list[int]] = []
        self._substitutes = Substitutes(replicas, rng)

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        closed = self._substitutes.closed
        if len(self._count) == 1:
            return -1 if closed else 0
        if not self._drawn:
            self._drawn = self._draw()
        first, second = self._drawn.pop()
        if closed and (first in closed or second in closed):
            first, second = self._substitutes.two()
        return second if self._count[second] < self._count[first] else first

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self._count[replica] += 1

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*."""
        self._count[replica] -= 1

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* may be drawn again."""
        self._count[replica] = outstanding
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Where *replica* is drawn another pair takes the place of its pair."""
        self._substitutes.close(replica)

    def _draw(self) -> list[list[int]]:
        """A block of pairs of different replicas."""
        replicas = len(self._count)
        first = self._rng.integers(replicas, size=self.BLOCK)
        second = (first + 1 + self._rng.integers(replicas - 1, size=self.BLOCK)) % replicas
        pairs: list[list[int]] = np.stack([first, second], axis=1).tolist()
        return pairs
