"""Requests on replicas that have failed: stranded until somebody notices."""

from collections.abc import Callable

from sim.fleet.replica import Replica
from sim.records import Request

Lose = Callable[[list[Request], float], None]
"""Takes requests that were lost with their replica, and when that is noticed."""


class Losses:
    """Which requests each replica has, and which of them wait for an answer that will not come.

    From a failure until it is noticed the router goes on sending requests to the replica; they are stranded with those
    that it had.
    """

    def __init__(self, replicas: list[Replica], left: Callable[[int, Request], None], lose: Lose, move: Lose) -> None:
        """*left* tells the router that a request has left a replica; *move* gets requests that go on elsewhere."""
        self._replicas = replicas
        self._left, self._lose, self._move = left, lose, move
        self._has: list[dict[Request, None]] = [{} for _ in replicas]
        self._stranded: dict[Request, int] = {}
        self._dead: set[int] = set()
        self.moves: Callable[[int, float], list[Request]] = lambda index, now: []
        """Takes requests that are on their way to or from a replica which has failed; they are stranded there."""

    def has_failed(self, index: int) -> bool:
        """Whether replica *index* is dead, and nobody has noticed."""
        return index in self._dead

    def joined(self, request: Request, index: int) -> None:
        """*request* is at replica *index*, which works on it."""
        self._has[index][request] = None

    def left(self, request: Request, index: int) -> None:
        """*request* has left replica *index*: it is finished or has been taken away."""
        del self._has[index][request]

    def swallows(self, request: Request, index: int) -> bool:
        """Whether replica *index* is dead, so that *request*, sent there, is stranded."""
        if index not in self._dead:
            return False
        self._stranded[request] = index
        return True

    def where(self, request: Request) -> int:
        """The replica at which *request* is stranded; -1 if it is not."""
        return self._stranded.get(request, -1)

    def gives_up(self, request: Request) -> bool:
        """Whether *request* was stranded; its client does not wait for it any more."""
        index = self._stranded.pop(request, None)
        if index is None:
            return False
        self._left(index, request)
        return True

    def strike(self, index: int, now: float) -> None:
        """Replica *index* fails: its KV cache and its step under way are gone, and what it works on is stranded."""
        self._dead.add(index)
        for request in self._replicas[index].crash(list(self._has[index]), now):
            del self._has[index][request]
            self._stranded[request] = index
        for request in self.moves(index, now):
            self._stranded[request] = index

    def empty(self, index: int, now: float) -> None:
        """Replica *index*, which is closed, stops; others go on with what it has."""
        gone = self._replicas[index].crash(list(self._has[index]), now)
        for request in gone:
            self.left(request, index)
            self._left(index, request)
        if gone:
            self._move(gone, now)

    def notice(self, index: int, now: float) -> list[Request]:
        """It is noticed that replica *index* has failed; the requests that were stranded there."""
        self._dead.discard(index)
        lost = [request for request, where in self._stranded.items() if where == index]
        for request in lost:
            del self._stranded[request]
            self._left(index, request)
        return lost

    def send_elsewhere(self, lost: list[Request], now: float) -> None:
        """Their clients, or the router, send *lost* again."""
        if lost:
            self._lose(lost, now)
