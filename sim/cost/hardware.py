"""What the bill has to know of a fleet's pools, and which servers they fill."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from sim.catalogue.server import Server


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """One pool as the hardware that it occupies."""

    name: str
    gpu: str
    """Catalogue id, empty where the step time is given and no GPU is named."""
    gpus_per_replica: int | Fraction
    """A part of one where replicas are MIG slices."""
    replicas: int
    server: Server | None = None
    nameplate_w: float | None = None
    """Most that one server draws at the wall, all slots filled; None without a server."""
    gpu_tdp_w: float | None = None
    """None where it is not known; no energy is metered then."""
    scheduled: bool = False
    """Its replicas are switched on and off: rent then runs from a start to its stop."""
    fails: bool = False
    """Its replicas break down; rent beyond a commitment is then paid while they are there."""
    gpu_mtbf_h: float | None = None
    """Mean time between failures of one of its GPUs, where they fail."""

    @property
    def gpus(self) -> int | Fraction:
        """GPUs in use; a part of one where pools share a GPU that is cut into slices."""
        return self.gpus_per_replica * self.replicas

    @property
    def server_id(self) -> str:
        """Catalogue id, empty without a server."""
        return self.server.id if self.server else ""


def boxes_needed(gpus: int, slots: int, share: bool) -> float:
    """Servers (or rented instances) for *gpus*: whole ones, or the part in use where the rest is shared with others.

    >>> boxes_needed(6, 4, share=False), boxes_needed(6, 4, share=True)
    (2.0, 1.5)
    """
    return gpus / slots if share else float(ceil(gpus / slots))


@dataclass(frozen=True, slots=True)
class FleetHardware:
    """Servers of one kind with one kind of GPU, and the pools that run in them; without a server, the GPUs alone."""

    server: Server | None
    gpu: str
    pools: tuple[PoolFacts, ...]
    servers: float
    """How many are paid for; 0 without a server."""
    copies: int = 1
    """How many times the pools stand side by side; `servers` and `gpus` count all."""

    @property
    def gpus(self) -> int:
        """GPUs in use."""
        return self.copies * self.gpus_each

    @property
    def gpus_each(self) -> int:
        """GPUs in use in each copy."""
        return int(sum(pool.gpus for pool in self.pools))

    @property
    def slots(self) -> int:
        """GPU slots of one server; 0 without a server."""
        return int(self.server.gpu_slots.value) if self.server else 0

    @property
    def server_w(self) -> float | None:
        """Nameplate of one server at the wall [W]."""
        return self.pools[0].nameplate_w

    @property
    def peak_w(self) -> float | None:
        """Nameplate of everything that is paid for [W]; without a server, of the GPUs alone."""
        if self.server is None:
            tdp_w = self.pools[0].gpu_tdp_w
            return None if tdp_w is None else tdp_w * self.gpus
        return None if self.server_w is None else self.server_w * self.servers

    def shared(self, quantity: float) -> list[tuple[PoolFacts, float]]:
        """*quantity* spread over the pools by their GPUs."""
        return [(pool, float(quantity * pool.gpus / self.gpus_each)) for pool in self.pools]

    @property
    def pool_names(self) -> str:
        """For messages."""
        return ", ".join(pool.name for pool in self.pools)


def group_hardware(pools: Iterable[PoolFacts], share: bool, copies: int = 1) -> tuple[FleetHardware, ...]:
    """Pools that name the same server and the same GPU fill its slots together; servers bought = ceil(GPUs / slots).

    *copies* of the pools stand side by side, each in servers of its own.
    """
    groups: dict[tuple[str, str], list[PoolFacts]] = {}
    for pool in pools:
        groups.setdefault((pool.server_id, pool.gpu), []).append(pool)
    result = []
    for members in groups.values():
        server, gpus = members[0].server, int(sum(pool.gpus for pool in members))
        servers = boxes_needed(gpus, int(server.gpu_slots.value), share) if server else 0.0
        result.append(FleetHardware(server, members[0].gpu, tuple(members), copies * servers, copies))
    return tuple(result)
