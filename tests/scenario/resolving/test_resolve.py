"""Resolved cases: memory, limits, power, prices, and the facts that they rest on."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_scenario import planned

from sim.batching.policies import PrefillFirst
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fleet.pool import rank_limits
from sim.jobs.load import load_job
from sim.scenario.reading.load import has_job, load
from sim.scenario.resolving import resolve as planning
from sim.scenario.resolving.case import fleet_of, resolve
from sim.scenario.resolving.describe import describe
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import as_data, at_point, cases
from sim.steptime.roofline import RooflineStepTime
from sim.yamlio import dump, parse, read


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def main_plans(root: Path, catalog: Catalog) -> list[CasePlan]:
    scenario = load(root / "scenarios" / "4x4090-vs-2xa100.yaml", ["sweep=null", "replications=1"], catalog=catalog)
    return [resolve(scenario, case, catalog) for case in cases(scenario)]


def scenario_data(**pool: Any) -> dict[str, Any]:
    fixed = {"distribution": "fixed", "value": 100}
    return {
        "model": "llama3.1-8b",
        "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": {"prompt": fixed, "output": fixed}},
        "horizon_s": 60,
        "fleets": [{"name": "f", "pools": [{"gpu": "rtx-4090", **pool}]}],
    }


def plan_of(folder: Path, catalog: Catalog, data: dict[str, Any]) -> CasePlan:
    return planned(folder, data)


SWEPT: dict[str, Any] = {
    "workload.arrivals.rate_rps": [1, 2],
    "workload.lengths.prompt.value": [100, 300],
    "fleets.a.pools.0.replicas": [1, 2],
    "site.pue": [1.1, 1.3],
    "horizon_s": [10, 60],
    "quantization": ["bf16", "fp8"],
}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, catalog: Catalog) -> Scenario:
    [fleet] = scenario_data(cost={"acquisition": "buy"})["fleets"]
    path = tmp_path_factory.mktemp("swept") / "s.yaml"
    finance = {"method": "annuity", "discount_rate": 0.1, "life_years": 3}
    terms = {"site": {"electricity_usd_per_kwh": 0.1}, "finance": finance}
    sliding = {"model": "mistral-7b", "sweep": SWEPT, "quantization": "bf16"}
    fleets = [{**fleet, "name": name} for name in ("a", "b")]
    path.write_text(dump(scenario_data() | terms | sliding | {"fleets": fleets}))
    return load(path, catalog=catalog)


def planned_fleets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the name of each fleet is added that is planned from here on, not taken from before."""
    names: list[str] = []
    plan_fleet = planning._plan_fleet
    monkeypatch.setattr(planning, "_plan_fleet", lambda *asked: names.append(asked[1].name) or plan_fleet(*asked))
    return names


@pytest.mark.slow
def test_plans_along_a_sweep_are_those_of_its_cases_one_by_one(swept: Scenario, catalog: Catalog) -> None:
    for case in cases(swept)[::11]:  # any two values of two inputs are in one of them
        alone = load_catalog(catalog.root)
        assert describe(resolve(swept, case, catalog), catalog) == describe(resolve(swept, case, alone), alone)
        assert fleet_of(swept, case, catalog).machines == fleet_of(swept, case, alone).machines


