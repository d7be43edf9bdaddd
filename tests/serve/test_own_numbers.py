"""The form of a reader's own numbers: what it writes is a sound scenario, and it reads what it has written."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import SMALL
from starlette.testclient import TestClient

from sim.catalogue.catalog import Catalog, load_catalog
from sim.serve.own_numbers import START, field_of, read, start, with_numbers
from sim.yamlio import dump, read_text


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def form(client: TestClient, text: str, **values: Any) -> Any:
    answer = client.post("/api/form", json={"path": "mine.yaml", "text": text, "set": [], "values": values})
    assert answer.status_code == 200
    return answer.json()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"load": "requests", "rate_rps": 2.5, "hours": 8},
        {"people": 12, "think_s": 0, "ttft_s": "", "hours": 0.5},
        {"currency": "CNY", "rate_usd": 0.14, "electricity": 0.8},
        {"prompt": 100, "answer": 2000, "fleets": [START["fleets"][1] | {"count": 4, "per_copy": 2}]},
    ],
)
def test_a_form_reads_what_it_has_written(catalog: Catalog, changes: dict[str, Any]) -> None:
    values = START | changes
    data, errors = with_numbers(start("mine", catalog), values, catalog)
    assert errors == []
    again = read(read_text(dump(data), "mine.yaml").data)
    assert again is not None
    used = set(values) - ({"rate_rps"} if values["load"] == "people" else {"people", "think_s"})
    assert {name: again[name] for name in used} == {name: values[name] for name in used}
    assert with_numbers(data, again, catalog) == (data, [])


def test_what_the_form_does_not_know_stays(catalog: Catalog) -> None:
    data = start("mine", catalog) | {"replications": 7}
    data["fleets"][0]["routing"] = {"policy": "random"}
    data["fleets"][0]["pools"][0]["batching"] = {"max_num_seqs": 8}
    found, _ = with_numbers(data, START | {"people": 10}, catalog)
    assert found["replications"] == 7
    assert found["fleets"] == data["fleets"]
    assert found["sweep"] == {"workload.arrivals.concurrency": [2, 5, 10, 20]}


def test_another_currency_prices_everything_in_it(catalog: Catalog) -> None:
    found, _ = with_numbers(start("mine", catalog), START | {"currency": "CNY", "rate_usd": 0.14}, catalog)
    assert found["site"]["electricity_usd_per_kwh"] == {"price": 0.12, "currency": "CNY"}
    assert found["fleets"][0]["cost"]["quotes"]["rtx-4090"] == {"price": 1900, "currency": "CNY"}
    assert found["fleets"][1]["cost"]["quotes"] == {"l40s": {"price": 0.9, "currency": "CNY"}}
    back, _ = with_numbers(found, START, catalog)
    assert back["fleets"][0]["cost"]["quotes"]["rtx-4090"] == 1900
    assert "fx" not in back["finance"]


def test_every_mistake_is_shown_at_its_field(catalog: Catalog) -> None:
    data = start("mine", catalog)
    rows = [START["fleets"][0] | {"count": 3, "per_copy": 2}, START["fleets"][1] | {"price": ""}]
    wrong = {"people": "many", "hours": 25, "electricity": "", "rate_rps": "-1", "prompt": "nan", "fleets": rows}
    found, errors = with_numbers(data, START | wrong, catalog)
    fields = ["people", "prompt", "hours", "electricity", "fleets.0.per_copy", "fleets.1.price"]
    assert ([one["field"] for one in errors], found) == (fields, data), "rate_rps is not in use, nothing is written"
    assert with_numbers(data, START | {"fleets": []}, catalog)[1][0]["field"] == "fleets"
    assert field_of("fleets.1.cost.quotes.l40s") == "fleets.1.price"
    assert field_of("horizon_s") == ""


@pytest.mark.slow
def test_the_server_fills_and_reads_the_form(client: TestClient) -> None:
    text = client.get("/api/scenario", params={"template": "my-numbers"}).json()["text"]
    found = form(client, text)
    assert (found["errors"], found["values"], found["text"]) == ([], START, text)
    moved = form(client, text, **START | {"people": 10})
    assert "concurrency: 10" in moved["text"]
    assert (moved["errors"], moved["cases"]) == ([], 24)
    (unknown,) = form(client, text, **START | {"model": "lama3"})["errors"]
    assert (unknown["field"], "did you mean" in unknown["message"]) == ("model", True)
    large = form(client, text, **START | {"model": "qwen2-72b-instruct", "quantization": "none"})["errors"]
    assert [one["field"] for one in large] == ["fleets.0.gpu", "fleets.1.gpu"]
    assert form(client, text.replace("horizon_s", "horizon"))["errors"][0]["field"] == ""
    assert form(client, "a: [")["values"] is None
    assert form(client, SMALL.replace("fleets:", "services: []\nfleets:"))["values"] is None


def test_the_form_needs_the_token_like_every_change(client: TestClient) -> None:
    body = {"path": "mine.yaml", "text": "name: x", "set": [], "values": {}}
    assert client.post("/api/form", json=body, headers={"x-csrf-token": ""}).status_code == 403
    for address in ("/api/form", "/vega.js"):
        assert client.get(address, headers={"cookie": ""}).status_code == 401
    assert client.post("/api/form", json=body | {"path": "../mine.yaml"}).status_code == 400
    assert client.post("/api/form", json=body | {"values": []}).status_code == 200
    assert client.post("/api/form", json=body | {"values": [1]}).status_code == 400


def test_a_new_form_has_a_free_name(client: TestClient, folder: Path) -> None:
    (folder / "my-numbers.yaml").write_text("name: taken")
    assert client.get("/api/scenario", params={"template": "my-numbers"}).json()["name"] == "my-numbers-2"
    choices = client.get("/api/form").json()
    assert (choices["server"]["workstation-2x4090"], choices["slots"]["workstation-2x4090"]) == ("rtx-4090", 2)
    assert {"rtx-4090", "l40s"} <= set(choices["gpu"])
