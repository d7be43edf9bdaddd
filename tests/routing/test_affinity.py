"""Sessions and adapters that keep their replica: bounded loads, replicas that close, and the overflow."""

from math import ceil

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.records import Request
from sim.routing.affinity import AdapterAffinity, ConsistentHashing

REPLICAS = 4


@given(keys=st.lists(st.integers(0, 5), min_size=1, max_size=80), factor=st.floats(1.01, 3))
@settings(max_examples=40, deadline=None)
def test_bounded_loads(keys: list[int], factor: float) -> None:
    spec = ConsistentHashing(policy="consistent_hashing", load_factor=factor, virtual_nodes=5)
    ring = spec.start(["a"] * REPLICAS, np.random.default_rng(0))
    for number, key in enumerate(keys):
        request = Request(number, 0.0, 1, 1, session=str(key))
        chosen = ring.choose(request)
        ring.joined(chosen, request)
        assert ring.requests[chosen] <= ceil(factor * (number + 1) / REPLICAS)


def test_a_ring_keeps_sessions_when_another_replica_closes() -> None:
    ring = ConsistentHashing(policy="consistent_hashing").start(["a"] * REPLICAS, np.random.default_rng(0))
    homes = {str(key): ring.choose(Request(0, 0.0, 1, 1, session=str(key))) for key in range(40)}
    ring.closed(2)
    moved = {key for key, home in homes.items() if ring.choose(Request(0, 0.0, 1, 1, session=key)) != home}
    assert moved == {key for key, home in homes.items() if home == 2}


def test_adapter_affinity_holds_until_the_replica_is_overloaded() -> None:
    router = AdapterAffinity(policy="adapter_affinity", load_factor=1.5).start(["p", "p"], np.random.default_rng(0))
    chosen = []
    for index, name in enumerate("abaaab"):
        request = Request(index, 0.0, 1, 1, adapter=name)
        chosen.append(router.choose(request))
        router.joined(chosen[-1], request)
    # fourth: ceil(1.5 * 4 / 2) = 3 allow a third one at replica 0; the fifth finds 3 there, 4 are allowed
    assert chosen == [0, 1, 0, 0, 0, 1]
    assert router.choose(Request(9, 0.0, 1, 1)) == 1


def test_adapter_affinity_without_an_adapter_or_a_replica() -> None:
    router = AdapterAffinity(policy="adapter_affinity").start(["p"] * 3, np.random.default_rng(0))
    tuned, plain = Request(0, 0.0, 1, 1, adapter="a"), Request(1, 0.0, 1, 1)
    router.joined(0, tuned)
    router.joined(1, plain)
    # ceil(1.25 * 3 / 3) = 2 allow a second request at the replica with the adapter
    assert (router.choose(tuned), router.choose(plain)) == (0, 2)
    router.joined(0, plain)
    assert router.choose(tuned) == 2
    for replica in range(3):
        router.closed(replica)
    assert (router.choose(tuned), router.choose(plain)) == (-1, -1)
    router.opened(0, 0)
    assert router.choose(tuned) == 0
