"""Run, price, breakeven and plan read one bill: the same money to the cent, whatever the fleet pays for."""

from math import fsum
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.case.result import CaseResult, price_case
from sim.case.run import idle_window, run_case
from sim.catalogue.catalog import load_catalog
from sim.cost.charge import PaymentTime
from sim.cost.finance import OperatingCostLine
from sim.cost.time_value import Horizon
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, cases
from sim.scenario.year import YEAR
from sim.study.breakeven_costs import months
from sim.study.capacity import FleetCapacity
from sim.study.discounting import levelised
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.execution.store import StoredCase
from sim.study.plan import outlook
from sim.study.plan_units import Quantities
from sim.study.rebill import Rebilling, metered

CATALOG = load_catalog()
LOAD = 2.0
FIXED = {"distribution": "fixed", "value": 60}
STEPS = {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8}
POOL = {
    "gpu": "rtx-4090",
    "replicas": 2,
    "server": "workstation-4x4090",
    "steptime": STEPS,
    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
}
HALF_THE_TIME = {"replicas": {"00:00": 2, "00:02": 1}, "starting_s": 0}
AUTOSCALING = {
    "policy": "hpa",
    "metric": "outstanding_per_replica",
    "target": 0.7,
    "min_replicas": 1,
    "max_replicas": 2,
    "sync_period_s": 10,
    "scale_down_stabilization_s": 20,
}
RENT = {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}}
FLEETS = [
    {"name": "bought", "pools": [POOL], "cost": {"acquisition": "buy"}},
    {"name": "rented", "pools": [POOL], "cost": RENT},
    {"name": "switched", "pools": [POOL | {"schedule": HALF_THE_TIME}], "cost": RENT},
    {"name": "scaled", "pools": [POOL | {"autoscaling": AUTOSCALING, "cold_start": {"total_s": 20}}], "cost": RENT},
]
BASIS: dict[str, Any] = {
    "name": "one bill",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": LOAD}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 240,
    "slo": {"ttft_s": 2},
    "starts_at": "2026-03-02T00:00:00",
    "fleets": FLEETS,
    "site": {"electricity_usd_per_kwh": 0.2, "pue": 1.2},
    "finance": {"method": "straight_line", "life_years": 2},
}

usd = st.floats(0, 1e5).map(lambda x: round(x, 2))
share = st.floats(0, 1).map(lambda x: round(x, 4))
OPERATIONS: dict[str, Any] = {
    "network_storage": st.fixed_dictionaries({"fraction_of_hardware": share}),
    "sales_tax": st.fixed_dictionaries({"fraction_of_purchases": share}),
    "maintenance": st.fixed_dictionaries({"fraction_per_year": share}),
    "failures": st.fixed_dictionaries({"per_gpu_year": share, "covered_fraction": share, "handling_usd": usd}),
    "spares": st.fixed_dictionaries({"fraction_of_gpus": share}),
    "deployment": st.fixed_dictionaries({"usd_per_server": usd}),
    "decommissioning": st.fixed_dictionaries({"usd_per_server": usd}),
    "staff": st.fixed_dictionaries({"fte": share, "usd_per_fte_year": usd, "over_gpus": st.just(16)}),
    "software": st.fixed_dictionaries({"usd_per_gpu_year": usd}),
    "egress": st.fixed_dictionaries({"usd_per_gb": share, "bytes_per_output_token": st.just(200)}),
}
HOSTING = [
    "none",
    {"per": "kw_month", "usd": 150},
    {"per": "kw_month", "usd": 99, "kw": 3.5, "electricity": "included"},
    {"per": "rack", "usd_per_month": 900, "power_limit_kw": 9, "servers_per_rack": 3, "count": "fraction"},
]
SITE = st.fixed_dictionaries(
    {"electricity_usd_per_kwh": share, "pue": st.floats(1, 2), "hosting": st.sampled_from(HOSTING)},
    optional={"cooling": st.just({"cop": 4}), "demand_usd_per_kw_month": st.sampled_from([0.0, 17.5])},
)
FINANCE = st.fixed_dictionaries(
    {
        "method": st.sampled_from(["annuity", "straight_line"]),
        "discount_rate": st.floats(0, 0.4),
        "life_years": st.sampled_from([0.5, 1, 2, 3.5]),
        "residual_fraction": share,
    }
)
RENTS = [
    RENT,
    RENT | {"spot": {"availability": 0.8, "discount": 0.3}},
    RENT | {"commitment": {"gpus": 3, "months": 12, "discount": 0.4}},
]
BASES = [
    {},
    {"commitment": {"gpus": 1, "months": 12, "discount": 0.4}},
    {"commitment": {"gpus": 1, "months": 6, "discount": 0.2}, "spot": {"availability": 0.8, "discount": 0.3}},
    {"commitment": {"gpus": 3, "months": 12, "discount": 0.4}},
]
BILLING = st.fixed_dictionaries(
    {"granularity_s": st.sampled_from([1, 60, 3600]), "minimum_s": st.sampled_from([0, 90])}
)
MONEY = st.fixed_dictionaries(
    {
        "site": SITE,
        "finance": FINANCE,
        "operations": st.fixed_dictionaries({}, optional=OPERATIONS),
        "rent": st.sampled_from(RENTS),
        "base": st.sampled_from(BASES),
        "billing": BILLING,
    }
)

