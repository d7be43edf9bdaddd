"""Replications until an interval is narrow enough: decided by results alone, kept on disk, the same for all fleets."""

import filecmp
from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.schema import Scenario
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.execution.precision import attained_precision
from sim.study.execution.store import StoredCase
from sim.study.metrics.statistics import half_width, mean, paired_difference
from sim.yamlio import dump

pytestmark = pytest.mark.slow

STEP = {"model": "affine", "base_s": 0.02, "per_token_s": 1.0e-4, "per_context_token_s": 1.0e-7}
LIMITS = {"policy": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks": 2000}
LENGTHS = {"prompt": {"distribution": "fixed", "value": 50}, "output": {"distribution": "geometric", "mean": 40}}


def scenario(folder: Path, *sets: str, **more: Any) -> Scenario:
    data = {
        "name": "precise",
        "workload": {"arrivals": {"process": "poisson", "rate_rps": 2.0}, "lengths": LENGTHS},
        "horizon_s": 40,
        "warmup_s": 6,
        "seed": 3,
        "replications": 2,
        "slo": {"ttft_s": 1.0},
        "precision": {"metric": "e2e_s_mean", "relative": 0.14, "max_replications": 40},
        "sweep": {"workload.arrivals.rate_rps": [1.0, 6.0]},
        "fleets": [
            {"name": "one", "pools": [{"steptime": STEP, "batching": LIMITS}]},
            {"name": "faster", "pools": [{"steptime": STEP | {"base_s": 0.018}, "batching": LIMITS}]},
        ],
    } | more
    (folder / "precise.yaml").write_text(dump(data))
    return load(folder / "precise.yaml", sets, catalog=load_catalog())


def run(loaded: Scenario, out: Path, workers: int = 1) -> list[StoredCase]:
    return run_points(loaded, load_catalog(), out, ProcessPool(workers), lambda *_: None)


def replications(cases: list[StoredCase]) -> dict[tuple[str, float], int]:
    counts: dict[tuple[str, float], int] = {}
    for case in cases:
        key = (case.fleet, case.axes["rate_rps"])
        counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Scenario, list[StoredCase]]:
    """The folder out, the scenario, and its cases as one process has simulated them."""
    folder = tmp_path_factory.mktemp("precise")
    loaded = scenario(folder)
    return folder / "out", loaded, run(loaded, folder / "out")


def test_replications_are_added_where_needed_and_stay_paired(
    alone: tuple[Path, Scenario, list[StoredCase]],
) -> None:
    _, loaded, cases = alone
    counts = replications(cases)
    for rate in (1.0, 6.0):
        assert counts["one", rate] == counts["faster", rate]
    assert len(set(counts.values())) == 2, "the noisier point gets more"
    assert min(counts.values()) >= 5
    for one in attained_precision(loaded, cases):
        values = [c.metrics["e2e_s_mean"] for c in cases if (c.fleet, c.axes) == (one.fleet, one.axes)]
        half = half_width(values)
        assert half is not None
        assert one.met
        assert half <= 0.14 * mean(values)
    order = [(case.fleet, case.axes["rate_rps"], case.replication) for case in cases]
    assert order == sorted(order, key=lambda key: (key[0] != "one", *key[1:])), "fleet by fleet, point by point"


def test_cases_do_not_depend_on_the_number_of_workers(
    alone: tuple[Path, Scenario, list[StoredCase]], tmp_path: Path
) -> None:
    out, loaded, cases = alone
    together = run(loaded, tmp_path, workers=2)
    assert [case.folder.name for case in cases] == [case.folder.name for case in together]
    for first, second in zip(cases, together, strict=True):
        assert filecmp.cmp(first.folder / "case.json", second.folder / "case.json", shallow=False)
    dates = {case.folder: (case.folder / "case.json").stat().st_mtime_ns for case in cases}
    assert [case.folder for case in run(loaded, out)] == [case.folder for case in cases]
    assert dates == {case.folder: (case.folder / "case.json").stat().st_mtime_ns for case in cases}


def test_what_cannot_be_reached_ends_at_the_limit(tmp_path: Path) -> None:
    wanted = {"metric": "ttft_s_p99", "relative": 0.001, "max_replications": 7}
    loaded = scenario(tmp_path, precision=wanted, horizon_s=15, sweep={"workload.arrivals.rate_rps": [2.0, 30.0]})
    cases = run(loaded, tmp_path / "out")
    held = {(one.fleet, one.axes["rate_rps"]): one for one in attained_precision(loaded, cases)}
    assert (held["one", 2.0].met, held["one", 2.0].replications) == (False, 7)
    # overloaded: nothing to be precise about
    assert (held["one", 30.0].met, held["one", 30.0].replications) == (None, 5)


def test_paired_differences_have_narrower_intervals(tmp_path: Path) -> None:
    loaded = scenario(tmp_path, "replications=8", "precision=null", "sweep=null", "workload.arrivals.rate_rps=6")
    values = {name: [c.metrics["e2e_s_mean"] for c in run(loaded, tmp_path / "out") if c.fleet == name]
              for name in ("one", "faster")}  # fmt: skip
    _, paired = paired_difference(values["one"], values["faster"])
    # other replications: requests that have nothing to do with each other
    _, unpaired = paired_difference(values["one"], values["faster"][4:] + values["faster"][:4])
    assert paired is not None
    assert unpaired is not None
    assert paired < 0.5 * unpaired


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"precision": {"metric": "ttft_p95", "relative": 0.1}}, "metric: must be one of ttft_s_mean, ttft_s_p50, "),
        ({"precision": {"metric": "ttft_s_p95", "relative": 0}}, "relative: must be above 0, not 0"),
        ({"precision": {"metric": "ttft_s_p95", "relative": 0.1, "max_replications": 4}}, "must be 5 or more, not 4"),
        ({"precision": {"metric": "usd_per_million_tokens", "relative": 0.1}}, "needs a fleet with a cost"),
        ({"precision": {"metric": "slo_attainment", "relative": 0.1}, "slo": {}}, "needs a limit in slo"),
        ({"replications": 50}, "max_replications: must not be below replications (50), not 40"),
        (
            {
                "workload": {
                    "arrivals": {"process": "constant", "rate_rps": 1},
                    "lengths": {s: {"distribution": "fixed", "value": 9} for s in ("prompt", "output")},
                }
            },
            "precision: nothing here is random: all replications would be equal",
        ),
        ({"warmup_s": "automatic"}, "warmup_s: a number of seconds or auto is needed, not 'automatic'"),
        ({"warmup_s": -1}, "warmup_s: must be 0 or more, not -1"),
        (
            {"warmup_s": "auto", "workload": {"arrivals": {"process": "burst", "num_requests": 9}, "lengths": LENGTHS},
             "sweep": None},
            "warmup_s: auto looks for a steady state, and a trace, a burst or a profile has none; give seconds",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(tmp_path: Path, more: dict[str, Any], line: str) -> None:
    with pytest.raises(ScenarioErrors) as caught:
        scenario(tmp_path, **more)
    assert line in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
