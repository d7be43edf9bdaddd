"""Weekends, holidays, time zones and summer time: prices worked by hand from a wall calendar."""

from datetime import date, datetime

import pytest

from sim.cost.carbon import Carbon
from sim.cost.clock import MIDNIGHT, ClockError, SiteClock
from sim.cost.electricity import Band, Tariff
from sim.cost.site import Site
from sim.records import Interval
from sim.scenario.replica_schedule import ReplicaSchedule

HOUR = 3600.0
WEEK = {
    "hourly_usd_per_kwh": [0.10] * 7 + [0.30] * 13 + [0.10] * 4,  # 5.00 a day for 1 kW
    "saturday_usd_per_kwh": [0.20] * 24,  # 4.80
    "sunday_usd_per_kwh": [0.05] * 24,  # 1.20
}
OCLOCK = {"hourly_usd_per_kwh": [hour / 100 for hour in range(24)]}


def clock(text, zone=None):
    return SiteClock.of(datetime.fromisoformat(text), zone)


def metered(hour):
    """Return a reading of one kWh in the hour that begins *hour* hours after simulated time 0."""
    return Interval("p", "", 0, "serving", HOUR * hour, HOUR * (hour + 1), HOUR, server_energy_j=3.6e6)


def paid(tariff, at, hours):
    """Return the cost of 1 kW from simulated time 0 on, with each hour metered separately and charged by its band."""
    bands = [Band(at, tariff, price.usd) for price, _ in tariff.bands()]
    total = 0.0
    for hour in range(hours):
        held = [band.usd_per_kwh for band in bands if band.applies_to(metered(hour))]
        assert len(held) == 1
        total += held[0]
    return total


def test_two_weeks_of_december_with_christmas():
    tariff = Tariff.model_validate(WEEK | {"holidays": ["2026-12-25", "2026-12-26"]})
    # Monday 14 to Sunday 27 December 2026: 9 working days, Saturday 19th, Sundays 20th and 27th, and two holidays
    # (Friday 25th, Saturday 26th)
    assert paid(tariff, clock("2026-12-14T00:00"), 14 * 24) == pytest.approx(9 * 5.00 + 1 * 4.80 + 4 * 1.20)


@pytest.mark.parametrize(
    ("month", "usd", "hours"),
    [
        # 22 working days, 4 Saturdays, 5 Sundays, of which one has 23 hours
        (3, 22 * 5.00 + 4 * 4.80 + (5 * 24 - 1) * 0.05, 743),
        # 22 working days, 5 Saturdays, 4 Sundays, of which one has 25 hours
        (10, 22 * 5.00 + 5 * 4.80 + (4 * 24 + 1) * 0.05, 745),
    ],
)
def test_the_mean_of_a_month_is_the_bill_of_its_hours(month, usd, hours):
    tariff = Tariff.model_validate(WEEK)
    begin = clock(f"2026-{month:02}-01T00:00", "Europe/Berlin")
    assert tariff.mean_usd_per_kwh(begin, month) == pytest.approx(usd / hours)
    assert paid(tariff, begin, hours) == pytest.approx(usd)
    bands = [Band(begin, tariff, price.usd) for price, _ in tariff.bands()]
    assert sum(band.share(month) * band.usd_per_kwh for band in bands) == pytest.approx(usd / hours)


def test_a_load_by_hour_weighs_the_prices():
    tariff, year = Tariff.model_validate(WEEK), clock("2026-01-01T00:00")
    # 2026 has 52 Saturdays, 52 Sundays and 261 working days; the load is 1 from 9 to 17 o'clock and 0 else
    office = [float(9 <= hour < 17) for hour in range(24)]
    usd = (261 * 0.30 + 52 * 0.20 + 52 * 0.05) / 365
    assert tariff.mean_usd_per_kwh(year, weights=office) == pytest.approx(usd)
    # and by the week, on working days alone
    assert tariff.mean_usd_per_kwh(year, weights=office * 5 + [0.0] * 48) == pytest.approx(0.30)
    assert tariff.by_hour(year)[12] == pytest.approx(usd)
    assert tariff.mean_usd_per_kwh(year) == pytest.approx((261 * 5.00 + 52 * 4.80 + 52 * 1.20) / 8760)


def test_season_has_a_separate_week():
    summer = {"months": [7], "hourly_usd_per_kwh": [0.40] * 24, "sunday_usd_per_kwh": [0.01] * 24}
    tariff = Tariff.model_validate(WEEK | {"seasons": [summer]})
    # July 2026: 27 days with the season's price, Saturdays among them, 4 Sundays
    assert tariff.mean_usd_per_kwh(clock("2026-07-09T12:00"), 7) == pytest.approx((27 * 0.40 + 4 * 0.01) / 31)
    assert tariff.usd_per_kwh(datetime(2026, 8, 2, 3)) == 0.05


