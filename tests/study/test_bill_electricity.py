"""A simulated site with summer time, weekend prices and a demand charge: the files against sums made by hand."""

import csv
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.sweep import cases
from sim.study.execution.store import load_case
from sim.study.monte_carlo import MONTH, monte_carlo_study
from sim.study.rebill import Rebilling
from sim.study.reprice import load_repriced

pytestmark = pytest.mark.slow

SUNDAY = [0.01 * (hour + 1) for hour in range(24)]
SCENARIO = f"""\
name: spring
model: llama3.1-8b
workload:
  arrivals: {{process: poisson, rate_rps: 0.05}}
  lengths:
    prompt: {{distribution: fixed, value: 300}}
    output: {{distribution: fixed, value: 100}}
starts_at: 2026-03-29T01:20:00
horizon_s: 5400
requests: none
fleets:
  - name: box
    pools: [{{gpu: rtx-4090, server: workstation-1x4090, quantization: fp8, max_model_len: 8192}}]
    cost: {{acquisition: buy, quotes: {{rtx-4090: 1752, workstation-1x4090: 0}}}}
site:
  timezone: Europe/Berlin
  electricity: {{hourly_usd_per_kwh: {[9.0] * 24}, sunday_usd_per_kwh: {SUNDAY}}}
  demand_usd_per_kw_month: 20
  pue: 1.5
finance: {{method: straight_line, life_years: 1, residual_fraction: 0}}
sweep: {{workload.arrivals.rate_rps: [0.05, 0.2]}}
load_profile: {[0.05] * 23 + [0.2]}
"""
CATALOG = load_catalog()


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spring")
    (folder / "s.yaml").write_text(SCENARIO)
    run = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", "--no-report"]
    done = CliRunner().invoke(app, run)
    assert done.exit_code == 0, done.stderr
    return folder


def local(at_s: float) -> datetime:
    begin = datetime(2026, 3, 29, 1, 20, tzinfo=ZoneInfo("Europe/Berlin")).astimezone(ZoneInfo("UTC"))
    return (begin + timedelta(seconds=at_s)).astimezone(ZoneInfo("Europe/Berlin"))


def test_every_kwh_has_the_price_of_its_local_hour(folder: Path) -> None:
    rows = [row for row in table(folder / "out/costs.csv") if row["component"] == "energy"]
    assert len({row["unit_price_usd"] for row in rows}) == 2  # from 1:20 to 2, and from 3 to 4:10 less the last edge
    for row in rows:
        start, end = local(float(row["start_s"])), local(float(row["end_s"]) - 1)
        assert (start.date(), start.hour) == (end.date(), end.hour)
        assert float(row["unit_price_usd"]) == pytest.approx(SUNDAY[start.hour])


