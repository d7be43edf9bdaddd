"""Scenarios from files: each kind of file, several together, and what is refused."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from sim.answers.from_files.draft import Draft, draft_of
from sim.answers.from_files.server_options import SGLANG, VLLM
from sim.answers.from_files.source import FileErrors
from sim.answers.from_files.summary import summary
from sim.answers.from_files.text import scenario_text
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.steptime.options import Roofline
from tests.benchdata.test_served import page

CATALOG = load_catalog()
SERVE = """\
#!/bin/sh
export HF_TOKEN=hf_hunter2
MODEL=meta-llama/Llama-3.1-70B-Instruct
CUDA_VISIBLE_DEVICES=0,1,2,3 vllm serve "$MODEL" \\
  -tp 4 --quantization fp8 --max-model-len 16k \\
  --max-num-seqs=128 --no-enable-prefix-caching --enforce-eager \\
  --served-model-name chat chat-70b --api-key sk-hunter2 > server.log 2>&1 &
"""
LOG = "created_at,input_tokens,completion_tokens,user\n2026-11-01T08:00:00Z,900,200,a\n2026-11-01T08:00:09Z,50,20,b\n"
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MANIFEST = """\
apiVersion: v1
kind: Secret
metadata: {name: hf}
stringData: {token: hf_hunter2}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: llama}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}
      containers:
        - name: server
          image: vllm/vllm-openai:v0.11.0
          args: [--model, Qwen/Qwen3-32B, "--tensor-parallel-size=2", --max-model-len, "32768"]
          env:
            - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
          resources: {limits: {nvidia.com/gpu: 2}}
