"""Time of collectives between GPUs: all-reduces, sends and exchanges, inside a server and between servers."""

from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, inf, log
from typing import Annotated, TypeVar

from pydantic import Field

from sim.catalogue.link import AllReduceTable, Link
from sim.catalogue.value import Value
from sim.spec import Count, Spec

Entry = TypeVar("Entry")


def nearest_entry(by_gpus: dict[int, Entry], ranks: int) -> Entry:
    """Return the entry for *ranks* GPUs, else for the next larger number, else for the largest."""
    return by_gpus[min((n for n in by_gpus if n >= ranks), default=max(by_gpus))]


def table_for(measured: tuple[AllReduceTable, ...], ranks: int) -> AllReduceTable | None:
    """Return the table that applies to *ranks* GPUs; None without tables."""
    return nearest_entry({table.gpus: table for table in measured}, ranks) if measured else None


def exchange_table(link: Link, ranks: int) -> AllReduceTable | None:
    """Return the table of a gather and a scatter between *ranks* GPUs; None if not measured for enough GPUs."""
    table = table_for(link.exchange_tables, ranks)
    return table if table is not None and table.gpus >= min(ranks, max(link.allreduce_latency_s)) else None


def ring_traffic(ranks: int) -> float:
    """Return the bytes over the bus per byte of message in a ring all-reduce.

    Notes
    -----
    2 (n-1) / n for n ranks.

    References
    ----------
    NCCL tests, PERFORMANCE.md.

    """
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """Measured times: log-log between points, constant before the first, proportional to bytes after the last."""

    log_bytes: tuple[float, ...]
    log_s: tuple[float, ...]

    @classmethod
    def of(cls, message_bytes: tuple[float, ...], time_s: tuple[float, ...]) -> "CollectiveCurve":
        """Return the curve through points in ascending order of bytes, smoothed so that times never decrease."""
        return cls(tuple(map(log, message_bytes)), tuple(map(log, accumulate(time_s, max))))

    def time_s(self, message_bytes: float) -> float:
        """Return the time of one message of *message_bytes* per GPU [s]."""
        x, xs, ys = log(message_bytes), self.log_bytes, self.log_s
        right = bisect_right(xs, x)
        if right == 0:
            return exp(ys[0])
        if right == len(xs):
            return exp(ys[-1] + x - xs[-1])
        left = right - 1
        return exp(ys[left] + (x - xs[left]) / (xs[right] - xs[left]) * (ys[right] - ys[left]))


@dataclass(frozen=True, slots=True)
class AllReduce:
    """All-reduce between *ranks* GPUs over one link, or a gather and a scatter of the same traffic.

    Notes
    -----
        t = call + factor * (curve(stretch * bytes) - call)                                          with a table
        t = call + factor * (latency - call + 2 (n-1)/n * stretch * bytes / bus bandwidth)           without

    A number of GPUs without measurements uses the figures of the next larger number, or of the largest. On PCIe lanes
    with a part of the link's rate, a message takes the time of a message `stretch` times as large at the full rate. The
    factor covers ranks that wait for each other. Without peer-to-peer, `call` is the latency, to which the factor does
    not apply: a busy host slows every byte, but not the call.

    """

    ranks: int
    factor: float
    curve: CollectiveCurve | None
    latency_s: float
    seconds_per_byte: float
    stretch: float = 1.0
    """Link's rate over that of the narrowest lanes; at least 1."""
    call_s: float = 0.0
    """Part of the latency to which the factor does not apply [s]."""

    @classmethod
    def over(cls, link: Link, ranks: int, factor: float, stretch: float = 1.0, own_bytes: float = inf) -> "AllReduce":
        """Return the all-reduce between *ranks* GPUs over *link*.

        Parameters
        ----------
        link
            Link with measured tables, or latency and bus bandwidth.
        ranks
            Number of GPUs; one rank costs nothing.
        factor
            Factor on the link's times.
        stretch
            Factor on the bytes.
        own_bytes
            Maximum message size for the engine's own kernels [bytes]; NCCL alone runs larger messages.

        """
        return cls._over(link, _with_own_kernels(link, ranks, own_bytes), ranks, factor, stretch, calls=1)

    @classmethod
    def exchange(cls, link: Link, ranks: int, factor: float, stretch: float = 1.0) -> "AllReduce":
        """Return the gather of every rank's data followed by a scatter of the sums, in two calls.

        The message is that of all ranks together. If the tables cover fewer GPUs than were measured for all-reduces,
        the time follows from latency and bandwidth.
        """
        return cls._over(link, exchange_table(link, ranks), ranks, factor, stretch, calls=2)

    @classmethod
    def _over(
        cls, link: Link, table: AllReduceTable | None, ranks: int, factor: float, stretch: float, calls: int
    ) -> "AllReduce":
        if ranks == 1:
            return cls(1, 0.0, None, 0.0, 0.0)
        bus_bytes_per_s = nearest_entry(link.allreduce_bus_bytes_per_s, ranks).value
        latency_s = calls * nearest_entry(link.allreduce_latency_s, ranks).value
        return cls(
            ranks,
            factor,
            CollectiveCurve.of(table.bytes, table.time_s) if table else None,
            latency_s,
            ring_traffic(ranks) / bus_bytes_per_s,
            stretch,
            0.0 if link.peer_to_peer else latency_s,
        )

    def time_s(self, message_bytes: float) -> float:
        """Return the time of one all-reduce of *message_bytes* per GPU [s]."""
        message_bytes *= self.stretch
        if self.curve is not None:
            return self.call_s + self.factor * (self.curve.time_s(message_bytes) - self.call_s)
        return self.call_s + self.factor * (self.latency_s - self.call_s + self.seconds_per_byte * message_bytes)


