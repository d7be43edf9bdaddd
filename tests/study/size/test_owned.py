"""Search around owned GPUs: their running costs, what is added to them, and each fleet once."""

import csv
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.report.size import sentences
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load, load_for_size
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.schema import Scenario
from sim.study.execution.cores import ProcessPool
from sim.study.size.search import Search

CATALOG = load_catalog()
SCENARIO = """\
name: owner
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 30}
  lengths:
    prompt: {distribution: lognormal, mean: 400, cv: 1.0, max: 2000}
    output: {distribution: lognormal, mean: 120, cv: 0.8, max: 600}
horizon_s: 5
warmup_s: 2
slo: {ttft_s: 1, tpot_s: 0.04}
max_model_len: 4096
site: {electricity_usd_per_kwh: 0.12, pue: 1.4, hosting: {per: kw_month, usd: 150}}
finance: {method: annuity, discount_rate: 0.08, life_years: 4}
operations: {maintenance: {fraction_per_year: 0.05}, deployment: {usd_per_server: 500}}
size:
  gpus: [l40s]
  owned: {rtx-4090: 2}
  servers: {rtx-4090: workstation-2x4090}
  tensor_parallel_sizes: [1]
  max_replicas: 4
  costs: {rented: {acquisition: rent, quotes: {l40s: 0.9}}}
"""


def scenario_of(folder: Path, text: str = SCENARIO) -> Scenario:
    (folder / "s.yaml").write_text(text)
    return load_for_size(folder / "s.yaml", catalog=CATALOG)


def searched(folder: Path, text: str = SCENARIO) -> tuple[Search, Scenario]:
    scenario = scenario_of(folder, text)
    assert scenario.size is not None
    return Search(scenario, scenario.size, CATALOG, folder / "out", ProcessPool(1)), scenario


@pytest.mark.slow
def test_owned_hardware_pays_what_bought_hardware_pays_by_the_month(tmp_path: Path) -> None:
    _, scenario = searched(tmp_path)
    pool: dict[str, Any] = {"gpu": "rtx-4090", "replicas": 2, "server": "workstation-2x4090"}

    def charges(**cost: Any) -> dict[str, float]:
        data = {"fleets": [{"name": "a", "pools": [pool], "cost": {"acquisition": "buy", **cost}}]}
        fleet = Scenario.model_validate(scenario.model_dump(exclude_unset=True) | data | {"size": None}).fleets[0]
        costs = resolve_fleet(scenario, fleet, CATALOG).costs
        assert costs is not None
        return {one.component: one.least_usd_per_h(0.1) for one in costs.charges if one.paid.monthly} | {
            "once": sum(one.once_usd for one in costs.charges)
        }

    bought, owned = charges(), charges(owned=True)
    assert owned == bought | {"once": 0}
    assert bought["once"] > 0
    assert {"maintenance", "hosting", "energy"} <= owned.keys()


@pytest.mark.slow
def test_no_fleet_around_owned_gpus_is_cheaper_or_below_its_bound(tmp_path: Path) -> None:
    one, scenario = searched(tmp_path)
    assert scenario.size is not None
    every = [
        (unit, replicas)
        for unit in one._units
        for replicas in range(1, one._bounds.most_replicas(unit, scenario.size) + 1)
    ]
    names = {unit.counted(replicas) for unit, replicas in every}
    assert {"2x (1x rtx-4090, owned)", "2x (1x rtx-4090, owned) and 1x (1x l40s, rented)"} <= names
    trials = one._trials.in_full([unit.fleet(replicas) for unit, replicas in every])
    for (unit, replicas), trial in zip(every, trials, strict=True):
        assert one._bounds.floor(unit, replicas, 0)[0] <= trial.usd_per_h + 1e-6, unit.counted(replicas)
        assert not trial.meets or replicas >= one._bounds.bounds_of(unit).least_replicas
    found = one.run()
    assert found.winner is not None
    assert found.winner.usd_per_h == pytest.approx(min(trial.usd_per_h for trial in trials if trial.meets))


