"""`gpufleet plan` from a scenario to its folder, and what it says to wrong input.

`gpufleet plan` around existing units and an API: its folder, its words, and what it says to wrong input.
"""

import csv
import json
from math import fsum
from pathlib import Path
from typing import Any

import pytest
from pages import charts_of, text_of
from small_scenario import OWN_OR_RENTED
from typer.testing import CliRunner, Result

from sim.cli import app

pytestmark = pytest.mark.usefixtures("coarsely")

SCENARIO = (
    OWN_OR_RENTED.replace("poisson", "constant")
    + """\
plan:
  years: 1.5
  starts: 2027-01
  demand: {growth_per_year: 1.0}
  lead_time_months: 2
  price_decline_per_year: 0.2
"""
)


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


@pytest.mark.slow
def test_a_plan_from_scenario_to_folder(folder: Path) -> None:
    done = run("--relative", "0.2", "--set", "plan.reserve_units=1")
    assert (done.exit_code, done.stderr) == (0, "")
    out = folder / "outputs" / "small-plan--reserve_units=1--relative=0.2"
    pages = ["plan.csv", "plan.html", "plan.png"]
    names = ["manifest.json", *pages, "points", "resolved.yaml", "scenario.yaml", "summary.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert json.loads((out / "manifest.json").read_text())["status"] == "finished"
    rows, totals = table(out / "plan.csv"), {row["fleet"]: row for row in table(out / "summary.csv")}
    for fleet in ("own", "rented"):
        mine = [row for row in rows if row["fleet"] == fleet]
        assert [row["month"] for row in mine] == [*map(str, range(1, 19)), "end"]
        assert [mine[0]["date"], mine[12]["date"], mine[18]["date"]] == ["2027-01", "2028-01", "2028-07"]
        assert float(mine[0]["demand"]) == 4
        assert float(mine[12]["demand"]) == pytest.approx(8)
        net = fsum(float(row["net_cost_usd"]) for row in mine)
        assert net == pytest.approx(float(totals[fleet]["total_usd"]))
        assert float(mine[-1]["cumulative_cost_usd"]) == pytest.approx(net)
        present = fsum(float(row["present_cost_usd"]) for row in mine)
        assert present == pytest.approx(float(totals[fleet]["net_present_cost_usd"]))
        bought = sum(int(row["ordered"]) for row in mine)
        assert bought == int(totals[fleet]["bought"]) == int(mine[-1]["retired"])
    slo = {fleet: [row["meets_slo"] for row in rows if row["fleet"] == fleet][:3] for fleet in totals}
    assert slo == {"own": ["false", "false", "true"], "rented": ["true"] * 3}
    assert "own is short of capacity in 2 months" in done.stdout or "rented meets the SLO" in done.stdout
    assert not [name for name in rows[0] if name.startswith(("existing", "api"))]
    page = text_of((out / "plan.html").read_text())
    assert "small with plan.reserve_units=1" in page
    assert len(charts_of(page)) == 3
    assert (out / "plan.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.slow
def test_a_second_plan_takes_its_cases_from_the_first(folder: Path) -> None:
    first = run("--relative", "0.2", "--out", "out", "--no-report")
    points = folder / "out" / "points"
    before = {path: path.stat().st_mtime_ns for path in points.rglob("case.json")}
    again = run("--relative", "0.2", "--set", "plan.demand.growth_per_year=0", "--out", "out", "--force", "--no-report")
    assert (first.exit_code, again.exit_code) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in points.rglob("case.json")} == before
    assert first.stdout != again.stdout


@pytest.mark.slow
def test_fleets_without_a_serving_unit_are_reported(folder: Path) -> None:
    done = run("--relative", "0.2", "--set", "slo.ttft_s=0.001", "--out", "o", "--no-report")
    assert done.exit_code == 0
    assert "own cannot be planned: one unit does not meet the service level at any load." in done.stdout
    assert table(folder / "o" / "plan.csv") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "line"),
    [
        (("years: 1.5", "years: 1.55"), "s.yaml:24: plan: years is 1.55: whole months are needed"),
        (("2027-01", "2027-13"), "s.yaml:26: plan.starts: a month is needed, for example 2027-01, not '2027-13'"),
        (("{growth_per_year: 1.0}", "{quarterly: [1, 2]}"), "quarterly has 2 values; 1.5 years need 6"),
        (("{growth_per_year: 1.0}", "{now: 1, quarterly: [1]}"), "now and quarterly both give the demand"),
        (
            ("price_decline_per_year: 0.2", "price_decline_per_year: 1"),
            "price_decline_per_year: must be below 1, not 1",
        ),
        (
            ("lead_time_months", "lead_times_months"),
            "plan.lead_times_months: unknown key; did you mean lead_time_months",
        ),
        (("plan:\n", "plan:\n  bridge: {ownn: {acquisition: rent}}\n"), "unknown fleet 'ownn'; did you mean own?"),
        (("plan:\n", "plan:\n  bridge: {rented: {acquisition: rent}}\n"), "plan.bridge.rented: rents already"),
        (
            ("plan:\n", "plan:\n  bridge: {own: {acquisition: rent}}\n"),
            "or quote dollars per GPU-hour (plan.bridge.own.quotes.rtx-4090)",
        ),
        (("    cost: {acquisition: buy}\n", ""), "fleets.0.cost: is missing: a plan over years needs to know"),
    ],
)
def test_wrong_input_is_a_line_and_nothing_is_written(folder: Path, change: tuple[str, str], line: str) -> None:
    assert change[0] in SCENARIO
    (folder / "s.yaml").write_text(SCENARIO.replace(*change))
    done = run()
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["s.yaml"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("plan=null", "s.yaml: plan: is missing"),
        ("slo={}", "s.yaml: slo: a capacity needs at least one limit"),
        ("workload.arrivals={process: burst, num_requests: 9}", "a burst has no rate to raise"),
    ],
)
def test_what_a_plan_needs(folder: Path, option: str, text: str) -> None:
    done: Any = run("--set", option)
    assert done.exit_code == 2
    assert text in done.stderr
    assert [path.name for path in folder.iterdir()] == ["s.yaml"]


