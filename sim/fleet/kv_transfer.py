"""KV transfer between replicas: a prompt is computed on one, its KV crosses the network, another one answers.

The answering replica is chosen when the prompt is done, or, where KV leaves layer by layer, when it begins to be
computed. It reserves blocks for the prompt's KV first, in order of arrival; then the KV crosses; then the request
goes on there, and the replica that computed the prompt gives up its blocks. Until then the request counts at both.

Replicas share network ports. Ports send and receive at the same time, each way at their rate. With several
transfers on a port each has an equal part of it, from its turn on, the latency before its first byte included, and
goes at the least of its parts: at the sender, at the receiver, and in the network between. So no port ever carries
more than its rate, and a part that a transfer cannot use because of its other end is not given to others. KV that
is still being computed leaves no faster than that.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nan
from typing import Any, Protocol

from sim.engine.sequence import Sequence as EngineSequence
from sim.fleet.arrivals import FleetClock
from sim.fleet.pool import rank_limits
from sim.fleet.replica import Replica, StrandedRequests
from sim.fleet.routing import ServingReplicas
from sim.records import BusyTime, ReplicaVisit, Request, StepSpan
from sim.routing import Router
from sim.routing.kv_transfer import TransferPlan
from sim.scenario.resolving.resolved import CasePlan


class LayerStream(Protocol):
    """Takes tokens of a prompt that a replica computes up to `done_s`, whose KV leaves from `first_s` on."""

    def __call__(
        self, source: Replica, request: Request, tokens: int, first_s: float, done_s: float, now: float
    ) -> None:
        """*now* is the begin of the step."""
        ...


class LayerStreams:
    """Watches the steps of replicas that compute prompts.

    A step computes its layers one after the other, at an even pace. The KV of a layer may leave when the layer is done:
    of what a step computes, the last layer's part is left when it ends.
    """

    def __init__(self, plan: TransferPlan, stream: LayerStream, replicas: Iterable[Replica]) -> None:
        """*replicas* compute prompts only."""
        self._lead = 1 / plan.layers[0] if plan.layers[0] else 0.0
        self._send = stream
        self._prompts: dict[int, Request] = {}
        """By index: prompts at replicas that compute nothing else."""
        self._seen_s: dict[int, float] = {}
        """Replica -> begin of the last step that was looked at."""
        for replica in replicas:
            replica.formed = self._formed

    def offered(self, request: Request) -> None:
        """*request* is at a replica that computes its prompt."""
        if request.output_tokens > 1:  # who wants one token is answered there
            self._prompts[request.index] = request

    def _formed(self, replica: Replica) -> None:
        """*replica* may have begun another step."""
        for span in replica.engine.under_way():
            if span.prompts and span.start_s > self._seen_s.get(replica.index, -1.0):
                self._seen_s[replica.index] = span.start_s
                self._stream(replica, span)

    def _stream(self, replica: Replica, span: StepSpan) -> None:
        duration_s = span.end_s - span.start_s
        for index, tokens in span.prompts.items():
            request = self._prompts.get(index)
            if request is None or request.replica != replica.index or request.preemptions:
                continue  # what is computed again has left already, or leaves when the prompt is done
            first_s = span.start_s + self._lead * duration_s
            self._send(replica, request, tokens, first_s, span.end_s, span.start_s)


@dataclass(frozen=True, slots=True)
class KvProduction:
    """KV that is computed while it is sent, at an even pace."""

    first_s: float
    """When there is something to send."""
    done_s: float
    """When all of it is there."""
    bytes_per_s: float


@dataclass(slots=True, eq=False)
class KvTransferUnderWay:
    """KV on its way."""

    what: Any
    source: int
    """Port that sends."""
    target: int
    """Port that receives."""
    left_bytes: float
    rate: float = 0.0
    since_s: float = 0.0
    """When the rate began, or will with the first byte."""
    version: int = 0
    """Of its due time."""
    making: KvProduction | None = None
    """What holds it back; None: all of it is there."""


@dataclass(slots=True)
class Port:
    """One way of a port, or the network between all of them."""

    bytes_per_s: float
    flowing: dict[KvTransferUnderWay, None] = field(default_factory=dict)


class PortNetwork:
    """All ports of a fleet, on its clock."""

    def __init__(
        self,
        clock: FleetClock,
        plan: TransferPlan,
        pool_of_replica: Sequence[int],
        arrived: Callable[["KvTransferUnderWay", float], None],
        window_s: tuple[float, float] = (0.0, inf),
    ) -> None:
        """*arrived* gets a transfer when its last byte is there. Bytes are counted between the times *window_s*."""
        self._clock, self._plan, self._arrived = clock, plan, arrived
        self._port_of = plan.ports(pool_of_replica)
        rates = plan.rates(pool_of_replica)
        self.sending = [Port(rate) for rate in rates]
        self.receiving = [Port(rate) for rate in rates]
        self._between = Port(plan.between(pool_of_replica))
        self._most = plan.concurrent or inf
        self._waiting: dict[KvTransferUnderWay, None] = {}
        self._due: list[tuple[float, int, int, KvTransferUnderWay]] = []
        self._pushed = 0
        self._call = -1
        self._call_s = inf
        self._window_s = window_s
        self._sent_bytes = [0.0] * len(rates)

    def send(
        self, what: Any, source: int, target: int, size_bytes: float, making: KvProduction | None = None
    ) -> KvTransferUnderWay:
        """Sends *size_bytes* from replica *source* to replica *target*, now or when both ports have a turn for it."""
        transfer = KvTransferUnderWay(what, self._port_of[source], self._port_of[target], size_bytes, making=making)
        if not self._begin(transfer, self._clock.now):
            self._waiting[transfer] = None
        self._arm()
        return transfer

    def cancel(self, transfers: Iterable[KvTransferUnderWay]) -> None:
        """*transfers* are given up; what they have sent is lost."""
        now = self._clock.now
        for transfer in transfers:
            if transfer in self._waiting:
                del self._waiting[transfer]
            else:
                transfer.version += 1
                self._stop(transfer, now)
        self._begin_waiting(now)
        self._arm()

    def sent_bytes(self, now: float) -> list[float]:
        """What each port has sent inside the window until *now*, of transfers that never arrived too."""
        return [
            sent + sum(self._sent_inside(transfer, now) for transfer in port.flowing)
            for sent, port in zip(self._sent_bytes, self.sending, strict=True)
        ]

    def _sent_inside(self, transfer: KvTransferUnderWay, now: float) -> float:
        """What *transfer* has sent at its present rate, inside the window."""
        begins_s, ends_s = self._window_s
        return transfer.rate * max(0.0, min(now, ends_s) - max(transfer.since_s, begins_s))

    def _begin(self, transfer: KvTransferUnderWay, now: float) -> bool:
        sender, receiver = self.sending[transfer.source], self.receiving[transfer.target]
        if len(sender.flowing) >= self._most or len(receiver.flowing) >= self._most:
            return False
        begins_s = now if transfer.making is None else max(now, transfer.making.first_s)
        transfer.since_s = begins_s + self._plan.latency_s
        for port in self._ports(transfer):
            port.flowing[transfer] = None
        self._share(transfer, now)
        return True

    def _push(self, transfer: KvTransferUnderWay, at_s: float) -> None:
        transfer.version += 1
        self._pushed += 1
        heappush(self._due, (at_s, self._pushed, transfer.version, transfer))

    def _arm(self) -> None:
        due = self._due
        while due and due[0][2] != due[0][3].version:
            heappop(due)
        if due and due[0][0] != self._call_s:
            self._call_s = due[0][0]
            self._call = self._clock.call(self, max(0.0, self._call_s - self._clock.now))

    def wake(self, number: int) -> None:
        """The clock's call with this *number* has come."""
        if number != self._call:
            return
        now, self._call_s = self._call_s, inf
        done: list[KvTransferUnderWay] = []
        while self._due and self._due[0][0] <= now:
            _, _, version, transfer = heappop(self._due)
            if version != transfer.version:
                continue
            if transfer.making is not None and transfer.making.done_s <= now:
                transfer.making = None
                self._go_on(transfer, self._part(transfer), now)
            else:
                done.append(transfer)
                self._stop(transfer, now)
        if done:
            self._begin_waiting(now)
        for transfer in done:
            self._arrived(transfer, now)
        self._arm()

    def _begin_waiting(self, now: float) -> None:
        """Those who wait begin where ports have a turn for them."""
        for waiting in list(self._waiting):
            if self._begin(waiting, now):
                del self._waiting[waiting]

    def _stop(self, transfer: KvTransferUnderWay, now: float) -> None:
        """The last byte of *transfer* is there, or it is given up."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        for port in self._ports(transfer):
            del port.flowing[transfer]
        self._share(transfer, now)

    def _ports(self, transfer: KvTransferUnderWay) -> tuple[Port, Port, Port]:
        return self.sending[transfer.source], self.receiving[transfer.target], self._between

    def _share(self, changed: KvTransferUnderWay, now: float) -> None:
        """Gives everyone who shares a port with *changed* its part from *now* on."""
        sender, receiver, between = self._ports(changed)
        met = between.flowing if between.bytes_per_s < inf else {**sender.flowing, **receiver.flowing}
        for transfer in met:
            rate = self._part(transfer)
            if rate != transfer.rate:
                self._go_on(transfer, rate, now)

    def _part(self, transfer: KvTransferUnderWay) -> float:
        rate = min(port.bytes_per_s / len(port.flowing) for port in self._ports(transfer))
        return rate if transfer.making is None else min(rate, transfer.making.bytes_per_s)

    def _go_on(self, transfer: KvTransferUnderWay, rate: float, now: float) -> None:
        """*transfer* goes on at *rate*: until its last byte is there, or until all that it sends is computed."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        transfer.left_bytes -= transfer.rate * max(0.0, now - transfer.since_s)
        transfer.rate, transfer.since_s = rate, max(now, transfer.since_s)
        due_s = transfer.since_s + max(0.0, transfer.left_bytes) / rate
        self._push(transfer, due_s if transfer.making is None else transfer.making.done_s)


