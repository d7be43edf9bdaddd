"""The fit of the step time sees the simulator's own steps: benchmarks/fit follows the engines as they change."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from engine_workloads import rank_limits

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.catalogue.data_folder import data_root
from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.pipeline import PipelineEngine, StagesEngine
from sim.engine.synchronous import LateOutputEngine, LockstepEngine, VllmEngine
from sim.records import Batch, Request
from sim.steptime.affine import Affine
from sim.yamlio import read

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "fit"))
try:
    from leave_out import LeaveOut
    from observe import about_median, compared, prepare, simulate_row
    from parameters import AT_MOST_ONE, load_priors
    from posterior import Observation, fit
    from record import FIELDS, Recorder, Steps
    from stages import Stages, stages
    from stored import stored
    from write import write_data
finally:
    sys.path.pop(0)

ANSWER, REQUESTS = 40, 20
ROWS = {
    "steps one after the other": BenchRow(1, "a", "H100-SXM", "Llama-3.1-8B", engine_version="0.10.0"),
    "the next step formed ahead": BenchRow(1, "a", "H100-SXM", "Llama-3.1-8B", engine_version="0.19.0"),
    "SGLang": BenchRow(1, "a", "H100-SXM", "Llama-3.1-8B", engine="SGLang"),
    "stages": BenchRow(1, "a", "H100-SXM", "Llama-3.1-8B", engine_version="0.19.0", n_gpus=2, tp=1, pp=2),
    "an 8-bit cache and experts": BenchRow(
        1,
        "a",
        "H100-SXM",
        "Qwen3-30B-A3B",
        precision="fp8",
        kv_dtype="fp8",
        engine="TensorRT-LLM",
        engine_version="1.0",
    ),
}


STEP = Affine(model="affine", base_s=0.01, per_token_s=1e-4, per_context_token_s=1e-7).build()
ENGINES = {
    "one rank": (VllmEngine, 1),
    "late output": (LateOutputEngine, 1),
    "ahead": (AsyncEngine, 1),
    "lockstep": (lambda step, limits: LockstepEngine(step, limits, 2), 2),
    "lockstep ahead": (lambda step, limits: AsyncLockstepEngine(step, limits, 2), 2),
    "stages": (lambda step, limits: StagesEngine(step, limits, 2), 1),
    "lanes": (lambda step, limits: PipelineEngine(step, limits, 2), 1),
}


@pytest.mark.parametrize("name", ENGINES)
def test_steps_of_every_kind_of_engine_are_noted(name):
    """Engines whose ranks step together record the steps of one rank."""
    make, ranks = ENGINES[name]
    recorder = Recorder(make(STEP, rank_limits(200, 16, 8, 64, 400)))
    for i in range(6):
        recorder.offer(Request(i, 0.0, 20, ANSWER), 0.0)
    end_s = recorder.plan(0.0)
    while end_s < np.inf:
        recorder.advance()
        end_s = recorder.plan(end_s)
    decodes = sum(sums[FIELDS.index("decode_seqs")] for sums in recorder.groups())
    assert decodes == 6 * (ANSWER - 1) / ranks


@pytest.mark.parametrize("name", ROWS)
def test_every_decoded_token_is_noted_and_the_stages_take_as_long_as_the_steps(name):
    fields = {"load": "closed_loop", "concurrency": 4, "isl": 200, "osl": ANSWER, "num_requests": REQUESTS}
    row = replace(ROWS[name], **fields)
    (ready,), refused = prepare([row], load_catalog())
    assert not refused
    seen = simulate_row(ready, load_priors(), {})
    assert seen.steps.decodes.sum() == REQUESTS * (ANSWER - 1)
    stages_s, _ = seen.stages.seconds({})
    steptime_s = seen.metrics["tpot_mean_ms"] / 1000
    pure = seen.steps.mean["prefill_tokens"] == 0
    mean_s = stages_s[pure] @ seen.steps.decodes[pure] / seen.steps.decodes[pure].sum()
    assert 0.6 * steptime_s <= row.pp * mean_s <= 1.03 * steptime_s  # prompts of others come between an answer's tokens


@pytest.mark.parametrize("tokens", [20, 8000])
def test_launches_count_where_they_take_longer_than_the_gpu(tokens):
    row = replace(ROWS["SGLang"], load="single", isl=tokens, osl=2, num_requests=1)
    (ready,), _ = prepare([row], load_catalog())
    steptime = ready.prepared.plan.pools[0].steptime
    batch = Batch(prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=tokens**2 // 2, sampled_seqs=1)
    fields = {name: np.array([float(getattr(batch, name))]) for name in FIELDS}
    seen = stages(steptime, Steps(fields, np.ones(1), np.zeros(1), np.ones(1)))
    total_s, by = seen.seconds({})
    assert total_s == pytest.approx(steptime.leap(batch).first_s)
    assert (by["launch_layer:sglang-0.5"] > 0) == (tokens == 20)
    assert (by["compute:h100-80gb-sxm"] > 0) == (tokens == 8000)


@pytest.mark.parametrize("tokens", [1, 20, 8000])
def test_padding_of_experts_counts_in_the_stages(tokens):
    row = BenchRow(
        1, "a", "H100-SXM", "Qwen3-30B-A3B", precision="fp8-block", engine_version="0.13.0", load="single", isl=tokens,
        osl=2, num_requests=1,
    )  # fmt: skip
    (ready,), _ = prepare([row], load_catalog())
    steptime = ready.prepared.plan.pools[0].steptime
    batch = Batch(prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=tokens**2 // 2, sampled_seqs=1)
    fields = {name: np.array([float(getattr(batch, name))]) for name in FIELDS}
    total_s, by = stages(steptime, Steps(fields, np.ones(1), np.zeros(1), np.ones(1))).seconds({})
    assert total_s == pytest.approx(steptime.leap(batch).first_s)
    assert by["expert_padding"] > 0


@pytest.mark.slow
def test_every_figure_that_the_fit_writes_is_the_one_that_the_simulator_reads(tmp_path):
    shutil.copytree(data_root(), tmp_path / "data")
    priors = load_priors()
    ways = {name: -1 if name.split(":")[0] in AT_MOST_ONE else 1 for name in priors.values}
    moved = {name: way * (0.1 + 0.001 * place) for place, (name, way) in enumerate(ways.items())}
    write_data(tmp_path / "data", priors, moved, {name: (theta, theta) for name, theta in moved.items()}, 0.4)
    assert stored(priors, tmp_path / "data") == pytest.approx(moved, abs=2e-3)  # four digits are written
    for path in (data_root() / "engines").glob("*.yaml"):
        files = path, tmp_path / "data" / "engines" / path.name
        before, after = (read(file).data.get("overheads", {}) for file in files)
        assert set(after) == set(before), path.stem  # what others measured stays


def test_a_median_gap_is_made_by_the_steps_that_most_tokens_see():
    steps_s, tokens = np.array([0.5, 0.02, 0.03]), np.array([10.0, 50.0, 40.0])  # one in ten beside a long prompt
    weights = about_median(steps_s, tokens)
    assert weights @ steps_s / weights.sum() == pytest.approx(0.5 * 0.02 + 0.5 * 0.03)


@pytest.mark.parametrize(("requests", "columns"), [(24, []), (25, ["ttft_p50_ms"])])
def test_first_tokens_without_a_warm_up_are_compared_by_their_median(requests, columns):
    """It is not that of the first wave, during which kernels are compiled, if most requests come after that wave."""
    measured = {"ttft_mean_ms": 900.0, "ttft_p50_ms": 300.0}
    cold = BenchRow(
        1, "a", "RTX-PRO-6000", "Qwen3-Coder-Next", engine="SGLang", source_key="deplodock", load="closed_loop",
        concurrency=12, num_requests=requests, measured=measured,
    )  # fmt: skip
    assert [name for kind, name in compared(cold, saturated=False) if kind == "ttft"] == columns
    warm = replace(cold, source_key="of one's own")
    assert ("ttft", "ttft_mean_ms") in compared(warm, saturated=False)
    assert compared(warm, saturated=True) == []


def test_groups_are_taken_out_of_a_fit_as_a_new_fit_would_leave_them_out():
    def seen(pair, own, measured):
        one = np.ones(1)
        stages = Stages(2.5, [(("all", own), one)], [(("all",), 0.1 * one, (), 0 * one, (), 0 * one)])
        return Observation(0, pair, "gpu", "tpot", np.log(measured), np.log(1.1), stages, one, 1.1)

    found = [seen("a", "own:a", 1.5), seen("b", "own:b", 1.2), seen("c", "own:c", 1.1), seen("c", "own:c", 1.3)]
    sd = {"all": 0.3, "own:a": 0.2, "own:b": 0.2, "own:c": 0.2}
    less = LeaveOut(found, sd, {}, {}).theta(np.array([True, False, False, False]))
    assert less == pytest.approx(fit(found[1:], sd), abs=1e-3)
    assert less["own:a"] == pytest.approx(0, abs=1e-9)


@pytest.mark.slow
def test_a_share_fitted_above_one_is_one_and_not_written(tmp_path):
    shutil.copytree(data_root(), tmp_path / "data")
    priors = load_priors()
    at = stored(priors, data_root())
    alike, free = "diversity:qwen3-30b-a3b", "diversity:mixtral-8x7b"
    moved = at | {alike: np.log(0.5), free: 0.3}
    assert priors.value(free, moved) == 1
    write_data(tmp_path / "data", priors, moved, {}, 0.4)
    after = stored(priors, tmp_path / "data")
    assert np.exp(after[alike]) == pytest.approx(0.5)
    assert after[free] == 0
