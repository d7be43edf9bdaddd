"""A session stays where it began."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from sim.records import Request
from sim.routing.cache.loads import Loads
from sim.spec import Spec


class SessionAffinity(Spec):
    """All requests of a session go to the replica that had the first one, whatever its load; a new session, a request
    without one, and a session whose replica is closed go to the replica with the fewest outstanding requests.
    """

    policy: Literal["session_affinity"]

    def start(self, pools: Sequence[str], rng: np.random.Generator) -> "Homes":
        """The running router over replicas of these *pools*, one name a replica."""
        return Homes(len(pools))


class Homes(Loads):
    """Where each session is at home."""

    def __init__(self, replicas: int) -> None:
        super().__init__(replicas)
        self._home: dict[str, int] = {}

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 if none is open."""
        home = self._home.get(request.session, -1)
        if home in self.open:
            return home
        chosen = self.least()
        if request.session and chosen >= 0:
            self._home[request.session] = chosen
        return chosen
