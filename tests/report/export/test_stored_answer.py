"""A finished run as frames."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.report.export.stored_answer import read_run

TINY = """
name: tiny
workload:
  arrivals: {process: constant, rate_rps: 2}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 10}}
horizon_s: 10
fleets:
  - name: one
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 0.0001, per_context_token_s: 0}
        batching: {policy: vllm, max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 100}
"""


@pytest.mark.parametrize("requests", ["csv", "parquet", "none"])
def test_frames_hold_the_run(tmp_path: Path, requests: str) -> None:
    (tmp_path / "tiny.yaml").write_text(TINY + f"requests: {requests}\n")
    out = tmp_path / "out"
    arguments = ["run", str(tmp_path / "tiny.yaml"), "--out", str(out), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    frames = read_run(out)
    assert frames.summary["completed"].tolist() == [20]
    assert frames.usage["output_tokens"].sum() == 200
    if frames.requests is None:
        assert requests == "none"
    else:
        assert (frames.requests["finished_s"] > frames.requests["arrived_s"]).all()


def test_no_run_no_frames(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_run(tmp_path)
