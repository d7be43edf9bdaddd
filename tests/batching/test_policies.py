"""Scheduler of a pool: the stated one or its engine's, with the engine's limits where none are stated."""

from pathlib import Path
from typing import Any

import pytest
from small_scenario import planned

from sim.batching import POLICIES, PrefillFirst, Reserve, Slots, Vllm
from sim.catalogue.catalog import Catalog, load_catalog
from sim.fleet.pool import SCHEDULERS, rank_limits
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.resolving.resolved import CasePlan


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def plan_of(folder: Path, catalog: Catalog, **pool: Any) -> CasePlan:
    fixed = {"distribution": "fixed", "value": 100}
    data = {
        "model": "llama3-8b",
        "workload": {"arrivals": {"process": "poisson", "rate_rps": 1}, "lengths": {"prompt": fixed, "output": fixed}},
        "horizon_s": 60,
        "fleets": [{"name": "f", "pools": [{"gpu": "rtx-4090", **pool}]}],
    }
    return planned(folder, data)


def test_every_policy_has_a_schedule_and_every_engine_a_policy(catalog: Catalog) -> None:
    assert {*SCHEDULERS, "dynamic"} == set(POLICIES)  # sim/engine/dynamic_batching.py is an engine of its own
    assert {catalog.engine(name).batching for name in catalog.ids("engines")} <= set(POLICIES)


@pytest.mark.parametrize(
    ("engine", "policy"),
    [
        ("vllm-0.6", PrefillFirst), ("vllm-0.10", Vllm), ("vllm-0.11", Vllm), ("sglang-0.5", PrefillFirst),
        ("tensorrt-llm-0.14", Reserve), ("tensorrt-llm-1.0", Reserve), ("llama.cpp", Slots), ("ollama", Slots),
    ],
)  # fmt: skip
def test_a_pool_runs_on_its_engines_policy(tmp_path: Path, catalog: Catalog, engine: str, policy: type) -> None:
    for batching in ({}, {"batching": {"max_num_seqs": 3}}):
        [pool] = plan_of(tmp_path, catalog, engine=engine, **batching).pools
        assert isinstance(pool.batching, policy)
        limits = rank_limits(pool)
        assert limits.max_num_seqs == (3 if batching else limits.max_num_seqs)
    named = plan_of(tmp_path, catalog, engine=engine, batching={"policy": "vllm", "max_num_seqs": 3})
    assert isinstance(named.pools[0].batching, Vllm)


@pytest.mark.slow
def test_engines_set_how_prompts_are_cut(tmp_path: Path, catalog: Catalog) -> None:
    def limits(**pool: Any) -> tuple[int, bool]:
        found = rank_limits(plan_of(tmp_path, catalog, **pool).pools[0])
        return found.max_num_batched_tokens, found.chunked_prefill

    assert limits(engine="sglang-0.5") == (2048, True)
    assert limits(engine="sglang-0.5", gpu="h100-80gb-sxm") == (8192, True)
    assert limits(engine="sglang-0.5", gpu="a100-40gb-sxm") == (4096, True)
    assert limits(engine="sglang-0.5", gpu="b200-180gb-sxm") == (16384, True)
    assert limits(engine="sglang-0.5.2", gpu="a100-40gb-sxm") == (8192, True)
    assert limits(engine="sglang-0.5.20") == (4096, True)
    assert limits(engine="vllm-0.6") == (8192, False)
    assert limits(engine="vllm-0.6", max_model_len=1000) == (2048, False)
    assert limits(engine="tensorrt-llm-0.14")[1] is False
    assert limits(engine="tensorrt-llm-1.0")[1] is True


def test_blocks_of_a_whole_prompt_are_reserved_where_the_version_has_the_option(
    tmp_path: Path, catalog: Catalog
) -> None:
    versions = ("vllm-0.10", "vllm-0.11", "vllm-0.14")
    found = [
        rank_limits(plan_of(tmp_path, catalog, engine=one).pools[0]).options.reserves_all_tokens for one in versions
    ]
    assert found == [False, False, True]


def test_slots_are_reserved_or_the_engine_does_not_start(tmp_path: Path, catalog: Catalog) -> None:
    four = plan_of(tmp_path, catalog, engine="ollama").pools[0]
    assert (four.batching.max_num_seqs, four.batching.max_model_len, four.batching.num_gpu_blocks) == (4, 2048, 5)
    assert rank_limits(four).block_size == 2048
    left_out = plan_of(tmp_path, catalog, engine="ollama", max_model_len=8192, model="qwen2-72b-instruct",
                       quantization="gguf-q4_0", pipeline_parallel_size=2)  # fmt: skip
    assert (left_out.infeasible, left_out.pools[0].batching.max_num_seqs) == ("", 1)
    asked = plan_of(tmp_path, catalog, engine="ollama", batching={"max_num_seqs": 40, "max_model_len": 8192})
    assert "40 slots of 8192 tokens asked for, the memory holds" in asked.infeasible


