"""Random choices among open replicas for a draw that hit a closed one."""

from bisect import insort

import numpy as np


class Substitutes:
    """The open replicas, and draws from a random stream of their own.

    A policy draws among all replicas, open or not. Only where a draw hits a closed one it draws again here, so that a
    replica that closes or opens changes nothing about requests that go to others; every open replica stays equally
    likely.
    """

    BLOCK = 1024

    def __init__(self, replicas: int, rng: np.random.Generator) -> None:
        self._open = list(range(replicas))
        self.closed: set[int] = set()
        self._parent = rng
        self._rng: np.random.Generator | None = None
        self._drawn: list[float] = []

    def open_again(self, replica: int) -> None:
        """*replica* may be chosen again."""
        self.closed.remove(replica)
        insort(self._open, replica)

    def close(self, replica: int) -> None:
        """*replica* is not chosen until it opens again."""
        self.closed.add(replica)
        self._open.remove(replica)

    def one(self) -> int:
        """An open replica; -1 if there is none."""
        return self._open[int(self._uniform() * len(self._open))] if self._open else -1

    def two(self) -> tuple[int, int]:
        """Two different open replicas, in either order; the only one twice, or -1 twice."""
        count = len(self._open)
        if count < 2:
            only = self._open[0] if self._open else -1
            return only, only
        first = int(self._uniform() * count)
        second = (first + 1 + int(self._uniform() * (count - 1))) % count
        return self._open[first], self._open[second]

    def _uniform(self) -> float:
        if not self._drawn:
            if self._rng is None:
                self._rng = self._parent.spawn(1)[0]
            self._drawn = self._rng.random(self.BLOCK).tolist()
        return self._drawn.pop()
