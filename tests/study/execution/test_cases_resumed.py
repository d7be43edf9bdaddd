"""Interrupting, resuming, repeating: finished points are never lost nor simulated twice, and runs are reproducible."""

import filecmp
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli import app, main, workplace
from sim.study.execution import cores
from sim.study.execution.cases import CaseJob

SLOW = """
name: slow
workload:
  arrivals: {process: poisson, rate_rps: 100}
  lengths:
    prompt: {distribution: lognormal, mean: 100, sigma: 0.7, max: 1000}
    output: {distribution: lognormal, mean: 60, sigma: 0.7, max: 300}
horizon_s: 1
seed: 3
replications: 2
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.005, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 50000}
  - name: b
    pools:
      - replicas: 2
        steptime: {model: affine, base_s: 0.005, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 50000}
sweep: {workload.arrivals.rate_rps: [60, 80, 100]}
"""
CASES = 12
TABLES = ("summary.csv", "requests.csv", "usage.csv", "costs.csv", "resolved.yaml")


def asked(folder: Path, out: str, *options: str) -> list[str]:
    return ["run", str(folder / "slow.yaml"), "--out", str(folder / out), *options]


def held_command(words: list[str], errors: Path) -> None:
    """Run the command, which begins no case after three are finished: it is unfinished whenever the signal arrives."""
    usual, out = CaseJob.run, Path(words[words.index("--out") + 1])

    def run(self: CaseJob, *rest: Any, **more: Any) -> Any:
        while len(finished(out)) >= 3:
            time.sleep(0.01)
        return usual(self, *rest, **more)

    # a shell starts background jobs deaf to SIGINT, and children inherit that
    signal.signal(signal.SIGINT, signal.default_int_handler)
    CaseJob.run, sys.argv = run, ["gpufleet", *words]
    cores.may_fork = lambda: True
    with errors.open("w") as file, redirect_stderr(file), redirect_stdout(StringIO()):
        main()


def run_here(folder: Path, out: str, *options: str) -> None:
    """The same run within this process."""
    done = CliRunner().invoke(app, asked(folder, out, "--quiet", *options))
    assert done.exit_code == 0, done.stderr


def finished(out: Path) -> set[str]:
    # pathlib's * finds hidden folders too: those are still being written
    return {path.parent.name for path in out.glob("points/[!.]*/case.json")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slow.yaml").write_text(SLOW)
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python counts the threads of libraries
@pytest.mark.parametrize(("workers", "stop"), [("1", signal.SIGINT), ("2", signal.SIGTERM)])
def test_interrupted_run_continues_where_it_was(folder: Path, workers: str, stop: signal.Signals) -> None:
    out, told = folder / "out", folder / "errors"
    words = asked(folder, "out", "--no-report", "--workers", workers)
    process = get_context("fork").Process(target=held_command, args=(words, told))
    process.start()
    while len(finished(out)) < 3 and process.is_alive():
        time.sleep(0.02)
    os.kill(process.pid, stop)
    process.join()
    errors = told.read_text()
    assert process.exitcode == (130 if stop == signal.SIGINT else 1)
    assert f"interrupted; {len(finished(out))} finished cases are kept, and the same command continues" in errors
    assert "Traceback" not in errors
    kept = finished(out)
    assert 3 <= len(kept) < CASES
    assert not list((out / "points").glob(".*")), "nothing half-written stays behind"
    dates = {name: (out / "points" / name / "case.json").stat().st_mtime_ns for name in kept}

    done = CliRunner().invoke(app, asked(folder, "out", "--no-report", "--workers", "1"))
    assert done.exit_code == 0
    assert f"{len(kept)} of {CASES} cases are finished already" in done.stderr
    assert len(finished(out)) == CASES
    assert dates == {name: (out / "points" / name / "case.json").stat().st_mtime_ns for name in kept}
    assert json.loads((out / "manifest.json").read_text())["status"] == "finished"


@pytest.mark.slow
def test_interrupt_before_the_simulation_keeps_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for name, text in (
        ("sim.study.execution.cores.ProcessPool.__enter__", "interrupted before a case was finished: nothing is kept"),
        ("sim.scenario.reading.load.load", "interrupted; nothing is written"),
    ):
        monkeypatch.setattr(name, stopped)
        done = CliRunner().invoke(app, asked(folder, "out"))
        assert (done.exit_code, text in done.stderr) == (130, True), done.stderr


@pytest.mark.slow
def test_same_seed_same_bytes_whatever_the_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "ALONE_S", 0)
    monkeypatch.setattr(cores, "may_fork", lambda: True)
    monkeypatch.setattr(workplace, "OWN_PROCESS", SimpleNamespace(get=lambda: True))
    for out, workers in (("one", "1"), ("two", "2")):
        short = ("--set", "sweep={workload.arrivals.rate_rps: [60, 100]}")
        run_here(folder, out, *short, "--workers", workers, "--no-report")
    same, different, missing = filecmp.cmpfiles(folder / "one", folder / "two", TABLES, shallow=False)
    assert (sorted(same), different, missing) == (sorted(TABLES), [], [])


TINY = ("--set", "sweep={workload.arrivals.rate_rps: [5]}", "--replications", "1")


@pytest.mark.slow
def test_another_seed_gives_other_results(folder: Path) -> None:
    for out, seed in (("one", "3"), ("other", "4")):
        run_here(folder, out, *TINY, "--seed", seed, "--no-report")
    assert not filecmp.cmp(folder / "one" / "summary.csv", folder / "other" / "summary.csv", shallow=False)


@pytest.mark.slow
def test_results_of_another_run_are_replaced_and_its_points_dropped(folder: Path) -> None:
    run_here(folder, "out", *TINY, "--no-report")
    before = finished(folder / "out")
    run_here(folder, "out", *TINY, "--seed", "9", "--force", "--no-report")
    after = finished(folder / "out")
    assert len(before) == len(after) == 2
    assert not before & after
    assert sorted(path.name for path in folder.iterdir()) == ["out", "slow.yaml"]


@pytest.mark.slow
def test_no_report_is_not_left_from_an_earlier_run(folder: Path) -> None:
    run_here(folder, "out", *TINY)
    assert (folder / "out" / "report.html").exists()
    run_here(folder, "out", *TINY, "--no-report")
    assert not (folder / "out" / "report.html").exists()
