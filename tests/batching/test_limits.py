"""Refused settings of a pool's batching: contradicting limits, and options of another policy."""

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from sim.batching import POLICIES, Batching, foreign, scheduler
from sim.batching.limits import Speculative
from sim.batching.policies import Dynamic
from sim.batching.registered import Order
from sim.records import Request

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


@pytest.mark.parametrize(
    ("drafted", "rates"),
    [
        ({"accepted": 1}, (0, 0, 0)),
        ({"acceptance": 0.5}, (0.5, 0.5, 0.5)),
        ({"acceptance": (0.9, 0.5, 0.1)}, (0.9, 0.5, 0.1)),
        ({"acceptance": "qwen3-8b-eagle3/gsm8k"}, (0, 0, 0)),
    ],
)
def test_each_position_has_a_rate(drafted: dict[str, Any], rates: tuple[float, ...]) -> None:
    assert Speculative(num_speculative_tokens=3, **drafted).rates == rates


def test_as_many_drafts_as_there_are_may_be_accepted() -> None:
    assert Speculative(num_speculative_tokens=3, accepted=3).accepted == 3


@pytest.mark.parametrize(
    ("iters", "ratio", "capacity", "told"),
    [
        (0, 0.0, "max_utilization", None),
        (1, 0.5, "guaranteed_no_evict", None),
        (10, 1.0, "guaranteed_no_evict", None),
        (1, 0.0, "guaranteed_no_evict", "set both"),
        (0, 0.5, "guaranteed_no_evict", "set both"),
        (1, 0.5, "max_utilization", "needs capacity_scheduler_policy"),
    ],
)
def test_a_wait_for_prompts_has_both_ends(iters: int, ratio: float, capacity: str, told: str | None) -> None:
    given = {"policy": "reserve", "batch_wait_timeout_iters": iters, "batch_wait_max_tokens_ratio": ratio}
    given["capacity_scheduler_policy"] = capacity
    if told is None:
        assert BATCHING.validate_python(given).batch_wait_timeout_iters == iters
        return
    with pytest.raises(ValidationError, match=told):
        BATCHING.validate_python(given)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"attention_dp_batching_wait_iters": 10}, "needs attention_dp_timeout_iters"),
        (
            {"attention_dp_timeout_iters": 50, "capacity_scheduler_policy": "max_utilization"},
            "needs capacity_scheduler_policy",
        ),
    ],
)
def test_waits_for_other_ranks_have_a_timeout_and_no_eviction(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        BATCHING.validate_python({"policy": "reserve", **given})


@pytest.mark.parametrize(
    ("chunked", "budget", "longest", "fits"),
    [
        (False, 99, 100, False),
        (False, 100, 100, True),
        (True, 99, 100, True),
        (False, None, 100, True),
        (False, 99, None, True),
    ],
)
def test_whole_prompts_fit_the_budget(chunked: bool, budget: int | None, longest: int | None, fits: bool) -> None:
    given = {"policy": "vllm", "enable_chunked_prefill": chunked, "max_num_seqs": 1}
    given |= {"max_num_batched_tokens": budget, "max_model_len": longest}
    if fits:
        assert BATCHING.validate_python(given).max_model_len == longest
        return
    with pytest.raises(ValidationError, match=r"max_num_batched_tokens \(99\) must not be below max_model_len \(100\)"):
        BATCHING.validate_python(given)


def test_requests_in_service_are_those_of_all_instances() -> None:
    dynamic = Dynamic(policy="dynamic", max_batch_size=8, instances=3)
    assert (dynamic.max_num_seqs, dynamic.block_size) == (24, 1)


class Keyed:
    """Order of the queue by a stated key."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def order(self, request: Request) -> Any:
        return self.key


@pytest.mark.parametrize("key", [0.5, 3, float("inf"), (1, 2), "b"])
def test_any_key_that_can_be_compared_orders_a_queue(key: Any) -> None:
    assert Order(Keyed(key))(Request(7, 0.0, 1, 1)) == key


def test_a_key_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="batching policy Keyed: order returns nan for request 7"):
        Order(Keyed(float("nan")))(Request(7, 0.0, 1, 1))
