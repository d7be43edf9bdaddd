"""How the KV of prompts goes from the replicas that compute them to those that answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from math import inf
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.routing import LeastOutstanding, Routing
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber

Role = Literal["prefill", "decode", "both"]
"""What the replicas of a pool do: prompts, answers, or whole requests."""


class KvTransfer(Spec):
    """The link between pools with roles, who shares it, and which replica answers."""

    link: str | None = None
    """Id in data/links: the ports of servers. A server's `nics` of them are shared by its GPUs; where it names none,
    each replica has a port. PCIe or the server's own link: each replica has the lanes of its GPUs."""
    bytes_per_s: Positive | None = None
    """In place of `link`: rate of each replica's port, each way."""
    latency_s: NonNegative | None = None
    """From the start of a transfer to its first byte. Left out: the link's, or 0 with `bytes_per_s`."""
    concurrent: Count | None = None
    """Transfers on a port at once, the others wait in order; left out: all at once, with equal parts of the port."""
    oversubscription: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 1.0
    """Rate of all prefill replicas' ports over that of the network between the servers."""
    overlap: Literal["layers"] | None = None
    """layers: who answers is chosen when a prompt begins to be computed, and the KV of each layer leaves as soon as it
    is there. Left out: all KV leaves when the prompt is done."""
    min_prompt_tokens: WholeNumber = 0
    """Shorter prompts are computed where they are answered: nothing moves."""
    routing: Routing = LeastOutstanding(policy="least_outstanding")
    """Which replica answers, of pools with role decode or both; the fleet's `routing` names who computes the prompt."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if (self.link is None) == (self.bytes_per_s is None):
            raise ValueError("say either link or bytes_per_s: how fast does the KV move?")
        return self


@dataclass(frozen=True, slots=True)
class PoolPorts:
    """The network ports of one pool."""

    bytes_per_s: float
    """Rate of a port, each way."""
    replicas_per_port: int = 1


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """What `KvTransfer` comes to in a fleet."""

    pools: tuple[PoolPorts, ...]
    sends: tuple[bool, ...]
    """Whether each pool computes prompts for others."""
    latency_s: float
    concurrent: int | None
    oversubscription: float
    min_prompt_tokens: int
    routing: Routing
    overlaps: bool = False
    """Whether KV leaves while its prompt is computed, layer by layer."""
    layers: tuple[int | None, ...] = (None,)
    """Of each pool's model; None: as if there were very many."""

    def within(self, positions: Sequence[int]) -> "TransferPlan | None":
        """The plan of the pools at *positions* alone; None where none of them computes prompts for others."""
        if not any(self.sends[one] for one in positions):
            return None
        return replace(
            self,
            pools=tuple(self.pools[one] for one in positions),
            sends=tuple(self.sends[one] for one in positions),
            layers=tuple(self.layers[one] for one in positions),
        )

    def ports(self, pool_of_replica: Sequence[int]) -> list[int]:
        """The port of each replica: neighbours of one pool share a port."""
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
        """Rate of each port [bytes/s], in the order of `ports`."""
        found = dict(
            zip(self.ports(pool_of_replica), (self.pools[p].bytes_per_s for p in pool_of_replica), strict=True)
        )
        return [found[port] for port in range(len(found))]

    def between(self, pool_of_replica: Sequence[int]) -> float:
        """Rate of the network between the servers [bytes/s]; inf where it is no bottleneck."""
        if self.oversubscription == 1:
            return inf
        sending = dict(zip(self.ports(pool_of_replica), pool_of_replica, strict=True))
        return (
            sum(self.pools[pool].bytes_per_s for pool in sending.values() if self.sends[pool]) / self.oversubscription
        )
