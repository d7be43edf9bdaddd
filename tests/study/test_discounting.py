"""One rate of net present values, however the books spread a purchase, against published worked examples.

Capital is paid at delivery, all else monthly in arrears.

One convention of time: capital at delivery, all else monthly in arrears; against worked examples of others.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.cost.cash_flow import CashFlows
from sim.cost.finance import Annuity, Finance
from sim.cost.financing import internal_rate
from sim.cost.time_value import Horizon, annuity_factor, price_factor
from sim.report.words.money import rate_notes
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data
from sim.study.booked_inputs import booked_inputs
from sim.study.breakeven_costs import CandidateLedgers, months
from sim.study.capacity import FleetCapacity
from sim.study.discounting import horizon_of, levelised
from sim.study.execution.cores import ProcessPool
from sim.study.financing import AfterTax
from sim.yamlio import dump

CATALOG = load_catalog()
FINANCE: TypeAdapter[Finance] = TypeAdapter(Finance)
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


def ledgers(points: Path, terms: dict[str, Any], **more: Any) -> CandidateLedgers:
    scenario = Scenario.model_validate(SCENARIO | {"finance": terms} | more)
    capacities = [FleetCapacity(fleet.name, 4.0, None, ()) for fleet in scenario.fleets]
    return CandidateLedgers(scenario, CATALOG, points, ProcessPool(1), capacities)


def present(found: CandidateLedgers) -> dict[str, float]:
    """Net present cost by candidate, as ranking.csv has it."""
    costs = {one.name: found.cost(one, found.load).usd_per_h for one in found.candidates}
    return {name: found.horizon.net_present_usd(usd) for name, usd in costs.items()}


@pytest.mark.slow
def test_straight_line_ranks_at_the_stated_rate(points: Path) -> None:
    """A purchase of 3,300 $ with 94.19 $ a month against a rent of 178.85 $ a month, over 48 months."""
    upkeep, rent = 3300 * UPKEEP / 12, 0.245 * 730
    for rate, cheapest in ((0.0, "own"), (0.15, "let")):
        now = present(ledgers(points, finance("straight_line", discount_rate=rate)))
        factor = annuity_factor(rate, 48)
        assert now == pytest.approx({"own": 3300 + upkeep * factor, "let": rent * factor})
        assert min(now, key=lambda name: now[name]) == cheapest


@pytest.mark.slow
def test_the_method_changes_no_ranking(points: Path) -> None:
    terms = {"discount_rate": 0.15, "residual_fraction": 0.3, "inflation": {"rental": 0.1, "maintenance": 0.05}}
    straight, annuity = (ledgers(points, finance(method, **terms)) for method in ("straight_line", "annuity"))
    assert present(straight) == pytest.approx(present(annuity), rel=1e-12)


@pytest.mark.slow
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


def test_missing_rate_is_reported_but_stated_zero_is_not() -> None:
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


@pytest.mark.slow
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


HOURS_PER_MONTH = 730


def bought(price: float, opex_per_month: float, finance: Annuity, removal: float = 0.0) -> CashFlows:
    """Hardware with a running cost, booked as the ledger books it."""
    capital = finance.usd_per_h(price) + finance.end_usd_per_h(removal)
    opex = {"staff": opex_per_month / HOURS_PER_MONTH}
    booked = {"gpu_capital": capital, **opex}
    return CashFlows(booked, {"gpu_capital": price}, opex, {"decommissioning": removal}, resold_usd=price)


def test_net_present_cost_of_published_forklift_example() -> None:
    # wizedu.com, question 30521: 25,000 and 700 a month for 60 months at 0.5 % a month, sold for 10,000
    rate = 1.005**12 - 1
    finance = Annuity(method="annuity", discount_rate=rate, life_years=5, residual_fraction=0.4)
    flows = bought(25_000, 700, finance)
    assert months(flows, finance, rate, 60)[-1].net_present_usd == pytest.approx(53_794.17, abs=0.005)
    assert flows.usd_per_h * HOURS_PER_MONTH == pytest.approx(1_039.99, abs=0.005)
    # the rent of 3,000 a month is dearer by either measure
    horizon = Horizon(60, rate)
    assert horizon.net_present_usd(flows.usd_per_h) == pytest.approx(53_794.17, abs=0.005)
    assert horizon.net_present_usd(3_000 / HOURS_PER_MONTH) > 53_794.17


price = st.floats(0, 1e6)
monthly = st.floats(0, 5e4)


@pytest.mark.slow
@given(
    candidates=st.lists(st.tuples(price, monthly, st.floats(0, 1e5)), min_size=2, max_size=5),
    rate=st.floats(0, 0.5),
    life=st.integers(1, 8),
    residual=st.floats(0, 1),
)
def test_the_cheapest_per_hour_has_the_lowest_net_present_cost(
    candidates: list[tuple[float, float, float]], rate: float, life: int, residual: float
) -> None:
    finance = Annuity(method="annuity", discount_rate=rate, life_years=life, residual_fraction=residual)
    per_hour, present = [], []
    for capex, opex, removal in candidates:
        flows = bought(capex, opex, finance, removal)
        per_hour.append(flows.usd_per_h)
        end = (1 + rate) ** -life
        in_arrears = sum(opex * (1 + rate) ** (-month / 12) for month in range(1, 12 * life + 1))
        present.append(capex + in_arrears + (removal - residual * capex) * end)
        stands = months(flows, finance, rate, 12 * life)[-1]
        assert stands.net_present_usd == pytest.approx(present[-1], rel=1e-9, abs=1e-6)
        assert Horizon(12 * life, rate).net_present_usd(flows.usd_per_h) == pytest.approx(
            present[-1], rel=1e-9, abs=1e-6
        )
    order = sorted(range(len(candidates)), key=lambda i: per_hour[i])
    dearer = [present[i] for i in order]
    assert all(a <= b + 1e-6 * max(1, b) for a, b in pairwise(dearer))


@pytest.mark.slow
@given(rate=st.floats(0, 0.5), growth=st.floats(-0.5, 0.5), life=st.integers(1, 6), opex=st.floats(1, 1e4))
def test_inflation_levels_out_to_the_same_worth(rate: float, growth: float, life: int, opex: float) -> None:
    terms = {"method": "annuity", "discount_rate": rate, "life_years": life, "inflation": {"staff": growth}}
    finance = FINANCE.validate_python(terms)
    flows = bought(0, opex, finance)
    paid = [opex * (1 + growth) ** ((month - 1) / 12) for month in range(1, 12 * life + 1)]
    worth = sum(usd * (1 + rate) ** (-month / 12) for month, usd in enumerate(paid, start=1))
    path = months(flows, finance, rate, 12 * life)
    assert path[-1].cash_usd == pytest.approx(sum(paid))
    assert path[-1].net_present_usd == pytest.approx(worth)
    level = flows.levelised_usd_per_h(finance, Horizon(12 * life, rate))
    assert Horizon(12 * life, rate).net_present_usd(level) == pytest.approx(worth)


def test_a_commitment_keeps_its_price_for_its_term() -> None:
    finance = FINANCE.validate_python(
        {"method": "annuity", "discount_rate": 0.08, "life_years": 3, "inflation": {"rental_reserved": 0.2}}
    )
    rent = {"rental_reserved": 1.0}
    flows = CashFlows(rent, {}, rent, {}, {"rental_reserved": 12.0})
    path = months(flows, finance, 0.08, 36)
    paid = [730 * 1.2 ** ((month - 1) // 12) for month in range(1, 37)]
    assert path[-1].cash_usd == pytest.approx(sum(paid))
    horizon = Horizon(36, 0.08)
    level = horizon.net_present_usd(flows.levelised_usd_per_h(finance, horizon))
    assert level == pytest.approx(path[-1].net_present_usd)


def test_a_line_that_does_not_exist_is_refused() -> None:
    terms = {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "inflation": {"energie": 0.03}}
    with pytest.raises(ValueError, match="energy"):
        FINANCE.validate_python(terms)
    with pytest.raises(ValueError, match="general_inflation"):
        FINANCE.validate_python(terms | {"inflation": 0.02})


def test_candidates_share_one_horizon_and_one_rate() -> None:
    short, long = (
        {"method": "annuity", "discount_rate": rate, "life_years": years, "inflation": {"energy": 0.3}}
        for rate, years in ((0.08, 1), (0.15, 5))
    )
    pool = {
        "steptime": {"model": "affine", "base_s": 0.1, "per_token_s": 0.0, "per_context_token_s": 0.0},
        "batching": {"policy": "vllm", "num_gpu_blocks": 9},
    }
    fixed = {"distribution": "fixed", "value": 1}
    data = {
        "name": "two lives",
        "workload": {"arrivals": {"process": "constant", "rate_rps": 1}, "lengths": {"prompt": fixed, "output": fixed}},
        "horizon_s": 10,
        "slo": {"ttft_s": 1},
        "fleets": [{"name": name, "pools": [pool], "finance": its} for name, its in (("a", short), ("b", long))],
    }
    assert horizon_of(Scenario.model_validate(data)) == Horizon(60, 0.15)
    with_rate = data | {"finance": short | {"discount_rate": 0.06}}
    assert horizon_of(Scenario.model_validate(with_rate)) == Horizon(60, 0.06)
    line = {"energy": 1.0}
    flows = CashFlows(line, {}, line)
    horizon = Horizon(60, 0.1)
    levels = [flows.levelised_usd_per_h(FINANCE.validate_python(its), horizon) for its in (short, long)]
    assert levels[0] == levels[1]


def test_a_real_return_is_that_of_cash_in_todays_money() -> None:
    saved = [-1000.0, *[100.0] * 12]
    found = AfterTax((), 0.1, saved_usd=saved, inflation=0.03)
    today = [usd / price_factor(-0.03, month) for month, usd in enumerate(saved)]
    assert found.real_internal_rate == pytest.approx(internal_rate(today))
    assert AfterTax((), 0.1, saved_usd=saved).real_internal_rate is None
