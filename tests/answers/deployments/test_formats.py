"""Files of deployments: commands, probes, autoscalers, roles, and fleets that a tool cannot run."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sim.answers.deployments.answer import deployment_text, digest_of
from sim.answers.deployments.formats import FORMATS
from sim.answers.deployments.servers import NoDeployment, groups_of, label_of
from sim.answers.from_files.draft import draft_of
from sim.answers.from_files.gpu_labels import gpu_of
from sim.answers.from_files.source import slug
from sim.answers.from_files.text import scenario_text
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.yamlio import dump, read_text
from tests.answers.deployments.test_round_trip import case_of, deployed, read_back

CATALOG = load_catalog()
SMALL: dict[str, Any] = {
    "name": "small",
    "model": "qwen3-32b",
    "workload": {
        "arrivals": {"process": "poisson", "rate_rps": 1},
        "lengths": {
            "prompt": {"distribution": "fixed", "value": 100},
            "output": {"distribution": "fixed", "value": 10},
        },
    },
    "horizon_s": 60,
    "fleets": [{"name": "a", "pools": [{"gpu": "h100-80gb-sxm", "name": "Main pool", "tensor_parallel_size": 2}]}],
}
SCALED = {
    "hpa": {"policy": "hpa", "metric": "kv_used", "target": 0.7, "min_replicas": 2, "max_replicas": 5},
    "busy": {"policy": "hpa", "metric": "gpu_busy", "target": 0.8, "max_replicas": 5, "tolerance": 0.2},
    "keda": {"policy": "keda", "metric": "outstanding", "target": 8, "max_replicas": 6, "cooldown_period_s": 600},
    "rates": {
        **{"policy": "hpa", "metric": "requests_per_s_per_replica", "target": 0.25, "max_replicas": 5},
        **{"scale_down": {"policies": [{"type": "pods", "value": 1, "period_s": 60}], "select": "min"}},
    },
}


def small(**pool: Any) -> Any:
    """Return a scenario with one pool of two H100 and its case, with further keys of the pool."""
    data = SMALL | {"fleets": [{"name": "a", "pools": [SMALL["fleets"][0]["pools"][0] | pool]}]}
    scenario = load(read_text(dump(data), "small.yaml"), catalog=CATALOG)
    return scenario, cases(scenario)[0]


def documents(form: str, **pool: Any) -> list[dict[str, Any]]:
    """Return the YAML documents of the small fleet as files for a tool."""
    scenario, case = small(**pool)
    return [one for one in yaml.safe_load_all(FORMATS[form][1](groups_of(scenario, case, CATALOG), [])) if one]


@pytest.mark.slow
@pytest.mark.parametrize("keys", SCALED.values(), ids=SCALED)
@pytest.mark.parametrize("form", ["kubernetes", "kserve", "llm-d", "vllm"])
def test_autoscalers_read_back_are_the_same(tmp_path: Path, form: str, keys: dict[str, Any]) -> None:
    scenario, case = small(autoscaling=keys)
    ending, write = FORMATS[form]
    text = write(groups_of(scenario, case, CATALOG), [])
    assert deployed(read_back(tmp_path, text, ending)) == deployed(resolve(scenario, case, CATALOG))


@pytest.mark.slow
@pytest.mark.parametrize(
    "keys",
    [
        {"engine": "sglang", "batching": {"policy": "prefill_first", "chunked_prefill_size": 4096}},
        {"engine": "vllm-0.11.0", "quantization": "fp8", "kv_cache_dtype": "fp8", "max_model_len": 8192},
        {"model": "qwen3-30b-a3b", "enable_expert_parallel": True, "batching": {"policy": "vllm", "block_size": 32}},
        {
            "data_parallel_size": 2,
            "cold_start": {"total_s": 100},
            "failures": {"replica": {"mtbf_h": 9, "repair_h": 1}},
        },
    ],
)
@pytest.mark.parametrize("form", ["vllm", "kubernetes", "dynamo"])
def test_options_read_back_are_the_same(tmp_path: Path, form: str, keys: dict[str, Any]) -> None:
    scenario, case = small(**keys)
    ending, write = FORMATS[form]
    text = write(groups_of(scenario, case, CATALOG), [])
    assert deployed(read_back(tmp_path, text, ending)) == deployed(resolve(scenario, case, CATALOG))


@pytest.mark.slow
def test_a_manifest_that_is_read_serves_the_same_checkpoint_and_adapters_when_written(tmp_path: Path) -> None:
    command, target = tmp_path / "serve.sh", tmp_path / "s.yaml"
    command.write_text(
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --quantization fp8 --max-model-len 8192 "
        "--enable-lora --max-loras 2 --max-cpu-loras 9 --lora-modules sql=/sql chat=/chat\n"
    )
    draft = draft_of([command], target, CATALOG, "h100-80gb-sxm")
    target.write_text(scenario_text(draft, "gpufleet init s"))
    scenario = load(target, catalog=CATALOG)
    assert scenario.workload.adapters is not None
    assert scenario.workload.adapters.weights == {"sql": 1, "chat": 1}
    assert "equal shares" in draft.assumed["workload.adapters"]
    [group] = groups_of(scenario, cases(scenario)[0], CATALOG)
    assert group.model == group.checkpoint == "meta-llama/Llama-3.1-8B-Instruct"
    kept = {"quantization": "fp8", "enable-lora": "", "max-loras": "2", "max-cpu-loras": "9"}
    assert kept.items() <= group.options.items()
    with pytest.raises(ScenarioErrors, match="checkpoint: is one of qwen3-32b"):
        load(target, ["checkpoint=Qwen/Qwen3-32B"], catalog=CATALOG)


@pytest.mark.slow
def test_scaled_objects_beside_a_script_scale_its_servers_by_name(tmp_path: Path) -> None:
    pools = [SMALL["fleets"][0]["pools"][0] | {"name": name} for name in ("Main pool", "other")]
    pools[0] = pools[0] | {"autoscaling": SCALED["keda"]}
    data = SMALL | {"fleets": [{"name": "a", "pools": pools}]}
    scenario = load(read_text(dump(data), "small.yaml"), catalog=CATALOG)
    groups = groups_of(scenario, cases(scenario)[0], CATALOG)
    files = [tmp_path / "serve.sh", tmp_path / "keda.yaml"]
    for file, form in zip(files, ("vllm", "keda"), strict=True):
        file.write_text(FORMATS[form][1](groups, []))
    drafts = draft_of(files, tmp_path / "s.yaml", CATALOG).data["fleets"][0]["pools"]
    assert [one.get("autoscaling", {}).get("policy") for one in drafts] == ["keda", None]


def test_the_startup_probe_allows_twice_the_cold_start() -> None:
    deployment = documents("kubernetes", cold_start={"total_s": 100}, autoscaling=SCALED["hpa"])[0]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 200
    assert container["resources"] == {"requests": {"nvidia.com/gpu": "2"}, "limits": {"nvidia.com/gpu": "2"}}


def test_keda_scales_the_deployment_by_the_simulated_metric() -> None:
    [scaled] = documents("keda", autoscaling=SCALED["keda"])
    assert scaled["spec"]["scaleTargetRef"]["name"] == "main-pool"
    assert scaled["spec"]["triggers"][0]["metadata"]["query"] == (
        'sum(vllm:num_requests_running{pod=~"main-pool-.*"}) + sum(vllm:num_requests_waiting{pod=~"main-pool-.*"})'
    )
    assert (scaled["spec"]["cooldownPeriod"], scaled["spec"]["maxReplicaCount"]) == (600, 6)
    with pytest.raises(NoDeployment, match="nothing to scale"):
        documents("keda")


def test_a_slice_is_requested_by_its_profile() -> None:
    keys = {"gpu": "a100-80gb-sxm", "mig": "3g.40gb", "tensor_parallel_size": 1, "model": "llama3.1-8b"}
    [container] = documents("kubernetes", **keys)[0]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/mig-3g.40gb": "1"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "index", "form", "reason"),
    [
        ("energy-mac-vs-4090", 0, "vllm", "for vLLM and SGLang only"),
        ("mig-recommender", 0, "kubernetes", "no model on a GPU"),
        ("spot-mix", 1, "llm-d", "the fleet has 3 kinds"),
    ],
)
def test_a_fleet_that_a_tool_cannot_run_is_refused(name: str, index: int, form: str, reason: str) -> None:
    scenario, case, _ = case_of(name, index)
    with pytest.raises(NoDeployment, match=reason):
        FORMATS[form][1](groups_of(scenario, case, CATALOG), [])


def stored(folder: Path, *rows: str) -> Path:
    """Return the folder of an answer with two fleets at two loads, and the *rows* of its table."""
    data = SMALL | {"sweep": {"workload.arrivals.rate_rps": [1, 2]}, "fleets": [SMALL["fleets"][0], {"name": "b"}]}
    data["fleets"][1] = {"name": "b", "pools": [{"gpu": "h200-141gb-sxm"}]}
    (folder / "scenario.yaml").write_text(dump(data))
    head = "fleet,rate_rps,offered_rps,meets_slo,usd_per_million_output_tokens"
    (folder / "summary.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder


@pytest.mark.slow
def test_the_cheapest_fleet_at_the_highest_load_is_deployed(tmp_path: Path) -> None:
    folder = stored(tmp_path, "a,1,1,true,2", "a,2,2,true,4", "b,1,1,true,1", "b,2,2,true,5")
    text, _ = deployment_text(folder, "vllm", None, CATALOG)
    assert "# a of small" in text
    assert f"# answer {digest_of(folder)}" in text
    assert "# b of small" in deployment_text(folder, "vllm", "b", CATALOG)[0]


def test_an_answer_without_a_winner_asks_for_a_fleet(tmp_path: Path) -> None:
    folder = stored(tmp_path, "a,1,1,false,2", "a,2,2,false,4", "b,1,1,false,1", "b,2,2,false,5")
    with pytest.raises(NoDeployment, match=r"name one with --fleet \(a and b\)"):
        deployment_text(folder, "vllm", None, CATALOG)
    with pytest.raises(NoDeployment, match="--fleet c: the fleets are a and b"):
        deployment_text(folder, "vllm", "c", CATALOG)


@pytest.mark.slow
def test_labels_of_gpus_are_read_back() -> None:
    for gpu in CATALOG.ids("gpus"):
        key, value = label_of(gpu, CATALOG)
        assert gpu_of(value, CATALOG) == gpu, key


@pytest.mark.parametrize(("name", "expected"), [("8 x H100", "8-x-h100"), ("(每)", "server"), ("a" * 80, "a" * 50)])
def test_names_of_objects(name: str, expected: str) -> None:
    assert slug(name) == expected
