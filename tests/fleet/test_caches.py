"""KV in tiers below the GPU: read where that is faster than to compute it again."""

from pathlib import Path

import pytest
from small_scenario import planned

from sim.engine.kv.tiers import Tier, Tiers
from sim.fleet.fleet import RunningFleet
from sim.fleet.pool import tiers_of
from sim.memory.kv_cache import SequenceCache
from sim.records import Request
from sim.scenario.reading.errors import ScenarioErrors

SCENARIO = """\
name: tiers
workload: {trace: {path: t.csv, format: csv}}
fleets:
  - name: a
    routing: {policy: round_robin}
    pools:
      - replicas: %d
        kv_bytes_per_token: 1000
        kv_tiers: [%s]
        steptime: {model: affine, base_s: 0.1, per_token_s: 0.01, per_context_token_s: 0}
        batching: {policy: vllm, num_gpu_blocks: 11, max_model_len: 176, enable_prefix_caching: true%s}
"""
HYBRID = """\
name: hybrid
model: qwen3.6-27b
workload:
  arrivals: {process: burst, num_requests: 1}
  lengths: {prompt: {distribution: fixed, value: 1000}, output: {distribution: fixed, value: 24}}
fleets:
  - name: one
    pools:
      - gpu: b200-180gb-sxm
        engine: vllm-0.14
        kv_tiers: [{name: host, capacity_gb: 10, read_bytes_per_s: 5.0e+10}]
        batching: {policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 800, enable_prefix_caching: true}
"""
HOST = "{name: host, capacity_gb: 0.001, read_bytes_per_s: 1e6, latency_s: 0.01%s}"
TALK = ("0,64,1,a", "10,160,1,b", "20,80,1,a")
"""b takes all ten blocks, so that the GPU has nothing of a when it goes on."""


def served(folder: Path, tiers: str, talk: tuple[str, ...] = TALK, replicas: int = 1, more: str = "") -> list[Request]:
    (folder / "t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,session", *talk]) + "\n")
    return RunningFleet(planned(folder, SCENARIO % (replicas, tiers, more))).run().requests


def ttft_s(request: Request) -> float:
    return request.first_token_s - request.arrived_s


def test_windows_and_states_are_read_with_the_last_blocks() -> None:
    cache = SequenceCache(1000, window=24, window_token_bytes=50, state_bytes=600)
    tiers = Tiers([Tier(2, 1.0, 0.5, True, 100), Tier(9, 2.0, 0.0, True, 200)], 1e9, 16, cache.beside_bytes)
    tiers.stored([4, 3, 2, 1])  # the first tier keeps the last two
    assert tiers.read([1, 2]) == 0.5 + 2 * 1.0 + (24 * 50 + 600) / 100
    assert tiers.read([1, 3]) == 0.5 + 1.0 + 2.0 + 8 * 50 / 100 + (16 * 50 + 600) / 200


@pytest.mark.slow
def test_tiers_store_states_after_each_step_of_a_prompt(tmp_path: Path) -> None:
    plan = planned(tmp_path, HYBRID)
    (tier,) = tiers_of(plan.pools[0])()._tiers
    # 16 layers with 4 heads of 256; 48 with states of 48 x 128 x 128 numbers and 3 inputs of 10,240, per 800 tokens
    state = 48 * (48 * 128 * 128 * 4 + 3 * 10240 * 2)
    assert tier.blocks == int(10e9 / (16 * (16 * 2 * 4 * 256 * 2 + state / 800)))


@pytest.mark.parametrize("write", ["evict", "through"])
def test_blocks_evicted_from_the_gpu_are_read_from_a_tier(tmp_path: Path, write: str) -> None:
    *_, later_stage = served(tmp_path, HOST % f", write: {write}")
    # four blocks of 16 tokens, 1000 bytes each, at 1 MB/s; 16 tokens are left to compute
    assert later_stage.cached_tokens == 64
    assert ttft_s(later_stage) == pytest.approx(0.01 + 64 * 1000 / 1e6 + 0.1 + 16 * 0.01)


def test_blocks_are_recomputed_without_a_tier(tmp_path: Path) -> None:
    *_, later_stage = served(tmp_path, "")
    assert later_stage.cached_tokens == 0
    assert ttft_s(later_stage) == pytest.approx(0.1 + 80 * 0.01)


def test_a_tier_slower_than_recomputation_is_not_read(tmp_path: Path) -> None:
    slow = "{name: ssd, capacity_gb: 1, read_bytes_per_s: 5e4}"
    times_s = [request.finished_s for request in served(tmp_path, slow)]
    assert times_s == [request.finished_s for request in served(tmp_path, "")]


def test_blocks_evicted_from_a_tier_go_to_the_next(tmp_path: Path) -> None:
    little = "{name: small, capacity_gb: 0.000016, read_bytes_per_s: 1e9}"
    assert served(tmp_path, little)[-1].cached_tokens == 16  # the last block that the GPU gave up: the first of a
    assert served(tmp_path, f"{little}, {HOST % ''}")[-1].cached_tokens == 64


def test_replicas_share_a_store(tmp_path: Path) -> None:
    talk = ("0,64,1,a", "10,80,1,a")  # in turn to the one and to the other
    alone = served(tmp_path, HOST % ", write: through", talk, replicas=2)
    together = served(tmp_path, HOST % ", write: through, shared: true", talk, replicas=2)
    assert [one[-1].cached_tokens for one in (alone, together)] == [0, 64]


@pytest.mark.parametrize(
    ("tiers", "more", "why"),
    [
        (HOST % "" + ", " + HOST % "", "", "the tier 'host' is given twice"),
        (HOST % "", ", async_scheduling: true", "without async_scheduling"),
        (HOST % ", write: back", "", "write"),
    ],
)
def test_invalid_tiers_are_refused(tmp_path: Path, tiers: str, more: str, why: str) -> None:
    with pytest.raises(ScenarioErrors) as told:
        served(tmp_path, tiers, more=more)
    assert why in str(told.value)
