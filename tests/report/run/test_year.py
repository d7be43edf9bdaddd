"""A year: every figure is a sum that can be done by hand."""

import csv
from pathlib import Path
from types import SimpleNamespace

import pytest

from sim.report.run.year import write_year, year_heads, year_table
from sim.scenario.slo import Slo
from sim.scenario.year import YearPlan
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.points import Point
from sim.study.year import FleetYear, RunYear, YearBasis, year_rows

WINDOW_H = 0.5


def point(rate, *usd_per_h, good=True, **axes):
    """A point with a replication for each cost an hour; a single one is that of two replications."""
    costs = usd_per_h if len(usd_per_h) > 1 else usd_per_h * 2
    given = {name: axes.pop(name) for name in (*GIVEN,) if name in axes}
    cases = tuple(SimpleNamespace(metrics=CaseMetrics.of_data(metrics_of(rate, usd, good, **given))) for usd in costs)
    row = {
        "status": "ok", "overloaded": not good, "meets_slo": good,
        "slo_attainment": cases[0].metrics["slo_attainment"], "cost_usd_per_h": costs[0],
    }  # fmt: skip
    return Point("fleet", {"rate_rps": rate, **axes}, cases, row)


GIVEN = ("energy", "idle", "idle_energy", "kwh_per_h", "tokens_per_h", "arrived", "answered")


def metrics_of(
    rate, usd_per_h, good, *, energy=0.0, idle=0.0, idle_energy=0.0, kwh_per_h=1.0, tokens_per_h=1e6, arrived=1.0,
    answered=1.0,
):  # fmt: skip
    """Return the metrics of a window of WINDOW_H hours with *arrived* arrivals per expected request."""
    return {
        "window_h": WINDOW_H,
        "output_tokens": tokens_per_h * WINDOW_H,
        "total_tokens": 3 * tokens_per_h * WINDOW_H,
        "good_output_tokens": tokens_per_h * WINDOW_H / 2,
        "energy_kwh": kwh_per_h * WINDOW_H,
        "cost_usd": None if usd_per_h is None else usd_per_h * WINDOW_H,
        "energy_usd": {"decode": (energy - idle_energy) * WINDOW_H, "idle": idle_energy * WINDOW_H},
        "idle_tax_usd": idle * WINDOW_H,
        "preemption_waste_usd": 0.0,
        "offered_rps": rate * arrived, "requests_per_s": rate * arrived * answered,
        "slo_attainment": 1.0 if good else 0.5,
        "requests": 3600 * rate * arrived * WINDOW_H, "completed": 3600 * rate * arrived * answered * WINDOW_H,
    }  # fmt: skip


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
    assert "interpolated linearly" in year_table(RunYear(plan, (row,)), ["rate_rps"], Slo())["note"]


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


def basis(**given):
    return [YearBasis("fleet", {}, **given)]


def test_requests_and_tokens_are_those_that_the_workload_brings():
    # 4 % more requests have come than the profile says, and each of its requests has 300 + 60 tokens
    points = [point(rate, 2.0, tokens_per_h=3600 * 60 * rate * 1.04, arrived=1.04) for rate in (0.5, 8.0)]
    [row] = year_rows(points, ["rate_rps"], DAY_AND_NIGHT, basis(requests_per_h=3600.0, tokens=(300.0, 60.0)))
    requests = 3600 * (5840 * 0.5 + 2920 * 8)
    assert row.requests_per_year == pytest.approx(requests)
    assert row.output_tokens_per_year == pytest.approx(60 * requests)
    assert row.total_tokens_per_year == pytest.approx(360 * requests)
    assert row.usd_per_million_output_tokens == pytest.approx(2 * 8760 / (60 * requests) * 1e6)
    assert row.usd_per_million_good_tokens == pytest.approx(2 * row.usd_per_million_output_tokens)
    # where a tenth is refused, a tenth of the expected requests is
    refused = [point(rate, 2.0, arrived=1.04, answered=0.9) for rate in (0.5, 8.0)]
    [row] = year_rows(refused, ["rate_rps"], DAY_AND_NIGHT, basis(requests_per_h=3600.0, tokens=(300.0, 60.0)))
    assert row.requests_per_year == pytest.approx(0.9 * requests)


