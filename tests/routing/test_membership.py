"""A replica that closes or opens changes nothing about what a routing policy knows of the others."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.records import Request
from sim.routing import ByLength, LeastOutstanding, PowerOfTwo, Random, RoundRobin, Router
from sim.routing.affinity import ConsistentHashing, SessionAffinity
from sim.routing.least_loaded import LeastKv
from sim.routing.prefix_cache import CacheAware, PrefixScore
from sim.routing.round_robin_and_random import PowerOfTwoKv
from sim.routing.vllm_load_balancer import VllmLoadBalancer

REPLICAS = 6
POLICIES = {
    "round_robin": RoundRobin(policy="round_robin"),
    "random": Random(policy="random"),
    "power_of_two": PowerOfTwo(policy="power_of_two"),
    "least_outstanding": LeastOutstanding(policy="least_outstanding"),
    "vllm_load_balancer": VllmLoadBalancer(policy="vllm_load_balancer"),
    "least_kv": LeastKv(policy="least_kv"),
    "power_of_two_kv": PowerOfTwoKv(policy="power_of_two_kv"),
    "session_affinity": SessionAffinity(policy="session_affinity"),
    "consistent_hashing": ConsistentHashing(policy="consistent_hashing", virtual_nodes=3),
    "cache_aware": CacheAware(policy="cache_aware"),
    "prefix_score": PrefixScore(policy="prefix_score"),
    "by_length": ByLength.model_validate({"policy": "by_length", "classes": [{"pools": {"a": 1, "b": 2}}]}),
}
EVENTS = st.lists(st.tuples(st.sampled_from(["send", "send", "answer", "switch"]), st.integers(0, 99)), max_size=150)
ANY = Request(0, 0.0, 10, 10)


def start(policy: str, replicas: int = REPLICAS, seed: int = 1) -> Router:
    pools = ["a", "b"] * (replicas // 2) if policy == "by_length" else ["a"] * replicas
    return POLICIES[policy].start(pools, np.random.default_rng(seed))


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(events=EVENTS)
@settings(max_examples=30, deadline=None)
def test_only_open_replicas_are_chosen_and_the_least_loaded_where_load_counts(policy: str, events) -> None:
    router = start(policy)
    is_open, outstanding = [True] * REPLICAS, [0] * REPLICAS
    for event, number in events:
        replica = number % REPLICAS
        if event == "send":
            chosen = router.choose(ANY)
            if not any(is_open):
                assert chosen == -1
                continue
            assert is_open[chosen]
            if policy == "least_outstanding":
                assert outstanding[chosen] == min(n for n, up in zip(outstanding, is_open, strict=True) if up)
            router.joined(chosen, ANY)
            outstanding[chosen] += 1
        elif event == "answer" and outstanding[replica]:
            outstanding[replica] -= 1
            if is_open[replica]:
                router.left(replica, ANY)
        elif event == "switch" and is_open[replica]:
            is_open[replica] = False
            router.closed(replica)
        elif event == "switch":
            is_open[replica] = True
            router.opened(replica, outstanding[replica])


@pytest.mark.slow
@given(switches=st.lists(st.tuples(st.integers(1, 8), st.integers(2, REPLICAS - 1)), max_size=30))
@settings(max_examples=40)
def test_round_robin_keeps_its_turn(switches: list[tuple[int, int]]) -> None:
    # replicas 0 and 1 are always open: between two turns of one of them the other has exactly one
    router = start("round_robin")
    is_open, turns = [True] * REPLICAS, []
    for sends, replica in switches:
        turns += [router.choose(ANY) for _ in range(sends)]
        is_open[replica] = not is_open[replica]
        router.opened(replica, 0) if is_open[replica] else router.closed(replica)
    always = [turn for turn in turns if turn < 2]
    assert all(a != b for a, b in pairwise(always))
    assert always[:1] in ([], [0])


def test_round_robin_does_not_restart() -> None:
    router = start("round_robin", 4)
    assert [router.choose(ANY) for _ in range(2)] == [0, 1]
    router.closed(0)
    assert [router.choose(ANY) for _ in range(3)] == [2, 3, 1]
    router.opened(0, 0)
    assert [router.choose(ANY) for _ in range(4)] == [2, 3, 0, 1]


def test_the_turn_of_a_replica_that_opens_is_at_its_place() -> None:
    router = start("round_robin", 4)
    assert [router.choose(ANY) for _ in range(2)] == [0, 1]
    router.closed(2)
    router.opened(2, 0)
    assert [router.choose(ANY) for _ in range(4)] == [2, 3, 0, 1]


def test_of_two_open_replicas_the_less_loaded_is_chosen() -> None:
    router = start("power_of_two")
    for replica in (0, 2, 4, 5):
        router.closed(replica)
    router.joined(1, ANY)
    assert {router.choose(ANY) for _ in range(100)} == {3}
    router.closed(3)
    assert {router.choose(ANY) for _ in range(100)} == {1}
    router.closed(1)
    assert router.choose(ANY) == -1


def test_shares_are_dealt_evenly_in_time() -> None:
    # the next request goes to the pool with the lowest (sent + 1) / share; a tie to the first: b, a, b, b, a, b
    router = start("by_length", 2)
    assert [router.choose(ANY) for _ in range(6)] == [1, 0, 1, 1, 0, 1]


@given(closed=st.sets(st.integers(0, REPLICAS - 1), max_size=REPLICAS - 1), first=st.integers(0, 50))
@settings(max_examples=25)
def test_random_draws_of_other_requests_stay(closed: set[int], first: int) -> None:
    whole, parts = start("random"), start("random")
    choices = [whole.choose(ANY) for _ in range(200)]
    for place, usual in enumerate(choices):
        if place == first:
            for replica in closed:
                parts.closed(replica)
        if place == 150:
            for replica in closed:
                parts.opened(replica, 0)
        chosen = parts.choose(ANY)
        assert chosen == usual or (usual in closed and first <= place < 150)


def test_pairs_of_other_requests_stay() -> None:
    whole, parts = start("power_of_two"), start("power_of_two")
    parts.closed(2)
    changed = 0
    for _ in range(300):
        usual, chosen = whole.choose(ANY), parts.choose(ANY)
        assert chosen != 2
        changed += usual != chosen
    # without load the first of a pair is chosen: only the pairs with 2 in them change, a third of all
    assert 60 <= changed <= 140


@pytest.mark.parametrize("policy", ["random", "power_of_two"])
def test_open_replicas_stay_equally_likely(policy: str) -> None:
    router = start(policy)
    for replica in (0, 3, 5):
        router.closed(replica)
    counts = Counter(router.choose(ANY) for _ in range(6000))
    assert set(counts) == {1, 2, 4}
    # five standard deviations of a binomial with p = 1/3
    assert all(abs(count - 2000) < 5 * (6000 * 2 / 9) ** 0.5 for count in counts.values())


def test_a_pool_that_reopens_gets_its_share_and_does_not_catch_up() -> None:
    router = start("by_length", 4)  # pools a, b, a, b with shares 1 : 2
    pools = [router.choose(ANY) % 2 for _ in range(30)]
    assert pools.count(1) == 20
    for replica in (1, 3):
        router.closed(replica)
    assert {router.choose(ANY) % 2 for _ in range(300)} == {0}
    router.opened(3, 0)
    again = [router.choose(ANY) for _ in range(30)]
    assert set(again) <= {0, 2, 3}
    assert abs(again.count(3) - 20) <= 1


def test_a_share_is_kept_while_another_replica_of_the_pool_switches() -> None:
    usual, switched = start("by_length", 4), start("by_length", 4)
    for place in range(90):
        if place % 10 == 4:
            switched.closed(3)
        if place % 10 == 8:
            switched.opened(3, 0)
        assert usual.choose(ANY) % 2 == switched.choose(ANY) % 2
