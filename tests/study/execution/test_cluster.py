"""A real scheduler and two worker processes, one of them killed mid-sweep: every point is there, once, same bytes."""

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from dask_machines import START_S, Machines, contents
from distributed import Client
from distributed.comm.core import CommClosedError
from typer.testing import CliRunner

from sim.catalogue.catalog import Catalog, load_catalog
from sim.cli import app
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, cases
from sim.study.execution import cluster
from sim.study.execution import cores as cores_module
from sim.study.execution.cases import Call, CaseJob, do_missing, jobs_of, simulated
from sim.study.execution.cluster import Cluster, ClusterError
from sim.study.execution.cores import ProcessPool
from sim.study.execution.durable import POINTS
from sim.yamlio import dump

pytestmark = pytest.mark.slow

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
  - name: another name for a
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 4, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
sweep: {workload.trace.rate_scale: [%s]}
"""
SPEEDS = [0.5 + 0.2 * i for i in range(10)]


@pytest.fixture(scope="module")
def scenario(tmp_path_factory) -> Scenario:
    folder = tmp_path_factory.mktemp("spread")
    rows = [f"{0.3 * i:.1f},{100 + i % 50},{20 + i % 30}" for i in range(200)]
    (folder / "requests.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    (folder / "s.yaml").write_text(SCENARIO % ", ".join(f"{speed:g}" for speed in SPEEDS))
    return load(folder / "s.yaml", (), catalog=CATALOG)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start beside many others take their time."""
    monkeypatch.setattr(cluster, "CONNECT_S", START_S)
    monkeypatch.setattr(cluster, "WORKERS_S", START_S)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.stop()


def jobs(scenario: Scenario, out: Path) -> list[CaseJob]:
    return jobs_of(scenario, cases(scenario), CATALOG, out)


