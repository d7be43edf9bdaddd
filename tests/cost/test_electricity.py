"""Electricity by the hour: checked against the sums of a bill drawn up by hand.

Demand charges: peaks worked by hand.
"""

from datetime import datetime
from math import fsum

import pytest
from pydantic import ValidationError

from sim.cost.charge import amount_usd
from sim.cost.clock import SiteClock
from sim.cost.cost_plan import CostPlan
from sim.cost.electricity import DemandCharge, Tariff
from sim.cost.hardware import PoolFacts, group_hardware
from sim.cost.ledger import Ledger
from sim.cost.metering import MeteredWindow
from sim.cost.prices import CostError
from sim.cost.site import Site
from sim.records import Interval

BUY = {"acquisition": "buy"}
DAY_AND_NIGHT = [0.10] * 7 + [0.30] * 13 + [0.10] * 4
SITE = {"electricity": {"hourly_usd_per_kwh": DAY_AND_NIGHT}, "pue": 1.0}
FINANCE = {"method": "straight_line", "life_years": 3}


def resolved(resolve, make_pool, site, starts_at):
    return resolve(BUY, make_pool(), site=site, finance=FINANCE, clock=starts_at and SiteClock(starts_at))


def test_each_hour_is_charged_at_its_own_price(resolve, make_pool, make_interval):
    # 1 kW from 6 to 9 o'clock: one hour at 0.10 and two at 0.30
    plan = resolved(resolve, make_pool, SITE, datetime(2026, 1, 15, 6))
    hours = [make_interval(3600.0 * h, 3600.0 * (h + 1), busy=0.5, wall_w=1000.0) for h in range(3)]
    ledger = Ledger.of(hours, plan, 0.0, 3 * 3600.0)
    assert ledger.by_component()["energy"] == round((0.10 + 2 * 0.30) * 1e9)
    rows = [row for row in ledger.rows if row.component == "energy"]
    assert sorted({(row.start_s, row.unit_price_usd) for row in rows}) == [(0.0, 0.1), (3600.0, 0.3), (7200.0, 0.3)]
    assert {row.source for row in rows} == {
        "scenario: site.electricity.hourly_usd_per_kwh.0", "scenario: site.electricity.hourly_usd_per_kwh.7"
    }  # fmt: skip


def test_seasons_have_prices_of_their_own(resolve, make_pool, make_interval):
    summer = {"months": [6, 7, 8], "hourly_usd_per_kwh": [0.5] * 24}
    site = SITE | {"electricity": SITE["electricity"] | {"seasons": [summer]}}
    for date, usd in ((datetime(2026, 5, 31, 23), 0.10), (datetime(2026, 6, 1, 0), 0.50)):
        plan = resolved(resolve, make_pool, site, date)
        ledger = Ledger.of([make_interval(0.0, 3600.0, wall_w=1000.0)], plan, 0.0, 3600.0)
        assert ledger.by_component()["energy"] == round(usd * 1e9)


def test_one_price_for_all_hours_is_a_flat_tariff(resolve, make_pool, make_interval):
    hours = [make_interval(1800.0 * h, 1800.0 * (h + 1), busy=0.3) for h in range(7)]
    flat = resolve(BUY, make_pool(), site={"electricity_usd_per_kwh": 0.17, "pue": 1.3}, finance=FINANCE)
    by_hour = {"electricity": {"hourly_usd_per_kwh": [0.17] * 24}, "pue": 1.3}
    other = resolved(resolve, make_pool, by_hour, datetime(2026, 3, 1, 22, 30))
    ledgers = [Ledger.of(hours, plan, 0.0, 7 * 1800.0) for plan in (flat, other)]
    assert ledgers[0].by_component() == ledgers[1].by_component()


def test_mean_by_hour_weighs_months_by_their_days():
    # 92 of 365 days at 0.50
    summer = {"months": [6, 7, 8], "hourly_usd_per_kwh": [0.5] * 24}
    tariff = Tariff.model_validate({"hourly_usd_per_kwh": [0.1] * 24, "seasons": [summer]})
    assert tariff.by_hour(SiteClock(datetime(2026, 1, 1))) == pytest.approx([0.1 + 0.4 * 92 / 365] * 24)


def test_hours_of_the_week_have_the_prices_of_their_days():
    # 52 of the 365 days of 2026 are Saturdays
    tariff = Tariff.model_validate({"hourly_usd_per_kwh": [0.1] * 24, "saturday_usd_per_kwh": [0.5] * 24})
    clock = SiteClock(datetime(2026, 1, 1))
    assert tariff.by_hour(clock) == pytest.approx([0.1 + 0.4 * 52 / 365] * 24)
    assert tariff.by_hour(clock, 168) == pytest.approx([0.1] * 120 + [0.5] * 24 + [0.1] * 24)


@pytest.mark.parametrize(
    ("by_hour", "usd"),
    [(None, 0.1 + 0.2 * 13 / 24), ([0] * 12 + [1] + [0] * 11, 0.3), ([1] * 8 + [0] * 16, 0.1 + 0.2 / 8)],
)
def test_averaged_bands_are_the_mean_price_at_all_hours(resolve, make_pool, make_interval, by_hour, usd):
    plan = resolved(resolve, make_pool, SITE, datetime(2026, 1, 15, 2)).averaged(None, by_hour)
    night = MeteredWindow.of([make_interval(0, 3600, wall_w=1000.0)], 0, 3600)
    energy = [charge for charge in plan.charges if charge.component == "energy"]
    assert fsum(amount_usd(charge, night) for charge in energy) == pytest.approx(usd)
    assert fsum(charge.least_usd_per_h(2.0) for charge in energy) == pytest.approx(2 * usd)


