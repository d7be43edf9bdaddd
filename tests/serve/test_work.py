"""A finished job as a page: its verdict, its bill at other prices, what is taken along."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from sim.answers.jobs import run_work
from sim.catalogue.catalog import load_catalog
from sim.jobs.load import load_job
from sim.scenario.reading.layers import options
from sim.scenario.reading.shipped import scenario_file

RUN = "outputs/job"
PRICE = "site.electricity_usd_per_kwh"


@pytest.fixture
def job(folder: Path) -> Path:
    catalog = load_catalog()
    scenario = load_job(scenario_file(Path("training-4090-vs-a100")), options({"sweep": None}), catalog=catalog)
    run_work(scenario, catalog, folder / RUN, report=False)
    return folder / RUN


@pytest.mark.slow
def test_a_job_is_a_page(client: TestClient, job: Path) -> None:
    def asked(*sets: str, of: str = "answer") -> Any:
        answer = client.get(f"/api/{of}", params={"run": RUN, "set": list(sets)})
        assert answer.status_code == 200
        return answer.json()

    told = asked()
    assert told["verdict"] == asked(of="verdict")
    assert (told["judged"], told["readings"], told["capacity"]) == (False, [], [])
    assert [chart["title"] for chart in told["charts"]] == ["Time", "Cost"]
    for bill in told["gap"]:
        assert sum(bill["parts"].values()) == pytest.approx(bill["total"])
    assert PRICE in {one["path"] for one in told["inputs"]}

    dear = asked(f"{PRICE}=9", of="gap")["gap"]
    with (job / "summary.csv").open() as file:
        stored = [float(row["cost_usd"]) for row in csv.DictReader(file)]
    assert [bill["total"] for bill in told["gap"]] == stored
    assert all(one["total"] > before for one, before in zip(dear, stored, strict=True))
    assert client.get("/api/answer", params={"run": RUN, "set": "job.tokens=1"}).status_code == 422
    assert client.get("/api/causes", params={"run": RUN, "between": ["a", "b"]}).status_code == 400


@pytest.mark.slow
def test_a_job_is_taken_along_at_moved_prices(client: TestClient, job: Path) -> None:
    listed = [one["format"] for one in client.get("/api/exports", params={"run": RUN}).json()["exports"]]
    assert listed == ["xlsx", "csv", "focus", "png", "svg", "html", "yaml"]
    answer = client.get("/export", params={"run": RUN, "set": f"{PRICE}=9", "format": "csv"})
    moved = [float(row["cost_usd"]) for row in csv.DictReader(io.StringIO(answer.text))]
    gap = client.get("/api/gap", params={"run": RUN, "set": f"{PRICE}=9"}).json()["gap"]
    assert moved == [bill["total"] for bill in gap]
    assert client.get("/export", params={"run": RUN, "format": "svg"}).text.startswith("<svg")
