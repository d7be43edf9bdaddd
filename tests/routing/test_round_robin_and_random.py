"""Static policies: replicas chosen beforehand are those that the running router chooses."""

import numpy as np
import pytest

from sim.records import Request
from sim.routing import Random, RoundRobin


@pytest.mark.parametrize("policy", [RoundRobin(policy="round_robin"), Random(policy="random")])
@pytest.mark.parametrize(("replicas", "count"), [(1, 3), (5, 0), (7, 9_000), (300, 4_097)])
def test_choices_of_a_static_policy_are_those_of_its_router(
    policy: RoundRobin | Random, replicas: int, count: int
) -> None:
    router, request = policy.start(["pool"] * replicas, np.random.default_rng(1)), Request(0, 0.0, 1, 1)
    chosen = [router.choose(request) for _ in range(count)]
    assert policy.choices(replicas, count, np.random.default_rng(1)).tolist() == chosen
