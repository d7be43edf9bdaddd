"""Step times with weights in host memory: limits that follow by hand, and published runs."""

import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.engine import HostWeights, Offload, PaddedExperts
from sim.catalogue.model import matrices
from sim.catalogue.value import Value
from sim.memory.fit import fit
from sim.memory.weights import ReplicaLayout, host_weights
from sim.records import Batch
from sim.steptime.inputs import HostOffload, RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks" / "fit"))
import offload as published  # noqa: E402

CATALOG = load_catalog()
MODEL, MOE = CATALOG.model("llama3.1-70b"), CATALOG.model("qwen3-30b-a3b")
Q4, BF16 = CATALOG.quantization("gguf-q4_k_m"), CATALOG.quantization("bf16")
CARD, LLAMA_CPP = CATALOG.gpu("rtx-4090"), CATALOG.engine("llama.cpp")
ONE = Batch(decode_seqs=1, kv_tokens=256, sampled_seqs=1)


@pytest.fixture(scope="module")
def runs() -> list[published.Run]:
    return list(published.runs(CATALOG))


def of(runs: list[published.Run], name: str) -> RooflineInputs:
    return next(run.inputs for run in runs if run.row["id"] == name)


def host(inputs: RooflineInputs) -> HostOffload:
    assert inputs.host is not None
    return inputs.host


def with_weights(inputs: RooflineInputs, weights: HostWeights) -> RooflineInputs:
    return replace(inputs, host=replace(host(inputs), weights=weights))


def step_s(inputs: RooflineInputs, batch: Batch = ONE) -> float:
    return RooflineStepTime(Roofline(in_process=True), inputs).leap(batch).first_s


def test_the_lm_head_is_the_first_on_the_gpu_and_layers_follow_from_the_last() -> None:
    placed = [HostWeights.of(Offload(n_gpu_layers=n), MODEL, 1.0) for n in (0, 1, 2, 81)]
    assert [(one.layers, one.head) for one in placed] == [(80, True), (80, False), (79, False), (0, False)]
    last = next(matrix for matrix in matrices(MODEL) if matrix.name == "down_proj")
    assert [one.share(last, MODEL) for one in placed] == [1, 1, 79 / 80, 0]


def test_experts_of_the_leading_layers_only() -> None:
    weights = HostWeights.of(Offload(n_cpu_moe=12), MOE, 1.0)
    shares = {matrix.name: weights.share(matrix, MOE) for matrix in matrices(MOE) if matrix.last_layer}
    assert shares["q_proj"] == 0
    assert {shares[name] for name in shares if name in ("gate_up_proj", "down_proj")} == {12 / 48}


def test_weights_of_gpu_and_host_sum_to_the_model() -> None:
    whole = fit(CARD, MODEL, Q4, LLAMA_CPP, max_num_seqs=1, max_model_len=1024, block_size=1024)
    for layers in (0, 20, 44, 81):
        part = fit(
            CARD, MODEL, Q4, LLAMA_CPP,
            max_num_seqs=1, max_model_len=1024, block_size=1024,
            offload=Offload(n_gpu_layers=layers), host_memory_bytes=64e9,
        )  # fmt: skip
        assert part.weights_bytes + part.host_weights_bytes == pytest.approx(whole.weights_bytes)
        assert part.block_bytes == pytest.approx(whole.block_bytes * min(80, max(0, layers - 1)) / 80)


def test_every_vllm_from_0_10_on_reads_weights_in_place() -> None:
    for engine in ("vllm-0.10", "vllm-0.11", "vllm"):
        offload = CATALOG.engine(engine).offload
        assert offload is not None
        assert (offload.options, offload.streaming) == (("cpu_offload_gb",), "in_place")
        assert offload.link_efficiency.value == CATALOG.engine("vllm-0.11").offload.link_efficiency.value


def test_vllm_offloads_gib_per_gpu() -> None:
    layout = ReplicaLayout(tensor_parallel_size=2)
    share = host_weights(Offload(cpu_offload_gb=10), MODEL, BF16, layout).layer_share
    two = fit(
        CATALOG.gpu("a100-80gb-sxm"), MODEL, BF16, CATALOG.engine("vllm-0.11"),
        tensor_parallel_size=2, offload=Offload(cpu_offload_gb=10), host_memory_bytes=64e9,
    )  # fmt: skip
    assert two.host_weights_bytes == pytest.approx(2 * 10 * 2**30)
    assert 0.1 < share < 0.2


