"""PCIe inside a server: which lanes the traffic of its GPUs shares, and what is left of them for each.

A ring of GPUs that reach one another directly sends once each way over every set of lanes that it crosses. Without
peer-to-peer each of its GPUs writes to host memory and reads from it, so a switch's lanes carry the traffic of all GPUs
below it. Rings of several replicas are taken to run at the same time: no lane ever carries more than its rate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from sim.catalogue.server import PcieSlots, Server

Ring = frozenset[int]
"""Slots whose GPUs exchange with one another."""


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Lanes, or the link of a CPU to the others."""

    bytes_per_s: float
    """Each way."""
    below: frozenset[int]
    """Slots that reach host memory, or the other CPUs, over it."""
    to_host: bool = True
    """Whether it lies between its slots and host memory."""

    def flows(self, ring: Ring, staged: bool) -> int:
        """Streams of *ring* that it carries each way; *staged*: through host memory."""
        here = len(ring & self.below)
        if len(ring) == 1 or not here:
            return 0
        if staged and self.to_host:
            return here
        return int(here < len(ring))


@dataclass(frozen=True, slots=True)
class PcieLanes:
    """The edges of a server whose slots are known."""

    edges: tuple[LaneGroup, ...]

    @classmethod
    def of(cls, server: Server, x16_bytes_per_s: Callable[[int], float]) -> "PcieLanes":
        """*x16_bytes_per_s* gives the rate of sixteen lanes of a generation, each way."""
        return cls(tuple(_edges(server, x16_bytes_per_s)))

    def ring_bytes_per_s(self, rings: Sequence[Ring], staged: bool) -> float:
        """What every one of *rings* gets at its narrowest edge while all of them send; inf where nothing is shared."""
        shares = [
            edge.bytes_per_s / flows
            for edge in self.edges
            if (flows := sum(edge.flows(ring, staged) for ring in rings))
        ]
        return min(shares, default=inf)

    def host_bytes_per_s(self, slots: frozenset[int]) -> float:
        """What each GPU in *slots* gets from host memory, or sends to it, while all of them do; the least of them."""
        used = [(edge, len(slots & edge.below)) for edge in self.edges if edge.to_host]
        return min((edge.bytes_per_s / here for edge, here in used if here), default=inf)


def _edges(server: Server, x16_bytes_per_s: Callable[[int], float]) -> Iterator[LaneGroup]:
    first, by_cpu = 0, dict[int, frozenset[int]]()
    for group in server.pcie:
        slots = frozenset(range(first, first + group.slots))
        first += group.slots
        by_cpu[group.cpu] = by_cpu.get(group.cpu, frozenset()) | slots
        yield from _of_group(group, slots, x16_bytes_per_s(group.generation) / 16)
    if server.socket_bytes_per_s is not None and len(by_cpu) > 1:
        for slots in by_cpu.values():
            yield LaneGroup(server.socket_bytes_per_s.value, slots, to_host=False)


def _of_group(group: PcieSlots, slots: frozenset[int], lane_bytes_per_s: float) -> Iterator[LaneGroup]:
    for slot in slots:
        yield LaneGroup(lane_bytes_per_s * group.lanes, frozenset([slot]))
    if group.uplink_lanes is not None:
        yield LaneGroup(lane_bytes_per_s * group.uplink_lanes, slots)
