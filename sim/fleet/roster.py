"""The requests of each replica, and the routing policy over the replicas that take new ones."""

from collections.abc import Callable

from sim.fleet.lifecycle import LIFE, State
from sim.records import Request
from sim.routing import Router


class Roster:
    """A router that follows the states of replicas.

    The policy learns which replicas open and close, and keeps what it knows of the others. A replica that closes
    goes on with the requests it has; when a draining one has answered the last, it is *drained*. A failure is not
    noticed at once: a replica that fails stays open until it leaves that state.
    """

    def __init__(self, policy: Router, states: list[State], drained: Callable[[int], None]) -> None:
        self._policy = policy
        self._drained = drained
        self._outstanding = [0] * len(states)
        self._came = [0] * len(states)
        self._states = states
        self._ejected: set[int] = set()
        self._open = [LIFE[state].routed for state in states]
        for replica, is_open in enumerate(self._open):
            if not is_open:
                policy.closed(replica)

    def outstanding(self, replica: int) -> int:
        """Requests that *replica* has: waiting and running."""
        return self._outstanding[replica]

    def came(self, replica: int) -> int:
        """Requests that *replica* has been sent so far."""
        return self._came[replica]

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 while none that may have it serves."""
        return self._policy.choose(request)

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        self._outstanding[replica] += 1
        self._came[replica] += 1
        self._policy.joined(replica, request)

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*."""
        self._outstanding[replica] -= 1
        if self._open[replica]:
            self._policy.left(replica, request)
        elif self._states[replica] is State.DRAINING and not self._outstanding[replica]:
            self._drained(replica)

    def before_move(self, replica: int, after: State) -> None:
        """*replica* goes to the state *after*."""
        if after is not State.FAILED:
            self._set(replica, LIFE[after].routed and replica not in self._ejected)

    def eject(self, replica: int) -> bool:
        """Closes *replica*, whatever its state; whether that could be done: the last open one stays."""
        if not self._open[replica] or sum(self._open) == 1:
            return False
        self._ejected.add(replica)
        self._set(replica, False)
        return True

    def readmit(self, replica: int) -> None:
        """*replica* is not ejected any more; nobody has noticed if it has failed meanwhile."""
        self._ejected.discard(replica)
        self._set(replica, self._states[replica] in (State.SERVING, State.FAILED))

    def _set(self, replica: int, is_open: bool) -> None:
        was_open = self._open[replica]
        self._open[replica] = is_open
        if is_open and not was_open:
            self._policy.opened(replica, self._outstanding[replica])
        elif was_open and not is_open:
            self._policy.closed(replica)
