"""Engines whose host works beside the GPU."""

import pytest

from sim.batching.policies import PrefillFirst
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.scheduler import state_cache, with_switches
from sim.scenario.sweep import cases

CATALOG = load_catalog()
TOGETHER = {"data_parallel_size": 2, "enable_expert_parallel": True, "batching": {"policy": "prefill_first"}}


def drafts(method, **batching):
    speculative = {"method": method, "num_speculative_tokens": 2, "accepted": 1}
    return {"batching": {"policy": "vllm", "speculative": speculative, **batching}}


def plan(engine, model="qwen3-30b-a3b", **pool):
    lengths = {side: {"distribution": "fixed", "value": 128} for side in ("prompt", "output")}
    scenario = {
        "name": "host beside the GPU",
        "model": model,
        "workload": {"arrivals": {"process": "burst", "num_requests": 1}, "lengths": lengths},
        "fleets": [{"name": "one", "pools": [{"gpu": "h200-141gb-sxm", "engine": engine, **pool}]}],
    }
    loaded = load(as_document(scenario), catalog=CATALOG)
    return resolve(loaded, cases(loaded)[0], CATALOG).pools[0]


@pytest.mark.parametrize(
    ("engine", "pool", "beside"),
    [
        ("vllm-0.14", {}, True),
        ("vllm-0.22", {"pipeline_parallel_size": 2}, False),
        ("vllm", {"pipeline_parallel_size": 2}, True),
        ("vllm-0.11", {}, False),
        ("vllm-0.19", drafts("eagle"), True),
        ("vllm-0.19", drafts("mtp", async_scheduling=False), False),
        ("vllm-0.18", drafts("eagle"), False),
        ("vllm-0.18", drafts("eagle", async_scheduling=True), True),
        ("vllm-0.19", drafts("ngram"), False),
        ("tensorrt-llm-1.0", {}, True),
        ("tensorrt-llm-1.0", {"batching": {"policy": "reserve", "overlap_scheduler": False}}, False),
        ("tensorrt-llm-0.14", {}, False),
        ("tensorrt-llm-0.10", {"pipeline_parallel_size": 2}, False),
        ("sglang-0.5", TOGETHER, True),
        ("sglang-0.5", TOGETHER | {"batching": {"policy": "prefill_first", "overlap_schedule": False}}, False),
    ],
)
def test_the_host_works_beside_the_gpu_as_releases_do(engine, pool, beside) -> None:
    inputs = plan(engine, **pool).steptime.inputs
    assert inputs.forms_ahead == beside


@pytest.mark.parametrize(
    ("engine", "pool", "launches"),
    [("vllm", {}, True), ("vllm", {"tensor_parallel_size": 2}, False), ("sglang-0.5", TOGETHER, True)],
)
def test_the_scheduler_launches_kernels_except_in_vllm_on_several_gpus(engine, pool, launches) -> None:
    assert plan(engine, **pool).steptime.inputs.one_thread == launches


@pytest.mark.parametrize(
    ("engine", "model", "beside"),
    [
        ("sglang-0.5.13", "qwen3-coder-next", False),
        ("sglang-0.5.16", "qwen3-coder-next", True),
        ("sglang-0.5.13", "lfm2.5-8b-a1b", True),
    ],
)
def test_states_in_the_prefix_cache_keep_the_host_beside_the_gpu_by_release_and_family(engine, model, beside) -> None:
    assert plan(engine, model, tensor_parallel_size=2).steptime.inputs.forms_ahead == beside
    off = {"policy": "prefill_first", "enable_prefix_caching": False}
    assert plan(engine, model, tensor_parallel_size=2, batching=off).steptime.inputs.forms_ahead


def test_states_of_a_model_without_a_family_count_as_well() -> None:
    engine, batching = CATALOG.engine("sglang-0.5.13"), PrefillFirst(policy="prefill_first")
    switched = [with_switches(batching, engine, ("overlap_schedule",), states) for states in ("", None)]
    assert [one.overlap_schedule for one in switched] == [False, True]


@pytest.mark.parametrize(("family", "ahead"), [("qwen3-next-80b-a3b", 0), ("lfm2.5-8b-a1b", 1), ("lfm2_moe", 1)])
def test_states_take_more_places_where_steps_are_formed_ahead(family, ahead) -> None:
    engine, batching = CATALOG.engine("sglang-0.5.13"), PrefillFirst(policy="prefill_first", enable_prefix_caching=True)
    model = CATALOG.model("lfm2.5-8b-a1b").model_copy(update={"family": family})
    cache, limits = state_cache(batching, engine, model, batching), engine.limits
    assert cache.per_request == limits.states_per_request.value + ahead * limits.states_ahead.value


@pytest.mark.parametrize(
    ("engine", "policy", "switch"),
    [("sglang-0.5", "prefill_first", "overlap_schedule"), ("tensorrt-llm-1.0", "reserve", "overlap_scheduler")],
)
def test_overlap_needs_one_pipeline_stage(engine, policy, switch) -> None:
    with pytest.raises(ScenarioErrors, match=f"{switch}: needs one pipeline stage"):
        plan(engine, pipeline_parallel_size=2, batching={"policy": policy, switch: True})
