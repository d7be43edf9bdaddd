"""Caches of replicas: connection to routers that read them, initial contents, and loss of contents."""

from collections.abc import Sequence

from sim.engine.kv.blocks import NamedBlocks
from sim.engine.sequence import Sequence as EngineSequence
from sim.fleet.clock import FleetClock
from sim.fleet.replica import Replica
from sim.fleet.routing import ServiceRouter
from sim.records import Request
from sim.routing import Router
from sim.routing.prefix_cache import ExactIndex
from sim.routing.vllm_load_balancer import Balancer
from sim.workload import HASH_BLOCK_TOKENS, Streams, Workload


def connect_caches(policy: Router, replicas: Sequence[Replica], env: FleetClock) -> None:
    """Connect the caches and statistics of *replicas* to the routing policies that read them."""
    if isinstance(policy, ServiceRouter):
        for one, members in policy.policies():
            connect_caches(one, [replicas[index] for index in members], env)
        return
    if isinstance(policy, Balancer):
        engines = [replica.engine for replica in replicas]
        policy.attach(lambda: env.now, [one.waiting for one in engines], [one.kv_usage for one in engines])
    index = getattr(policy, "index", None)
    if not isinstance(index, ExactIndex):
        return
    for place, replica in enumerate(replicas):
        for cache in replica.engine.caches():
            if isinstance(cache, NamedBlocks):
                cache.listener = index.listener(place)
                index.attach(lambda: env.now, cache.block_size)


def fill_caches(replicas: Sequence[Replica], workload: Workload, streams: Streams) -> None:
    """Fill the prefix caches of *replicas* with the prompts sent before the start, the oldest one first."""
    if not workload.sent_before:
        return
    prompts, outputs = workload.lengths_table(streams, 0, workload.sent_before)
    hashes = workload.block_hashes(streams, 0, prompts) or ()
    for tokens, answer, ids in zip(prompts.tolist(), outputs.tolist(), hashes, strict=True):
        request = Request(0, 0.0, tokens, answer)
        request.block_hashes, request.hash_block_tokens = ids, HASH_BLOCK_TOKENS
        for replica in replicas:
            for cache in replica.engine.caches():
                if isinstance(cache, NamedBlocks):
                    cache.preload(EngineSequence(request))


def clear_caches(replica: Replica) -> None:
    """Empty the prefix caches and adapter slots of *replica*, which starts without the contents of its memory."""
    for cache in replica.engine.caches():
        if isinstance(cache, NamedBlocks):
            cache.clear()
    for slots in replica.engine.adapters():
        slots.clear()
