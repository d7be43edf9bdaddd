"""Runs in the queue: once at a time, watched, stopped, and gone on with."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_scenario import SMALL
from starlette.testclient import TestClient

from sim.serve.queue import jobs

FAKE = """
import json, sys, time
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--out") + 1])
for number in range(6):
    (folder / "points" / str(number)).mkdir(parents=True, exist_ok=True)
    time.sleep(0.1)
(folder / "manifest.json").write_text(json.dumps({"program": "gpufleet", "status": "finished"}))
"""
"""A command that takes its time and no more."""


def started(client: TestClient, *sets: str, path: str = "small.yaml") -> Any:
    return client.post("/api/jobs", json={"path": path, "set": list(sets)})


def job_of(client: TestClient, name: str) -> dict[str, Any]:
    listed: list[dict[str, Any]] = client.get("/api/jobs").json()["jobs"]
    return next(job for job in listed if job["id"] == name)


def eventually(client: TestClient, name: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    for _ in range(600):
        job = job_of(client, name)
        if wanted(job):
            return job
        time.sleep(0.1)
    raise AssertionError(job)


def test_two_tabs_start_one_run_and_a_cancelled_one_goes_on_to_its_end(
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
    kept = eventually(client, job["id"], lambda one: one["state"] == "cancelled")["done"]

    again = started(client).json()["job"]
    assert (again["folder"], again["id"] != job["id"]) == (job["folder"], True)
    assert eventually(client, again["id"], lambda one: one["done"] > 0)["done"] >= kept
    done = eventually(client, again["id"], lambda one: one["state"] not in jobs.OPEN)
    assert (done["state"], done["done"], done["message"]) == ("done", 6, "")


def test_what_has_run_opens_and_what_fails_says_why(
    client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "sim").mkdir()
    (folder / "sim" / "__init__.py").write_text("raise SystemExit('not the program')")
    monkeypatch.setattr(jobs, "OPTIONS", (*jobs.OPTIONS, "--no-report"))
    (folder / "small.yaml").write_text(SMALL)
    job = started(client).json()["job"]
    done = eventually(client, job["id"], lambda one: one["state"] not in jobs.OPEN)
    assert (done["state"], done["done"], done["message"]) == ("done", 2, "")
    answer = client.get("/api/answer", params={"run": done["folder"]})
    assert answer.status_code == 200, answer.text
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", "raise SystemExit('no room on the disk')"))
    failed = started(client, "seed=4").json()["job"]
    told = eventually(client, failed["id"], lambda one: one["state"] not in jobs.OPEN)
    assert (told["state"], told["message"]) == ("failed", "no room on the disk")


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
