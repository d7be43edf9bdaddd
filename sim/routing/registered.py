"""A router of a user's own."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from sim.records import Request
from sim.registry import Registered


class RegisteredRouting(Registered):
    """A class with `choose(request)`, the index of a replica. It may have parameters `pools` and `rng`."""

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Chooser":
        """The running router over replicas of these *pools*, one name a replica."""
        return Chooser(self.made(pools=list(pools), rng=rng), len(pools))


class Chooser:
    """A user's router with the methods that it does without; a choice that is closed goes to the next open replica."""

    def __init__(self, router: Any, replicas: int) -> None:
        self._router = router
        self._replicas = replicas
        self._closed: set[int] = set()

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open. Raises TypeError where the user's router does not
        answer with an index, ValueError where it names a replica that does not exist.
        """
        answer = self._router.choose(request)
        try:
            chosen = index(answer)
        except TypeError:
            name = type(self._router).__name__
            raise TypeError(f"router {name}: choose returns the index of a replica, not {answer!r}") from None
        if not 0 <= chosen < self._replicas:
            raise ValueError(f"the router chose replica {chosen} of {self._replicas}")
        if chosen not in self._closed:
            return chosen
        after = ((chosen + step) % self._replicas for step in range(1, self._replicas))
        return next((replica for replica in after if replica not in self._closed), -1)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self._tell("joined", replica)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*, which is open."""
        self._tell("left", replica)

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica*, closed until now, takes new requests; it still has *outstanding* old ones."""
        self._closed.discard(replica)
        self._tell("opened", replica, outstanding)

    def closed(self, replica: int) -> None:
        """*replica*, open until now, takes no new requests."""
        self._closed.add(replica)
        self._tell("closed", replica)

    def _tell(self, event: str, *what: int) -> None:
        if (hear := getattr(self._router, event, None)) is not None:
            hear(*what)
