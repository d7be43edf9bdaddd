"""A capacity is that of the long run, whatever the stated horizon, or its first line says that it is not."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_scenario import ANY_LENGTH, loaded, variant

from sim.catalogue.catalog import load_catalog
from sim.report.capacity import capacity_rows, headline
from sim.scenario.sections.precision import Precision
from sim.scenario.slo import Slo
from sim.study import capacity
from sim.study.capacity import FleetCapacity, at_horizon, can_be_lengthened, capacities, horizon_check
from sim.study.execution.cores import ProcessPool
from sim.study.load_axis import LoadAxis
from sim.study.metrics.case_metrics import CaseMetrics

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import horizons

SLO = [Slo(ttft_s=1.0, attainment=0.9)]
CATALOG = load_catalog()
QUEUE = variant(
    ANY_LENGTH,
    {
        "workload.arrivals": {"process": "constant", "rate_rps": 1.0},
        "workload.lengths.output": {"distribution": "fixed", "value": 100},
        "horizon_s": 20,
        "slo": {"ttft_s": 3.0},
    },
)


@pytest.fixture(autouse=True)
def _lengthened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "can_be_lengthened", can_be_lengthened)


def scenario(folder: Path, *sets: str) -> Any:
    return loaded(folder, QUEUE, *sets)


def found(asked: Any, out: Path, precision: Precision | None = None) -> FleetCapacity:
    (one,) = capacities(asked, CATALOG, out, ProcessPool(1), 0.02, precision=precision)
    return one


@pytest.mark.slow
def test_the_interval_holds_the_long_run_capacity_whatever_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizons, "LONG_QUEUE", 1_000_000)
    queue = horizons.QUEUES[1]
    every = [horizons.searched(queue, horizons.scenario_of(queue, seed, 60.0)) for seed in range(12)]
    assert all(one.accepted for one in every)
    assert horizons.covering(horizons.long_run_rps(queue), every) >= 10


@pytest.mark.slow
def test_the_queue_of_a_short_window_has_not_built_up(tmp_path: Path) -> None:
    # one second of work each: at 1.2 a second the last of 24 requests waits for 4 s, at 1.1 for 2 s
    one = found(scenario(tmp_path), tmp_path / "out")
    assert one.mean == pytest.approx(1.0, rel=0.06)
    assert one.accepted
    assert (one.horizon_s or 0) > 20


@pytest.mark.slow
def test_capacity_that_is_not_accepted_is_reported_first(tmp_path: Path) -> None:
    asked = scenario(tmp_path)
    one = found(asked, tmp_path / "out", Precision(max_horizon_s=20))
    assert not one.accepted
    assert one.horizon_s == 20
    axis = LoadAxis.of(asked)
    told = headline([one], capacity_rows([one], axis, asked.slo), axis)
    assert told.startswith("Capacity is not steady yet and probably too high (queue): runs of 20 s")
    assert "set precision.max_horizon_s to about" in told
    counts = CaseMetrics({"requests": 8, "rejected": 2, "timed_out": 0, "lost": 0})
    lossy = [replace(each, at=replace(each.at, measured=counts)) for each in one.found if each.at is not None]
    said = headline([replace(one, found=tuple(lossy))], capacity_rows([one], axis, asked.slo), axis)
    assert said == f"{told} Requests without an answer: {one.fleet} (25\u00a0% rejected)."


def test_a_trace_is_not_lengthened(tmp_path: Path) -> None:
    asked = scenario(
        tmp_path, "workload.arrivals={process: poisson, rate_rps: 1.0, num_requests: 10}", "horizon_s=null"
    )
    assert not can_be_lengthened(asked)
    assert can_be_lengthened(scenario(tmp_path))
    assert not can_be_lengthened(scenario(tmp_path, "workload.arrivals={process: profile, hourly_rps: [1, 2]}"))


def test_the_warm_up_grows_with_the_horizon(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "warmup_s=1")
    assert at_horizon(asked, 20.0) is asked
    assert (at_horizon(asked, 10.0).warmup_s, at_horizon(asked, 80.0).warmup_s) == (0.5, 8.0)
    assert at_horizon(scenario(tmp_path, "warmup_s=10"), 80.0).warmup_s == 40.0


def test_the_change_from_half_of_a_window_is_its_own_noise() -> None:
    before, after = (1.0, 1.0, 1.0, 1.0), (1.1, 0.9, 1.1, 0.9)
    check = horizon_check([(50.0, before), (100.0, after)], 1000, SLO, 0.1, random=True)
    assert check.change == pytest.approx(0.1, rel=0.01)
    assert check.bias == pytest.approx(0.005, abs=0.001)
    # a window of four parts varies as much from its first part to its whole as sqrt(3) times its own capacity
    four = horizon_check([(25.0, before), (100.0, after)], 1000, SLO, 0.1, random=True)
    assert four.change == pytest.approx(check.change / 3**0.5)
    assert four.bias == pytest.approx(check.bias / 3)


def test_a_window_needs_requests_beyond_its_share() -> None:
    runs = [(50.0, (1.0,) * 5), (100.0, (1.0,) * 5)]
    least = capacity.LEAST_IN_TAIL / 0.1
    assert horizon_check(runs, least, SLO, 0.1, random=True).accepted
    few = horizon_check(runs, least / 4, SLO, 0.1, random=True)
    assert not few.accepted
    assert (few.stride, few.needed_s) == (4, 400.0)


def test_one_run_shows_its_noise_in_two_lengthenings() -> None:
    once = [(50.0, (1.0,)), (100.0, (1.0,))]
    assert not horizon_check(once, 1e6, SLO, 0.1, random=True).accepted
    assert horizon_check([(25.0, (1.0,)), *once], 1e6, SLO, 0.1, random=True).accepted
    assert horizon_check(once, 1e6, SLO, 0.1, random=False).accepted
