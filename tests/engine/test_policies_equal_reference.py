"""Every batching policy gives the dates of its own step-by-step reference, on random workloads."""

import pytest
from engine_workloads import (
    BASE,
    PER_CONTEXT,
    PER_TOKEN,
    Affine,
    Windowed,
    assert_conserved,
    dates,
    rank_limits,
    some_evictions,
    timestamps,
    workloads,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import drain, drain_evicting
from reference_policies import Holding, LongestPrefixFirst, MaxUtilization, PrefillFirst, Reserve, Static, Unified

from sim.engine.pipeline import PipelineEngine
from sim.engine.schedulers import prefill_first as prefill_first
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler
from sim.engine.schedulers.reserve import (
    BatchWaitingScheduler,
    MaxUtilizationScheduler,
    ReserveScheduler,
    UnifiedCacheScheduler,
)
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.synchronous import LockstepEngine, VllmEngine
from sim.records import Request

POLICIES = {
    "prefill_first": (PrefillFirstScheduler, PrefillFirst),
    "reserve": (ReserveScheduler, Reserve),
    "max_utilization": (MaxUtilizationScheduler, MaxUtilization),
}


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(workloads(), st.sampled_from([Affine(), Windowed()]), st.booleans(), st.sampled_from([0.0, 0.1]))
@settings(max_examples=60, deadline=None)
def test_dyadic_times_agree_exactly(policy, workload, model, chunked, watermark) -> None:
    requests, limits = workload
    schedule, reference_type = POLICIES[policy]
    own = {"chunked_prefill": chunked, "watermark": watermark if policy == "prefill_first" else 0.0}
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, rank_limits(window=model.window, **limits, **own), schedule)
    drain(engine, fast)
    reference = reference_type(model.leap, window=model.window, **limits, **own)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(workloads(), st.booleans(), st.integers(1, 5), st.integers(2, 80))
