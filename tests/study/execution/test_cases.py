"""Cases that differ in money alone are simulated once and priced one by one, and leave what each leaves by itself.

Runs in which requests are refused: counted, never lost, and no rate is nonsense.
"""

import csv
from pathlib import Path
from typing import Any

import pytest
from small_scenario import REFEREE, SMALL, variant
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.fleet.run import run_fleet
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.study.capacity import capacities
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.execution.digest import digest, quantities, rests_on
from sim.yamlio import parse

POOL = """\
[{gpu: rtx-4090, replicas: 2, server: workstation-4x4090, batching: {max_num_seqs: 2, num_gpu_blocks: 1000},
  steptime: {model: affine, base_s: 0.02, per_token_s: 1.0e-5, per_context_token_s: 0}}]"""
RENTED = "{acquisition: rent, quotes: {rtx-4090: %s}}"
BOUGHT = "{acquisition: buy, share: %s, quotes: {rtx-4090: 2000, workstation-4x4090: 6000}}"
TERMS = """\
slo: {ttft_s: 2, attainment: 0.9}
cost_per_request: true
site: {electricity_usd_per_kwh: 0.1, pue: 1.3}
finance: {method: annuity, life_years: 4, discount_rate: 0.08}
"""


@pytest.fixture(scope="module")
def catalog() -> Any:
    return load_catalog(Path("data"))


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the fleets that have been simulated."""
    names: list[str] = []

    def counted(plan: Any, *share: Any) -> Any:
        names.append(plan.fleet)
        return run_fleet(plan, *share)

    monkeypatch.setattr("sim.case.run.run_fleet", counted)
    return names


def scenario(folder: Path, costs: dict[str, str], *sets: str) -> Scenario:
    path = folder / "s.yaml"
    fleets = [f"  - {{name: {name}, pools: {POOL}, cost: {cost}}}\n" for name, cost in costs.items()]
    path.write_text(SMALL.partition("fleets:")[0] + TERMS + "fleets:\n" + "".join(fleets))
    return load(path, ["replications=1", *sets], catalog=load_catalog(Path("data")))


def points(loaded: Scenario, catalog: Any, out: Path) -> dict[str, bytes]:
    """The files of all points, by name."""
    with ProcessPool(1) as cores:
        run_points(loaded, catalog, out, cores, lambda *_: None)
    return {str(file.relative_to(out)): file.read_bytes() for file in out.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_one_simulation_for_two_prices(tmp_path: Path, catalog: Any, simulated: list[str]) -> None:
    costs = {"dear": RENTED % 2, "cheap": RENTED % 1, "bought": BOUGHT % "false"}
    both = points(scenario(tmp_path, costs), catalog, tmp_path / "all")
    assert simulated == ["dear"]
    alone: dict[str, bytes] = {}
    for name, cost in costs.items():
        alone |= points(scenario(tmp_path, {name: cost}), catalog, tmp_path / name)
    assert simulated == ["dear", *costs]
    assert both == alone


@pytest.mark.slow
def test_shared_server_cannot_be_repriced(tmp_path: Path, catalog: Any, simulated: list[str]) -> None:
    """Half of the server draws less than the whole."""
    costs = {"whole": BOUGHT % "false", "half": BOUGHT % "true", "rented": RENTED % 1}
    costs["dear half"] = costs["half"].replace("2000", "2500")
    both = points(scenario(tmp_path, costs), catalog, tmp_path / "all")
    assert simulated == ["whole", "half"]
    alone = points(scenario(tmp_path, {"half": costs["half"]}), catalog, tmp_path / "half")
    assert alone.items() <= both.items()


@pytest.mark.slow
def test_one_simulation_for_all_prices_of_a_sweep(tmp_path: Path, catalog: Any, simulated: list[str]) -> None:
    axes = "sweep={site.pue: [1.2, 1.4], finance.discount_rate: [0.05, 0.1], workload.arrivals.rate_rps: [1, 2]}"
    loaded = scenario(tmp_path, {"bought": BOUGHT % "false"}, axes, "warmup_s=auto")
    assert len(points(loaded, catalog, tmp_path / "out")) == 8 * 3
    assert simulated == ["bought"] * 2


@pytest.mark.slow
def test_search_continues_for_all_prices(tmp_path: Path, catalog: Any, simulated: list[str]) -> None:
    def found(costs: dict[str, str], out: str) -> Any:
        with ProcessPool(1) as cores:
            return capacities(
                scenario(tmp_path, costs, "replications=2", "horizon_s=2"), catalog, tmp_path / out, cores, 0.5
            )

    (alone,) = found({"dear": RENTED % 2}, "alone")
    first = len(simulated)
    dear, cheap = found({"dear": RENTED % 2, "cheap": RENTED % 1}, "both")
    assert len(simulated) == 2 * first
    assert dear.mean == cheap.mean == alone.mean
    assert [one.fleet for one in cheap.found] == ["cheap", "cheap"]
    assert {one.at.fleet for one in cheap.found if one.at is not None} == {"cheap"}


LENGTHS = "lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 10}}"
TRACE = "{trace: {path: trace.csv, format: csv}}"


def summary(folder: Path, workload: str) -> dict[str, str]:
    small = {"name": "refused", "horizon_s": ..., "fleets.0.pools.0.batching.max_model_len": 50}
    (folder / "s.yaml").write_text(variant(REFEREE, small | {"workload": parse(workload)}))
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--quiet", "--no-report"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    with (folder / "out" / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    return row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "rejected"),
    [
        (f"{{arrivals: {{process: burst, num_requests: 5}}, {LENGTHS}}}", 5),
        (f"{{arrivals: {{process: closed_loop, concurrency: 3, num_requests: 9}}, {LENGTHS}}}", 9),
    ],
)
def test_all_are_refused(tmp_path: Path, workload: str, rejected: int) -> None:
    row = summary(tmp_path, workload)
    assert (row["requests"], row["rejected"], row["completed"]) == (str(rejected), str(rejected), "0")
    assert float(row["slo_attainment"]) == 0
    assert row["ttft_s_p50"] == "inf"


@pytest.mark.slow
def test_the_window_lasts_until_the_last_arrival(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n100,100,10\n")
    row = summary(tmp_path, TRACE)
    assert (row["completed"], row["rejected"]) == ("1", "1")
    assert float(row["offered_rps"]) == pytest.approx(0.02)


@pytest.mark.slow
def test_a_run_without_a_window_is_billed_again_as_it_was(tmp_path: Path) -> None:
    before = summary(tmp_path, f"{{arrivals: {{process: burst, num_requests: 5}}, {LENGTHS}}}")
    options = ["--out", str(tmp_path / "again"), "--quiet", "--no-report", "--set", "site.pue=1.5"]
    options += ["--set", "site.electricity_usd_per_kwh=0.2"]
    result = CliRunner().invoke(app, ["price", str(tmp_path / "out"), *options])
    assert result.exit_code == 0, result.output
    with (tmp_path / "again" / "summary.csv").open() as file:
        assert list(csv.DictReader(file)) == [before]


@pytest.mark.slow
def test_digests_do_not_depend_on_the_order_in_which_cases_are_asked_for(tmp_path: Path, catalog: Any) -> None:
    costs = {"rented": RENTED % 0.4, "bought": BOUGHT % "false"}
    loaded = scenario(tmp_path, costs, "replications=2", "sweep={seed: [1, 2]}")
    every = cases(loaded)
    assert len(every) == 8
    asked = ((digest, (catalog,)), (quantities, ()), (rests_on, (catalog,)))
    for function, more in asked:
        found = [function(loaded, case, *more) for case in every]
        assert found == [function(loaded, case, *more) for case in reversed(every)][::-1]
    assert len({digest(loaded, case, catalog) for case in every}) == 8
