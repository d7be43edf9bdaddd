"""Requests that leave an engine before their last token: evicted at any moment, or handed over after their prompt."""

from math import isnan

import pytest
from engine_workloads import Affine, Open, Windowed, rank_limits, some_crashes, some_evictions, timestamps, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import ReferenceEngine, drain, drain_evicting
from reference_policies import PrefillFirst, Reserve, Static

from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.pipeline import PipelineEngine, StagesEngine
from sim.engine.schedulers.prefill_first import PrefillFirstScheduler
from sim.engine.schedulers.reserve import ReserveScheduler
from sim.engine.schedulers.static import StaticScheduler
from sim.engine.schedulers.vllm import VllmScheduler
from sim.engine.synchronous import LockstepEngine, VllmEngine
from sim.records import Batch, BusyTime, Leap, ReplicaProgress, Request

POLICIES = {
    "vllm": (VllmScheduler, ReferenceEngine),
    "prefill_first": (PrefillFirstScheduler, PrefillFirst),
    "reserve": (ReserveScheduler, Reserve),
    "static": (StaticScheduler, Static),
}
ENGINES = {
    "one rank": lambda limits, schedule: VllmEngine(Affine(), limits, schedule),
    "one ahead": lambda limits, _: AsyncEngine(Affine(), limits),
    "stages": lambda limits, _: StagesEngine(Affine(), limits, 3),
    "lockstep": lambda limits, schedule: LockstepEngine(Affine(), limits, 2, schedule),
    "lockstep ahead": lambda limits, _: AsyncLockstepEngine(Affine(), limits, 2),
    "pipeline": lambda limits, schedule: PipelineEngine(Affine(), limits, 2, schedule),
}
OF_VLLM = {"one ahead", "stages", "lockstep ahead"}
"""Engines that have vLLM's scheduler only."""


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(workloads(), st.sampled_from([Affine(), Windowed()]), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_other_requests_continue_as_in_the_reference(policy, workload, model, seed) -> None:
    requests, limits = workload
    schedule, reference_type = POLICIES[policy]
    if policy == "static":
        limits = limits | {"enable_prefix_caching": False}
    usual = reference_type(model.leap, window=model.window, **limits).run([Request(**r) for r in requests])
    evictions, crashes = some_evictions(timestamps(usual), seed), some_crashes(timestamps(usual), seed)
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, rank_limits(window=model.window, **limits), schedule)
    evicted = drain_evicting(engine, fast, evictions, crashes)
    reference = reference_type(model.leap, window=model.window, **limits)
    slow = reference.run([Request(**r) for r in requests], evictions, crashes)
    assert evicted == {place: one.evicted for place, one in enumerate(slow) if one.evicted}
    for ours, theirs in zip(fast, slow, strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert engine.waiting() == 0
    assert all(cache.free == cache.usable for cache in engine.caches())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "engine"),
    [(policy, engine) for policy in POLICIES for engine in ENGINES if policy == "vllm" or engine not in OF_VLLM],
)
@given(workloads(), st.integers(0, 2**32))
@settings(max_examples=12, deadline=None)
def test_requests_blocks_and_time_are_conserved(engine, policy, workload, seed) -> None:
    requests, limits = workload
    make = ENGINES[engine]
    if policy == "static" or engine == "pipeline":
        limits = limits | {"enable_prefix_caching": False}
    usual = [Request(**r) for r in requests]
    drain(make(rank_limits(**limits), POLICIES[policy][0]), usual)
    dates_ = [(r.arrived_s, r.first_token_s, r.finished_s) for r in usual]
    evictions, crashes = some_evictions(dates_, seed), some_crashes(dates_, seed)
    running = make(rank_limits(**limits), POLICIES[policy][0])
    rows = [Request(**r, busy=BusyTime()) for r in requests]
    running.share_time(True, 0.0)
    evicted = drain_evicting(running, rows, evictions, crashes)
    for place, request in enumerate(rows):
        assert request.rejected + (place in evicted) + (not isnan(request.finished_s)) == 1
    for pool in running.caches():
        assert pool.free == pool.usable >= pool.peak
        assert not getattr(pool, "_blocks_of", None)
    meters = running.meters(1e9)
    made = sum(one.output_tokens for one in evicted.values())
    made += sum(r.output_tokens for r in rows if not isnan(r.finished_s))
    # each evicted request may have had a token under way, or one in each of two steps, which nobody gets
    assert made <= meters.output_tokens <= made + len(evicted) * (2 if engine.endswith("ahead") else 1)
    for place, progress in evicted.items():
        tokens = rows[place].prompt_tokens + rows[place].output_tokens
        assert 0 <= progress.output_tokens < rows[place].output_tokens
        assert 0 <= progress.computed_tokens < tokens
    shared_s = sum(r.busy.prefill_s + r.busy.recompute_s + r.busy.decode_s for r in rows)
    assert shared_s == pytest.approx(meters.busy_s)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(workloads(), st.data())
