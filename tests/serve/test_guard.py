"""Requests that the server refuses, whatever they ask for."""

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from sim.serve.guard import MOST_BODY_BYTES, Access
from sim.serve.http_server import application
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
    for address in ("/healthz", f"/static/page.css?token={access.token}"):
        assert server(tmp_path, access).get(address, headers={"host": host}).status_code == status


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8765", "http://127.0.0.1:1"])
def test_pages_of_others_are_refused(client: TestClient, origin: str) -> None:
    assert client.get("/api/workspace", headers={"origin": origin}).status_code == 403
    assert client.get("/api/workspace").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_a_change_needs_more_than_the_cookie(tmp_path: Path, access: Access, method: str) -> None:
    cookie = {"cookie": f"{access.cookie}={access.token}"}
    for proof in ({}, {"x-csrf-token": ""}, {"x-csrf-token": "wrong"}, {"x-csrf-token": access.token}):
        answer = server(tmp_path, access).request(method, "/api/workspace", headers=cookie | proof)
        assert (answer.status_code, "reload the page" in answer.text) == (403, True)
    for proof in (cookie | {"x-csrf-token": access.change_token}, {"authorization": f"Bearer {access.token}"}):
        assert server(tmp_path, access).request(method, "/api/workspace", headers=proof).status_code == 405
    proof = {"x-csrf-token": access.change_token}
    assert server(tmp_path, access).request(method, "/api/workspace", headers=proof).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_all_but_the_health_needs_the_token(tmp_path: Path, host: str) -> None:
    access = Access.of(host, 8765)
    client = server(tmp_path, access)
    assert client.get("/healthz").status_code == 200
    other = Access.of(host, 8765).token
    for address in ("/", "/?token=", f"/?token={other}", "/api/workspace", "/static/page.css", "/nowhere"):
        answer = client.get(address, headers={"authorization": f"Bearer {other}", "cookie": f"{access.cookie}={other}"})
        assert (answer.status_code, "open the whole address" in answer.text) == (401, True)
        assert other not in answer.text
    for headers in ({"cookie": f"{access.cookie}={access.token}"}, {"authorization": f"bearer {access.token}"}):
        assert client.get("/api/workspace", headers=headers).status_code == 200
    assert client.get("/", headers={"cookie": f"gpufleet-token-1={access.token}"}).status_code == 401


def test_the_token_in_the_address_is_kept_in_a_cookie(tmp_path: Path, access: Access) -> None:
    answer = server(tmp_path, access).get(f"/?run=outputs/demo&token={access.token}")
    assert answer.status_code == 200  # also for programs that keep no cookies
    kept = f"gpufleet-token-8765={access.token}; Path=/; HttpOnly; SameSite=Strict"
    assert answer.headers.get_list("set-cookie") == [kept]
    assert access.token not in answer.text
    assert access.change_token in answer.text
    assert "set-cookie" not in server(tmp_path, access).get("/?token=wrong").headers


def test_no_token_is_for_reading_only(tmp_path: Path) -> None:
    access = Access.of("127.0.0.1", 8765, is_open=True)
    assert server(tmp_path, access).get("/api/workspace").status_code == 200
    assert server(tmp_path, access).post("/api/jobs", json={}).status_code == 403
    proof = {"x-csrf-token": access.change_token}
    assert server(tmp_path, access).post("/api/jobs", json={}, headers=proof).status_code == 400


def test_names_are_refused_on_every_address(tmp_path: Path) -> None:
    access = Access.of("0.0.0.0", 8765)
    proof = {"authorization": f"Bearer {access.token}"}
    for host, status in (("192.0.2.7:8765", 200), ("192.0.2.7:x", 403), ("made-to-point-here.example:8765", 403)):
        assert server(tmp_path, access).get("/", headers=proof | {"host": host}).status_code == status


def test_browsers_may_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in page.text.replace("<meta http-equiv", "")
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.slow
def test_large_requests_are_refused(client: TestClient) -> None:
    large = b"x" * 10_000_000
    assert client.post("/api/workspace", content=large).status_code == 413
    assert client.post("/api/workspace", headers={"content-length": "-1"}).status_code == 413
    assert len(large) > MOST_BODY_BYTES
    assert client.get("/", params={"run": "x" * 20_000}).status_code == 414


@pytest.mark.slow
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
