"""Blocks of preempted requests: one run per request is as good as a name for each block."""

import random

import pytest

from sim.engine.kv.blocks import PrefixCache
from sim.engine.sequence import Sequence
from sim.records import Request


@pytest.mark.slow
def test_runs_of_blocks_are_found_and_reallocated_as_named_blocks_are() -> None:
    """Requests join, grow, are preempted, leave, or give up and come again; two of them share a prefix."""
    found = 0
    for seed in range(12):
        draw, size = random.Random(seed), 2
        caches = [PrefixCache(draw.randint(8, 30), size)]
        caches.append(PrefixCache(caches[0].usable + 1, size))
        caches[1]._name_runs()  # each block has a name from now on
        requests = [Request(index, 0.0, draw.randint(1, 20), 30) for index in range(6)]
        for request in requests[: seed % 3]:
            request.block_hashes, request.hash_block_tokens = (1, 2), 4
        waiting: dict[int, list[Sequence]] = {}
        running: dict[int, list[Sequence]] = {}
        for _ in range(80):
            index, choice = draw.randrange(6), draw.random()
            if index in running:
                pair = running[index]
                held, computed = pair[0].held, pair[0].computed
                if choice < 0.5:
                    computed += draw.randint(1, 3)
                    blocks = -(-computed // size) - held
                    if blocks > caches[0].free:
                        continue
                    for cache, one in zip(caches, pair, strict=True):
                        cache.take(blocks)
                        one.held, one.computed, one.tokens = held + blocks, computed, max(one.tokens, computed + 1)
                        cache.name(one, computed)
                else:
                    resumes = choice < 0.8
                    for cache, one in zip(caches, running.pop(index), strict=True):
                        cache.release(one, held, resumes, computed)
                    if resumes:
                        waiting[index] = pair
                        requests[index].preemptions += 1
            elif index in waiting and choice < 0.1:
                for cache, one in zip(caches, waiting.pop(index), strict=True):
                    cache.forget(one)
            else:
                pair = waiting.setdefault(index, [Sequence(requests[index]) for _ in caches])
                hits = caches[0].lookup(pair[0])
                computed = draw.randint(hits * size + 1, max(pair[0].tokens, hits * size + 1))
                missing = caches[0].missing(pair[0], hits, computed)
                assert (hits, missing) == (caches[1].lookup(pair[1]), caches[1].missing(pair[1], hits, computed))
                found += hits
                if missing > caches[0].free:
                    continue
                running[index] = waiting.pop(index)
                for cache, one in zip(caches, pair, strict=True):
                    cache.claim(one, hits)
                    one.held, one.computed = -(-computed // size), computed
                    cache.take(one.held - hits)
                    cache.name(one, computed)
            assert caches[0].free == caches[1].free
            assert caches[0].peak == caches[1].peak
            kept = {pair[0] for pair in (*waiting.values(), *running.values())}
            assert caches[0]._names_of.keys() <= kept
    assert found > 50
