"""Prompts and answers on two replicas: blocks that stay behind, blocks reserved for KV to come, and answers that go on
with the KV that they brought."""

from math import isnan

import pytest
from engine_workloads import BASE, Affine, Windowed, dates, rank_limits, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_split import SplitReference, drain_split

from sim.engine.asynchronous import AsyncEngine, AsyncLockstepEngine
from sim.engine.synchronous import LockstepEngine, VllmEngine
from sim.records import BusyTime, Request

ENGINES = {
    "one rank": lambda limits: VllmEngine(Affine(), limits),
    "one ahead": lambda limits: AsyncEngine(Affine(), limits),
    "lockstep": lambda limits: LockstepEngine(Affine(), limits, 2),
    "lockstep ahead": lambda limits: AsyncLockstepEngine(Affine(), limits, 2),
}


@st.composite
def split_workloads(draw: st.DrawFn):
    """Requests, limits, how long the blocks of some stay behind, and how long the KV of others takes to come."""
    requests, limits = draw(workloads())
    limits |= {
        "watermark": draw(st.sampled_from([0.0, 0.25])),
        "prefill_schedule_interval": draw(st.sampled_from([1, 3])),
    }
    kinds = [draw(st.sampled_from(["whole", "handed", "brought", "brought"])) for _ in requests]
    seconds = [draw(st.integers(0, 40)) * BASE / 2 for _ in requests]
    handed = {i: s for i, s in enumerate(seconds) if kinds[i] == "handed" and requests[i]["output_tokens"] > 1}
    brought = {i: s for i, s in enumerate(seconds) if kinds[i] == "brought" and requests[i]["output_tokens"] > 1}
    for place in brought:  # what the prompt's replica has done
        requests[place] |= {"started_s": 0.0, "first_token_s": 0.0}
    # nobody knows what a block holds that the first token does not complete
    for place in (*handed, *brought):
        row = requests[place]
        whole = (row["prompt_tokens"] + 1) // row["hash_block_tokens"]
        requests[place] = row | {"block_hashes": row["block_hashes"][:whole]}
    return requests, limits, handed, brought


@pytest.mark.slow
@given(split_workloads(), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=25, deadline=None)
def test_the_fast_engine_is_the_reference(workload, model) -> None:
    requests, limits, handed, brought = workload
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, rank_limits(window=model.window, **limits))
    drain_split(engine, fast, handed, brought)
    reference = SplitReference(model.leap, window=model.window, **limits)
    slow = reference.run_split([Request(**r) for r in requests], handed, brought)
    for place, (ours, theirs) in enumerate(zip(fast, slow, strict=True)):
        assert dates(ours)[1] == dates(theirs)[1]
        assert ours.preemptions == theirs.request.preemptions
        if place not in brought:
            assert dates(ours)[0] == dates(theirs)[0]
    assert engine.meters(1e9).steps == reference.steps


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@given(split_workloads())
@settings(max_examples=25, deadline=None)
def test_blocks_tokens_and_time_are_conserved(engine, workload) -> None:
    requests, limits, handed, brought = workload
    rows = [Request(**r, busy=BusyTime()) for r in requests]
    running = ENGINES[engine](rank_limits(**limits))
    running.share_time(True, 0.0)
    drain_split(running, rows, handed, brought)
    for pool in running.caches():
        assert pool.free == pool.usable >= pool.peak
    served = [r for r in rows if not r.rejected]
    assert all(isnan(r.finished_s) == (r.index in handed) for r in served)
    made = [1 if r.index in handed else r.output_tokens - (r.index in brought) for r in served]
    meters = running.meters(1e9)
    assert meters.output_tokens == sum(made)
    assert meters.prompt_tokens + meters.cached_tokens == sum(r.prompt_tokens for r in served if r.index not in brought)
    shared_s = sum(r.busy.prefill_s + r.busy.recompute_s + r.busy.decode_s for r in rows)
    assert shared_s == pytest.approx(meters.busy_s)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_crash_frees_the_blocks_released_in_its_step(engine) -> None:
    running = ENGINES[engine](rank_limits(40, 1, 4, 64, 100))
    handed, other = Request(0, 0.0, 5, 4), Request(1, 0.0, 5, 20)
    running.offer(handed, 0.0, True)
    now_s = running.plan(0.0)
    while handed not in running.advance():
        now_s = running.plan(now_s)
    running.offer(other, now_s)
    running.plan(now_s)
    running.release_kv(handed, now_s)
    running.evict(other, now_s)
    running.crash(now_s)
    assert all(pool.free == pool.usable for pool in running.caches())
