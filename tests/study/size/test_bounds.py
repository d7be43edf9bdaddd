"""`size` keeps to a budget to the last nano-dollar, and says of how many replications a figure is the mean."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load_for_size
from sim.scenario.sections.size import Budget
from sim.study.size.bounds import FleetNeeds, least_sum, over

SCENARIO = """\
name: s
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 4.5}
  lengths:
    prompt: {distribution: fixed, value: 100}
    output: {distribution: geometric, mean: 50}
horizon_s: 40
warmup_s: 6.9
replications: 2
slo: {ttft_s: 1, tpot_s: 0.05}
size:
  gpus: [rtx-4090]
  tensor_parallel_sizes: [1]
  batching: [{max_num_seqs: 2}]
  max_replicas: 5
  front_up_to: 1
"""
RENTED = "  rents: {}\n  costs: {rented: {acquisition: rent, quotes: {rtx-4090: 0.29}}}\n"
BOUGHT = """\
  servers: {rtx-4090: workstation-4x4090}
  costs: {bought: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-4x4090: 3000}}}
site: {electricity_usd_per_kwh: 0.3, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}
"""


def sized(folder: Path, text: str) -> tuple[list[dict[str, str]], str]:
    """The rows of size.csv, and what stands on stdout."""
    (folder / "s.yaml").write_text(text)
    told = CliRunner().invoke(
        app, ["size", str(folder / "s.yaml"), "--out", str(folder / "out"), "--force", "--no-report"]
    )
    assert told.exit_code == 0, told.output
    with (folder / "out/size.csv").open() as file:
        return list(csv.DictReader(file)), told.stdout


@pytest.fixture(scope="module")
def rented(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, str]], str]:
    folder = tmp_path_factory.mktemp("rented")
    return folder, *sized(folder, SCENARIO + RENTED)


@pytest.mark.slow
def test_budget_equal_to_the_cost_admits_the_fleet(rented: tuple[Path, list[dict[str, str]], str]) -> None:
    folder, (winner, *_), _ = rented
    exact = 0.29 * int(winner["replicas"]) * 730
    # the ledger's nano-dollars of a window of 33.1 s are 4e-8 of it: the bill is not the product of rent and hours
    assert float(winner["operating_usd_per_month"]) > exact * (1 + 1e-9) + 1e-9
    (again, *_), _ = sized(folder, SCENARIO + RENTED + f"  budget: {{usd_per_month: {exact!r}}}\n")
    assert (again["fleet"], again["status"]) == (winner["fleet"], "meets")
    rows, _ = sized(folder, SCENARIO + RENTED + f"  budget: {{usd_per_month: {exact - 0.01!r}}}\n")
    (over_budget,) = [row for row in rows if row["fleet"] == winner["fleet"]]
    assert over_budget["status"] == "over budget"


def test_what_exceeds_a_budget_by_little_shows_how_much() -> None:
    needs = FleetNeeds(9000.4, 2.2784, 630.8 / 730, 0.0)
    assert over(Budget(capex_usd=9000), needs) == "capital of $9,000.4 exceeds $9,000"
    assert over(Budget(kw=2.278), needs) == "power of 2.2784 kW exceeds 2.278 kW"
    assert over(Budget(usd_per_month=630.79), needs).startswith("operating cost of at least $630.80 a month exceeds")
    assert over(Budget(usd_per_month=500), needs, 630.8043 / 730) == "operating cost of $631 a month exceeds $500"


def test_each_row_has_the_number_of_its_replications(rented: tuple[Path, list[dict[str, str]], str]) -> None:
    _, rows, told = rented
    done = {row["status"]: row["replications"] for row in rows}
    assert done["meets"] == "2"
    screened = [row for row in rows if row["status"] == "misses" and row["replications"] == "1"]
    assert screened
    assert all(row["why"].endswith("(1 of 2 replications)") for row in screened)
    assert "(1 of 2" in told
    assert all(row["replications"] == "" for row in rows if row["status"] in ("not simulated", "impossible"))


@pytest.mark.slow
def test_the_bill_of_a_simulated_fleet_decides_over_a_budget_that_its_bound_is_within(tmp_path: Path) -> None:
    # two replicas attain the most; with work to do they draw more than the budget has money for
    scenario = SCENARIO.replace("attainment", "").replace("max_replicas: 5", "max_replicas: 2") + BOUGHT
    (two, *_), _ = sized(tmp_path, scenario.replace("site:", "  budget: {capex_usd: 1e6}\nsite:"))
    assert (two["replicas"], two["status"], two["replications"]) == ("2", "misses", "2")
    least, usd = 730 * float(two["at_least_usd_per_h"]), float(two["usd_per_month"])
    operating = float(two["operating_usd_per_month"])
    assert least < usd
    budget = operating - 0.25 * (usd - least)
    rows, _ = sized(tmp_path, scenario.replace("site:", f"  budget: {{usd_per_month: {budget}}}\nsite:"))
    assert (rows[0]["replicas"], rows[0]["status"]) == ("1", "misses"), "the nearest stands first"
    assert rows[0]["why"].startswith("the best within the budget")
    (row,) = [row for row in rows if row["replicas"] == "2"]
    assert row["status"] == "over budget"
    assert float(row["usd_per_month"]) == pytest.approx(usd)
    assert row["why"].startswith("operating cost of $")
    assert "exceeds" in row["why"]


def test_a_precision_needs_no_fleets_of_the_scenario(tmp_path: Path) -> None:
    catalog = load_catalog()
    for metric in ("ttft_s_p95", "usd_per_million_output_tokens"):
        (tmp_path / "s.yaml").write_text(SCENARIO + RENTED + f"precision: {{metric: {metric}}}\n")
        assert load_for_size(tmp_path / "s.yaml", catalog=catalog).precision is not None
    constant = SCENARIO.replace("process: poisson", "process: constant").replace("geometric, mean:", "fixed, value:")
    (tmp_path / "s.yaml").write_text(constant + RENTED + "precision: {metric: ttft_s_p95}\n")
    with pytest.raises(ScenarioErrors, match="nothing here is random"):
        load_for_size(tmp_path / "s.yaml", catalog=catalog)


@pytest.mark.slow
def test_size_reports_that_it_ignores_a_precision(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        SCENARIO.replace("max_replicas: 5", "max_replicas: 1") + RENTED + "precision: {}\n"
    )
    told = CliRunner().invoke(app, ["size", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "out"), "--no-report"])
    assert told.exit_code == 0
    assert told.stderr.count("precision is ignored: every fleet is simulated with 2 replications") == 1


@pytest.mark.slow
@given(
    st.lists(st.tuples(*[st.integers(0, 20)] * 3, st.floats(0, 10)), max_size=12),
    st.tuples(*[st.integers(0, 50)] * 3),
    st.floats(0, 10),
)
@settings(max_examples=25)
def test_the_least_sum_is_that_of_a_solver(
    others: list[tuple[int, int, int, float]], needed: tuple[int, int, int], cost: float
) -> None:
    *columns, costs = zip(*others, (20, 20, 20, cost), strict=True)
    solved = linprog(costs, -np.array(columns), -np.array(needed), method="highs")
    found = least_sum(list(zip(*columns, strict=True)), np.array(costs), np.array(needed, dtype=float))
    assert found == pytest.approx(solved.fun, rel=1e-6, abs=1e-6)
