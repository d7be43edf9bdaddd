"""Watts per GPU that others measured while serving, against the law at the simulator's own speed."""

from statistics import median

import pytest

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import activations_per_token
from sim.catalogue.quantization import native_quantization, padded
from sim.power import GpuPower, load_law, load_power_coefficients, unpacks
from sim.records import Batch
from sim.steptime.coefficients import load_coefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

CATALOG = load_catalog()
COEFFICIENTS = load_power_coefficients(CATALOG.root / "power.yaml")
V3 = "vllm-0.11"
MEASURED = [
    # GPU, model, engine, tensor-parallel GPUs, mean batch, mean prompt and answer, W per GPU
    # ML.ENERGY leaderboard 3, lm-arena-chat (prompts of some 100 tokens) and gpqa (230)
    ("h100-80gb-sxm", "llama3.1-8b", V3, 1, 63.9, 100, 703, 610.3),
    ("h100-80gb-sxm", "llama3.1-8b", V3, 1, 255.2, 100, 703, 690.5),
    ("h100-80gb-sxm", "llama3.1-70b", V3, 4, 63.8, 100, 703, 500.4),
    ("h100-80gb-sxm", "llama3.1-70b", V3, 4, 255.3, 100, 703, 588.6),
    ("h100-80gb-sxm", "llama3.1-70b", V3, 4, 898.5, 100, 703, 636.9),
    ("h100-80gb-sxm", "llama3.3-70b", V3, 4, 8.0, 100, 703, 446.8),
    ("h100-80gb-sxm", "gpt-oss-120b", V3, 1, 32.0, 230, 5000, 655.9),
    ("h100-80gb-sxm", "gpt-oss-120b", V3, 2, 191.9, 230, 5000, 632.3),
    ("b200-180gb-sxm", "llama3.1-70b", V3, 2, 15.9, 100, 703, 866.4),
    ("b200-180gb-sxm", "llama3.1-70b", V3, 2, 255.3, 100, 703, 970.9),
    ("b200-180gb-sxm", "llama3.3-70b", V3, 2, 8.0, 100, 703, 850.7),
    ("b200-180gb-sxm", "llama3.3-70b", V3, 2, 127.7, 100, 703, 955.8),
    # LLM-Inference-Bench (Argonne), Fig. 16, batch 1
    ("a100-40gb-sxm", "llama2-7b", "vllm-0.6", 1, 1, 128, 128, 222.1),
    ("a100-40gb-sxm", "llama3-8b", "vllm-0.6", 1, 1, 128, 128, 228.8),
    ("h100-80gb-sxm", "llama3-8b", "vllm-0.6", 1, 1, 128, 128, 363.3),
]


def simulated_w(gpu_id, model_id, engine, gpus, batch, prompt, answer, quantization="none", stages=1):
    gpu, named = CATALOG.gpu(gpu_id), CATALOG.model(model_id)
    weights = native_quantization(CATALOG.quantization(quantization), named, CATALOG.quantization)
    activations = activations_per_token(named) / (gpus * stages)
    law = load_law(gpu, COEFFICIENTS, None, activations, unpacks(gpu, weights))
    power = GpuPower.of(gpu, COEFFICIENTS)
    steptime = RooflineStepTime(
        Roofline(),
        RooflineInputs(
            gpu=gpu,
            model=padded(weights, named),
            quantization=weights,
            kernel=CATALOG.kernel(weights.kernel),
            engine=CATALOG.engine(engine),
            link=CATALOG.link(gpu.link),
            coefficients=load_coefficients(CATALOG.root / "steptime.yaml"),
            tensor_parallel_size=gpus,
            pipeline_parallel_size=stages,
            serial_stages=stages > 1,
            load=law,
        ),
    )
    context, window = prompt + answer / 2, steptime.window or 10**9
    sequences, new = round(batch), round(batch * prompt / answer)
    step = Batch(
        decode_seqs=sequences,
        kv_tokens=round(sequences * context),
        windowed_kv_tokens=round(sequences * min(context, window)),
        prefill_seqs=1,
        prefill_tokens=new,
        prefill_attention_pairs=new * prompt // 2,
        sampled_seqs=sequences,
    )
    return power.energy_j(1.0, steptime.leap(step).load / stages)


