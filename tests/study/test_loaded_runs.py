"""A run held in memory answers as `price`, and as another run, would."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from sim.answers.run import price_run, run_scenario
from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file
from sim.scenario.sweep import axes
from sim.study.execution.cases import limits
from sim.study.execution.cores import ProcessPool
from sim.study.loaded_runs import RunAnswers
from sim.study.points import summarize
from sim.study.reprice import load_repriced

SHORT = {"horizon_s": 25, "warmup_s": 3, "sweep": {"workload.arrivals.rate_rps": [1, 3]}, "replications": 1}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def run_in(folder: Path, catalog: Catalog, **values: Any) -> list[dict[str, Any]]:
    """The rows of a run of the demo with *values*."""
    file = scenario_file(Path("4x4090-vs-2xa100"))
    scenario = load(file, options(SHORT | values), catalog=catalog)
    with ProcessPool(1) as cores:
        cases = run_scenario(scenario, catalog, folder, cores, report=False, quiet=True, command=["test"])
    return [dict(point.row) for point in summarize(cases, axes(scenario), limits(scenario))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Path:
    folder = tmp_path_factory.mktemp("held") / "run"
    run_in(folder, catalog)
    return folder


@pytest.fixture(scope="module")
def answers(folder: Path, catalog: Catalog) -> RunAnswers:
    return RunAnswers(folder, catalog)


@pytest.mark.slow
def test_prepared_run_reads_no_file_for_other_prices_and_limits(
    answers: RunAnswers, folder: Path, catalog: Catalog, tmp_path: Path
) -> None:
    prepared = RunAnswers(Path(shutil.copytree(folder, tmp_path / "run")), catalog)
    prepared.prepare()
    shutil.rmtree(tmp_path / "run")
    values = {"slo.ttft_s": 0.5, "site.pue": 1.1}
    rows = [[str(dict(point.row)) for point in one.under(values).points] for one in (prepared, answers)]
    assert rows[0] == rows[1]


@pytest.mark.slow
def test_limits_of_a_run_without_requests_are_refused(catalog: Catalog, tmp_path: Path) -> None:
    run_in(tmp_path / "run", catalog, requests="none", sweep=None, horizon_s=5, warmup_s=0)
    prepared = RunAnswers(tmp_path / "run", catalog)
    prepared.prepare()
    with pytest.raises(ScenarioErrors, match="kept no requests"):
        prepared.under({"slo.ttft_s": 0.5})


PRICES = [
    {"site.electricity_usd_per_kwh": 0.3, "finance.discount_rate": 0.02, "finance.life_years": 6},
    {"fleets.0.cost": {"acquisition": "rent", "price": "rtx-4090/runpod-on-demand-2025-10"}},
    {
        "fleets.1.cost.quotes": {"a100-80gb-pcie": 8000},
        "site.pue": 1.1,
        "finance.fx": {"EUR": 1.1},
        "finance.currency": "EUR",
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("values", PRICES, ids=["terms", "rent", "quotes"])
def test_changed_prices_equal_those_of_price(
    answers: RunAnswers, folder: Path, catalog: Catalog, values: dict[str, Any], tmp_path: Path
) -> None:
    loaded = load_repriced(folder, options(values), catalog)
    cases = price_run(folder, loaded, catalog, tmp_path, report=False, command=["test"])
    rows = [dict(point.row) for point in summarize(cases, axes(loaded), limits(loaded))]
    found = answers.under(values)
    assert str([dict(point.row) for point in found.points]) == str(rows)
    assert found.scenario == loaded
    assert answers.under({}).points[0].row["cost_usd_per_h"] != rows[0]["cost_usd_per_h"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "slo", [{"ttft_s": 0.4, "tpot_s": 0.03}, {"ttft_s": {"p90": 0.5}, "e2e_s": 8.0, "attainment": 0.9}]
)
def test_changed_limits_equal_a_run_with_them(
    answers: RunAnswers, catalog: Catalog, slo: dict[str, Any], tmp_path: Path
) -> None:
    rows = run_in(tmp_path, catalog, slo={"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95} | slo)
    values = {f"slo.{name}": value for name, value in slo.items()}
    found = answers.under(values)
    if isinstance(values["slo.ttft_s"], dict):
        assert answers.under(values | {"slo.ttft_s.p90": 0.5}).scenario == found.scenario
    assert str([dict(point.row) for point in found.points]) == str(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"workload.arrivals.rate_rps": 3}, "is not a cost input"),
        ({"horizon_s": 3}, "is not a cost input"),
        ({"site.pue": 0.5}, "site.pue"),
        ({"site.puee": 1.5}, "did you mean"),
        ({"slo.ttft_s": -1}, "number of seconds above 0"),
        ({"slo.ttf": 1}, "is not a limit"),
        ({"fleets.9.cost.quotes": {}}, "fleets.9"),
    ],
)
def test_what_needs_a_simulation_is_refused(answers: RunAnswers, values: dict[str, Any], text: str) -> None:
    with pytest.raises(ScenarioErrors, match=text):
        answers.under(values)
