"""The fast engine gives the dates of the step-by-step reference, on random workloads."""

import pytest
from engine_workloads import Adapted, Affine, Windowed, assert_conserved, optioned_workloads, rank_limits, workloads
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_engine import ReferenceEngine, drain

from sim.engine.kv.tiers import Tier, Tiers
from sim.engine.lora import AdapterSlots
from sim.engine.synchronous import VllmEngine
from sim.records import Request


def both(requests: list[dict], limits: dict, model: Affine) -> tuple[list[Request], VllmEngine, list, ReferenceEngine]:
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(model, rank_limits(window=model.window, **limits))
    drain(engine, fast)
    reference = ReferenceEngine(model.leap, window=model.window, **limits)
    return fast, engine, reference.run([Request(**r) for r in requests]), reference


@pytest.mark.slow
@given(st.one_of(workloads(), optioned_workloads()), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=200, deadline=None)
def test_dyadic_times_agree_exactly(workload: tuple[list[dict], dict], model: Affine) -> None:
    fast, engine, slow, reference = both(*workload, model)
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.first_token_s, ours.finished_s) == pytest.approx(
            (theirs.first_token_s, theirs.finished_s), rel=0, abs=0, nan_ok=True
        )
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    meters = engine.meters(1e9)
    assert meters.preemptions == reference.preemptions
    assert meters.steps == reference.steps
    assert engine.waiting() == 0


def test_of_two_equal_blocks_the_one_filled_first_is_found() -> None:
    """One request's answer fills a block that the other's prompt fills in a later chunk of the same step."""
    shared = {"arrived_s": 0.0, "block_hashes": (7,), "hash_block_tokens": 16}
    limits = {
        "num_gpu_blocks": 7, "block_size": 16, "max_num_seqs": 8, "max_num_batched_tokens": 48, "max_model_len": 1000,
        "enable_prefix_caching": True, "scheduling": "fcfs", "long_prefill_token_threshold": 3,
    }  # fmt: skip
    requests = [
        {"index": 0, "prompt_tokens": 15, "output_tokens": 24} | shared,
        {"index": 1, "prompt_tokens": 33, "output_tokens": 17} | shared,
    ]
    fast, engine, slow, reference = both(requests, limits, Affine())
    assert [one.finished_s for one in fast] == [one.finished_s for one in slow]
    # who was preempted finds the block in use, which costs no free one
    assert [one.preemptions for one in fast] == [0, 1]
    assert engine.meters(1e9).steps == reference.steps == 28


@pytest.mark.slow
@given(workloads(), st.lists(st.integers(0, 3), min_size=24, max_size=24))
@settings(max_examples=50, deadline=None)
def test_fair_queues_agree(workload: tuple[list[dict], dict], tenants: list[int]) -> None:
    requests, limits = workload
    for request, tenant in zip(requests, tenants, strict=False):
        request |= {"tenant": "abcd"[tenant], "weight": (1.0, 3.0, 0.7, 1.0)[tenant]}
    fast, _, slow, _ = both(requests, limits | {"scheduling": "fair"}, Affine())
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.first_token_s, ours.finished_s) == pytest.approx(
            (theirs.first_token_s, theirs.finished_s), rel=0, abs=0, nan_ok=True
        )
        assert ours.preemptions == theirs.request.preemptions


@st.composite
def tiers(draw: st.DrawFn) -> tuple[list[tuple[int, float, float, bool]], float]:
    """Room, seconds per block and per read of each tier, and whether it is written through; recompute time."""
    one = st.tuples(st.integers(1, 30), st.integers(0, 3), st.integers(0, 3), st.booleans())
    found = draw(st.lists(one, min_size=1, max_size=2))
    return [(room, read / 64, latency / 64, through) for room, read, latency, through in found], 2 / 64


@pytest.mark.slow
@given(workloads(), tiers())
@settings(max_examples=50, deadline=None)
def test_tiers_below_the_gpu_agree(
    workload: tuple[list[dict], dict], below: tuple[list[tuple[int, float, float, bool]], float]
) -> None:
    requests, limits = workload
    limits["enable_prefix_caching"] = True
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(
        Affine(), rank_limits(**limits, new_tiers=lambda: Tiers([Tier(*t) for t in below[0]], below[1]))
    )
    drain(engine, fast)
    slow = ReferenceEngine(Affine().leap, **limits, tiers=below).run([Request(**r) for r in requests])
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.first_token_s, ours.finished_s, float(ours.cached_tokens)) == pytest.approx(
            (theirs.first_token_s, theirs.finished_s, float(theirs.cached_tokens)), rel=0, abs=0, nan_ok=True
        )
    assert_conserved(engine, fast)


@pytest.mark.slow
@given(workloads(), st.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_arbitrary_times_agree_to_tolerance(workload: tuple[list[dict], dict], scale: float) -> None:
    fast, _, slow, _ = both(*workload, Affine(scale / 3))
    for ours, theirs in zip(fast, slow, strict=True):
        assert ours.first_token_s == pytest.approx(theirs.first_token_s, abs=1e-9, nan_ok=True)
        assert ours.finished_s == pytest.approx(theirs.finished_s, abs=1e-9, nan_ok=True)


@pytest.mark.slow
@given(workloads())
@settings(max_examples=50, deadline=None)
def test_tokens_and_blocks_are_conserved(workload: tuple[list[dict], dict]) -> None:
    fast, engine, _, _ = both(*workload, Affine())
    done = [r for r in fast if not r.rejected]
    assert all(r.finished_s >= r.first_token_s >= r.started_s >= r.arrived_s for r in done)
    meters = engine.meters(1e9)
    assert meters.output_tokens == sum(r.output_tokens for r in done)
    assert meters.prompt_tokens + meters.cached_tokens == sum(r.prompt_tokens for r in done)
    assert all(cache.free == cache.usable for cache in engine.caches())


@pytest.mark.slow
@given(
    st.one_of(workloads(), optioned_workloads()),
    st.lists(st.sampled_from(["", *"abcdef"]), min_size=24, max_size=24),
    st.data(),
)
@settings(max_examples=60, deadline=None)
def test_adapters_and_their_slots_agree(
    workload: tuple[list[dict], dict], names: list[str], data: st.DataObject
) -> None:
    requests, limits = workload
    for request, name in zip(requests, names, strict=False):
        request["adapter"] = name
    if data.draw(st.booleans()):
        limits["scheduling"] = "fair"
        tenants = data.draw(st.lists(st.integers(0, 3), min_size=24, max_size=24))
        for request, tenant in zip(requests, tenants, strict=False):
            request |= {"tenant": "abcd"[tenant], "weight": (1.0, 3.0, 0.7, 1.0)[tenant]}
    on_gpu = data.draw(st.integers(1, 3))
    slots = (on_gpu, on_gpu + data.draw(st.integers(0, 2)), 1 / 64, 3 / 64)
    fast = [Request(**r) for r in requests]
    engine = VllmEngine(Adapted(), rank_limits(**limits, new_adapters=lambda: AdapterSlots(*slots)))
    drain(engine, fast)
    slow = ReferenceEngine(Adapted().leap, **limits, adapters=slots).run([Request(**r) for r in requests])
    for ours, theirs in zip(fast, slow, strict=True):
        assert (ours.first_token_s, ours.finished_s) == pytest.approx(
            (theirs.first_token_s, theirs.finished_s), rel=0, abs=0, nan_ok=True
        )
        assert ours.preemptions == theirs.request.preemptions
    assert_conserved(engine, fast)
    assert engine.adapters()[0].running == 0
