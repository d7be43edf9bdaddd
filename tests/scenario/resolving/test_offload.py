"""Weights in host memory: what a scenario may say of them, and where a run shows them."""

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.catalogue.catalog import Catalog, load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.yamlio import dump

SERVER = {"gpu": "rtx-4090", "server": "workstation-1x4090"}
LLAMA_CPP = {"engine": "llama.cpp", "quantization": "gguf-q4_k_m", **SERVER}
LENGTHS = {"prompt": {"distribution": "fixed", "value": 64}, "output": {"distribution": "fixed", "value": 4}}


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def scenario(*pools: dict[str, Any]) -> dict[str, Any]:
    workload = {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": LENGTHS}
    fleets = [{"name": f"f{i}", "pools": [pool]} for i, pool in enumerate(pools)]
    return {"name": "s", "model": "llama3.1-70b", "workload": workload, "requests": "none", "fleets": fleets}


@pytest.mark.parametrize(
    ("pool", "complaint"),
    [
        (
            LLAMA_CPP | {"n_gpu_layers": 82},
            "n_gpu_layers: must be at most 81, not 82: llama3.1-70b has 80 layers and its LM head",
        ),
        (LLAMA_CPP | {"n_cpu_moe": 3}, "n_cpu_moe: llama3.1-70b has no experts"),
        (
            LLAMA_CPP | {"model": "qwen3-30b-a3b", "n_cpu_moe": 49},
            "n_cpu_moe: must be at most 48, the layers of qwen3-30b-a3b, not 49",
        ),
        (LLAMA_CPP | {"cpu_offload_gb": 9}, "cpu_offload_gb: llama.cpp has no such option; it has n_gpu_layers and"),
        (SERVER | {"n_gpu_layers": 40}, "n_gpu_layers: vllm-0.14 has no such option; it has cpu_offload_gb"),
        (
            SERVER | {"engine": "tensorrt-llm-1.0", "cpu_offload_gb": 9},
            "cpu_offload_gb: tensorrt-llm-1.0 has no such option: it keeps all weights on its GPUs",
        ),
        (
            {"engine": "llama.cpp", "quantization": "gguf-q4_k_m", "gpu": "rtx-4090", "n_gpu_layers": 40},
            "n_gpu_layers: needs a server: it gives the capacity and speed of the host memory",
        ),
        (
            LLAMA_CPP | {"n_gpu_layers": 40, "pipeline_parallel_size": 2, "server": "workstation-2x4090"},
            "pipeline_parallel_size: must be 1 with weights in host memory",
        ),
        (
            LLAMA_CPP | {"n_gpu_layers": 9, "gpu": "apple-m3-max-128gb", "server": "macbook-pro-16-m3-max"},
            "n_gpu_layers: apple-m3-max-128gb has one memory for processors and GPU",
        ),
        (
            LLAMA_CPP | {"n_gpu_layers": 40, "gpu": "l40s", "server": "server-4xl40s"},
            "server: server-4xl40s has no known host_memory_bytes and host_memory_bytes_per_s and host_flops",
        ),
    ],
)
def test_mistakes_are_one_line_each(tmp_path: Path, catalog: Catalog, pool: dict[str, Any], complaint: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(dump(scenario(pool)))
    with pytest.raises(ScenarioErrors) as told:
        load(path, catalog=catalog)
    lines = [line.split(": ", 1)[1].removeprefix("fleets.0.pools.0.") for line in str(told.value).splitlines()]
    assert [line.startswith(complaint) for line in lines] == [True], lines


def test_a_host_too_small_is_infeasible_and_check_shows_the_split() -> None:
    enough = LLAMA_CPP | {"n_gpu_layers": 44, "max_model_len": 512}
    little = enough | {"model": "llama3.1-405b", "n_gpu_layers": 8}
    result = sim.check(scenario(enough, little))
    table = result.table.set_index("fleet")
    assert table.loc["f0", "host_memory_weights_gb"] == pytest.approx(19.7, abs=0.3)
    assert table.loc["f0", "memory_weights_gb"] + table.loc["f0", "host_memory_weights_gb"] == pytest.approx(
        42.7, abs=0.5
    )
    assert "GB of host memory for weights and KV cache, a replica's part is 68.7" in str(table.loc["f1", "infeasible"])


@pytest.mark.slow
def test_a_run_is_limited_by_the_host() -> None:
    summary = sim.run(scenario(LLAMA_CPP | {"n_gpu_layers": 44, "max_model_len": 512}), quiet=True).summary
    assert summary["limited_by"].tolist() == ["host"]
    assert summary["tpot_s_mean"].item() == pytest.approx(0.38, rel=0.03)