@pytest.mark.parametrize(
    ("release", "gpu", "slots"),
    [
        ("ollama-0.8", "a100-80gb-sxm", (4, 4096)),
        ("ollama-0.15.4", "a100-80gb-sxm", (1, 4096)),
        ("ollama-0.15.5", "rtx-4090", (1, 32768)),
        ("ollama-0.33", "t4", (1, 4096)),
        ("ollama-0.33", "a100-80gb-sxm", (1, 131072)),
    ],
)
def test_slots_of_later_releases_follow_the_memory_of_the_gpu(
    tmp_path: Path, catalog: Catalog, release: str, gpu: str, slots: tuple[int, int]
) -> None:
    found = plan_of(tmp_path, catalog, engine=release, gpu=gpu, model="qwen2.5-7b").pools[0].batching
    assert (found.max_num_seqs, found.max_model_len) == slots


def test_slots_may_share_one_cache(tmp_path: Path, catalog: Catalog) -> None:
    shared = {"policy": "slots", "kv_unified": True, "max_num_seqs": 40, "max_model_len": 8192}
    one = plan_of(tmp_path, catalog, engine="llama.cpp", batching=shared)
    limits = rank_limits(one.pools[0])
    assert (one.infeasible, limits.num_gpu_blocks, limits.block_size, limits.max_num_seqs) == ("", 8193, 1, 40)
    small = {"model": "qwen3-32b", "quantization": "gguf-q4_0", "batching": shared | {"max_model_len": 40960}}
    assert "of KV cache per GPU for one request of 40960 tokens" in plan_of(tmp_path, catalog, **small).infeasible
    assert plan_of(tmp_path, catalog, engine="llama.cpp", batching=shared, pipeline_parallel_size=2).pools[0].batching


OWN_OPTIONS = {
    "sglang-0.5": {"overlap_schedule": False, "schedule_policy": "lpm"},
    "tensorrt-llm-1.0": {"capacity_scheduler_policy": "max_utilization"},
    "llama.cpp": {"kv_unified": True, "max_model_len": 8192},
}


@pytest.mark.parametrize("engine", OWN_OPTIONS)
def test_options_of_an_engine_need_no_policy_beside_them(tmp_path: Path, catalog: Catalog, engine: str) -> None:
    own = OWN_OPTIONS[engine]
    resolved = plan_of(tmp_path, catalog, engine=engine, batching=own).pools[0].batching
    assert {key: getattr(resolved, key) for key in own} == own
    with pytest.raises(ScenarioErrors, match=f"{next(iter(own))}: is not an option of vllm-0.14"):
        plan_of(tmp_path, catalog, engine="vllm-0.14", batching=own)


def test_a_limit_that_the_engine_does_not_know_is_refused(tmp_path: Path, catalog: Catalog) -> None:
    with pytest.raises(ScenarioErrors, match=r"enable_prefix_caching: is not an option of ollama"):
        plan_of(tmp_path, catalog, engine="ollama", batching={"enable_prefix_caching": True})


def test_another_kernel_changes_the_step_time(tmp_path: Path, catalog: Catalog) -> None:
    usual, old = (
        plan_of(tmp_path, catalog, quantization="gptq-int4", **kernel).pools[0].steptime
        for kernel in ({}, {"kernel": "gptq-2024"})
    )
    assert usual.inputs.kernel.id == "marlin"  # type: ignore[attr-defined]
    assert old.inputs.kernel.id == "gptq-2024"  # type: ignore[attr-defined]


@pytest.mark.slow
def test_options_of_vllm_reach_the_scheduler_and_only_that_of_vllm(tmp_path: Path, catalog: Catalog) -> None:
    options = {"watermark": 0.05, "scheduler_reserve_full_isl": False, "prefill_schedule_interval": 4}
    limits = rank_limits(plan_of(tmp_path, catalog, batching={**options, "max_model_len": 4096}).pools[0])
    assert {name: getattr(limits.options, name) for name in options} == options
    with pytest.raises(ScenarioErrors, match="prefill_schedule_interval"):
        plan_of(tmp_path, catalog, batching={"policy": "reserve", "prefill_schedule_interval": 4})


def test_whole_prompts_need_a_budget_that_holds_them(tmp_path: Path, catalog: Catalog) -> None:
    whole = {"enable_chunked_prefill": False, "max_model_len": 4096}
    with pytest.raises(ScenarioErrors, match=r"max_num_batched_tokens.*4096"):
        plan_of(tmp_path, catalog, batching={**whole, "max_num_batched_tokens": 2048})
    limits = [
        rank_limits(plan_of(tmp_path, catalog, batching={**whole, **budget}).pools[0])
        for budget in ({"max_num_batched_tokens": 4096}, {})  # the default is extended
    ]
    assert limits[0] == limits[1]
    assert not limits[0].chunked_prefill