EXISTING = (
    OWN_OR_RENTED.replace("life_years: 1,", "life_years: 2,")
    + """\
api: {input: 0.1, output: 0.1}
plan:
  years: 1
  starts: 2027-01
  existing:
    - {fleet: own, units: 2, bought: 2026-03, book_value_usd: 2500}
"""
)
HELD = ["existing_in_service", "existing_sold", "existing_resale_usd", "disposal_gain_usd"]


@pytest.mark.slow
def test_existing_units_and_the_api_are_in_every_table_and_text(folder: Path) -> None:
    (folder / "s.yaml").write_text(EXISTING)
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
    assert "existing, sold" in page


ENTRY = "fleet: own, units: 2, bought: 2026-03, book_value_usd: 2500"


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (ENTRY.replace("own", "onw"), "s.yaml:29: plan.existing.0.fleet: unknown fleet 'onw'; did you mean own?"),
        (ENTRY.replace("own", "rented"), "s.yaml:29: plan.existing.0.fleet: rented rents: existing units are owned"),
        (
            ENTRY.replace("2026-03", "2027-02"),
            "s.yaml:29: plan.existing.0.bought: 2027-02 is after the start of the plan, 2027",
        ),
        (
            ENTRY.replace("2026-03", "2025-01"),
            "bought: 2025-01 is 24 months before the plan starts: a life of 2 years is",
        ),
        (
            ENTRY.replace("2026-03", "March"),
            "s.yaml:29: plan.existing.0.bought: a month is needed, for example 2027-01",
        ),
        (ENTRY.replace("units: 2", "units: 0"), "s.yaml:29: plan.existing.0.units: "),
        (ENTRY.replace("2500", "-1"), "s.yaml:29: plan.existing.0.book_value_usd: "),
        (ENTRY.replace("units: 2, ", ""), "s.yaml:29: plan.existing.0.units: is missing"),
    ],
)
def test_wrong_input_of_existing_units_is_a_line_and_nothing_is_written(folder: Path, entry: str, line: str) -> None:
    (folder / "s.yaml").write_text(EXISTING.replace(ENTRY, entry))
    done = run()
    assert (done.exit_code, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert [path.name for path in folder.iterdir()] == ["s.yaml"]
