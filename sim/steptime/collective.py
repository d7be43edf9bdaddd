"""Time that GPUs spend in collectives: all-reduces, sends and exchanges, inside a server and between servers.

An all-reduce among GPUs in several servers goes in three parts: each server sums its own, the servers exchange the
sums over their adapters, each server hands them to its GPUs. The first and the last together take what an all-reduce
inside a server takes. Of the message a server sends 2(s-1)/s to the others, evenly over its adapters (NCCL:
reduce-scatter inside, rings of one GPU of each server, all-gather inside).
"""

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
    """The entry for *ranks* GPUs, else for the next larger number, else for the largest."""
    return by_gpus[min((n for n in by_gpus if n >= ranks), default=max(by_gpus))]


def table_for(measured: tuple[AllReduceTable, ...], ranks: int) -> AllReduceTable | None:
    """The table that speaks for *ranks* GPUs."""
    return nearest_entry({table.gpus: table for table in measured}, ranks) if measured else None


def exchange_table(link: Link, ranks: int) -> AllReduceTable | None:
    """That of a gather and a scatter between *ranks* GPUs; None where fewer were measured than of all-reduces."""
    table = table_for(link.exchange_tables, ranks)
    return table if table is not None and table.gpus >= min(ranks, max(link.allreduce_latency_s)) else None


