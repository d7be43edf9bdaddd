"""A plan's cash against the ledger that it is drawn from, and the sums that must come out."""

from math import fsum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.case.result import CaseResult
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.cost.actuals import Actual, Actuals
from sim.cost.metering import MeteredWindow
from sim.records import Interval
from sim.report.financing_tables import book_rows
from sim.report.plan import verdict
from sim.report.plan_tables import plan_table, summary_row, write_months
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.study.capacity import FleetCapacity
from sim.study.metrics.case_metrics import CaseMetrics, measure
from sim.study.plan import FleetPlanOutlook, outlook
from sim.study.plan_units import Quantities
from sim.study.variances import variances

LOAD, TOKENS = 2.0, (100.0, 100.0)
FIXED = {"distribution": "fixed", "value": 100}
POOL = {"gpu": "rtx-4090", "replicas": 2, "server": "workstation-4x4090"}
BASIS: dict[str, Any] = {
    "name": "plan",
    "model": "llama3.1-8b",
    "workload": {"arrivals": {"process": "constant", "rate_rps": LOAD}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 120,
    "warmup_s": 20,
    "slo": {"ttft_s": 2},
    "fleets": [
        {"name": "own", "pools": [POOL], "cost": {"acquisition": "buy"}},
        {
            "name": "rented",
            "pools": [POOL],
            "cost": {
                "acquisition": "rent",
                "quotes": {"rtx-4090": 0.4},
                "commitment": {"gpus": 2, "months": 6, "discount": 0.25},
            },
        },
    ],
    "site": {
        "electricity_usd_per_kwh": 0.2,
        "pue": 1.2,
        "cooling": {"cop": 4},
        "hosting": {"per": "kw_month", "usd": 100},
    },
    "finance": {"method": "straight_line", "life_years": 2, "resale": {"loss_per_year": 0.3}},
    "operations": {
        "network_storage": {"fraction_of_hardware": 0.1},
        "sales_tax": {"fraction_of_purchases": 0.08},
        "maintenance": {"fraction_per_year": 0.05},
        "failures": {"per_gpu_year": 0.09, "covered_fraction": 0.5, "handling_usd": 150},
        "spares": {"fraction_of_gpus": 0.25},
        "deployment": {"usd_per_server": 300},
        "decommissioning": {"usd_per_server": 90},
        "staff": {"fte": 1, "usd_per_fte_year": 100_000, "over_gpus": 400},
        "software": {"usd_per_gpu_year": 100},
        "egress": {"usd_per_gb": 0.1, "bytes_per_output_token": 200},
    },
    "plan": {"years": 2, "starts": "2027-11"},
}
CATALOG = load_catalog()


def scenario(plan: dict[str, Any], **changes: Any) -> Scenario:
    return Scenario.model_validate(BASIS | changes | {"plan": BASIS["plan"] | plan})


@pytest.fixture(scope="module")
def metrics() -> dict[str, CaseMetrics]:
    """Fleet -> what one unit does and costs in the ledger."""
    wanted = scenario({})
    found = {case.fleet: run_case(wanted, case, CATALOG) for case in cases(wanted)}
    return {name: measure(result) for name, result in found.items() if isinstance(result, CaseResult)}


def price_of(item: str) -> float:
    prices = CATALOG.prices(item)
    assert prices is not None
    assert prices.default_purchase is not None
    return prices.offers[prices.default_purchase].price.value


def hour(it_kw: float, requests: float) -> MeteredWindow:
    """Return an hour of the pool at *it_kw*, in which *requests* were answered."""
    tokens = round(requests * TOKENS[1])
    metered = Interval("rtx-4090", "workstation-4x4090", 0, "serving", 0, 3600, gpu_s=7200, output_tokens=tokens)
    metered.server_energy_j = metered.idle_energy_j = 3.6e6 * it_kw
    return MeteredWindow(1.0, {"rtx-4090": [metered]})


def planned(wanted: Scenario, index: int, it_kw: float = 0.5, capacity: float = LOAD) -> FleetPlanOutlook:
    windows = (hour(it_kw, 0), hour(it_kw, 3600 * LOAD))
    quantities = Quantities((0.0, LOAD), windows, (0.0, LOAD))
    assert wanted.plan is not None
    fleet = wanted.fleets[index]
    return outlook(
        wanted, wanted.plan, fleet, CATALOG, FleetCapacity(fleet.name, capacity, None, ()), quantities, TOKENS, LOAD
    )


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("units", [1, 3])
def test_a_flat_plan_is_the_ledger_times_its_months(metrics: dict[str, CaseMetrics], index: int, units: int) -> None:
    """Without growth, decline, discount or lead time, and with hardware that lives as long as the plan."""
    wanted = scenario({"demand": {"now": units * LOAD}})
    told = metrics[wanted.fleets[index].name]
    one = planned(wanted, index, told["it_power_w_mean"] / 1000)
    assert {row.in_service for row in one.months} == {units}
    ledger = dict(told["component_usd_per_h"])
    egress = sum(row.opex_usd["egress"] for row in one.months)
    assert egress == pytest.approx(ledger.pop("egress") * units * 730 * 24, rel=0.03)  # answers at the window's edges
    expected = sum(ledger.values()) * units
    if index == 1:  # the commitment is one for all units: 2 GPUs of them at three quarters of the price
        rent = units * 2 * 0.4 - 2 * 0.4 * 0.25
        expected += rent - units * ledger["rental_reserved"]
    assert one.total_usd - egress == pytest.approx(expected * 730 * 24, rel=3e-7)  # whole nano-dollars


@pytest.mark.parametrize(("units", "term", "owed_usd"), [(1, 1, 0.0), (1, 1, 1314.0), (3, 12, 1314.0 + 3504.0)])
def test_payments_due_after_the_plan_are_reported_and_not_counted(
    units: int, term: int, owed_usd: float, tmp_path: Path
) -> None:
    """2 GPUs at 0.3 $/h for 6 months twice, of which a plan of 9 months leaves 3 x 438 $; two further units of 2 GPUs
    each at 0.4 $/h for 12 months, of which it leaves 3 x 1,168 $.
    """
    terms = {"years": 0.75 if owed_usd else 1.0, "rental_term_months": term, "demand": {"now": units * LOAD}}
    wanted = scenario(terms)
    one = planned(wanted, 1)
    assert one.owed_usd == pytest.approx(owed_usd)
    paid_usd = 0.3 * 2 + 0.4 * 2 * (units - 1)
    assert sum(row.rental_usd for row in one.rows) == pytest.approx(730 * paid_usd * len(one.months))
    assert wanted.plan is not None
    write_months(tmp_path / "plan.csv", [one], wanted.plan)
    lines = (tmp_path / "plan.csv").read_text().splitlines()
    told = " ".join(verdict([one], wanted.plan).findings)
    assert ("owed_usd" in lines[0]) is ("owed_usd" in summary_row(one)) is ("remain due" in told) is bool(owed_usd)
    assert ("due after the plan" in str(plan_table([one]).heads)) is bool(owed_usd)
    if owed_usd:
        place = lines[0].split(",").index("owed_usd")
        assert [line.split(",")[place] for line in lines[1:-1]] == [""] * 9
        assert float(lines[-1].split(",")[place]) == summary_row(one)["owed_usd"] == pytest.approx(owed_usd)
        assert f"${owed_usd:,.0f}" in told


@pytest.mark.slow
def test_capital_cost_equals_its_annuity() -> None:
    """Payments and receipts for hardware have the present value of the ledger's yearly payments."""
    annuity = {"method": "annuity", "discount_rate": 0.08, "life_years": 2, "resale": {"loss_per_year": 0.3}}
    wanted = scenario({}, finance=annuity)
    result = run_case(wanted, cases(wanted)[0], CATALOG)
    assert isinstance(result, CaseResult)
    told = measure(result)["component_usd_per_h"]
    names = ("gpu_capital", "server_capital", "network_storage", "spares", "sales_tax", "deployment", "decommissioning")
    yearly = 8760 * sum(told[name] for name in names)
    one = planned(wanted, 0)
    capital = [(row.month, row.capital_usd + row.decommissioning_usd - row.resale_usd) for row in one.rows]
    present = fsum(usd / 1.08 ** (month / 12) for month, usd in capital)
    assert present == pytest.approx(sum(yearly / 12 / 1.08 ** (month / 12) for month in range(1, 25)), rel=1e-7)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    demand=st.lists(st.floats(0, 30), min_size=24, max_size=24),
    peak=st.floats(1, 4),
    reserve=st.integers(0, 2),
    lead=st.integers(0, 6),
    decline=st.floats(-0.3, 0.6),
    life=st.sampled_from([0.5, 1, 3]),
    bridged=st.booleans(),
    index=st.sampled_from([0, 1]),
)
def test_rows_sum_to_totals_and_capacity_covers_demand(
    demand: list[float], peak: float, reserve: int, lead: int, decline: float, life: float, bridged: bool, index: int
) -> None:
    plan = {
        "demand": {"monthly": demand},
        "peak_to_mean": peak,
        "reserve_units": reserve,
        "lead_time_months": lead,
        "price_decline_per_year": decline,
        "rental_decline_per_year": decline,
        "discount_rate": 0.1,
        "bridge": {"own": {"acquisition": "rent", "quotes": {"rtx-4090": 0.5}}} if bridged else {},
    }
    wanted = scenario(plan, finance=BASIS["finance"] | {"life_years": life})
    one = planned(wanted, index)
    paid = fsum(
        fsum([*row.capex_usd.values(), *row.opex_usd.values(), row.rental_usd, row.decommissioning_usd])
        for row in one.rows
    )
    assert one.total_usd == pytest.approx(paid - fsum(row.resale_usd for row in one.rows), abs=1e-6)
    for row in one.months:
        assert row.shortfall == 0 or row.shortfall == pytest.approx(row.peak - row.capacity)
        assert row.served <= row.capacity
        assert row.served == row.demand or row.shortfall > 0
        assert row.output_tokens == pytest.approx(row.served * 730 * 3600 * 100)
        may_be_short = index == 0 and row.month < lead and not bridged
        assert row.meets_slo or may_be_short
    undiscounted = planned(scenario(plan | {"discount_rate": 0}, finance=wanted.finance), index)
    assert undiscounted.present_usd == pytest.approx(undiscounted.total_usd, abs=1e-6)
    sold = fsum(row.resale_usd for row in one.rows)
    assert 0 <= sold <= fsum(row.capital_usd for row in one.rows)


