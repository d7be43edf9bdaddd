"""Steps and waits of a request, worked by hand: a step takes a second, requests are (arrival, prompt, answer)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.catalogue.catalog import load_catalog
from sim.report.explanation import rows
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.study.explanation import RequestPhase, journal_of, request_phases

BATCHING = {
    "policy": "vllm",
    "max_num_seqs": 4,
    "max_num_batched_tokens": 10,
    "block_size": 1,
    "num_gpu_blocks": 60,
    "max_model_len": 100,
    "async_scheduling": False,
}
SGLANG = {"policy": "prefill_first", "async_scheduling": None, "schedule_conservativeness": 1}
EXPERTS = {"data_parallel_size": 2, "enable_expert_parallel": True}
Row = tuple[float, int, int]


def pool(batching: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    limits = {key: value for key, value in {**BATCHING, **(batching or {})}.items() if value is not None}
    second = {"model": "affine", "base_s": 1, "per_token_s": 0, "per_context_token_s": 0}
    return {"steptime": second, "replicas": 1, "batching": limits, **keys}


def life(
    folder: Path,
    requests: list[Row],
    index: int,
    *pools: dict[str, Any],
    fleet: Any = (),
    turn_s: float = 0,
    **keys: Any,
) -> list[RequestPhase]:
    """*turn_s*: what the API server takes to read a request in."""
    rows = "".join(f"{arrived},{prompt},{answer}\n" for arrived, prompt, answer in requests)
    (folder / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    scenario = {
        "name": "one",
        "workload": {"trace": {"path": "requests.csv", "format": "csv"}},
        "fleets": [{"name": "one", "pools": list(pools), **dict(fleet)}],
        **keys,
    }
    (folder / "s.yaml").write_text(yaml.safe_dump(scenario))
    catalog = load_catalog()
    loaded = load(folder / "s.yaml", (), catalog=catalog)
    plan = resolve(loaded, next(iter(cases(loaded))), catalog)
    if turn_s:
        plan = replace(plan, pools=[replace(one, turn_s=turn_s) for one in plan.pools])
    return list(request_phases(journal_of(plan, index)))


def told(*args: Any, **keys: Any) -> list[str]:
    """Return the phases of a request as text, such as `waits kv 1-2`."""
    return [
        f"{'preempted ' * one.preempted}{one.what}{' ' * bool(one.why)}{one.why} {one.start_s:g}-{one.end_s:g}"
        for one in life(*args, **keys)
    ]


def test_request_pauses_while_prompts_are_scheduled_first(tmp_path: Path) -> None:
    requests = [(0, 8, 6), (2.5, 25, 2), (3.5, 8, 2)]
    plain = pool({"policy": "prefill_first", "async_scheduling": None})
    assert told(tmp_path, requests, 0, plain) == ["prompt 0-1", "decodes 1-3", "stands prompts 3-5", "decodes 5-8"]


@pytest.mark.parametrize("ahead", [False, True])
def test_arrivals_that_the_server_has_not_read_yet(tmp_path: Path, ahead: bool) -> None:
    read = pool({**SGLANG, "scheduler_recv_interval": 5, "overlap_schedule": ahead})
    lives = told(tmp_path, [(0, 8, 22), (2.5, 8, 2)], 1, read)
    assert lives[0] == "waits unread 2.5-6"
    assert lives[1:] == ["prompt 6-7", "decodes 7-8"]


def test_explanation_shows_intake_before_the_engine(tmp_path: Path) -> None:
    """The first of ten at once is read alone, nine in the next turn, who comes meanwhile in the one after that."""
    chats = {"gpu": "h100-80gb-sxm", "model": "llama3.1-8b", "engine": "vllm-0.11"}
    chats["steptime"] = {"model": "roofline", "chat_template": True}
    requests = [(0, 8, 6)] * 10 + [(0.02, 8, 6)]
    first, last = (life(tmp_path, requests, index, chats) for index in (0, 10))
    assert [(one.what, one.why) for one in first] == [("waits", "intake"), ("prompt", ""), ("decodes", "")]
    assert first[0].end_s == pytest.approx(0.0104)
    assert [(one.what, one.why) for one in last][:2] == [("waits", "intake"), ("waits", "")]
    assert last[0].start_s == 0.02
    assert last[1].end_s == last[2].start_s > 11 * 0.0104


@pytest.mark.parametrize(
    ("turn_s", "lives"),
    [
        (0.25, ["waits intake 0-0.5", "waits 0.5-1", "prompt 1-2", "decodes 2-3"]),  # while a step runs
        (2.5, ["waits intake 0-5", "prompt 5-6", "decodes 6-7"]),  # while the engine has nothing to do
        (1.25, ["waits intake 0-2.5", "waits 2.5-3.25", "prompt 3.25-4.25", "decodes 4.25-5.25"]),  # both
        (0.0, ["prompt 0-1", "prompt 1-2", "decodes 2-3"]),
    ],
)
def test_requests_that_come_together_are_read_in_turn(tmp_path: Path, turn_s: float, lives: list[str]) -> None:
    """A single request is passed on at once, so the third is read after the two before it; then it waits for the
    engine."""
    together = [(0, 3, 1), (0, 5, 2), (0, 4, 2)]
    assert told(tmp_path, together, 2, pool(), turn_s=turn_s) == lives
    assert told(tmp_path, together, 0, pool(), turn_s=turn_s) == ["prompt 0-1"]


def test_explanation_of_timeout_during_intake(tmp_path: Path) -> None:
    requests = [(0, 8, 6), (0, 8, 2), (0, 8, 2)]
    lives = told(tmp_path, requests, 2, pool(), turn_s=4, client={"attempts": 1, "timeout_s": 5})
    assert lives == ["waits intake 0-5"]


def test_who_comes_again_during_a_step_waits_although_its_first_attempt_is_in_it(tmp_path: Path) -> None:
    lives = life(tmp_path, [(0, 8, 20)], 0, pool(), client={"attempts": 2, "timeout_s": 3.5})
    assert [one.what for one in lives[:5]] == ["prompt", "decodes", "resent", "waits", "again"]
    assert (lives[1].end_s, lives[3].start_s, lives[3].end_s) == (3.5, lives[2].end_s, 4)


def test_a_request_waits_for_a_slot_for_its_adapter() -> None:
    """With one slot the second adapter waits until no request uses the first; the timeline has a text for that."""
    catalog = load_catalog()
    sets = ["fleets.0.pools.0.lora={max_loras: 1, max_cpu_loras: 60, max_lora_rank: 32}", "horizon_s=6", "warmup_s=0"]
    loaded = load(Path(__file__).parents[2] / "scenarios" / "adapters.yaml", sets, catalog=catalog)
    journal = journal_of(resolve(loaded, next(iter(cases(loaded))), catalog), 9)
    assert "adapters" in {one.why for one in request_phases(journal)}
    assert any("max_loras" in row[0] for row in rows(journal))


def test_prompts_wait_for_their_interval(tmp_path: Path) -> None:
    spaced = pool({"prefill_schedule_interval": 5})
    lives = told(tmp_path, [(0, 8, 12), (1.5, 8, 2), (2.5, 8, 2)], 1, spaced)
    assert lives == ["waits 1.5-2", "waits spaced 2-5", "prompt 5-6", "decodes 6-7"]
    lives = told(tmp_path, [(0, 8, 12), (1.5, 8, 2), (2.5, 8, 2)], 2, spaced)
    assert lives[1:] == ["prompt 5-6", "stands spaced 6-10", "prompt 10-11", "decodes 11-12"]


def test_prompts_are_held_back_until_more_have_come(tmp_path: Path) -> None:
    waiting = {"policy": "reserve", "async_scheduling": None, "batch_wait_timeout_iters": 3}
    holding = pool({**waiting, "batch_wait_max_tokens_ratio": 1.0})
    lives = told(tmp_path, [(0, 8, 9), (1.5, 8, 2)], 1, holding)
    assert lives == ["waits 1.5-2", "stands held 2-5", "prompt 5-6", "decodes 6-7"]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_preempted_request_waits_and_starts_over(tmp_path: Path, ahead: bool) -> None:
    requests = [(0, 10, 8), (0.5, 10, 8), (1.5, 10, 5)]
    lives = life(tmp_path, requests, 1, pool({"num_gpu_blocks": 26, "async_scheduling": ahead}))
    kinds = ["waits", "prompt", "prompt", "decodes", "waits", "again", "again", "decodes"]
    assert [one.what for one in lives] == kinds
    assert [one.preempted for one in lives] == [one is lives[4] for one in lives]
    assert (lives[4].why, lives[4].start_s, lives[4].end_s) == ("kv", 4 + ahead, 8)
    assert sum(one.tokens for one in lives[5:7]) == 10 + 2


def test_a_request_in_another_batch_of_a_pipeline_is_not_left_out(tmp_path: Path) -> None:
    lives = told(tmp_path, [(0, 8, 6), (0.5, 25, 3), (3.5, 8, 2)], 0, pool(pipeline_parallel_size=2))
    assert lives == ["prompt 0-2", "decodes 2-12"]


def test_a_request_waits_until_its_own_batch_enters_the_pipeline(tmp_path: Path) -> None:
    lives = life(tmp_path, [(0, 12, 6), (0.5, 23, 8), (1.5, 20, 3)], 2, pool(pipeline_parallel_size=3))
    waits = [place for place, one in enumerate(lives) if one.what == "waits"]
    assert len(waits) == 2  # for the batches before it, and for KV blocks after a preemption
    assert all(lives[place].end_s == lives[place + 1].start_s for place in waits)


def test_steps_of_other_ranks_are_excluded(tmp_path: Path) -> None:
    lives = told(tmp_path, [(0, 8, 4), (0.5, 25, 3), (3.5, 8, 2), (3.6, 8, 2)], 1, pool(**EXPERTS))
    assert lives == ["waits 0.5-1", "prompt 1-2", "prompt 2-3", "prompt 3-4", "decodes 4-6"]


def test_kv_crosses_the_network_after_the_prompt(tmp_path: Path) -> None:
    pools = [pool(name=role, role=role, kv_bytes_per_token=4) for role in ("prefill", "decode")]
    wire = {"kv_transfer": {"bytes_per_s": 100, "latency_s": 0.1}}
    lives = told(tmp_path, [(0, 8, 4), (0.5, 25, 3)], 1, *pools, fleet=wire)
    assert lives == ["waits 0.5-1", "prompt 1-2", "prompt 2-3", "prompt 3-4", "transfer 4-5.1", "decodes 5.1-7.1"]


def test_explanation_of_timeout_in_the_queue(tmp_path: Path) -> None:
    client = {"attempts": 2, "timeout_s": 20}
    requests = [(0, 8, 40), (0.5, 25, 30), (0.6, 25, 30)]
    lives = life(tmp_path, requests, 2, pool({"max_num_seqs": 1}), client=client, horizon_s=60)
    assert [(one.what, one.why) for one in lives] == [
        ("waits", ""),
        ("waits", "seats"),
        ("waits", "budget"),
        ("resent", ""),
        ("waits", ""),
        ("waits", "seats"),
    ]
    assert lives[2].end_s == lives[3].start_s == 20.6
    assert lives[5].end_s == lives[4].start_s + 20


def test_a_request_of_a_failed_replica_is_resent_when_the_failure_is_detected(tmp_path: Path) -> None:
    failing = {"replica": {"mtbf_h": 0.004, "repair_h": 0.002}, "detection_s": 3}
    lives = life(tmp_path, [(0, 8, 40)], 0, pool(replicas=2, failures=failing), horizon_s=100)
    gap = next(place for place, one in enumerate(lives) if one.what == "resent")
    assert lives[gap].end_s - lives[gap].start_s == pytest.approx(3)
    assert lives[gap - 1].end_s == lives[gap].start_s
    assert [one.what for one in lives[gap + 1 :]][:1] == ["again"]


def test_a_batch_ends_before_the_next_one_begins(tmp_path: Path) -> None:
    static = pool({"policy": "static", "async_scheduling": None})
    lives = told(tmp_path, [(0, 10, 8), (0.5, 10, 8), (0.6, 10, 5)], 2, static)
    assert lives == ["waits 0.6-1", "waits batch 1-8", "stands budget 8-9", "prompt 9-10", "decodes 10-14"]
