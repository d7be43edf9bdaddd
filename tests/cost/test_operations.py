"""The components beside hardware, space and electricity, each against a figure worked out elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.buying import Buy
from sim.cost.charge import FlatCharge
from sim.cost.ledger import OPTIONAL_PHASES, Ledger
from sim.cost.metering import PHASES
from sim.cost.operations import Operations
from sim.cost.prices import CostError

BUY = {"acquisition": "buy"}
RENT = {"acquisition": "rent", "quotes": {"card": 2.0}}
YEAR = 8760
ANNUITY = {"method": "annuity", "discount_rate": 0.10, "life_years": 5}


def usd_per_year(plan, component):
    charges = [charge for charge in plan.charges if charge.component == component]
    assert charges, f"no {component} in the bill"
    return sum(charge.units_per_h * charge.price.usd for charge in charges) * YEAR


def test_network_and_storage_are_bought_and_written_off_with_the_hardware(resolve, make_pool):
    plan = resolve(
        BUY, make_pool(gpus=8, server="full", slots=8), operations={"network_storage": {"fraction_of_hardware": 0.15}}
    )
    assert usd_per_year(plan, "network_storage") == pytest.approx(45_000 / 3)
    assert plan.capex_usd == 300_000 + 45_000


def test_a_support_contract_of_15_percent_on_a_300000_dollar_server(resolve, make_pool):
    # the share that field surveys give for enterprise support: 15 % of capex a year
    plan = resolve(
        BUY, make_pool(gpus=8, server="full", slots=8), operations={"maintenance": {"fraction_per_year": 0.15}}
    )
    assert usd_per_year(plan, "maintenance") == pytest.approx(45_000)
    assert plan.capex_usd == 300_000


def test_failures_of_the_llama_3_training_run(resolve, make_pool):
    # "The Llama 3 Herd of Models", table 5: 148 faulty GPUs and 72 HBM3 failures in 54 days on 16,384 H100
    per_gpu_year = (148 + 72) / 16_384 * 365 / 54
    assert per_gpu_year == pytest.approx(0.0908, abs=1e-4)
    operations = {"failures": {"per_gpu_year": per_gpu_year, "gpu_price": 25_000}}
    plan = resolve(BUY, make_pool(gpus=8, replicas=2048, server="full", slots=8), operations=operations)
    assert usd_per_year(plan, "failures") == pytest.approx(220 * 25_000 * 365 / 54)


def test_warranty_leaves_the_handling(resolve, make_pool):
    terms = {"per_gpu_year": 0.1, "covered_fraction": 1, "handling_usd": 300}
    plan = resolve(BUY, make_pool(gpus=8, server="full", slots=8), operations={"failures": terms})
    assert usd_per_year(plan, "failures") == pytest.approx(8 * 0.1 * 300)


def test_spares_are_capital_at_the_price_of_a_single_gpu(resolve, make_pool):
    plan = resolve(BUY, make_pool(gpus=4, replicas=5), operations={"spares": {"fraction_of_gpus": 0.05}})
    assert usd_per_year(plan, "spares") == pytest.approx(1900 / 3)
    assert plan.capex_usd == pytest.approx(5 * 3400 + 21 * 1900)


def test_hardware_that_serves_nothing_is_paid_by_no_request(resolve, make_pool, make_interval):
    # servers of 8 GPUs for 300,000 $, of which 2 serve all the time; a spare GPU on the shelf
    operations = {
        **{"spares": {"fraction_of_gpus": 0.5, "gpu_price": 20_000}, "sales_tax": {"fraction_of_purchases": 0.1}},
        **{"network_storage": {"fraction_of_hardware": 0.1}, "maintenance": {"fraction_per_year": 0.05}},
    }
    terms = {"method": "straight_line", "life_years": 1}
    pool = make_pool(gpu="sxm", gpus=2, server="full", slots=8)
    site = {"electricity_usd_per_kwh": 0.0, "pue": 1.0}
    plan = resolve(BUY, pool, site=site, finance=terms, operations=operations)
    ledger = Ledger.of([make_interval(0, 3600, gpus=2, busy=1.0)], plan, 0, 3600)
    spares = 0.5 * 2 * 20_000
    per_year = {name: 8760e-9 * amount for name, amount in ledger.by_phase().items()}
    served = 300_000 * 1.1 * (1.1 + 0.05)
    assert per_year["reserve"] == pytest.approx(spares * 1.1)
    assert per_year["decode"] == pytest.approx(0.25 * served)
    assert per_year["unused"] == pytest.approx(0.75 * served)


def test_gpu_sold_only_with_its_server_has_no_replacement_price(resolve, make_pool):
    operations = {"failures": {"per_gpu_year": 0.1}, "spares": {"fraction_of_gpus": 0.1}}
    with pytest.raises(CostError) as error:
        resolve(BUY, make_pool(gpu="sxm", gpus=8, server="full", slots=8), operations=operations)
    found = {problem.path: problem.text for problem in error.value.problems}
    assert set(found) == {"operations.failures.gpu_price", "operations.spares.gpu_price"}
    assert "data/prices/sxm.yaml" in found["operations.failures.gpu_price"]


def test_tax_falls_on_all_purchases_and_no_resale_brings_it_back(resolve, make_pool):
    terms = {"method": "straight_line", "life_years": 4, "residual_fraction": 0.5}
    operations = {"sales_tax": {"fraction_of_purchases": 0.2}, "network_storage": {"fraction_of_hardware": 0.1}}
    plan = resolve(BUY, make_pool(gpus=8, server="full", slots=8), finance=terms, operations=operations)
    assert usd_per_year(plan, "sales_tax") == pytest.approx(0.2 * 330_000 / 4)
    assert plan.capex_usd == pytest.approx(1.2 * 330_000)


@pytest.mark.parametrize(("covered", "replaced_usd"), [(0.0, 1900 * 1.2), (0.75, 475 * 1.2), (1.0, 0.0)])
def test_replaced_gpus_carry_the_sales_tax_of_purchases(resolve, make_pool, covered, replaced_usd):
    # 4 GPUs at 1,900 $, half of them replaced each year; 150 $ of handling bear no tax
    failures = {"per_gpu_year": 0.5, "covered_fraction": covered, "handling_usd": 150}
    operations = {"sales_tax": {"fraction_of_purchases": 0.2}, "failures": failures}
    plan = resolve(BUY, make_pool(), operations=operations)
    assert usd_per_year(plan, "failures") == pytest.approx(2 * (replaced_usd + 150))
    assert usd_per_year(plan, "sales_tax") == pytest.approx(0.2 * (3400 + 4 * 1900) / 3)
    [charge] = [one for one in plan.charges if one.component == "failures"]
    assert charge.follows_share == pytest.approx(replaced_usd / (replaced_usd + 150))
    free = resolve(BUY, make_pool(), operations={"failures": failures})
    assert usd_per_year(free, "failures") == pytest.approx(2 * (replaced_usd / 1.2 + 150))


def test_vat_is_a_cost_where_it_is_not_recovered(resolve, make_pool):
    # 300,000 $ with 5 % of duty: 13 % of VAT on 315,000 is 40,950, of which a quarter stays
    vat = {"rate": 0.13, "recoverable": 0.75, "recovered_after_months": 2}
    operations = {"import_duty": {"fraction_of_purchases": 0.05}, "vat": vat}
    plan = resolve(BUY, make_pool(gpus=8, server="full", slots=8), operations=operations)
    assert usd_per_year(plan, "import_duty") == pytest.approx(15_000 / 3)
    assert usd_per_year(plan, "vat") == pytest.approx(10_237.5 / 3)
    assert plan.capex_usd == pytest.approx(300_000 + 15_000 + 10_237.5)
    [charge] = [one for one in plan.charges if one.component == "vat"]
    assert dict(charge.moved_usd) == pytest.approx({0: 0.75 * 40_950, 2: -0.75 * 40_950})
    # replaced GPUs carry both
    failures = {"per_gpu_year": 1, "gpu_price": 1000}
    plan = resolve(BUY, make_pool(gpus=8, server="full", slots=8), operations=operations | {"failures": failures})
    assert usd_per_year(plan, "failures") == pytest.approx(8000 * (1 + 0.05 + 0.13 * 0.25 * 1.05))


def test_property_tax_and_insurance_follow_the_book_value(resolve, make_pool):
    # from 300,000 to 60,000 over 36 months: the mean of the month starts is 1 - 0.8 * 35 / 72 of the price
    terms = {"method": "straight_line", "life_years": 3, "residual_fraction": 0.2}
    operations = {name: {"fraction_of_value_per_year": 0.02} for name in ("property_tax", "insurance")}
    plan = resolve(BUY, make_pool(gpus=8, server="full", slots=8), finance=terms, operations=operations)
    for name in operations:
        assert usd_per_year(plan, name) == pytest.approx(6000 * (1 - 0.8 * 35 / 72))


def test_net_60_with_a_deposit_is_a_loan_of_the_supplier(resolve, make_pool):
    payment = {"at_order": 0.3, "net_days": 60}
    cost = BUY | {"payment": payment, "lead_time_months": 3}
    plan = resolve(cost, make_pool(gpus=8, server="full", slots=8), finance=ANNUITY)
    charges = [one for one in plan.charges if one.component == "payment_terms"]
    assert dict(charges[0].moved_usd) == pytest.approx({-3: 90_000, 0: -300_000, 2: 210_000})
    # the deposit counts at the delivery: 210,000 two months later are worth 210,000 less their interest
    less = 210_000 * (1 - 1.1 ** (-2 / 12))
    whole = resolve(BUY, make_pool(gpus=8, server="full", slots=8), finance=ANNUITY)
    assert usd_per_year(plan, "payment_terms") == pytest.approx(-less / 300_000 * usd_per_year(whole, "server_capital"))
    assert plan.capex_usd == whole.capex_usd


@pytest.mark.parametrize(
    ("payment", "what"),
    [
        ({"at_order": 0.3, "at_delivery": 0.3}, "pay 0.6 of the price: state net_days"),
        ({"at_order": 0.6, "at_delivery": 0.6, "net_days": 30}, "more than the price"),
        ({"at_order": 30, "net_days": 60}, "less than or equal to 1"),
    ],
)
def test_payments_that_are_not_the_price_are_refused(payment, what):
    with pytest.raises(ValidationError, match=what):
        Buy.model_validate(BUY | {"payment": payment})


def test_a_deposit_at_the_order_needs_the_time_of_the_order(resolve, make_pool):
    with pytest.raises(CostError, match=r"state cost\.lead_time_months, or plan\.lead_time_months"):
        resolve(BUY | {"payment": {"at_order": 0.3}}, make_pool(), finance=ANNUITY)


def test_work_at_the_start_and_at_the_end_of_a_life(resolve, make_pool):
    # interest tables of engineering economics at 10 %, 5 years: A/P = 0.2638, A/F (sinking fund) = 0.1638
    operations = {"deployment": {"usd_per_server": 1000}, "decommissioning": {"usd_per_server": 1000}}
    plan = resolve(BUY, make_pool(), finance=ANNUITY, operations=operations)
    at_year_end = 0.1 / 12 / (1.1 ** (1 / 12) - 1)  # of twelve payments at month ends
    assert at_year_end * usd_per_year(plan, "deployment") == pytest.approx(263.8, abs=0.05)
    assert at_year_end * usd_per_year(plan, "decommissioning") == pytest.approx(163.8, abs=0.05)
    assert plan.capex_usd == 3400 + 4 * 1900 + 1000


def test_staff_and_licences_follow_the_machines(resolve, make_pool):
    operations = {
        "staff": {"fte": 2, "usd_per_fte_year": 120_000, "over_servers": 100},
        "software": {"usd_per_gpu_year": 500, "usd_per_server_year": 60},
    }
    plan = resolve(BUY, make_pool(replicas=3), operations=operations)
    assert usd_per_year(plan, "staff") == pytest.approx(3 * 2400)
    assert usd_per_year(plan, "software") == pytest.approx(12 * 500 + 3 * 60)
    rented = resolve(
        RENT, make_pool(server=""), operations={"staff": {"fte": 1, "usd_per_fte_year": 9000, "over_gpus": 36}}
    )
    assert usd_per_year(rented, "staff") == pytest.approx(1000)
    assert any("those of its GPUs alone" in note for note in rented.notes)


def test_tenant_pays_what_the_landlord_does_not(resolve, make_pool):
    operations = {
        "maintenance": {"fraction_per_year": 0.1},
        "sales_tax": {"fraction_of_purchases": 0.1},
        "software": {"usd_per_gpu_year": 500},
    }
    plan = resolve(RENT, make_pool(), operations=operations)
    assert {charge.component for charge in plan.charges} == {"rental", "software"}
    assert "Paid by the owner of the rented hardware: sales tax, maintenance." in plan.notes
    assert "Left out of the bill: staff, egress." in plan.notes


def test_egress_is_paid_by_the_byte_and_booked_to_decoding(resolve, make_pool, make_interval):
    interval = make_interval(0, 3600, busy=0.5)
    interval.output_tokens = 10_000_000
    operations = {"egress": {"usd_per_gb": 0.09, "bytes_per_output_token": 200}}
    ledger = Ledger.of([interval], resolve(RENT, make_pool(), operations=operations), 0, 3600)
    assert ledger.by_component()["egress"] == 180_000_000  # 2 GB at 9 cents
    booked = {row.phase: row.amount_nano_usd for row in ledger.rows if row.component == "egress"}
    assert booked == {phase: 180_000_000 * (phase == "decode") for phase in PHASES if phase not in OPTIONAL_PHASES}


def test_without_a_site_that_counts_cooling_in_its_pue(resolve, make_pool, make_interval):
    site = {"electricity_usd_per_kwh": 0.1, "pue": 1.1, "cooling": {"cop": 4}}
    ledger = Ledger.of([make_interval(0, 3600, wall_w=1000.0)], resolve(BUY, make_pool(), site=site), 0, 3600)
    assert ledger.by_component()["energy"] == 110_000_000
    assert ledger.by_component()["cooling"] == 25_000_000


def test_the_bill_names_what_it_leaves_out(resolve, make_pool):
    notes = resolve(BUY, make_pool(), operations={"sales_tax": {"fraction_of_purchases": 0}}).notes
    assert notes[-1].startswith("Left out of the bill: network and storage, spares, maintenance, failures, deployment")


@pytest.mark.parametrize(
    "wrong",
    [
        {"staff": {"fte": 1, "usd_per_fte_year": 1}},
        {"staff": {"fte": 1, "usd_per_fte_year": 1, "over_gpus": 1, "over_servers": 1}},
        {"software": {}},
        {"maintenance": {"fraction_per_year": -0.1}},
        {"failures": {"per_gpu_year": 0.1, "covered_fraction": 1, "gpu_price": 3}},
        {"vat": {"rate": 13}},
        {"import_duty": {"fraction_of_purchases": 5}},
        {"insurance": {"fraction_of_value_per_year": 2}},
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValidationError):
        Operations.model_validate(wrong)


@pytest.mark.slow
@given(st.floats(0, 1), st.floats(0, 1), st.integers(0, 10**9))
def test_the_whole_bill_sums_exactly(resolve, make_pool, make_interval, busy, prefill, tokens):
    operations = {
        "network_storage": {"fraction_of_hardware": 0.12},
        "sales_tax": {"fraction_of_purchases": 0.1},
        "maintenance": {"fraction_per_year": 0.05},
        "failures": {"per_gpu_year": 0.09, "covered_fraction": 0.5, "handling_usd": 150},
        "spares": {"fraction_of_gpus": 0.05},
        "deployment": {"usd_per_server": 300},
        "decommissioning": {"usd_per_server": 100},
        "staff": {"fte": 1, "usd_per_fte_year": 110_000, "over_gpus": 400},
        "software": {"usd_per_gpu_year": 100},
        "egress": {"usd_per_gb": 0.05, "bytes_per_output_token": 200},
        "import_duty": {"fraction_of_purchases": 0.02},
        "vat": {"rate": 0.13, "recoverable": 0.9},
        "property_tax": {"fraction_of_value_per_year": 0.01},
    }
    terms = BUY | {"payment": {"net_days": 60}}  # a credit: the supplier lends the price for two months
    plan = resolve(terms, make_pool(replicas=2), finance=ANNUITY, operations=operations)
    intervals = [make_interval(0, 1800, busy=busy, prefill=prefill), make_interval(1800, 5400, replica=1, busy=0.1)]
    intervals[0].output_tokens = tokens
    ledger = Ledger.of(intervals, plan, 0, 5400)
    assert ledger.total_nano_usd == sum(row.amount_nano_usd for row in ledger.rows)
    assert set(operations) <= set(ledger.by_component())
    assert ledger.by_component()["payment_terms"] < 0
    owed = 1.5 * sum(charge.units_per_h * charge.price.usd for charge in plan.charges if isinstance(charge, FlatCharge))
    flat = {charge.component for charge in plan.charges if isinstance(charge, FlatCharge)}
    booked = sum(amount for name, amount in ledger.by_component().items() if name in flat)
    assert booked == pytest.approx(owed * 1e9, abs=len(flat))


@pytest.mark.parametrize(
    ("booked", "of_pool"), [("{rate: a100-bloom}", ""), ("{}", ", failures: {gpu: {rate: a100-bloom, repair_h: 9}}")]
)
def test_a_published_rate_is_booked_as_its_failures_per_year(tmp_path, booked: str, of_pool: str) -> None:
    from sim.catalogue.catalog import load_catalog
    from sim.scenario.reading.load import load
    from sim.scenario.resolving.resolve import resolve_fleet

    file = tmp_path / "s.yaml"
    file.write_text(
        "model: llama3.1-8b\nhorizon_s: 9\nworkload: {arrivals: {process: constant, rate_rps: 1}, lengths: {prompt: "
        "{distribution: fixed, value: 9}, output: {distribution: fixed, value: 9}}}\nfleets: [{name: a, cost: "
        "{acquisition: buy, quotes: {rtx-4090: 1900}}, pools: [{gpu: rtx-4090, "
        f"replicas: 4{of_pool}}}]}}]\n"
        "site: {electricity_usd_per_kwh: 0.1, pue: 1}\nfinance: {method: straight_line, life_years: 4, "
        f"residual_fraction: 0, discount_rate: 0}}\noperations: {{failures: {booked}}}\n"
    )
    catalog = load_catalog()
    scenario = load(file, (), catalog=catalog)
    plan = resolve_fleet(scenario, scenario.fleets[0], catalog).costs
    # about one of 384 A100 a week
    assert usd_per_year(plan, "failures") == pytest.approx(4 * 1900 * (365 / 7) / 384)


def test_failures_without_any_rate_are_refused(resolve, make_pool) -> None:
    with pytest.raises(CostError) as error:
        resolve(BUY, make_pool(gpus=4), operations={"failures": {}})
    assert "has no failures.gpu whose rate could be booked" in error.value.problems[0].text
