"""`gpufleet plan` around existing units and an API: its folder, its words, and what it says to wrong input."""

import csv
from math import fsum
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli import app

SCENARIO = """\
name: small
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 40
slo: {ttft_s: 0.5}
fleets:
  - name: own
    pools:
      - gpu: rtx-4090
        server: workstation-1x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: buy}
  - name: rented
    pools:
      - gpu: rtx-4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: rent, quotes: {rtx-4090: 0.4}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 2, residual_fraction: 0.3}
api: {input: 0.1, output: 0.1}
plan:
  years: 1
  starts: 2027-01
  existing:
    - {fleet: own, units: 2, bought: 2026-03, book_value_usd: 2500}
"""
HELD = ["existing_in_service", "existing_sold", "existing_resale_usd", "disposal_gain_usd"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


def run(*args: str) -> Result:
    result = CliRunner().invoke(app, ["plan", "s.yaml", "--workers", "1", *args], prog_name="gpufleet")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_existing_units_and_the_api_are_in_every_table_and_told(folder: Path) -> None:
    done = run("--relative", "0.2", "--out", "o")
    assert (done.exit_code, done.stderr) == (0, "")
    rows, totals = table(folder / "o" / "plan.csv"), {row["fleet"]: row for row in table(folder / "o" / "summary.csv")}
    assert list(totals) == ["own", "rented", "the API"]
    for name, total in totals.items():
        mine = [row for row in rows if row["fleet"] == name]
        assert sum(int(row["existing_sold"]) for row in mine) == 2
        for column in HELD[2:]:
            assert fsum(float(row[column]) for row in mine) == pytest.approx(float(total[column]))
        assert fsum(float(row["net_cost_usd"]) for row in mine) == pytest.approx(float(total["total_usd"]))
        assert f"{name} sells the 2 existing own " in done.stdout
        assert "book value" in done.stdout
    of_api = [row for row in rows if row["fleet"] == "the API"]
    assert {row["meets_slo"] for row in of_api} == {""}
    assert totals["the API"]["unit_capacity"] == ""
    assert fsum(float(row["api_usd"] or 0) for row in of_api) > 0
    assert "of the load, without the cost of the existing units; its service level is not simulated" in done.stdout
    page = (folder / "o" / "plan.html").read_text()
    assert "the API" in page
    assert "existing sold" in page


ENTRY = "fleet: own, units: 2, bought: 2026-03, book_value_usd: 2500"


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (ENTRY.replace("own", "onw"), "s.yaml:28: plan.existing.0.fleet: unknown fleet 'onw'; did you mean own?"),
        (ENTRY.replace("own", "rented"), "s.yaml:28: plan.existing.0.fleet: rented rents: what exists is owned"),
        (
            ENTRY.replace("2026-03", "2027-02"),
            "s.yaml:28: plan.existing.0.bought: 2027-02 is after the plan starts, 2027",
        ),
        (
            ENTRY.replace("2026-03", "2025-01"),
            "bought: 2025-01 is 24 months before the plan starts: a life of 2 years is",
        ),
        (
            ENTRY.replace("2026-03", "March"),
            "s.yaml:28: plan.existing.0.bought: a month is needed, for example 2027-01",
        ),
        (ENTRY.replace("units: 2", "units: 0"), "s.yaml:28: plan.existing.0.units: "),
        (ENTRY.replace("2500", "-1"), "s.yaml:28: plan.existing.0.book_value_usd: "),
        (ENTRY.replace("units: 2, ", ""), "s.yaml:28: plan.existing.0.units: is missing"),
    ],
)
def test_wrong_input_is_a_line_and_nothing_is_written(folder: Path, entry: str, line: str) -> None:
    (folder / "s.yaml").write_text(SCENARIO.replace(ENTRY, entry))
    done = run()
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["s.yaml"]
