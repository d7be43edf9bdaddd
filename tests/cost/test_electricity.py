"""Electricity by the hour: checked against the sums of a bill drawn up by hand."""

from datetime import datetime

import pytest
from pydantic import ValidationError

from sim.cost import Clock, CostError, Ledger, Site, Tariff

BUY = {"acquisition": "buy"}
DAY_AND_NIGHT = [0.10] * 7 + [0.30] * 13 + [0.10] * 4
SITE = {"electricity": {"hourly_usd_per_kwh": DAY_AND_NIGHT}, "pue": 1.0}
FINANCE = {"method": "straight_line", "life_years": 3}


def resolved(resolve, make_pool, site, starts_at):
    return resolve(BUY, make_pool(), site=site, finance=FINANCE, clock=starts_at and Clock(starts_at))


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
    assert tariff.by_hour(Clock(datetime(2026, 1, 1))) == pytest.approx([0.1 + 0.4 * 92 / 365] * 24)


def test_a_clock_is_needed(resolve, make_pool):
    with pytest.raises(CostError, match="starts_at"):
        resolved(resolve, make_pool, SITE, None)


@pytest.mark.parametrize(
    ("electricity", "says"),
    [
        ({"hourly_usd_per_kwh": [0.1] * 23}, "at least 24"),
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


def test_what_lies_across_an_hour_is_told():
    half_past = Clock(datetime(2026, 1, 1, 8, 30))
    assert not half_past.crosses_the_hour(0.0, 1800.0)
    assert half_past.crosses_the_hour(1500.0, 1801.0)