Simulated = tuple[dict[str, StoredCase], dict[str, CaseResult]]


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    folder: Path = tmp_path_factory.mktemp("one bill")
    scenario = Scenario.model_validate(BASIS)
    stored = run_points(scenario, CATALOG, folder, ProcessPool(1), lambda *_: None)
    results = {case.fleet: run_case(scenario, case, CATALOG) for case in cases(scenario)}
    assert all(isinstance(result, CaseResult) for result in results.values())
    return {one.fleet: one for one in stored}, results


def with_money(money: dict[str, Any]) -> Scenario:
    """The scenario with other terms."""
    switched = RENT | {"billing": money["billing"]} | money["base"]
    rents = [money["rent"], switched, switched]
    fleets = [FLEETS[0], *(fleet | {"cost": rent} for fleet, rent in zip(FLEETS[1:], rents, strict=True))]
    plan = {"years": money["finance"]["life_years"], "starts": "2027-01"}
    sections = {name: money[name] for name in ("site", "finance", "operations")}
    return Scenario.model_validate(BASIS | sections | {"fleets": fleets, "plan": plan})


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(money=MONEY)
def test_run_breakeven_and_plan_come_to_the_same(simulated: Simulated, money: dict[str, Any]) -> None:
    stored, results = simulated
    scenario = with_money(money)
    assert scenario.finance is not None
    rate, life = scenario.finance.rate_per_year, scenario.finance.life_months
    for fleet in scenario.fleets:
        case = Case(fleet.name, {}, {}, 0)
        plan = resolve(scenario, case, CATALOG)
        assert plan.costs is not None
        assert {one.component for one in plan.costs.charges if one.paid.monthly} < set(get_args(OperatingCostLine))
        ledger = price_case(plan, results[fleet.name].log).ledger
        assert ledger is not None
        cent = 0.01 + 1e-9 * 730 * ledger.usd_per_h * life

        (bill,) = Rebilling(scenario, CATALOG, [(case, stored[fleet.name])]).bills(None, 1, YEAR)
        assert bill.usd_per_h * 730 == pytest.approx(ledger.usd_per_h * 730, abs=cent)
        assert bill.flows.capex_usd == pytest.approx(ledger.capex_usd, abs=0.01)

        # what run books by straight line is worth the same as equal payments at the discount rate
        (level,) = Rebilling(scenario, CATALOG, [(case, stored[fleet.name])], levelised).bills(None, 1, YEAR)
        worth = Horizon(life, rate).net_present_usd(level.usd_per_h)
        path = months(bill.flows, scenario.finance, rate, round(life))
        assert path[-1].net_present_usd == pytest.approx(worth, abs=cent)

        window = metered(stored[fleet.name], plan)
        measured = Quantities((0.0, LOAD), (idle_window(plan), window), (0.0, LOAD))
        assert scenario.plan is not None
        term = {"rental_term_months": round(life)}  # a contract that ends with the plan
        years = scenario.plan.model_copy(update=term | {"discount_rate": rate})
        capacity = FleetCapacity(fleet.name, LOAD, None, ())
        one = outlook(scenario, years, fleet, CATALOG, capacity, measured, (60.0, 60.0), LOAD)
        assert one.present_usd == pytest.approx(worth, abs=cent)
        flat = years.model_copy(update={"discount_rate": 0.0})
        level = outlook(scenario, flat, fleet, CATALOG, capacity, measured, (60.0, 60.0), LOAD)
        if rate == 0:
            assert level.total_usd == pytest.approx(ledger.usd_per_h * 730 * life, abs=cent)


