"""Ports and network between pools with roles, counted by hand."""

from math import inf
from typing import Any

import pytest
from pydantic import ValidationError

from sim.routing import LeastOutstanding
from sim.routing.kv_transfer import KvTransfer, PoolPorts, TransferPlan

# replicas 0, 1 and 3 compute prompts, two to a port; 2 and 4 answer
PLACES = [0, 0, 1, 0, 1]


def plan(oversubscription: float = 1.0) -> TransferPlan:
    return TransferPlan(
        pools=(PoolPorts(8.0, 2), PoolPorts(4.0)),
        sends=(True, False),
        latency_s=0.1,
        concurrent=None,
        oversubscription=oversubscription,
        min_prompt_tokens=0,
        routing=LeastOutstanding(policy="least_outstanding"),
        layers=(32, 16),
    )


def test_consecutive_replicas_of_a_pool_share_a_port() -> None:
    assert plan().ports(PLACES) == [0, 0, 1, 2, 3]
    assert plan().ports([0, 1, 0, 0]) == [0, 1, 0, 2]
    assert plan().rates(PLACES) == [8, 4, 8, 4]


def test_the_network_carries_a_part_of_what_the_sending_ports_do() -> None:
    assert plan().between(PLACES) == inf
    assert plan(4.0).between(PLACES) == (8 + 8) / 4
    assert plan(2.0).between([1, 1]) == 0


def test_the_plan_of_some_pools() -> None:
    assert plan().within([1]) is None
    alone = plan().within([0])
    assert alone is not None
    assert (alone.pools, alone.sends, alone.layers) == ((PoolPorts(8.0, 2),), (True,), (32,))
    turned = plan().within([1, 0])
    assert turned is not None
    assert (turned.pools, turned.sends, turned.layers) == (plan().pools[::-1], (False, True), (16, 32))


@pytest.mark.parametrize("given", [{}, {"link": "x", "bytes_per_s": 1.0}])
def test_a_transfer_has_one_rate(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="give either link or bytes_per_s"):
        KvTransfer(**given)


@pytest.mark.parametrize("given", [{"link": "x"}, {"bytes_per_s": 1.0}])
def test_a_rate_is_a_link_or_a_number(given: dict[str, Any]) -> None:
    assert KvTransfer(**given).min_prompt_tokens == 0
