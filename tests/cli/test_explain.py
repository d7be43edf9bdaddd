"""`gpufleet explain`: the steps of one request, by hand, and a trace that a viewer opens."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app

# a step of one second for 10 tokens; request 1 waits for the KV blocks of request 0
SCENARIO = """
name: two
workload: {trace: {path: requests.csv, format: csv}}
fleets:
  - name: one
    pools:
      - steptime: {model: affine, base_s: 1, per_token_s: 0, per_context_token_s: 0}
        replicas: 1
        batching: {policy: vllm, max_num_seqs: 4, max_num_batched_tokens: 10, block_size: 1, num_gpu_blocks: 26,
                   max_model_len: 100, async_scheduling: %s}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,15,3\n0.5,20,2\n")
    (tmp_path / "s.yaml").write_text(SCENARIO % "false")
    return tmp_path / "s.yaml"


PHASES = {
    "M": {"name": str, "pid": int, "args": dict},
    "X": {"name": str, "pid": int, "tid": int, "ts": (int, float), "dur": (int, float), "args": dict},
    "i": {"name": str, "pid": int, "tid": int, "ts": (int, float), "s": str},
}
"""Keys that the Trace Event Format (Google, 2016) asks for, by the kind of event, of those that are used here."""


def assert_follows_the_trace_event_format(document: str) -> None:
    """Keys and their types, order of time, names of processes, and complete events that nest within a thread."""
    trace = json.loads(document)
    assert set(trace) == {"traceEvents", "displayTimeUnit"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    for event in events:
        assert all(isinstance(event.get(key), kind) for key, kind in PHASES[event["ph"]].items()), event
        assert event["ph"] != "i" or event["s"] in ("g", "p", "t")
        assert event["name"]
        assert event.get("ts", 0) >= 0
    timed = [event for event in events if "ts" in event]
    assert [event["ts"] for event in timed] == sorted(event["ts"] for event in timed)
    named = [event["pid"] for event in events if event["ph"] == "M" and event["name"] == "process_name"]
    assert sorted(named) == sorted({event["pid"] for event in timed})
    ends: dict[tuple[int, int], float] = {}
    for event in timed:
        if event["ph"] == "X":
            assert event["dur"] > 0
            thread = event["pid"], event["tid"]
            assert round(event["ts"] * 1000) >= ends.get(thread, 0), "overlaps the step before in its thread"
            ends[thread] = round((event["ts"] + event["dur"]) * 1000)


def explain(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["explain", *arguments], env={"COLUMNS": "200"})
    return done.exit_code, done.output


@pytest.mark.slow
def test_a_request_waits_for_blocks_and_then_computes_its_prompt_in_chunks(scenario: Path) -> None:
    code, text = explain(str(scenario), "--request", "1")
    assert code == 0, text
    told = [line.split("  ")[0] for line in text.splitlines() if "." in line and line[:1].islower()]
    assert told == [
        "waits for the current step to end",
        "waits for KV blocks",
        "prompt: 10 tokens, 10 of 20 computed",
        "prompt: 10 tokens, 20 of 20 computed",
        "decodes",
    ]


def test_a_request_over_its_tenant_rate_limit_is_explained(scenario: Path) -> None:
    limited = "tenants: [{name: a, rate_limit: {requests_per_s: 0.1, burst: 1}}]"
    scenario.write_text((SCENARIO % "false").replace("csv}}", f"csv}}, {limited}}}"))
    rows = "arrival_s,prompt_tokens,output_tokens,tenant\n0,8,2,a\n0.5,8,2,a\n"
    (scenario.parent / "requests.csv").write_text(rows)
    code, text = explain(str(scenario), "--request", "1")
    assert code == 0
    assert text.splitlines()[1] == "The request was rejected: tenant a was over its rate limit."


@pytest.mark.slow
def test_the_trace_is_one_that_a_viewer_opens(scenario: Path, tmp_path: Path) -> None:
    for ahead in ("false", "true"):
        scenario.write_text(SCENARIO % ahead)
        code, text = explain(str(scenario), "--request", "0", "--trace", str(tmp_path / "t.json"))
        assert code == 0, text
        assert_follows_the_trace_event_format((tmp_path / "t.json").read_text())
        events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
        steps = [event for event in events if event["ph"] == "X" and event["pid"] == 0]
        assert [(event["ts"], event["dur"]) for event in steps][:2] == [(0, 1e6), (1e6, 1e6)]
        assert sum(event["dur"] for event in steps) == 4e6


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["pipeline_parallel_size: 2", "data_parallel_size: 2, enable_expert_parallel: true"])
def test_overlapping_steps_are_in_separate_threads(scenario: Path, tmp_path: Path, layout: str) -> None:
    text = (SCENARIO % "false").replace("replicas: 1", f"replicas: 1, {layout}").replace("- steptime", "- {steptime")
    text = text.replace("\n        replicas", ", replicas").replace("\n        batching", ", batching").rstrip() + "}\n"
    text = text.replace("base_s: 1,", "base_s: 0.3333333333333333,").replace("num_gpu_blocks: 26", "num_gpu_blocks: 90")
    scenario.write_text(text)
    code, shown = explain(str(scenario), "--request", "0", "--trace", str(tmp_path / "t.json"))
    assert code == 0, shown
    assert_follows_the_trace_event_format((tmp_path / "t.json").read_text())
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["tid"] for event in events if event["pid"] == 1} == {0, 1}


@pytest.mark.slow
def test_a_request_that_is_not_there(scenario: Path) -> None:
    code, text = explain(str(scenario), "--request", "2")
    assert (code, text) == (2, "--request 2: the run has 2 requests, from 0 on\n")
    assert explain(str(scenario), "--request", "0", "--fleet", "two")[0] == 2


@pytest.mark.slow
def test_the_point_of_a_sweep_is_named(scenario: Path) -> None:
    scenario.write_text(scenario.read_text() + "sweep: {fleets.one.pools.0.replicas: [2, 3]}\n")
    found = CliRunner().invoke(app, ["explain", str(scenario), "--request", "1"])
    assert found.exit_code == 0, found.output
    assert "At the first point of the sweep: replicas 2." in found.output
    assert "Served by replica 1; 0 preemptions." in found.output


@pytest.mark.slow
def test_messages_between_gpus_are_a_part_of_the_steps(scenario: Path) -> None:
    given = "steptime: {model: affine, base_s: 1, per_token_s: 0, per_context_token_s: 0}"
    text = scenario.read_text().replace(given, "gpu: rtx-pro-6000\n        tensor_parallel_size: 2")
    scenario.write_text(text.replace("name: two", "name: two\nmodel: llama3.1-8b"))
    shown = CliRunner().invoke(app, ["explain", str(scenario), "--request", "0"]).output
    found = re.search(r"Messages between GPUs over PCIe 5.0[^.]* take ([\d.]+) s\s+of\s+the\s+([\d.]+)\s+s\s+of", shown)
    assert found is not None, shown
    assert 0 < float(found[1]) < float(found[2])
    assert "the engine's own" in shown
