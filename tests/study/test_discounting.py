"""How a purchase is spread over the books never changes the rate of net present values."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cost.time_value import annuity_factor
from sim.report.words.money import rate_notes
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data
from sim.study.breakeven import booked_inputs
from sim.study.breakeven_costs import Ledgers, months
from sim.study.capacity import Capacity
from sim.study.discounting import levelised
from sim.study.execution.cores import Cores
from sim.yamlio import dump

CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 60}
POOL = {
    "gpu": "rtx-4090",
    "server": "workstation-1x4090",
    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}
BUY = {"acquisition": "buy", "quotes": {"workstation-1x4090": 1000, "rtx-4090": 2300}}
RENT = {"acquisition": "rent", "quotes": {"rtx-4090": 0.245}}
UPKEEP = 0.3425
"""Maintenance per year over the price of 3,300 $: 94.19 $ a month."""
SCENARIO: dict[str, Any] = {
    "name": "rates",
    "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 12,
    "slo": {"ttft_s": 1},
    "fleets": [{"name": "own", "pools": [POOL], "cost": BUY}, {"name": "let", "pools": [POOL], "cost": RENT}],
    "site": {"electricity_usd_per_kwh": 0, "pue": 1, "hosting": "none"},
    "operations": {"maintenance": {"fraction_per_year": UPKEEP}},
}


def finance(method: str, **more: Any) -> dict[str, Any]:
    return {"method": method, "life_years": 4, **more}


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rates")


def ledgers(points: Path, terms: dict[str, Any], **more: Any) -> Ledgers:
    scenario = Scenario.model_validate(SCENARIO | {"finance": terms} | more)
    capacities = [Capacity(fleet.name, 4.0, None, ()) for fleet in scenario.fleets]
    return Ledgers(scenario, CATALOG, points, Cores(1), capacities)


def present(found: Ledgers) -> dict[str, float]:
    """Net present cost by candidate, as ranking.csv has it."""
    costs = {one.name: found.cost(one, found.load).usd_per_h for one in found.candidates}
    return {name: found.horizon.net_present_usd(usd) for name, usd in costs.items()}


def test_straight_line_ranks_at_the_stated_rate(points: Path) -> None:
    """A purchase of 3,300 $ with 94.19 $ a month against a rent of 178.85 $ a month, over 48 months."""
    upkeep, rent = 3300 * UPKEEP / 12, 0.245 * 730
    for rate, cheapest in ((0.0, "own"), (0.15, "let")):
        now = present(ledgers(points, finance("straight_line", discount_rate=rate)))
        factor = annuity_factor(rate, 48)
        assert now == pytest.approx({"own": 3300 + upkeep * factor, "let": rent * factor})
        assert min(now, key=lambda name: now[name]) == cheapest


def test_the_method_changes_no_ranking(points: Path) -> None:
    terms = {"discount_rate": 0.15, "residual_fraction": 0.3, "inflation": {"rental": 0.1, "maintenance": 0.05}}
    straight, annuity = (ledgers(points, finance(method, **terms)) for method in ("straight_line", "annuity"))
    assert present(straight) == pytest.approx(present(annuity), rel=1e-12)


def test_the_rate_of_the_comparison_holds_for_fleets_with_terms_of_their_own(points: Path) -> None:
    """A fleet's own method and rate spread its purchase in the books; the comparison has one rate."""
    own = SCENARIO["fleets"][0] | {"finance": finance("annuity", discount_rate=0.3, residual_fraction=0.2)}
    found = ledgers(points, finance("annuity", discount_rate=0.05), fleets=[own, SCENARIO["fleets"][1]])
    cost = found.cost(found.candidates[0], found.load)
    path = months(cost.flows, cost.finance, 0.05, 48)
    assert present(found)["own"] == pytest.approx(path[-1].net_present_usd)


def test_terms_at_the_rate_of_the_comparison_stay_as_they_are() -> None:
    for terms in (finance("annuity", discount_rate=0.08), finance("straight_line")):
        scenario = Scenario.model_validate(SCENARIO | {"finance": terms})
        assert levelised(scenario) is scenario


def test_what_run_books_moves_with_the_rate_where_purchases_bear_interest() -> None:
    """A slider of the what-if panel, and an input of `sensitivity`, that changes nothing is not offered."""
    for method, offered in (("straight_line", False), ("annuity", True)):
        data = as_data(Scenario.model_validate(SCENARIO | {"finance": finance(method, discount_rate=0.15)}))
        assert ("finance.discount_rate" in booked_inputs(data)) is offered


def told(terms: dict[str, Any] | None) -> list[str]:
    return rate_notes(Scenario.model_validate(SCENARIO | {"finance": terms}))


def test_a_missing_rate_is_said_and_a_stated_zero_is_not() -> None:
    (silent,) = told(finance("straight_line"))
    assert silent.startswith("Nothing is discounted: finance.discount_rate is missing.")
    assert told(finance("straight_line", discount_rate=0.0)) == []
    (rated,) = told(finance("straight_line", discount_rate=0.15))
    assert rated.replace("\N{NO-BREAK SPACE}", " ").startswith("Payments are discounted at 15 % a year")
    assert told(finance("annuity", discount_rate=0.15)) == []


def answer(folder: Path, command: str, data: dict[str, Any]) -> dict[str, Any]:
    (folder / "s.yaml").write_text(dump(data))
    options = ["--out", str(folder / command), "--no-report", "--format", "json", "--workers", "1", "--force"]
    done = CliRunner().invoke(app, [command, str(folder / "s.yaml"), *options])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_size_chooses_by_the_rate(tmp_path: Path) -> None:
    data = {name: value for name, value in SCENARIO.items() if name != "fleets"}
    data |= {"model": "llama3.2-1b", "finance": finance("straight_line", discount_rate=0.15)}
    servers = {"rtx-4090": ["workstation-1x4090"]}
    data["size"] = {"gpus": ["rtx-4090"], "servers": servers, "max_replicas": 1, "tensor_parallel_sizes": [1]}
    data["size"] |= {"costs": {"own": BUY, "let": RENT}}
    found = answer(tmp_path, "size", data)
    upkeep = 3300 * UPKEEP / 8760
    owned = 3300 / annuity_factor(0.15, 48) / 730 + upkeep
    costs = {row["fleet"].split()[-1]: row["usd_per_h"] or row["at_least_usd_per_h"] for row in found["candidates"]}
    assert costs == pytest.approx({"own": owned, "let": 0.245}, rel=1e-6)
    assert found["winner"]["fleet"].endswith("let")
    assert "Payments are discounted at 15" in " ".join(found["verdict"]["findings"])
