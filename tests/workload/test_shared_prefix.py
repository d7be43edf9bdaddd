"""Prompts that begin alike, and what a prefix cache makes of them."""

from functools import partial
from pathlib import Path

import pytest
from pydantic import ValidationError
from small_scenario import ran

from sim.case.result import CaseResult
from sim.rng import stream
from sim.workload import HASH_BLOCK_TOKENS, Workload

STREAMS = partial(stream, 7, 0)
SCENARIO = """\
name: alike
workload:
  arrivals: {process: %s}
  lengths:
    prompt: {distribution: fixed, value: 1000}
    output: {distribution: fixed, value: 10}
  %s
horizon_s: 1000
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-4, per_context_token_s: 0}
        batching: {policy: vllm, num_gpu_blocks: 20000, enable_prefix_caching: %s%s}
"""


def alike(tokens: int, prefixes: int) -> Workload:
    return Workload.model_validate(
        {
            "arrivals": {"process": "burst", "num_requests": 4000},
            "lengths": {
                "prompt": {"distribution": "uniform", "min": 10, "max": 400},
                "output": {"distribution": "fixed", "value": 1},
            },
            "shared_prefix": {"tokens": tokens, "prefixes": prefixes},
        }
    )


def test_a_prompt_begins_with_whole_blocks_of_one_text() -> None:
    table = alike(tokens=200, prefixes=3).open_table(STREAMS, None)
    assert table.block_hashes is not None
    for hashes, tokens in zip(table.block_hashes, table.prompt_tokens.tolist(), strict=True):
        assert len(hashes) == min(200, tokens) // HASH_BLOCK_TOKENS
    texts = {hashes[:1] for hashes in table.block_hashes if hashes}
    assert len(texts) == 3
    whole = {hashes for hashes in table.block_hashes if len(hashes) == 200 // HASH_BLOCK_TOKENS}
    assert len(whole) == 3
    assert len({one for hashes in whole for one in hashes}) == 3 * (200 // HASH_BLOCK_TOKENS)


def test_texts_are_drawn_evenly_and_request_by_request() -> None:
    workload = alike(tokens=16, prefixes=2)
    table = workload.open_table(STREAMS, None)
    assert table.block_hashes is not None
    first = sum(hashes == (0,) for hashes in table.block_hashes)
    known = sum(bool(hashes) for hashes in table.block_hashes)
    assert abs(first - known / 2) < 4 * (known / 4) ** 0.5
    assert workload.block_hashes(STREAMS, 1000, table.prompt_tokens[1000:1100]) == table.block_hashes[1000:1100]


def served(tmp_path: Path, process: str, prefix: str, caching: bool, more: str = "") -> CaseResult:
    return ran(tmp_path, SCENARIO % (process, prefix, str(caching).lower(), more))


@pytest.mark.parametrize(
    "process", ["poisson, rate_rps: 0.1, num_requests: 20", "closed_loop, concurrency: 1, num_requests: 20"]
)
def test_the_cache_computes_a_common_prompt_once(tmp_path: Path, process: str) -> None:
    result = served(tmp_path, process, "shared_prefix: {tokens: 800}", caching=True)
    assert [request.cached_tokens for request in result.log.requests] == [0] + [800] * 19
    # what is cached costs no time: 200 tokens are left of 1000
    first_s = [request.first_token_s - request.started_s for request in result.log.requests]
    assert first_s[0] == pytest.approx(0.01 + 0.1)
    assert first_s[1:] == pytest.approx([0.01 + 0.02] * 19)


@pytest.mark.parametrize(("prefix", "caching"), [("shared_prefix: {tokens: 800}", False), ("", True)])
def test_nothing_is_shared_without_a_cache_or_a_common_text(tmp_path: Path, prefix: str, caching: bool) -> None:
    result = served(tmp_path, "burst, num_requests: 10", prefix, caching)
    assert {request.cached_tokens for request in result.log.requests} == {0}


@pytest.mark.parametrize(
    "process", ["constant, rate_rps: 0.1, num_requests: 9", "closed_loop, concurrency: 1, num_requests: 9"]
)
def test_prompts_that_were_sent_before_are_not_computed_again(tmp_path: Path, process: str) -> None:
    result = served(tmp_path, process, "sent_before: 3", caching=True)
    assert [request.cached_tokens for request in result.log.requests] == [992] * 3 + [0] * 6  # 62 whole blocks of 16
    first_s = [request.first_token_s - request.started_s for request in result.log.requests]
    assert first_s == pytest.approx([0.01 + 1e-4 * 8] * 3 + [0.01 + 0.1] * 6)
    without = served(tmp_path, process, "sent_before: 3", caching=False)
    assert {request.cached_tokens for request in without.log.requests} == {0}


@pytest.mark.parametrize("groups", ["{window: null}, {window: 64}", "{window: null}, {window: 0}"])
def test_prompts_sent_before_lie_in_each_group_of_layers(tmp_path: Path, groups: str) -> None:
    process = "closed_loop, concurrency: 1, num_requests: 9"
    result = served(tmp_path, process, "sent_before: 3", True, f", kv_groups: [{groups}]")
    assert [request.cached_tokens for request in result.log.requests] == [992] * 3 + [0] * 6


@pytest.mark.slow
def test_of_more_prompts_than_the_cache_holds_the_last_ones_are_there(tmp_path: Path) -> None:
    process = "closed_loop, concurrency: 1, num_requests: 500"
    found = [
        request.cached_tokens for request in served(tmp_path, process, "sent_before: 400", caching=True).log.requests
    ]
    assert found[399] == 0  # computed anew, the prompts before it take the place of those that came last
    assert found == [0] * 500


def test_shared_prefixes_that_were_sent_before_are_cached_for_all_requests(tmp_path: Path) -> None:
    prefix = "shared_prefix: {tokens: 800}\n  sent_before: 1"
    result = served(tmp_path, "closed_loop, concurrency: 1, num_requests: 9", prefix, caching=True)
    assert {request.cached_tokens for request in result.log.requests} == {800}


def test_sent_before_needs_arrivals_and_lengths() -> None:
    with pytest.raises(ValidationError, match="sent_before: needs arrivals and lengths, without"):
        Workload.model_validate(alike(16, 1).model_dump() | {"adapters": {"count": 2}, "sent_before": 3})