@pytest.fixture(scope="module")
def here(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files that this process computes for all points."""
    folder = tmp_path_factory.mktemp("here")
    for job in jobs(scenario, folder):
        job.run()
    return contents(folder / POINTS)


def test_killed_worker_loses_no_point(
    scenario: Scenario, here: dict[str, bytes], machines: Machines, tmp_path: Path
) -> None:
    workers = [machines.worker(), machines.worker()]
    work = jobs(scenario, tmp_path / "there")
    seen = []
    with Cluster(machines.address) as place:
        for job in simulated(place, work):
            seen.append(job.folder)
            if len(seen) == 4:
                workers[0].send_signal(signal.SIGKILL)
    assert sorted(seen) == sorted(job.folder for job in work)
    assert contents(tmp_path / "there/points") == here


def test_lost_worker_is_named_if_it_had_work() -> None:
    told: list[str] = []
    place = Cluster("tcp://here:1", report=told.append)
    place._client = SimpleNamespace(
        scheduler=SimpleNamespace(ncores_running=None), sync=lambda *_, **__: {"tcp://b:2": 1}
    )  # type: ignore[assignment]
    place._fit, place._working = {"tcp://a:1", "tcp://b:2", "tcp://idle:3"}, {"tcp://a:1", "tcp://b:2"}
    for _ in range(2):
        assert place._refresh_workers() == {"tcp://b:2"}
    assert told == ["worker tcp://a:1 is lost; its simulations run again elsewhere"]


def test_the_command_runs_on_the_cluster_and_continues_from_finished_cases(
    scenario: Scenario, machines: Machines, tmp_path: Path
) -> None:
    machines.worker()
    first = Path(scenario.workload.trace.path)
    file, second = first.with_name("plain.yaml"), first.with_name("others.csv")
    file.write_text(dump(as_data(scenario)))
    second.write_text("".join(first.read_text().splitlines(keepends=True)[:60]))
    swept = f"sweep={{workload.trace.rate_scale: [1, 2], workload.trace.path: [{first}, {second}]}}"
    command = ["run", str(file), "--no-report", "--set", swept]
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


OTHER = """\
from sim.study.execution import cluster
usual = cluster._program()
cluster._program = lambda: usual | {"gpufleet": "1.0 (of yesterday)", "numpy": "0.9"}
"""
SLOW = """\
import time
from sim.study.execution.cases import CaseJob
def run(self, foundations=None):
    time.sleep(300)
CaseJob.run = run
"""


def joined(machines: Machines, count: int) -> None:
    """Wait until *count* workers have joined."""
    with Client(machines.address, set_as_default=False) as client:
        client.wait_for_workers(count, timeout=START_S)


def test_a_worker_with_another_program_is_named_and_left_out(
    scenario: Scenario, here: dict[str, bytes], machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REFRESH_S", 0.2)
    machines.worker(OTHER)
    work, told = jobs(scenario, tmp_path / "there"), []
    joined(machines, 1)
    machines.worker()
    with Cluster(machines.address, START_S, told.append) as place:
        done = [job.folder for job in simulated(place, work)]
    assert sorted(done) == sorted(job.folder for job in work)
    (line,) = told
    assert line.startswith("worker tcp://127.0.0.1:")
    assert "has gpufleet 1.0 (of yesterday) instead of " in line
    assert "numpy 0.9 instead of " in line
    assert line.endswith("it gets no cases; install the same on both")
    assert contents(tmp_path / "there/points") == here


def test_a_worker_with_another_program_may_come_later(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REFRESH_S", 3600.0)  # only its answers show what it is
    machines.worker()
    joined(machines, 1)
    work, told, done = jobs(scenario, tmp_path), [], []
    with Cluster(machines.address, START_S, told.append) as place:
        place._connected()
        machines.worker(OTHER)
        joined(machines, 2)
        done = [job.folder for job in simulated(place, work)]
    assert sorted(done) == sorted(job.folder for job in work)
    assert len(told) == 1
    assert "of yesterday" in told[0]


def test_a_worker_computes_nothing_for_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "get_worker", lambda: SimpleNamespace(address="tcp://there"))
    unfit, other = cluster.ProgramMismatch("tcp://there", cluster._program()), {"gpufleet": "1.0 (of yesterday)"}
    assert cluster.simulate_on_worker(other, b"", [], []) == unfit
    assert cluster.call_on_worker(other, b"", [], pytest.fail, SCENARIO, ("called",)) == unfit


def test_workers_of_another_program_alone_end_the_run(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REFRESH_S", 0.2)
    machines.worker(OTHER)
    joined(machines, 1)
    message = r"no worker .* has this program: .*of yesterday.*install the same on both"
    with pytest.raises(ClusterError, match=message), Cluster(machines.address, 0.5) as place:
        list(simulated(place, jobs(scenario, tmp_path)[:2]))
    assert not (tmp_path / POINTS).exists()


def test_the_first_worker_may_come_when_there_is_work(scenario: Scenario, machines: Machines, tmp_path: Path) -> None:
    """An adaptive deployment starts workers for the tasks that its scheduler has."""

    def adapt() -> None:
        with Client(machines.address, set_as_default=False) as client:
            while not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)):
                time.sleep(0.05)
        machines.worker()

    work = jobs(scenario, tmp_path)[:3]
    thread = Thread(target=adapt, daemon=True)
    thread.start()
    with Cluster(machines.address, START_S) as place:
        assert len(list(simulated(place, work))) == len(work)
    thread.join()


def test_a_straggler_is_copied_to_an_idle_worker(
    scenario: Scenario, here: dict[str, bytes], machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REFRESH_S", 0.2)
    monkeypatch.setattr(cluster, "LONG_LEAST_S", 0.4)
    machines.worker(SLOW)
    machines.worker()
    joined(machines, 2)
    work, told = jobs(scenario, tmp_path / "there"), []
    with Cluster(machines.address, START_S, told.append) as place:
        done = [job.folder for job in simulated(place, work)]
    assert sorted(done) == sorted(job.folder for job in work)
    assert told
    assert all(re.fullmatch(r"a case runs for \d+ s on tcp://.*; it is started on tcp://.*, too", one) for one in told)
    assert contents(tmp_path / "there/points") == here


@pytest.mark.parametrize(("address", "warned"), [("tcp://127.0.0.1:9", True), ("tls://127.0.0.1:9", False)])
def test_an_address_without_tls_warns(
    scenario: Scenario, tmp_path: Path, address: str, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 0.2)
    file = Path(scenario.workload.trace.path).with_name("s.yaml")
    done = CliRunner().invoke(
        app, ["run", str(file), "--out", str(tmp_path / "o"), "--cluster", address, "--wait", "1"]
    )
    assert done.exit_code == 1
    lines = [line for line in done.stderr.splitlines() if "neither encrypted nor authenticated" in line]
    assert len(lines) == warned
    assert all("use tls://" in line for line in lines)


def test_missing_workers_and_scheduler_are_reported(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = jobs(scenario, tmp_path)[:1]
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    monkeypatch.setattr(cluster, "REFRESH_S", 0.2)
    message = r"no worker has joined .* in 0.5 s \(--wait\)"
    with pytest.raises(ClusterError, match=message), Cluster(machines.address, 0.5) as place:
        list(simulated(place, work))
    with pytest.raises(ClusterError, match="no scheduler answers at"):
        list(simulated(Cluster("tcp://127.0.0.1:9"), work))


def test_lost_scheduler_keeps_finished_cases(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.worker()
    work, seen = jobs(scenario, tmp_path), []

    def run() -> None:
        with Cluster(machines.address) as place:
            for job in simulated(place, work):
                seen.append(job.folder)
                monkeypatch.setattr(cluster, "CONNECT_S", 0.5)  # results that the scheduler no longer sends
                machines.stop()

    with pytest.raises(ClusterError, match="no longer answers; finished cases are kept"):
        run()
    assert 0 < len(seen) < len(work)
    assert set(seen) == set((tmp_path / POINTS).iterdir())


@pytest.mark.parametrize("asked", ["run", "processing"])
def test_scheduler_lost_during_a_query_is_reported(asked: str) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise CommClosedError("ConnectionPool closing.")

    found: dict[str, Any] = {"run": lambda *_, **__: {"tcp://there": cluster._program()}, asked: gone}
    scheduler = SimpleNamespace(ncores_running=None)
    place = Cluster("tcp://gone")
    place._client = SimpleNamespace(
        status="running", scheduler=scheduler, sync=lambda *_, **__: ["tcp://there"], **found
    )
    with pytest.raises(ClusterError, match=r"the scheduler at tcp://gone no longer answers; finished cases are kept"):
        place._next_done(cluster.SubmittedCalls())


class LostResult:
    """Future whose worker has left with its result."""

    key, status = "case", "lost"

    def add_done_callback(self, put: Callable[[Any], None]) -> None:
        put(self)

    def done(self) -> bool:
        return self.status == "finished"

    def result(self, timeout: float) -> str:
        if self.status == "lost":
            raise TimeoutError
        return "value"


@pytest.mark.parametrize("left", [["tcp://there"], []])
def test_result_lost_with_its_worker_is_awaited_while_workers_are_left(
    monkeypatch: pytest.MonkeyPatch, left: list[str]
) -> None:
    monkeypatch.setattr(cluster, "REFRESH_S", 0.0)
    place, group, future = Cluster("tcp://here", wait_s=0.0), cluster.SubmittedCalls(), LostResult()

    def workers(*_: Any, **__: Any) -> list[str]:
        future.status = "finished" if left else "lost"
        return left

    place._any_joined = True
    place._client = SimpleNamespace(
        status="running",
        scheduler=SimpleNamespace(ncores_running=None),
        sync=workers,
        run=lambda *_, **__: {"tcp://there": cluster._program()},
        processing=dict,
    )
    place._follow(group, cluster._Work("job", ()), future)
    if left:
        assert place._answer(group) == ("job", "value")
    else:
        with pytest.raises(ClusterError, match="no worker is left"):
            place._answer(group)


def test_when_no_worker_is_left_the_run_ends(
    scenario: Scenario, machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, work, seen = machines.worker(), jobs(scenario, tmp_path), []
    monkeypatch.setattr(cluster, "REFRESH_S", 0.1)

    def run() -> None:
        with Cluster(machines.address, START_S) as place:
            for job in simulated(place, work):
                seen.append(job.folder)
                place._wait_s = 0.5
                monkeypatch.setattr(cluster, "CONNECT_S", 0.5)  # results that the scheduler does not yet miss
                worker.kill()

    with pytest.raises(ClusterError, match=r"no worker is left at .*; finished cases are kept"):
        run()
    assert 0 < len(seen) < len(work)
    assert set(seen) == set((tmp_path / POINTS).iterdir())


def power(scenario: Scenario, catalog: Catalog, base: int, exponent: int) -> float:
    assert scenario.name == "spread"
    assert catalog.gpu("rtx-4090").id == "rtx-4090"
    return base**exponent


def test_values_come_back_with_their_places(scenario: Scenario) -> None:
    items = [(i, 2) for i in range(9)]
    for cores in (ProcessPool(1), ProcessPool(2)):
        with cores as place:
            assert dict(place.map(Call(power, scenario, CATALOG), items)) == {i: i**2 for i in range(9)}
            with pytest.raises(ZeroDivisionError):
                list(place.map(Call(power, scenario, CATALOG), [(0, -1)]))


def test_this_process_and_another_do_each_job_once(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cores_module, "ALONE_S", 0)
    work = jobs(scenario, tmp_path)
    with ProcessPool(2) as cores:
        done = [job.folder for job in simulated(cores, work)]
    assert sorted(done) == sorted(job.folder for job in work)
    assert len(set(done)) == len(done)


def test_duplicate_case_is_simulated_once(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores_module, "may_fork", lambda: True)
    work = jobs(scenario, tmp_path)[:6]
    with ProcessPool(2, fork=True) as cores:
        done = [job.folder for job in do_missing(cores, [*work, *work])]
        assert sorted(done) == sorted(job.folder for job in work)
        assert list(do_missing(cores, work)) == []
