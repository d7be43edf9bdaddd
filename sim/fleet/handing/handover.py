"""A request between two replicas: its prompt is computed, its KV crosses the network, and it is answered elsewhere.

The answering replica is chosen when the prompt is done, or, where KV leaves layer by layer, when it begins to be
computed. It reserves blocks for the prompt's KV first, in order of arrival; then the KV crosses; then the request goes
on there, and the replica that computed the prompt gives up its blocks. Until then the request counts at both.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan

from sim.engine.sequence import Sequence
from sim.fleet.arrivals.source import Clock
from sim.fleet.failing.losses import Losses
from sim.fleet.handing.layers import LayerStreams
from sim.fleet.handing.network import Making, Network, Transfer
from sim.fleet.pool import rank_limits
from sim.fleet.replica import Replica
from sim.fleet.roster import Roster
from sim.records import BusyTime, Hop, Request
from sim.routing import Router
from sim.scenario.resolving.resolved import CasePlan


@dataclass(slots=True, eq=False)
class Move:
    """The KV of one request, from the replica that computes its prompt to the one that answers."""

    request: Request
    source: Replica
    target: int = -1
    """Who answers; -1 while nobody is chosen."""
    reserved: bool = False
    """Whether there are blocks for it."""
    computed: bool = False
    """Whether the prompt is done."""
    ready_tokens: int = 0
    """Computed and not sent."""
    sent_tokens: int = 0
    flying: dict[Transfer, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ways:
    """What a handover does with the fleet."""

    router: Callable[[], Router | Roster]
    """Counts requests at replicas."""
    choose: Callable[[Request], int]
    """Who answers, -1 while there is none."""
    homeless: Callable[[], None]
    """Nobody is there to answer a request."""
    losses: Losses | None
    """Where replicas fail."""


class Handover:
    """All requests of a fleet that are on their way from one replica to another."""

    def __init__(self, plan: CasePlan, clock: Clock, replicas: list[Replica], ways: Ways) -> None:
        if plan.kv_transfer is None:
            raise ValueError("no pool has a role")
        self._plan, self._replicas, self._ways, self._transfer = plan, replicas, ways, plan.kv_transfer
        pools, window_s = [replica.pool for replica in replicas], plan.window_s(inf)
        self.network = Network(clock, plan.kv_transfer, pools, self._arrived, window_s)
        self._moves: dict[Request, Move] = {}
        self._expected: list[deque[Move]] = [deque() for _ in replicas]
        """By answering replica: who waits for blocks there."""
        self._homeless: dict[Move, None] = {}
        """While no answering replica was open."""
        self._answering = [(pool.served, rank_limits(pool)) for pool in plan.pools if pool.role != "prefill"]
        self._splits = [plan.pools[replica.pool].role == "prefill" for replica in replicas]
        computing = [replica for replica, splits in zip(replicas, self._splits, strict=True) if splits]
        if ways.losses is not None:
            ways.losses.moves = self.strike
        transfer = plan.kv_transfer
        self._layers = LayerStreams(transfer, self._stream, computing) if transfer.overlaps else None

    def sent_bytes(self, now: float) -> dict[int, float]:
        """KV that each pool that computes prompts has sent inside the window until *now*."""
        pools, sent = [replica.pool for replica in self._replicas], self.network.sent_bytes(now)
        of_ports = dict(zip(self._transfer.ports(pools), pools, strict=True))
        sends = [pool for pool in sorted(set(pools)) if self._transfer.sends[pool]]
        return {pool: sum(sent[port] for port, holder in of_ports.items() if holder == pool) for pool in sends}

    def splits(self, index: int) -> bool:
        """Whether replica *index* computes prompts only."""
        return self._splits[index]

    def begins(self, request: Request, index: int) -> bool:
        """Whether replica *index*, where *request* is sent, computes its prompt only. It is refused where no answering
        pool can hold it.
        """
        request.prefill_replica, request.kv_transfer_s = -1, nan
        if not self._splits[index]:
            return False
        sequence = Sequence(request)
        several = bool(self._plan.services)
        known = (limits for served, limits in self._answering if not several or request.service in served)
        if not all(limits.serves(sequence) for limits in known):
            request.rejected = True
        elif self._layers is not None:
            self._layers.offered(request)
        return True

    def take(self, source: Replica, request: Request, now: float) -> None:
        """*source* has computed the prompt of *request*."""
        if self._ways.losses is not None:
            self._ways.losses.left(request, source.index)
        request.left = (*request.left, Hop(source.index, request.came_s, now, None, request.busy))
        request.prefill_replica = source.index
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()
        move = self._moves.get(request)
        is_new = move is None
        if move is None:
            move = self._moves[request] = Move(request, source)
        move.computed = True
        move.ready_tokens = request.prompt_tokens - move.sent_tokens
        if is_new:
            self._find_home(move, now)
        elif move.reserved:
            self._go_on(move, now)

    def opened(self, now: float) -> None:
        """A replica has begun to serve."""
        homeless, self._homeless = self._homeless, {}
        for move in homeless:
            self._find_home(move, now)

    def gives_up(self, request: Request, now: float) -> bool:
        """Whether *request*, its prompt computed, was on its way; its client does not wait for it any more."""
        move = self._moves.get(request)
        if move is None:
            return False
        self._drop(move, now)
        return move.computed

    def strike(self, index: int, now: float) -> list[Request]:
        """Replica *index* has failed; the requests on their way to it, or from it with their prompts computed. They
        count there from now on.
        """
        struck = [move for move in self._moves.values() if index in (move.source.index, move.target)]
        for move in struck:
            self._drop(move, now, dead=index)
        return [move.request for move in struck if move.computed]

    def _stream(
        self, source: Replica, request: Request, tokens: int, first_s: float, done_s: float, now: float
    ) -> None:
        """*source* computes *tokens* of the prompt of *request* up to *done_s*; their KV leaves from *first_s* on."""
        move = self._moves.get(request)
        if move is None:
            move = self._moves[request] = Move(request, source)
            move.ready_tokens = request.cached_tokens
            self._find_home(move, now)
        tokens = min(tokens, request.prompt_tokens - move.ready_tokens - move.sent_tokens)
        if not move.reserved:
            move.ready_tokens += tokens
        elif tokens:
            pace = tokens * self._plan.pools[source.pool].kv_bytes_per_token / (done_s - now)
            self._send(move, tokens, Making(first_s, done_s, pace))

    def _find_home(self, move: Move, now: float) -> None:
        request, losses = move.request, self._ways.losses
        index = self._ways.choose(request)
        if index < 0:
            self._homeless[move] = None
            self._ways.homeless()
            return
        self._ways.router().joined(index, request)
        move.target = index
        if losses is not None and losses.has_failed(index):
            self._drop(move, now, dead=index)
            if move.computed:
                losses.swallows(request, index)
            return
        self._expected[index].append(move)
        self._make_room(self._replicas[index], now)

    def _make_room(self, replica: Replica, now: float) -> None:
        """Starts the transfers to *replica* that there are blocks for, in order."""
        expected = self._expected[replica.index]
        while expected and replica.reserve(expected[0].request, now):
            move = expected.popleft()
            move.reserved = True
            self._go_on(move, now)
        replica.after_step = self._make_room if expected else None

    def _go_on(self, move: Move, now: float) -> None:
        """Sends what is ready; where nothing is left and all has arrived, the request goes on at its new replica."""
        if move.ready_tokens:
            tokens, move.ready_tokens = move.ready_tokens, 0
            self._send(move, tokens)
        elif move.computed and not move.flying:
            self._land(move, now)

    def _send(self, move: Move, tokens: int, making: Making | None = None) -> None:
        size = tokens * self._plan.pools[move.source.pool].kv_bytes_per_token
        move.sent_tokens += tokens
        move.flying[self.network.send(move, move.source.index, move.target, size, making)] = None

    def _arrived(self, transfer: Transfer, now: float) -> None:
        """A part of the KV of a request is where it is answered."""
        move = transfer.what
        del move.flying[transfer]
        self._go_on(move, now)

    def _land(self, move: Move, now: float) -> None:
        """All KV of the request is where it is answered."""
        request, source, replica = move.request, move.source, self._replicas[move.target]
        del self._moves[request]
        source.let_go(request, now)
        self._ways.router().left(source.index, request)
        request.replica, request.came_s = replica.index, now
        request.kv_transfer_s = now - request.left[-1].left_s
        if self._ways.losses is not None:
            self._ways.losses.joined(request, replica.index)
        if replica.offer(request, now):
            replica.replan(now)

    def _drop(self, move: Move, now: float, dead: int = -1) -> None:
        """The move ends half-way, and nothing is set aside for it any more. A request whose prompt is computed counts
        at the replica that is *dead*, and nowhere else.
        """
        request, target = move.request, move.target
        del self._moves[request]
        self.network.cancel(move.flying)
        self._homeless.pop(move, None)
        if target >= 0:
            if move.reserved:
                self._let_go(self._replicas[target], request, now, dead)
            elif move in self._expected[target]:
                self._expected[target].remove(move)
            if target != dead or not move.computed:
                self._ways.router().left(target, request)
        if move.computed:
            self._let_go(move.source, request, now, dead)
            if move.source.index != dead:
                self._ways.router().left(move.source.index, request)

    def _let_go(self, replica: Replica, request: Request, now: float, dead: int) -> None:
        if replica.index == dead:
            replica.engine.let_go(request, now)
        else:
            replica.let_go(request, now)
