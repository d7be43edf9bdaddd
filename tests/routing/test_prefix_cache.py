"""Routers that look at caches: what they know of them, and what it brings."""

from collections import defaultdict
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.engine.kv.blocks import PrefixCache
from sim.engine.kv.group_cache import GroupCache
from sim.fleet.fleet import RunningFleet
from sim.records import Request
from sim.routing.prefix_cache import ApproximateIndex, ExactIndex, replicas_of
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.study.metrics.window_requests import PrefixHits, prefix_hits

BLOCK = 16
REPLICAS = 4


def fleet_of(routing: dict[str, Any], seed: int, blocks: int = 1200, **further: Any) -> RunningFleet:
    lengths = {name: {"distribution": "geometric", "mean": mean} for name, mean in (("prompt", 80), ("output", 60))}
    sessions = {"turns": {"distribution": "geometric", "mean": 5}, "think_s": {"distribution": "fixed", "value": 1}}
    step = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-4, "per_context_token_s": 0}
    batching = {
        "policy": "vllm",
        "num_gpu_blocks": blocks,
        "max_model_len": 9000,
        "enable_prefix_caching": True,
    } | further
    scenario = Scenario.model_validate(
        {
            "name": "s",
            "workload": {
                "arrivals": {"process": "poisson", "rate_rps": 10},
                "lengths": lengths,
                "sessions": sessions | {"system_prompt_tokens": 64},
            },
            "horizon_s": 25,
            "seed": seed,
            "fleets": [
                {
                    "name": "a",
                    "routing": routing,
                    "pools": [{"replicas": REPLICAS, "steptime": step, "batching": batching}],
                }
            ],
        }
    )
    return RunningFleet(resolve(scenario, cases(scenario)[0], load_catalog()))


@lru_cache
def hits(policy: str, seed: int) -> PrefixHits:
    index = {"index": {"kind": "exact", "delay_s": 0.05}} if policy in ("cache_aware", "prefix_score") else {}
    found = prefix_hits(fleet_of({"policy": policy} | index, seed).run().requests, 0.0, 25.0)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["session_affinity", "consistent_hashing", "cache_aware", "prefix_score"])
def test_prefix_routing_hits_more_than_chance_and_less_than_one_endless_cache(policy: str) -> None:
    looked, chance = [hits(policy, seed) for seed in (1, 2)], [hits("random", seed) for seed in (1, 2)]
    assert sum(one.prefix_hit_rate or 0 for one in looked) > sum(one.prefix_hit_rate or 0 for one in chance)
    assert all((one.prefix_hit_rate or 0) <= (one.prefix_hit_bound or 0) for one in [*looked, *chance])


def test_the_hit_bound_equals_one_endless_block_cache() -> None:
    def turn(index: int, prompt: int, output: int, rejected: bool = False) -> Request:
        return Request(
            index, float(index), prompt, output, block_hashes=(1, 2, 3), hash_block_tokens=BLOCK, rejected=rejected
        )

    # 20 + 12 tokens fill two blocks, but the last token's KV is never computed; who is refused fills none
    told = prefix_hits([turn(0, 20, 12), turn(1, 40, 9, rejected=True), turn(2, 40, 1)], 0.0, 9.0, BLOCK)
    assert told == PrefixHits(0.0, 16 / 60)
    # a prompt that is all there computes its last block again
    assert prefix_hits([turn(0, 32, 1), turn(1, 32, 1)], 0.0, 9.0, BLOCK) == PrefixHits(0.0, 16 / 64)
    assert prefix_hits([turn(0, 20, 12), turn(1, 40, 1)], 0.0, 9.0) == PrefixHits(0.0, 31 / 60)


@pytest.mark.slow
@pytest.mark.parametrize("windows", [[], [64, None]])
def test_the_exact_index_equals_the_cache_contents(windows: list[int | None]) -> None:
    """Of caches grouped by window, the group that keeps all tokens is compared."""
    groups: dict[str, Any] = {"kv_groups": [{"window": window} for window in windows]} if windows else {}
    fleet = fleet_of({"policy": "cache_aware", "index": {"kind": "exact"}}, 3, blocks=600 if windows else 300, **groups)
    requests = fleet.run().requests
    assert sum(request.cached_tokens for request in requests)
    index = fleet._router.index
    assert isinstance(index, ExactIndex)
    for replica in fleet._replicas:
        (cache,) = replica.engine.caches()
        assert isinstance(cache, GroupCache if windows else PrefixCache)
        # KV blocks are as long as those of the trace: a name is the last token of a block
        held = cache._named[windows.index(None)] if isinstance(cache, GroupCache) else cache._named
        named = {name // BLOCK for name in held if isinstance(name, int)}
        assert {block for block, mask in index._holders.items() if mask >> replica.index & 1} == named
        assert index.blocks[replica.index] == len(named)


PROMPTS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60)


@given(sent=PROMPTS, room=st.integers(1, 12))
@settings(max_examples=40, deadline=None)
def test_the_index_against_lists(sent: list[tuple[int, int, int]], room: int) -> None:
    index = ApproximateIndex(3, room * BLOCK)
    recent: dict[int, list[int]] = defaultdict(list)
    for number, (replica, text, blocks) in enumerate(sent):
        ids = tuple(text * 10 + place for place in range(blocks))
        request = Request(number, 0.0, blocks * BLOCK + 3, 1, block_hashes=(*ids, 99), hash_block_tokens=BLOCK)
        expected = {}
        for one, kept in recent.items():
            depth = next((i for i, block in enumerate(ids) if block not in kept), len(ids))
            if depth:
                expected[one] = depth * BLOCK
        assert {one: tokens for bits, tokens in index.matches(request) for one in replicas_of(bits)} == expected
        index.sent(request, replica)
        kept = [block for block in recent[replica] if block not in ids] + list(reversed(ids))
        recent[replica] = kept[max(0, len(kept) - room) :]
        assert index.blocks[replica] == len(recent[replica])


def test_reports_come_after_their_delay() -> None:
    index, now = ExactIndex(2, 0.5), [0.0]
    index.attach(lambda: now[0], BLOCK)
    request = Request(0, 0.0, 40, 1, block_hashes=(7, 8), hash_block_tokens=BLOCK)
    index.matches(request)
    index.listener(1)([7 * BLOCK + BLOCK - 1, ("own", 3)], True)
    assert index.matches(request) == []
    now[0] = 0.5
    assert index.matches(request) == [(0b10, BLOCK)]
    index.listener(1)([7 * BLOCK + BLOCK - 1], False)
    assert index.matches(request) == [(0b10, BLOCK)]
    now[0] = 1.0
    assert index.matches(request) == []


@pytest.mark.slow
def test_a_session_stays_at_its_replica() -> None:
    requests = fleet_of({"policy": "session_affinity"}, 4).run().requests
    homes = defaultdict(set)
    for request in requests:
        homes[request.session].add(request.replica)
    assert all(len(replicas) == 1 for replicas in homes.values())
    assert len({home for replicas in homes.values() for home in replicas}) == REPLICAS
