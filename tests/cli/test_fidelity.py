"""`gpufleet calibrate`: a file that a scenario can name, or one line per mistake and exit code 2."""

from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from sim.fidelity import calibration, fit

Command = Callable[..., CompletedProcess[str]]

RUNS = """\
gpu,model,engine,engine_version,concurrency,isl,osl,output_tok_s,tpot_mean_ms,ttft_mean_ms
RTX 4090,llama3.1-8b,vLLM,0.14.0,1,256,16,40,24,90
RTX 4090,llama3.1-8b,vLLM,0.14.0,4,256,16,120,31,180
L40S,llama3.1-8b,vLLM,0.14.0,1,256,64,40,24,90
"""
SCENARIO = """\
# Calibrated?
model: llama3.1-8b
calibration: ours/my-gpu.yaml
workload:
  arrivals: {process: burst, num_requests: 4}
  lengths: {prompt: {distribution: fixed, value: 64}, output: {distribution: fixed, value: 16}}
fleets: [{name: a, pools: [{gpu: rtx-4090, max_model_len: 4096}]}]
"""


@pytest.mark.slow
def test_a_scenario_names_what_it_wrote(
    gpufleet: Command, tmp_path: Path, once: Callable[[Any, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    once(calibration, "calibrate")
    monkeypatch.setattr(fit, "MOST_TRIALS", 2)
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = gpufleet("calibrate", "runs.csv", "--gpu", "RTX 4090", "--out", "ours/my-gpu.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Not used:\nruns.csv:4: ran on l40s" in done.stdout
    assert "do not distinguish" in done.stdout
    checked = gpufleet("check", "s.yaml", "--details")
    assert checked.returncode == 0
    assert "2 runs in runs.csv" in checked.stdout
    ran = gpufleet("run", "s.yaml", "--quiet", "--no-report")
    assert (ran.returncode, ran.stderr) == (0, "")
    again = gpufleet("calibrate", "runs.csv", "--gpu", "rtx-4090", "--out", "ours/my-gpu.yaml", "--quiet")
    assert (again.returncode, again.stdout) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "options", "line"),
    [
        (RUNS, ["--gpu", "rtx-4091", "--out", "my.yaml"], "unknown gpu 'rtx-4091'; did you mean rtx-4090"),
        (RUNS, ["--out", "my.yaml"], "--gpu is needed; --plan prints what to measure"),
        (RUNS, ["--gpu", "a10", "--out", "my.yaml"], "runs.csv: no run can be used to calibrate a10"),
        (RUNS, ["--gpu", "rtx-4090", "--out", "runs.csv"], "--out runs.csv: exists and is not a calibration"),
        (RUNS.replace(",40,24,90", ",fast,24,90", 1), ["--gpu", "rtx-4090", "--out", "my.yaml"],
         "runs.csv:2: output_tok_s must be a number, not 'fast'"),
        (RUNS.replace("gpu,model", "gpu,modell"), ["--gpu", "rtx-4090", "--out", "my.yaml"],
         "runs.csv:1: the column 'model' is missing"),
    ],
)  # fmt: skip
def test_mistakes_are_reported_with_their_place(
    gpufleet: Command, tmp_path: Path, runs: str, options: list[str], line: str
) -> None:
    (tmp_path / "runs.csv").write_text(runs)
    done = gpufleet("calibrate", "runs.csv", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line)
    assert not (tmp_path / "my.yaml").exists()
