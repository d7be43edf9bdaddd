"""Years with idle hours: equal energy in year.csv, breakeven, plan and by hand; yearly bill of a closed loop.

An office in a closed loop has its yearly bill: hours with people, and hours in which nobody asks.
"""

import csv
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.answers.run import run_scenario
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.schema import Scenario
from sim.scenario.sweep import axes
from sim.study import breakeven_costs
from sim.study.breakeven_costs import CandidateLedgers
from sim.study.capacity import FleetCapacity, ReplicationCapacity
from sim.study.execution.cases import limits
from sim.study.execution.cores import ProcessPool
from sim.study.plan import FleetPlanOutlook, outlooks, part_loads
from sim.study.points import Point, summarize
from sim.study.size.search import search
from sim.study.year import FleetYear, year_of

CATALOG = load_catalog()
FIXED = {"distribution": "fixed", "value": 60}
LOW, HIGH, CAPACITY = 0.5, 4.0, 6.0
IDLE_KW = (0.04 * 450 + 150) / 0.9 / 1e3
"""Power of the card with weights loaded (data/power.yaml) and of its host, at the plug."""
PUE, USD_PER_KWH = 1.4, 0.3
SCENARIO: dict[str, Any] = {
    "name": "half idle",
    "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": {"prompt": FIXED, "output": FIXED}},
    "horizon_s": 30,
    "slo": {"ttft_s": 1, "tpot_s": 0.1},
    "replications": 2,
    "fleets": [
        {
            "name": "own",
            "pools": [
                {
                    "gpu": "rtx-4090",
                    "server": "workstation-1x4090",
                    "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 1e-5, "per_context_token_s": 1e-8},
                    "batching": {"policy": "vllm", "num_gpu_blocks": 999, "max_num_seqs": 8},
                }
            ],
            "cost": {"acquisition": "buy", "quotes": {"rtx-4090": 1500, "workstation-1x4090": 2000}},
        }
    ],
    "site": {"pue": PUE, "hosting": "none", "electricity_usd_per_kwh": USD_PER_KWH},
    "finance": {"method": "annuity", "discount_rate": 0.08, "life_years": 4, "residual_fraction": 0.2},
    "sweep": {"workload.arrivals.rate_rps": [LOW, HIGH]},
    "load_profile": {0: 4380, LOW: 3380, HIGH: 1000},
    "plan": {"years": 1, "starts": "2027-01"},
}
MEAN = (3380 * LOW + 1000 * HIGH) / 8760


def year_by(folder: Path, scenario: Scenario) -> tuple[FleetYear, list[Point]]:
    cases = run_scenario(scenario, CATALOG, folder, ProcessPool(1), report=False, quiet=True, command=["test"])
    points = summarize(cases, axes(scenario), limits(scenario))
    year = year_of(scenario, CATALOG, points, axes(scenario))
    assert year is not None
    return year.rows[0], points


def capacity(mean: float) -> FleetCapacity:
    """Return a capacity without a search: both replications serve *mean*, and nothing was simulated at it."""
    return FleetCapacity("own", mean, None, tuple(ReplicationCapacity("own", r, mean, None, 0) for r in range(2)))


def planned(folder: Path, scenario: Scenario, most: float = CAPACITY) -> FleetPlanOutlook:
    found = [capacity(most)]
    (one,) = outlooks(scenario, CATALOG, found, part_loads(scenario, CATALOG, found, folder, ProcessPool(1)))
    return one


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("year")


@pytest.fixture(scope="module")
def ledgers(folder: Path) -> CandidateLedgers:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(breakeven_costs, "UTILISATIONS", (0.03, 1.0))
        return CandidateLedgers(
            Scenario.model_validate(SCENARIO), CATALOG, folder, ProcessPool(1), [capacity(CAPACITY)]
        )


@pytest.mark.slow
def test_run_breakeven_and_plan_bill_the_same_energy(folder: Path, ledgers: CandidateLedgers) -> None:
    scenario = Scenario.model_validate(SCENARIO)
    year, points = year_by(folder / "run", scenario)
    low, high = (1e-3 * point.row["facility_power_w_mean"] for point in points)
    kwh = 4380 * IDLE_KW * PUE + 3380 * low + 1000 * high
    assert year.kwh_per_year == pytest.approx(kwh, rel=1e-9)
    assert year.energy_usd_per_year == pytest.approx(kwh * USD_PER_KWH, rel=1e-6)

    assert ledgers.load == pytest.approx(MEAN)
    cost = ledgers.cost(ledgers.candidates[0], ledgers.load)
    assert (cost.units, 8760 * cost.flows.monthly_usd_per_h["energy"]) == (1, pytest.approx(kwh * USD_PER_KWH))
    assert 8760 * cost.usd_per_h == pytest.approx(year.usd_per_year, rel=1e-6)

    plan = planned(folder, scenario)
    assert fsum(row.opex_usd["energy"] for row in plan.months) == pytest.approx(kwh * USD_PER_KWH)


@pytest.mark.slow
def test_a_plan_without_demand_takes_the_mean_of_the_profile_and_buys_for_its_peak(folder: Path) -> None:
    plan = planned(folder, Scenario.model_validate(SCENARIO), most=3.0)
    assert [row.demand for row in plan.months] == pytest.approx([MEAN] * 12)
    assert [row.peak for row in plan.months] == pytest.approx([HIGH] * 12)
    assert {row.in_service for row in plan.months} == {2}
    requests = 3600 * (3380 * LOW + 1000 * HIGH)
    assert fsum(row.requests for row in plan.months) == pytest.approx(requests)


