"""A job on the command line and from Python: files, page, refusals."""

import csv
from pathlib import Path

import pytest

import sim

SHORT = ["--set", "sweep=null"]


@pytest.mark.slow
def test_run_leaves_the_files_of_a_run(gpufleet, tmp_path: Path) -> None:
    done = gpufleet("run", "training-4090-vs-a100", *SHORT, "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "2x RTX 4090 is done first" in done.stdout
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {
        *("summary.csv", "usage.csv", "costs.csv", "resolved.yaml", "scenario.yaml", "manifest.json"),
        *("report.html", "curves.png"),
    }
    with (tmp_path / "out" / "summary.csv").open() as file:
        table = list(csv.DictReader(file))
    with (tmp_path / "out" / "costs.csv").open() as file:
        bill = list(csv.DictReader(file))
    for row in table:
        amounts = [round(float(line["amount_usd"]) * 1e9) for line in bill if line["fleet"] == row["fleet"]]
        assert sum(amounts) == round(float(row["cost_usd"]) * 1e9)
    assert {line["phase"] for line in bill} >= {"training"}
    assert "Where the time of a step goes" in (tmp_path / "out" / "report.html").read_text()
    assert gpufleet("run", tmp_path / "out" / "scenario.yaml", "--out", tmp_path / "out", "--no-report").returncode == 0


@pytest.mark.slow
def test_price_bills_a_job_at_other_prices_only(gpufleet, tmp_path: Path) -> None:
    assert gpufleet("run", "training-4090-vs-a100", *SHORT, "--no-report", "--out", tmp_path / "run").returncode == 0
    done = gpufleet("price", tmp_path / "run", "--set", "site.pue=2", "--no-report", "--out", tmp_path / "priced")
    assert done.returncode == 0
    refused = gpufleet("price", tmp_path / "run", "--set", "job.tokens=1e9")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.slow
def test_check_prints_memory_by_part(gpufleet) -> None:
    done = gpufleet("check", "training-gpt3-175b", *SHORT)
    assert done.returncode == 0
    assert "optimizer states" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", ["capacity", "size", "breakeven", "plan", "sensitivity"])
def test_commands_about_requests_refuse_a_job_in_one_line(gpufleet, command: str) -> None:
    done = gpufleet(command, "training-gpt3-175b")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "job: a job does not answer requests" in done.stderr


@pytest.mark.slow
def test_python_has_the_same_answer(tmp_path: Path) -> None:
    run = sim.run("training-4090-vs-a100", {"sweep": None}, quiet=True)
    assert run.summary.fleet.tolist() == ["1x RTX 4090", "2x RTX 4090", "1x A100 80GB"]
    assert run.costs.amount_usd.sum() == pytest.approx(run.summary.cost_usd.sum())
    assert run.plots == ("time", "cost")
    assert sim.check("training-gpt3-175b", {"sweep": None}).table["memory_gb_per_gpu.total"].between(20, 40).all()
    with pytest.raises(sim.Infeasible, match=r"needs .* GB of memory"):
        sim.run("training-4090-vs-a100", {"sweep": None, "job.model": "llama3.1-8b", "job.framework": "fsdp"})


@pytest.mark.slow
def test_a_queue_leaves_its_jobs(gpufleet, tmp_path: Path) -> None:
    done = gpufleet("run", "jobs-on-a-cluster", "--out", tmp_path / "out", "--no-report")
    assert done.returncode == 0
    assert "Jobs wait least on priorities" in done.stdout
    with (tmp_path / "out" / "jobs.csv").open() as file:
        jobs = list(csv.DictReader(file))
    assert len(jobs) == 3 * 15
    assert {job["status"] for job in jobs} == {"finished"}
    with (tmp_path / "out" / "costs.csv").open() as file:
        bill = list(csv.DictReader(file))
    assert sum(float(job["cost_usd"]) for job in jobs) == pytest.approx(
        sum(float(line["amount_usd"]) for line in bill if line["phase"] != "idle")
    )
    assert "largest" in gpufleet("check", "jobs-on-a-cluster").stdout
