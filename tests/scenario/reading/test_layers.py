"""Null on the command line, what an unknown name probably meant, and bases of bases."""

from pathlib import Path

import pytest

from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load

REFEREE = """\
workload:
  trace: {path: t.csv, format: csv}
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
"""
TRACE = "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def told(folder: Path, catalog: Catalog, name: str = "s.yaml") -> list[str]:
    with pytest.raises(ScenarioErrors) as caught:
        load(folder / name, catalog=catalog)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_null_takes_a_value_away(root: Path, catalog: Catalog) -> None:
    """Null on the command line removes a value as in a file over its base: the resale value then comes from
    `resale`."""
    sets = ["finance.residual_fraction=null", "finance.resale={loss_per_year: 0.3}", "sweep=null"]
    found = load(root / "scenarios" / "4x4090-vs-2xa100.yaml", sets, catalog=catalog)
    assert found.finance is not None
    assert found.finance.resale is not None
    assert "residual_fraction" not in found.finance.model_fields_set
    assert found.sweep is None


@pytest.mark.slow
def test_a_misspelt_key_set_to_null_is_an_error(root: Path, catalog: Catalog) -> None:
    with pytest.raises(ScenarioErrors, match="unknown key; did you mean residual_fraction"):
        load(root / "scenarios" / "4x4090-vs-2xa100.yaml", ["finance.residual_fractions=null"], catalog=catalog)


@pytest.mark.parametrize(
    ("kind", "name", "first"),
    [
        ("gpu", "a100", ("a100-40gb-pcie", "a100-40gb-sxm", "a100-80gb-pcie", "a100-80gb-sxm")),
        ("gpu", "nvidia-a100", ("a100-80gb-sxm",)),
        ("gpu", "h100", ("h100-80gb-pcie", "h100-80gb-sxm", "h100-94gb-nvl")),
        ("gpu", "rtx4900", ("rtx-4090",)),
        ("server", "dgx", ("dgx-a100",)),
        ("model", "qwen2-72b-instuct", ("qwen2-72b-instruct",)),
        ("model", "qwen3-32bb", ("qwen3-32b",)),
    ],
)
def test_longest_matching_name_is_used(catalog: Catalog, kind: str, name: str, first: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="did you mean") as caught:
        getattr(catalog, kind)(name)
    assert str(caught.value).partition("did you mean ")[2].rstrip("?").split(" or ")[: len(first)] == list(first)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("failures", "operations.failures or size.failures"),
        ("electricity_usd_per_kwh", "site.electricity_usd_per_kwh or fleets.0.site.electricity_usd_per_kwh"),
        ("gpu", "fleets.0.pools.0.gpu or size.failures.gpu"),
        ("rate_rsp", "workload.arrivals.rate_rps or services.0.workload.arrivals.rate_rps"),
        ("horizont_s", "horizon_s"),
    ],
)
def test_a_key_known_elsewhere_is_offered_by_its_path(tmp_path: Path, catalog: Catalog, key: str, meant: str) -> None:
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "s.yaml").write_text(f"{REFEREE}{key}: 1\n")
    assert told(tmp_path, catalog) == [f"s.yaml:8: {key}: unknown key; did you mean {meant}?"]


def test_a_base_of_a_base(tmp_path: Path, catalog: Catalog) -> None:
    """Each relative path is relative to the file that contains it, and mistakes are reported there."""
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "t.csv").write_text(TRACE)
    (inner / "bottom.yaml").write_text(f"name: bottom\nseed: 1\nhorizon_s: 10\n{REFEREE}")
    (tmp_path / "a" / "middle.yaml").write_text("base: b/bottom.yaml\nname: middle\nseed: 2\nhorizon_s: null\n")
    (tmp_path / "top.yaml").write_text("base: a/middle.yaml\nwarmup_s: 0.5\n")
    found = load(tmp_path / "top.yaml", catalog=catalog)
    assert (found.name, found.seed, found.horizon_s, found.warmup_s) == ("top", 2, None, 0.5)
    assert found.workload.trace is not None
    assert found.workload.trace.path == str(inner / "t.csv")

    (tmp_path / "a" / "middle.yaml").write_text("base: b/bottom.yaml\nseed: -2\n")
    (tmp_path / "top.yaml").write_text("base: a/middle.yaml\nwarmups: 0.5\n")
    (inner / "bottom.yaml").write_text(f"horizon_s: -1\n{REFEREE}")
    assert told(tmp_path, catalog, "top.yaml") == [
        "a/b/bottom.yaml:1: horizon_s: must be above 0, not -1",
        "a/middle.yaml:2: seed: must be 0 or more, not -2",
        "top.yaml:2: warmups: unknown key; did you mean warmup_s?",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sweep", ["", "sweep: {workload.trace.rate_scale: [1, 2]}\n"])
def test_no_chart_is_empty_without_request_tables(tmp_path: Path, catalog: Catalog, sweep: str) -> None:
    from sim.report.charts.sweep_panels import panels_of
    from sim.scenario.sweep import axes
    from sim.study.execution.cases import limits, run_points
    from sim.study.execution.cores import ProcessPool
    from sim.study.points import FinishedCase, summarize

    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "s.yaml").write_text(f"requests: none\n{REFEREE}{sweep}")
    scenario = load(tmp_path / "s.yaml", catalog=catalog)
    with ProcessPool(1) as cores:
        cases: list[FinishedCase] = [*run_points(scenario, catalog, tmp_path, cores, lambda *_: None)]
    points = summarize(cases, axes(scenario), limits(scenario))
    panels = panels_of(points, axes(scenario), limits(scenario))
    assert all(panel.curves for panel in panels)
    assert bool(panels) == bool(sweep)


def test_bases_in_a_circle(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "s.yaml").write_text("base: other.yaml\n")
    (tmp_path / "other.yaml").write_text("\nbase: ./s.yaml\n")
    (line,) = told(tmp_path, catalog)
    assert line.startswith("other.yaml:2: base: s.yaml is this scenario itself, or a scenario based on it")
    (tmp_path / "s.yaml").write_text("base: s.yaml\n")
    assert told(tmp_path, catalog)[0].startswith("s.yaml:1: base: s.yaml is this scenario itself")