@settings(max_examples=20, deadline=None)
def test_a_request_evicted_before_its_first_step_leaves_no_trace(policy, workload, data) -> None:
    requests, limits = workload
    place = data.draw(st.integers(0, len(requests) - 1))
    schedule = POLICIES[policy][0]
    with_it, without = [Request(**r) for r in requests], [Request(**r) for r in requests]
    never = with_it[place]
    engine = Open(VllmEngine(Affine(), rank_limits(**limits | {"enable_prefix_caching": False}), schedule))
    offer = engine.offer

    def offer_and_take_back(request: Request, now: float) -> bool:
        touched = offer(request, now)
        if request is never and not request.rejected:
            assert engine.evict(request, now) == ReplicaProgress(0, 0)
            return True
        return touched

    engine.offer = offer_and_take_back
    drain(engine, with_it)
    alone = VllmEngine(Affine(), rank_limits(**limits | {"enable_prefix_caching": False}), schedule)
    drain(alone, [one for one in without if one.index != never.index])
    assert isnan(never.finished_s)
    assert [dates(one) for one in with_it] == [dates(one) for one in without]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(workloads(), st.data())
@settings(max_examples=20, deadline=None)
def test_a_prompt_only_request_equals_one_with_an_answer_of_one_token(policy, workload, data) -> None:
    requests, limits = workload
    if policy == "static":
        limits = limits | {"enable_prefix_caching": False}
    handed = data.draw(st.sets(st.integers(0, len(requests) - 1)))
    # nobody knows what a block holds that the first token does not complete
    requests = [cut_hashes(r) if r["index"] in handed else r for r in requests]
    schedule, reference_type = POLICIES[policy]
    engine = Open(VllmEngine(Affine(), rank_limits(**limits), schedule))
    left: list[Request] = []
    offer, advance = engine.offer, engine.advance
    engine.offer = lambda request, now: offer(request, now, prompt_only=request.index in handed)

    def advance_and_let_go() -> None:
        done = advance()
        left.extend(done)
        for one in done:
            engine.release_kv(one, 0.0)

    engine.advance = advance_and_let_go
    fast = [Request(**r) for r in requests]
    drain(engine, fast)
    short = [r | {"output_tokens": 1} if r["index"] in handed else r for r in requests]
    slow = reference_type(Affine().leap, **limits).run([Request(**r) for r in short])
    for ours, theirs in zip(fast, slow, strict=True):
        assert dates(ours)[0] == dates(theirs)[0]
        assert ours.rejected == isnan(theirs.first_token_s)
        if ours.index in handed and ours.output_tokens > 1:
            assert isnan(ours.finished_s)
        else:
            assert dates(ours) == dates(theirs)
    assert sorted(r.index for r in left) == [r.index for r in fast if not r.rejected]
    assert all(cache.free == cache.usable for cache in engine.caches())


def cut_hashes(request: dict) -> dict:
    whole = (request["prompt_tokens"] + 1) // request["hash_block_tokens"]
    return request | {"block_hashes": request["block_hashes"][:whole]}


class Second(Affine):
    """Every step takes a second."""

    def leap(self, batch: Batch) -> Leap:
        return Leap(1.0)


BY_HAND = {"block_size": 1, "max_num_seqs": 4, "max_num_batched_tokens": 20, "max_model_len": 100}


def test_a_request_behind_an_evicted_one_joins_the_next_step() -> None:
    # twelve blocks: the second prompt does not fit beside the first request, the third one does
    rows = [Request(0, 0.0, 2, 9), Request(1, 1.5, 11, 1), Request(2, 2.5, 1, 1)]
    engine = VllmEngine(Second(), rank_limits(num_gpu_blocks=13, **BY_HAND))
    evicted = drain_evicting(engine, rows, [(4.5, 1)])
    assert evicted == {1: ReplicaProgress(0, 0)}
    assert [dates(one) for one in rows] == [(1.0, 9.0), (-1.0, -1.0), (6.0, 6.0)]


def dates(request) -> tuple[float, float]:
    """First token and finish; -1 for what never happened."""
    return tuple(-1.0 if isnan(s) else s for s in (request.first_token_s, request.finished_s))
