"""Cash flows of a bill, each amount worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.cost.cash_flow import CashFlows, flows_of, mean_flows, with_peak
from sim.cost.charge import FlatCharge, UnitPrice
from sim.cost.cost_plan import CostPlan
from sim.cost.electricity import DemandCharge
from sim.cost.finance import Annuity, StraightLine
from sim.cost.metering import MeteredWindow
from sim.cost.time_value import Horizon
from sim.study.breakeven_costs import months

YEAR = 8760


def test_when_a_bought_fleet_pays_what(resolve, make_pool, make_interval):
    # a server of 3,400 $ and four cards of 1,900 $, worth half after the only year; 1 kW at 0.1 $/kWh
    plan = resolve(
        {"acquisition": "buy"},
        make_pool(),
        finance={"method": "straight_line", "life_years": 1, "residual_fraction": 0.5},
        operations={
            "deployment": {"usd_per_server": 876},
            "decommissioning": {"usd_per_server": 438},
            "maintenance": {"fraction_per_year": 0.1},
            "staff": {"fte": 1, "usd_per_fte_year": 87_600, "over_gpus": 40},
            "failures": {"per_gpu_year": 0.5, "handling_usd": 100},
        },
    )
    window = MeteredWindow.of([make_interval(0, 7200, wall_w=1000.0)], 0, 7200)
    found = flows_of(plan, window, copies=3)
    upkeep, failures = 1100 / YEAR, 2 * (1900 + 100) / YEAR
    # what is billed by the clock is that of all copies already; the meter is that of one of three
    monthly = {"maintenance": upkeep, "staff": 1.0, "failures": failures, "energy": 0.3}
    capital = {"server_capital": 1700 / YEAR, "gpu_capital": 3800 / YEAR, "deployment": 0.1, "decommissioning": 0.05}
    assert found.booked_usd_per_h == pytest.approx(capital | monthly)
    assert found.monthly_usd_per_h == pytest.approx(monthly)
    assert found.delivery_usd == {"server_capital": 3400, "gpu_capital": 7600, "deployment": 876}
    assert (found.capex_usd, found.resold_usd, found.removal_usd) == (11_876, 11_000, 438)
    # hardware at other prices: the capital, the fee on it, and the replaced cards without their handling
    assert found.hardware_monthly_usd_per_h == pytest.approx({"maintenance": upkeep, "failures": 0.95 * failures})
    assert found.hardware_usd_per_h == pytest.approx(5500 / YEAR + upkeep + 0.95 * failures)
    assert (found.rent_usd_per_h, found.rent_monthly_usd_per_h) == (0, {})
    assert found.opex_usd_per_h == pytest.approx(sum(monthly.values()))
    assert found.usd_per_h == pytest.approx(sum((capital | monthly).values()))


def test_work_is_divided_among_pools_by_their_gpus(resolve, make_pool):
    operations = {"deployment": {"usd_per_server": 800}, "decommissioning": {"usd_per_server": 400}}
    pools = make_pool("a", gpus=6), make_pool("b", gpus=2)
    plan = resolve({"acquisition": "buy"}, *pools, operations=operations)
    paid = {(one.component, one.pool): one.once_usd for one in plan.charges if one.component in operations}
    assert paid == {
        **{("deployment", "a"): 1200, ("deployment", "b"): 400},
        **{("decommissioning", "a"): 600, ("decommissioning", "b"): 200},
    }


def test_rent_is_monthly_and_a_commitment_keeps_its_price(resolve, make_pool, make_interval):
    cost = {"acquisition": "rent", "quotes": {"card": 1.0}}
    cost["commitment"] = {"gpus": 2, "months": 12, "discount": 0.5}
    plan = resolve(cost, make_pool(), operations={"software": {"usd_per_gpu_year": 2190}})
    found = flows_of(plan, MeteredWindow.of([make_interval(0, 3600)], 0, 3600))
    assert found.monthly_usd_per_h == pytest.approx({"rental_reserved": 1.0, "rental": 2.0, "software": 1.0})
    assert found.agreed_months == {"rental_reserved": 12, "rental": 0, "software": 0}
    assert found.rent_usd_per_h == 3
    assert found.rent_monthly_usd_per_h == {"rental_reserved": 1, "rental": 2}
    assert (found.capex_usd, found.hardware_usd_per_h) == (0, 0)


COMMITTED = {"gpus": 8, "months": 12, "discount": 0.25}
STEPS = {"gpus": {7: 16}, "price": {5: 0.8}}


@pytest.mark.parametrize(
    ("cost", "operations"),
    [
        ({"acquisition": "buy"}, {"insurance": {"fraction_of_value_per_year": 0.02}}),
        ({"acquisition": "buy", "payment": {"net_days": 60}}, {"vat": {"rate": 0.13, "recoverable": 0.6}}),
        *(
            ({"acquisition": "rent", "quotes": {"card": 2.0}, "commitment": COMMITTED | more}, {})
            for more in ({"upfront": "all"}, {"upfront": "partial"}, {"ramp": STEPS}, {"ramp": STEPS, "upfront": "all"})
        ),
    ],
)
def test_the_bill_per_hour_is_worth_its_cash(resolve, make_pool, cost, operations):
    terms = {"method": "annuity", "discount_rate": 0.1, "life_years": 2, "residual_fraction": 0.3}
    finance = Annuity.model_validate(terms)
    plan = resolve(cost, make_pool(gpus=4, replicas=3), finance=terms, operations=operations)
    found = flows_of(plan, MeteredWindow(1.0))
    path = months(found, finance, 0.1, 24)
    assert path[24].net_present_usd == pytest.approx(Horizon(24, 0.1).net_present_usd(found.usd_per_h))
    assert path[24].working_usd == pytest.approx(0, abs=1e-6)


def test_a_levelised_bill_raises_the_lines_that_grow():
    # the price agreed for a year is 1, then 1.5: 1.25 in the mean of two years
    terms = StraightLine(method="straight_line", life_years=2, inflation={"rental_reserved": 0.5})
    reserved = {"rental_reserved": 2.0}
    flows = CashFlows(
        booked_usd_per_h={"gpu_capital": 5.0, **reserved},
        monthly_usd_per_h=reserved,
        agreed_months={"rental_reserved": 12.0},
        rent_usd_per_h=2.0,
        rent_monthly_usd_per_h=reserved,
        hardware_usd_per_h=5.0,
    )
    two_years = Horizon(24, 0.0)
    assert flows.levelised_usd_per_h(terms, two_years) == pytest.approx(7.5)
    assert flows.levelised_rent_usd_per_h(terms, two_years) == pytest.approx(2.5)
    assert flows.levelised_hardware_usd_per_h(terms, two_years) == 5
    assert flows.levelised_lines(terms, two_years) == pytest.approx({"gpu_capital": 5.0, "rental_reserved": 2.5})
    flat = StraightLine(method="straight_line", life_years=2)
    assert flows.levelised_usd_per_h(None, two_years) == flows.levelised_usd_per_h(flat, two_years) == 7


def test_a_mean_weighs_each_component():
    one, other = CashFlows({"energy": 1.0}, resold_usd=2.0), CashFlows({"energy": 5.0, "staff": 4.0}, resold_usd=6.0)
    mean = mean_flows([(one, 0.5), (other, 1.5)])
    assert (mean.booked_usd_per_h, mean.resold_usd) == ({"energy": 4, "staff": 3}, 5)


def test_the_busiest_hours_make_the_demand_charge_of_the_month():
    price = UnitPrice(1.0, "kW-month", "test")
    plan = CostPlan((DemandCharge("p", "", ("p",), 1.0, price), FlatCharge("staff", "p", "", 1.0, price)))
    usual, busiest = (
        CashFlows(lines, {}, lines) for lines in ({"demand": 1.0, "staff": 2.0}, {"demand": 5.0, "staff": 7.0})
    )
    found = with_peak(usual, busiest, plan)
    assert found.booked_usd_per_h == found.monthly_usd_per_h == {"demand": 5, "staff": 2}


def test_each_pool_pays_for_prompts_and_answers_by_its_own_time(resolve, make_pool, make_interval):
    # prompts: 3/4 of the busy time of pool a, all of b; c did neither and is divided as a and b together (3 of 4 $)
    plan = resolve({"acquisition": "rent", "quotes": {"card": 0.5}}, *(make_pool(name) for name in "abc"))
    window = MeteredWindow.of(
        [
            make_interval(0, 3600, pool="a", busy=0.4, prefill=0.75, wall_w=0),
            make_interval(0, 3600, pool="b", busy=0.1, prefill=1.0, wall_w=0),
            make_interval(0, 3600, pool="c", wall_w=0),
        ],
        0,
        3600,
    )
    flows = flows_of(plan, window)
    assert flows.prompts_usd_per_h["rental"] == pytest.approx(1.5 + 2.0)
    assert flows.answers_usd_per_h["rental"] == pytest.approx(0.5)
    whole = flows.levelised_usd_per_h(None, Horizon(12, 0.0))
    assert flows.levelised_prompts_usd_per_h(None, Horizon(12, 0.0)) == pytest.approx(whole * 3.5 / 4)


@pytest.mark.slow
@given(prompts=st.floats(0.01, 0.99), energy=st.floats(0, 9), staff=st.floats(0, 9), growth=st.floats(-0.5, 0.5))
def test_no_part_for_prompts_exceeds_the_whole(prompts, energy, staff, growth):
    finance = Annuity(method="annuity", discount_rate=0.1, life_years=3, inflation={"energy": growth})
    lines = {"energy": 1 + energy, "staff": staff}
    shares = ({name: part * usd for name, usd in lines.items()} for part in (prompts, 1 - prompts))
    kinds = dict(zip(("prompts_usd_per_h", "answers_usd_per_h"), shares, strict=True))
    flows = CashFlows(lines, {}, lines, **kinds)
    whole = flows.levelised_usd_per_h(finance, Horizon(36, 0.1))
    assert flows.levelised_prompts_usd_per_h(finance, Horizon(36, 0.1)) == pytest.approx(prompts * whole)


@pytest.mark.parametrize("prefill", [0.0, 1.0])
def test_no_cost_by_kind_where_one_phase_is_not_metered(resolve, make_pool, make_interval, prefill):
    plan = resolve({"acquisition": "rent", "quotes": {"card": 0.5}}, make_pool())
    window = MeteredWindow.of([make_interval(0, 3600, busy=0.4, prefill=prefill)], 0, 3600)
    assert flows_of(plan, window).levelised_prompts_usd_per_h(None, Horizon(12, 0.0)) is None
