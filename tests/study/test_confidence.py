"""Nearness of measurements, with hand-made indexes whose answers are obvious."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sim.catalogue.catalog import load_catalog
from sim.scenario.schema import Scenario
from sim.steptime.calibration import CalibrationRuns
from sim.study.confidence import (
    MARKS,
    Calibrated,
    MeasuredSetup,
    PredictedSetting,
    PredictionConfidence,
    fleet_confidence,
    mark_of,
    model_kind,
    worst,
)

SETTING = PredictedSetting("a", "Ada", "llama", "dense", 8.0, "plain", "vllm", "")
ENTRY = MeasuredSetup("a", "Ada", "llama", "dense", 8.0, "plain", "vllm", "", 1, 1, 1, 1.0, 64.0, 100.0, 2000.0, 9, 2)
BIG = replace(ENTRY, gpu="b", architecture="Hopper", family="big", params_billion=70.0, tp=4, link="fabric")
INDEX = (ENTRY, BIG, replace(BIG, gpu="c", kernel="fp8", engine="sglang", kind="mixture of experts"))
NEAR, BETWEEN, FAR = MARKS


@pytest.mark.parametrize(
    ("changed", "mark", "word"),
    [
        ({}, NEAR, ""),
        ({"sequences": 100.0, "prompt": 3000.0}, NEAR, ""),
        ({"gpu": "d"}, BETWEEN, "this GPU"),
        ({"gpu": "d", "architecture": "Volta"}, FAR, "architecture"),
        ({"family": "qwen", "params_billion": 14.0}, BETWEEN, "this model"),
        ({"family": "qwen", "params_billion": 140.0}, FAR, "parameters"),
        ({"params_billion": 9.9}, NEAR, ""),
        ({"family": "qwen", "params_billion": 70.02}, BETWEEN, "this model"),
        ({"family": "deep", "kind": "dense, latent attention"}, FAR, "latent attention"),
        ({"kind": "mixture of experts", "params_billion": 70.0}, BETWEEN, "this model"),
        ({"kernel": "fp8"}, BETWEEN, "this format"),
        ({"kernel": "int3"}, FAR, "int3"),
        ({"tp": 2, "link": "fabric"}, BETWEEN, "layout"),
        ({"tp": 8, "link": "fabric"}, FAR, "the largest measured have 4"),
        ({"tp": 2, "link": "PCIe"}, FAR, "the largest measured have 0"),
        ({"engine": "sglang"}, BETWEEN, "engine"),
        ({"engine": "mine"}, FAR, "mine"),
        ({"sequences": 129.0}, FAR, "sequences"),
        ({"beyond": ("drafts",)}, FAR, "drafts"),
    ],
    ids=str,
)
def test_a_setting_is_as_far_as_its_farthest_direction(changed: dict[str, object], mark: str, word: str) -> None:
    found, why = mark_of(replace(SETTING, **changed), INDEX)  # type: ignore[arg-type]
    assert found == mark
    assert word in "; ".join(why)


def test_models_are_of_a_kind_whose_layers_run_the_same_kernels() -> None:
    catalog = load_catalog()
    kinds = {
        name: model_kind(catalog.model(name))
        for name in ("deepseek-v3", "deepseek-v3.2", "qwen3.6-27b", "nemotron-3-nano")
    }
    assert len(set(kinds.values())) == len(kinds)
    assert model_kind(catalog.model("glm-5.2")) == kinds["deepseek-v3.2"]


def test_parts_that_were_never_together_are_between_measurements() -> None:
    apart = (ENTRY, replace(ENTRY, kernel="fp8", family="qwen"))
    found, why = mark_of(replace(SETTING, kernel="fp8"), apart)
    assert (found, len(why)) == (BETWEEN, 1)
    assert "together" in why[0]


def test_measured_models_of_one_size_are_no_range() -> None:
    _, [why] = mark_of(replace(SETTING, params_billion=500.0), (ENTRY,))
    assert "have 8e9 parameters" in why
    _, [why] = mark_of(replace(SETTING, params_billion=500.0), (ENTRY, replace(ENTRY, params_billion=70.0)))
    assert "have 8e9 to 70e9 parameters" in why


def test_the_users_own_calibration_counts_as_a_measured_gpu() -> None:
    other = replace(SETTING, gpu="d", architecture="Volta", calibrated=True)
    assert mark_of(other, INDEX)[0] == NEAR
    unmeasured = replace(SETTING, kernel="fp8")
    assert [mark_of(replace(unmeasured, calibrated=own), INDEX)[0] for own in (False, True)] == [BETWEEN, NEAR]


OWN = CalibrationRuns(model="m", quantization="q", engine="e", runs=3, sequences=(4, 16), prompt=(500, 500))


@pytest.mark.parametrize(
    ("changed", "runs", "mark"),
    [
        ({}, OWN, NEAR),
        ({"sequences": 64.0, "prompt": 1000.0}, OWN, NEAR),
        ({"sequences": 65.0}, OWN, FAR),
        ({"prompt": 1001.0}, OWN, FAR),
        ({}, OWN.model_copy(update={"runs": 1}), FAR),
        ({"beyond": ("drafts",)}, OWN, FAR),
    ],
    ids=str,
)
def test_whoever_measured_the_server_needs_no_others(
    changed: dict[str, object], runs: CalibrationRuns, mark: str
) -> None:
    strange = replace(SETTING, kernel="int3", calibrated=True, own=Calibrated(runs))
    asked = replace(strange, **changed)  # type: ignore[arg-type]
    assert mark_of(asked, INDEX)[0] == mark
    assert asked.covered_by_own_runs == (mark == NEAR) == ("your own runs" in "".join(mark_of(asked, INDEX)[1]))


AS_IT_IS = {"factor": 1, "low": 1, "high": 1, "determined": True}
OWNED = {
    "gpu": "rtx-4090", "table": "mine.csv", "rows": 2, "links": {}, "errors": {}, "engines": {},
    "compute_efficiency": AS_IT_IS, "memory_efficiency": AS_IT_IS,
    "measured": [{"model": "llama3.1-8b", "quantization": "bf16", "engine": "vllm-0.14", "runs": 2,
                  "sequences": [1, 32], "prompt": [500, 500]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "prompt", "own"), [("none", 500, True), ("fp16", 1000, True), ("none", 1001, False), ("fp8", 500, False)]
)
def test_calibrated_server_is_recognised_before_simulation(tmp_path: Path, stored: str, prompt: int, own: bool) -> None:
    """A calibrated server is recognised by the bits of its weights in any format, and by the workload's prompts."""
    (tmp_path / "mine.yaml").write_text(json.dumps(OWNED))
    fleet = {"name": "mine", "pools": [{"gpu": "rtx-4090", "batching": {"max_model_len": 2048}}]}
    lengths = {name: {"distribution": "fixed", "value": prompt} for name in ("prompt", "output")}
    data = {
        "name": "x", "model": "llama3.1-8b", "horizon_s": 10, "fleets": [fleet], "quantization": stored,
        "calibration": str(tmp_path / "mine.yaml"),
        "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths},
    }  # fmt: skip
    scenario = Scenario.model_validate(data)
    worth = fleet_confidence(scenario, scenario.fleets[0], load_catalog())
    assert worth is not None
    assert any("your own runs" in why for why in worth.why) == own