def test_host_memory_that_is_too_small_is_a_reason() -> None:
    little = fit(
        CARD, MODEL, Q4, LLAMA_CPP,
        max_num_seqs=1, max_model_len=1024, block_size=1024, offload=Offload(n_gpu_layers=30), host_memory_bytes=16e9,
    )  # fmt: skip
    assert not little.fits
    assert "GB of host memory for weights and KV cache, a replica's part is 16.0" in little.reason


def test_no_weights_in_host_memory_change_nothing(runs: list[published.Run]) -> None:
    inputs = of(runs, "cliff-8")
    assert step_s(with_weights(inputs, HostWeights())) == step_s(replace(inputs, host=None))


def test_each_layer_that_moves_to_the_gpu_saves_the_same(runs: list[published.Run]) -> None:
    inputs = of(runs, "cliff-8")
    times = [step_s(with_weights(inputs, HostWeights(layers=n))) for n in (0, 16, 32, 48)]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps == pytest.approx([steps[0]] * 3)
    assert steps[0] > 0


def test_cpu_is_bound_by_its_memory(runs: list[published.Run]) -> None:
    """14.8e9 weights at 4.83 bits, 38.4 GB/s x 0.62: about 0.35 s a token."""
    inputs = of(runs, "cliff-0")
    read_s = 14.0e9 * 4.83 / 8 / host(inputs).memory_rate()
    assert step_s(inputs) == pytest.approx(read_s, rel=0.07)


def test_padding_of_experts_takes_the_gpu_s_time_only(runs: list[published.Run]) -> None:
    inputs = of(runs, "cpu-moe")
    tile = Value(value=128.0, source="test", kind="computed")
    padded = PaddedExperts(
        quantizations=(inputs.quantization.id,), architectures=(inputs.gpu.architecture,), split_below=2,
        tile_tokens=tile, efficiency=tile,
    )  # fmt: skip
    overheads = inputs.engine.overheads.model_copy(update={"padded_experts": padded})
    pads = replace(inputs, engine=inputs.engine.model_copy(update={"overheads": overheads}))
    assert step_s(pads) == step_s(inputs)
    assert step_s(with_weights(pads, HostWeights())) > step_s(with_weights(inputs, HostWeights()))


def test_replicas_of_one_host_share_its_memory(runs: list[published.Run]) -> None:
    inputs = of(runs, "cliff-0")
    shared = replace(inputs, host=replace(host(inputs), replicas=2))
    assert step_s(shared) == pytest.approx(2 * step_s(inputs), rel=0.02)


def test_a_prompt_streams_its_weights_once_per_micro_batch(runs: list[published.Run]) -> None:
    inputs = of(runs, "oss-512")
    model = RooflineStepTime(Roofline(in_process=True), inputs)
    part = [
        model.breakdown(Batch(prefill_seqs=1, prefill_tokens=n, prefill_attention_pairs=n, sampled_seqs=1))["host"]
        for n in (31, 512, 1024)
    ]
    assert part[2] == pytest.approx(2 * part[1])
    assert part[0] < part[1]  # the CPU works on a step this small


def test_streamed_weights_are_shared_by_all_sequences(runs: list[published.Run]) -> None:
    inputs = of(runs, "vllm-7b")
    assert step_s(inputs, Batch(decode_seqs=16, kv_tokens=4096, sampled_seqs=16)) < 1.05 * step_s(inputs)


def test_published_runs_are_met(runs: list[published.Run]) -> None:
    """Rates of one request alone; the rows that are not in the fit are explained in benchmarks/offload.md."""
    errors = {run.row["id"]: run.predicted() / run.measured - 1 for run in runs if run.row["fitted"] == "1"}
    assert median(abs(error) for error in errors.values()) < 0.08
    assert max(abs(error) for error in errors.values()) < 0.35
    sweep = [abs(error) for name, error in errors.items() if name.startswith("cliff")]
    assert max(sweep) < 0.1


def test_the_table_of_the_page_is_current(runs: list[published.Run]) -> None:
    assert published.table(runs) in (ROOT / "benchmarks" / "offload.md").read_text()