def test_a_demand_charge_moves_with_its_pool():
    [charge, other] = [one for one in charges(DEMAND_SITE, "a", "b") if one.component == "demand"]
    moved = charge.scaled(3.0, "unit 2")
    assert (moved.pool, moved.pools, moved.price) == ("unit 2", ("unit 2", "b"), charge.price)
    # 2 kW at the plugs are 3 kW at the meter, at 20 $ for 730 h
    assert other.least_usd_per_h(2.0) == pytest.approx(60 / 730)


def test_a_clock_is_needed(resolve, make_pool):
    with pytest.raises(CostError, match="starts_at"):
        resolved(resolve, make_pool, SITE, None)


@pytest.mark.parametrize(
    ("electricity", "says"),
    [
        ({"hourly_usd_per_kwh": [0.1] * 23}, "at least 24"),
        ({"hourly_usd_per_kwh": {"price": 0.1, "currency": "EUR"}}, "24 prices are needed"),
        ({"hourly_usd_per_kwh": [0.1] * 24, "seasons": [{"months": [13], "hourly_usd_per_kwh": [1] * 24}]}, "12"),
        ({"hourly_usd_per_kwh": [0.1] * 24, "seasons": [{"months": [1, 1], "hourly_usd_per_kwh": [1] * 24}]}, "two"),
    ],
)
def test_odd_tariffs_are_refused(electricity, says):
    with pytest.raises(ValidationError, match=says):
        Site.model_validate({"electricity": electricity, "pue": 1})


def test_two_tariffs_are_refused():
    with pytest.raises(ValidationError, match="two tariffs"):
        Site.model_validate(SITE | {"electricity_usd_per_kwh": 0.1})


def test_interval_across_an_hour_is_reported():
    half_past = SiteClock(datetime(2026, 1, 1, 8, 30))
    assert not half_past.crosses_the_hour(0.0, 1800.0)
    assert half_past.crosses_the_hour(1500.0, 1801.0)


QUARTER = 900.0
DEMAND_SITE = {"electricity_usd_per_kwh": 0.1, "pue": 1.5, "demand_usd_per_kw_month": 20}


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
    window = MeteredWindow.of(rows, 0.0, 3600.0)
    assert peak(window, "a", "b") == {"a": 3, "b": 4}
    assert peak(window, "a") == {"a": 5}


def test_power_is_averaged_over_a_quarter_of_an_hour():
    # 9 kW for five minutes of a quarter that else draws 3: 5 kW, less than a steady 6 kW for 15 minutes
    rows = drawn("a", [3, 9, 3, 6, 6, 6, 1, 1, 1], 300.0)
    assert peak(MeteredWindow.of(rows, 0.0, 2700.0), "a") == {"a": 6}
    # 40 minutes hold two intervals of 20 minutes; what lies in both is divided
    rows = drawn("a", [4, 1], 1500.0)
    assert peak(MeteredWindow.of(rows, 0.0, 3000.0), "a") == {"a": 4}
    rows = drawn("a", [4, 1, 1, 1], 600.0)
    assert peak(MeteredWindow.of(rows, 0.0, 2400.0), "a") == {"a": 2.5}
    # a window below a quarter of an hour is one interval
    assert peak(MeteredWindow.of(drawn("a", [4, 2], 60.0), 0.0, 120.0), "a") == {"a": 3}


def hardware(*names):
    return group_hardware([PoolFacts(name, "gpu", 1, 1, gpu_tdp_w=100.0) for name in names], share=False)


def charges(site, *names):
    return Site.model_validate(site).charges(hardware(*names))


def test_a_window_pays_its_part_of_the_month():
    plan = CostPlan(tuple(charges(DEMAND_SITE, "a", "b")))
    rows = drawn("a", [5, 3, 1, 1]) + drawn("b", [1, 4, 2, 5])
    ledger = Ledger.of(rows, plan, 0.0, 3600.0)
    # 7 kW at the plugs are 10.5 kW at the site: 210 $ a month, of which an hour is 1/730
    assert ledger.by_component()["demand"] == pytest.approx(10.5 * 20 / 730 * 1e9, abs=2)
    of_a = sum(row.amount_nano_usd for row in ledger.rows if row.component == "demand" and row.pool == "a")
    assert of_a == pytest.approx(3 / 7 * 10.5 * 20 / 730 * 1e9, abs=2)
    assert {row.unit for row in ledger.rows if row.component == "demand"} == {"kW-month"}


def test_a_month_of_even_power_costs_energy_and_power():
    energy, demand = charges(DEMAND_SITE, "p")
    month = MeteredWindow.of(drawn("p", [2.0] * 730, 3600.0), 0.0, 730 * 3600.0)
    assert amount_usd(energy, month) == pytest.approx(2.0 * 1.5 * 730 * 0.1)
    assert demand.quantity(0.0, month) * demand.price.usd == pytest.approx(2.0 * 1.5 * 20)
    assert isinstance(demand, DemandCharge)
    assert demand.least_usd_per_h(2.0) * 730 == pytest.approx(2.0 * 1.5 * 20)


def test_windows_taken_together_keep_their_own_peaks():
    one, other = (MeteredWindow.of(drawn("a", kw), 0.0, 1800.0) for kw in ([4, 2], [6, 8]))
    _, charge = charges(DEMAND_SITE | {"pue": 1}, "a")
    both = MeteredWindow(1.0, {}, {}, (one, other))
    assert charge.quantity(0.0, both) == pytest.approx((4 * 0.5 + 8 * 0.5) / 730)


def test_hosting_that_includes_electricity_includes_its_peak():
    hosting = {"per": "kw_month", "usd": 250, "kw": 7, "electricity": "included"}
    site = {"pue": 1.5, "hosting": hosting, "demand_usd_per_kw_month": 20}
    assert {charge.component for charge in charges(site, "a")} == {"hosting"}