@pytest.mark.slow
def test_what_is_added_to_owned_gpus_costs_as_much_when_it_is_run(tmp_path: Path) -> None:
    scenario_of(tmp_path)
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["size", str(tmp_path / "s.yaml"), "--out", str(out), "--quiet", "--no-report"])
    assert done.exit_code == 0, done.output
    with (out / "size.csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    assert row["fleet"].startswith("2x (1x rtx-4090, owned) and "), row["fleet"]
    winner = load(out / "winner.yaml", catalog=CATALOG)
    assert winner.fleets[0].name == row["fleet"]
    again = sim.run(out / "winner.yaml", out=str(tmp_path / "run")).summary.iloc[0]
    assert again["capex_usd"] == 0
    assert bool(again["meets_slo"])
    assert again["cost_usd_per_h"] == pytest.approx(float(row["usd_per_h"]))


@pytest.mark.slow
def test_the_answer_states_the_number_of_owned_gpus_in_use(tmp_path: Path) -> None:
    one, scenario = searched(tmp_path)
    told = sentences(one.run(), scenario)
    assert "Owned GPUs in use: 2 of 2 rtx-4090 (0 stay free)." in told
    assert any(line.startswith("The fleet needs beside them: ") and line.endswith(" rented l40s.") for line in told)


def test_an_owned_gpu_pays_for_its_part_of_the_server(tmp_path: Path) -> None:
    one, _ = searched(tmp_path, SCENARIO.replace("rate_rps: 30", "rate_rps: 3"))
    unit = next(unit for unit in one._units if unit.way == "owned")
    half, whole = (one._bounds.floor(unit, replicas, 0)[0] for replicas in (1, 2))
    assert half == pytest.approx(whole / 2)


@pytest.mark.slow
def test_others_are_added_to_owned_gpus_only_where_these_may_not_suffice(tmp_path: Path) -> None:
    text = SCENARIO.replace("rate_rps: 30", "rate_rps: 3").replace("owned: {rtx-4090: 2}", "owned: {rtx-4090: 20}")
    one, scenario = searched(tmp_path, text)
    found = one.run()
    assert found.winner is not None
    assert "Nothing else has to be bought or rented." in sentences(found, scenario)
    names = [row.name for row in found.candidates]
    assert "20x (1x rtx-4090, owned) with others" in names
    assert not any(" and 1x (1x l40s" in name for name in names)


@pytest.mark.slow
def test_a_fleet_of_the_scenario_that_the_section_also_has_is_listed_once(tmp_path: Path) -> None:
    own = """\
fleets:
  - name: mine
    pools: [{gpu: l40s, replicas: 3, tensor_parallel_size: 1}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
"""
    one, _ = searched(tmp_path, SCENARIO.replace("size:\n", own + "size:\n"))
    names = [row.name for row in one.run().candidates]
    assert len({"mine", "3x (1x l40s, rented)"} & set(names)) == 1


@pytest.mark.slow
def test_a_fleet_that_inherits_its_format_is_listed_once(tmp_path: Path) -> None:
    own = """\
quantization: fp8
fleets:
  - name: mine
    pools: [{gpu: l40s, replicas: 3, tensor_parallel_size: 1}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
"""
    owned = "  owned: {rtx-4090: 2}\n  servers: {rtx-4090: workstation-2x4090}\n"
    text = SCENARIO.replace(owned, "").replace("size:\n", own + "size:\n  quantizations: [fp8]\n")
    one, _ = searched(tmp_path, text)
    names = [row.name for row in one.run().candidates]
    assert len({"mine", "3x (1x l40s fp8, rented)"} & set(names)) == 1


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("rtx-4090: 2}", "rtx-409: 2}"), "did you mean rtx-4090"),
        (("max_replicas: 4", "max_replicas: 4\n  mixed: {}"), "cannot be searched beside mixed"),
        (("{rented:", "{owned:"), "is the label of GPUs in size.owned"),
        (("finance: {method: annuity, discount_rate: 0.08, life_years: 4}\n", ""), "buying needs finance"),
    ],
)
def test_what_does_not_go_with_owned_gpus_is_refused(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    with pytest.raises(ScenarioErrors, match=text):
        scenario_of(tmp_path, SCENARIO.replace(*change))


ALONE = (
    SCENARIO[: SCENARIO.index("finance:")] + "size: {owned: {rtx-4090: 2}, servers: {rtx-4090: workstation-2x4090}}\n"
)


def test_owned_gpus_alone_need_no_finance_and_no_other_candidates(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, ALONE)
    assert scenario.size is not None
    one = Search(scenario, scenario.size, CATALOG, tmp_path / "out", ProcessPool(1))
    assert all(unit.name.endswith(", owned") for unit in one._units)
    assert sim.check(tmp_path / "s.yaml")


@pytest.mark.slow
def test_a_rented_fleet_of_owned_gpus_is_reported_to_pay_rent(tmp_path: Path) -> None:
    own = "fleets: [{name: mine, pools: [{gpu: rtx-4090}], cost: {acquisition: rent, quotes: {rtx-4090: 0.4}}}]\nsize:"
    one, scenario = searched(tmp_path, SCENARIO.replace("size:", own).replace("rate_rps: 30", "rate_rps: 3"))
    told = sentences(one.run(), scenario)
    assert any(line.startswith("mine is charged its rent for rtx-4090, which size.owned names") for line in told), told


@pytest.mark.parametrize(
    ("size", "text"),
    [
        ("{gpus: [l40s], rents: {l40s: 3}}", "a label of your choice comes first"),
        ("{gpus: [l40s], rents: {rented: {l40s: 3}}}", "3 is a price, and rents name offers"),
        ("{max_replicas: 2}", "gpus or owned is needed"),
        ("{gpus: [l40s]}", "costs or rents is needed"),
    ],
)
def test_the_error_for_a_search_space_without_prices_names_the_fix(tmp_path: Path, size: str, text: str) -> None:
    with pytest.raises(ScenarioErrors, match=text):
        scenario_of(tmp_path, SCENARIO[: SCENARIO.index("size:")] + f"size: {size}\n")
