"""Exchanges of a replica's GPUs that stand in several servers.

An all-reduce goes in three parts: each server sums its own, the servers exchange the sums over their adapters, each
server hands them to its GPUs. The first and the last together take what an all-reduce inside a server takes. Of the
message a server sends 2(s-1)/s to the others, evenly over its adapters (NCCL: reduce-scatter inside, rings of one GPU
of each server, all-gather inside).
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field

from sim.catalogue.entries.link import Link
from sim.spec import Count, Spec
from sim.steptime.links.collective import AllReduce, nearest_entry, ring_traffic


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
class Network:
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
