"""Transfers of KV between replicas over network ports that they share.

Ports send and receive at the same time, each way at their rate. With several transfers on a port each has an equal part
of it, from its turn on, the latency before its first byte included, and goes at the least of its parts: at the sender,
at the receiver, and in the network between. So no port ever carries more than its rate, and a part that a transfer
cannot use because of its other end is not given to others. KV that is still being computed leaves no faster than that.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from sim.fleet.arrivals.source import Clock
from sim.routing.transfer import TransferPlan


@dataclass(frozen=True, slots=True)
class Making:
    """KV that is computed while it is sent, at an even pace."""

    first_s: float
    """When there is something to send."""
    done_s: float
    """When all of it is there."""
    bytes_per_s: float


@dataclass(slots=True, eq=False)
class Transfer:
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
    making: Making | None = None
    """What holds it back; None: all of it is there."""


@dataclass(slots=True)
class Port:
    """One way of a port, or the network between all of them."""

    bytes_per_s: float
    flowing: dict[Transfer, None] = field(default_factory=dict)


class Network:
    """All ports of a fleet, on its clock."""

    def __init__(
        self,
        clock: Clock,
        plan: TransferPlan,
        pool_of_replica: Sequence[int],
        arrived: Callable[["Transfer", float], None],
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
        self._waiting: dict[Transfer, None] = {}
        self._due: list[tuple[float, int, int, Transfer]] = []
        self._pushed = 0
        self._call = -1
        self._call_s = inf
        self._window_s = window_s
        self._sent_bytes = [0.0] * len(rates)

    def send(self, what: Any, source: int, target: int, size_bytes: float, making: Making | None = None) -> Transfer:
        """Sends *size_bytes* from replica *source* to replica *target*, now or when both ports have a turn for it."""
        transfer = Transfer(what, self._port_of[source], self._port_of[target], size_bytes, making=making)
        if not self._begin(transfer, self._clock.now):
            self._waiting[transfer] = None
        self._arm()
        return transfer

    def cancel(self, transfers: Iterable[Transfer]) -> None:
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

    def _sent_inside(self, transfer: Transfer, now: float) -> float:
        """What *transfer* has sent at its present rate, inside the window."""
        begins_s, ends_s = self._window_s
        return transfer.rate * max(0.0, min(now, ends_s) - max(transfer.since_s, begins_s))

    def _begin(self, transfer: Transfer, now: float) -> bool:
        sender, receiver = self.sending[transfer.source], self.receiving[transfer.target]
        if len(sender.flowing) >= self._most or len(receiver.flowing) >= self._most:
            return False
        begins_s = now if transfer.making is None else max(now, transfer.making.first_s)
        transfer.since_s = begins_s + self._plan.latency_s
        for port in self._ports(transfer):
            port.flowing[transfer] = None
        self._share(transfer, now)
        return True

    def _push(self, transfer: Transfer, at_s: float) -> None:
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
        done: list[Transfer] = []
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

    def _stop(self, transfer: Transfer, now: float) -> None:
        """The last byte of *transfer* is there, or it is given up."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        for port in self._ports(transfer):
            del port.flowing[transfer]
        self._share(transfer, now)

    def _ports(self, transfer: Transfer) -> tuple[Port, Port, Port]:
        return self.sending[transfer.source], self.receiving[transfer.target], self._between

    def _share(self, changed: Transfer, now: float) -> None:
        """Gives everyone who shares a port with *changed* its part from *now* on."""
        sender, receiver, between = self._ports(changed)
        met = between.flowing if between.bytes_per_s < inf else {**sender.flowing, **receiver.flowing}
        for transfer in met:
            rate = self._part(transfer)
            if rate != transfer.rate:
                self._go_on(transfer, rate, now)

    def _part(self, transfer: Transfer) -> float:
        rate = min(port.bytes_per_s / len(port.flowing) for port in self._ports(transfer))
        return rate if transfer.making is None else min(rate, transfer.making.bytes_per_s)

    def _go_on(self, transfer: Transfer, rate: float, now: float) -> None:
        """*transfer* goes on at *rate*: until its last byte is there, or until all that it sends is computed."""
        self._sent_bytes[transfer.source] += self._sent_inside(transfer, now)
        transfer.left_bytes -= transfer.rate * max(0.0, now - transfer.since_s)
        transfer.rate, transfer.since_s = rate, max(now, transfer.since_s)
        due_s = transfer.since_s + max(0.0, transfer.left_bytes) / rate
        self._push(transfer, due_s if transfer.making is None else transfer.making.done_s)