def test_what_falls_with_prices_and_what_does_not() -> None:
    """Bought a year later at half the price; work, electricity and rent for space cost the same."""
    plan = {"demand": {"monthly": [0] * 12 + [LOAD] * 12}, "price_decline_per_year": 0.5}
    late = planned(scenario(plan), 0).rows[12]
    now = planned(scenario({"price_decline_per_year": 0.5}), 0).rows[0]
    for name in ("gpu_capital", "server_capital", "network_storage", "spares", "sales_tax"):
        assert late.capex_usd[name] == pytest.approx(now.capex_usd[name] / 2)
    assert late.capex_usd["deployment"] == now.capex_usd["deployment"] == 300
    assert late.opex_usd["maintenance"] == pytest.approx(now.opex_usd["maintenance"] / 2)
    for name in ("hosting", "energy", "cooling", "staff", "software"):
        assert late.opex_usd[name] == now.opex_usd[name]
    # a failure costs 150 $ of work and half a card with its tax: 2 cards in use at 0.09 failures a year
    card_usd = price_of("rtx-4090")
    assert late.opex_usd["failures"] == pytest.approx(2 * 0.09 / 12 * (150 + 1.08 * 0.5 * card_usd / 2))


def test_energy_cost_follows_the_tariff_of_the_month() -> None:
    winter = {"months": [12, 1, 2], "hourly_usd_per_kwh": [0.3] * 12 + [0.5] * 12}
    site = {"pue": 1.0, "electricity": {"hourly_usd_per_kwh": [0.1] * 24, "seasons": [winter]}}
    one = planned(scenario({}, site=site, starts_at="2026-07-01T12:00:00"), 0)
    # from 2027-11: November, then three months of winter at 0.4 in the mean
    costs = [row.opex_usd["energy"] for row in one.months[:6]]
    assert costs == pytest.approx([0.5 * 730 * usd for usd in (0.1, 0.4, 0.4, 0.4, 0.1, 0.1)])


