"""Groups of layers as vLLM deals them, and the blocks that it makes of the memory."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.fleet.pool import rank_limits
from sim.memory import KvLayout, fit
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.layers import given
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import PoolPlan
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
    loaded = load(given(scenario), catalog=CATALOG)
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
    ("model", "tokens"),
    [("qwen3.6-27b", 784), ("qwen3.5-9b", 528), ("qwen3-coder-next", 544), ("gpt-oss-20b", 16), ("gemma4-31b", 32)],
)
def test_blocks_hold_a_state(model: str, tokens: int) -> None:
    """As vLLM prints: "Setting attention block size to 784 tokens"."""
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
def test_where_groups_are_not_simulated_the_plan_says_so(further, batching, what) -> None:
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
