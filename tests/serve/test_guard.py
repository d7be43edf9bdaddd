"""Who is refused, whatever is asked."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sim.serve.app import application
from sim.serve.guard import COOKIE, MOST_BODY_BYTES, Access
from sim.serve.workspace import Workspace

HOST = "127.0.0.1:8765"


def server(folder: Path, access: Access, host: str = HOST) -> TestClient:
    return TestClient(application(Workspace(folder), access), f"http://{host}", follow_redirects=False)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in (HOST, "localhost:8765", "LOCALHOST:8765", "[::1]:8765")),
        *((name, 403) for name in ("evil.example", "evil.example:8765", "127.0.0.1", "127.0.0.1.evil.example:8765")),
    ],
)
def test_it_answers_under_its_own_names_only(tmp_path: Path, access: Access, host: str, status: int) -> None:
    for address in ("/healthz", "/static/page.css"):
        assert server(tmp_path, access).get(address, headers={"host": host}).status_code == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:1"])
def test_pages_of_others_are_refused(client: TestClient, origin: str) -> None:
    assert client.get("/api/workspace", headers={"origin": origin}).status_code == 403
    assert client.get("/api/workspace").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_change_needs_its_token(tmp_path: Path, access: Access, method: str) -> None:
    for token in ({}, {"x-csrf-token": ""}, {"x-csrf-token": "wrong"}):
        answer = server(tmp_path, access).request(method, "/api/workspace", headers=token)
        assert (answer.status_code, "reload the page" in answer.text) == (403, True)


def test_beyond_this_machine_all_but_the_health_needs_a_token(tmp_path: Path) -> None:
    access = Access.of("0.0.0.0", 8765)
    client = server(tmp_path, access, "192.0.2.7:8765")
    assert client.get("/healthz").status_code == 200
    for address in ("/", "/?token=wrong", "/api/workspace", "/static/page.css"):
        assert client.get(address).status_code == 401
    assert client.get("/", headers={"host": "made-to-point-here.example:8765"}).status_code == 403
    moved = client.get(f"/?run=outputs/demo&token={access.token}")
    assert (moved.status_code, moved.headers["location"]) == (303, "/?run=outputs/demo")
    assert "HttpOnly" in moved.headers["set-cookie"]
    assert "SameSite=strict" in moved.headers["set-cookie"]
    assert client.get("/api/workspace", headers={"cookie": f"{COOKIE}={access.token}"}).status_code == 200
    assert client.get("/api/workspace", headers={"authorization": f"Bearer {access.token}"}).status_code == 200


def test_on_this_machine_no_token_is_asked_for() -> None:
    assert [Access.of(host, 1).token for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3")] == [""] * 4
    assert all(Access.of(host, 1).token for host in ("0.0.0.0", "::", "192.0.2.7", "gpu-box"))


def test_browsers_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in page.text.replace("<meta http-equiv", "")
    assert page.headers["x-content-type-options"] == "nosniff"


def test_large_requests_are_refused(client: TestClient) -> None:
    large = b"x" * 10_000_000
    assert client.post("/api/workspace", content=large).status_code == 413
    assert client.post("/api/workspace", headers={"content-length": "-1"}).status_code == 413
    assert len(large) > MOST_BODY_BYTES
    assert client.get("/", params={"run": "x" * 20_000}).status_code == 414


def test_the_list_has_what_lies_in_the_folder(client: TestClient, folder: Path) -> None:
    (folder / "mine.yaml").write_text("name: mine\n")
    (folder / ".hidden.yaml").write_text("name: hidden\n")
    (folder / "linked.yaml").symlink_to("/etc/hostname")
    (folder / "linked").symlink_to("/etc")
    found = client.get("/api/workspace").json()
    assert found["scenarios"] == ["mine.yaml"]
    assert [(run["path"], run["command"], run["finished"]) for run in found["runs"]] == [("outputs/demo", "run", True)]
    (folder / "outputs" / "demo" / "manifest.json").write_text(json.dumps({"program": "gpufleet", "status": "?"}))
    assert [run["finished"] for run in client.get("/api/workspace").json()["runs"]] == [False]
