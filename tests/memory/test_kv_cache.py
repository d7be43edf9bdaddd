"""Groups of layers as vLLM deals them, and the blocks that it makes of the memory.

SGLang's cache of recurrent states: how many requests run at once, and what is left for the KV cache.
"""

from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.fleet.pool import rank_limits
from sim.memory.fit import fit
from sim.memory.kv_cache import KvLayout, SequenceCache, StateCache, WindowBlocks, window_blocks
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.sweep import cases

CATALOG = load_catalog()


def pool(model: str, further: dict[str, object] | None = None, **batching: object) -> PoolPlan:
    """A replica on an RTX 4090, with *further* keys of the pool."""
    lengths = {"distribution": "fixed", "value": 1000}
    scenario = {
        "name": "groups",
        "model": model,
        "max_model_len": 8192,
        "workload": {
            "arrivals": {"process": "burst", "num_requests": 1},
            "lengths": {"prompt": lengths, "output": lengths},
        },
        "fleets": [
            {"name": "one", "pools": [{"gpu": "rtx-4090", "batching": {"policy": "vllm"} | batching} | (further or {})]}
        ],
    }
    loaded = load(as_document(scenario), catalog=CATALOG)
    return resolve(loaded, cases(loaded)[0], CATALOG).pools[0]


@pytest.mark.parametrize(
    ("model", "windows", "layers"),
    [
        ("gemma3-27b", (None, *[1024] * 6), 10),  # 52 layers with a window, 10 without: 8 are padding
        ("gpt-oss-20b", (None, 128), 12),
        ("llama4-scout", (None, *[8192] * 3), 12),
        ("mistral-7b", (4096,), 32),
        ("qwen3.5-9b", (None, 0, 0, 0), 8),
        ("gemma4-31b", (None, *[1024] * 10), 10),  # layers with a window hold twice as much a token
    ],
)
def test_layers_are_dealt_to_groups_of_equal_size(model: str, windows: tuple[int | None, ...], layers: int) -> None:
    layout = KvLayout.of(CATALOG.model(model), 16)
    assert (layout.windows, layout.layers) == (windows, layers)


@pytest.mark.parametrize(
    ("model", "dtype", "held"),
    [
        ("llama3.1-8b", "auto", 1000 * 32 * 2 * 8 * 128 * 2),
        ("deepseek-v3", "auto", 1000 * 61 * 576 * 2),
        ("gpt-oss-20b", "auto", (1000 + 128) * 12 * 2 * 8 * 64 * 2),
        # 3 layers with a head of 512 numbers, 12 with one of 256 and a window; 20 share a cache
        ("gemma4-e2b", "auto", 1000 * 3 * 2 * 512 * 2 + 512 * 12 * 2 * 256 * 2),
        # 8 layers with 4 heads, 24 with states of 32 x 128 x 128 numbers and 3 inputs of 8,192 numbers
        ("qwen3.5-9b", "auto", 1000 * 8 * 2 * 4 * 256 * 2 + 24 * (32 * 128 * 128 * 4 + 3 * 8192 * 2)),
        # entries of 584 bytes, one for 4 tokens in 21 layers, one for 128 in 20, keys of 132 bytes; blocks of 37,440
        # bytes: 3 of the window in 43 layers, 3 and 17 of compressors; 3 of 8,640 bytes of each indexer
        ("deepseek-v4-flash", "fp8", 1000 * ((21 / 4 + 20 / 128) * 584 + 21 / 4 * 132)
         + 37440 * (43 * 3 + 21 * 3 + 20 * 17) + 21 * 3 * 8640),
    ],
)  # fmt: skip
def test_sequence_of_1000_tokens_by_kind_of_cache(model: str, dtype: Any, held: float) -> None:
    assert SequenceCache.of(CATALOG.model(model), dtype).bytes(1000) == pytest.approx(held, rel=1e-12)


