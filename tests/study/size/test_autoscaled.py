"""Search among autoscaled fleets with a committed base: bounds against simulations, and the winner run again."""

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

import sim
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.schema import Scenario
from sim.study.execution.cores import ProcessPool
from sim.study.size.search import Search

CATALOG = load_catalog()
SCENARIO = """\
name: elastic
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 16}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 26
warmup_s: 8
seed: 3
slo: {e2e_s: 8}
max_model_len: 4096
size:
  gpus: [rtx-4090]
  tensor_parallel_sizes: [1]
  max_replicas: 4
  autoscaling:
    {policy: hpa, metric: outstanding_per_replica, target: 6, sync_period_s: 5, scale_down_stabilization_s: 10}
  committed_base: {months: 12, discount: 0.3}
  cold_start: {total_s: 10}
  costs: {rented: {acquisition: rent, quotes: {rtx-4090: 0.4}}}
"""


def scenario_of(folder: Path, text: str = SCENARIO) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load_for_size(folder / "s.yaml", catalog=CATALOG)


@pytest.mark.slow
@pytest.mark.parametrize("base", ["  committed_base: {months: 12, discount: 0.3}\n", ""])
def test_no_autoscaled_fleet_is_cheaper_or_below_its_bound(tmp_path: Path, base: str) -> None:
    text = SCENARIO.replace("  committed_base: {months: 12, discount: 0.3}\n", base)
    scenario = scenario_of(tmp_path, text)
    assert scenario.size is not None
    one = Search(scenario, scenario.size, CATALOG, tmp_path / "out", ProcessPool(1))
    every = [
        (unit, replicas)
        for unit in one._units
        for replicas in range(unit.fewest, one._bounds.most_replicas(unit, scenario.size) + 1)
    ]
    assert {unit.counted(replicas) for unit, replicas in every} >= {"1 to 2x (1x rtx-4090, rented)"}
    trials = one._trials.in_full([unit.fleet(replicas) for unit, replicas in every])
    for (unit, replicas), trial in zip(every, trials, strict=True):
        floor, _ = one._bounds.floor(unit, replicas, 0)
        assert floor <= trial.usd_per_h + 1e-6, unit.counted(replicas)
        assert not trial.meets or replicas >= one._bounds.bounds_of(unit).least_replicas
    found = one.run()
    assert found.winner is not None
    best = min(trial.usd_per_h for trial in trials if trial.meets)
    assert found.winner.usd_per_h == pytest.approx(best)


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of an answer of the command, and what it printed."""
    folder = tmp_path_factory.mktemp("elastic")
    fixed = SCENARIO.replace("target: 6", "target: 6, min_replicas: 1").replace("max_replicas: 4", "max_replicas: 3")
    (folder / "s.yaml").write_text(fixed.replace("horizon_s: 26\nwarmup_s: 8", "horizon_s: 120\nwarmup_s: 20"))
    done = CliRunner().invoke(app, ["size", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report"])
    assert done.exit_code == 0, done.output
    return folder / "out", done.stdout


@pytest.mark.slow
def test_the_winner_costs_as_much_when_it_is_run(answered: tuple[Path, str], tmp_path: Path) -> None:
    out, _ = answered
    with (out / "size.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    winner = load(out / "winner.yaml", catalog=CATALOG)
    assert winner.fleets[0].name == row["fleet"]
    assert winner.fleets[0].pools[0].autoscaling is not None
    again = sim.run(out / "winner.yaml", out=str(tmp_path / "run"), quiet=True).summary.iloc[0]
    assert bool(again["meets_slo"])
    assert again["cost_usd_per_h"] == pytest.approx(float(row["usd_per_h"]))


def test_the_answer_states_the_replicas_that_always_run(answered: tuple[Path, str]) -> None:
    _, told = answered
    assert "1 replica always runs (committed GPUs: 1, months: 12), and the autoscaler (hpa) adds up to" in told
    assert "Without an autoscaler the cheapest is" in told


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("max_replicas: 4", "max_replicas: 4\n  mixed: {}"), "cannot be searched together with mixed"),
        (
            ("max_replicas: 4", "max_replicas: 4\n  spare_replicas: 1"),
            "cannot be searched together with spare_replicas",
        ),
        (("policy: hpa", "policy: hap"), "hap"),
        (("target: 6", "target: 6, min_replicas: 4"), "must be below size.max_replicas, which is 4"),
        (
            ("acquisition: rent, quotes: {rtx-4090: 0.4}", "acquisition: buy, quotes: {rtx-4090: 1900}"),
            "nothing is rented",
        ),
        (
            ("0.4}}", "0.4}, commitment: {gpus: 2, months: 12, discount: 0.2}}"),
            "conflicts with committed_base",
        ),
    ],
)
def test_what_does_not_go_with_an_autoscaler_is_refused(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    with pytest.raises(ScenarioErrors, match=text):
        scenario_of(tmp_path, SCENARIO.replace(*change))
