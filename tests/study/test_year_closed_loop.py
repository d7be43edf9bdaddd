"""An office in a closed loop has its yearly bill: hours with people, and hours in which nobody asks."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.cli import app

SCENARIO = """\
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
IDLE_KW = (0.04 * 450 + 150) / 0.9 / 1e3
"""Of the card with weights loaded (data/power.yaml) and of its host, at the plug."""


def run(folder: Path, text: str, *options: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    (folder / "s.yaml").write_text(text)
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--workers", "1", *options]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.stderr
    with (folder / "out/year.csv").open() as year, (folder / "out/summary.csv").open() as summary:
        (row,), table = list(csv.DictReader(year)), list(csv.DictReader(summary))
    return row, table


def test_clients_and_empty_hours_make_a_year(tmp_path: Path) -> None:
    year, (four, eight) = run(tmp_path, SCENARIO)
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


def test_hours_of_the_day_take_their_own_prices(tmp_path: Path) -> None:
    day = "[" + ", ".join("8" if 9 <= hour < 17 else "0" for hour in range(24)) + "]"
    prices = "[" + ", ".join("1.0" if hour < 8 else "0.25" for hour in range(24)) + "]"
    text = SCENARIO.replace("{8: 1000, 4: 500, 6: 500, 0: 6760}", day).replace("[4, 8]", "[8]")
    text = text.replace("electricity_usd_per_kwh: 0.5", f"electricity: {{hourly_usd_per_kwh: {prices}}}")
    year, (at_work,) = run(tmp_path, text + "starts_at: 2026-03-02T10:00:00\n", "--no-report")
    empty = 365 * (16 * CAPITAL_USD_PER_H + IDLE_KW * 1.2 * (8 * 1.0 + 8 * 0.25))
    by_hand = 365 * 8 * float(at_work["cost_usd_per_h"]) + empty
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=1e-6)


def test_requests_per_second_may_be_none_at_night(tmp_path: Path) -> None:
    text = SCENARIO.replace("{process: closed_loop, concurrency: 8, think_s: 5}", "{process: poisson, rate_rps: 1}")
    text = text.replace("workload.arrivals.concurrency: [4, 8]", "workload.arrivals.rate_rps: [1]")
    year, (busy,) = run(
        tmp_path, text.replace("{8: 1000, 4: 500, 6: 500, 0: 6760}", "{1: 2000, 0: 6760}"), "--no-report"
    )
    idle = CAPITAL_USD_PER_H + IDLE_KW * 1.2 * 0.5
    by_hand = 2000 * float(busy["cost_usd_per_h"]) + 6760 * idle
    assert float(year["usd_per_year"]) == pytest.approx(by_hand, rel=1e-6)
    assert year["peak_rps"] == "1.0"