def test_an_idle_fleet_is_simulated_and_not_extrapolated(ledgers: CandidateLedgers) -> None:
    (own,) = ledgers.candidates
    usd_per_h = ledgers.steady(own, 0.0).flows.monthly_usd_per_h["energy"]
    assert usd_per_h == pytest.approx(IDLE_KW * PUE * USD_PER_KWH)


@pytest.mark.slow
def test_size_bills_the_year_of_the_profile_and_asks_for_its_peak(folder: Path) -> None:
    size = {"gpus": ["rtx-4090"], "costs": {"rented": {"acquisition": "rent", "quotes": {"rtx-4090": 99}}}}
    scenario = Scenario.model_validate(SCENARIO | {"size": size | {"max_replicas": 1}})
    found = search(scenario, CATALOG, folder, ProcessPool(1))
    year, points = year_by(folder / "run", Scenario.model_validate(SCENARIO))
    assert found.winner is not None
    assert found.winner.name == "own"
    assert 8760 * (found.winner.usd_per_h or 0.0) == pytest.approx(year.usd_per_year, rel=1e-6)
    # judged at the peak of 4 requests/s, and not at the scenario's own 1
    assert (found.winner.metrics or {})["requests"] == points[1].row["requests"]


OFFICE = """\
name: office
model: llama3.1-8b
workload:
  arrivals: {process: closed_loop, concurrency: 8, think_s: 5}
  lengths:
    prompt: {distribution: fixed, value: 300}
    output: {distribution: fixed, value: 100}
horizon_s: 120
warmup_s: 20
slo: {ttft_s: 2, tpot_s: 0.1}
fleets:
  - name: box
    pools: [{gpu: rtx-4090, server: workstation-1x4090, quantization: fp8, max_model_len: 8192}]
    cost: {acquisition: buy, quotes: {rtx-4090: 1752, workstation-1x4090: 0}}
site: {electricity_usd_per_kwh: 0.5, pue: 1.2}
finance: {method: straight_line, life_years: 1, residual_fraction: 0}
sweep: {workload.arrivals.concurrency: [4, 8]}
load_profile: {8: 1000, 4: 500, 6: 500, 0: 6760}
"""
CAPITAL_USD_PER_H = 1752 / 8760
"""Capital cost of the card with weights loaded (data/power.yaml) and of its host, at the plug [USD/h]."""


def run(folder: Path, text: str, *options: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    (folder / "s.yaml").write_text(text)
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    with (folder / "out/year.csv").open() as year, (folder / "out/summary.csv").open() as summary:
        (row,), table = list(csv.DictReader(year)), list(csv.DictReader(summary))
    return row, table


@pytest.mark.slow
def test_clients_and_empty_hours_make_a_year(tmp_path: Path) -> None:
    year, (four, eight) = run(tmp_path, OFFICE)
    usd_4, usd_8 = float(four["cost_usd_per_h"]), float(eight["cost_usd_per_h"])
    idle = CAPITAL_USD_PER_H + IDLE_KW * 1.2 * 0.5
    by_hand = 1000 * usd_8 + 500 * usd_4 + 500 * (usd_4 + usd_8) / 2 + 6760 * idle
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=1e-6)
    assert (year["peak_concurrency"], year["good_hours"]) == ("8.0", "2000.0")
    assert "peak_rps" not in year
    requests = 3600 * (1250 * float(eight["requests_per_s"]) + 750 * float(four["requests_per_s"]))
    assert float(year["requests_per_year"]) == pytest.approx(requests, rel=1e-6)
    page = (tmp_path / "out/report.html").read_text()
    assert "SLO at the peak of 8 clients" in page
    assert "in the other 6,760 the servers stay on and idle" in page


@pytest.mark.slow
def test_hours_of_the_day_take_their_own_prices(tmp_path: Path) -> None:
    day = "[" + ", ".join("8" if 9 <= hour < 17 else "0" for hour in range(24)) + "]"
    prices = "[" + ", ".join("1.0" if hour < 8 else "0.25" for hour in range(24)) + "]"
    text = OFFICE.replace("{8: 1000, 4: 500, 6: 500, 0: 6760}", day).replace("[4, 8]", "[8]")
    text = text.replace("electricity_usd_per_kwh: 0.5", f"electricity: {{hourly_usd_per_kwh: {prices}}}")
    year, (at_work,) = run(tmp_path, text + "starts_at: 2026-03-02T10:00:00\n", "--no-report")
    empty = 365 * (16 * CAPITAL_USD_PER_H + IDLE_KW * 1.2 * (8 * 1.0 + 8 * 0.25))
    by_hand = 365 * 8 * float(at_work["cost_usd_per_h"]) + empty
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=1e-6)


@pytest.mark.slow
def test_requests_per_second_may_be_none_at_night(tmp_path: Path) -> None:
    text = OFFICE.replace("{process: closed_loop, concurrency: 8, think_s: 5}", "{process: poisson, rate_rps: 1}")
    text = text.replace("workload.arrivals.concurrency: [4, 8]", "workload.arrivals.rate_rps: [1]")
    year, (busy,) = run(
        tmp_path, text.replace("{8: 1000, 4: 500, 6: 500, 0: 6760}", "{1: 2000, 0: 6760}"), "--no-report"
    )
    idle = CAPITAL_USD_PER_H + IDLE_KW * 1.2 * 0.5
    by_hand = 2000 * float(busy["cost_usd_per_h"]) + 6760 * idle
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=1e-6)
    assert year["peak_rps"] == "1.0"
