"""Runs in the queue: once at a time, watched, stopped, and gone on with."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from dask_machines import Machines, warm
from small_scenario import REFEREE, SMALL, variant
from starlette.testclient import TestClient

from sim.serve import jobs
from sim.serve.guard import Access
from sim.serve.http_server import application
from sim.serve.jobs import CommandQueue, JobLimits
from sim.serve.refusals import RefusedRequest
from sim.serve.workspace import Workspace

FAKE = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--out") + 1])
again = (folder / "points").exists()
for number in range(6):
    (folder / "points" / str(number)).mkdir(parents=True, exist_ok=True)
    if number == 2 and not again:
        time.sleep(600)
(folder / "manifest.json").write_text(json.dumps({"program": "gpufleet", "status": "finished"}))
"""
"""A command that is held up after three of its six cases until it is stopped, and finishes when it is started again."""
KEEPING = """
import shutil, sys
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--out") + 1])
folder.mkdir(parents=True, exist_ok=True)
shutil.copy(sys.argv[3], folder / "given.yaml")
(folder / "manifest.json").write_text('{"program": "gpufleet", "status": "finished"}')
"""
"""A command that keeps the scenario that it was given."""
SLEEPING = "import time; held = b'x' * 50_000_000; time.sleep(60)"


def started(client: TestClient, *sets: str, path: str = "small.yaml") -> Any:
    return client.post("/api/jobs", json={"path": path, "set": list(sets)})


def job_of(client: TestClient, name: str) -> dict[str, Any]:
    listed: list[dict[str, Any]] = client.get("/api/jobs").json()["jobs"]
    return next(job for job in listed if job["id"] == name)