def ring_traffic(ranks: int) -> float:
    """Bytes over the bus per byte of message in a ring all-reduce: 2(n-1)/n (NCCL tests, PERFORMANCE.md)."""
    return 2 * (ranks - 1) / ranks


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """A measured curve: log-log between its points, flat before the first, proportional to bytes after the last."""

    log_bytes: tuple[float, ...]
    log_s: tuple[float, ...]

    @classmethod
    def of(cls, message_bytes: tuple[float, ...], time_s: tuple[float, ...]) -> "CollectiveCurve":
        """From points in rising order of bytes. Noise in them never makes a larger message faster."""
        return cls(tuple(map(log, message_bytes)), tuple(map(log, accumulate(time_s, max))))

    def time_s(self, message_bytes: float) -> float:
        """Seconds for one message of *message_bytes* per GPU."""
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
    """All-reduce between *ranks* GPUs over one link, or a gather and a scatter that move as much.

    Without a table the time is latency + 2(n-1)/n * bytes / bus bandwidth. A number of GPUs that was not measured
    takes the figures of the next larger one, or of the largest. On lanes of a part of the link's rate a message takes
    what one that is larger by as much takes at the full rate. The factor stretches both where ranks wait for one
    another; without peer-to-peer it stretches the bytes alone: a crowded host makes every byte slower, not the call.
    """

    ranks: int
    factor: float
    curve: CollectiveCurve | None
    latency_s: float
    seconds_per_byte: float
    stretch: float = 1.0
    """The link's rate over that of the narrowest lanes; at least 1."""
    call_s: float = 0.0
    """Part of the latency that no factor stretches."""

    @classmethod
    def over(cls, link: Link, ranks: int, factor: float, stretch: float = 1.0, own_bytes: float = inf) -> "AllReduce":
        """*factor* multiplies the link's figures, *stretch* the bytes; one rank costs nothing.

        Up to *own_bytes* the engine's own kernels may do it, NCCL alone does larger messages.
        """
        return cls._over(link, _with_own(link, ranks, own_bytes), ranks, factor, stretch, calls=1)

    @classmethod
    def exchange(cls, link: Link, ranks: int, factor: float, stretch: float = 1.0) -> "AllReduce":
        """All ranks gather what each has and scatter the sums, in two calls; the message is that of all together.

        Where all-reduces were measured between more of them, it takes the law of latency and bandwidth.
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
        """Seconds for one all-reduce of *message_bytes* per GPU."""
        message_bytes *= self.stretch
        if self.curve is not None:
            return self.call_s + self.factor * (self.curve.time_s(message_bytes) - self.call_s)
        return self.call_s + self.factor * (self.latency_s - self.call_s + self.seconds_per_byte * message_bytes)


def _with_own(link: Link, ranks: int, own_bytes: float) -> AllReduceTable | None:
    """The table for *ranks*: its points up to *own_bytes*, those of NCCL alone after."""
    nccl, least = table_for(link.nccl_tables, ranks), table_for(link.allreduce_tables, ranks)
    if nccl is None or least is None or nccl.gpus < ranks or own_bytes == inf:
        return least
    points = [point for point in zip(least.bytes, least.time_s, strict=True) if point[0] <= own_bytes]
    points += [point for point in zip(nccl.bytes, nccl.time_s, strict=True) if point[0] > own_bytes]
    sizes, times = zip(*points, strict=True)
    return nccl.model_copy(update={"bytes": sizes, "time_s": times})


@dataclass(frozen=True, slots=True)
class Send:
    """Point-to-point transfer from one GPU to the next."""

    latency_s: float
    bytes_per_s: float

    @classmethod
    def over(cls, link: Link, stretch: float = 1.0, host_s: float = 0.0) -> "Send":
        """Measured rate where there is one, over *stretch*; the latency is that of a small all-reduce between two, and
        the host's.
        """
        rate: Value = link.measured_bytes_per_s or link.theoretical_bytes_per_s
        return cls(nearest_entry(link.allreduce_latency_s, 2).value + host_s, rate.value / stretch)

    def time_s(self, message_bytes: float) -> float:
        """Seconds for *message_bytes*."""
        return self.latency_s + message_bytes / self.bytes_per_s


class NetworkSpec(Spec):
    """The network between the servers of a replica."""

    link: str
    """Id in data/links, of one adapter."""
    adapters: Count | None = None
    """Of each server, for all its GPUs; left out: the server's `nics`, else 1."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Rate of a server's adapters over what the network between the servers gives it."""
    gpudirect: bool | None = None
    """Adapters read the GPUs' memory; false: all goes through host memory. Left out: as the link's kind does it."""


@dataclass(frozen=True, slots=True)
class ReplicaNetwork:
    """Adapters between servers that a replica fills."""

    link: Link
    gpus_per_server: int
    adapters: int
    oversubscription: float = 1.0
    lanes_stretch: float = 1.0
    """Rate of the adapters over that of the lanes between them and the GPUs; at least 1."""

    @property
    def bytes_per_s(self) -> float:
        """What a server sends to others, each way."""
        return self.adapters * self.link.bulk_bytes_per_s.value / self.stretch

    @property
    def stretch(self) -> float:
        """How much longer everything takes than adapters alone would need."""
        return self.oversubscription * self.lanes_stretch

    def servers(self, ranks: int) -> int:
        """Servers that *ranks* GPUs fill."""
        return -(-ranks // self.gpus_per_server)

    def all_reduce(self, inside: AllReduce, ranks: int) -> "AllReduce | AcrossServers":
        """Of *ranks* GPUs; *inside* is that of one server."""
        servers = self.servers(ranks)
        if servers == 1:
            return inside
        ends = self.link.allreduce_latency_s
        longer_s = nearest_entry(ends, servers).value - nearest_entry(ends, 2).value
        part = self.stretch * ring_traffic(servers) / self.adapters
        return AcrossServers(inside, AllReduce.over(self.link, 2, 1.0), part, max(0.0, longer_s))

    def exchange(self, inside: AllReduce, ranks: int) -> "AllReduce | AcrossServers":
        """Gather and scatter of *ranks* GPUs: both together move what an all-reduce moves, each has its own latency."""
        both = self.all_reduce(inside, ranks)
        if isinstance(both, AllReduce):
            return both
        return replace(both, longer_s=2 * both.longer_s + both.pair.latency_s)

    def send_s(self, message_bytes: float, ranks: int) -> float:
        """To a server from another: *message_bytes* by each of *ranks* GPUs of one stage at once [s].

        The GPUs of a stage have their part of the server's adapters.
        """
        there = min(ranks, self.gpus_per_server)
        rate = self.bytes_per_s * there / self.gpus_per_server
        return nearest_entry(self.link.allreduce_latency_s, 2).value + there * message_bytes / rate


@dataclass(frozen=True, slots=True)
class AcrossServers:
    """All-reduce inside each server and between them."""

    inside: AllReduce
    pair: AllReduce
    """Between one adapter of a server and one of another."""
    part: float
    """What an adapter sends for each byte of the message, as if it were alone at its rate."""
    longer_s: float
    """Latency of more than two servers against that of two."""

    def time_s(self, message_bytes: float) -> float:
        """Seconds for one all-reduce of *message_bytes* per GPU."""
        return self.inside.time_s(message_bytes) + self.longer_s + self.pair.time_s(self.part * message_bytes)
