"""Routing policies: which replica gets each request.

A new policy needs its file here and its name in `Routing`.
"""

from typing import Annotated, Protocol

from sim.records import Request
from sim.registry import Registry
from sim.routing.affinity import AdapterAffinity, ConsistentHashing, SessionAffinity
from sim.routing.least_loaded import LeastKv, LeastOutstanding
from sim.routing.prefix_cache import CacheAware, PrefixScore
from sim.routing.prompt_length import ByLength
from sim.routing.registered import RegisteredRouting
from sim.routing.round_robin_and_random import PowerOfTwo, PowerOfTwoKv, Random, RoundRobin
from sim.routing.vllm_load_balancer import VllmLoadBalancer
from sim.spec import Tagged


class Router(Protocol):
    """Running policy over replicas 0 .. n-1 of all pools, all of them open at first.

    Closing or opening a replica does not change the policy's state of the others: the turn, the draws, the shares.
    """

    def choose(self, request: Request) -> int:
        """Return the index of the replica for *request*; -1 while no replica may have it."""
        ...

    def joined(self, replica: int, request: Request) -> None:
        """Count *request*, which is sent to *replica*."""
        ...

    def left(self, replica: int, request: Request) -> None:
        """Discount *request*, which has left *replica*; the replica is open."""
        ...

    def opened(self, replica: int, outstanding: int) -> None:
        """Open *replica*, which still has *outstanding* requests."""
        ...

    def closed(self, replica: int) -> None:
        """Close *replica* for new requests."""
        ...


CacheRouting = SessionAffinity | ConsistentHashing | CacheAware | PrefixScore | LeastKv | PowerOfTwoKv | AdapterAffinity
BuiltinRouting = RoundRobin | Random | LeastOutstanding | PowerOfTwo | ByLength | VllmLoadBalancer | CacheRouting
Routing = Annotated[BuiltinRouting, Tagged("policy"), Registry("routing", RegisteredRouting, BuiltinRouting)]

__all__ = ["ByLength", "LeastOutstanding", "PowerOfTwo", "Random", "RoundRobin", "Router", "Routing"]