def test_rents_keep_the_price_of_their_signing() -> None:
    plan = {"rental_decline_per_year": 0.5, "demand": {"monthly": [LOAD] * 24}}
    rents = [row.rental_usd for row in planned(scenario(plan), 1).months]
    assert rents[0] == pytest.approx(2 * 0.4 * 0.75 * 730)
    # six months each at one price, and a year later half of it
    assert rents[:6] == [rents[0]] * 6
    assert rents[12:18] == pytest.approx([rents[0] / 2] * 6)


def test_units_beyond_a_commitment_go_when_they_are_not_needed() -> None:
    """One unit is committed for six months at a time; two more serve three busy months at the hourly price."""
    busy = {1, 3, 7}
    plan = {"demand": {"monthly": [LOAD * (3 if month in busy else 1) for month in range(24)]}}
    one = planned(scenario(plan, operations={}), 1)
    assert [row.rented for row in one.months] == [3 if month in busy else 1 for month in range(24)]
    reserved, hourly = 2 * 0.4 * 0.75 * 730, 2 * 0.4 * 730
    assert [row.rental_usd for row in one.months] == pytest.approx(
        [reserved + (2 * hourly if month in busy else 0) for month in range(24)]
    )


def test_commitment_is_paid_without_demand() -> None:
    plan = {"demand": {"monthly": [LOAD] + [0.0] * 23}}
    rents = [row.rental_usd for row in planned(scenario(plan, operations={}), 1).months]
    assert rents == pytest.approx([2 * 0.4 * 0.75 * 730] * 6 + [0.0] * 18)


