"""Two runs beside each other."""

from collections.abc import Callable
from json import loads
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from sim.answers.run import price_run, run_scenario
from sim.catalogue.catalog import Catalog, load_catalog
from sim.report.words.text import plain
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import options
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file
from sim.study.diff import StoredRun, compare
from sim.study.execution.cores import ProcessPool
from sim.study.reprice import load_repriced

pytestmark = pytest.mark.slow

SHORT = {"horizon_s": 20, "warmup_s": 2, "sweep": {"workload.arrivals.rate_rps": [0.5, 1]}, "replications": 3}
DEAR = {"site.electricity_usd_per_kwh": 0.9}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and the same at another price of electricity."""
    catalog, folder = load_catalog(), tmp_path_factory.mktemp("diff")
    scenario = load(scenario_file(Path("4x4090-vs-2xa100")), options(SHORT), catalog=catalog)
    with ProcessPool(1) as cores:
        run_scenario(scenario, catalog, folder / "a", cores, report=False, quiet=True, command=["test"])
    loaded = load_repriced(folder / "a", options(DEAR), catalog)
    price_run(folder / "a", loaded, catalog, folder / "b", report=False, command=["test"])
    return folder / "a", folder / "b"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_only_changed_inputs_are_listed(runs: tuple[Path, Path], catalog: Catalog) -> None:
    first, second = (StoredRun.read(run, catalog) for run in runs)
    found = compare(first, second)
    assert [(one.path, one.before, one.after) for one in found.changes] == [("site.electricity_usd_per_kwh", 0.12, 0.9)]
    moved = {one.metric for one in found.differences if one.difference != 0}
    assert moved == {"usd_per_million_output_tokens"}
    for one in found.differences:
        if one.metric in moved:
            rows = [p.row[one.metric] for run in (first, second) for p in run.points if p.fleet == one.first.fleet]
            assert one.values[0] in rows
            assert one.values[1] in rows
            assert one.difference == pytest.approx(one.values[0] - one.values[1])
    assert found.alone == ([], [])
    same = compare(first, first)
    assert (same.changes, {one.difference for one in same.differences}) == ([], {0.0})
    assert same.differences[0].metric == "slo_attainment"
    for point in first.points:
        point.row["meets_slo"] = None
    without_slo = {one.metric for one in compare(first, first).differences}
    assert without_slo == {one.metric for one in same.differences} - {"slo_attainment"}


def test_terminal_shows_the_same_result(
    runs: tuple[Path, Path], gpufleet: Callable[..., CompletedProcess[str]], tmp_path: Path
) -> None:
    table = gpufleet("diff", *runs).stdout
    assert "site.electricity_usd_per_kwh" in table
    assert "differs" in table
    document = loads(gpufleet("diff", *runs, "--format", "json").stdout)
    assert [one["path"] for one in document["changes"]] == ["site.electricity_usd_per_kwh"]
    assert {one["verdict"] for one in document["points"]} == {"same", "differs"}
    tpot_s = next(one["first"] for one in document["points"] if one["metric"] == "tpot_s_p95")
    assert f"TPOT p95 [ms] {plain(1e3 * tpot_s)} " in " ".join(table.split())
    refused = gpufleet("diff", runs[0], tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is not a finished run" in refused.stderr
    chinese = gpufleet("diff", *runs, "--format", "json", "--lang", "zh").stdout
    assert loads(chinese) == document
    assert "有差异" in gpufleet("diff", *runs, "--lang", "zh").stdout


def test_answer_without_sweep_points_is_not_comparable(
    runs: tuple[Path, Path], catalog: Catalog, tmp_path: Path
) -> None:
    (tmp_path / "scenario.yaml").write_bytes((runs[0] / "scenario.yaml").read_bytes())
    with pytest.raises(ScenarioErrors, match="no simulation of its sweep"):
        StoredRun.read(tmp_path, catalog)


def test_conditions_end_the_command(runs: tuple[Path, Path], gpufleet: Callable[..., CompletedProcess[str]]) -> None:
    first, second = map(str, runs)
    dearer, slower = "usd_per_million_output_tokens > +5 %", "ttft_s_p99 > +5 %"
    done = gpufleet("diff", first, second, "--fail-if", dearer, "--fail-if", slower, "--format", "markdown")
    assert done.returncode == 1
    assert "**Failed: 1 of 2 conditions hold: usd_per_million_output_tokens > +5 %.**" in done.stdout
    assert done.stdout.count("| fails |") >= 2
    passed = gpufleet("diff", first, second, "--fail-if", slower, "--format", "json")
    assert passed.returncode == 0
    assert loads(passed.stdout)["failed"] is False
    wrong = gpufleet("diff", first, second, "--fail-if", "cost > 1", "--fail-if", "gpus > 5 %")
    assert wrong.returncode == 2
    assert [line.split(":")[0] for line in wrong.stderr.splitlines()] == [
        "--fail-if 'cost > 1'",
        "--fail-if 'gpus > 5 %'",
    ]
