"""A thousand requests at once: some are asked to retry, and every accepted change is kept."""

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from small_scenario import SMALL

from sim.serve import jobs
from sim.serve.guard import MOST_AT_ONCE, Access
from sim.serve.http_server import application
from sim.serve.workspace import Workspace

pytestmark = pytest.mark.slow

BASE = "http://127.0.0.1:8765"


def test_a_burst_is_answered_and_loses_nothing(tmp_path: Path, access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", "raise SystemExit(0)"))
    (tmp_path / "small.yaml").write_text(SMALL)
    app = application(Workspace(tmp_path), access)

    async def asked() -> tuple[list[httpx2.Response], list[httpx2.Response], list[dict[str, Any]]]:
        headers = {"origin": BASE, "authorization": f"Bearer {access.token}"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE, headers=headers) as client:
            reads: list[Awaitable[httpx2.Response]] = [client.get("/api/jobs") for _ in range(980)]
            starts = [client.post("/api/jobs", json={"path": "small.yaml", "set": [f"seed={i}"]}) for i in range(20)]
            mixed = [*reads[:40], *starts[:10], *reads[40:], *starts[10:]]
            found = await asyncio.gather(*mixed)
            started = [*found[40:50], *found[990:]]
            assert (await client.get("/api/jobs")).status_code == 200
            return found, started, (await client.get("/api/jobs")).json()["jobs"]

    found, started, listed = asyncio.run(asked())
    busy = [one for one in found if one.status_code == 503]
    assert len(found) - len(busy) >= MOST_AT_ONCE
    assert busy
    assert {one.status_code for one in found} == {200, 503}
    assert {(one.text.count("\n"), one.headers["retry-after"]) for one in busy} == {(1, "1")}
    accepted = {one.json()["job"]["id"] for one in started if one.status_code == 200}
    assert accepted
    assert {job["id"] for job in listed} == accepted