def error(row):
    return simulated_w(*row[:-1]) / row[-1] - 1


@pytest.mark.slow
@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row[0]} {row[1]} {row[4]:g}")
def test_watts_of_a_serving_gpu(row):
    assert abs(error(row)) < 0.22


@pytest.mark.slow
def test_half_of_the_rows_are_within_10_percent():
    assert median(abs(error(row)) for row in MEASURED) < 0.1


CARDS = [
    # GPU, model, quantization, engine, requests, W: at batch 1 and 32, no power cap (benchmarks/fit/power_cards.csv)
    ("rtx-3090", "qwen3.6-27b", "gguf-q3_k_m", "llama.cpp", 1, 334),
    ("rtx-4090", "qwen3.6-27b", "gguf-q3_k_m", "llama.cpp", 1, 393),
    ("rtx-pro-6000", "qwen3.6-27b", "awq-int4", "vllm-0.14", 1, 522),
    ("rtx-pro-6000", "qwen3-coder-next", "awq-int4", "vllm-0.14", 1, 491),
    ("rtx-pro-6000", "qwen3-coder-next", "awq-int4", "vllm-0.14", 32, 549),
]


@pytest.mark.parametrize("row", CARDS, ids=lambda row: f"{row[0]} {row[1]} {row[4]}")
def test_graphics_cards_draw_most_of_their_limit_whatever_runs(row):
    gpu_id, model_id, quantization, engine, requests, measured_w = row
    watts = simulated_w(gpu_id, model_id, engine, 1, requests, 50, 200, quantization)
    assert watts == pytest.approx(measured_w, rel=0.15)


FOUR_3090 = [
    # quantization, engine, ranks, stages, W of each: Gemma 4 12B, batch 1 (benchmarks/fit/power_cards.csv)
    ("awq-int4", "vllm-0.14", 4, 1, 263),
    ("fp8", "vllm-0.14", 4, 1, 273),
    ("gguf-q8_0", "llama.cpp", 1, 4, 177),
    ("gguf-q4_k_m", "llama.cpp", 1, 4, 184),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", FOUR_3090, ids=lambda row: row[0])
def test_cards_that_wait_for_each_other_draw_less(row):
    quantization, engine, ranks, stages, measured_w = row
    alone_w = simulated_w("rtx-3090", "gemma3-12b", engine, 1, 1, 512, 256, quantization)
    watts = simulated_w("rtx-3090", "gemma3-12b", engine, ranks, 1, 512, 256, quantization, stages)
    assert watts < 0.9 * alone_w
    assert watts == pytest.approx(measured_w, rel=0.12)


def test_a_rank_that_reads_little_draws_little_for_data_centres_and_much_on_a_graphics_card():
    """RTX 3090: two draw 309 W each at batch 1, one alone 334 W; H100: eight 250 W, four 320 W (Llama-4-Scout)."""
    above_idle = {}
    for gpu_id in ("rtx-3090", "h100-80gb-sxm"):
        gpu = CATALOG.gpu(gpu_id)
        law, power = load_law(gpu, COEFFICIENTS), GpuPower.of(gpu, COEFFICIENTS)
        less, more = (power.energy_j(1.0, law.load(0.0, reading, 0.0, 0.8)) - power.idle_w for reading in (0.3, 0.6))
        above_idle[gpu_id] = less / more
    assert above_idle["rtx-3090"] > 0.85
    assert above_idle["h100-80gb-sxm"] < 0.8


@pytest.mark.slow
def test_a_large_batch_draws_nearly_the_limit_and_a_small_one_does_not():
    """ML.ENERGY leaderboard 3, H100, Llama-3.1-8B: 690 W at 256 sequences, 486 W at 8."""
    large = simulated_w("h100-80gb-sxm", "llama3.1-8b", V3, 1, 255.2, 100, 703)
    small = simulated_w("h100-80gb-sxm", "llama3.1-8b", V3, 1, 8, 100, 703)
    assert 570 < large < 700
    assert 450 < small < 530
