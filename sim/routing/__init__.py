"""Which replica gets the next request. A new policy: its file here and its name in `Routing`."""

from typing import Annotated, Protocol

from pydantic import Field

from sim.records import Request
from sim.registry import Registry
from sim.routing.affinity import AdapterAffinity, ConsistentHashing, SessionAffinity
from sim.routing.least_loaded import LeastKv, LeastOutstanding
from sim.routing.prefix_cache import CacheAware, PrefixScore
from sim.routing.prompt_length import ByLength
from sim.routing.registered import RegisteredRouting
from sim.routing.round_robin_and_random import PowerOfTwo, PowerOfTwoKv, Random, RoundRobin
from sim.routing.vllm_load_balancer import VllmLoadBalancer


class Router(Protocol):
    """A running policy over replicas 0 .. n-1 of all pools, all of them open at first.

    A replica that closes or opens leaves untouched what the policy knows of the others: whose turn it is, what has been
    drawn, how requests were shared out.
    """

    def choose(self, request: Request) -> int:
        """Index of the replica for *request*; -1 while none may have it."""
        ...

    def joined(self, replica: int, request: Request) -> None:
        """One more request at *replica*."""
        ...

    def left(self, replica: int, request: Request) -> None:
        """One request fewer at *replica*, which is open."""
        ...

    def opened(self, replica: int, outstanding: int) -> None:
        """*replica*, closed until now, takes new requests; it still has *outstanding* old ones."""
        ...

    def closed(self, replica: int) -> None:
        """*replica*, open until now, takes no new requests."""
        ...


OfCaches = SessionAffinity | ConsistentHashing | CacheAware | PrefixScore | LeastKv | PowerOfTwoKv | AdapterAffinity
BuiltinRouting = RoundRobin | Random | LeastOutstanding | PowerOfTwo | ByLength | VllmLoadBalancer | OfCaches
Routing = Annotated[
    BuiltinRouting, Field(discriminator="policy"), Registry("routing", RegisteredRouting, BuiltinRouting)
]

__all__ = ["ByLength", "LeastOutstanding", "PowerOfTwo", "Random", "RoundRobin", "Router", "Routing"]