def test_parts_of_a_sequence_add_up_to_what_the_blocks_hold() -> None:
    gpu, engine = CATALOG.gpu("b300-288gb-sxm"), CATALOG.engine("vllm-0.14")
    for name in (
        "llama3.1-8b",
        "gpt-oss-20b",
        "gemma4-31b",
        "gemma4-e2b",
        "qwen3.5-9b",
        "deepseek-v4-flash",
        "glm-5.2",
    ):
        model = CATALOG.model(name)
        cache = SequenceCache.of(model)
        for tokens in (64, 1000, 5000):
            parts = [cache.part_bytes(first, min(first + 333, tokens), tokens) for first in range(0, tokens, 333)]
            assert sum(parts) == pytest.approx(cache.bytes(tokens), rel=1e-12)
            held = fit(gpu, model, CATALOG.quantization("none"), engine, context_tokens=tokens, tensor_parallel_size=1)
            assert held.block_bytes / 16 * tokens == pytest.approx(cache.bytes(tokens) - cache.state_bytes, rel=1e-9)


@pytest.mark.parametrize(
    ("model", "tokens"),
    [("qwen3.6-27b", 784), ("qwen3.5-9b", 528), ("qwen3-coder-next", 544), ("gpt-oss-20b", 16), ("gemma4-31b", 32)],
)
def test_blocks_hold_a_state(model: str, tokens: int) -> None:
    """vLLM prints "Setting attention block size to 784 tokens"."""
    assert KvLayout.of(CATALOG.model(model), 16).block_size == tokens


def test_blocks_of_a_group_share_the_memory() -> None:
    model = CATALOG.model("gpt-oss-20b")
    settings = {"max_num_seqs": 64, "context_tokens": 2000, "max_model_len": 8192}
    found = [
        fit(
            CATALOG.gpu("rtx-4090"),
            model,
            CATALOG.quantization("mxfp4"),
            CATALOG.engine("vllm-0.14"),
            **settings,
            **one,
        )
        for one in ({}, {"groups": KvLayout.of(model, 16)})
    ]
    mean, groups = found
    assert groups.block_bytes == 16 * 12 * 2 * 8 * 64 * 2
    assert groups.kv_bytes == mean.kv_bytes
    assert groups.num_gpu_blocks == groups.kv_bytes // groups.block_bytes
    # 125 blocks for 2,000 tokens; with a window of 128 and steps of 2,048 tokens a request may need as many again
    assert groups.kv_tokens == int(groups.num_gpu_blocks * 2000 / 250)


def test_models_with_states_count_them() -> None:
    by_itself, mean = pool("qwen3.5-9b"), pool("qwen3.5-9b", kv_groups="mean")
    limits = rank_limits(by_itself)
    assert (limits.kv_groups, limits.block_size, limits.enable_prefix_caching) == ((None, 0, 0, 0), 528, False)
    assert (rank_limits(mean).kv_groups, mean.batching.block_size) == ((None,), 16)
    cached = rank_limits(pool("qwen3.5-9b", enable_prefix_caching=True))
    assert cached.caches_states
    assert cached.num_gpu_blocks == limits.num_gpu_blocks
    with pytest.raises(ScenarioErrors, match="enable_chunked_prefill: must be on where states are kept"):
        pool("qwen3.5-9b", enable_prefix_caching=True, enable_chunked_prefill=False, max_num_batched_tokens=8192)


@pytest.mark.slow
def test_windows_have_groups_where_the_engine_deals_them() -> None:
    assert rank_limits(pool("gpt-oss-20b")).kv_groups == (None, 128)
    assert rank_limits(pool("gpt-oss-20b", {"engine": "vllm-0.6"})).kv_groups == (None,)
    assert rank_limits(pool("gpt-oss-20b", kv_groups="mean")).kv_groups == (None,)
    assert rank_limits(pool("qwen3-4b")).kv_groups == (None,)