@pytest.mark.parametrize(
    ("begin", "oclock", "length_h"),
    [
        ("2026-03-29T00:00", [0, 1, 3, 4], 23),
        ("2026-10-25T00:00", [0, 1, 2, 2, 3], 25),
        ("2026-06-01T22:00", [22, 23, 0], 24),
    ],
)
def test_prices_follow_the_local_clock_through_the_switch(begin, oclock, length_h):
    at = clock(begin, "Europe/Berlin")
    tariff, carbon = Tariff.model_validate(OCLOCK), Carbon.model_validate({"grid_g_per_kwh": list(range(24))})
    assert [at.at(HOUR * hour).hour for hour in range(len(oclock))] == oclock
    assert paid(tariff, at, len(oclock)) == pytest.approx(sum(oclock) / 100)
    drawn = [metered(hour) for hour in range(len(oclock))]
    assert carbon.plan({}, 0, 1.0, at).operational_kg(drawn) == pytest.approx(sum(oclock) / 1000)
    assert sum(dict(at.days)[at.starts_at.date()]) == length_h


@pytest.mark.parametrize("begin", ["2026-03-29T00:40", "2026-10-25T00:40"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "America/New_York"])
def test_no_meter_interval_crosses_an_hour(begin, zone):
    at = clock(begin, zone)
    reading = 0.0
    for _ in range(30):
        after = at.next_hour_s(reading)
        assert reading < after <= reading + HOUR
        assert not at.crosses_the_hour(reading, after)
        assert at.hour_at(reading + 1) == at.hour_at(after - 1)
        assert at.crosses_the_hour(reading, after + 1)
        reading = after


def test_repeated_hour_counts_as_two_hours():
    at = clock("2026-10-25T00:00", "Europe/Berlin")
    assert at.hour_at(2.5 * HOUR) == (date(2026, 10, 25), 2, 0)
    assert at.hour_at(3.5 * HOUR) == (date(2026, 10, 25), 2, 1)


def test_seconds_of_the_day_start_at_local_midnight():
    at = clock("2026-03-28T23:59:30", "Europe/Berlin")
    # clocks jump from 2 to 3 o'clock on the 29th
    assert [at.second_of_day(s) for s in (0.0, 29.5, 30.0, 3690.25, 30 + 2 * HOUR)] == [
        *(86_370.0, 86_399.5, 0.0, 3660.25, 3 * HOUR),
    ]


def test_the_year_has_as_many_hours_as_on_the_calendar():
    for text, zone, hours in (("2026-01-01", "Europe/Berlin", 8760), ("2028-05-01", "America/New_York", 8784)):
        days = clock(text, zone).days
        assert sum(sum(lengths) for _, lengths in days) == hours
        assert sorted({sum(lengths) for _, lengths in days}) == [23, 24, 25]


def test_a_moment_is_local_or_has_an_offset():
    assert clock("2026-07-01T12:00", "Europe/Berlin") == clock("2026-07-01T06:00-04:00", "Europe/Berlin")
    assert clock("2026-07-01T12:00+00:00", "Europe/London") != clock("2026-07-01T12:00+00:00", "UTC")
    assert clock("2026-07-01T12:00-04:00").starts_at == datetime(2026, 7, 1, 12)
    with pytest.raises(ClockError, match="does not exist in Europe/Berlin"):
        clock("2026-03-29T02:30", "Europe/Berlin")
    with pytest.raises(ClockError, match=r"comes twice.* 2026-10-25T02:30:00\+02:00 or 2026-10-25T02:30:00\+01:00"):
        clock("2026-10-25T02:30", "Europe/Berlin")
    assert clock("2026-10-25T02:30+01:00", "Europe/Berlin").at(1800).hour == 3


def test_a_schedule_follows_the_local_clock():
    nights = ReplicaSchedule.model_validate({"replicas": {"02:30": 1, "06:00": 4}, "starting_s": 0})
    # 02:30 is skipped: the clock passes it when it jumps from 2 to 3, two hours after midnight; 6 o'clock comes early
    assert nights.switches_s(clock("2026-03-29T00:00", "Europe/Berlin"), 23 * HOUR) == [2 * HOUR, 5 * HOUR]
    assert nights.switches_s(clock("2026-10-25T00:00", "Europe/Berlin"), 24 * HOUR) == [
        2.5 * HOUR,
        3.5 * HOUR,
        7 * HOUR,
    ]
    assert nights.switches_s(MIDNIGHT, 24 * HOUR) == [2.5 * HOUR, 6 * HOUR]


def test_odd_calendars_are_refused():
    for site, says in (
        ({"timezone": "Europe/Berlim"}, "did you mean Europe/Berlin"),
        ({"electricity": OCLOCK | {"holidays": ["2026-12-25"]}}, "sunday_usd_per_kwh"),
        ({"electricity": WEEK | {"saturday_usd_per_kwh": [0.1] * 23}}, "at least 24"),
    ):
        with pytest.raises(ValueError, match=says):
            Site.model_validate(site | {"pue": 1.1})
