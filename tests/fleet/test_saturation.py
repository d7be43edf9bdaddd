"""Retimed runs of a saturated engine against runs that simulate its steps."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.batching import Reserve
from sim.batching.limits import KvGroup, Speculative
from sim.fleet.fleet import RunningFleet
from sim.fleet.saturation import SaturatedSteps, is_saturated
from sim.records import Batch, Leap
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.affine_step_time import AffineStepTime
from sim.workload.tenants import Tenant
from tests.small_scenario import TINY, planned, variant

CLOSED = {
    "horizon_s": 3,
    "drain_limit_s": 0,
    "meter_interval_s": 0.7,
    "workload.arrivals": {"process": "closed_loop", "concurrency": 12},
    "workload.lengths.prompt": {"distribution": "lognormal", "mean": 60, "cv": 1.0, "max": 300},
    "workload.lengths.output": {"distribution": "geometric", "mean": 40, "max": 200},
    "fleets.0.pools.0.batching.max_num_seqs": 8,
    "fleets.0.pools.0.batching.max_num_batched_tokens": 64,
}
SHORT_CACHE, LONG_CACHE = 40, 400
STEP_TIMES = [AffineStepTime(0.004, 1e-5, 1e-7), AffineStepTime(0.02, 0.0, 0.0), AffineStepTime(0.008, 1e-4, 0.0)]


def saturated(folder: Path, blocks: int = SHORT_CACHE, turn_s: float = 0.0, **options: Any) -> CasePlan:
    """Return the plan of an engine with *options* that always has requests waiting."""
    plan = planned(folder, variant(TINY, CLOSED))
    batching = plan.pools[0].batching.model_copy(update={"num_gpu_blocks": blocks, "max_model_len": 500} | options)
    return replace(plan, pools=(replace(plan.pools[0], batching=batching, turn_s=turn_s),))


def with_step_time(plan: CasePlan, steptime: Any) -> CasePlan:
    return replace(plan, pools=(replace(plan.pools[0], steptime=steptime),))


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("blocks", [SHORT_CACHE, LONG_CACHE])
def test_retimed_run_equals_a_run_of_its_own(tmp_path: Path, ahead: bool, blocks: int) -> None:
    plan = saturated(tmp_path, blocks, async_scheduling=ahead, enable_prefix_caching=True)
    assert is_saturated(plan)
    steps = SaturatedSteps(plan)
    for steptime in STEP_TIMES:
        timed = with_step_time(plan, steptime)
        log, fresh = steps.retimed(timed), RunningFleet(timed).run()
        assert log is not None
        assert (log.intervals, log.end_s) == (fresh.intervals, fresh.end_s)
        assert (fresh.meters[0].preemptions > 0) == (blocks == SHORT_CACHE)


def test_slow_reading_of_requests_changes_the_steps(tmp_path: Path) -> None:
    plan = saturated(tmp_path, turn_s=0.003)
    slow, fast = (with_step_time(plan, AffineStepTime(step_s, 0.0, 0.0)) for step_s in (0.05, 0.001))
    steps = SaturatedSteps(plan)
    for timed in (slow, replace(fast, horizon_s=0.001)):  # the second one ends before its steps differ
        log = steps.retimed(timed)
        assert log is not None
        assert log.intervals == RunningFleet(timed).run().intervals
    assert steps.retimed(fast) is None


class UnevenStepTime:
    """Step time whose durations are valid for a number of steps that depends on the batch."""

    window = None

    def leap(self, batch: Batch) -> Leap:
        return Leap(0.004 + 0.001 * batch.decode_seqs, 1e-6, 1.0 + batch.kv_tokens % 7)


@pytest.mark.slow
def test_steps_are_repeated_only_where_an_engine_would_take_them(tmp_path: Path) -> None:
    plans = {ahead: saturated(tmp_path, async_scheduling=ahead) for ahead in (True, False)}
    (pool,), workload = plans[True].pools, plans[True].workload
    repeated = 0
    for seed in range(100, 130):
        draw = random.Random(seed).choice
        limits = {"max_num_seqs": (1, 8, 16), "max_num_batched_tokens": (64, 256), "num_gpu_blocks": (40, 400)}
        drawn = {name: draw(values) for name, values in limits.items()}
        batching = plans[draw([True, False])].pools[0].batching.model_copy(update=drawn)
        steptime = draw([*STEP_TIMES, AffineStepTime(0.001, 1e-5, 0.0), UnevenStepTime()])
        turned = replace(pool, batching=batching, steptime=steptime, turn_s=draw([0.001, 0.003, 0.008, 0.02]))
        loop = workload.arrivals.model_copy(update={"concurrency": draw([2, 8, 12])})
        sent, horizon_s = workload.model_copy(update={"arrivals": loop}), draw([0.05, 0.2])
        plan = replace(plans[True], workload=sent, pools=(turned,), horizon_s=horizon_s, seed=seed)
        plan = replace(plan, meter_interval_s=0.02)
        log = SaturatedSteps(plan).retimed(plan)
        if log is not None:
            repeated += 1
            assert log.intervals == RunningFleet(plan).run().intervals
    assert repeated >= 9


def test_uneven_durations_and_refused_requests_are_not_retimed(tmp_path: Path) -> None:
    plan = saturated(tmp_path)
    assert SaturatedSteps(plan).retimed(with_step_time(plan, UnevenStepTime())) is None
    refusing = saturated(tmp_path, max_model_len=150)
    steps = SaturatedSteps(refusing)
    assert [steps.retimed(with_step_time(refusing, one)) for one in STEP_TIMES] == [None] * len(STEP_TIMES)


def test_steps_that_depend_on_time_are_not_saturated(tmp_path: Path) -> None:
    plan = saturated(tmp_path)
    (pool,), workload, loop = plan.pools, plan.workload, plan.workload.arrivals
    states = {"kv_groups": (KvGroup(window=0), KvGroup(window=None)), "enable_prefix_caching": True}
    drafts = {"speculative": Speculative(num_speculative_tokens=1, accepted=1)}
    limits = [pool.batching.model_copy(update=one) for one in (states, drafts, {"scheduling": "priority"})]
    engines = [replace(pool, batching=one) for one in (*limits, Reserve(policy="reserve"))]
    for name in ("replicas", "data_parallel_size", "pipeline_parallel_size", "models", "kv_tiers", "on_call"):
        engines += [replace(pool, **{name: 2})]
    loops = [loop.model_copy(update=one) for one in ({"think_s": 1.0}, {"num_requests": 9})] + [None]
    of_requests = ("shared_prefix", "sessions", "sent_before", "adapters")
    others = [
        *(replace(plan, **{name: None}) for name in ("horizon_s", "drain_limit_s")),
        *(replace(plan, **{name: True}) for name in ("services", "kv_transfer", "client", "cost_per_request")),
        *(replace(plan, workload=workload.model_copy(update={"arrivals": one})) for one in loops),
        *(replace(plan, workload=workload.model_copy(update={name: 1})) for name in of_requests),
        replace(plan, workload=workload.model_copy(update={"tenants": (Tenant(name="a"),)})),
        *(replace(plan, pools=(one,)) for one in engines),
        replace(plan, pools=(replace(pool, intake_s=0.001),)),
        replace(plan, pools=(pool, pool)),
    ]
    assert [is_saturated(one) for one in others] == [False] * len(others)
