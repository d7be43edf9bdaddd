"""Every price of a scenario may be in another currency; what has no rate is reported as that, and all at once."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import ran

from sim.catalogue.catalog import load_catalog
from sim.cost.ledger import LedgerRow
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sweep import as_data
from sim.yamlio import dump

RATE = 1.25
FIXED = {"distribution": "fixed", "value": 100}
BASIS: dict[str, Any] = {
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 2}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 120,
    "warmup_s": 20,
    "starts_at": "2026-07-01T08:00:00",
}
DAY = [0.1] * 8 + [0.3] * 16


def priced(price: Any) -> dict[str, Any]:
    """A scenario with a price of every kind, stated as *price* makes it from an amount."""
    return BASIS | {
        "fleets": [
            {
                "name": "f",
                "pools": [{"gpu": "rtx-4090", "server": "workstation-1x4090"}],
                "cost": {"acquisition": "buy", "quotes": {"rtx-4090": price(1900), "workstation-1x4090": price(1000)}},
            }
        ],
        "site": {
            "pue": 1.2,
            "electricity": {"hourly_usd_per_kwh": [price(usd) for usd in DAY]},
            "hosting": {"per": "kw_month", "usd": price(200), "kw": 2},
        },
        "operations": {
            "failures": {"per_gpu_year": 0.1, "covered_fraction": 0.5, "handling_usd": price(150)},
            "spares": {"fraction_of_gpus": 0.1, "gpu_price": price(1700)},
            "deployment": {"usd_per_server": price(300)},
            "decommissioning": {"usd_per_server": price(90)},
            "staff": {"fte": 1, "usd_per_fte_year": price(100_000), "over_gpus": 400},
            "software": {"usd_per_gpu_year": price(100), "usd_per_server_year": price(60)},
            "egress": {"usd_per_gb": price(0.1), "bytes_per_output_token": 200},
        },
        "api": {"input": price(2), "output": price(8)},
        "finance": {"method": "annuity", "discount_rate": 0.1, "life_years": 4, "fx": {"EUR": RATE}},
    }


def euros(usd: float) -> dict[str, Any]:
    return {"price": usd / RATE, "currency": "EUR"}


def billed(folder: Path, data: dict[str, Any]) -> tuple[list[LedgerRow], float]:
    """The ledger's rows, and what the API would cost."""
    result = ran(folder, data)
    assert result.plan.costs is not None
    assert result.plan.costs.api is not None
    assert result.ledger is not None
    return list(result.ledger.rows), result.plan.costs.api.usd(1e6, 0, 1e6)


@pytest.mark.slow
def test_the_same_prices_in_euros_are_the_same_bill(tmp_path: Path) -> None:
    in_dollars, api_in_dollars = billed(tmp_path, priced(lambda usd: usd))
    in_euros, api_in_euros = billed(tmp_path, priced(euros))
    assert api_in_euros == pytest.approx(api_in_dollars)
    assert len({row.component for row in in_euros}) == 11
    for dollar, euro in zip(in_dollars, in_euros, strict=True):
        assert (euro.component, euro.phase, euro.source) == (dollar.component, dollar.phase, dollar.source)
        assert abs(euro.amount_nano_usd - dollar.amount_nano_usd) <= 1
        assert (dollar.currency, euro.currency, euro.fx_rate) == ("USD", "EUR", RATE)
        assert euro.amount_in_currency == pytest.approx(euro.amount_nano_usd / 1e9 / RATE)


@pytest.mark.slow
def test_a_days_prices_may_share_their_currency(tmp_path: Path) -> None:
    one_by_one = priced(euros)
    together = priced(euros)
    prices = [usd / RATE for usd in DAY]
    together["site"]["electricity"] = {"hourly_usd_per_kwh": {"price": prices, "currency": "EUR"}}
    assert billed(tmp_path, together) == billed(tmp_path, one_by_one)


def test_bare_numbers_are_stored_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(dump(priced(lambda usd: usd)))
    data = as_data(load(tmp_path / "s.yaml", catalog=load_catalog()))
    assert data["site"]["electricity"]["hourly_usd_per_kwh"] == DAY
    assert data["operations"]["failures"]["handling_usd"] == 150


def test_every_price_without_a_rate_is_reported_with_its_line_and_what_to_add(tmp_path: Path) -> None:
    data = priced(euros)
    data["finance"] = data["finance"] | {"fx": {"RMB": 0.138}, "currency": "EUR"}
    (tmp_path / "s.yaml").write_text(dump(data))
    with pytest.raises(ScenarioErrors) as error:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    problems = {problem.where: problem for problem in error.value.errors}
    assert set(problems) == {
        *("fleets.0.cost.quotes.rtx-4090", "fleets.0.cost.quotes.workstation-1x4090"),
        *("site.electricity.hourly_usd_per_kwh", "site.hosting.usd", "api.input", "api.output", "finance.currency"),
        *("operations.failures.handling_usd", "operations.spares.gpu_price", "operations.deployment.usd_per_server"),
        *("operations.decommissioning.usd_per_server", "operations.staff.usd_per_fte_year"),
        *("operations.software.usd_per_gpu_year", "operations.software.usd_per_server_year"),
        "operations.egress.usd_per_gb",
    }
    for problem in problems.values():
        assert "in EUR, whose rate is missing: add finance.fx: {EUR: <US dollars per EUR>}" in problem.message
        assert problem.line


def test_a_catalogue_price_without_a_rate_is_reported_as_that(tmp_path: Path) -> None:
    data = priced(lambda usd: usd)
    data["fleets"][0] |= {"pools": [{"gpu": "a100-80gb-pcie"}]}
    data["fleets"][0]["cost"] = {"acquisition": "rent", "price": "server-8x80gb-china/china-on-demand-2024-07"}
    data["finance"] = {"method": "straight_line", "life_years": 4}
    del data["operations"]
    (tmp_path / "s.yaml").write_text(dump(data))
    with pytest.raises(ScenarioErrors) as error:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    [found] = error.value.errors
    assert found.where == "fleets.0.cost.price"
    assert "data/prices: server-8x80gb-china/china-on-demand-2024-07 is in RMB, whose rate is missing" in found.message


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (-1, "must be 0 or more, not -1"),
        ("cheap", "a number of US dollars or {price: ..., currency: ...} is needed, not 'cheap'"),
        ({"price": 1, "currency": "euro"}, "three capital letters"),
        ({"price": 1, "curency": "EUR"}, "did you mean currency"),
    ],
)
def test_invalid_prices_are_reported_with_their_path(tmp_path: Path, wrong: Any, text: str) -> None:
    data = priced(lambda usd: usd)
    data["operations"]["deployment"] = {"usd_per_server": wrong}
    (tmp_path / "s.yaml").write_text(dump(data))
    with pytest.raises(ScenarioErrors) as error:
        load(tmp_path / "s.yaml", catalog=load_catalog())
    [problem] = error.value.errors
    assert problem.where.startswith("operations.deployment.usd_per_server")
    assert text in problem.message
