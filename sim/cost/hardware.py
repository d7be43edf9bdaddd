"""Hardware of a fleet as input of the bill: pools, and the servers that they fill."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from sim.catalogue.server import Server


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """Hardware that one pool occupies."""

    name: str
    gpu: str
    """Catalogue id of the GPU; empty if the step time is given and no GPU is named."""
    gpus_per_replica: int | Fraction
    """GPUs per replica; a fraction of one if replicas are MIG slices."""
    replicas: int
    server: Server | None = None
    nameplate_w: float | None = None
    """Maximum power of one fully equipped server at the wall [W]; None without a server."""
    gpu_tdp_w: float | None = None
    """Power limit of a GPU [W]; None if unknown, in which case no energy is metered."""
    scheduled: bool = False
    """True if a schedule switches replicas on and off; rent is then paid from start to stop."""
    fails: bool = False
    """True if replicas fail; rent beyond a commitment is then paid for the time they exist."""
    gpu_mtbf_h: float | None = None
    """Mean time between failures of one GPU, if GPUs fail [h]."""
    least_replicas: int = 0
    """Smallest number of replicas that an autoscaler runs, where none fails."""

    @property
    def gpus(self) -> int | Fraction:
        """GPUs in use; fractional if pools share a GPU that is divided into slices."""
        return self.gpus_per_replica * self.replicas

    @property
    def server_id(self) -> str:
        """Catalogue id of the server; empty without a server."""
        return self.server.id if self.server else ""


def servers_needed(gpus: int, slots: int, share: bool) -> float:
    """Return the servers (or rented instances) for *gpus*: whole ones, or the part in use if the rest is shared.

    >>> servers_needed(6, 4, share=False), servers_needed(6, 4, share=True)
    (2.0, 1.5)
    """
    return gpus / slots if share else float(ceil(gpus / slots))


@dataclass(frozen=True, slots=True)
class FleetHardware:
    """Servers of one kind with one kind of GPU, and the pools in them; without a server, the GPUs only."""

    server: Server | None
    gpu: str
    pools: tuple[PoolFacts, ...]
    servers: float
    """Number of servers paid for; 0 without a server."""
    copies: int = 1
    """Number of equal sets of the pools; `servers` and `gpus` count all of them."""

    @property
    def gpus(self) -> int:
        """GPUs in use in all copies."""
        return self.copies * self.gpus_per_copy

    @property
    def gpus_per_copy(self) -> int:
        """GPUs in use per copy."""
        return int(sum(pool.gpus for pool in self.pools))

    @property
    def slots(self) -> int:
        """GPU slots of one server; 0 without a server."""
        return int(self.server.gpu_slots.value) if self.server else 0

    @property
    def server_w(self) -> float | None:
        """Rated power of one server at the wall [W]; None if unknown."""
        return self.pools[0].nameplate_w

    @property
    def peak_w(self) -> float | None:
        """Rated power of all hardware paid for, of the GPUs only without a server [W]; None if unknown."""
        if self.server is None:
            tdp_w = self.pools[0].gpu_tdp_w
            return None if tdp_w is None else tdp_w * self.gpus
        return None if self.server_w is None else self.server_w * self.servers

    def per_pool(self, quantity: float) -> list[tuple[PoolFacts, float]]:
        """Return *quantity* divided among the pools in proportion to their GPUs."""
        return [(pool, float(quantity * pool.gpus / self.gpus_per_copy)) for pool in self.pools]

    @property
    def pool_names(self) -> str:
        """Names of the pools, for messages."""
        return ", ".join(pool.name for pool in self.pools)


def group_hardware(pools: Iterable[PoolFacts], share: bool, copies: int = 1) -> tuple[FleetHardware, ...]:
    """Return *pools* grouped by server and GPU; pools of a group share servers.

    The number of servers is ceil(GPUs / slots), or the exact quotient with *share*. *copies* of the pools have separate
    servers.
    """
    groups: dict[tuple[str, str], list[PoolFacts]] = {}
    for pool in pools:
        groups.setdefault((pool.server_id, pool.gpu), []).append(pool)
    result = []
    for members in groups.values():
        server, gpus = members[0].server, int(sum(pool.gpus for pool in members))
        servers = servers_needed(gpus, int(server.gpu_slots.value), share) if server else 0.0
        result.append(FleetHardware(server, members[0].gpu, tuple(members), copies * servers, copies))
    return tuple(result)
