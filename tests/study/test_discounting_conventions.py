"""One convention of time: capital at delivery, all else monthly in arrears; against worked examples of others."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.cost import Finance
from sim.cost.cash_flow import Flows
from sim.cost.finance import Annuity
from sim.cost.time_value import Horizon
from sim.scenario.schema import Scenario
from sim.study.breakeven_costs import months
from sim.study.discounting import horizon_of

HOURS_PER_MONTH = 730


def bought(price: float, opex_per_month: float, finance: Annuity, removal: float = 0.0) -> Flows:
    """Hardware with a running cost, booked as the ledger books it."""
    capital = finance.usd_per_h(price) + finance.end_usd_per_h(removal)
    opex = {"staff": opex_per_month / HOURS_PER_MONTH}
    booked = {"gpu_capital": capital, **opex}
    return Flows(booked, {"gpu_capital": price}, opex, {"decommissioning": removal}, resold_usd=price)


def test_a_forklift() -> None:
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


def test_a_data_centre() -> None:
    # J. Hamilton, "Overall Data Center Costs", 2010. Inputs recalled: 45,978 servers of $1,450 over 36 months, 8 MW at
    # $9/W over 120 months of which 18 % is neither power nor cooling, 5 % a year, 80 % load, PUE 1.45, $0.07/kWh,
    # network $12.61 million over 48 months. Results read at datacenterknowledge.com, 2010-09-22: $3.5 million a month,
    # and the shares.
    def per_month(price: float, life_years: float) -> float:
        terms = Annuity(method="annuity", discount_rate=0.05, life_years=life_years)
        return HOURS_PER_MONTH * terms.usd_per_h(price)

    facility = per_month(8e6 * 9, 10)
    parts = {
        "servers": per_month(45_978 * 1_450, 3),
        "network": per_month(12.61e6, 4),
        "power and cooling": 0.82 * facility,
        "other": 0.18 * facility,
        "electricity": 8_000 * 0.8 * 1.45 * 0.07 * HOURS_PER_MONTH,
    }
    total = sum(parts.values())
    assert total == pytest.approx(3.5e6, rel=0.01)
    shares = {name: round(100 * usd / total) for name, usd in parts.items()}
    assert shares == {"servers": 57, "network": 8, "power and cooling": 18, "other": 4, "electricity": 13}


price = st.floats(0, 1e6)
monthly = st.floats(0, 5e4)


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


@given(rate=st.floats(0, 0.5), growth=st.floats(-0.5, 0.5), life=st.integers(1, 6), opex=st.floats(1, 1e4))
def test_inflation_levels_out_to_the_same_worth(rate: float, growth: float, life: int, opex: float) -> None:
    terms = {"method": "annuity", "discount_rate": rate, "life_years": life, "inflation": {"staff": growth}}
    finance = TypeAdapter(Finance).validate_python(terms)
    flows = bought(0, opex, finance)
    paid = [opex * (1 + growth) ** ((month - 1) / 12) for month in range(1, 12 * life + 1)]
    worth = sum(usd * (1 + rate) ** (-month / 12) for month, usd in enumerate(paid, start=1))
    path = months(flows, finance, rate, 12 * life)
    assert path[-1].cash_usd == pytest.approx(sum(paid))
    assert path[-1].net_present_usd == pytest.approx(worth)
    level = flows.levelised_usd_per_h(finance, Horizon(12 * life, rate))
    assert Horizon(12 * life, rate).net_present_usd(level) == pytest.approx(worth)


def test_a_commitment_keeps_its_price_for_its_term() -> None:
    finance = TypeAdapter(Finance).validate_python(
        {"method": "annuity", "discount_rate": 0.08, "life_years": 3, "inflation": {"rental_reserved": 0.2}}
    )
    rent = {"rental_reserved": 1.0}
    flows = Flows(rent, {}, rent, {}, {"rental_reserved": 12.0})
    path = months(flows, finance, 0.08, 36)
    paid = [730 * 1.2 ** ((month - 1) // 12) for month in range(1, 37)]
    assert path[-1].cash_usd == pytest.approx(sum(paid))
    horizon = Horizon(36, 0.08)
    level = horizon.net_present_usd(flows.levelised_usd_per_h(finance, horizon))
    assert level == pytest.approx(path[-1].net_present_usd)


def test_a_line_that_does_not_exist_is_refused() -> None:
    terms = {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "inflation": {"energie": 0.03}}
    with pytest.raises(ValueError, match="energy"):
        TypeAdapter(Finance).validate_python(terms)


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
    flows = Flows(line, {}, line)
    horizon = Horizon(60, 0.1)
    levels = [flows.levelised_usd_per_h(TypeAdapter(Finance).validate_python(its), horizon) for its in (short, long)]
    assert levels[0] == levels[1]
