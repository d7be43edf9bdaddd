"""PCIe lanes inside a server: their sharing between GPUs, and the rate left for each GPU.

A ring of GPUs with peer-to-peer access sends once per direction over every set of lanes that it crosses. Without
peer-to-peer each of its GPUs writes to host memory and reads from it, so a switch's lanes carry the traffic of all GPUs
below it. Rings of several replicas are assumed to run at the same time: no lane ever exceeds its rate.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from sim.catalogue.server import PcieSlots, Server

Ring = frozenset[int]
"""Slots whose GPUs exchange data in a ring."""


@dataclass(frozen=True, slots=True)
class LaneGroup:
    """Group of PCIe lanes, or the link of a CPU to the other CPUs."""

    bytes_per_s: float
    """Rate per direction [B/s]."""
    below: frozenset[int]
    """Slots that reach host memory, or the other CPUs, over these lanes."""
    to_host: bool = True
    """True if the lanes lie between the slots and host memory."""

    def flows(self, ring: Ring, staged: bool) -> int:
        """Return the number of streams of *ring* per direction over these lanes; *staged*: through host memory."""
        here = len(ring & self.below)
        if len(ring) == 1 or not here:
            return 0
        if staged and self.to_host:
            return here
        return int(here < len(ring))


@dataclass(frozen=True, slots=True)
class PcieLanes:
    """PCIe topology of a server with known slots."""

    edges: tuple[LaneGroup, ...]

    @classmethod
    def of(cls, server: Server, x16_bytes_per_s: Callable[[int], float]) -> "PcieLanes":
        """Return the lanes of *server*; *x16_bytes_per_s* maps a generation to the rate of 16 lanes per direction."""
        return cls(tuple(_edges(server, x16_bytes_per_s)))

    def ring_bytes_per_s(self, rings: Sequence[Ring], staged: bool) -> float:
        """Return the rate of each of *rings* at its narrowest lanes while all send [B/s]; inf if nothing is shared."""
        shares = [
            edge.bytes_per_s / flows
            for edge in self.edges
            if (flows := sum(edge.flows(ring, staged) for ring in rings))
        ]
        return min(shares, default=inf)

    def host_bytes_per_s(self, slots: frozenset[int]) -> float:
        """Return the minimum rate between host memory and each GPU in *slots* while all of them transfer [B/s]."""
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