@settings(max_examples=60, deadline=None)
def test_prompts_that_are_held_back_agree_exactly(workload, chunked, steps, tokens) -> None:
    requests, limits = workload
    limits |= {"enable_prefix_caching": False, "chunked_prefill": chunked, "scheduling": "fcfs"}
    limits |= {"batch_wait_steps": steps, "batch_wait_tokens": min(tokens, limits["max_num_batched_tokens"])}
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(Affine(), rank_limits(**limits), BatchWaitingScheduler)
    drain(engine, fast)
    reference = Holding(Affine().leap, **limits)
    slow = reference.run([Request(**r) for r in requests])
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(workloads(), st.integers(90, 400), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_slots_over_one_cache_agree_exactly(workload, cells, seed) -> None:
    requests, limits = workload
    own = {"num_gpu_blocks": cells + 1, "block_size": 1, "max_model_len": cells, "scheduling": "fcfs"}
    limits |= own | {"enable_prefix_caching": False}
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(Affine(), rank_limits(**limits), UnifiedCacheScheduler)
    fits = [engine.serves(one) for one in fast]
    drain(engine, fast)
    reference = Unified(Affine().leap, **limits)
    slow = reference.run([Request(**r) for r in requests])
    for ours, theirs, fitted in zip(fast, slow, fits, strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.rejected == (theirs in reference.broken or not fitted)
    assert engine.meters(1e9).steps == reference.steps
    assert all(cache.free == cache.usable for cache in engine.caches())
    in_turn = [Request(**r) for r in requests]
    drain(PipelineEngine(Affine(0.5), rank_limits(**limits), 2, UnifiedCacheScheduler, 1), in_turn)
    assert [(*dates(one), one.rejected) for one in in_turn] == [(*dates(one), one.rejected) for one in fast]
    evictions, fast = some_evictions(timestamps(slow), seed), [Request(**r) for r in requests]
    engine, reference = (
        VllmEngine(Affine(), rank_limits(**limits), UnifiedCacheScheduler),
        Unified(Affine().leap, **limits),
    )
    drain_evicting(engine, fast, evictions)
    slow = reference.run([Request(**r) for r in requests], evictions)
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert all(cache.free == cache.usable for cache in engine.caches())


def test_a_full_cache_ends_all_requests_in_slots() -> None:
    # 10 cells, two slots: after four steps two requests have 5 cells each. If one has its last token then, the third
    # joins, has its own last token with 3 cells beside 7, and the first one ends alone; else both end there
    for tokens, ended in ((4, [False, False, False]), (5, [True, True, False])):
        requests = [Request(0, 0.0, 2, 8), Request(1, 0.0, 2, tokens), Request(2, 0.0, 2, 2)]
        drain(VllmEngine(Affine(), rank_limits(11, 1, 2, 64, 10), UnifiedCacheScheduler), requests)
        assert [one.rejected for one in requests] == ended
    assert requests[2].started_s == 4 * BASE + PER_TOKEN * 10 + PER_CONTEXT * (4 + 6 + 8)


@pytest.mark.slow
@given(workloads(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_longest_prefixes_first_agree_exactly(workload, chunked) -> None:
    requests, limits = workload
    limits = limits | {"enable_prefix_caching": True, "scheduling": "fcfs", "chunked_prefill": chunked}
    fast = [Request(**r) for r in requests]
    short, LongestPrefixFirst.short = LongestPrefixFirst.short, 8
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefill_first, "SHORT_PREFIX", 8)
        engine = VllmEngine(Affine(), rank_limits(**limits, longest_prefix_first=True), PrefillFirstScheduler)
        drain(engine, fast)
        slow = LongestPrefixFirst(Affine().leap, **limits).run([Request(**r) for r in requests])
    LongestPrefixFirst.short = short
    for ours, theirs in zip(fast, slow, strict=True):
        assert dates(ours) == dates(theirs)
        assert (ours.preemptions, ours.cached_tokens) == (theirs.request.preemptions, theirs.cached_tokens)
    assert_conserved(engine, fast)


@pytest.mark.parametrize(("longest", "order"), [(True, [0, 2, 1]), (False, [0, 1, 2])])
def test_the_request_with_the_longest_cached_prefix_goes_first(longest, order) -> None:
    limits = rank_limits(
        num_gpu_blocks=20, block_size=4, max_num_seqs=1, max_num_batched_tokens=64, max_model_len=100,
        enable_prefix_caching=True, longest_prefix_first=longest,
    )  # fmt: skip
    hashes = [(1, 2), (), (1, 2)]
    requests = [Request(i, i / 64, 12, 3, block_hashes=ids, hash_block_tokens=4) for i, ids in enumerate(hashes)]
    drain(VllmEngine(Affine(), limits, PrefillFirstScheduler), requests)
    assert sorted(range(3), key=lambda i: requests[i].first_token_s) == order
    assert requests[2].cached_tokens == 8


@pytest.mark.slow
@given(workloads(), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=60, deadline=None)
def test_static_batches_agree_exactly(workload, model) -> None:
    requests, limits = workload
    limits = limits | {"enable_prefix_caching": False}
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, rank_limits(window=model.window, **limits), StaticScheduler)
    drain(engine, fast)
    reference = Static(model.leap, window=model.window, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [PrefillFirstScheduler, ReserveScheduler, StaticScheduler])
@given(workloads(), st.floats(0.1, 10))
@settings(max_examples=25, deadline=None)
def test_nothing_depends_on_how_leaps_are_cut(schedule, workload, cut_s) -> None:
    requests, limits = workload
    limits = limits | {"enable_prefix_caching": False}
    leaping, stepping = [Request(**r) for r in requests], [Request(**r) for r in requests]
    drain(VllmEngine(Affine(cut_s), rank_limits(**limits), schedule), leaping)
    drain(VllmEngine(SingleSteps(cut_s), rank_limits(**limits), schedule), stepping)
    for ours, theirs in zip(leaping, stepping, strict=True):
        assert dates(ours) == pytest.approx(dates(theirs), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", [PrefillFirstScheduler, ReserveScheduler, StaticScheduler])
@given(workloads(), st.integers(2, 3), st.booleans())
@settings(max_examples=30, deadline=None)
def test_stages_and_ranks_lose_nothing(schedule, workload, size, lockstep) -> None:
    requests, limits = workload
    limits = rank_limits(**limits | {"enable_prefix_caching": False})
    rows = [Request(**r) for r in requests]
    engine = (LockstepEngine if lockstep else PipelineEngine)(Affine(), limits, size, schedule)
    drain(engine, rows)
    pools = {id(part.pool): part.pool for part in parts(engine)}.values()
    assert all(pool.free == pool.usable >= pool.peak for pool in pools)
    assert all(r.rejected or r.finished_s >= r.first_token_s >= r.arrived_s for r in rows)
    assert engine.meters(1e9).output_tokens == sum(r.output_tokens for r in rows if not r.rejected)


def parts(engine):
    """The schedules of an engine that has several."""
    return engine._ranks if isinstance(engine, LockstepEngine) else [lane.rank for lane in engine._lanes]


class SingleSteps(Affine):
    """Every leap is one step long."""

    def leap(self, batch):
        leap = super().leap(batch)
        leap.valid_steps = 1
        return leap