def test_calibration_of_a_gpu_that_shares_the_cpus_memory_counts(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(json.dumps(OWNED | {"gpu": "dgx-spark-128gb"}))
    lengths = {name: {"distribution": "fixed", "value": 500} for name in ("prompt", "output")}
    pool = {"gpu": "dgx-spark-128gb", "calibration": str(tmp_path / "mine.yaml")}
    data = {
        "name": "x", "model": "llama3.1-8b", "horizon_s": 10, "fleets": [{"name": "mine", "pools": [pool]}],
        "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths},
    }  # fmt: skip
    scenario = Scenario.model_validate(data)
    told = fleet_confidence(scenario, scenario.fleets[0], load_catalog())
    assert told is not None
    assert (told.mark, told.why) == (NEAR, ("it is calibrated on your own runs of this server",))


@pytest.mark.parametrize("gpu", ["l40", "dgx-spark-128gb"])
def test_all_reduces_alone_bring_no_prediction_nearer_to_measurements(tmp_path: Path, gpu: str) -> None:
    lengths = {name: {"distribution": "fixed", "value": 500} for name in ("prompt", "output")}
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": lengths}
    marks = {}
    for rows in (None, 0, 2):
        pool = {"gpu": gpu, "calibration": None if rows is None else str(tmp_path / f"{rows}.yaml")}
        (tmp_path / f"{rows}.yaml").write_text(json.dumps({"gpu": gpu, "rows": rows or 0}))
        data = {"name": "x", "model": "llama3.1-8b", "horizon_s": 10, "workload": workload}
        scenario = Scenario.model_validate(data | {"fleets": [{"name": "mine", "pools": [pool]}]})
        marks[rows] = fleet_confidence(scenario, scenario.fleets[0], load_catalog())
    assert marks[0] == marks[None] != marks[2]


def test_fleet_confidence_is_that_of_its_farthest_pool() -> None:
    fleet = {
        "name": "both",
        "pools": [
            {"gpu": "h100-80gb-sxm", "name": "near"},
            {
                "gpu": "h100-80gb-sxm",
                "name": "drafting",
                "batching": {"speculative": {"num_speculative_tokens": 2, "accepted": 1}},
            },
        ],
    }
    data = {
        "model": "llama3.1-8b",
        "horizon_s": 10,
        "workload": {
            "arrivals": {"process": "poisson", "rate_rps": 1},
            "lengths": {
                "prompt": {"distribution": "fixed", "value": 100},
                "output": {"distribution": "fixed", "value": 9},
            },
        },
    }
    scenario = Scenario.model_validate({**data, "name": "x", "fleets": [fleet]})
    found = fleet_confidence(scenario, scenario.fleets[0], load_catalog())
    assert found is not None
    assert (found.mark, found.why) == (FAR, ("no measurement of the fit has speculative decoding",))
    boxes = {"gpu": "rtx-4090", "server": "workstation-4x4090", "tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    for pool, word in (
        (boxes | {"network": {"link": "infiniband-ndr"}}, "several servers"),
        ({"gpu": "dgx-spark-128gb"}, "shares its memory"),
        ({"gpu": "h100-80gb-sxm", "mig": "3g.40gb"}, "MIG"),
    ):
        far = Scenario.model_validate({**data, "name": "x", "fleets": [{"name": "far", "pools": [pool]}]})
        told = fleet_confidence(far, far.fleets[0], load_catalog())
        assert told is not None
        assert (told.mark, len(told.why), word in told.why[0]) == (FAR, 1, True)
    near = scenario.fleets[0].model_copy(update={"pools": scenario.fleets[0].pools[:1]})
    one = fleet_confidence(scenario, near, load_catalog())
    assert one is not None
    assert one.mark == NEAR
    assert worst([None]) is None


def test_second_pool_narrows_no_interval_and_the_order_of_pools_does_not_count() -> None:
    one = PredictionConfidence(
        BETWEEN, ("model",), {"ttft": (0.4, 9.0), "power": (0.7, 1.2)}, 0.1, {"ttft": "a", "power": "a"}
    )
    others = [
        PredictionConfidence(FAR, (why,), {"ttft": ends}, 0.2, {"ttft": name})
        for why, ends, name in (("MIG", (0.5, 3.0), "b"), ("drafts", (0.3, 2.0), "a"))
    ]
    together = worst([one, None, *others])
    assert (
        together
        == worst([one, *others])
        == PredictionConfidence(FAR, ("MIG", "drafts"), {"ttft": (0.3, 9.0)}, 0.2, {"ttft": "a; b"})
    )
    assert worst([one]) == one


def test_given_step_time_has_no_confidence() -> None:
    pool = {
        "steptime": {"model": "affine", "base_s": 0.01, "per_token_s": 0.0, "per_context_token_s": 0.0},
        "batching": {"policy": "vllm", "num_gpu_blocks": 99, "max_model_len": 999},
    }
    data = {"name": "x", "horizon_s": 10, "workload": {"arrivals": {"process": "burst", "num_requests": 2}}}
    lengths = {"prompt": {"distribution": "fixed", "value": 9}, "output": {"distribution": "fixed", "value": 9}}
    data["workload"]["lengths"] = lengths  # type: ignore[index]
    scenario = Scenario.model_validate({**data, "fleets": [{"name": "given", "pools": [pool]}]})
    assert fleet_confidence(scenario, scenario.fleets[0], load_catalog()) is None


def test_time_to_the_last_token_has_the_wider_of_both_intervals() -> None:
    one = PredictionConfidence(NEAR, (), {"ttft": (0.5, 1.2), "tpot": (0.8, 1.4)})
    assert one.factor("e2e_s_p95") == (0.5, 1.4)
    assert one.factor("ttft_s_mean") == (0.5, 1.2)
    assert one.factor("throughput") is None
