"""Two replicas are drawn at random and the one with less KV in use gets the request."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.routing.power_of_two import Pairs
from sim.spec import Spec


class PowerOfTwoKv(Spec):
    """The better of two random choices (Mitzenmacher, IEEE TPDS 12(10), 2001) by the prompt tokens of outstanding
    requests; a tie goes to the first drawn.
    """

    policy: Literal["power_of_two_kv"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "KvPairs":
        """The running router over replicas of these *pools*, one name a replica."""
        return KvPairs(len(pools), rng)


class KvPairs(Pairs):
    """Pairs that are compared by tokens."""

    def __init__(self, replicas: int, rng: np.random.Generator) -> None:
        super().__init__(replicas, rng)
        self._loads = Loads(replicas)
        self._count = self._loads.kv_tokens

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self._loads.joined(replica, request)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*."""
        self._loads.left(replica, request)

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica* may be drawn again; what it still computes is not known."""
        self._loads.opened(replica, outstanding)
        self._substitutes.open_again(replica)

    def closed(self, replica: int) -> None:
        """Where *replica* is drawn another pair takes the place of its pair."""
        self._loads.closed(replica)
        super().closed(replica)