def eventually(client: TestClient, name: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for _ in range(2400):
        job = job_of(client, name)
        if wanted(job):
            return job
        time.sleep(0.05)
    raise AssertionError(job)


@pytest.mark.slow
def test_two_tabs_start_one_run_and_a_cancelled_run_can_be_resumed(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", FAKE))
    (folder / "small.yaml").write_text(SMALL.replace("replications: 2", "replications: 6"))
    job = started(client).json()["job"]
    assert job["cases"] == 6
    assert started(client).json()["job"]["id"] == job["id"]
    other = started(client, "seed=9").json()["job"]
    assert other["folder"] != job["folder"]
    assert job_of(client, other["id"])["state"] == "waiting"
    assert client.delete(f"/api/jobs/{other['id']}").json()["job"]["state"] == "cancelled"
    eventually(client, job["id"], lambda one: one["done"] >= 1)
    client.delete(f"/api/jobs/{job['id']}")
    eventually(client, job["id"], lambda one: one["state"] == "cancelled")

    again = started(client).json()["job"]
    assert (again["folder"], again["id"] != job["id"]) == (job["folder"], True)
    done = eventually(client, again["id"], lambda one: one["state"] not in jobs.OPEN_STATES)
    assert (done["state"], done["done"], done["message"]) == ("done", 6, "")


@pytest.mark.slow
def test_finished_runs_open_and_failed_runs_state_the_reason(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sim").mkdir()
    (folder / "sim" / "__init__.py").write_text("raise SystemExit('not the program')")
    monkeypatch.setattr(jobs, "OPTIONS", (*jobs.OPTIONS, "--no-report", "--workers", "1"))
    (folder / "small.yaml").write_text(SMALL)
    job = started(client).json()["job"]
    done = eventually(client, job["id"], lambda one: one["state"] not in jobs.OPEN_STATES)
    assert (done["state"], done["done"], done["message"]) == ("done", 2, "")
    answer = client.get("/api/answer", params={"run": done["folder"]})
    assert answer.status_code == 200, answer.text
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", "raise SystemExit('no room on the disk')"))
    failed = started(client, "seed=4").json()["job"]
    told = eventually(client, failed["id"], lambda one: one["state"] not in jobs.OPEN_STATES)
    assert (told["state"], told["message"]) == ("failed", "no room on the disk")


NOTING = """
from pathlib import Path
from sim.study.execution.cases import CaseJob
CaseJob.usual = getattr(CaseJob, "usual", CaseJob.run)
def noting(self, *rest):
    Path("simulated").touch()
    return self.usual(*rest)
CaseJob.run = noting
"""
"""A worker that leaves a file where it simulates."""


@pytest.mark.slow
def test_runs_of_the_queue_simulate_on_the_cluster(
    tmp_path: Path, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "OPTIONS", (*jobs.OPTIONS, "--no-report"))
    for name in ("machines", "workspace"):
        (tmp_path / name).mkdir()
    (tmp_path / "workspace/requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,100,10\n")
    trace = {"workload": {"trace": {"path": "requests.csv", "format": "csv"}}}
    (tmp_path / "workspace/small.yaml").write_text(variant(REFEREE, trace))
    command = tmp_path / "command"
    command.write_text(warm().client("sim"))
    command.chmod(0o700)
    monkeypatch.setattr(jobs, "COMMAND", (str(command),))
    machines = Machines(tmp_path / "machines")
    machines.worker(NOTING)
    options = ["--cluster", machines.address, "--wait", "60"]
    server = application(Workspace(tmp_path / "workspace"), access, cluster=options)
    headers = {"x-csrf-token": access.change_token, "cookie": f"{access.cookie}={access.token}"}
    try:
        with TestClient(server, "http://127.0.0.1:8765", headers=headers) as client:
            job = started(client).json()["job"]
            done = eventually(client, job["id"], lambda one: one["state"] not in jobs.OPEN_STATES)
    finally:
        machines.stop()
    assert (done["state"], done["done"], done["message"]) == ("done", 1, "")
    assert (tmp_path / "machines/simulated").exists()


@pytest.mark.slow
def test_what_cannot_run_is_not_started(client: TestClient, folder: Path) -> None:
    assert started(client).status_code == 404
    (folder / "small.yaml").write_text(SMALL.replace("rtx-4090", "rtx-4900"))
    assert "did you mean" in started(client).json()["errors"][0]["message"]
    (folder / "small.yaml").write_text(SMALL)
    for value in ("horizon_s=-1", "workload.trace.path=/etc/passwd", "nothing"):
        assert started(client, value).status_code == 422
    assert client.delete("/api/jobs/none").status_code == 404
    assert client.get("/api/jobs").json() == {"jobs": []}
    (folder / "linked.yaml").symlink_to(folder / "small.yaml")
    assert started(client, path="linked.yaml").status_code == 403


@pytest.mark.parametrize("token", ["", "wrong"])
def test_nothing_starts_without_the_token(client: TestClient, token: str) -> None:
    assert client.post("/api/jobs", json={"path": "small.yaml"}, headers={"x-csrf-token": token}).status_code == 403


@pytest.mark.slow
def test_a_queued_run_is_the_scenario_that_was_checked(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", KEEPING))
    monkeypatch.setattr(CommandQueue, "_next", lambda _: None)  # until the files have changed
    (folder / "base.yaml").write_text(SMALL)
    (folder / "small.yaml").write_text("base: base.yaml\nname: kept\n")
    job = started(client, "seed=7", "horizon_s=6").json()["job"]
    (folder / "base.yaml").unlink()
    (folder / "base.yaml").symlink_to("/etc/hostname")
    (folder / "small.yaml").write_text("base: base.yaml\nname: other\n")
    monkeypatch.undo()
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", KEEPING))
    assert started(client).status_code == 422
    with queue_of(client)._changed:
        queue_of(client)._notify()
    assert eventually(client, job["id"], lambda one: one["state"] not in jobs.OPEN_STATES)["state"] == "done"
    given = (folder / job["folder"] / "given.yaml").read_text()
    assert all(part in given for part in ("name: kept", "seed: 7", "horizon_s: 6", "llama3.1-8b"))
    assert "base" not in given


def queue_of(client: TestClient) -> CommandQueue:
    routes = client.app.app.routes  # type: ignore[attr-defined]
    found: CommandQueue = next(one.endpoint.__self__.queue for one in routes if one.path == "/api/events")
    return found


@pytest.mark.slow
def test_the_queue_survives_whatever_is_sent(client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", KEEPING))
    (folder / "small.yaml").write_text(SMALL)
    assert started(client, f"name={'x' * 140_000}").status_code == 422
    rates = ", ".join([f"{1:.50f}"] * 2_600)  # 140,000 characters, and sound
    long = started(client, f"workload.arrivals={{process: profile, hourly_rps: [{rates}]}}").json()["job"]
    assert len(long["sets"][0]) == jobs.LONGEST_SHOWN
    assert eventually(client, long["id"], lambda one: one["state"] not in jobs.OPEN_STATES)["state"] == "done"
    for body in (
        b'{"path": "small.yaml", "set": ["name=\\ud800"]}',
        b'{"path": "small\\udfff.yaml"}',
        b'{"path": 1e999}',
    ):
        for address in ("/api/jobs", "/api/check"):
            assert client.post(address, content=body).status_code == 400
    assert started(client, *["seed=1"] * 61).status_code == 400
    monkeypatch.setattr(jobs, "RECORDING_WRAPPER", ("/no/such/program",))
    broken = started(client, "seed=2").json()["job"]
    told = eventually(client, broken["id"], lambda one: one["state"] not in jobs.OPEN_STATES)
    assert (told["state"], told["message"]) == ("failed", "it could not be started: No such file or directory")
    monkeypatch.undo()
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", KEEPING))
    again = client.post(f"/api/jobs/{broken['id']}").json()["job"]
    assert (again["id"], again["state"]) == (broken["id"], "waiting")
    assert eventually(client, broken["id"], lambda one: one["state"] not in jobs.OPEN_STATES)["state"] == "done"


@pytest.fixture
def queues(tmp_path: Path) -> Iterator[Callable[..., CommandQueue]]:
    """Servers of the same workspace; the processes that they have started end with the test."""
    made: list[CommandQueue] = []

    def queue(limits: JobLimits = JobLimits(24, 0)) -> CommandQueue:  # noqa: B008
        made.append(CommandQueue(Workspace(tmp_path), limits))
        made[-1].resume()
        return made[-1]

    yield queue
    made[-1].close()


def killed(queue: CommandQueue) -> None:
    """End the server of *queue* as kill -9 does: only the processes that it started are left."""
    queue._jobs = type(queue._jobs)()
    queue._set = lambda *_: None  # type: ignore[method-assign]
    assert queue._queue_lock is not None
    os.close(queue._queue_lock)
    queue._queue_lock = None


def put(queue: CommandQueue, name: str) -> jobs.QueuedCommand:
    return queue.add("small.yaml", name, name, [], 1, SMALL)


def reached(queue: CommandQueue, *states: str) -> list[dict[str, Any]]:
    """All jobs, the oldest first, once the oldest is in one of the *states*."""
    for _ in range(1200):
        listed = queue.listed()[::-1]
        if listed[0]["state"] in states and (listed[0]["state"] != "running" or pid_of(queue, listed[0])):
            return listed
        time.sleep(0.05)
    raise AssertionError(listed)


def pid_of(queue: CommandQueue, job: dict[str, Any]) -> int | None:
    return jobs._number(queue.queue_folder / job["id"] / jobs.PID)


@pytest.mark.slow
def test_a_server_finds_what_outlived_the_one_before(
    queues: Callable[..., CommandQueue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", SLEEPING))
    first = queues()
    put(first, "one"), put(first, "two")
    pid = pid_of(first, reached(first, "running")[0])
    with pytest.raises(RefusedRequest, match="another gpufleet serve"):
        put(queues(), "three")
    killed(first)

    second = queues()
    one, two = reached(second, "running")
    assert (pid_of(second, one), two["state"]) == (pid, "waiting")
    killed(second)
    os.killpg(pid or 0, signal.SIGKILL)
    for ended in (first, second):  # each would hold the lock for a moment when it tries it
        ended.close()

    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", KEEPING))
    third = queues()
    one, two = reached(third, "interrupted")
    assert "finished points are kept" in one["message"]
    third.again(one["id"])
    assert reached(third, "done")[0]["id"] == one["id"]
    while any(job["state"] in jobs.OPEN_STATES for job in third.listed()):
        time.sleep(0.05)
    third.close()
    assert [job["state"] for job in queues().listed()] == ["done", "done"]


@pytest.mark.parametrize(
    ("limits", "text"),
    [(JobLimits(1e-9, 0), "--run-hours"), (JobLimits(24, 0.02), "it needed more than 0.02 GB of memory (--run-gb)")],
)
def test_a_run_beyond_its_limits_is_stopped_with_a_reason(
    queues: Callable[..., CommandQueue], monkeypatch: pytest.MonkeyPatch, limits: JobLimits, text: str
) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", SLEEPING))
    queue = queues(limits)
    put(queue, "one")
    (one,) = reached(queue, "failed")
    assert text in one["message"]
    assert not jobs._is_locked(queue.queue_folder / one["id"] / jobs.LOCK)


def test_jobs_are_not_kept_behind_a_link(queues: Callable[..., CommandQueue], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".gpufleet").symlink_to(tmp_path / "elsewhere")
    queue = queues()
    with pytest.raises(RefusedRequest, match="links are not followed"):
        put(queue, "one")
    assert list((tmp_path / "elsewhere").iterdir()) == []
