"""KV transfer between replicas: one replica computes a prompt, its KV crosses the network, another replica answers.

The answering replica is chosen when the prompt is done, or, where KV leaves layer by layer, when the prompt begins to
be computed. First it reserves blocks for the prompt's KV, in order of arrival; then the KV crosses; then the request
continues there, and the replica that computed the prompt frees its blocks. Until then the request counts at both
replicas.

Replicas share network ports. Ports send and receive at the same time, each way at their rate. Concurrent transfers on a
port have equal shares of its rate, from their start, the latency before the first byte included. A transfer proceeds at
the minimum of its shares: at the sender, at the receiver, and in the network between. So no port ever carries more than
its rate, and a share that a transfer cannot use because of its other end is not redistributed. KV that is still being
computed is sent no faster than it is computed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf, nan
from typing import Any, Protocol

from sim.engine.sequence import Sequence as EngineSequence
from sim.fleet.clock import FleetClock, TimedWakeup
from sim.fleet.pool import rank_limits
from sim.fleet.replica import Replica, StrandedRequests
from sim.fleet.routing import ServingReplicas
from sim.records import BusyTime, ReplicaVisit, Request, StepSpan
from sim.routing import Router
from sim.routing.kv_transfer import TransferPlan
from sim.scenario.resolving.resolved import CasePlan


class LayerStream(Protocol):
    """Callback for tokens of a prompt that a replica computes up to `done_s`; their KV can leave from `first_s` on."""

    def __call__(
        self, source: Replica, request: Request, tokens: int, first_s: float, done_s: float, now: float
    ) -> None:
        """Accept *tokens* of the step that begins at *now*."""
        ...


class LayerStreams:
    """Observer of the steps of prefill replicas: streams the KV of prompts layer by layer.

    A step computes its layers one after the other, at an even pace. The KV of a layer can be sent when the layer is
    done: the last layer's KV is sent after the step's end.
    """

    def __init__(self, plan: TransferPlan, stream: LayerStream, replicas: Iterable[Replica]) -> None:
        """Observe *replicas*, which compute prompts only."""
        self._lead = 1 / plan.layers[0] if plan.layers[0] else 0.0
        self._send = stream
        self._prompts: dict[int, Request] = {}
        """Request index -> request whose prompt a prefill replica computes."""
        self._seen_s: dict[int, float] = {}
        """Replica -> start of the last step that was streamed [s]."""
        for replica in replicas:
            replica.formed = self._formed

    def offered(self, request: Request) -> None:
        """Register *request*, which is at a replica that computes its prompt."""
        if request.output_tokens > 1:  # an answer of one token needs no transfer
            self._prompts[request.index] = request

    def _formed(self, replica: Replica) -> None:
        """Stream the steps that *replica* has begun since the last call."""
        for span in replica.engine.under_way():
            if span.prompts and span.start_s > self._seen_s.get(replica.index, -1.0):
                self._seen_s[replica.index] = span.start_s
                self._stream(replica, span)

    def _stream(self, replica: Replica, span: StepSpan) -> None:
        duration_s = span.end_s - span.start_s
        for index, tokens in span.prompts.items():
            request = self._prompts.get(index)
            if request is None or request.replica != replica.index or request.preemptions:
                continue  # recomputed KV has been sent already, or is sent when the prompt is done
            first_s = span.start_s + self._lead * duration_s
            self._send(replica, request, tokens, first_s, span.end_s, span.start_s)


@dataclass(frozen=True, slots=True)
class KvProduction:
    """KV that is computed at an even pace while it is sent."""

    first_s: float
    """Time at which the first bytes can be sent [s]."""
    done_s: float
    """Time at which all of it is computed [s]."""
    bytes_per_s: float


@dataclass(slots=True, eq=False)
class PortTransfer:
    """KV transfer that is waiting for a port or in progress."""

    payload: Any
    source: int
    """Sending port."""
    target: int
    """Receiving port."""
    left_bytes: float
    rate: float = 0.0
    since_s: float = 0.0
    """Time at which the current rate applies from: its last change, or the first byte [s]."""
    version: int = 0
    """Number of the current due time; heap entries with other versions are stale."""
    production: KvProduction | None = None
    """Production of KV that limits the rate; None once all of it is computed."""


@dataclass(slots=True)
class Port:
    """Sending or receiving side of a network port, or the network between all ports."""

    bytes_per_s: float
    flowing: dict[PortTransfer, None] = field(default_factory=dict)


class PortNetwork(TimedWakeup):
    """All network ports of a fleet, on its clock."""

    def __init__(
        self,
        clock: FleetClock,
        plan: TransferPlan,
        pool_of_replica: Sequence[int],
        arrived: Callable[["PortTransfer", float], None],
        window_s: tuple[float, float] = (0.0, inf),
    ) -> None:
        """Call *arrived* with each transfer whose last byte has come. Count the bytes sent inside *window_s*."""
        super().__init__()
        self._clock, self._plan, self._arrived = clock, plan, arrived
        self._port_of = plan.ports(pool_of_replica)
        rates = plan.rates(pool_of_replica)
        self.sending = [Port(rate) for rate in rates]
        self.receiving = [Port(rate) for rate in rates]
        self._core = Port(plan.between(pool_of_replica))
        self._most = plan.concurrent or inf
        self._waiting: dict[PortTransfer, None] = {}
        self._due: list[tuple[float, int, int, PortTransfer]] = []
        self._pushed = 0
        self._planned_s = inf
        """Time at which the next transfer changes [s]."""
        self._window_s = window_s
        self._sent_bytes = [0.0] * len(rates)

    def send(
        self, payload: Any, source: int, target: int, size_bytes: float, production: KvProduction | None = None
    ) -> PortTransfer:
        """Send *size_bytes* from replica *source* to replica *target*, now or once both ports have a free slot."""
        transfer = PortTransfer(
            payload, self._port_of[source], self._port_of[target], size_bytes, production=production
        )
        if not self._begin(transfer, self._clock.now):
            self._waiting[transfer] = None
        self._arm()
        return transfer

    def cancel(self, transfers: Iterable[PortTransfer]) -> None:
        """Cancel *transfers*; what they have sent is lost."""
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
        """Return the bytes that each port has sent inside the window until *now*.

        Unfinished and cancelled transfers count, too.
        """
        return [
            sent + sum(self._sent_inside(transfer, now) for transfer in port.flowing)
            for sent, port in zip(self._sent_bytes, self.sending, strict=True)
        ]

    def _sent_inside(self, transfer: PortTransfer, now: float) -> float:
        """Return the bytes that *transfer* has sent at its current rate inside the window."""
        begins_s, ends_s = self._window_s
        return transfer.rate * max(0.0, min(now, ends_s) - max(transfer.since_s, begins_s))

    def _begin(self, transfer: PortTransfer, now: float) -> bool:
        sender, receiver = self.sending[transfer.source], self.receiving[transfer.target]
        if len(sender.flowing) >= self._most or len(receiver.flowing) >= self._most:
            return False
        begins_s = now if transfer.production is None else max(now, transfer.production.first_s)
        transfer.since_s = begins_s + self._plan.latency_s
        for port in self._ports(transfer):
            port.flowing[transfer] = None
        self._update_rates(transfer, now)
        return True

    def _push(self, transfer: PortTransfer, at_s: float) -> None:
        transfer.version += 1
        self._pushed += 1
        heappush(self._due, (at_s, self._pushed, transfer.version, transfer))

    def _arm(self) -> None:
        due = self._due
        while due and due[0][2] != due[0][3].version:
            heappop(due)
        if due and due[0][0] != self._planned_s:
            self._planned_s = due[0][0]
            self._clock.move_call(self, self._planned_s)

    def wake(self) -> None:
        """Complete what is due."""
        now, self._planned_s = self._planned_s, inf
        done: list[PortTransfer] = []
        while self._due and self._due[0][0] <= now:
            _, _, version, transfer = heappop(self._due)
            if version != transfer.version:
                continue
            if transfer.production is not None and transfer.production.done_s <= now:
                transfer.production = None
                self._set_rate(transfer, self._rate_of(transfer), now)
            else:
                done.append(transfer)
                self._stop(transfer, now)
        if done:
            self._begin_waiting(now)
        for transfer in done:
            self._arrived(transfer, now)
        self._arm()

    def _begin_waiting(self, now: float) -> None:
        """Begin the waiting transfers whose ports have a free slot."""
        for waiting in list(self._waiting):
            if self._begin(waiting, now):
                del self._waiting[waiting]

    def _stop(self, transfer: PortTransfer, now: float) -> None:
        """Remove *transfer* from its ports: its last byte has come, or it is cancelled."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        for port in self._ports(transfer):
            del port.flowing[transfer]
        self._update_rates(transfer, now)

    def _ports(self, transfer: PortTransfer) -> tuple[Port, Port, Port]:
        return self.sending[transfer.source], self.receiving[transfer.target], self._core

    def _update_rates(self, changed: PortTransfer, now: float) -> None:
        """Recompute the rates of all transfers that share a port with *changed*, from *now* on."""
        sender, receiver, between = self._ports(changed)
        met = between.flowing if between.bytes_per_s < inf else {**sender.flowing, **receiver.flowing}
        for transfer in met:
            rate = self._rate_of(transfer)
            if rate != transfer.rate:
                self._set_rate(transfer, rate, now)

    def _rate_of(self, transfer: PortTransfer) -> float:
        rate = min(port.bytes_per_s / len(port.flowing) for port in self._ports(transfer))
        return rate if transfer.production is None else min(rate, transfer.production.bytes_per_s)

    def _set_rate(self, transfer: PortTransfer, rate: float, now: float) -> None:
        """Continue *transfer* at *rate* until its last byte has come, or until all that it sends is computed."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        transfer.left_bytes -= transfer.rate * max(0.0, now - transfer.since_s)
        transfer.rate, transfer.since_s = rate, max(now, transfer.since_s)
        due_s = transfer.since_s + max(0.0, transfer.left_bytes) / rate
        self._push(transfer, due_s if transfer.production is None else transfer.production.done_s)


@dataclass(slots=True, eq=False)
class RequestTransfer:
    """Transfer of one request's KV from the replica that computes its prompt to the one that answers."""

    request: Request
    source: Replica
    target: int = -1
    """Index of the answering replica; -1 while none is chosen."""
    reserved: bool = False
    """True if blocks are reserved at the answering replica."""
    computed: bool = False
    """True if the whole prompt is computed."""
    ready_tokens: int = 0
    """Prompt tokens whose KV is computed and not sent."""
    sent_tokens: int = 0
    in_flight: dict[PortTransfer, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransferCallbacks:
    """Callbacks from `KvTransfers` to the fleet."""

    router: Callable[[], Router | ServingReplicas]
    """Return the router, which counts requests at replicas."""
    choose: Callable[[Request], int]
    """Choose the answering replica of a request; -1 while none is open."""
    unassigned: Callable[[], None]
    """Report that no replica can answer a request."""
    stranded: StrandedRequests | None
    """Requests stranded on failed replicas; None where replicas do not fail."""


class KvTransfers:
    """All requests of a fleet that are being moved from a prefill replica to an answering one."""

    def __init__(
        self, plan: CasePlan, clock: FleetClock, replicas: list[Replica], callbacks: TransferCallbacks
    ) -> None:
        if plan.kv_transfer is None:
            raise ValueError("no pool has a role")
        self._plan, self._replicas, self._callbacks, self._transfer = plan, replicas, callbacks, plan.kv_transfer
        pools, window_s = [replica.pool for replica in replicas], plan.window_s(inf)
        self.network = PortNetwork(clock, plan.kv_transfer, pools, self._arrived, window_s)
        self._moves: dict[Request, RequestTransfer] = {}
        self._expected: list[deque[RequestTransfer]] = [deque() for _ in replicas]
        """Answering replica -> moves that wait for blocks there, in order of arrival."""
        self._unassigned: dict[RequestTransfer, None] = {}
        """Moves for which no answering replica was open."""
        self._answering = [(pool.served, rank_limits(pool)) for pool in plan.pools if pool.role != "prefill"]
        self._prefill_only = [plan.pools[replica.pool].role == "prefill" for replica in replicas]
        computing = [
            replica for replica, prefill_only in zip(replicas, self._prefill_only, strict=True) if prefill_only
        ]
        if callbacks.stranded is not None:
            callbacks.stranded.transfers = self.fail_replica
        transfer = plan.kv_transfer
        self._layers = LayerStreams(transfer, self._stream, computing) if transfer.overlaps else None

    def sent_bytes(self, now: float) -> dict[int, float]:
        """Return the KV bytes that each prefill pool has sent inside the window until *now*."""
        pools, sent = [replica.pool for replica in self._replicas], self.network.sent_bytes(now)
        of_ports = dict(zip(self._transfer.ports(pools), pools, strict=True))
        sends = [pool for pool in sorted(set(pools)) if self._transfer.sends[pool]]
        return {pool: sum(sent[port] for port, holder in of_ports.items() if holder == pool) for pool in sends}

    def prefill_only(self, index: int) -> bool:
        """Return whether replica *index* computes prompts only."""
        return self._prefill_only[index]

    def computes_prompt_only(self, request: Request, index: int) -> bool:
        """Return whether replica *index*, where *request* is sent, computes only its prompt.

        The request is rejected where no answering pool can hold it.
        """
        request.prefill_replica, request.kv_transfer_s = -1, nan
        if not self._prefill_only[index]:
            return False
        sequence = EngineSequence(request)
        several = bool(self._plan.services)
        known = (limits for served, limits in self._answering if not several or request.service in served)
        if not all(limits.serves(sequence) for limits in known):
            request.rejected = True
        elif self._layers is not None:
            self._layers.offered(request)
        return True

    def prompt_done(self, source: Replica, request: Request, now: float) -> None:
        """Move *request*, whose prompt *source* has computed, to an answering replica."""
        if self._callbacks.stranded is not None:
            self._callbacks.stranded.left(request, source.index)
        request.left = (*request.left, ReplicaVisit(source.index, request.came_s, now, None, request.busy))
        request.prefill_replica = source.index
        request.replica, request.came_s, request.busy = -1, nan, BusyTime()
        move = self._moves.get(request)
        is_new = move is None
        if move is None:
            move = self._moves[request] = RequestTransfer(request, source)
        move.computed = True
        move.ready_tokens = request.prompt_tokens - move.sent_tokens
        if is_new:
            self._assign(move, now)
        elif move.reserved:
            self._proceed(move, now)

    def opened(self, now: float) -> None:
        """Assign the moves without an answering replica: one has begun to serve."""
        unassigned, self._unassigned = self._unassigned, {}
        for move in unassigned:
            self._assign(move, now)

    def abandon(self, request: Request, now: float) -> bool:
        """Cancel the move of *request*, whose client has given up.

        Return whether the request was moving with its prompt computed.
        """
        move = self._moves.get(request)
        if move is None:
            return False
        self._abort(move, now)
        return move.computed

    def fail_replica(self, index: int, now: float) -> list[Request]:
        """Fail replica *index*: cancel the moves from or to it.

        Return the affected requests whose prompts are computed. They count at replica *index* from now on.
        """
        struck = [move for move in self._moves.values() if index in (move.source.index, move.target)]
        for move in struck:
            self._abort(move, now, failed=index)
        return [move.request for move in struck if move.computed]

    def _stream(
        self, source: Replica, request: Request, tokens: int, first_s: float, done_s: float, now: float
    ) -> None:
        """Send the KV of *tokens* that *source* computes up to *done_s*, from *first_s* on."""
        move = self._moves.get(request)
        if move is None:
            move = self._moves[request] = RequestTransfer(request, source)
            move.ready_tokens = request.cached_tokens
            self._assign(move, now)
        tokens = min(tokens, request.prompt_tokens - move.ready_tokens - move.sent_tokens)
        if not move.reserved:
            move.ready_tokens += tokens
        elif size := self._size(move, tokens):
            self._send(move, tokens, KvProduction(first_s, done_s, size / (done_s - now)))
        else:
            move.sent_tokens += tokens

    def _assign(self, move: RequestTransfer, now: float) -> None:
        request, stranded = move.request, self._callbacks.stranded
        index = self._callbacks.choose(request)
        if index < 0:
            self._unassigned[move] = None
            self._callbacks.unassigned()
            return
        self._callbacks.router().joined(index, request)
        move.target = index
        if stranded is not None and stranded.has_failed(index):
            self._abort(move, now, failed=index)
            if move.computed:
                stranded.strand_if_failed(request, index)
            return
        self._expected[index].append(move)
        self._make_room(self._replicas[index], now)

    def _make_room(self, replica: Replica, now: float) -> None:
        """Reserve blocks at *replica* for waiting moves, in order, and start their transfers."""
        expected = self._expected[replica.index]
        while expected and replica.reserve(expected[0].request, now):
            move = expected.popleft()
            move.reserved = True
            self._proceed(move, now)
        replica.after_step = self._make_room if expected else None

    def _proceed(self, move: RequestTransfer, now: float) -> None:
        """Send the KV that is ready; once all has arrived, let the request continue at its new replica."""
        if move.ready_tokens:
            tokens, move.ready_tokens = move.ready_tokens, 0
            self._send(move, tokens)
        elif move.computed and not move.in_flight:
            self._complete(move, now)

    def _send(self, move: RequestTransfer, tokens: int, production: KvProduction | None = None) -> None:
        size = self._size(move, tokens)
        move.sent_tokens += tokens
        move.in_flight[self.network.send(move, move.source.index, move.target, size, production)] = None

    def _size(self, move: RequestTransfer, tokens: int) -> float:
        """Return the bytes of the next *tokens* of a prompt; its windows and states are sent with its last tokens."""
        cache, first = self._plan.pools[move.source.pool].sequence_cache, move.sent_tokens
        return cache.part_bytes(first, first + tokens, move.request.prompt_tokens) if tokens else 0.0

    def _arrived(self, transfer: PortTransfer, now: float) -> None:
        """Account for a part of a request's KV that has reached the answering replica."""
        move = transfer.payload
        del move.in_flight[transfer]
        self._proceed(move, now)

    def _complete(self, move: RequestTransfer, now: float) -> None:
        """Continue the request at its answering replica: all of its KV is there."""
        request, source, replica = move.request, move.source, self._replicas[move.target]
        del self._moves[request]
        source.release_kv(request, now)
        self._callbacks.router().left(source.index, request)
        request.replica, request.came_s = replica.index, now
        request.kv_transfer_s = now - request.left[-1].left_s
        if self._callbacks.stranded is not None:
            self._callbacks.stranded.joined(request, replica.index)
        if replica.offer(request, now):
            replica.replan(now)

    def _abort(self, move: RequestTransfer, now: float, failed: int = -1) -> None:
        """Abort *move* and free all that is reserved for it.

        A request whose prompt is computed counts at the replica that is *failed*, and nowhere else.
        """
        request, target = move.request, move.target
        del self._moves[request]
        self.network.cancel(move.in_flight)
        self._unassigned.pop(move, None)
        if target >= 0:
            if move.reserved:
                self._release_kv(self._replicas[target], request, now, failed)
            elif move in self._expected[target]:
                self._expected[target].remove(move)
            if target != failed or not move.computed:
                self._callbacks.router().left(target, request)
        if move.computed:
            self._release_kv(move.source, request, now, failed)
            if move.source.index != failed:
                self._callbacks.router().left(move.source.index, request)

    def _release_kv(self, replica: Replica, request: Request, now: float, failed: int) -> None:
        if replica.index == failed:
            replica.transit.release_kv(request, now)
        else:
            replica.release_kv(request, now)