@pytest.mark.parametrize("rate", ["0.05", "0.2"])
def test_the_peak_is_the_highest_quarter_of_an_hour(folder: Path, rate: str) -> None:
    quarters = [0.0] * 6
    for row in table(folder / "out/usage.csv"):
        if row["rate_rps"] == rate and float(row["end_s"]) <= 5400:
            quarters[int(float(row["start_s"]) // 900)] += float(row["server_energy_j"])
    kw = max(quarters) / 900 / 1000 * 1.5
    rows = [r for r in table(folder / "out/costs.csv") if r["component"] == "demand" and r["rate_rps"] == rate]
    assert sum(float(row["amount_usd"]) for row in rows) == pytest.approx(kw * 20 * 1.5 / 730, rel=1e-6)


def test_a_year_pays_for_the_peak_of_its_highest_load(folder: Path) -> None:
    (year,) = table(folder / "out/year.csv")
    low, high = table(folder / "out/summary.csv")
    usd = {}
    for rate, row in (("0.05", low), ("0.2", high)):
        costs = [r for r in table(folder / "out/costs.csv") if r["rate_rps"] == rate]
        amounts = {
            name: sum(float(r["amount_usd"]) for r in costs if r["component"] == name) for name in ("energy", "demand")
        }
        usd[rate] = {name: amount / 1.5 for name, amount in amounts.items()}
        usd[rate]["capital"] = float(row["cost_usd_per_h"]) - sum(usd[rate].values())
    # of each hour of the day 52 are on Sundays and 313 are not, but for the hour that summer time skips
    usd_per_kwh = [9 * 313 / 365 + price * 52 / 365 for price in SUNDAY]
    kwh_per_h = [float(row["energy_kwh"]) / 1.5 for row in [low] * 23 + [high]]
    energy = 365 * sum(kwh * price for kwh, price in zip(kwh_per_h, usd_per_kwh, strict=True))
    by_hand = usd["0.2"]["demand"] * 8760 + usd["0.2"]["capital"] * 8760 + energy
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=2e-5)


def test_weekly_loads_are_billed_at_weekly_prices(folder: Path) -> None:
    week = [0.2] * 120 + [0.05] * 48
    again = folder / "week"
    told = CliRunner().invoke(
        app, ["price", str(folder / "out"), "--out", str(again), "--no-report", "--set", f"load_profile={week}"]
    )
    assert told.exit_code == 0, told.stderr
    low, high = (float(row["energy_kwh"]) / 1.5 for row in table(again / "summary.csv"))
    by_hand = 8760 / 168 * (120 * high * 9 + 24 * low * 9 + low * sum(SUNDAY))
    (year,) = table(again / "year.csv")
    assert float(year["energy_usd_per_year"]) == pytest.approx(by_hand, rel=1e-9)


def test_other_readers_of_the_bill_agree(folder: Path) -> None:
    scenario = load(folder / "s.yaml", (), catalog=CATALOG)
    stored = [load_case(path) for path in (folder / "out/points").iterdir()]
    pairs = [(case, next(one for one in stored if one.axes == case.axes)) for case in cases(scenario)]
    for bill, (_, case) in zip(Rebilling(scenario, CATALOG, pairs).bills(), pairs, strict=True):
        assert bill.usd_per_h * bill.window_h == pytest.approx(case.metrics["cost_usd"], abs=1e-8)
    drawn = load(folder / "s.yaml", ("site.pue={uniform: [1.5, 1.5]}", "futures.draws=100"), catalog=CATALOG)
    study = monte_carlo_study(drawn, CATALOG, [case for _, case in pairs])
    assert study is not None
    for one in study.outcomes:
        (usd,) = {*one.draws[MONTH]}
        assert usd == next(c.metrics["cost_usd_per_month"] for _, c in pairs if c.axes == one.axes)
    again = CliRunner().invoke(app, ["price", str(folder / "out"), "--out", str(folder / "again"), "--no-report"])
    assert again.exit_code == 0, again.stderr
    assert (folder / "again/costs.csv").read_bytes() == (folder / "out/costs.csv").read_bytes()


def test_mistakes_of_a_clock_are_reported_with_their_line(folder: Path) -> None:
    def told(*sets: str) -> str:
        with pytest.raises(ScenarioErrors) as error:
            load(folder / "s.yaml", sets, catalog=CATALOG)
        return str(error.value)

    assert "starts_at: 2026-03-29T02:20:00 does not exist in Europe/Berlin" in told("starts_at=2026-03-29T02:20:00")
    assert "starts_at: 2026-10-25T02:20:00 comes twice" in told("starts_at=2026-10-25T02:20:00")
    assert "site.timezone: needs starts_at" in told(
        "starts_at=null", "site.electricity=null", "site.electricity_usd_per_kwh=1"
    )
    assert "did you mean Europe/Berlin" in told("site.timezone=Europe/Berln")
    assert "meter_interval_s: must be at most 900 (15 minutes)" in told("meter_interval_s=3600")
    assert "a date and a time are needed" in told("starts_at=12")
    assert "must be in the years 1900 to 2200" in told("starts_at=9999-12-31T23:00:00")
    both = told("starts_at=2026-10-25T02:20:00", "meter_interval_s=3600")
    assert "comes twice" in both
    assert "must be at most 900" in both
    assert load(folder / "s.yaml", ("starts_at=2026-10-25T02:20:00+01:00",), catalog=CATALOG).starts_at is not None


def test_a_schedule_in_another_zone_is_another_simulation(tmp_path: Path) -> None:
    pool = '{replicas: 2, schedule: {replicas: {"02:30": 1, "06:00": 2}, starting_s: 60}, '
    text = SCENARIO.replace("pools: [{", f"pools: [{pool}").replace(SCENARIO.splitlines()[-1], "")
    (tmp_path / "scenario.yaml").write_text(text)
    with pytest.raises(ScenarioErrors, match="the run is not complete"):  # the schedule is no obstacle
        load_repriced(tmp_path, ["site.pue=1.2"], CATALOG)
    with pytest.raises(ScenarioErrors, match=r"site\.timezone: decides when the schedule switches replicas"):
        load_repriced(tmp_path, ["site.timezone=America/New_York"], CATALOG)
