"""KV transfer between pools with roles: its settings in a scenario, and its plan for a fleet."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.routing import LeastOutstanding, Routing
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber

Role = Literal["prefill", "decode", "both"]
"""Role of the replicas of a pool: compute prompts, make answers, or both."""


class KvTransfer(Spec):
    """Link between pools with roles, its sharing, and the choice of the answering replica."""

    link: str | None = None
    """Link id in data/links: the servers' ports. A server's `nics` ports are shared by its GPUs; where it states none,
    each replica has a port. With PCIe or the server's own link, a replica's port is the lanes of its GPUs."""
    bytes_per_s: Positive | None = None
    """Rate of each replica's port, each way, instead of `link`."""
    latency_s: NonNegative | None = None
    """Time from the start of a transfer to its first byte. Default: the link's, or 0 with `bytes_per_s`."""
    concurrent: Count | None = None
    """Number of concurrent transfers on a port; further ones wait in order. Default: no limit; all transfers have equal
    shares."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Rate of all prefill replicas' ports over that of the network between the servers."""
    overlap: Literal["layers"] | None = None
    """layers: the answering replica is chosen when a prompt begins to be computed, and the KV of each layer is sent as
    soon as it is computed. Default: all KV is sent when the prompt is done."""
    min_prompt_tokens: WholeNumber = 0
    """Prompts with fewer tokens are computed at the answering replica, without a transfer."""
    routing: Routing = LeastOutstanding(policy="least_outstanding")
    """Routing policy for the answering replica, among pools with role decode or both; the fleet's `routing` chooses the
    replica that computes the prompt."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.link is None) == (self.bytes_per_s is None):
            raise ValueError("give either link or bytes_per_s, the speed of the KV transfer")
        return self


@dataclass(frozen=True, slots=True)
class PoolPorts:
    """Network ports of one pool."""

    bytes_per_s: float
    """Rate of a port, each way [bytes/s]."""
    replicas_per_port: int = 1


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """KV transfer of a fleet, resolved from `KvTransfer`."""

    pools: tuple[PoolPorts, ...]
    sends: tuple[bool, ...]
    """Pools that compute prompts for others (True per pool)."""
    latency_s: float
    concurrent: int | None
    oversubscription: float
    min_prompt_tokens: int
    routing: Routing
    overlaps: bool = False
    """True if KV is sent while its prompt is computed, layer by layer."""
    layers: tuple[int | None, ...] = (None,)
    """Number of layers of each pool's model; None: unknown, treated as very many."""

    def within(self, positions: Sequence[int]) -> "TransferPlan | None":
        """Return the plan of the pools at *positions* alone; None where none of them computes prompts for others."""
        if not any(self.sends[one] for one in positions):
            return None
        return replace(
            self,
            pools=tuple(self.pools[one] for one in positions),
            sends=tuple(self.sends[one] for one in positions),
            layers=tuple(self.layers[one] for one in positions),
        )

    def ports(self, pool_of_replica: Sequence[int]) -> list[int]:
        """Return the port of each replica; consecutive replicas of one pool share a port."""
        numbers = count()
        ports: list[int] = []
        seen: dict[tuple[int, int], int] = {}
        place = [0] * len(self.pools)
        for pool in pool_of_replica:
            shared = pool, place[pool] // self.pools[pool].replicas_per_port
            place[pool] += 1
            if shared not in seen:
                seen[shared] = next(numbers)
            ports.append(seen[shared])
        return ports

    def rates(self, pool_of_replica: Sequence[int]) -> list[float]:
        """Return the rate of each port [bytes/s], in the order of `ports`."""
        found = dict(
            zip(self.ports(pool_of_replica), (self.pools[p].bytes_per_s for p in pool_of_replica), strict=True)
        )
        return [found[port] for port in range(len(found))]

    def between(self, pool_of_replica: Sequence[int]) -> float:
        """Return the rate of the network between the servers [bytes/s]; inf where it is no bottleneck."""
        if self.oversubscription == 1:
            return inf
        sending = dict(zip(self.ports(pool_of_replica), pool_of_replica, strict=True))
        return (
            sum(self.pools[pool].bytes_per_s for pool in sending.values() if self.sends[pool]) / self.oversubscription
        )
