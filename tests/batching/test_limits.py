"""What a pool may say of its batches: limits that contradict each other, and options of another policy."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.batching import POLICIES, Batching, foreign, scheduler
from sim.batching.limits import Speculative

BATCHING: TypeAdapter[Any] = TypeAdapter(Batching)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"max_num_seqs": 16, "max_num_batched_tokens": 8}, r"max_num_batched_tokens \(8\) must not be below"),
        ({"num_gpu_blocks": 1}, "num_gpu_blocks must be at least 2"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization"),
        ({"policy": "vlm"}, "vlm"),
    ],
)
def test_impossible_limits_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        BATCHING.validate_python(given)


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"dynamic"}))
def test_a_named_policy_overrides_that_of_the_engine(policy: str) -> None:
    named = POLICIES[policy](policy=policy)
    assert scheduler(named, "vllm") is named
    assert foreign(named, "vllm") == []


def test_limits_without_a_policy_apply_to_that_of_the_engine() -> None:
    given = BATCHING.validate_python({"max_num_seqs": 3, "async_scheduling": True})
    assert scheduler(given, "vllm") == POLICIES["vllm"](policy="vllm", max_num_seqs=3, async_scheduling=True)
    assert foreign(given, "vllm") == []
    assert foreign(given, "static") == ["async_scheduling"]


def test_a_draft_must_be_possible() -> None:
    for wrong in ({}, {"accepted": 3}, {"accepted": 1, "acceptance": 0.5}, {"acceptance": (0.5, 0.4, 0.3)}):
        with pytest.raises(ValueError, match=r"accepted|acceptance"):
            Speculative(num_speculative_tokens=2, **wrong)
