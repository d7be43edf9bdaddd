"""User-defined routers."""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from sim.message import Message
from sim.records import Request
from sim.registry import Registered


class RegisteredRouting(Registered):
    """Registered router: a class with `choose(request)`, which returns the index of a replica.

    Its constructor may have parameters `pools` and `rng`.
    """

    def start(self, pools: Sequence[str], rng: "np.random.Generator") -> "UserRouter":
        """Return the running router over replicas of these *pools*, one name per replica."""
        return UserRouter(self.made(pools=list(pools), rng=rng), len(pools))


class UserRouter:
    """Adapter around a user's router, whose optional methods may be missing.

    Where the router chooses a closed replica, the request goes to the next open one.
    """

    def __init__(self, router: Any, replicas: int) -> None:
        self._router = router
        self._replicas = replicas
        self._closed: set[int] = set()

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 if none is open.

        Raises TypeError where the user's router does not return an index, ValueError where the replica does not exist.
        """
        answer = self._router.choose(request)
        try:
            chosen = index(answer)
        except TypeError:
            name = type(self._router).__name__
            raise TypeError(
                Message("router {name}: choose returns the index of a replica, not {value!r}", name, answer)
            ) from None
        if not 0 <= chosen < self._replicas:
            raise ValueError(Message("the router chose replica {chosen} of {replicas}", chosen, self._replicas))
        if chosen not in self._closed:
            return chosen
        after = ((chosen + step) % self._replicas for step in range(1, self._replicas))
        return next((replica for replica in after if replica not in self._closed), -1)

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        self._notify("joined", replica)

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*; the replica is open."""
        self._notify("left", replica)

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which still has *outstanding* requests."""
        self._closed.discard(replica)
        self._notify("opened", replica, outstanding)

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        self._closed.add(replica)
        self._notify("closed", replica)

    def _notify(self, event: str, *what: int) -> None:
        if (handler := getattr(self._router, event, None)) is not None:
            handler(*what)
