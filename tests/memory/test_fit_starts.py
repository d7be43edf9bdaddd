"""KV cache that vLLM and SGLang reported at their start, against the fit. Sources: benchmarks/fit/kv_capacity.csv."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import kv_bytes_per_token, matrices
from sim.memory.fit import MemoryFit, fit
from sim.memory.kv_cache import window_step_bytes
from sim.memory.weights import ReplicaLayout, stage_weight_bytes
from sim.units import GIB

Fit = Callable[..., MemoryFit]

CATALOG = load_catalog()
STARTS = [
    # GPU, model, quantisation, engine, tp, utilisation, seats, token budget, tokens of KV cache
    ("h100-80gb-sxm", "llama2-7b", "none", "vllm-0.11", 1, 0.9, 128, 2048, 119_408),  # inference-sim/training, 0.15.1
    ("h100-80gb-sxm", "llama2-70b", "none", "vllm-0.11", 4, 0.9, 128, 2048, 501_712),
    ("h100-80gb-sxm", "mixtral-8x7b", "none", "vllm-0.11", 2, 0.9, 128, 2048, 440_176),
    ("h100-80gb-sxm", "codellama-34b", "none", "vllm-0.11", 2, 0.9, 128, 2048, 425_648),
    ("h100-80gb-sxm", "qwen3-8b", "none", "vllm-0.11", 1, 0.9, 1024, 8192, 366_400),  # LMCache FAQ
    ("h100-80gb-sxm", "qwen3-32b", "none", "vllm-0.11", 2, 0.9, 1024, 8192, 275_760),
    ("h100-80gb-sxm", "llama3.1-70b", "none", "vllm-0.11", 4, 0.9, 1024, 8192, 420_208),
    ("l40s", "qwen3-14b", "none", "vllm-0.11", 1, 0.9, 256, 2048, 72_064),
    ("rtx-5090", "qwen3-8b", "none", "vllm-0.11", 1, 0.92, 256, 2048, 89_040),  # PyTorch sampling set
    ("a100-40gb-sxm", "llama3.1-8b", "none", "vllm-0.11", 1, 0.9, 256, 8192, 157_936),  # ilseokoh/vllm-gce, 0.15.1
    ("rtx-4090", "r1-distill-qwen-14b", "none", "vllm-0.6", 2, 0.98, 256, 2048, 81_536),  # vllm issue 13061, 0.7.2
    ("rtx-3090", "llama3.1-8b", "none", "vllm-0.6", 1, 0.9, 256, 29_000, 23_648),  # vllm issue 10517
    ("t4", "qwen2.5-0.5b", "none", "vllm-0.6", 1, 0.9, 256, 32_768, 928_944),
    ("h100-80gb-sxm", "qwen3-4b", "none", "sglang-0.5", 1, 0.85, 256, 8192, 430_067),  # SGLang 0.5.18
]


@pytest.mark.parametrize(
    ("gpu", "model", "quantization", "engine", "tp", "share", "seats", "budget", "tokens"), STARTS
)  # fmt: skip
def test_kv_cache_of_published_starts(
    fit_ids: Fit, gpu: str, model: str, quantization: str, engine: str,
    tp: int, share: float, seats: int, budget: int, tokens: int,
) -> None:  # fmt: skip
    result = fit_ids(
        gpu, model, quantization, engine, tensor_parallel_size=tp, gpu_memory_utilization=share,
        max_num_seqs=seats, max_num_batched_tokens=budget,
    )  # fmt: skip
    assert result.kv_tokens == pytest.approx(tokens, rel=0.03)


@pytest.mark.parametrize(
    ("gib", "longest", "budget", "tokens"),
    [(32.08, 4096, 8192, 90_841), (2.43, 32_768, 1024, 158_769)],  # vLLM 0.23 on 2 H200, 0.2x on 4 cards of 24 GB
)
def test_compressed_attention_keeps_more_than_its_entries(gib: float, longest: int, budget: int, tokens: int) -> None:
    """vLLM reports the tokens of as many longest requests as fit, each while a step computes its prompt."""
    model = CATALOG.model("deepseek-v4-flash")
    of_one = longest * kv_bytes_per_token(model, 1) + window_step_bytes(model, "fp8", min(budget, longest))
    assert gib * GIB / of_one * longest == pytest.approx(tokens, rel=0.09)


@pytest.mark.parametrize(("ranks", "gib"), [(2, 74.08), (4, 37.91)])
def test_weights_of_deepseek_v4_on_each_rank(ranks: int, gib: float) -> None:
    """vLLM reports "Model loading took 74.08 GiB memory"."""
    model, stored = CATALOG.model("deepseek-v4-flash"), CATALOG.quantization("mxfp4-fp8")
    held = stage_weight_bytes(model, stored, matrices(model), ReplicaLayout(ranks, 1, 1, False))
    assert held / GIB == pytest.approx(gib, rel=0.006)


def test_experts_over_eight_cards(fit_ids: Fit) -> None:
    """Qwen3-235B-A22B-FP8 on 8 L40S, vLLM 0.10.2: 238,208 tokens, 27.72 GiB of weights on each card."""
    result = fit_ids(
        "l40s", "qwen3-235b-a22b", "fp8-block", tensor_parallel_size=8, enable_expert_parallel=True,
        gpu_memory_utilization=0.9, max_num_seqs=256, max_num_batched_tokens=2048,
    )  # fmt: skip
    assert result.weights_bytes / GIB == pytest.approx(27.72, rel=0.01)
    assert result.kv_tokens == pytest.approx(238_208, rel=0.03)


@pytest.mark.slow
@given(
    engine=st.sampled_from(["vllm-0.11", "vllm-0.6", "sglang-0.5", "tensorrt-llm-1.0", "lmdeploy"]),
    gpu=st.sampled_from(["rtx-4090", "l40s", "a100-80gb-sxm"]),
    shares=st.tuples(st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
    tp=st.sampled_from([1, 2, 4]),
)
def test_more_utilisation_never_leaves_fewer_blocks(
    engine: str, gpu: str, shares: tuple[float, float], tp: int
) -> None:
    few, many = (
        fit(
            CATALOG.gpu(gpu), CATALOG.model("llama3.1-8b"), CATALOG.quantization("none"), CATALOG.engine(engine),
            tensor_parallel_size=tp, gpu_memory_utilization=share,
        ).num_gpu_blocks
        for share in sorted(shares)
    )  # fmt: skip
    assert few <= many