@dataclass(slots=True, eq=False)
class RequestHandover:
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
    flying: dict[KvTransferUnderWay, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransferCallbacks:
    """What a handover does with the fleet."""

    router: Callable[[], Router | ServingReplicas]
    """Counts requests at replicas."""
    choose: Callable[[Request], int]
    """Who answers, -1 while there is none."""
    homeless: Callable[[], None]
    """Nobody is there to answer a request."""
    losses: StrandedRequests | None
    """Where replicas fail."""


class Handover:
    """All requests of a fleet that are on their way from one replica to another."""

    def __init__(self, plan: CasePlan, clock: FleetClock, replicas: list[Replica], ways: TransferCallbacks) -> None:
        if plan.kv_transfer is None:
            raise ValueError("no pool has a role")
        self._plan, self._replicas, self._ways, self._transfer = plan, replicas, ways, plan.kv_transfer
        pools, window_s = [replica.pool for replica in replicas], plan.window_s(inf)
        self.network = PortNetwork(clock, plan.kv_transfer, pools, self._arrived, window_s)
        self._moves: dict[Request, RequestHandover] = {}
        self._expected: list[deque[RequestHandover]] = [deque() for _ in replicas]
        """By answering replica: who waits for blocks there."""
        self._homeless: dict[RequestHandover, None] = {}
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
        sequence = EngineSequence(request)
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
        request.left = (*request.left, ReplicaVisit(source.index, request.came_s, now, None, request.busy))
        request.prefill_replica = source.index
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()
        move = self._moves.get(request)
        is_new = move is None
        if move is None:
            move = self._moves[request] = RequestHandover(request, source)
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
            move = self._moves[request] = RequestHandover(request, source)
            move.ready_tokens = request.cached_tokens
            self._find_home(move, now)
        tokens = min(tokens, request.prompt_tokens - move.ready_tokens - move.sent_tokens)
        if not move.reserved:
            move.ready_tokens += tokens
        elif tokens:
            pace = tokens * self._plan.pools[source.pool].kv_bytes_per_token / (done_s - now)
            self._send(move, tokens, KvProduction(first_s, done_s, pace))

    def _find_home(self, move: RequestHandover, now: float) -> None:
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

    def _go_on(self, move: RequestHandover, now: float) -> None:
        """Sends what is ready; where nothing is left and all has arrived, the request goes on at its new replica."""
        if move.ready_tokens:
            tokens, move.ready_tokens = move.ready_tokens, 0
            self._send(move, tokens)
        elif move.computed and not move.flying:
            self._land(move, now)

    def _send(self, move: RequestHandover, tokens: int, making: KvProduction | None = None) -> None:
        size = tokens * self._plan.pools[move.source.pool].kv_bytes_per_token
        move.sent_tokens += tokens
        move.flying[self.network.send(move, move.source.index, move.target, size, making)] = None

    def _arrived(self, transfer: KvTransferUnderWay, now: float) -> None:
        """A part of the KV of a request is where it is answered."""
        move = transfer.what
        del move.flying[transfer]
        self._go_on(move, now)

    def _land(self, move: RequestHandover, now: float) -> None:
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

    def _drop(self, move: RequestHandover, now: float, dead: int = -1) -> None:
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
            replica.transit.let_go(request, now)
        else:
            replica.let_go(request, now)
