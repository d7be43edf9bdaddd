"""Computed memory against files and start-up logs."""

from collections.abc import Callable

import pytest

from sim.catalogue.catalog import Catalog
from sim.catalogue.model import matrices
from sim.catalogue.quantization import padded
from sim.memory.fit import MemoryFit
from sim.memory.weights import ReplicaLayout, stage_weight_bytes
from sim.units import GIB

Fit = Callable[..., MemoryFit]

FILES = [
    # model, quantisation, bytes, what was published, tolerance
    ("qwen2-72b-instruct", "gptq-int4", 41.65e9, "Hugging Face tree, 11 shards", 0.005),
    ("llama3.1-70b", "awq-int4", 39.77e9, "Hugging Face tree of hugging-quants, 9 shards", 0.005),
    ("llama3-70b", "gguf-q4_k_m", 39.60 * GIB, "XiongjieDai/GPU-Benchmarks", 0.01),
    ("llama3-70b", "gguf-q5_k_m", 46.52 * GIB, "XiongjieDai/GPU-Benchmarks", 0.01),
    ("llama3-70b", "gguf-q8_0", 69.83 * GIB, "XiongjieDai/GPU-Benchmarks", 0.005),
    ("llama3-70b", "fp16", 131.43 * GIB, "XiongjieDai/GPU-Benchmarks", 0.005),
    ("llama3-8b", "gguf-q4_k_m", 4.58 * GIB, "XiongjieDai/GPU-Benchmarks", 0.02),
    ("llama2-70b", "gguf-q4_k_m", 38.54 * GIB, "llama.cpp perplexity README", 0.01),
    ("llama2-70b", "gguf-q5_k_m", 45.41 * GIB, "llama.cpp perplexity README", 0.01),
    ("llama2-70b", "gguf-q4_0", 36.20 * GIB, "llama.cpp perplexity README", 0.01),
    ("r1-distill-llama-70b", "gguf-q4_k_m", 43e9, "Ollama library page, rounded", 0.02),
    ("r1-distill-qwen-14b", "gguf-q4_k_m", 9.0e9, "Ollama library page, rounded", 0.02),
    ("r1-distill-qwen-7b", "gguf-q4_k_m", 4.7e9, "Ollama library page, rounded", 0.03),
    ("deepseek-r1", "gguf-q4_k_m", 404e9, "Ollama library page, rounded", 0.01),
    ("llama3.1-405b", "gguf-q4_0", 231e9, "Ollama library page, rounded", 0.015),
    ("gpt-oss-120b", "mxfp4", 60.8 * GIB, "model card, table 1", 0.005),
    ("gpt-oss-20b", "mxfp4", 12.8 * GIB, "model card, table 1", 0.005),
]
LOADED = [
    # GPU memory with a one-token prompt (Qwen documentation, transformers on A100): up to 10 % more than the weights
    ("qwen2.5-72b", "gptq-int4", 39.91),
    ("qwen2.5-72b", "awq-int4", 39.44),
    ("qwen2.5-72b", "gptq-int8", 72.61),
    ("qwen2.5-72b", "bf16", 136.20),
    ("qwen2.5-32b", "gptq-int4", 18.94),
    ("qwen2.5-32b", "awq-int4", 18.67),
    ("qwen2.5-32b", "bf16", 61.58),
    ("qwen2.5-14b", "gptq-int4", 9.94),
    ("qwen2.5-14b", "bf16", 28.08),
    ("qwen2.5-7b", "gptq-int4", 5.52),
    ("qwen2.5-7b", "awq-int4", 5.39),
    ("qwen2.5-7b", "bf16", 14.38),
]


def weights(catalog: Catalog, model_id: str, quantization_id: str) -> float:
    quantization = catalog.quantization(quantization_id)
    model = padded(quantization, catalog.model(model_id))
    return stage_weight_bytes(model, quantization, matrices(model), ReplicaLayout())


@pytest.mark.parametrize(("model", "quantization", "published", "where", "tolerance"), FILES)
def test_weights_have_the_published_size(
    catalog: Catalog, model: str, quantization: str, published: float, where: str, tolerance: float
) -> None:
    assert weights(catalog, model, quantization) == pytest.approx(published, rel=tolerance), where


@pytest.mark.parametrize(("model", "quantization", "loaded_gib"), LOADED)
def test_weights_are_nearly_all_that_a_loaded_model_takes(
    catalog: Catalog, model: str, quantization: str, loaded_gib: float
) -> None:
    assert 0.9 < weights(catalog, model, quantization) / (loaded_gib * GIB) < 1.01


@pytest.mark.parametrize(
    ("model", "quantization", "tp", "activations_gib", "kv_gib"),
    [
        ("gpt-oss-20b", "none", 1, 7.38, 50.28),
        ("llama3.3-70b", "fp8", 2, 4.84, 32.0),
        ("llama3.1-8b", "bf16", 1, 4.76, 51.38),
        ("qwen3-0.6b", "bf16", 1, 5.56, 64.45),
        ("qwen3-32b", "bf16", 1, 5.64, 4.45),
    ],
)
def test_h100_start_up_logs(
    fit_ids: Fit, model: str, quantization: str, tp: int, activations_gib: float, kv_gib: float
) -> None:
    """llm-d-benchmark, empirical-vllm-memory-results.md: 1024 seats, 8192 tokens; vLLM pads gpt-oss by 0.6 GiB."""
    limits = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
    result = fit_ids("h100-80gb-sxm", model, quantization, tensor_parallel_size=tp, **limits)
    assert result.activations_bytes / GIB == pytest.approx(activations_gib, rel=0.01)
    assert result.kv_bytes / GIB == pytest.approx(kv_gib, rel=0.02)


def test_rtx_4090_kv_capacity(fit_ids: Fit) -> None:
    """vLLM 0.19, Llama-3.1-8B bf16, utilisation 0.9: 2588 blocks, 41,408 tokens."""
    result = fit_ids("rtx-4090", "llama3.1-8b", "none", max_num_seqs=256, max_num_batched_tokens=2048)
    assert result.kv_tokens == pytest.approx(41_408, rel=0.03)
    assert result.kv_tokens == result.num_gpu_blocks * 16


def test_llama_70b_at_fp8_leaves_one_h100_no_cache(fit_ids: Fit) -> None:
    """The same logs: weights load, the cache would be negative."""
    result = fit_ids("h100-80gb-sxm", "llama3.3-70b", "fp8", max_num_seqs=1024, max_num_batched_tokens=8192)
    assert not result.fits
    assert result.kv_bytes / GIB == pytest.approx(-1.44, abs=0.2)
