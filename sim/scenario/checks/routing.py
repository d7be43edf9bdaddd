"""Whether a router and the pools behind it know each other, and who shares them."""

from collections.abc import Iterator, Sequence

from sim.routing import ByLength
from sim.routing.cache.cache_aware import CacheAware
from sim.routing.cache.index import Exact
from sim.routing.cache.prefix_score import PrefixScore
from sim.scenario.experiment import Experiment
from sim.scenario.reading.errors import Complaint, Place, did_you_mean
from sim.scenario.resolving.bind import BoundPool
from sim.scenario.schema import Fleet


def routing_complaints(
    fleet: Fleet, bound: Sequence[BoundPool], pools: Sequence[str], place: Place
) -> Iterator[Complaint]:
    """Names that are none of the fleet's *pools*, pools that no request would go to, caches that report nothing."""
    routing = fleet.routing
    if isinstance(routing, CacheAware | PrefixScore) and isinstance(routing.index, Exact):
        for pool, name in zip(bound, pools, strict=True):
            if why := _reports_nothing(pool):
                yield Complaint(
                    (*place, "routing", "index"), f"exact needs reports of the caches, and pool {name} {why}"
                )
    if not isinstance(routing, ByLength):
        return
    for i, one in enumerate(routing.classes):
        for name in one.pools:
            if name not in pools:
                at = (*place, "routing", "classes", i, "pools", name)
                yield Complaint(at, f"there is no pool {name!r} in this fleet{did_you_mean(name, pools)}")
    reached = {name for one in routing.classes for name in one.pools}
    for name in pools:
        if name not in reached:
            yield Complaint((*place, "routing", "classes"), f"no class goes to the pool {name}: it would stand idle")


def _reports_nothing(pool: BoundPool) -> str:
    """Why the cache of *pool* has no one list of blocks to report; empty if it has."""
    batching = pool.batching
    if not getattr(batching, "enable_prefix_caching", False):
        return "has no prefix cache: say enable_prefix_caching: true"
    if getattr(batching, "kv_groups", None) is not None:
        return "has kv_groups with blocks of their own: choose index: {kind: approximate}"
    if pool.layout.enable_expert_parallel and pool.layout.data_parallel_size > 1:
        return "has ranks that step together, each with its own cache: choose index: {kind: approximate}"
    return ""


def fair_complaints(scenario: Experiment, bound: Sequence[BoundPool], place: Place) -> Iterator[Complaint]:
    """Fair shares where nobody shares, or where the engine's queue has rules of its own."""
    for j, pool in enumerate(bound):
        if getattr(pool.batching, "scheduling", "") != "fair":
            continue
        at = (*place, "pools", j, "batching", "scheduling")
        service = scenario.service_of(pool.spec)
        workload = scenario.workload if service is None else service.workload
        if not workload.names_tenants:
            yield Complaint(at, "fair shares a replica among tenants, and the workload has none: give tenants")
        if pool.layout.pipeline_parallel_size > 1 or getattr(pool.batching, "kv_groups", None) is not None:
            yield Complaint(at, "fair needs one rank and one kind of KV blocks: no pipeline stages, no kv_groups")