def test_rent_by_the_clock_of_a_schedule_is_in_the_plan(simulated: Simulated) -> None:
    """Switched replicas are rented for the time that they run; a plan without staff has no other money."""
    stored, _ = simulated
    scenario = Scenario.model_validate(BASIS | {"plan": {"years": 1, "starts": "2027-01"}})
    fleet, assumed = scenario.fleets[2], scenario.plan
    assert assumed is not None
    plan = resolve(scenario, Case("switched", {}, {}, 0), CATALOG)
    window = metered(stored["switched"], plan)
    measured = Quantities((0.0, LOAD), (idle_window(plan), window), (0.0, LOAD))
    one = outlook(
        scenario, assumed, fleet, CATALOG, FleetCapacity("switched", LOAD, None, ()), measured, (60, 60), LOAD
    )
    # two replicas for 2 of 4 minutes, one for the others: 1.5 cards at 0.4 $/h
    assert one.total_usd == pytest.approx(1.5 * 0.4 * 8760)
    assert fsum(row.rental_usd for row in one.rows) == pytest.approx(one.total_usd)


def test_units_with_switched_replicas_share_one_commitment(simulated: Simulated) -> None:
    """Two units have 4 GPUs for half of the time and 2 for the other half; 2 are committed at 60 % of 0.4 $/h."""
    stored, _ = simulated
    cost = RENT | {"commitment": {"gpus": 2, "months": 12, "discount": 0.4}}
    plan_terms = {"years": 1, "starts": "2027-01", "demand": {"monthly": [2 * LOAD] * 12}}
    fleets = [FLEETS[2] | {"cost": cost}]
    scenario = Scenario.model_validate(BASIS | {"fleets": fleets, "plan": plan_terms})
    case = Case("switched", {}, {}, 0)
    (bill,) = Rebilling(scenario, CATALOG, [(case, stored["switched"])]).bills(None, 2)
    usd_per_h = 2 * 0.4 * 0.6 + 1 * 0.4
    assert bill.usd_per_h == pytest.approx(usd_per_h)

    plan, assumed = resolve(scenario, case, CATALOG), scenario.plan
    assert assumed is not None
    measured = Quantities((0.0, LOAD), (idle_window(plan), metered(stored["switched"], plan)), (0.0, LOAD))
    capacity = FleetCapacity("switched", LOAD, None, ())
    one = outlook(scenario, assumed, scenario.fleets[0], CATALOG, capacity, measured, (60, 60), LOAD)
    assert one.total_usd == pytest.approx(usd_per_h * 8760)


def test_every_charge_has_a_payment_time(simulated: Simulated) -> None:
    scenario = with_money(
        {
            "site": {"electricity_usd_per_kwh": 0.1, "pue": 1.1, "hosting": HOSTING[1]},
            "finance": {"method": "annuity", "discount_rate": 0.1, "life_years": 3, "residual_fraction": 0.1},
            "operations": {
                name: {"usd_per_server": 5} if name in ("deployment", "decommissioning") else None
                for name in ("deployment", "decommissioning")
            },
            "rent": RENT,
            "base": {},
            "billing": {},
        }
    )
    plan = resolve(scenario, Case("bought", {}, {}, 0), CATALOG).costs
    assert plan is not None
    when = {charge.component: charge.paid for charge in plan.charges}
    assert when == {
        "gpu_capital": PaymentTime.AT_DELIVERY,
        "server_capital": PaymentTime.AT_DELIVERY,
        "deployment": PaymentTime.AT_DELIVERY,
        "decommissioning": PaymentTime.AT_END,
        "hosting": PaymentTime.IN_SERVICE,
        "energy": PaymentTime.METERED,
    }