@pytest.mark.slow
def test_prefix_caching_is_on_where_the_engine_has_it_on(tmp_path: Path, catalog: Catalog) -> None:
    def caches(**pool: Any) -> bool:
        return rank_limits(plan_of(tmp_path, catalog, **pool).pools[0]).enable_prefix_caching

    assert caches(engine="vllm-0.11") is True
    assert caches(engine="vllm-0.11", batching={"enable_prefix_caching": False}) is False
    assert caches(engine="vllm-0.6") is False
    assert caches(engine="sglang") is True
    assert caches(engine="tensorrt-llm") is True
    assert caches(engine="tensorrt-llm-0.14") is False
    assert caches(steptime={"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0}) is False


def test_groups_of_kv_caches_need_a_step_time_of_their_own(tmp_path: Path, catalog: Catalog) -> None:
    groups = {"kv_groups": [{"window": None}, {"window": 64}], "num_gpu_blocks": 100, "max_model_len": 500}
    with pytest.raises(ScenarioErrors, match=r"kv_groups: needs a step time"):
        plan_of(tmp_path, catalog, batching=groups)
    affine = {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0}
    limits = rank_limits(plan_of(tmp_path, catalog, steptime=affine, batching=groups).pools[0])
    assert limits.kv_groups == (None, 64)
    ranks = plan_of(tmp_path, catalog, steptime=affine, batching=groups, data_parallel_size=2)
    assert ranks.pools[0].engines_per_replica == 2
    drafts = {"speculative": {"num_speculative_tokens": 2, "accepted": 1}}
    with pytest.raises(ScenarioErrors, match=r"kv_groups: needs ranks that do not step together"):
        plan_of(tmp_path, catalog, steptime=affine, batching={**groups, **drafts})


def test_a_queue_has_one_order(tmp_path: Path, catalog: Catalog) -> None:
    lpm = {"policy": "prefill_first", "schedule_policy": "lpm"}
    assert (
        rank_limits(plan_of(tmp_path, catalog, engine="sglang", batching=lpm).pools[0]).options.schedule_policy == "lpm"
    )
    with pytest.raises(ScenarioErrors, match="lpm and scheduling: priority are two orders"):
        plan_of(tmp_path, catalog, batching=lpm | {"scheduling": "priority"})


@pytest.mark.slow
def test_drafts_name_catalogue_entries(tmp_path: Path, catalog: Catalog) -> None:
    def drafting(**speculative: Any) -> Any:
        drafts = {"num_speculative_tokens": 2} | speculative
        return plan_of(tmp_path, catalog, batching={"speculative": drafts}).pools[0].batching.speculative

    assert drafting(method="eagle", acceptance="qwen3-8b-eagle3/gsm8k").acceptance == pytest.approx((5**0.5 - 1) / 2)
    with pytest.raises(ScenarioErrors, match=r"acceptance: unknown task .*; did you mean qwen3-8b-eagle3/gsm8k"):
        drafting(method="eagle", acceptance="qwen3-8b-eagle3/gsm8")
    with pytest.raises(ScenarioErrors, match=r"draft_model: unknown model .*; did you mean qwen3-0.6b"):
        drafting(method="draft_model", acceptance=0.5, draft_model="qwen3-0.6")
    with pytest.raises(ScenarioErrors, match=r"draft_model .* and method: draft_model belong together"):
        drafting(acceptance=0.5, draft_model="qwen3-0.6b")
    affine = {"model": "affine", "base_s": 0.01, "per_token_s": 0, "per_context_token_s": 0}
    own = {"num_speculative_tokens": 2, "accepted": 1, "method": "draft_model", "draft_model": "qwen3-0.6b"}
    with pytest.raises(ScenarioErrors, match=r"draft_model: needs a step time that is computed"):
        plan_of(tmp_path, catalog, steptime=affine, batching={"speculative": own})


def test_an_engine_of_one_maker_does_not_run_on_the_cards_of_another(tmp_path: Path, catalog: Catalog) -> None:
    refused = plan_of(tmp_path, catalog, gpu="mi300x", engine="tensorrt-llm")
    assert refused.infeasible == "TensorRT-LLM 1.x does not run on AMD Instinct MI300X"
    assert not plan_of(tmp_path, catalog, gpu="h100-80gb-sxm", engine="tensorrt-llm").infeasible
    assert not plan_of(tmp_path, catalog, gpu="mi300x", engine="vllm").infeasible
