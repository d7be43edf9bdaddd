"""Power contracts and demand ratchets against bills worked by hand, and the laws of what they cover."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.cost.cash_flow import flows_of
from sim.cost.charge import amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.hardware import group_hardware
from sim.cost.ledger import Ledger
from sim.cost.metering import MeteredWindow, combined_window
from sim.cost.power_contract import ContractBook, PowerContract
from sim.cost.site import Site
from sim.records import Interval

BUY = {"acquisition": "buy"}
SITE = {"electricity_usd_per_kwh": 0.3, "pue": 1.2}
TWO_HOURS = 7200.0


def contract(kw, usd=0.07, **more):
    return {"kw": kw, "usd_per_kwh": usd, **more}


def bill(resolve, make_pool, intervals, hours=2.0, **site):
    plan = resolve(BUY, make_pool(), site=SITE | site)
    return {name: nano / 1e9 for name, nano in Ledger.of(intervals, plan, 0.0, 3600 * hours).by_component().items()}


@pytest.mark.parametrize(
    ("contracts", "energy_usd", "contract_usd"),
    [
        ([contract(1)], 0.4 * 0.3, 2 * 0.07),  # 2.4 kWh at the meter, of which the band covers 2
        ([contract(2, take_or_pay=0.8)], 0.0, 3.2 * 0.07),  # 2.4 of 4 kWh drawn, 3.2 paid
        ([contract(2, take_or_pay=0.5)], 0.0, 2.4 * 0.07),
        ([contract(0.5), contract(0.5, 0.1), contract(1, 0.2, take_or_pay=0)], 0.0, 0.07 + 0.1 + 0.4 * 0.2),
    ],
)
def test_the_band_is_paid_at_the_contract_and_the_rest_at_the_tariff(
    resolve, make_pool, make_interval, contracts, energy_usd, contract_usd
):
    found = bill(resolve, make_pool, [make_interval(0, TWO_HOURS, wall_w=1000.0)], power_contracts=contracts)
    assert found["energy"] == pytest.approx(energy_usd, abs=1e-9)
    assert found["power_contract"] == pytest.approx(contract_usd)


def test_without_contracts_the_bill_has_no_line_for_them(resolve, make_pool, make_interval):
    assert "power_contract" not in bill(resolve, make_pool, [make_interval(0, TWO_HOURS)])


def window(joules, hours=1.0):
    one = Interval("p", "box", 0, "serving", 0.0, 3600 * hours, gpu_s=4 * 3600 * hours)
    one.server_energy_j = joules
    return MeteredWindow(hours, {"p": [one]})


BANDS = st.lists(st.tuples(st.floats(0.001, 50), st.floats(0, 1)), min_size=1, max_size=4)


@pytest.mark.slow
@settings(max_examples=50)
@given(BANDS, st.lists(st.floats(0, 1e9), min_size=1, max_size=3), st.integers(1, 5))
def test_what_is_covered_and_what_is_beyond_is_all_that_is_drawn(bands, joules, copies):
    contracts = tuple(PowerContract.model_validate(contract(kw, take_or_pay=part)) for kw, part in bands)
    book = ContractBook(contracts, ("p",), 1.3, copies)
    whole = combined_window([window(one) for one in joules])
    covered, drawn, paid = book.covered_kwh(whole), book.drawn_in(whole), book.paid_kwh(whole)
    assert sum(covered) + book.beyond(whole) * drawn == pytest.approx(drawn)
    for one, got, due in zip(contracts, covered, paid, strict=True):
        volume = one.kw / copies * len(joules)
        assert 0 <= got <= volume * (1 + 1e-9)
        assert max(got, one.take_or_pay * volume) * (1 - 1e-9) <= due <= volume * (1 + 1e-9)


def flows(make_pool, copies, joules, **site):
    """Cash flows of equal fleets at a site, from the meters of one of them in an hour."""
    charges = Site.model_validate(SITE | site).charges(group_hardware([make_pool()], share=False, copies=copies))
    return flows_of(CostPlan(tuple(charges), ()), window(joules), copies).monthly_usd_per_h


def test_equal_fleets_share_one_contract(make_pool):
    """Two fleets of 1.2 kW each draw 2.4 kWh in an hour, of which one band of 2 kW covers 2 kWh."""
    found = flows(make_pool, 2, 3.6e6, power_contracts=[contract(2)])
    assert found["power_contract"] == pytest.approx(2 * 0.07)
    assert found["energy"] == pytest.approx(0.4 * 0.3)


DEMAND = {"demand_usd_per_kw_month": 10}


@pytest.mark.parametrize(
    ("peak_kw", "copies", "billed_kw"), [(1.0, 1, 1.2), (5.0, 1, 4.0), (5.0, 2, 4.0), (1.0, 2, 2.4)]
)
def test_a_ratchet_bills_a_part_of_the_earlier_peak_at_least(make_pool, peak_kw, copies, billed_kw):
    site = DEMAND | {"demand_ratchet": {"fraction": 0.8, "peak_kw": peak_kw}}
    assert flows(make_pool, copies, 3.6e6, **site)["demand"] == pytest.approx(billed_kw * 10 / 730)


def test_a_ratchet_is_divided_among_pools_by_their_power_at_the_peak(resolve, make_pool, make_interval):
    pools = [make_pool("a"), make_pool("b")]
    site = SITE | DEMAND | {"demand_ratchet": {"fraction": 1, "peak_kw": 12}}
    plan = resolve(BUY, *pools, site=site)
    hour = [make_interval(0, 3600, pool="a", wall_w=1000.0), make_interval(0, 3600, pool="b", wall_w=3000.0)]
    at = MeteredWindow.of(hour, 0.0, 3600.0)
    usd = {one.pool: amount_usd(one, at) for one in plan.charges if one.component == "demand"}
    assert usd == {"a": pytest.approx(3 * 10 / 730), "b": pytest.approx(9 * 10 / 730)}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"demand_ratchet": {"fraction": 0.8, "peak_kw": 5}}, "needs demand_usd_per_kw_month"),
        (DEMAND | {"demand_ratchet": {"fraction": 80, "peak_kw": 5}}, "less than or equal to 1"),
        ({"power_contracts": [contract(0)]}, "greater than 0"),
        ({"power_contracts": [contract(1, take_or_pay=1.1)]}, "less than or equal to 1"),
        (
            {
                "power_contracts": [contract(1)],
                "hosting": {"per": "kw_month", "usd": 200, "kw": "nameplate", "electricity": "included"},
            },
            "both pay for electricity",
        ),
    ],
)
def test_terms_that_contradict_each_other_are_refused(keys, text):
    with pytest.raises(ValidationError, match=text):
        Site.model_validate(SITE | keys)