def test_the_interval_of_a_year_is_that_of_its_replications():
    points = [point(0.5, 2.0, 2.2, 1.8), point(8.0, 5.0, 5.4, 4.9)]
    [row] = year_rows(points, ["rate_rps"], DAY_AND_NIGHT)
    usd = [5840 * a + 2920 * b for a, b in ((2.0, 5.0), (2.2, 5.4), (1.8, 4.9))]
    mean = sum(usd) / 3
    half = 4.302653 * (sum((one - mean) ** 2 for one in usd) / 2 / 3) ** 0.5  # Student's t with 2 degrees of freedom
    assert row.usd_per_year == pytest.approx(mean)
    assert row.half_widths["usd_per_year"] == pytest.approx(half, rel=1e-6)
    assert row.row["usd_per_year_ci95"] == row.half_widths["usd_per_year"]
    per_token = half / row.output_tokens_per_year * 1e6
    assert row.half_widths["usd_per_million_output_tokens"] == pytest.approx(per_token, rel=1e-6)
    # the idle fleet is the same in every replication
    idle = SimpleNamespace(metrics=CaseMetrics.of_data(metrics_of(0, 1.0, good=True)))
    plan = YearPlan(((0.0, 5840.0, None), (8.0, 2920.0, None)), "rate_rps")
    [row] = year_rows([points[1]], ["rate_rps"], plan, basis(idle=idle.metrics))
    spread = [one - 5.1 for one in (5.0, 5.4, 4.9)]
    half = 2920 * 4.302653 * (sum(one**2 for one in spread) / 2 / 3) ** 0.5
    assert row.half_widths["usd_per_year"] == pytest.approx(half, rel=1e-6)
    assert (row.working_hours, row.good_hours) == (2920.0, 2920.0)


def year(*rows):
    return RunYear(DAY_AND_NIGHT, rows)


def fleet_year(name, usd, good_hours=8760.0, runs=(), **axes):
    hours = {"working_hours": 8760.0, "good_hours": good_hours}
    return FleetYear(name, axes, "ok", usd_per_year=usd, usd_of_runs=runs, **hours)


LEVEL = Slo.model_validate({"ttft_s": 1.0})


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ((fleet_year("a", 3287.0), fleet_year("b", 3239.0)),
         "b is cheaper: $3,239 a year against $3,287 (a), 1.5 % less; both meet the SLO in all 8,760 hours."),
        ((fleet_year("a", 3287.0),), "a costs $3,287 a year and meets the SLO in all 8,760 hours."),
        ((fleet_year("a", 900.0, 6570.0), fleet_year("b", 3239.0)),
         "b costs $3,239 a year and meets the SLO in all 8,760 hours. "
         "a costs $900 a year and meets the SLO in 75 % of 8,760 hours."),
        ((fleet_year("a", 900.0, 6570.0), fleet_year("b", 800.0, 0.0)),
         "No fleet meets the SLO in all 8,760 hours: a ($900 a year) in 75 %; b ($800 a year) in 0 %."),
        ((fleet_year("a", 100.0, runs=(99.0, 101.0, 100.0)), fleet_year("b", 101.0, runs=(103.0, 99.0, 101.0))),
         "a and b cost the same a year within the 95 % interval ($100 and $101), and both meet the SLO in all "
         "8,760 hours."),
        ((fleet_year("a", 3.0), FleetYear("b", {}, "not simulated")),
         "a costs $3.00 a year and meets the SLO in all 8,760 hours. "
         "The year of b has loads that were not simulated."),
    ],
)  # fmt: skip
def test_the_verdict_on_a_year(rows, told):
    assert [one.replace("\u00a0", " ") for one in year_heads(year(*rows), LEVEL, {})] == [told]


def test_the_years_of_different_models_are_not_ranked():
    rows = year(fleet_year("a", 3287.0), fleet_year("b", 3239.0))
    assert list(year_heads(rows, LEVEL, {"a": "llama3.1-8b", "b": "llama3.1-70b"})) == [
        "llama3.1-8b: a costs $3,287 a year and meets the SLO in all 8,760 hours.",
        "llama3.1-70b: b costs $3,239 a year and meets the SLO in all 8,760 hours.",
    ]
