"""Answers of `breakeven` and `plan` as pages, under other loans, leases and taxes."""

from collections.abc import Iterator
from typing import Any

import pytest
from financed_answers import answered, few_loads
from starlette.testclient import TestClient

from sim.serve.adjustable_inputs import AdjustableInput, stated_amount
from sim.serve.guard import Access
from sim.serve.http_server import application
from sim.serve.workspace import Workspace
from sim.yamlio import parse

TAX = "finance.tax.rate"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder, access = tmp_path_factory.mktemp("questions"), Access.of("127.0.0.1", 8765)
    headers = {"cookie": f"{access.cookie}={access.token}"}
    with few_loads():
        for name in ("breakeven", "plan"):
            answered(folder, name)
        with TestClient(application(Workspace(folder), access), "http://127.0.0.1:8765", headers=headers) as found:
            yield found


def asked(client: TestClient, *sets: str, run: str = "breakeven", of: str = "answer", **more: str) -> Any:
    return client.get(f"/api/{of}" if of != "export" else "/export", params={"run": run, "set": list(sets), **more})


@pytest.mark.slow
def test_the_ways_to_pay_stand_side_by_side(client: TestClient) -> None:
    told = asked(client).json()
    (table,) = told["beside"]
    assert [row[:2] for row in table["rows"]] == [
        ["own bought", "own money"],
        ["own bought", "loan"],
        ["own bought", "leasing"],
        ["own rented", "not bought"],
    ]
    assert told["verdict"]["headline"].startswith("At 4 req/s, own bought is the cheapest: ")
    assert "After financing and tax, own bought " in told["verdict"]["headline"]
    cheapest = min((row[2], row[0]) for row in table["rows"])
    assert f" Financed by leasing, {cheapest[1]} costs less still: {cheapest[0]}. " in told["verdict"]["headline"]
    assert told["verdict"] == asked(client, of="verdict").json()
    for bill in told["gap"]:
        assert sum(bill["parts"].values()) == pytest.approx(bill["total"])
    groups = {one["path"]: one.get("group", "") for one in told["inputs"]}
    first = [path for path, group in groups.items() if group == "Financing and tax"]
    lease = "breakeven.financing.leasing.lease"
    assert first == [
        *("finance.loan.share", "finance.loan.rate", "finance.loan.term_months", TAX),
        *(f"{lease}.payment", f"{lease}.term_months", "finance.discount_rate"),
    ]
    assert "site.pue" in groups
    (term,) = (one for one in told["inputs"] if one["path"] == f"{lease}.term_months")
    assert term["choices"] == [1, 2, 3, 4, 6, 12], "the terms that fill a life of a year"
    assert asked(client, of="marks").json()["marks"] == {}
    assert asked(client, of="causes", between="own").status_code == 400


@pytest.mark.slow
def test_a_changed_verdict_names_the_changed_terms(client: TestClient) -> None:
    now = asked(client, f"{TAX}=0.405", "finance.loan.term_months=12").json()
    before = asked(client).json()
    changes = (
        "With corporate tax rate 40.5\u00a0% (scenario: 25\u00a0%), term of the loan 12 months (scenario: 9 months): "
    )
    assert now["verdict"]["headline"].startswith(changes)
    assert now["beside"] != before["beside"]
    assert (now["charts"], now["table"]["rows"][0][:3]) == (before["charts"], before["table"]["rows"][0][:3])
    rates = asked(client, "finance.discount_rate=0.2").json()["verdict"]["findings"]
    assert "Tipping points are not searched under changed terms: gpufleet breakeven searches them." in rates
    planned = asked(client, f"{TAX}=0.4", run="plan").json()
    assert planned["verdict"]["headline"].startswith("With corporate tax rate 40\u00a0% (scenario: 25\u00a0%): ")
    unpaid = asked(client, "finance.loan=null", run="plan").json()["verdict"]["headline"]
    assert unpaid.startswith("With finance.loan=null: ")
    assert "breakeven" not in str([one["path"] for one in planned["inputs"]]), "a plan has no such options"
    assert [row[1] for row in planned["beside"][0]["rows"]] == ["own money", "loan"]


@pytest.mark.slow
def test_bad_terms_are_refused_with_the_words_of_the_schema(client: TestClient) -> None:
    answer = asked(client, f"{TAX}=40")
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["path"]) == (422, f"--set {TAX}")
    assert error["message"] == "must be at most 1, not 40: 40 % is 0.4"


@pytest.mark.slow
def test_a_changed_answer_is_exported(client: TestClient) -> None:
    text = asked(client, f"{TAX}=0.4", of="export", format="yaml").text
    assert parse(text)["finance"]["tax"] == {"rate": 0.4}
    assert asked(client, f"{TAX}=0.4", of="export", format="xlsx").content.startswith(b"PK")
    table = asked(client, f"{TAX}=0.4", run="plan", of="export", format="csv")
    assert table.text.startswith("fleet,")


def test_amounts_are_stated_in_full() -> None:
    def stated(value: float | None, unit: str, *choices: int) -> str:
        return stated_amount(AdjustableInput("p", "", unit, value, 0.0, 1.0, choices=choices))

    assert [stated(0.12345, "per year"), stated(0.6, "of the price")] == ["12.345\u00a0%", "60\u00a0%"]
    assert [stated(1, "months", 1, 2), stated(9, "months", 9)] == ["1 month", "9 months"]
    assert [stated(1925.5, "USD each"), stated(1.2, ""), stated(None, "s")] == ["1925.5 USD each", "1.2", "none"]
