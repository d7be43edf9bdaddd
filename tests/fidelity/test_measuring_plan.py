"""Commands of `calibrate --plan`: every kind of server once, and columns that calibrate then understands."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from sim.benchdata.served import parsed
from sim.benchdata.table import row_of
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import case_of
from sim.fidelity.measuring_plan import measuring_plan
from sim.fidelity.prediction import campaigns_of
from sim.scenario.reading.load import load
from sim.scenario.reading.shipped import scenario_file
from sim.scenario.schema import Scenario

CATALOG = load_catalog()


def lines(name: str) -> list[str]:
    return measuring_plan(load(scenario_file(Path(name)), catalog=CATALOG), CATALOG)


def test_three_loads_a_long_prompt_and_the_link_of_each_server() -> None:
    found = lines("4x4090-vs-2xa100")
    first, second = found[: found.index("")], found[found.index("") + 1 :]
    assert first[1] == "all_reduce_perf -b 1K -e 256M -f 2 -g 4 > all-reduce-4.txt"
    assert [line.split("--max-concurrency ")[1].split()[0] for line in first[2:6]] == ["1", "8", "64", "1"]
    assert "--random-input-len 8192 --random-output-len 16 " in first[5]
    assert len(first) == len(second) == 7
    assert second[-1].endswith("--out my-a100-80gb-pcie.yaml")


@pytest.mark.parametrize("name", ["4x4090-vs-2xa100", "sxm-servers", "energy-mac-vs-4090"])
def test_calibrate_understands_what_the_plan_states_about_a_server(name: str) -> None:
    for line in lines(name):
        if not line.startswith("gpufleet calibrate"):
            continue
        words = shlex.split(line)
        stated = parsed([words[i + 1] for i, word in enumerate(words) if word == "--about"])
        gpu = words[words.index("--gpu") + 1]
        row = row_of({**stated, "gpu": gpu, "isl": "512", "osl": "64", "concurrency": "8"}, 0, Path(), [])
        assert row is not None
        names = case_of(row, CATALOG, campaigns_of(CATALOG)).names
        assert (names.gpu.id, names.model.id) == (gpu, stated["model"])
        assert names.engine.id.startswith(stated["engine"])


def servers(*pools: dict[str, Any], **top: Any) -> list[str]:
    lengths = {name: {"distribution": "fixed", "value": 99} for name in ("prompt", "output")}
    workload = {"arrivals": {"process": "poisson", "rate_rps": 1.0}, "lengths": lengths}
    fleets = [{"name": f"f{number}", "pools": [pool]} for number, pool in enumerate(pools)]
    data = {"name": "x", "horizon_s": 9, "workload": workload, "model": "llama3.1-8b", "fleets": fleets, **top}
    return measuring_plan(Scenario.model_validate(data), CATALOG)


@pytest.mark.slow
def test_servers_on_one_kind_of_gpu_have_files_of_their_own() -> None:
    found = servers({"gpu": "l40s"}, {"gpu": "l40s", "tensor_parallel_size": 2}, {"gpu": "l40s", "engine": "sglang"})
    files = [word for line in found for word in line.split() if word.endswith((".json", ".txt", ".yaml"))]
    assert files.count("load-1.json") == files.count("load-1-2.json") == 2
    assert files.count("all-reduce-2-2.txt") == 2
    assert [one for one in files if one.endswith(".yaml")] == ["my-l40s.yaml", "my-l40s-2.yaml", "my-l40s-3.yaml"]


def test_plan_asks_each_server_with_a_client_that_reaches_it() -> None:
    for engine, client, ending in (
        ("vllm", "vllm bench serve --dataset-name random ", "json"),
        ("sglang", "python -m sglang.bench_serving --backend sglang --dataset-name random-ids ", "jsonl"),
        ("llama.cpp", "vllm bench serve --dataset-name random ", "json"),
    ):
        *loads, read = servers({"gpu": "l40s", "engine": engine})[1:]
        assert all(line.startswith(client) for line in loads)
        assert all(("--port 8080" in line) == (engine == "llama.cpp") for line in loads)
        assert all(f".{ending} " in f"{line} " and line.split(f".{ending}")[0].split()[-1] in read for line in loads)


def test_plan_states_links_experts_and_cache_that_are_not_the_usual_ones() -> None:
    bridged = {"gpu": "a100-80gb-pcie", "tensor_parallel_size": 2, "server": "workstation-2xa100-nvlink"}
    assert "--about interconnect=nvlink3-bridge " in servers(bridged)[-1]
    spread = {"gpu": "h100-80gb-sxm", "tensor_parallel_size": 2, "enable_expert_parallel": True}
    told = servers(spread, model="qwen3-30b-a3b", kv_cache_dtype="fp8")[-1]
    assert "--about kv_dtype=fp8 " in told
    assert "--about ep=2 " in told
    assert "interconnect" not in told


@pytest.mark.slow
def test_server_that_a_table_cannot_describe_has_a_remark_alone() -> None:
    [slice_] = servers({"gpu": "h100-80gb-sxm", "mig": "3g.40gb"})
    assert slice_ == "# f0: a server on a MIG slice is left out: results of benchmarks do not describe it"
    mac = servers({"gpu": "apple-m2-ultra-192gb", "engine": "mlx-lm", "tensor_parallel_size": 2})
    assert not any("all_reduce" in line for line in mac)
