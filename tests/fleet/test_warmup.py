"""MSER-5 on series whose transient is known, and on whole runs."""

from typing import Any

import numpy as np
import pytest
from small_scenario import ran

from sim.fleet.warmup import WarmupTruncation, mser5

PLACES = np.arange(400)
RIPPLE = (PLACES * 37 % 101) / 101 - 0.5
"""Deterministic deviations: the numbers from -0.5 to 0.5 in turn."""


@pytest.mark.parametrize(
    ("decay", "cut"),
    # what kim-convergence 0.1.0 (mser_m with batch_size=5) finds in the same series
    [(5, WarmupTruncation(20, True)), (20, WarmupTruncation(110, True)), (60, WarmupTruncation(200, False))],
)
def test_the_cut_is_that_of_an_independent_implementation(decay: int, cut: WarmupTruncation) -> None:
    assert mser5(10 * np.exp(-PLACES / decay) + RIPPLE) == cut


def test_a_step_is_cut_where_it_is() -> None:
    assert mser5(np.where(PLACES < 60, 8.0, 0.0) + RIPPLE) == WarmupTruncation(60, True)


def test_a_series_without_end_is_not_steady() -> None:
    assert mser5(0.02 * PLACES + RIPPLE) == WarmupTruncation(200, False)
    assert mser5(RIPPLE[:99]) == WarmupTruncation(0, False)


def test_nothing_is_cut_from_a_constant() -> None:
    assert mser5(np.ones(400)) == WarmupTruncation(0, True)


@pytest.mark.slow
def test_truncation_removes_the_bias_of_the_mean() -> None:
    # AR(1) around 10 that starts at 60: the known transient is 50 x 0.95^i, below a hundredth of the mean from 121 on
    rng = np.random.default_rng(3)
    kept, whole = [], []
    for _ in range(100):
        noise = rng.normal(size=2000)
        series = np.empty(2000)
        value = 50.0
        for i, shock in enumerate(noise):
            value = 0.95 * value + shock
            series[i] = 10 + value
        cut = mser5(series)
        if cut.steady:
            kept.append(series[cut.observations :].mean())
        whole.append(series.mean())
    assert len(kept) > 90
    # the bias of the whole series is 50 / (1 - 0.95) / 2000
    assert np.mean(whole) - 10 == pytest.approx(0.5, abs=0.15)
    assert abs(np.mean(kept) - 10) < 0.1


def queue(**more: Any) -> dict[str, Any]:
    batching = {"policy": "vllm", "max_num_seqs": 64, "max_num_batched_tokens": 512, "num_gpu_blocks": 100_000}
    step = {"model": "affine", "base_s": 0.02, "per_token_s": 0, "per_context_token_s": 0}
    lengths = {"distribution": "fixed", "value": 500}
    return {
        "workload": {
            "arrivals": {"process": "poisson", "rate_rps": 3.0},
            "lengths": {"prompt": {"distribution": "fixed", "value": 1}, "output": lengths},
        },
        "horizon_s": 400,
        "warmup_s": "auto",
        "fleets": [{"name": "queue", "pools": [{"steptime": step, "batching": batching}]}],
    } | more


@pytest.mark.slow
def test_a_filling_fleet_is_measured_once_it_is_full(tmp_path: Any) -> None:
    # every answer takes 10 s: the number in the system grows for 10 s to 30
    found = ran(tmp_path, queue())
    assert found.plan.warmup_steady
    assert 5 < found.window_s[0] < 60
    assert any(interval.start_s == found.plan.warmup_s for interval in found.log.intervals), "the meters are read then"


@pytest.mark.slow
def test_an_overloaded_fleet_never_settles(tmp_path: Any) -> None:
    arrivals = {"process": "poisson", "rate_rps": 12.0}
    data = queue()
    data["workload"]["arrivals"] = arrivals
    found = ran(tmp_path, data)
    assert not found.plan.warmup_steady
    assert found.window_s[0] == pytest.approx(200, rel=0.1), "half of the run is left out"


@pytest.mark.slow
def test_clients_that_start_together_are_cut(tmp_path: Any) -> None:
    data = queue()
    data["workload"]["arrivals"] = {"process": "closed_loop", "concurrency": 32, "think_s": 1.0}
    data["workload"]["lengths"]["output"] = {"distribution": "geometric", "mean": 300}
    assert ran(tmp_path, data).plan.warmup_steady