def test_what_is_short_is_not_served() -> None:
    one = planned(scenario({"lead_time_months": 3}), 0)
    assert [row.shortfall for row in one.months[:4]] == [LOAD] * 3 + [0.0]
    assert [row.output_tokens for row in one.months[:3]] == [0.0] * 3
    assert [row.month for row in one.short] == [0, 1, 2]
    assert one.rows[0].ordered == one.rows[2].on_order == one.rows[3].owned == 1
    assert one.levelised_usd_per_million_output_tokens is not None


WORKING = {
    "operations": {
        "vat": {"rate": 0.13, "recoverable": 0.9, "recovered_after_months": 3},
        "insurance": {"fraction_of_value_per_year": 0.01},
    },
}


def test_deposits_terms_and_vat_move_cash_and_sum_to_nothing() -> None:
    own = BASIS["fleets"][0] | {"cost": {"acquisition": "buy", "payment": {"at_order": 0.3, "net_days": 60}}}
    plan = {"demand": {"now": LOAD}, "lead_time_months": 2}
    wanted = scenario(plan, fleets=[own, BASIS["fleets"][1]], **WORKING)
    one = planned(wanted, 0)
    hardware = fsum(one.rows[2].capex_usd[name] for name in ("gpu_capital", "server_capital"))
    back = 0.13 * 0.9 * hardware
    moved = [row.working_usd for row in one.rows]
    assert moved[:6] == pytest.approx([0.3 * hardware, 0, back - hardware, 0, 0.7 * hardware, -back])
    assert fsum(moved) == pytest.approx(0, abs=1e-6)
    # 1 % a year of a value that falls from the price to 49 % over two years
    paid = [row.opex_usd["insurance"] for row in one.rows[:-1]]
    values = [hardware * (1 - 0.51 * month / 24) for month in range(22)]
    assert paid == pytest.approx([0, 0, *(0.01 / 12 * value for value in values)])


COMMITTED = {"gpus": 2, "months": 6, "discount": 0.25, "upfront": "all"}
RENT = BASIS["fleets"][1]["cost"]
PREPAID = {
    "fleets": [
        BASIS["fleets"][0],
        {"name": "rented", "pools": [POOL], "cost": RENT | {"commitment": COMMITTED}},
    ]
}