"""


def written(folder: Path, **texts: str) -> list[Path]:
    """Return the files of *texts*, keyed by name with two underscores for the dot."""
    paths = [folder / name.replace("__", ".") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def drafted(folder: Path, paths: list[Path], **options: Any) -> tuple[Draft, str, Scenario]:
    """Return the draft of *paths*, its file, and the scenario that the file is read as; every fleet fits."""
    target = folder / "mine.yaml"
    draft = draft_of(paths, target, CATALOG, **options)
    text = scenario_text(draft, "gpufleet init mine")
    target.write_text(text)
    scenario = load(target, catalog=CATALOG)
    assert not [case for case in cases(scenario) if resolve(scenario, case, CATALOG).infeasible]
    assert "hunter2" not in "\n".join([text, *summary(draft)])
    assert all(len(line) <= 120 for line in text.splitlines())
    return draft, text, scenario


def refused(paths: list[Path], target: Path, **options: Any) -> list[str]:
    """Return the mistakes in *paths* by file name; nothing is written."""
    with pytest.raises(FileErrors) as caught:
        draft_of(paths, target, CATALOG, **options)
    assert not target.exists()
    return str(caught.value).replace(f"{target.parent}{os.sep}", "").splitlines()


ODD = "When,In,Out\n2026-11-28T09:30:00Z,100,20\n2026-11-28T09:30:05Z,200,30\n"


@pytest.mark.slow
def test_headers_that_no_synonym_knows_are_named(tmp_path: Path) -> None:
    (path,) = written(tmp_path, odd__csv=ODD)
    (fault, *_) = refused([path], tmp_path / "mine.yaml")
    assert "--columns arrival_s=<header>" in fault
    named = {"arrival_s": "When", "prompt_tokens": "In", "output_tokens": "Out"}
    _, text, scenario = drafted(tmp_path, [path], columns=named)
    assert "columns: {arrival_s: When, prompt_tokens: In, output_tokens: Out}" in text
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.requests(None).prompt_tokens.tolist() == [100, 200]
    (unknown,) = refused([path], tmp_path / "other.yaml", columns=named | {"arrival_s": "Whn"})
    assert "columns: arrival_s: there is no column 'Whn'; did you mean 'When'?" in unknown
    (serve,) = written(tmp_path, serve__sh=SERVE)
    assert "there is none" in refused([serve], tmp_path / "other.yaml", columns=named)[0]


@pytest.mark.slow
def test_the_password_of_an_unknown_models_address_is_not_repeated(tmp_path: Path) -> None:
    (serve,) = written(tmp_path, serve__sh="vllm serve https://user:hunter2@hub.example/model\n")
    [fault] = refused([serve], tmp_path / "mine.yaml")
    assert fault.startswith("serve.sh:1: unknown model 'https://hub.example/model'")


@pytest.mark.slow
def test_a_log_and_a_command_are_one_scenario(tmp_path: Path) -> None:
    paths = written(tmp_path, requests__csv=LOG, serve__sh=SERVE)
    draft, text, scenario = drafted(tmp_path, paths, gpu="h100")
    [fleet] = scenario.fleets
    [pool] = fleet.pools
    assert (scenario.model, scenario.quantization, scenario.engine) == ("llama3.1-70b", "fp8", "vllm")
    assert (pool.gpu, pool.tensor_parallel_size, pool.max_model_len) == ("h100-80gb-sxm", 4, 16000)
    assert pool.batching.max_num_seqs == 128
    assert pool.batching.model_dump()["enable_prefix_caching"] is False
    assert "trace: {path: requests.csv, format: csv}" in text
    assert {"HF_TOKEN", "--api-key"} == set(draft.sources[1].secrets)
    assert pool.steptime == Roofline(cuda_graphs=False)
    assert draft.sources[1].not_simulated == []
    assert draft.sources[1].harmless == ["--served-model-name"]


@pytest.mark.slow
def test_a_log_elsewhere_is_named_relative_to_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "plans").mkdir()
    [log] = written(tmp_path / "logs", requests__csv=LOG)
    _, text, scenario = drafted(tmp_path / "plans", [log])
    assert "path: ../logs/requests.csv" in text
    assert Path(scenario.workload.model_dump()["trace"]["path"]).resolve() == log.resolve()


@pytest.mark.slow
def test_a_manifest_states_gpu_replicas_and_release(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, server__yaml=MANIFEST))
    [pool] = scenario.fleets[0].pools
    assert (pool.name, pool.gpu, pool.replicas, pool.tensor_parallel_size) == ("llama", "a100-80gb-sxm", 3, 2)
    assert (scenario.model, scenario.engine, scenario.fleets[0].name) == (
        "qwen3-32b",
        "vllm-0.11.0",
        "6x a100-80gb-sxm",
    )
    assert draft.sources[0].secrets == ["HF_TOKEN"]
    assert draft.assumed.keys() == {"workload", "slo", "cost"}


@pytest.mark.slow
def test_a_config_gets_gpus_that_hold_it(tmp_path: Path) -> None:
    larger = CONFIG | {"num_hidden_layers": 200}
    draft, _, scenario = drafted(tmp_path, written(tmp_path, config__json=json.dumps(larger)))
    [pool] = scenario.fleets[0].pools
    assert (pool.gpu, pool.tensor_parallel_size) == ("h100-80gb-sxm", 4)
    assert scenario.model == str(tmp_path / "config.json")
    assert {"gpu", "tensor_parallel_size", "engine", "workload"} <= draft.assumed.keys()


@pytest.mark.slow
def test_a_config_describes_a_model_with_an_unknown_name(tmp_path: Path) -> None:
    paths = written(tmp_path, config__json=json.dumps(CONFIG), serve__sh="vllm serve acme/secretless-33b -tp 2")
    _, text, _ = drafted(tmp_path, paths)
    assert "model: config.json" in text


@pytest.mark.slow
def test_a_page_of_metrics_is_the_traffic_since_the_start(tmp_path: Path) -> None:
    [path] = written(tmp_path, now__prom=page(2200))
    os.utime(path, (1.7e9 + 4400, 1.7e9 + 4400))
    _, _, scenario = drafted(tmp_path, [path])
    assert scenario.model_dump()["workload"]["arrivals"]["rate_rps"] == 0.5
    assert scenario.model == "llama3.1-8b"


@pytest.mark.slow
def test_two_pages_are_the_traffic_between_them(tmp_path: Path) -> None:
    paths = written(tmp_path, before__prom=page(1000), after__prom=page(2200))
    _, _, scenario = drafted(tmp_path, paths, seconds=600.0)
    assert scenario.model_dump()["workload"]["arrivals"]["rate_rps"] == 2.0


@pytest.mark.slow
def test_sglang_in_its_own_names(tmp_path: Path) -> None:
    text = (
        "HF_TOKEN=x python3 -m sglang.launch_server --model-path Qwen/Qwen3-32B-FP8 --tp 2 --mem-fraction-static 0.85 "
        "--max-running-requests 256 --chunked-prefill-size 4096 --disable-radix-cache --host 0.0.0.0"
    )
    _, _, scenario = drafted(tmp_path, written(tmp_path, start__sh=text))
    batching = scenario.fleets[0].pools[0].batching.model_dump()
    assert (scenario.engine, scenario.quantization) == ("sglang", "fp8")
    assert (batching["max_num_seqs"], batching["chunked_prefill_size"]) == (256, 4096)
    assert (batching["gpu_memory_utilization"], batching["enable_prefix_caching"]) == (0.85, False)


@pytest.mark.slow
def test_docker_names_the_release_and_the_gpus(tmp_path: Path) -> None:
    text = (
        "docker run --gpus '\"device=0,1\"' --env HUGGING_FACE_HUB_TOKEN=hf_hunter2 -p 8000:8000 "
        "vllm/vllm-openai:v0.10.1 --model Qwen/Qwen2.5-72B-Instruct-AWQ --max-model-len 8192"
    )
    draft, _, scenario = drafted(tmp_path, written(tmp_path, run__sh=text), gpu="a100-80gb-sxm")
    assert (scenario.engine, scenario.quantization) == ("vllm-0.10.1", "awq-int4")
    assert draft.notes == ["GPUs in the files: 2; simulated: 1, as the server's command states"]


@pytest.mark.slow
def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = "vllm serve acme/unknown-33b \\\n  --tensor-paralel-size 4 \\\n  --max-num-seqs many -q bits --brand-new 1\n"
    [serve, other] = written(tmp_path, serve__sh=text, notes__txt="Dear diary")
    lines = refused([serve, other, tmp_path / "none.csv"], tmp_path / "mine.yaml", gpu="h1000")
    starts = [
        "serve.sh:1: --quantization: unknown quantization 'bits'",
        "serve.sh:1: unknown model 'acme/unknown-33b'",
        "serve.sh:2: unknown option --tensor-paralel-size; did you mean --tensor-parallel-size?",
        "serve.sh:3: --max-num-seqs must be a whole number, not 'many'",
        "notes.txt: is none of the kinds of file that init reads",
        "none.csv: cannot be read",
        "--gpu: unknown gpu 'h1000'; did you mean",
    ]
    assert [line for line, start in zip(lines, starts, strict=True) if not line.startswith(start)] == []


@pytest.mark.parametrize(
    ("texts", "mistake"),
    [
        ({"a__csv": LOG, "b__csv": LOG}, "a.csv and b.csv both state the traffic"),
        ({"a__sh": "vllm serve Qwen/Qwen3-8B", "b__sh": "vllm serve Qwen/Qwen3-32B"}, "servers of different models"),
        ({"a__sh": "vllm serve $MODEL"}, "the variable in the model '$MODEL' is not set"),
        ({"a__sh": "vllm serve --port 80"}, "names no model"),
        ({"a__sh": "vllm serve Qwen/Qwen3-32B"}, "does not fit on 1x l4"),
        (
            {"a__yaml": MANIFEST.replace("NVIDIA-A100-SXM4-80GB", "NVIDIA-Z9")},
            "a.yaml:13: nvidia.com/gpu.product: unknown",
        ),
        ({"a__yaml": MANIFEST.replace("Qwen/Qwen3-32B", "{{ model }}")}, "a.yaml:17: is a template: render it first"),
        ({"a__csv": "time,words\n1,2\n"}, "in init with --columns prompt_tokens=<header>"),
        ({"config__json": json.dumps(CONFIG | {"model_type": "mamba"})}, "Mamba"),
        ({"a__json": "[1, 2]"}, "is a list in JSON"),
        ({"a__txt": ""}, "is empty"),
    ],
)
def test_what_is_refused(tmp_path: Path, texts: dict[str, str], mistake: str) -> None:
    gpu = "l4" if "fit" in mistake else None
    lines = refused(written(tmp_path, **texts), tmp_path / "mine.yaml", gpu=gpu)
    assert any(mistake in line for line in lines), lines


def test_names_of_options_are_whole() -> None:
    for name in (*VLLM, *SGLANG):
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name), name
    assert {"structured-outputs-config", "enable-prompt-tokens-details"} <= VLLM.keys()


@pytest.mark.parametrize("count", ["many", "-3", "2.5"])
@pytest.mark.parametrize("key", ["replicas", "nvidia.com/gpu"])
def test_counts_of_a_manifest_are_whole_numbers(tmp_path: Path, key: str, count: str) -> None:
    text = re.sub(rf"{key}: \d+", f"{key}: {count}", MANIFEST)
    paths = written(tmp_path, deployment__yaml=text)
    assert [one.partition(": ")[2].partition(",")[0] for one in refused(paths, tmp_path / "mine.yaml")] == [
        f"{key} must be a whole number"
    ]
