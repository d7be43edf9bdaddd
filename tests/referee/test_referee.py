"""Dates agree with runs of vLLM's own scheduler (vllm 0.33.0, v1/core/sched/scheduler.py, virtual time), to 1e-9 s.

Each case is a scenario and a trace file, as a user writes them. Cases `o3-*` have two or three options at once, and KV
caches so small that requests are preempted; their results are without single steps.
"""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from small_scenario import ran

CASES = sorted(Path(__file__).parent.glob("*.json"))
SEGMENTS = 4
"""Index of the prompt's segments in a request."""

OPTIONS = {
    "async_scheduling": "async_scheduling",
    "enable_chunked_prefill": "chunked_prefill",
    "long_prefill_token_threshold": "long_prefill_token_threshold",
    "watermark": "watermark",
    "scheduler_reserve_full_isl": "reserve_full_isl",
    "prefill_schedule_interval": "prefill_schedule_interval",
}
"""Keys of a scenario and what a case calls them."""


def hash_ids(segments: list[list[Any]], block_size: int, known: dict[Any, int]) -> list[int]:
    """Ids of the whole blocks of a prompt made of (seed, length) token runs; an id depends on all blocks before it."""
    tokens = [(seed, position) for seed, length in segments for position in range(length)]
    ids: list[int] = []
    for end in range(block_size, len(tokens) + 1, block_size):
        block = (ids[-1] if ids else None, tuple(tokens[end - block_size : end]))
        ids.append(known.setdefault(block, len(known)))
    return ids


def write_csv_trace(path: Path, requests: list[list[Any]]) -> dict[str, Any]:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arrival_s", "prompt_tokens", "output_tokens", "priority"])
        writer.writerows([*row[:3], row[3] if len(row) > 3 else 0] for row in requests)
    return {"path": path.name, "format": "csv"}


def write_mooncake_trace(path: Path, requests: list[list[Any]], block_size: int) -> dict[str, Any]:
    known: dict[Any, int] = {}
    with path.open("w") as file:
        for arrival_s, prompt, output, priority, segments, *seed in requests:
            ids = hash_ids(segments, block_size, known)
            row = {"timestamp": arrival_s * 1000, "input_length": prompt, "output_length": output, "hash_ids": ids}
            if seed:  # without a number, equal prompts have equal answers
                answer = [seed[0] if seed[0] is not None else str(segments), output]
                row["output_hash_ids"] = hash_ids([*segments, answer], block_size, known)[len(ids) :]
            row |= {"priority": priority} if priority else {}
            file.write(json.dumps(row) + "\n")
    return {"path": path.name, "format": "mooncake", "hash_block_tokens": block_size}


def scenario(case: dict[str, Any], trace: dict[str, Any]) -> dict[str, Any]:
    config = case["config"]
    batching = {
        "policy": "vllm",
        "max_num_seqs": config["max_num_seqs"],
        "max_num_batched_tokens": config["max_num_batched_tokens"],
        "block_size": config["block_size"],
        "num_gpu_blocks": config["num_blocks"],
        "max_model_len": config["max_model_len"],
        "enable_prefix_caching": config["enable_prefix_caching"],
        "scheduling": config["policy"],
    }
    batching |= {key: config[short] for key, short in OPTIONS.items() if short in config}
    if "spec_tokens" in config:
        drafts = {"num_speculative_tokens": config["spec_tokens"], "accepted": config["spec_accept"]}
        batching["speculative"] = drafts
    if "kv_groups" in config:
        batching["kv_groups"] = config["kv_groups"]
    pool = {"replicas": 1, "steptime": {"model": "affine", **case["step_time"]}, "batching": batching}
    if "pipeline_parallel_size" in config:
        pool["pipeline_parallel_size"] = config["pipeline_parallel_size"]
    return {"name": case["name"], "workload": {"trace": trace}, "fleets": [{"name": "referee", "pools": [pool]}]}


@pytest.mark.slow
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_dates_and_preemptions_are_those_of_vllm(path: Path, tmp_path: Path) -> None:
    case = json.loads(path.read_text())
    if len(case["requests"][0]) > SEGMENTS:
        trace = write_mooncake_trace(tmp_path / "requests.jsonl", case["requests"], case["config"]["block_size"])
    else:
        trace = write_csv_trace(tmp_path / "requests.csv", case["requests"])
    requests, expected = ran(tmp_path, scenario(case, trace)).log.requests, case["results"]
    assert [one.first_token_s for one in requests] == pytest.approx(expected["first_token_s"], rel=0, abs=1e-9)
    assert [one.finished_s for one in requests] == pytest.approx(expected["finish_s"], rel=0, abs=1e-9)
    assert sum(one.preemptions for one in requests) == expected["preemptions"]
    assert sum(one.cached_tokens for one in requests) == expected["prefix_cached_tokens"]


def test_there_are_cases() -> None:
    assert len(CASES) >= 64
