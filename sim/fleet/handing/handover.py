"""A request between two replicas: its prompt is computed, its KV crosses the network, and it is answered elsewhere.

The answering replica is chosen when the prompt is done. It reserves blocks for the prompt's KV first, in order of
arrival; then the KV crosses; then the request goes on there, and the replica that computed the prompt gives up its
blocks. Until then the request counts at both.
"""

from collections import deque
from collections.abc import Callable
from math import nan

from sim.engine.sequence import Sequence
from sim.fleet.arrivals.source import Clock
from sim.fleet.handing.network import Network
from sim.fleet.pool import rank_limits
from sim.fleet.replica import Replica
from sim.fleet.roster import Roster
from sim.records import BusyTime, Hop, Request
from sim.routing import Router
from sim.scenario.resolving.resolved import CasePlan


class Handover:
    """All requests of a fleet that are on their way from one replica to another."""

    def __init__(
        self,
        plan: CasePlan,
        clock: Clock,
        replicas: list[Replica],
        router: Callable[[], Router | Roster],
        choose: Callable[[Request], int],
    ) -> None:
        """*router* counts requests at replicas; *choose* names the replica that answers, -1 while there is none."""
        if plan.kv_transfer is None:
            raise ValueError("no pool has a role")
        self._plan, self._replicas = plan, replicas
        self._router, self._choose = router, choose
        self.network = Network(clock, plan.kv_transfer, [replica.pool for replica in replicas], self._arrived)
        self._expected: list[deque[Request]] = [deque() for _ in replicas]
        """By answering replica: who waits for blocks there."""
        self._homeless: list[Request] = []
        """Computed while no answering replica was open."""
        self._answering = [rank_limits(pool) for pool in plan.pools if pool.role != "prefill"]
        self._splits = [plan.pools[replica.pool].role == "prefill" for replica in replicas]

    def splits(self, index: int) -> bool:
        """Whether replica *index* computes prompts only."""
        return self._splits[index]

    def fits(self, request: Request) -> bool:
        """Whether every answering pool can hold *request*."""
        sequence = Sequence(request)
        return all(limits.serves(sequence) for limits in self._answering)

    def take(self, source: Replica, request: Request, now: float) -> None:
        """*source* has computed the prompt of *request*."""
        request.left = (*request.left, Hop(source.index, request.came_s, now, None, request.busy))
        request.prefill_replica = source.index
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()
        self._find_home(request, now)

    def opened(self, now: float) -> None:
        """A replica has begun to serve."""
        homeless, self._homeless = self._homeless, []
        for request in homeless:
            self._find_home(request, now)

    def _find_home(self, request: Request, now: float) -> None:
        index = self._choose(request)
        if index < 0:
            self._homeless.append(request)
            return
        self._router().joined(index, request)
        self._expected[index].append(request)
        self._make_room(self._replicas[index], now)

    def _make_room(self, replica: Replica, now: float) -> None:
        """Starts the transfers to *replica* that there are blocks for, in order."""
        expected = self._expected[replica.index]
        while expected and replica.reserve(expected[0], now):
            request = expected.popleft()
            pool = self._plan.pools[self._replicas[request.prefill_replica].pool]
            size = request.prompt_tokens * pool.kv_bytes_per_token
            self.network.send((request, replica), request.prefill_replica, replica.index, size)
        replica.after_step = self._make_room if expected else None

    def _arrived(self, what: tuple[Request, Replica], now: float) -> None:
        """The KV of a request is where it is answered."""
        request, replica = what
        source = self._replicas[request.prefill_replica]
        source.let_go(request, now)
        self._router().left(source.index, request)
        request.replica, request.came_s = replica.index, now
        request.kv_transfer_s = now - request.left[-1].left_s
        if replica.offer(request, now):
            replica.replan(now)
