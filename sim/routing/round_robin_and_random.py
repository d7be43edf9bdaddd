"""Round robin and random choices: the next replica in turn, one drawn at random, or the better of two drawn.

The better of two has fewer outstanding requests (`PowerOfTwo`) or less KV in use (`PowerOfTwoKv`). Where a draw hits a
closed replica, `OpenReplicaDraws` draws again among the open ones.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sim.records import Request
from sim.routing.least_loaded import OutstandingLoads
from sim.spec import Spec


class StaticRouting(Spec, ABC):
    """Static routing policy: choices depend neither on the state of the fleet nor on the request."""

    @abstractmethod
    def choices(self, replicas: int, count: int, rng: "np.random.Generator") -> NDArray[Any]:
        """Return the replicas that the router chooses for *count* requests in turn, with all *replicas* open."""


class RoundRobin(StaticRouting):
    """Round robin: each replica in turn, whatever its load."""

    policy: Literal["round_robin"]

    def choices(self, replicas: int, count: int, rng: "np.random.Generator") -> NDArray[Any]:
        """See `StaticRouting.choices`."""
        return np.resize(np.arange(replicas, dtype=np.int32), count)

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "RoundRobinState":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return RoundRobinState(len(pools))


class RoundRobinState:
    """State of a round robin over the open replicas."""

    def __init__(self, replicas: int) -> None:
        self._open = list(range(replicas))
        self._next = 0
        """Index into `_open` of the next replica."""

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        replicas = self._open
        if not replicas:
            return -1
        place = self._next
        self._next = (place + 1) % len(replicas)
        return replicas[place]

    def joined(self, replica: int, request: Request) -> None:
        """Ignore *request*: round robin does not depend on load."""

    def left(self, replica: int, request: Request) -> None:
        """Ignore *request*: round robin does not depend on load."""

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica* at its place in the order of replicas; the others keep their turns."""
        place = bisect_left(self._open, replica)
        self._open.insert(place, replica)
        if place < self._next:
            self._next += 1

    def closed(self, replica: int) -> None:
        """Close *replica*; its turn goes to the next replica."""
        place = bisect_left(self._open, replica)
        del self._open[place]
        if place < self._next:
            self._next -= 1
        if self._next == len(self._open):
            self._next = 0


class OpenReplicaDraws:
    """Open replicas, and draws among them from a separate random stream.

    A policy draws among all replicas, open or not. Only where a draw hits a closed one it draws again here, so that
    closing or opening a replica changes nothing about requests that go to others; every open replica stays equally
    likely.
    """

    BLOCK = 1024

    def __init__(self, replicas: int, rng: "np.random.Generator") -> None:
        self._open = list(range(replicas))
        self.closed: set[int] = set()
        self._parent = rng
        self._rng: np.random.Generator | None = None
        self._drawn: list[float] = []

    def open_again(self, replica: int) -> None:
        """Allow *replica* to be chosen again."""
        self.closed.remove(replica)
        insort(self._open, replica)

    def close(self, replica: int) -> None:
        """Exclude *replica* until it opens again."""
        self.closed.add(replica)
        self._open.remove(replica)

    def one(self) -> int:
        """Return a random open replica; -1 if there is none."""
        return self._open[int(self._uniform() * len(self._open))] if self._open else -1

    def two(self) -> tuple[int, int]:
        """Return two different open replicas, in either order; the only one twice, or -1 twice."""
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


class Random(StaticRouting):
    """Random: every replica with the same probability."""

    policy: Literal["random"]

    def choices(self, replicas: int, count: int, rng: "np.random.Generator") -> NDArray[Any]:
        """See `StaticRouting.choices`."""
        blocks = -(-count // UniformDraws.BLOCK)
        drawn = rng.integers(replicas, size=(blocks, UniformDraws.BLOCK))
        return drawn[:, ::-1].ravel()[:count]  # the router takes its draws from the end of a block

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "UniformDraws":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return UniformDraws(len(pools), rng)


class UniformDraws:
    """Uniform draws, taken from numpy in blocks because single draws are slow."""

    BLOCK = 4096

    def __init__(self, replicas: int, rng: "np.random.Generator") -> None:
        self._replicas = replicas
        self._rng = rng
        self._drawn: list[int] = []
        self._substitutes = OpenReplicaDraws(replicas, rng)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
        if not self._drawn:
            self._drawn = self._rng.integers(self._replicas, size=self.BLOCK).tolist()
        drawn = self._drawn.pop()
        return self._substitutes.one() if drawn in self._substitutes.closed else drawn

    def joined(self, replica: int, request: Request) -> None:
        """Ignore *request*: a random choice does not depend on load."""

    def left(self, replica: int, request: Request) -> None:
        """Ignore *request*: a random choice does not depend on load."""

    def opened(self, replica: int, outstanding: int) -> None:
        """Allow *replica* to be drawn again."""
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Close *replica*: another one is drawn in its place."""
        self._substitutes.close(replica)


class PowerOfTwo(Spec):
    """Power of two: the less loaded of two random choices (Mitzenmacher, IEEE TPDS 12(10), 2001).

    A tie goes to the first drawn.
    """

    policy: Literal["power_of_two"]

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "RequestPairs":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return RequestPairs(len(pools), rng)


class RequestPairs:
    """Outstanding requests per replica, and pairs of replicas drawn in blocks."""

    BLOCK = 4096

    def __init__(self, replicas: int, rng: "np.random.Generator") -> None:
        self._count = [0] * replicas
        self._rng = rng
        self._drawn: list[list[int]] = []
        self._substitutes = OpenReplicaDraws(replicas, rng)

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open."""
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
        """Count *request*, which is sent to *replica*."""
        self._count[replica] += 1

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        self._count[replica] -= 1

    def opened(self, replica: int, outstanding: int) -> None:
        """Allow *replica* to be drawn again."""
        self._count[replica] = outstanding
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Close *replica*: another pair is drawn in place of a pair with it."""
        self._substitutes.close(replica)

    def _draw(self) -> list[list[int]]:
        """Draw a block of pairs of different replicas."""
        replicas = len(self._count)
        first = self._rng.integers(replicas, size=self.BLOCK)
        second = (first + 1 + self._rng.integers(replicas - 1, size=self.BLOCK)) % replicas
        pairs: list[list[int]] = np.stack([first, second], axis=1).tolist()
        return pairs


class PowerOfTwoKv(Spec):
    """Power of two by KV: of two random choices the one with fewer prompt tokens of outstanding requests.

    A tie goes to the first drawn (Mitzenmacher, IEEE TPDS 12(10), 2001).
    """

    policy: Literal["power_of_two_kv"]

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "TokenPairs":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return TokenPairs(len(pools), rng)


class TokenPairs(RequestPairs):
    """Pairs of replicas that are compared by prompt tokens."""

    def __init__(self, replicas: int, rng: "np.random.Generator") -> None:
        super().__init__(replicas, rng)
        self._loads = OutstandingLoads(replicas)
        self._count = self._loads.kv_tokens

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self._loads.joined(replica, request)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*."""
        self._loads.left(replica, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """Allow *replica* to be drawn again; the tokens of its earlier requests are unknown."""
        self._loads.opened(replica, outstanding)
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Close *replica*: another pair is drawn in place of a pair with it."""
        self._loads.closed(replica)
        super().closed(replica)
