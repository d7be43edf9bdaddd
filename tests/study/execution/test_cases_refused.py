"""Runs in which requests are refused: counted, never lost, and no rate is nonsense."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app

SCENARIO = """
name: refused
workload: {workload}
fleets:
  - name: one
    pools:
      - steptime: {{model: affine, base_s: 0.01, per_token_s: 0.0001, per_context_token_s: 0}}
        batching: {{policy: vllm, max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 100, max_model_len: 50}}
"""
LENGTHS = "lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 10}}"
TRACE = "{trace: {path: trace.csv, format: csv}}"


def summary(folder: Path, workload: str) -> dict[str, str]:
    (folder / "s.yaml").write_text(SCENARIO.format(workload=workload))
    result = CliRunner().invoke(app, ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--quiet"])
    assert result.exit_code == 0, result.output
    with (folder / "out" / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    return row


@pytest.mark.parametrize(
    ("workload", "rejected"),
    [
        (f"{{arrivals: {{process: burst, num_requests: 5}}, {LENGTHS}}}", 5),
        (f"{{arrivals: {{process: closed_loop, concurrency: 3, num_requests: 9}}, {LENGTHS}}}", 9),
    ],
)
def test_all_are_refused(tmp_path: Path, workload: str, rejected: int) -> None:
    row = summary(tmp_path, workload)
    assert (row["requests"], row["rejected"], row["completed"]) == (str(rejected), str(rejected), "0")
    assert float(row["slo_attainment"]) == 0
    assert row["ttft_s_p50"] == "inf"


def test_the_window_lasts_until_the_last_arrival(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n100,100,10\n")
    row = summary(tmp_path, TRACE)
    assert (row["completed"], row["rejected"]) == ("1", "1")
    assert float(row["offered_rps"]) == pytest.approx(0.02)


def test_a_run_without_a_window_is_billed_again_as_it_was(tmp_path: Path) -> None:
    before = summary(tmp_path, f"{{arrivals: {{process: burst, num_requests: 5}}, {LENGTHS}}}")
    options = ["--out", str(tmp_path / "again"), "--quiet", "--no-report", "--set", "site.pue=1.5"]
    options += ["--set", "site.electricity_usd_per_kwh=0.2"]
    result = CliRunner().invoke(app, ["price", str(tmp_path / "out"), *options])
    assert result.exit_code == 0, result.output
    with (tmp_path / "again" / "summary.csv").open() as file:
        assert list(csv.DictReader(file)) == [before]
