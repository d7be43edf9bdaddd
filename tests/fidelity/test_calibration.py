"""Calibration: known factors come back from runs that the simulator made with them; what runs cannot tell is said."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from typing import Any

import pytest
from small_scenario import planned

from sim.benchdata.nccl_tests import AllReduceRun
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fidelity import fit
from sim.fidelity.calibration import FittedFactors, NothingToFit, calibrate, calibration_text, factors
from sim.fidelity.fit import Simulator, adjusted, calibration_of
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.calibration import Calibration, Factor
from sim.steptime.collective import AllReduce
from sim.study.confidence import fleet_confidence
from sim.yamlio import dump

GPU, ENGINE, LINK = "rtx-4090", "engines.vllm-0.14", "links.pcie4-x16-no-p2p"
MEASURED = ("output_tok_s", "tpot_mean_ms", "ttft_mean_ms")
ONE_GPU = {
    "compute_efficiency": 0.85,
    "memory_efficiency": 0.92,
    f"{ENGINE}.step_overhead": 1.8,
    f"{ENGINE}.sequence_overhead": 1.6,
    f"{ENGINE}.request_overhead": 2.0,
}
TWO_GPUS = ONE_GPU | {f"{LINK}.latency": 1.5, f"{LINK}.time_per_byte": 0.6}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def run(line: int, model: str, clients: int, prompt: int = 512, output: int = 32, gpus: int = 1) -> BenchRow:
    return BenchRow(
        line, f"r{line}", "RTX 4090", model, engine="vLLM", engine_version="0.14.0", isl=prompt, osl=output,
        concurrency=clients, num_requests=max(8, 2 * clients), n_gpus=gpus, tp=gpus,
    )  # fmt: skip


def runs(gpus: int = 1, first: int = 2) -> list[BenchRow]:
    shapes = [("llama3.1-8b", n) for n in (1, 8)] + [("qwen2.5-1.5b", n) for n in (1, 8)]
    rows = [run(line, *shape, gpus=gpus) for line, shape in enumerate(shapes, start=first)]
    return [*rows, run(first + 4, "llama3.1-8b", 4, prompt=4000, output=16, gpus=gpus)]


def made_with(truth: dict[str, float], rows: list[BenchRow], catalog: Catalog) -> list[BenchRow]:
    """*rows* with what the simulator measures on a machine with the factors *truth*."""
    theta = {name: log(factor) for name, factor in truth.items()}
    simulated = Simulator(catalog, GPU, 1).runs(rows, [[theta]] * len(rows))
    return [
        replace(row, measured={name: one.metrics[name] for name in MEASURED})
        for row, [one] in zip(rows, simulated, strict=True)
    ]


@cache
def fitted_to(gpus: int) -> tuple[list[BenchRow], FittedFactors]:
    """Runs with known factors on one GPU, or on one and on two, and what they are fitted by."""
    catalog = load_catalog()
    rows = runs() if gpus == 1 else [*runs(), *runs(2, first=7)[::2]]
    rows = made_with(ONE_GPU if gpus == 1 else TWO_GPUS, rows, catalog)
    return rows, calibrate(rows, GPU, catalog, 1)


@pytest.mark.slow
@pytest.mark.parametrize(("truth", "gpus"), [(ONE_GPU, 1), (TWO_GPUS, 2)])
def test_known_factors_come_back_within_their_intervals(truth: dict[str, float], gpus: int) -> None:
    _, fitted = fitted_to(gpus)
    found = dict(factors(fitted.calibration))
    assert found.keys() == truth.keys()
    for name, factor in found.items():
        assert factor.low <= truth[name] <= factor.high, name
        if factor.determined:
            # the prior still pulls: how much depends on what else could explain the runs
            assert abs(log(factor.factor / truth[name])) < 0.7 * abs(log(truth[name])), name
    assert sum(factor.determined for factor in found.values()) >= len(truth) - 1
    assert fitted.noise < 1.2
    for error in fitted.calibration.errors.values():
        assert error.after < 0.25 * error.before


@pytest.mark.slow
def test_runs_of_the_catalogue_s_own_machine_change_nothing(catalog: Catalog) -> None:
    fitted = calibrate(made_with({}, runs(), catalog), GPU, catalog, 1)
    assert all(factor.factor == pytest.approx(1, abs=1e-6) for _, factor in factors(fitted.calibration))


@pytest.mark.slow
def test_all_reduces_determine_the_link_of_a_single_run(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "MOST_TRIALS", 1)
    truth = {name: Factor(factor=factor) for name, factor in TWO_GPUS.items() if name.startswith("links.")}
    curve = AllReduce.over(calibration_of(GPU, truth).link(catalog.link("pcie4-x16-no-p2p")), 2, 1.0)
    sizes = tuple(1024.0 * 8**i for i in range(6))
    measured = AllReduceRun(2, sizes, tuple(map(curve.time_s, sizes)))
    row = replace(run(2, "llama3.1-8b", 1, prompt=32, output=4, gpus=2), num_requests=2)
    rows = made_with(TWO_GPUS, [row], catalog)
    found = dict(factors(calibrate(rows, GPU, catalog, 1, all_reduces=[measured]).calibration))
    for name, factor in truth.items():
        assert found[name].determined
        assert found[name].factor == pytest.approx(factor.factor, rel=0.1)
    with pytest.raises(NothingToFit, match="no run is on several GPUs"):
        calibrate([replace(rows[0], n_gpus=1, tp=1)], GPU, catalog, 1, all_reduces=[measured])


@pytest.mark.slow
def test_one_run_corrects_its_errors_without_separating_the_factors(catalog: Catalog) -> None:
    rows = made_with(ONE_GPU, [run(2, "llama3.1-8b", 1, prompt=32)], catalog)
    calibration = calibrate(rows, GPU, catalog, 1).calibration
    found = dict(factors(calibration))
    assert not found["compute_efficiency"].determined
    assert not found[f"{ENGINE}.sequence_overhead"].determined
    assert found["compute_efficiency"].factor == pytest.approx(1.0, abs=0.02)
    assert all(factor.low < factor.factor < factor.high for factor in found.values())
    assert calibration.errors["tpot"].after < 0.5 * calibration.errors["tpot"].before


def test_speculative_runs_take_no_part(catalog: Catalog) -> None:
    rows = made_with({}, [run(2, "llama3.1-8b", 1)], catalog)
    with pytest.raises(NothingToFit, match=r"speculative decoding \(eagle\) is not simulated"):
        calibrate([replace(rows[0], spec_decode="eagle")], GPU, catalog, 1)


@pytest.mark.slow
def test_runs_that_contradict_each_other_determine_less(catalog: Catalog) -> None:
    rows, agreeing = fitted_to(1)
    wild = [
        replace(row, measured={name: value * (3.0 if row.line % 2 else 1 / 3) for name, value in row.measured.items()})
        for row in rows
    ]
    contradicting = calibrate(wild, GPU, catalog, 1)
    assert contradicting.noise > 5
    assert contradicting.contradicting

    def known(calibration: Calibration) -> int:
        return sum(factor.determined for _, factor in factors(calibration))

    assert known(contradicting.calibration) < known(agreeing.calibration)


@pytest.mark.slow
def test_a_table_without_a_usable_run_is_refused(catalog: Catalog) -> None:
    rows = made_with({}, [run(2, "llama3.1-8b", 1)], catalog)
    with pytest.raises(NothingToFit, match=r"my\.csv:2: ran on rtx-4090"):
        calibrate(rows, "l40s", catalog, 1, "my.csv")
    with pytest.raises(NothingToFit, match=r"my\.csv:2: .*no-such-model"):
        calibrate([replace(rows[0], model="no-such-model")], GPU, catalog, 1, "my.csv")


@pytest.fixture
def plan_with(tmp_path: Path, catalog: Catalog) -> Callable[..., CasePlan]:
    fixed = {"distribution": "fixed", "value": 64}

    def plan_with(top: dict[str, Any], *pools: dict[str, Any]) -> CasePlan:
        data = {
            "model": "llama3.1-8b",
            "max_model_len": 2048,
            "workload": {
                "arrivals": {"process": "burst", "num_requests": 4},
                "lengths": {"prompt": fixed, "output": fixed},
            },
            "horizon_s": 60,
            "fleets": [{"name": "f", "pools": [*pools]}],
            **top,
        }  # fmt: skip
        return planned(tmp_path, data)

    return plan_with


def test_a_scenario_uses_what_was_written(tmp_path: Path, plan_with: Callable[..., CasePlan]) -> None:
    known = {
        name: Factor(factor=value, low=value / 2, high=value * 2, determined=True) for name, value in TWO_GPUS.items()
    }
    calibration = calibration_of(GPU, known)
    (tmp_path / "my-gpu.yaml").write_text(calibration_text(calibration))
    pool = {"gpu": GPU, "tensor_parallel_size": 2}
    [expected] = adjusted(calibration)(plan_with({}, pool)).pools
    for top, own in (({"calibration": "my-gpu.yaml"}, {}), ({}, {"calibration": "my-gpu.yaml"})):
        plan = plan_with(top, pool | own)
        [found] = plan.pools
        assert found.steptime.inputs == expected.steptime.inputs  # type: ignore[attr-defined]
        assert found.request_overhead_s == expected.request_overhead_s
        told = {fact.path.rpartition(".")[2]: fact.value for fact in plan.facts if fact.value.source == "calibration"}
        assert {
            "per_layer_s",
            "per_sequence_s",
            "per_request_s",
            "compute_efficiency",
            "memory_efficiency",
        } <= told.keys()


@pytest.mark.slow
def test_own_runs_narrow_the_interval_of_the_server_that_they_were_made_on(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "my-gpu.yaml").write_text(calibration_text(fitted_to(1)[1].calibration))
    fixed = {"distribution": "fixed", "value": 512}
    fleets = {
        "theirs": {"engine": "vllm-0.14"},
        "own": {"engine": "vllm-0.14", "calibration": "my-gpu.yaml"},
        "another engine": {"engine": "vllm-0.11", "calibration": "my-gpu.yaml"},
        "another model": {"engine": "vllm-0.14", "calibration": "my-gpu.yaml", "model": "llama3.2-3b"},
    }
    data = {
        "model": "llama3.1-8b",
        "max_model_len": 2048,
        "workload": {
            "arrivals": {"process": "closed_loop", "concurrency": 8},
            "lengths": {"prompt": fixed, "output": fixed},
        },
        "horizon_s": 60,
        "fleets": [{"name": name, "pools": [{"gpu": GPU}], **own} for name, own in fleets.items()],
    }
    (tmp_path / "s.yaml").write_text(dump(data))
    scenario = load(tmp_path / "s.yaml", catalog=catalog)
    widths = {}
    for fleet in scenario.fleets:
        found = fleet_confidence(scenario, fleet, catalog, (8.0, 512.0))
        assert found is not None
        widths[fleet.name] = {metric: high / low for metric, (low, high) in found.factors.items()}
    others = [widths[name] for name in fleets if name != "own"]
    assert all(widths["own"][metric] <= other[metric] for other in others for metric in widths["own"])
    assert all(widths["own"][metric] < widths["theirs"][metric] for metric in widths["own"])


def test_a_calibration_holds_for_its_gpu_and_for_nothing_else(
    tmp_path: Path, plan_with: Callable[..., CasePlan]
) -> None:
    calibration = calibration_of(GPU, {"memory_efficiency": Factor(factor=0.5, low=0.4, high=0.6, determined=True)})
    (tmp_path / "my-gpu.yaml").write_text(calibration_text(calibration))
    ours, theirs = plan_with({"calibration": "my-gpu.yaml"}, {"gpu": GPU}, {"gpu": "l40s"}).pools
    plain_ours, plain_theirs = plan_with({}, {"gpu": GPU}, {"gpu": "l40s"}).pools
    assert ours.steptime.inputs != plain_ours.steptime.inputs  # type: ignore[attr-defined]
    assert theirs.steptime.inputs == plain_theirs.steptime.inputs  # type: ignore[attr-defined]
    for top, pool in (({"calibration": "my-gpu.yaml"}, {}), ({}, {"calibration": "my-gpu.yaml"})):
        with pytest.raises(ScenarioErrors, match="calibration: is for rtx-4090, which no pool here has"):
            plan_with(top, {"gpu": "l40s", **pool})


def test_a_calibration_of_a_gpu_that_size_tries_is_used(tmp_path: Path, plan_with: Callable[..., CasePlan]) -> None:
    factor = Factor(factor=0.5, low=0.4, high=0.6, determined=True)
    (tmp_path / "my-gpu.yaml").write_text(calibration_text(calibration_of(GPU, {"memory_efficiency": factor})))
    top = {
        "calibration": "my-gpu.yaml",
        "finance": {"method": "straight_line", "life_years": 3, "residual_fraction": 0},
        "site": {
            "electricity_usd_per_kwh": 0.2,
            "pue": 1.2,
            "hosting": {"per": "kw_month", "usd": 250, "kw": "nameplate", "electricity": "metered"},
        },
    }
    size = {"gpus": ["4090"], "costs": {"bought": {"acquisition": "buy"}}}
    assert plan_with(top | {"size": size}, {"gpu": "l40s"}).pools
    with pytest.raises(ScenarioErrors, match="which no pool here has"):
        plan_with(top | {"size": size | {"gpus": ["l40s"]}}, {"gpu": "l40s"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read"),
        ("gpu: rtx-4090\nrows: 1\nmemory_efficiency:\n  factor: -1\n", "yaml:4: memory_efficiency.factor: must be"),
        ("gpu: rtx-4090\nmemory: 2\n", "my-gpu.yaml:2: memory: unknown key; did you mean"),
        ("rows: 1\n", "my-gpu.yaml:1: gpu: is missing"),
    ],
)  # fmt: skip
def test_a_spoilt_file_is_reported_with_its_line(
    tmp_path: Path, plan_with: Callable[..., CasePlan], text: str | None, message: str
) -> None:
    if text is not None:
        (tmp_path / "my-gpu.yaml").write_text(text)
    with pytest.raises(ScenarioErrors, match=message):
        plan_with({"calibration": "my-gpu.yaml"}, {"gpu": GPU})
