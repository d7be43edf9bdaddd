"""Scenarios on the page: mistakes at their lines, nothing read from elsewhere, nothing overwritten."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import SMALL
from starlette.testclient import TestClient


def checked(client: TestClient, text: str, *sets: str, path: str = "small.yaml") -> Any:
    return client.post("/api/check", json={"path": path, "text": text, "set": list(sets)}).json()


def test_a_sound_scenario_has_fields_and_cases(client: TestClient) -> None:
    found = checked(client, SMALL)
    assert (found["errors"], found["cases"]) == ([], 2)
    fields = {one["path"]: one for one in found["fields"]}
    assert fields["workload.arrivals.rate_rps"]["value"] == 1
    assert fields["fleets.0.pools.0.gpu"]["value"] == "rtx-4090"
    assert "llama3.1-8b" in fields["model"]["choices"]
    assert checked(client, SMALL, "replications=5")["cases"] == 5


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("rate_rps: 1}", "rate_rps: -1}", 4, "must be above 0"),
        ("rtx-4090", "rtx-4900", 10, "did you mean rtx-4090"),
        ("horizon_s: 5", "horizon: 5", 6, "did you mean horizon_s?"),
        ("name: small", "name: [", 3, "not valid YAML"),
        ("name: small\n", "name: small\nname: twice\n", 2, "twice"),
    ],
)
def test_mistakes_are_shown_at_their_lines(client: TestClient, old: str, new: str, line: int, text: str) -> None:
    (found,) = [one for one in checked(client, SMALL.replace(old, new))["errors"] if one.get("line") == line]
    assert text in found["message"]


@pytest.mark.parametrize(
    "lines",
    [
        "base: ../../../etc/hostname\n",
        "base: /etc/hostname\n",
        "base: linked.yaml\n",
        "base: .hidden.yaml\n",
        "calibration: /etc/passwd\n",
        "sweep: {model: [llama3.1-8b, /etc]}\n",
    ],
)
def test_no_file_elsewhere_is_read(client: TestClient, folder: Path, lines: str) -> None:
    (folder / "linked.yaml").symlink_to("/etc/hostname")
    (folder / ".hidden.yaml").write_text(SMALL)
    (error,) = checked(client, SMALL + lines)["errors"]
    assert "outside the workspace" in error["message"]
    assert error["line"] == 11


@pytest.mark.slow
def test_a_base_of_a_base_and_a_set_value_stay_inside(client: TestClient, folder: Path) -> None:
    (folder / "base.yaml").write_text(f"{SMALL}base: ../other.yaml\n")
    assert "outside" in checked(client, "name: x\nbase: base.yaml\n")["errors"][0]["message"]
    for value in ("workload.trace.path=/etc/passwd", "workload.trace={path: ../x.csv, format: csv}", "model=/etc"):
        assert "outside" in checked(client, SMALL, value)["errors"][0]["message"]
    assert checked(client, SMALL, "model=qwen2-72b-instruct", "quantization=gptq-int4")["errors"] == []


@pytest.mark.slow
def test_odd_texts_are_answered(client: TestClient) -> None:
    for text in ("", "[]", "a: &x [*x]", "\0", "{" * 5000, "é" * 1000, "name: !!python/object:os.system x"):
        assert checked(client, text)["errors"]
    assert client.post("/api/check", content=b"\xff").status_code == 400
    assert client.post("/api/check", content=b"[" * 100_000).status_code == 400
    assert client.post("/api/check", json={"path": 1}).status_code == 400
    assert client.post("/api/check", json={"path": "../x.yaml", "text": SMALL}).status_code == 400

    def endless() -> Any:
        for _ in range(100):
            yield b"x" * 100_000

    assert client.post("/api/check", content=endless()).status_code == 413


def saved(client: TestClient, text: str, digest: str = "", path: str = "small.yaml") -> Any:
    return client.put("/api/scenario", json={"path": path, "text": text, "digest": digest})


@pytest.mark.slow
def test_what_somebody_else_has_changed_is_not_overwritten(client: TestClient, folder: Path) -> None:
    first = saved(client, SMALL).json()["digest"]
    assert client.get("/api/scenario", params={"path": "small.yaml"}).json() == {
        "path": "small.yaml",
        "text": SMALL,
        "digest": first,
    }
    assert saved(client, SMALL + "seed: 2\n").status_code == 409  # as a new file
    (folder / "small.yaml").write_text("changed")
    assert saved(client, SMALL + "seed: 3\n", first).status_code == 409
    assert (folder / "small.yaml").read_text() == "changed"
    for path in ("small.txt", "../small.yaml", ".small.yaml", "outputs/demo/manifest.json"):
        assert saved(client, SMALL, path=path).status_code == 400
    assert client.get("/api/scenario", params={"path": "outputs/demo/summary.csv"}).status_code == 400


@pytest.mark.slow
def test_templates_are_sound_starts(client: TestClient, folder: Path) -> None:
    listed = client.get("/api/templates").json()["templates"]
    assert [one["name"] for one in listed[:3]] == ["4x4090-vs-2xa100", "office", "chat-from-a-trace"]
    assert all(one["group"] and one["title"] != one["name"] for one in listed), "each has a question and a line"
    (folder / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,200,20\n")
    for name in ("new", "my-numbers", "office", "chat-from-a-trace", "training-4090-vs-a100"):
        text = client.get("/api/scenario", params={"template": name}).json()["text"]
        assert checked(client, text)["errors"] == []
    (folder / "requests.csv").unlink()
    (error,) = checked(client, client.get("/api/scenario?template=chat-from-a-trace").json()["text"])["errors"]
    assert (error["line"], "requests.csv" in error["message"]) == (9, True)
    assert client.get("/api/scenario", params={"template": "../x"}).status_code == 404


def test_the_schema_is_there_for_completion(client: TestClient) -> None:
    assert "fleets" in client.get("/api/schema").json()["properties"]
