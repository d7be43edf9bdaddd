"""A real scheduler and two worker processes, one of them killed mid-sweep: every point is there, once, same bytes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.catalog.catalog import load_catalog
from sim.cli import app
from sim.scenario.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, cases
from sim.study import cluster
from sim.study.cluster import Cluster, ClusterError
from sim.study.cores import Cores
from sim.study.execute import Job, simulated
from sim.study.points import POINTS, jobs_of
from sim.yamlio import dump

CATALOG = load_catalog()
SCENARIO = """\
name: spread
workload: {trace: {path: requests.csv, format: csv}}
warmup_s: 0
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 4, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
sweep: {workload.trace.rate_scale: [%s]}
"""
SPEEDS = [0.5 + 0.1 * i for i in range(24)]
START_S = 20


@pytest.fixture(scope="module")
def scenario(tmp_path_factory) -> Scenario:
    folder = tmp_path_factory.mktemp("spread")
    rows = [f"{0.3 * i:.1f},{100 + i % 50},{20 + i % 30}" for i in range(400)]
    (folder / "requests.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    (folder / "s.yaml").write_text(SCENARIO % ", ".join(f"{speed:g}" for speed in SPEEDS))
    return load(folder / "s.yaml", (), catalog=CATALOG)


class Machines:
    """A scheduler and its workers, each a process of its own, in a folder that holds nothing of the scenario."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file, self.processes = folder, folder / "scheduler.json", []
        self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(self.file)
        )
        started = time.monotonic()
        while not self.file.exists():
            assert time.monotonic() - started < START_S
            time.sleep(0.05)
        self.address = json.loads(self.file.read_text())["address"]

    def worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *arguments]
        process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={"PYTHONPATH": str(Path(cluster.__file__).parents[2]), "PATH": "", "HOME": str(self.folder)},
        )  # fmt: skip
        self.processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.stop()


def contents(points: Path) -> dict[str, bytes]:
    return {str(path.relative_to(points)): path.read_bytes() for path in sorted(points.rglob("*")) if path.is_file()}


def jobs(scenario: Scenario, out: Path) -> list[Job]:
    return jobs_of(scenario, cases(scenario), CATALOG, out)


def test_a_killed_worker_takes_no_point_along(scenario: Scenario, machines: Machines, tmp_path: Path) -> None:
    workers = [machines.worker(), machines.worker()]
    work = jobs(scenario, tmp_path / "there")
    seen = []
    with Cluster(machines.address) as place:
        for job in simulated(place, work):
            seen.append(job.folder)
            if len(seen) == 4:
                workers[0].send_signal(signal.SIGKILL)
    assert sorted(seen) == sorted(job.folder for job in work)
    for job in jobs(scenario, tmp_path / "here"):
        job.run()
    assert contents(tmp_path / "there/points") == contents(tmp_path / "here/points")


def test_the_command_runs_there_and_goes_on_from_what_is_finished(
    scenario: Scenario, machines: Machines, tmp_path: Path
) -> None:
    machines.worker()
    file = tmp_path / "plain.yaml"
    file.write_text(dump(as_data(scenario)))
    command = ["run", str(file), "--no-report", "--set", "sweep={workload.trace.rate_scale: [1, 2]}"]
    there = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "there"), "--cluster", machines.address])
    assert there.exit_code == 0, there.stderr
    here = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "here"), "--workers", "1"])
    assert contents(tmp_path / "there/points") == contents(tmp_path / "here/points")
    for table in ("summary.csv", "requests.csv", "usage.csv"):
        assert (tmp_path / "there" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()
    machines.stop()
    again = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "there"), "--cluster", machines.address])
    assert again.exit_code == 0, again.stderr
    assert again.stdout == here.stdout.replace(str(tmp_path / "here"), str(tmp_path / "there"))


def test_another_program_on_the_worker_is_refused(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.worker()
    monkeypatch.setattr(cluster, "_program", lambda: "gpufleet of yesterday")
    with pytest.raises(ClusterError, match=r"yesterday.*install the same on both"):
        list(simulated(Cluster(machines.address), jobs(scenario, tmp_path)[:1]))
    assert not (tmp_path / POINTS).exists()


def test_nobody_there(scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = jobs(scenario, tmp_path)[:1]
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    monkeypatch.setattr(cluster, "WORKERS_S", 0.5)
    with pytest.raises(ClusterError, match="no worker has joined"):
        list(simulated(Cluster(machines.address), work))
    with pytest.raises(ClusterError, match="no scheduler answers at"):
        list(simulated(Cluster("tcp://127.0.0.1:9"), work))


STUDIES = """\
name: studies
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 6}
  lengths:
    prompt: {distribution: lognormal, mean: 300, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 60, cv: 0.8, max: 300}
horizon_s: 40
replications: 2
slo: {ttft_s: 1, tpot_s: 0.05}
max_model_len: 4096
fleets:
  - name: a
    pools: [{gpu: rtx-4090}]
    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}}
  - name: b
    pools: [{gpu: l40s}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
size:
  gpus: [rtx-4090, l40s]
  tensor_parallel_sizes: [1]
  max_replicas: 3
  costs: {rented: {acquisition: rent, quotes: {rtx-4090: 0.5, l40s: 0.9}}}
sensitivity: {metric: ttft_s_p95, inputs: {workload.arrivals.rate_rps: [5, 7]}}
"""
ASKED = {
    "capacity": (["--no-report", "--relative", "0.2"], ["capacity.csv", "search.csv"]),
    "size": (["--set", "workload.arrivals.rate_rps=25"], ["size.csv", "pareto.csv", "winner.yaml"]),
    "sensitivity": ([], ["sensitivity.csv"]),
    "breakeven": ([], ["breakeven.csv", "months.csv"]),
}


@pytest.fixture(scope="module")
def shared_machines(tmp_path_factory) -> Iterator[Machines]:
    found = Machines(tmp_path_factory.mktemp("machines"))
    for _ in range(2):
        found.worker()
    yield found
    found.stop()


@pytest.mark.parametrize("command", ASKED)
def test_the_other_commands_say_the_same(shared_machines: Machines, tmp_path: Path, command: str) -> None:
    (tmp_path / "s.yaml").write_text(STUDIES)
    options, tables = ASKED[command]
    for out, where in (("there", ["--cluster", shared_machines.address]), ("here", ["--workers", "2"])):
        asked = [command, str(tmp_path / "s.yaml"), *options, "--out", str(tmp_path / out), *where]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.stderr
    for table in tables:
        assert (tmp_path / "there" / table).read_bytes() == (tmp_path / "here" / table).read_bytes()
    assert contents(tmp_path / "there/points") == contents(tmp_path / "here/points")


def test_values_come_back_with_their_places(shared_machines: Machines) -> None:
    items = [(i, 2) for i in range(9)]
    for workplace in (Cluster(shared_machines.address), Cores(1), Cores(2)):
        with workplace as place:
            assert dict(place.map(pow, items)) == {i: i**2 for i in range(9)}
            with pytest.raises(ZeroDivisionError):
                list(place.map(divmod, [(1, 0)]))


def test_this_process_and_another_do_each_job_once(scenario: Scenario, tmp_path: Path) -> None:
    work = jobs(scenario, tmp_path)
    with Cores(2) as cores:
        done = [job.folder for job in simulated(cores, work)]
    assert sorted(done) == sorted(job.folder for job in work)
    assert len(set(done)) == len(done)