@pytest.mark.slow
def test_a_fleet_is_planned_once_by_the_checks_and_for_all_loads(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, catalog = planned_fleets(monkeypatch), load_catalog(root / "data")
    (tmp_path / "s.yaml").write_text(dump(scenario_data() | {"sweep": {"workload.arrivals.rate_rps": [1, 2]}}))
    scenario = load(tmp_path / "s.yaml", catalog=catalog)
    for case in cases(scenario):
        resolve(scenario, case, catalog)
    assert names == ["f"]


def test_a_fleet_is_planned_again_when_a_file_that_it_names_has_changed(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, catalog = planned_fleets(monkeypatch), load_catalog(root / "data")
    model = tmp_path / "own" / "config.json"
    model.parent.mkdir()
    keys = {"hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 8, "num_hidden_layers": 4}
    keys |= {"num_key_value_heads": 8, "vocab_size": 1000, "max_position_embeddings": 4096}
    held = []
    for layers in (4, 8):
        config = {"model_type": "llama", "torch_dtype": "bfloat16", **keys, "num_hidden_layers": layers}
        model.write_text(json.dumps(config))
        held += [plan_of(tmp_path, catalog, scenario_data() | {"model": str(model.parent)}).pools[0].memory]
    assert held[1].weights_bytes > 1.5 * held[0].weights_bytes
    assert names == ["f", "f"]


def test_points_share_sections_that_the_sweep_does_not_change(swept: Scenario) -> None:
    for case in cases(swept)[::11]:  # any two values of two inputs are in one of them
        at = at_point(swept, case.overrides)
        assert at == Scenario.model_validate(as_data(at))
        assert at.fleets[1] is swept.fleets[1]
        assert at.finance is swept.finance
        assert at.fleets[0].pools[0].replicas == case.overrides["fleets.a.pools.0.replicas"]


def test_the_main_scenario_fits_and_has_prices(main_plans: list[CasePlan]) -> None:
    for plan in main_plans:
        [pool] = plan.pools
        assert plan.infeasible == ""
        assert plan.model == "qwen2-72b-instruct"
        assert pool.memory is not None
        assert pool.batching.num_gpu_blocks == pool.memory.num_gpu_blocks > 1000
        assert pool.batching.max_model_len == 32768
        assert (pool.batching.max_num_seqs, pool.batching.max_num_batched_tokens) == (256, 2048)
        assert pool.power is not None
        assert plan.costs is not None
        assert {charge.component for charge in plan.costs.charges} == {
            "gpu_capital",
            "server_capital",
            "hosting",
            "energy",
        }
    assert [plan.pools[0].gpus_per_replica for plan in main_plans] == [4, 2]
    assert main_plans[0].costs is not None
    assert main_plans[0].costs.capex_usd == 4 * 1900 + 3400


def test_every_fact_has_a_source(main_plans: list[CasePlan], catalog: Catalog) -> None:
    for plan in main_plans:
        paths = [fact.path for fact in plan.facts]
        assert len(set(paths)) == len(paths)
        assert all(path.startswith(f"fleets.{plan.fleet}.") for path in paths)
        assert all(catalog.source(fact.value.source) for fact in plan.facts)


@pytest.mark.slow
def test_a_description_is_plain_data(main_plans: list[CasePlan], catalog: Catalog) -> None:
    for plan in main_plans:
        said = describe(plan, catalog)
        assert parse(dump(said)) == said
        assert {value["source"] for value in said["values"]} - {"scenario"} == set(said["sources"])
        memory = said["pools"][0]["memory_gb_per_gpu"]
        assert memory["usable"] == pytest.approx(sum(memory[p] for p in ("weights", "activations", "kv")), rel=0.1)


def test_the_nearest_setting_wins(tmp_path: Path, catalog: Catalog) -> None:
    data = scenario_data(quantization="fp8", max_model_len=4096)
    data |= {"quantization": "none", "max_model_len": 1024}
    data["fleets"][0]["quantization"] = "gptq-int4"
    data["fleets"][0]["pools"].append({"gpu": "rtx-4090"})
    first, second = plan_of(tmp_path, catalog, data).pools
    assert first.memory is not None
    assert second.memory is not None
    assert (first.batching.max_model_len, second.batching.max_model_len) == (4096, 1024)
    assert first.memory.weights_bytes > second.memory.weights_bytes
    assert (first.name, second.name) == ("rtx-4090-1", "rtx-4090-2")


@pytest.mark.slow
def test_infeasible_fleets_have_a_reason_and_no_error(tmp_path: Path, catalog: Catalog) -> None:
    plan = plan_of(tmp_path, catalog, scenario_data() | {"model": "qwen2-72b-instruct"})
    assert "needs 145" in plan.infeasible
    assert "fits" in plan.infeasible
    assert plan.pools[0].batching.num_gpu_blocks == 0


def test_an_explicit_block_pool_is_taken_at_its_word(tmp_path: Path, catalog: Catalog) -> None:
    data = scenario_data(batching={"num_gpu_blocks": 500})
    [pool] = plan_of(tmp_path, catalog, data).pools
    assert (pool.batching.num_gpu_blocks, pool.batching.block_size) == (500, 16)


def test_a_referee_needs_no_model_and_no_gpu(tmp_path: Path, catalog: Catalog) -> None:
    data = scenario_data()
    del data["model"]
    limits = {"max_num_seqs": 8, "max_num_batched_tokens": 64, "num_gpu_blocks": 10}
    steptime = {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0}
    data["fleets"][0]["pools"] = [{"steptime": steptime, "batching": limits}]
    plan = plan_of(tmp_path, catalog, data)
    [pool] = plan.pools
    assert (pool.gpu, pool.gpus_per_replica, pool.memory, pool.power) == ("", 0, None, None)
    assert (pool.batching.max_model_len, pool.request_overhead_s) == (9 * 16, 0.0)
    assert (plan.costs, plan.facts, plan.model) == (None, (), "")


def test_requests_take_longer_where_the_client_stands(tmp_path: Path, catalog: Catalog) -> None:
    at_client = plan_of(tmp_path, catalog, scenario_data()).pools[0]
    at_engine = plan_of(tmp_path, catalog, scenario_data() | {"measured_at": "engine"}).pools[0]
    assert at_client.request_overhead_s > at_engine.request_overhead_s == 0


@pytest.mark.slow
def test_replicas_share_their_servers(tmp_path: Path, catalog: Catalog) -> None:
    def base_w(replicas: int) -> float:
        [pool] = plan_of(tmp_path, catalog, scenario_data(server="workstation-4x4090", replicas=replicas)).pools
        assert pool.power is not None
        return pool.power.base_w

    whole = catalog.server("workstation-4x4090").base_power_w
    assert whole is not None
    assert base_w(1) == whole.value
    assert base_w(4) == whole.value / 4
    assert base_w(5) == whole.value * 2 / 5


def test_equal_pools_of_several_cases_share_a_roofline(tmp_path: Path, catalog: Catalog) -> None:
    def steptime(**changed: Any) -> Any:
        return plan_of(tmp_path, catalog, scenario_data(replicas=2) | changed).pools[0].steptime

    assert steptime() is steptime(horizon_s=30) is not steptime(quantization="fp8")


def test_data_parallel_ranks_with_shared_experts_step_together(tmp_path: Path, catalog: Catalog) -> None:
    data = scenario_data(gpu="h100-80gb-sxm", tensor_parallel_size=2, data_parallel_size=4, enable_expert_parallel=True)
    [pool] = plan_of(tmp_path, catalog, data | {"model": "mixtral-8x7b"}).pools
    assert (pool.gpus_per_replica, pool.data_parallel_size, pool.lockstep) == (8, 4, True)


def test_the_largest_graph_pads_ranks_that_step_together(tmp_path: Path, catalog: Catalog) -> None:
    def padded(**steptime: Any) -> tuple[float, float]:
        data = scenario_data(gpu="h100-80gb-sxm", data_parallel_size=4, enable_expert_parallel=True, steptime=steptime)
        return plan_of(tmp_path, catalog, data | {"model": "mixtral-8x7b"}).pools[0].padded_tokens

    assert padded(model="roofline") == (512, 512)
    assert padded(model="roofline", graph_tokens=2048) == (2048, 2048)
    assert padded(model="roofline", graph_tokens=0) == (0, 512)
    assert padded(model="roofline", cuda_graphs=False) == (0, 0)


@pytest.mark.parametrize(
    ("engine", "chunks", "batches"),
    [("tensorrt-llm-0.10", False, False), ("tensorrt-llm-1.1", False, True), ("tensorrt-llm-1.2", True, True)],
)
def test_ranks_overlap_chunks_and_batches_and_pad_steps_as_their_pool_states(
    tmp_path: Path, catalog: Catalog, engine: str, chunks: bool, batches: bool
) -> None:
    [pool] = plan_of(tmp_path, catalog, scenario_data(gpu="h100-80gb-sxm", engine=engine)).pools
    limits = rank_limits(replace(pool, padded_tokens=(64, 512)))
    assert (limits.overlaps_chunks, limits.overlaps_batches) == (chunks, batches)
    assert limits.padded_tokens == (64, 512)


@pytest.mark.parametrize("batching", [{}, {"async_scheduling": False}])
def test_pipelines_of_vllm_0_19_hide_the_host_where_their_batches_take_turns(
    tmp_path: Path, catalog: Catalog, batching: dict[str, Any]
) -> None:
    stages = {"pipeline_parallel_size": 2, "batching": {"policy": "vllm", **batching}}
    [pool] = plan_of(tmp_path, catalog, scenario_data(gpu="h100-80gb-sxm", engine="vllm-0.19", **stages)).pools
    assert pool.overlaps_batches == (batching != {})
    assert pool.steptime.inputs.forms_ahead == (batching == {})  # type: ignore[attr-defined]


def test_batches_of_pipelines_with_a_stated_step_time_overlap(tmp_path: Path, catalog: Catalog) -> None:
    affine = {"model": "affine", "base_s": 0.01, "per_token_s": 0.0001, "per_context_token_s": 0}
    stated = {"engine": "vllm-0.19", "pipeline_parallel_size": 2, "steptime": affine}
    batching = {"policy": "vllm", "max_num_seqs": 4, "max_num_batched_tokens": 512, "num_gpu_blocks": 1000}
    [pool] = plan_of(tmp_path, catalog, scenario_data(**stated, batching=batching)).pools
    assert pool.overlaps_batches


@pytest.mark.parametrize(("together", "of_a_rank"), [(True, (1024, 0.3)), (False, (8192, 1.0))])
def test_sglang_cuts_the_prompts_of_a_step_among_ranks_that_step_together(
    tmp_path: Path, catalog: Catalog, together: bool, of_a_rank: tuple[int, float]
) -> None:
    layout = {"data_parallel_size": 8, "enable_expert_parallel": together}
    data = scenario_data(gpu="h100-80gb-sxm", **layout) | {"engine": "sglang-0.5", "model": "qwen3-30b-a3b"}
    batching = plan_of(tmp_path, catalog, data).pools[0].batching
    assert isinstance(batching, PrefillFirst)
    assert (batching.chunked_prefill_size, batching.schedule_conservativeness) == of_a_rank


@pytest.mark.slow
def test_every_shipped_scenario_resolves(root: Path, catalog: Catalog) -> None:
    for path in sorted((root / "scenarios").rglob("*.yaml")):
        if has_job(path):
            assert load_job(path, catalog=catalog).question, path
            continue
        if not {"workload", "base"} & read(path).data.keys():
            continue  # a claim that the catalogue decides: tests/claims reads it
        scenario = load(path, catalog=catalog)
        assert scenario.question, path
        for case in cases(scenario):
            if case.replication == 0:  # the others have the same plan, and other random numbers
                resolve(scenario, case, catalog)


@pytest.mark.parametrize(("ranks", "name"), [(2, "allreduce_bus_bytes_per_s.2"), (5, "allreduce_bus_bytes_per_s.8")])
def test_a_replica_over_a_link_rests_on_the_figures_that_its_exchanges_take(
    tmp_path: Path, catalog: Catalog, ranks: int, name: str
) -> None:
    """The table of two RTX 5090 is assumed, from a bandwidth with a range; five GPUs use the figures of eight."""
    data = scenario_data(tensor_parallel_size=ranks) | {"model": "phi3-medium"}
    data["fleets"][0]["pools"][0]["gpu"] = "rtx-5090"
    facts = {fact.path.split(".link.")[1] for fact in plan_of(tmp_path, catalog, data).facts if ".link." in fact.path}
    assert name in facts


@pytest.mark.parametrize("format", ["none", "mxfp4", "q"])
@pytest.mark.parametrize(
    ("engine", "stored"), [("llama.cpp", "gguf-mxfp4"), ("ollama", "gguf-mxfp4"), ("vllm", "mxfp4")]
)
def test_engines_of_gguf_files_read_gpt_oss_as_these_store_it(
    tmp_path: Path, catalog: Catalog, engine: str, stored: str, format: str
) -> None:
    data = scenario_data(engine=engine, quantization="gguf-q8_0" if format == "q" else format) | {
        "model": "gpt-oss-20b"
    }
    steptime = plan_of(tmp_path, catalog, data).pools[0].steptime
    assert isinstance(steptime, RooflineStepTime)
    assert steptime.inputs.quantization.id == ("gguf-q8_0" if format == "q" else stored)


@pytest.mark.parametrize(
    ("gpu", "quantization", "kernel"),
    [
        ("b200-180gb-sxm", "nvfp4", "nvfp4"),
        ("h100-80gb-sxm", "nvfp4", "marlin"),
        ("mi355x", "mxfp4-linear", "mxfp4"),
        ("h100-80gb-sxm", "mxfp4-linear", "marlin"),
        ("h100-80gb-sxm", "mxfp4", "mxfp4"),  # experts: fitted to what Hopper makes of them
    ],
)
def test_cards_without_fp4_unpack_it_to_16_bit(
    tmp_path: Path, catalog: Catalog, gpu: str, quantization: str, kernel: str
) -> None:
    data = scenario_data(tensor_parallel_size=1) | {"model": "llama3.1-8b", "quantization": quantization}
    data["fleets"][0]["pools"][0]["gpu"] = gpu
    steptime = plan_of(tmp_path, catalog, data).pools[0].steptime
    assert isinstance(steptime, RooflineStepTime)
    assert steptime.inputs.kernel.id == kernel
