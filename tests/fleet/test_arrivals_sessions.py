"""Requests of sessions come when the answers before them are there, and find them in the cache."""

from collections import defaultdict
from pathlib import Path

import pytest
from small_scenario import ran

from sim.records import Request

SCENARIO = """\
name: talk
workload:
  arrivals: {arrivals}
  lengths:
    prompt: {{distribution: geometric, mean: 60}}
    output: {{distribution: geometric, mean: 40}}
  sessions:
    turns: {{distribution: geometric, mean: 3}}
    think_s: {{distribution: exponential, mean: 4}}
    system_prompt_tokens: 64
    sub_agents:
      share: 0.3
      agents: {{distribution: fixed, value: 2}}
      task_tokens: {{distribution: fixed, value: 30}}
horizon_s: 60
fleets:
  - name: a
    pools:
      - replicas: {replicas}
        steptime: {{model: affine, base_s: {base_s}, per_token_s: 1e-4, per_context_token_s: 1e-7}}
        batching: {{policy: vllm, num_gpu_blocks: 20000, max_model_len: {longest}, enable_prefix_caching: true}}
"""
TRACED = """\
name: traced
workload: {trace: {path: t.csv, format: csv}}
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.1, per_token_s: 0, per_context_token_s: 0}
        batching: {policy: vllm, num_gpu_blocks: 20000, max_model_len: 1000, enable_prefix_caching: true}
"""


def served(
    folder: Path,
    arrivals: str = "{process: poisson, rate_rps: 4}",
    replicas: int = 1,
    base_s: float = 0.01,
    longest: int = 9000,
) -> list[Request]:
    text = SCENARIO.format(arrivals=arrivals, replicas=replicas, base_s=base_s, longest=longest)
    return ran(folder, text).log.requests


def by_session(requests: list[Request]) -> dict[str, list[Request]]:
    found: dict[str, list[Request]] = defaultdict(list)
    for request in requests:
        found[request.session].append(request)
    return found


@pytest.mark.slow
def test_a_turn_follows_the_answer_and_finds_the_whole_conversation_cached(tmp_path: Path) -> None:
    for requests in by_session(served(tmp_path)).values():
        for request in requests[1:]:
            same = [r for r in requests if r.index < request.index and r.block_hashes[5:6] == request.block_hashes[5:6]]
            if same and len(same[-1].block_hashes) > 5:
                earlier = same[-1]
                assert request.arrived_s >= earlier.finished_s
                # the last token of an answer has no KV
                assert request.cached_tokens == (earlier.prompt_tokens + earlier.output_tokens - 1) // 16 * 16


@pytest.mark.slow
def test_a_session_is_the_same_in_a_slower_fleet_and_takes_longer(tmp_path: Path) -> None:
    fast = by_session(served(tmp_path))
    slow = by_session(served(tmp_path, base_s=0.05))
    for name, requests in slow.items():
        for one, other in zip(requests[:1], fast[name][:1], strict=True):
            assert one.arrived_s == other.arrived_s
        sizes = {r.turn: (r.prompt_tokens, r.output_tokens) for r in fast[name]}
        assert all(sizes.get(r.turn, (r.prompt_tokens, r.output_tokens))[0] == r.prompt_tokens for r in requests)
        shared = {r.turn for r in requests} & sizes.keys()
        late = {r.turn: r.arrived_s for r in requests}
        early = {r.turn: r.arrived_s for r in fast[name]}
        assert all(late[turn] >= early[turn] for turn in shared)
    assert sum(map(len, slow.values())) < sum(map(len, fast.values()))


def test_users_have_one_session_at_a_time_and_pause_between_them(tmp_path: Path) -> None:
    found = by_session(served(tmp_path, "{process: closed_loop, concurrency: 3, think_s: 2, pauses: constant}"))
    spans = {int(name): (rs[0].arrived_s, max(r.finished_s for r in rs)) for name, rs in found.items()}
    assert len(spans) > 6
    for number, (begin_s, _) in spans.items():
        if number >= 3:
            assert begin_s == pytest.approx(spans[number - 3][1] + 2)
        else:
            assert begin_s == 0


@pytest.mark.slow
def test_a_refused_request_ends_its_session(tmp_path: Path) -> None:
    found = by_session(served(tmp_path, longest=300))
    refused = [requests for requests in found.values() if any(r.rejected for r in requests)]
    assert refused
    for requests in refused:
        first_s = min(r.arrived_s for r in requests if r.rejected)
        # agents that were asked before may still answer
        assert all(r.arrived_s <= first_s for r in requests)


def test_a_traced_turn_waits_for_its_time_and_for_the_answer(tmp_path: Path) -> None:
    rows = [
        "arrival_s,prompt_tokens,output_tokens,session,turn",
        "0,32,10,a,1",
        "0.5,50,1,a,2",
        "5,60,1,a,3",
        "5,1,1,,",
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    requests = ran(tmp_path, TRACED).log.requests
    assert [r.arrived_s for r in requests] == pytest.approx([0, 1.0, 5, 5])
    assert [(r.session, r.turn) for r in requests] == [("a", 1), ("a", 2), ("a", 3), ("", 0)]
    assert [r.cached_tokens for r in requests] == [0, 32, 48, 0]


BY_HAND = """\
name: by-hand
workload:
  arrivals: {process: closed_loop, concurrency: 1}
  lengths:
    prompt: {distribution: fixed, value: 10}
    output: {distribution: fixed, value: 2}
  sessions:
    turns: {distribution: fixed, value: 1}
    think_s: {distribution: fixed, value: 100}
    tool_calls:
      share: 1
      calls: {distribution: fixed, value: 1}
      delay_s: {distribution: fixed, value: 3}
      result_tokens: {distribution: fixed, value: 4}
    sub_agents:
      share: 1
      agents: {distribution: fixed, value: 2}
      task_tokens: {distribution: fixed, value: 5}
horizon_s: 17
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 1, per_token_s: 0, per_context_token_s: 0}
        batching: {policy: vllm, num_gpu_blocks: 100, max_model_len: 200}
"""


def test_agents_and_tools_by_hand(tmp_path: Path) -> None:
    requests = ran(tmp_path, BY_HAND).log.requests
    # each request takes a step for its prompt and one more token: 2 s
    assert [(r.arrived_s, r.prompt_tokens, r.finished_s) for r in requests[:7]] == [
        (0, 10, 2),  # hands work to two agents
        (2, 5, 4),
        (2, 5, 4),
        (7, 5 + 2 + 4, 9),  # each of them asks a tool for 3 s, whose result has 4 tokens
        (7, 5 + 2 + 4, 9),
        (9, 10 + 2 + 2 * 2, 11),  # goes on with both last answers
        (14, 16 + 2 + 4, 16),  # and asks a tool
    ]
