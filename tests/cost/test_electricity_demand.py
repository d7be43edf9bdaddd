"""Demand charges: peaks worked by hand."""

import pytest

from sim.cost import CostPlan, Ledger, PoolFacts, Site
from sim.cost.charge import amount_usd
from sim.cost.electricity import DemandCharge
from sim.cost.hardware import group_hardware
from sim.cost.metering import Window
from sim.records import Interval

QUARTER = 900.0
SITE = {"electricity_usd_per_kwh": 0.1, "pue": 1.5, "demand_usd_per_kw_month": 20}


def drawn(pool, kw, length_s=QUARTER, first_s=0.0):
    """Readings of one replica that draws *kw* in one interval after another."""
    return [
        Interval(pool, "", 0, "serving", first_s + length_s * i, first_s + length_s * (i + 1), length_s,
                 server_energy_j=1000.0 * power * length_s)
        for i, power in enumerate(kw)
    ]  # fmt: skip


def peak(window, *pools):
    return {pool: pytest.approx(kw) for pool, kw in window.peak_kw(pools).items()}


def test_the_peak_is_the_sites_and_not_the_sum_of_the_pools():
    # a alone peaks in the first quarter of an hour, b in the last; together they draw most in the second: 3 + 4
    rows = drawn("a", [5, 3, 1, 1]) + drawn("b", [1, 4, 2, 5])
    window = Window.of(rows, 0.0, 3600.0)
    assert peak(window, "a", "b") == {"a": 3, "b": 4}
    assert peak(window, "a") == {"a": 5}


def test_power_is_averaged_over_a_quarter_of_an_hour():
    # 9 kW for five minutes of a quarter that else draws 3: 5 kW, less than a steady 6 kW for 15 minutes
    rows = drawn("a", [3, 9, 3, 6, 6, 6, 1, 1, 1], 300.0)
    assert peak(Window.of(rows, 0.0, 2700.0), "a") == {"a": 6}
    # 40 minutes hold two intervals of 20 minutes; what lies in both is divided
    rows = drawn("a", [4, 1], 1500.0)
    assert peak(Window.of(rows, 0.0, 3000.0), "a") == {"a": 4}
    rows = drawn("a", [4, 1, 1, 1], 600.0)
    assert peak(Window.of(rows, 0.0, 2400.0), "a") == {"a": 2.5}
    # a window below a quarter of an hour is one interval
    assert peak(Window.of(drawn("a", [4, 2], 60.0), 0.0, 120.0), "a") == {"a": 3}


def hardware(*names):
    return group_hardware([PoolFacts(name, "gpu", 1, 1, gpu_tdp_w=100.0) for name in names], share=False)


def charges(site, *names):
    return Site.model_validate(site).charges(hardware(*names))


def test_a_window_pays_its_part_of_the_month():
    plan = CostPlan(tuple(charges(SITE, "a", "b")))
    rows = drawn("a", [5, 3, 1, 1]) + drawn("b", [1, 4, 2, 5])
    ledger = Ledger.of(rows, plan, 0.0, 3600.0)
    # 7 kW at the plugs are 10.5 kW at the site: 210 $ a month, of which an hour is 1/730
    assert ledger.by_component()["demand"] == pytest.approx(10.5 * 20 / 730 * 1e9, abs=2)
    of_a = sum(row.amount_nano_usd for row in ledger.rows if row.component == "demand" and row.pool == "a")
    assert of_a == pytest.approx(3 / 7 * 10.5 * 20 / 730 * 1e9, abs=2)
    assert {row.unit for row in ledger.rows if row.component == "demand"} == {"kW-month"}


def test_a_month_of_even_power_costs_energy_and_power():
    energy, demand = charges(SITE, "p")
    month = Window.of(drawn("p", [2.0] * 730, 3600.0), 0.0, 730 * 3600.0)
    assert amount_usd(energy, month) == pytest.approx(2.0 * 1.5 * 730 * 0.1)
    assert demand.quantity(0.0, month) * demand.price.usd == pytest.approx(2.0 * 1.5 * 20)
    assert isinstance(demand, DemandCharge)
    assert demand.least_usd_per_h(2.0) * 730 == pytest.approx(2.0 * 1.5 * 20)


def test_windows_taken_together_keep_their_own_peaks():
    one, other = (Window.of(drawn("a", kw), 0.0, 1800.0) for kw in ([4, 2], [6, 8]))
    _, charge = charges(SITE | {"pue": 1}, "a")
    both = Window(1.0, {}, {}, (one, other))
    assert charge.quantity(0.0, both) == pytest.approx((4 * 0.5 + 8 * 0.5) / 730)


def test_hosting_that_includes_electricity_includes_its_peak():
    hosting = {"per": "kw_month", "usd": 250, "kw": 7, "electricity": "included"}
    site = {"pue": 1.5, "hosting": hosting, "demand_usd_per_kw_month": 20}
    assert {charge.component for charge in charges(site, "a")} == {"hosting"}
