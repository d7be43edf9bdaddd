"""Bills in memory are the bills on disk, and other prices move them as the ledger's own arithmetic says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.rebill import Rebilling

pytestmark = pytest.mark.slow

CATALOG = load_catalog()
SCENARIO = """\
name: bills
workload:
  arrivals: {process: poisson, rate_rps: 2}
  lengths:
    prompt: {distribution: fixed, value: 200}
    output: {distribution: geometric, mean: 50}
model: llama3.1-8b
horizon_s: 200
warmup_s: 25
meter_interval_s: 30
%s
fleets:
  - name: own
    pools:
      - gpu: rtx-4090
        server: workstation-2x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1.0e-5, per_context_token_s: 0}
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}
  - name: let
    pools:
      - gpu: rtx-4090
        server: workstation-2x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1.0e-5, per_context_token_s: 0}
    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}}
site: {%s, pue: 1.4, hosting: {per: kw_month, usd: 150, kw: nameplate, electricity: metered}}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
api: {input: 0.1, output: 0.4}
sweep: {workload.arrivals.rate_rps: [1, 3]}
replications: 2
"""
FLAT = ("", "electricity_usd_per_kwh: 0.2")
HOURLY = (
    "starts_at: 2026-07-01T07:58:00",
    f"electricity: {{hourly_usd_per_kwh: {[0.1 + 0.01 * h for h in range(24)]}}}",
)


@pytest.fixture(scope="module", params=[FLAT, HOURLY], ids=["flat", "by the hour"])
def billing(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bills")
    (folder / "s.yaml").write_text(SCENARIO % request.param)
    scenario = load(folder / "s.yaml", (), catalog=CATALOG)
    stored = run_points(scenario, CATALOG, folder / "out", ProcessPool(1), lambda *_: None)
    return Rebilling(scenario, CATALOG, list(zip(cases(scenario), stored, strict=True))), stored


def test_the_same_prices_give_the_same_bill(billing) -> None:
    rebilling, stored = billing
    for bill, case in zip(rebilling.bills(), stored, strict=True):
        assert (bill.fleet, bill.axes, bill.replication) == (case.fleet, case.axes, case.replication)
        assert bill.usd_per_h * bill.window_h == pytest.approx(case.metrics["cost_usd"], rel=1e-12, abs=1e-8)
        assert bill.flows.booked_usd_per_h == pytest.approx(case.metrics["component_usd_per_h"], rel=1e-9, abs=1e-8)
        assert bill.flows.capex_usd == case.metrics["capex_usd"]
        assert bill.output_tokens == case.metrics["output_tokens"]
        assert bill.api_usd_per_h * bill.window_h == pytest.approx(case.metrics["api_usd"])


def test_capital_plus_operating_cost_equals_the_bill(billing) -> None:
    rebilling, _ = billing
    for bill in rebilling.bills():
        flows = bill.flows
        capital_usd_per_h = flows.usd_per_h - flows.opex_usd_per_h
        assert (capital_usd_per_h > 1e-9) == (bill.fleet == "own") == (flows.capex_usd == 5000)
        assert flows.hardware_usd_per_h == pytest.approx(capital_usd_per_h)
        assert flows.rent_usd_per_h == (0.5 if bill.fleet == "let" else 0)


@settings(max_examples=20)
@given(factor=st.floats(0.1, 10))
def test_energy_is_proportional_to_what_multiplies_it(billing, factor) -> None:
    rebilling, _ = billing
    before = rebilling.bills()
    after = rebilling.bills({"site.pue": max(1.0, factor)})
    for old, new in zip(before, after, strict=True):
        energy = old.flows.booked_usd_per_h.get("energy", 0.0)
        assert new.flows.booked_usd_per_h.get("energy", 0.0) == pytest.approx(energy * max(1.0, factor) / 1.4, rel=1e-6)
        rest = old.usd_per_h - energy
        assert new.usd_per_h - new.flows.booked_usd_per_h.get("energy", 0.0) == pytest.approx(rest)