def test_a_prepaid_commitment_is_paid_at_its_signing() -> None:
    keys = {"demand": {"now": LOAD}, "rental_decline_per_year": 0.2}
    one, plain = planned(scenario(keys, **PREPAID), 1), planned(scenario(keys), 1)
    rents = [row.rental_usd for row in one.rows]
    assert rents == [row.rental_usd for row in plain.rows]
    signed = [6 * usd if month % 6 == 0 else 0 for month, usd in enumerate(rents)]
    assert [row.working_usd for row in one.rows] == pytest.approx(signed)
    assert [row.prepaid_usd for row in one.rows] == pytest.approx(rents)
    assert fsum(row.working_usd + row.in_arrears_usd - row.running_usd for row in one.rows) == pytest.approx(
        fsum(rents)
    )


def test_prepaid_rent_of_months_after_a_plan_is_returned_in_its_closing_row() -> None:
    longer = COMMITTED | {"months": 36, "upfront": "partial"}
    rented = {"fleets": [BASIS["fleets"][0], {**PREPAID["fleets"][1], "cost": RENT | {"commitment": longer}}]}
    one = planned(scenario({"demand": {"now": LOAD}}, **rented), 1)
    rent = one.rows[0].rental_usd
    assert [row.working_usd for row in one.rows] == pytest.approx([18 * rent, *[0] * 23, -6 * rent])
    assert [row.prepaid_usd for row in one.rows] == pytest.approx([*[rent / 2] * 24, 0])


@pytest.mark.parametrize(("index", "more"), [(0, {}), (1, {}), (0, WORKING), (1, PREPAID)])
def test_cash_after_a_tax_of_nothing_is_that_of_the_plan(index: int, more: dict[str, Any]) -> None:
    finance = BASIS["finance"] | {"discount_rate": 0.08, "life_years": 1.5, "tax": {"rate": 0.0}}
    growing = {"demand": {"now": LOAD, "growth_per_year": 1.0}, "price_decline_per_year": 0.2, "lead_time_months": 1}
    one = planned(scenario(growing, finance=finance, **more), index)
    assert one.after_tax is not None
    assert one.after_tax.net_present_usd == pytest.approx(one.present_usd)
    assert fsum(at.cost_usd for at in one.after_tax.months) == pytest.approx(one.total_usd)
    # a month's end is the start of the next
    rows, months = one.rows, [at.cost_usd for at in one.after_tax.months]
    at_ends = [0.0, *(row.in_arrears_usd for row in rows)]
    assert months == pytest.approx([row.at_once_usd + usd for row, usd in zip(rows, at_ends, strict=False)], abs=1e-6)


def test_a_plan_pays_its_lease_while_units_serve() -> None:
    finance = BASIS["finance"] | {"life_years": 1, "lease": {"term_months": 12, "payment": 0.1}}
    one = planned(scenario({"demand": {"now": LOAD}}, finance=finance), 0)
    assert list(one.financings) == ["own money", "lease"]
    hardware_usd = fsum(usd for name, usd in one.rows[0].capex_usd.items() if name not in ("sales_tax", "deployment"))
    leased = [at.lines_usd["lease"] for at in one.financings["lease"].months]
    assert leased == pytest.approx([0.0, *[0.1 * hardware_usd] * 24])
    assert fsum(at.lines_usd["purchase"] for at in one.financings["lease"].months) == pytest.approx(
        sum(fsum(row.capex_usd.values()) - hardware_usd for row in (one.rows[0], one.rows[12]))
    )


