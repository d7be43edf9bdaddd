"""A year: every figure is a sum that can be done by hand."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.report.fleets.run.year import write_year, year_table
from sim.scenario.sections.slo import Slo
from sim.scenario.year import YearPlan
from sim.study.fleets.run.point import Point
from sim.study.fleets.run.year import RunYear, YearBasis, year_rows
from sim.study.metrics.case_metrics import CaseMetrics

WINDOW_H = 0.5


def point(
    rate, usd_per_h, *, energy=0.0, idle=0.0, idle_energy=0.0, kwh_per_h=1.0, tokens_per_h=1e6, good=True, **axes
):
    metrics = {
        "window_h": WINDOW_H,
        "output_tokens": tokens_per_h * WINDOW_H,
        "total_tokens": 3 * tokens_per_h * WINDOW_H,
        "good_output_tokens": tokens_per_h * WINDOW_H / 2,
        "energy_kwh": kwh_per_h * WINDOW_H,
        "cost_usd": None if usd_per_h is None else usd_per_h * WINDOW_H,
        "energy_usd": {"decode": (energy - idle_energy) * WINDOW_H, "idle": idle_energy * WINDOW_H},
        "idle_tax_usd": idle * WINDOW_H,
        "preemption_waste_usd": 0.0,
        "offered_rps": rate, "requests_per_s": rate, "slo_attainment": 1.0 if good else 0.5,
        "requests": 3600 * rate * WINDOW_H, "completed": 3600 * rate * WINDOW_H,
    }  # fmt: skip
    row = {
        "status": "ok", "overloaded": not good, "meets_slo": good, "slo_attainment": 1.0 if good else 0.5,
        "offered_rps": rate, "requests_per_s": rate, "energy_kwh": kwh_per_h * WINDOW_H, "cost_usd_per_h": usd_per_h,
    }  # fmt: skip
    case = SimpleNamespace(metrics=CaseMetrics.of_data(metrics))
    return Point("fleet", {"rate_rps": rate, **axes}, (case, case), row)


DAY_AND_NIGHT = YearPlan(((0.5, 5840.0, None), (8.0, 2920.0, None)), "rate_rps")


def test_hours_weight_the_loads():
    # 8 rps for 8 hours a day at 5 $/h, 0.5 rps for 16 at 2 $/h
    points = [point(0.5, 2.0, idle=1.5, tokens_per_h=1e6), point(8.0, 5.0, idle=0.5, tokens_per_h=16e6)]
    [row] = year_rows(points, ["rate_rps"], DAY_AND_NIGHT)
    assert row.usd_per_year == pytest.approx(5840 * 2 + 2920 * 5)
    assert row.idle_tax_usd_per_year == pytest.approx(5840 * 1.5 + 2920 * 0.5)
    tokens = 5840 * 1e6 + 2920 * 16e6
    assert row.output_tokens_per_year == pytest.approx(tokens)
    assert row.usd_per_million_output_tokens == pytest.approx((5840 * 2 + 2920 * 5) / tokens * 1e6)
    assert row.usd_per_million_good_tokens == pytest.approx(2 * row.usd_per_million_output_tokens)
    assert row.requests_per_year == pytest.approx(3600 * (5840 * 0.5 + 2920 * 8))
    assert row.kwh_per_year == pytest.approx(8760)
    assert (row.peak_rps, row.meets_slo_at_peak, row.good_hours) == (8.0, True, 8760)
    assert row.interpolated_hours == 0


def test_a_load_in_between_is_the_straight_line():
    plan = YearPlan(((2.0, 8760.0, None),), "rate_rps")
    points = [point(1.0, 2.0), point(5.0, 6.0, good=False)]
    [row] = year_rows(points, ["rate_rps"], plan)
    assert row.usd_per_year == pytest.approx(8760 * 3)
    assert row.interpolated_hours == 8760
    # between a good and a bad point nobody knows
    assert (row.meets_slo_at_peak, row.good_hours) == (False, 0)
    assert row.slo_attainment_at_peak == pytest.approx(0.75 * 1 + 0.25 * 0.5)
    assert "straight line" in year_table(RunYear(plan, (row,)), ["rate_rps"], Slo())["note"]


def test_energy_takes_the_price_of_its_hour():
    # the window was billed at 0.20 $/kWh; the year has 0.10 by night (0 to 12) and 0.40 by day
    plan = YearPlan(tuple((0.5 if hour < 12 else 8.0, 365.0, hour) for hour in range(24)), "rate_rps")
    points = [
        point(0.5, 1.0, energy=0.2, idle=0.5, idle_energy=0.1, kwh_per_h=1.0),
        point(8.0, 1.8, energy=0.6, kwh_per_h=3.0),
    ]
    tariff = [0.1] * 12 + [0.4] * 12
    [row] = year_rows(points, ["rate_rps"], plan, [YearBasis("fleet", {}, tariff)])
    assert row.energy_usd_per_year == pytest.approx(4380 * (1 * 0.1 + 3 * 0.4))
    assert row.usd_per_year == pytest.approx(4380 * (0.8 + 1 * 0.1 + 1.2 + 3 * 0.4))
    assert row.idle_tax_usd_per_year == pytest.approx(4380 * (0.4 + 0.05))
    # hours that are not said take the mean price
    [row] = year_rows(
        points, ["rate_rps"], YearPlan(((0.5, 8760.0, None),), "rate_rps"), [YearBasis("fleet", {}, tariff)]
    )
    assert row.energy_usd_per_year == pytest.approx(8760 * 0.25)


def test_each_setting_of_the_other_axes_has_its_year(tmp_path: Path):
    points = [point(rate, usd, cv=cv) for cv, usd in ((1, 2.0), (4, 3.0)) for rate in (0.5, 8.0)]
    points.append(point(0.5, 9.0, cv=9))
    rows = year_rows(points, ["rate_rps", "cv"], DAY_AND_NIGHT)
    assert [(row.axes["cv"], row.status, row.usd_per_year) for row in rows] == [
        (1, "ok", 17520.0), (4, "ok", 26280.0), (9, "not simulated", None)
    ]  # fmt: skip
    write_year(tmp_path / "year.csv", rows, ["cv"], money=True)
    [head, first, *_] = csv.reader((tmp_path / "year.csv").read_text().splitlines())
    assert head[:3] == ["fleet", "cv", "status"]
    assert first[head.index("usd_per_year")] == "17520.0"


def test_without_money_there_are_tokens(tmp_path: Path):
    rows = year_rows([point(0.5, None), point(8.0, None)], ["rate_rps"], DAY_AND_NIGHT)
    write_year(tmp_path / "year.csv", rows, [], money=False)
    [head, values] = csv.reader((tmp_path / "year.csv").read_text().splitlines())
    assert not [name for name in head if "usd" in name]
    assert float(values[head.index("output_tokens_per_year")]) == pytest.approx(8760e6)
    assert year_table(RunYear(DAY_AND_NIGHT, tuple(rows)), ["rate_rps"], Slo())["rows"][0][2][0] == "8,760 million"