@pytest.mark.parametrize(
    ("further", "batching", "what"),
    [
        (
            {"kv_tiers": [{"name": "cpu", "capacity_gb": 10, "read_bytes_per_s": 1e10}]},
            {"async_scheduling": False},
            "kv_tiers",
        ),
        ({}, {"speculative": {"num_speculative_tokens": 2, "accepted": 1}}, "speculative"),
        ({"data_parallel_size": 2, "enable_expert_parallel": True, "server": "workstation-4x4090"}, {}, "ranks"),
    ],
)
def test_plan_notes_that_groups_are_not_simulated(further, batching, what) -> None:
    plan = pool("gpt-oss-20b", further, **batching)
    assert rank_limits(plan).kv_groups == (None,)
    assert f"kv_groups are not simulated with {what}" in plan.kv_note
    with pytest.raises(ScenarioErrors, match="kv_groups"):
        pool("gpt-oss-20b", further, **batching, kv_groups="model")


def test_the_longest_request_fills_the_cache() -> None:
    layout = KvLayout((None, 128), 12, 16, 2048, steps_in_flight=2)
    longest = layout.longest(1000, 2048)
    assert layout.blocks(longest, 2048) <= 1000 < layout.blocks(longest + 1, 2048)
    assert longest == (1000 - (-(-(127 + 2 * 2048) // 16) + 1)) * 16  # the window's group holds two steps and 127 more


PLACE = 48 * (48 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 48 * 128) * 2)
"""Bytes of a state of Qwen3.6-27B: 48 layers, 48 heads of 128 by 128 in 32 bit, three convolution inputs in 16 bit."""


def plan(
    engine: str, gpu: str = "h200-141gb-sxm", model: str = "qwen3.6-27b", form: str = "none", **batching: Any
) -> CasePlan:
    lengths = {"distribution": "fixed", "value": 1000}
    pool = {"gpu": gpu, "batching": {"gpu_memory_utilization": 0.8, "max_model_len": 16384} | batching}
    scenario = {
        "model": model,
        "engine": engine,
        "quantization": form,
        "workload": {
            "arrivals": {"process": "burst", "num_requests": 1},
            "lengths": {"prompt": lengths, "output": lengths},
        },
        "fleets": [{"name": "one", "pools": [pool]}],
    }
    loaded = load(as_document(scenario), catalog=CATALOG)
    return resolve(loaded, cases(loaded)[0], CATALOG)


def at_once(engine: str, **options: Any) -> int:
    return rank_limits(plan(engine, **options).pools[0]).max_num_seqs


def test_state_cache_gets_its_share_of_the_free_memory() -> None:
    """Worked by hand: weights leave 65.78 GB, 0.9 / 1.9 of it hold 202 states of 154 MB; three per request, two
    ahead."""
    [pool] = plan("sglang-0.5.16").pools
    memory = pool.memory
    free = memory.kv_bytes + memory.states_bytes
    assert (PLACE, free) == (153_944_064, pytest.approx(65.78e9, rel=1e-3))
    assert memory.state_places == free * 0.9 / 1.9 // PLACE == 202
    assert memory.states_bytes == 202 * PLACE
    assert (
        memory.kv_tokens == memory.kv_bytes // (16 * 16 * 2 * 4 * 256 * 2) * 16
    )  # 16 layers, 4 heads, keys and values
    assert rank_limits(pool).max_num_seqs == 202 // 5 == 40
    assert "limit a rank to 40 requests at once: 202 places, 5 a request" in pool.kv_note


@pytest.mark.parametrize(
    ("engine", "overlap", "requests"),
    [
        ("sglang-0.5.6", False, 67), ("sglang-0.5.7", False, 40), ("sglang-0.5.9", False, 67),
        ("sglang-0.5.13", False, 67), ("sglang-0.5.14", True, 40), ("sglang-0.5", True, 40),
    ],
)  # fmt: skip
def test_places_of_a_request_follow_the_release(engine: str, overlap: bool, requests: int) -> None:
    [pool] = plan(engine).pools
    assert (pool.batching.overlap_schedule, rank_limits(pool).max_num_seqs) == (overlap, requests)
    assert plan(engine, model="qwen3-32b").pools[0].batching.overlap_schedule


@pytest.mark.slow
def test_operators_move_the_limit() -> None:
    engine = "sglang-0.5.16"
    assert at_once(engine, max_num_seqs=8) == 8
    assert at_once(engine, overlap_schedule=False) == 202 // 3
    assert at_once("sglang-0.5.9", overlap_schedule=True) == 202 // 5
    assert at_once(engine, max_mamba_cache_size=400) == 80
    assert at_once(engine, mamba_ssm_dtype="bfloat16") in (2 * 40 - 1, 2 * 40)
    without = plan(engine, enable_prefix_caching=False, max_num_seqs=64).pools[0]
    assert (rank_limits(without).max_num_seqs, without.memory.state_places) == (64, 64)
    sizes = [plan(engine, mamba_full_memory_ratio=ratio).pools[0] for ratio in (0.2, 0.9, 4.0)]
    assert sorted(sizes, key=lambda one: rank_limits(one).max_num_seqs) == sizes
    assert sorted(sizes, key=lambda one: -one.memory.kv_tokens) == sizes


def test_states_that_leave_no_room_are_refused() -> None:
    many = plan("sglang-0.5.16", max_mamba_cache_size=500).infeasible
    assert many.startswith("needs 76.97 GB for recurrent states, 65.77 GB are left beside the weights; fits at")
    assert (
        StateCache(0.9, 5, 4).shortfall(65e9, PLACE)
        == "4 places for recurrent states are fewer than the 5 of a request"
    )
    assert StateCache(0.9, 5).shortfall(1e9, PLACE).startswith("needs 0.77 GB for recurrent states, 1.00 GB are left")
    assert StateCache(0.9, 5).shortfall(-1.0, PLACE) == ""  # the weights do not fit: that is said elsewhere
    assert StateCache(0.9, 5).shortfall(2e9, PLACE) == ""


@pytest.mark.parametrize(("engine", "model"), [("sglang-0.5.16", "qwen3-32b"), ("lmdeploy", "qwen3.6-27b")])
def test_options_without_such_a_cache_are_refused(engine: str, model: str) -> None:
    assert rank_limits(plan(engine, model=model, gpu="h200-141gb-sxm").pools[0]).max_num_seqs > 100
    with pytest.raises(ScenarioErrors, match="max_mamba_cache_size: needs a model with recurrent states"):
        plan(engine, model=model, max_mamba_cache_size=400)


def test_one_card_runs_as_many_as_were_measured() -> None:
    """deplodock's Qwen3-Coder-Next-FP8 on an RTX PRO 6000 (optimal_mcr_pro6000, a64f1bc9) keeps no prefixes and has as
    many places as `--max-running-requests`: 36 requests of 8,000 tokens ran at once, 44 did not.
    """
    options: dict[str, Any] = {"enable_prefix_caching": False, "gpu_memory_utilization": 0.9}
    for asked, all_run in ((36, True), (44, False)):
        [pool] = plan("sglang-0.5", "rtx-pro-6000", "qwen3-coder-next", "fp8", **options, max_num_seqs=asked).pools
        found = pool.memory
        assert (found.kv_tokens >= 8000 * asked) is all_run


def test_a_window_holds_its_last_tokens_and_one_block_more() -> None:
    blocks = WindowBlocks(window=128, block_tokens=64, bytes_per_block=10.0)
    assert [blocks.bytes(tokens) for tokens in (1, 64, 65, 128, 500)] == [20, 20, 30, 30, 30]
    assert blocks.bytes_per_token == 10 / 64


def test_compressor_states_hold_a_value_and_a_weight_of_four_bytes_each() -> None:
    model = CATALOG.model("deepseek-v4-flash")
    assert model.compressed is not None
    assert model.indexer is not None
    recent, fine, coarse, index = window_blocks(model, model.compressed, "bfloat16")
    ratios = (model.compressed.window, 2 * model.compressed.fine_ratio, model.compressed.coarse_ratio)
    assert (recent.window, fine.window, coarse.window, index.window) == (*ratios, ratios[1])
    # blocks of 4 tokens of fine layers exist twice, those of 8 of coarse layers once
    assert fine.bytes_per_block == model.compressed.fine_layers * 4 * 2 * 8 * model.head_dim
    assert coarse.bytes_per_block == model.compressed.coarse_layers * 8 * 8 * model.head_dim
    assert index.bytes_per_block == model.indexer.indexing_layers * 4 * 2 * 8 * model.indexer.head_dim