def test_revenue_is_in_the_books_and_meets_losses() -> None:
    finance = BASIS["finance"] | {"books": "ifrs_16", "tax": {"rate": 0.25}}
    sells = {"revenue": {"input": 1, "output": 2}, "demand": {"now": LOAD}}
    wanted = scenario({"demand": sells.pop("demand")}, finance=finance, **sells)
    one = planned(wanted, 0)
    assert one.after_tax is not None
    tokens = 86_400 * 365 / 12 * LOAD * 100 / 1e6
    rows = book_rows({"own": one.financings}, "fleet")
    assert rows[0]["revenue_usd"] == pytest.approx(12 * tokens * (1 + 2))
    assert rows[0]["revenue_tax_usd"] == pytest.approx(0.25 * rows[0]["revenue_usd"])
    # over the plan, profit is what is left of revenue less cost before tax
    before = fsum(at.cost_usd - at.lines_usd["income_tax"] for at in one.after_tax.months)
    sold = fsum(row["revenue_usd"] for row in rows)
    assert fsum(row["profit_usd"] for row in rows if row["financing"] == "own money") == pytest.approx(
        0.75 * (sold - before)
    )
    # from November 2027 on, fiscal years that start in April end after 5 and 17 months
    april = planned(scenario({"demand": {"now": LOAD}}, finance=finance | {"fiscal_year_start_month": 4}, **sells), 0)
    dated = book_rows({"own": april.financings}, "fleet")
    ends = {row["fiscal_year_ends"]: row["revenue_usd"] / tokens / 3 for row in dated}
    assert ends == pytest.approx({"2028-03": 5, "2029-03": 12, "2030-03": 7})
    profits = [fsum(row["profit_usd"] for row in each if row["financing"] == "own money") for each in (rows, dated)]
    assert profits[0] == pytest.approx(profits[1])
    # what is sold exceeds all deductions, so carried losses are used at once
    carried = {"rate": 0.25, "losses": "carried_forward", "profit_usd_per_year": 0}
    other = planned(scenario({"demand": {"now": LOAD}}, finance=finance | {"tax": carried}, **sells), 0)
    assert other.after_tax is not None
    assert other.after_tax.net_present_usd == pytest.approx(one.after_tax.net_present_usd, abs=1)


def test_variances_are_split_by_price_and_quantity(tmp_path: Path) -> None:
    # the first month serves 5.256 million output tokens and has one server of four cards in service
    wanted = scenario({"demand": {"now": LOAD}})
    one = planned(wanted, 0)
    row, dates = one.rows[0], ["2027-11", "2027-12"]
    million, energy = row.output_tokens / 1e6, row.opex_usd["energy"]
    actuals = [
        Actual("own", "2027-11", "energy", 1.2 * energy, 2 * million),
        Actual("own", "2027-11", "gpu_capital", 9000.0, 1.0),
        Actual("own", "2027-12", "staff", 10.0, None),
    ]
    metered, capital, staff = variances([one], dates, actuals)
    # twice the tokens at 60 % of the price
    assert (metered.planned.unit, metered.quantity_usd) == ("million output tokens", pytest.approx(energy))
    assert metered.price_usd == pytest.approx(-0.8 * energy)
    assert (capital.quantity_usd, capital.price_usd) == (0, pytest.approx(9000 - row.capex_usd["gpu_capital"]))
    assert (staff.price_usd, staff.variance_usd) == (None, pytest.approx(10 - one.rows[1].opex_usd["staff"]))
    for each in (metered, capital):
        assert (each.price_usd or 0) + (each.quantity_usd or 0) == pytest.approx(each.variance_usd)
    (tmp_path / "a.csv").write_text(f"date,line,amount_usd,quantity\n2027-11,energy,{1.2 * energy},{2 * million}\n")
    plan = wanted.plan.model_copy(update={"actuals": Actuals(path=str(tmp_path / "a.csv"))})
    told = " ".join(verdict([one], plan).findings)
    assert "more than planned" in told


@pytest.mark.parametrize("units", [1, 3])
def test_units_share_the_power_contract_of_their_site(units: int) -> None:
    """A band of 0.5 kW at 0.07 $/kWh for any number of units of 0.5 kW (1.45 times at the meter); the rest at 0.2."""
    site = BASIS["site"] | {"power_contracts": [{"kw": 0.5, "usd_per_kwh": 0.07}]}
    one = planned(scenario({"demand": {"now": units * LOAD}}, site=site), 0)
    month = one.months[0].opex_usd
    assert month["power_contract"] == pytest.approx(730 * 0.5 * 0.07)
    assert month["energy"] + month["cooling"] == pytest.approx(730 * (units * 0.5 * 1.45 - 0.5) * 0.2)
