"""Catalogue entries of 2026 resolve into a plan, in one fleet each."""

from typing import Any

import pytest

import sim
from sim.catalogue.catalog import load_catalog
from sim.catalogue.model import Matrix
from sim.catalogue.quantization import bits

GPUS = (
    *("gb300-278gb", "dgx-spark-128gb", "rtx-pro-5000-48gb", "rtx-pro-5000-72gb", "apple-m3-ultra-512gb"),
    *("strix-halo-128gb", "arc-pro-b60-24gb", "arc-pro-b70-32gb", "tpu-v5e", "tpu-v6e", "tpu-v7", "trainium2"),
    "ascend-910c",
)
MODELS = (
    *("deepseek-v3.2", "glm-5.2", "kimi-k2.6", "minimax-m3", "minimax-m2.7", "qwen3.6-35b-a3b", "qwen3.8-27b"),
    *("qwen3-vl-235b-a22b", "gemma4-26b-a4b", "mistral-small-4", "ministral3-14b"),
    *("nemotron-3-nano", "nemotron-3-super", "nemotron-3-ultra", "nemotron-h-56b"),
    *("glm-5.3", "mistral-large-3", "qwen3.8-2.4t-a95b"),
)
FORMATS = {
    **{"gguf-iq2_xxs": 2.3824, "gguf-q3_k_m": 3.89, "mlx-4bit": 4.5},
    **{"mxfp8": 8.25, "mxfp4-linear": 4.25, "w4a8": 4.15625},
}


def plans(pools: dict[str, dict[str, Any]]) -> Any:
    """Return the table of `check` for one fleet per entry of *pools*."""
    lengths = {part: {"distribution": "fixed", "value": 64} for part in ("prompt", "output")}
    usual = {"replicas": 1, "batching": {"policy": "vllm", "max_model_len": 4096}}
    fleets = [{"name": name, "pools": [usual | pool]} for name, pool in pools.items()]
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1.0}, "lengths": lengths}
    scenario = {"name": "each", "model": "ministral3-3b", "quantization": "none", "workload": workload}
    return sim.check(scenario | {"horizon_s": 20, "fleets": fleets}).table.set_index("fleet")


@pytest.mark.slow
def test_each_new_gpu_holds_a_small_model() -> None:
    table = plans({gpu: {"gpu": gpu} for gpu in GPUS})
    assert list(table.index) == list(GPUS)
    assert (table["gpu"] == list(GPUS)).all()


@pytest.mark.slow
def test_each_new_model_fits_on_sixteen_gb300() -> None:
    pool = {"gpu": "gb300-278gb", "tensor_parallel_size": 4, "pipeline_parallel_size": 4}
    table = plans({model: pool | {"model": model} for model in MODELS})
    assert list(table.index) == list(MODELS)


@pytest.mark.slow
def test_each_new_format_fits_on_a_server() -> None:
    pool = {"gpu": "b300-288gb-sxm", "server": "server-8xb300"}
    assert len(plans({name: pool | {"quantization": name} for name in FORMATS})) == len(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_bits_of_a_format(name: str) -> None:
    linear = Matrix("up_proj", "mlp", 4096, 4096, "outputs")
    assert bits(load_catalog().quantization(name), linear, tied=False) == FORMATS[name]
