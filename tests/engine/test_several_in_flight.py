"""Asynchronous scheduling and pipelines give the dates of a reference that takes one batch after the other."""

import sys
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.asynchronous import AsyncEngine
from sim.engine.limits import RankLimits
from sim.records import Request

sys.path.insert(0, str(Path(__file__).parents[1]))
from engine_workloads import (
    Affine,
    Windowed,
    assert_conserved,
    dates,
    optioned_workloads,
    some_evictions,
    timestamps,
    workloads,
)
from reference_engine import drain, drain_evicting
from reference_queued import QueuedReference


@given(st.one_of(workloads(), optioned_workloads()), st.sampled_from([Affine(), Windowed()]))
@settings(max_examples=150, deadline=None)
def test_asynchronous_scheduling_agrees_exactly(workload, model) -> None:
    requests, limits = workload
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(model, RankLimits(window=model.window, **limits))
    drain(engine, fast)
    reference = QueuedReference(model.leap, window=model.window, asynchronous=True, **limits)
    for ours, theirs in zip(fast, reference.run([Request(**r) for r in requests]), strict=True):
        assert dates(ours) == dates(theirs)
        assert ours.preemptions == theirs.request.preemptions
        assert ours.cached_tokens == theirs.cached_tokens
    assert engine.meters(1e9).steps == reference.steps
    assert_conserved(engine, fast)


@given(workloads(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_whoever_is_evicted_has_come_as_far_as_in_the_reference(workload, seed) -> None:
    requests, limits = workload
    limits = limits | {"enable_prefix_caching": False}
    model = Affine()
    usual = QueuedReference(model.leap, asynchronous=True, **limits).run([Request(**r) for r in requests])
    evictions = some_evictions(timestamps(usual), seed)
    fast = [Request(**r) for r in requests]
    engine = AsyncEngine(model, RankLimits(**limits))
    evicted = drain_evicting(engine, fast, evictions)
    reference = QueuedReference(model.leap, asynchronous=True, **limits)
    slow = reference.run([Request(**r) for r in requests], evictions)
    assert evicted == {place: one.evicted for place, one in enumerate(slow) if one.evicted}
    assert [dates(one) for one in fast] == [dates(one) for one in slow]
    assert engine.meters(1e9).steps == reference.steps
    assert engine._pool.free == engine._pool.usable