def _with_own_kernels(link: Link, ranks: int, own_bytes: float) -> AllReduceTable | None:
    """Return the table for *ranks* GPUs: up to *own_bytes* the faster of both libraries, above it NCCL alone."""
    nccl, least = table_for(link.nccl_tables, ranks), table_for(link.allreduce_tables, ranks)
    if nccl is None or least is None or nccl.gpus < ranks or own_bytes == inf:
        return least
    points = [point for point in zip(least.bytes, least.time_s, strict=True) if point[0] <= own_bytes]
    points += [point for point in zip(nccl.bytes, nccl.time_s, strict=True) if point[0] > own_bytes]
    sizes, times = zip(*points, strict=True)
    return nccl.model_copy(update={"bytes": sizes, "time_s": times})


@dataclass(frozen=True, slots=True)
class Send:
    """Point-to-point transfer from one GPU to the next.

    Notes
    -----
    t = latency + bytes / rate [s].

    """

    latency_s: float
    bytes_per_s: float

    @classmethod
    def over(cls, link: Link, stretch: float = 1.0, host_s: float = 0.0) -> "Send":
        """Return the transfer over *link*.

        The rate is the measured one if known, divided by *stretch*. The latency is that of a small all-reduce between
        two GPUs plus *host_s*.
        """
        rate: Value = link.measured_bytes_per_s or link.theoretical_bytes_per_s
        return cls(nearest_entry(link.allreduce_latency_s, 2).value + host_s, rate.value / stretch)

    def time_s(self, message_bytes: float) -> float:
        """Return the time of a transfer of *message_bytes* [s]."""
        return self.latency_s + message_bytes / self.bytes_per_s


class NetworkSpec(Spec):
    """Network between the servers of a replica."""

    link: str
    """Id of the link of one network adapter, in data/links."""
    adapters: Count | None = None
    """Number of adapters per server, for all its GPUs; default: the server's `nics`, else 1."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Rate of a server's adapters divided by the rate that the network between the servers provides."""
    gpudirect: bool | None = None
    """True if adapters read GPU memory directly (GPUDirect RDMA); if false, all traffic passes through host memory.
    Default: the value of the link type."""


@dataclass(frozen=True, slots=True)
class ReplicaNetwork:
    """Network between the servers of one replica."""

    link: Link
    gpus_per_server: int
    adapters: int
    oversubscription: float = 1.0
    lanes_stretch: float = 1.0
    """Rate of the adapters over that of the PCIe lanes between them and the GPUs; at least 1."""

    @property
    def bytes_per_s(self) -> float:
        """Rate at which a server sends to others, per direction [B/s]."""
        return self.adapters * self.link.bulk_bytes_per_s.value / self.stretch

    @property
    def stretch(self) -> float:
        """Slowdown relative to the adapters' rate; at least 1."""
        return self.oversubscription * self.lanes_stretch

    def servers(self, ranks: int) -> int:
        """Return the number of servers filled by *ranks* GPUs."""
        return -(-ranks // self.gpus_per_server)

    def all_reduce(self, inside: AllReduce, ranks: int) -> "AllReduce | AcrossServers":
        """Return the all-reduce of *ranks* GPUs; *inside* is that within one server."""
        servers = self.servers(ranks)
        if servers == 1:
            return inside
        ends = self.link.allreduce_latency_s
        longer_s = nearest_entry(ends, servers).value - nearest_entry(ends, 2).value
        part = self.stretch * ring_traffic(servers) / self.adapters
        return AcrossServers(inside, AllReduce.over(self.link, 2, 1.0), part, max(0.0, longer_s))

    def exchange(self, inside: AllReduce, ranks: int) -> "AllReduce | AcrossServers":
        """Return the gather and scatter of *ranks* GPUs: the bytes of an all-reduce with twice the latency."""
        both = self.all_reduce(inside, ranks)
        if isinstance(both, AllReduce):
            return both
        return replace(both, longer_s=2 * both.longer_s + both.pair.latency_s)

    def send_s(self, message_bytes: float, ranks: int) -> float:
        """Return the time to send *message_bytes* from each of *ranks* GPUs of one stage to another server [s].

        The GPUs of a stage have their part of the server's adapters.
        """
        there = min(ranks, self.gpus_per_server)
        rate = self.bytes_per_s * there / self.gpus_per_server
        return nearest_entry(self.link.allreduce_latency_s, 2).value + there * message_bytes / rate


@dataclass(frozen=True, slots=True)
class AcrossServers:
    """All-reduce inside each server and between the servers.

    Notes
    -----
    Each server sums its own values, the servers exchange the sums over their adapters, and each server distributes them
    to its GPUs. The first and the last part together take the time of an all-reduce inside a server. For a message of m
    bytes, each of s servers sends 2 (s-1)/s * m, spread evenly over its adapters (NCCL: reduce-scatter inside, rings of
    one GPU per server, all-gather inside)::

        t = t_inside(m) + t_longer + t_pair(stretch * 2 (s-1)/s * m / adapters)

    """

    inside: AllReduce
    pair: AllReduce
    """All-reduce between one adapter of a server and one of another."""
    part: float
    """Bytes sent by an adapter per byte of the message, including the network's slowdown."""
    longer_s: float
    """Additional latency of the given number of servers over that of two [s]."""

    def time_s(self, message_bytes: float) -> float:
        """Return the time of one all-reduce of *message_bytes* per GPU [s]."""
        return self.inside.time_s(message_bytes) + self.longer_s + self.pair.time_s(self.part * message_bytes)
