"""Why one fleet is dearer, by property: found where `gpufleet sensitivity` has left it, else put into the queue."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sim.answers.folder import question_of
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import load
from sim.serve import jobs

FLEETS = ["4x RTX 4090", "2x A100 80GB"]
MOVED = {"site.pue": 1.2}
GAP = """\
load,clients,first,second,gap_usd,gap_usd_ci95,group,part_usd,part_usd_ci95
own,,4x RTX 4090,2x A100 80GB,-2.5,0.5,price,-4.0,0.25
own,,4x RTX 4090,2x A100 80GB,-2.5,0.5,power,1.5,
"""


def asked(client: TestClient, *sets: str, between: list[str] = FLEETS) -> Any:
    return client.get("/api/causes", params={"run": "outputs/demo", "set": list(sets), "between": between})


def keep_answer(folder: Path, values: dict[str, Any]) -> None:
    """Write the files that `gpufleet sensitivity outputs/demo/scenario.yaml --set ...` leaves, as far as they are
    read."""
    scenario = load(folder / "outputs/demo/scenario.yaml", options(values), catalog=load_catalog())
    kept = folder / "outputs" / "kept"
    kept.mkdir()
    manifest = {"program": "gpufleet", "status": "finished", "question": question_of("sensitivity", scenario)}
    (kept / "manifest.json").write_text(json.dumps(manifest))
    (kept / "gap.csv").write_text(GAP)


@pytest.mark.slow
def test_parts_are_those_of_the_same_question(client: TestClient, folder: Path) -> None:
    keep_answer(folder, {**MOVED, "sensitivity": {"between": FLEETS}})
    assert asked(client).json() == {"gaps": []}
    (gap,) = asked(client, "site.pue=1.2", "slo.ttft_s=9").json()["gaps"]
    assert (gap["load"], gap["gap"], gap["half"]) == ("own", -2.0, 0.4)  # in euros, at 1.25 USD
    assert [(one["group"], one["part"], one["half"]) for one in gap["parts"]] == [
        ("price", -3.2, 0.2),
        ("power", 1.2, None),
    ]
    (turned,) = asked(client, "site.pue=1.2", between=FLEETS[::-1]).json()["gaps"]
    assert (turned["gap"], turned["parts"][0]["part"]) == (2.0, 3.2)


@pytest.mark.slow
def test_a_missing_cost_gap_is_queued(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "COMMAND", (sys.executable, "-c", "raise SystemExit(0)"))
    params = {"run": "outputs/demo", "set": ["site.pue=1.2"], "between": FLEETS}
    job = client.post("/api/causes", params=params).json()["job"]
    assert (job["command"], job["scenario"]) == ("sensitivity", "outputs/demo/scenario.yaml")
    assert json.loads(job["sets"][1].partition("=")[2])["between"] == FLEETS
    assert client.post("/api/causes", params=params, headers={"x-csrf-token": ""}).status_code == 403
    assert asked(client, between=["4x RTX 4090", "nobody"]).status_code == 400
    assert asked(client, between=FLEETS[:1] * 2).status_code == 400
