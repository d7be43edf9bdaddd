"""What routers hear of the replicas behind them, and what replicas forget."""

from collections.abc import Sequence

from sim.engine.kv.blocks import NamedBlocks
from sim.fleet.arrivals.source import Clock
from sim.fleet.replica import Replica
from sim.fleet.sharing.routing import ServiceRouter
from sim.routing import Router
from sim.routing.cache.index import ReportedIndex
from sim.routing.vllm_load_balancer import Balancer


def inform(policy: Router, replicas: Sequence[Replica], env: Clock) -> None:
    """Where the policy's index is exact, the caches of *replicas* report to it; a load balancer gets its statistics."""
    if isinstance(policy, ServiceRouter):
        for one, members in policy.policies():
            inform(one, [replicas[index] for index in members], env)
        return
    if isinstance(policy, Balancer):
        engines = [replica.engine for replica in replicas]
        policy.attach(lambda: env.now, [one.waiting for one in engines], [one.kv_usage for one in engines])
    index = getattr(policy, "index", None)
    if not isinstance(index, ReportedIndex):
        return
    for place, replica in enumerate(replicas):
        for cache in replica.engine.caches():
            if isinstance(cache, NamedBlocks):
                cache.listener = index.listener(place)
                index.attach(lambda: env.now, cache.block_size)


def clear_caches(replica: Replica) -> None:
    """*replica* has been without power, or begins anew: its prefix caches and its slots for adapters are empty."""
    for cache in replica.engine.caches():
        if isinstance(cache, NamedBlocks):
            cache.clear()
    for slots in replica.engine.adapters():
        slots.clear()
