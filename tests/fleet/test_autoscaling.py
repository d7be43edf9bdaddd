"""Autoscaled pools: replicas follow the load, states tile time, no request is lost, one seed gives one run."""

from itertools import pairwise
from math import fsum
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenario import ran

from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.fleet.replica import STATE_PROPERTIES, State
from sim.records import Interval
from sim.registry import Registration, enter
from sim.scenario.reading.errors import ScenarioErrors

CATALOG = load_catalog()
SCENARIO = """\
name: scaled
workload:
  arrivals: %(arrivals)s
  lengths:
    prompt: {distribution: fixed, value: 100}
    output: {distribution: geometric, mean: 60, max: 400}
horizon_s: %(horizon)s
drain_limit_s: 3000
meter_interval_s: 400
fleets:
  - name: a
    pools:
      - gpu: rtx-4090
        steptime: {model: affine, base_s: 0.08, per_token_s: 1.0e-4, per_context_token_s: 1.0e-7}
        max_model_len: 1000
        batching: {policy: vllm, max_num_seqs: 8, max_num_batched_tokens: 2048, num_gpu_blocks: 2000}
        cold_start: %(start)s
        autoscaling: %(scaler)s
    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}}
"""  # fmt: skip
HPA = "{policy: hpa, metric: outstanding_per_replica, target: 4, max_replicas: 6, scale_down_stabilization_s: 60}"
ASLEEP = "{engine_s: 20, weights_gb: 14, sleep_level: 2}"
DAY = "{process: profile, hourly_rps: [0.1, 2, 0.1]}"
USUAL = {"arrivals": DAY, "horizon": 10800, "start": "{total_s: 60}", "scaler": HPA}


def run(folder: Path, **values: object) -> CaseResult:
    return ran(folder, SCENARIO % (USUAL | values))


def check_laws(result: CaseResult) -> None:
    """States tile time and energy, the bill sums, every request ends once."""
    log = result.log
    by_replica: dict[int, list[Interval]] = {}
    for interval in sorted(log.intervals, key=lambda one: one.start_s):
        by_replica.setdefault(interval.replica, []).append(interval)
    for intervals in by_replica.values():
        assert (intervals[0].start_s, intervals[-1].end_s) == (0.0, log.end_s)
        assert all(a.end_s == b.start_s for a, b in pairwise(intervals))
        for one in intervals:
            assert (one.server_energy_j > 0) == STATE_PROPERTIES[State(one.state)].powered
            if one.state not in ("serving", "draining", "failed"):  # a step that is lost with its replica goes on
                assert (one.busy_s, one.output_tokens) == (0.0, 0)
    assert [request.index for request in log.requests] == list(range(len(log.requests)))
    ended = [one for one in log.requests if one.finished_s == one.finished_s]
    left = len(log.requests) - len(ended) - sum(one.rejected for one in log.requests)
    assert left == 0 or log.end_s == result.plan.horizon_s + result.plan.drain_limit_s
    for one in ended:
        assert one.arrived_s <= one.started_s <= one.first_token_s <= one.finished_s
    assert sum(one.output_tokens for one in log.intervals) >= sum(one.output_tokens for one in ended)
    assert result.ledger is not None
    assert sum(row.amount_nano_usd for row in result.ledger.rows) == result.ledger.total_nano_usd
    rented_s = fsum(
        one.end_s - one.start_s
        for one in log.intervals
        if STATE_PROPERTIES[State(one.state)].rented and one.is_within(*result.window_s)
    )
    # by the second, each start rounded up
    assert result.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * rented_s / 3600, rel=0.01, abs=0.01)


@pytest.fixture(scope="module")
def hpa(tmp_path_factory: pytest.TempPathFactory) -> CaseResult:
    return run(tmp_path_factory.mktemp("hpa"))


def serving(result: CaseResult, at_s: float) -> int:
    return sum(one.state == "serving" and one.start_s <= at_s < one.end_s for one in result.log.intervals)


@pytest.mark.slow
def test_replicas_follow_the_load(hpa: CaseResult) -> None:
    check_laws(hpa)
    assert serving(hpa, 3000) == 1
    assert serving(hpa, 7000) > 2
    assert serving(hpa, 10500) == 1
    assert {one.state for one in hpa.log.intervals} == {"off", "booting", "serving", "draining"}
    assert hpa.ledger is not None
    assert hpa.ledger.by_phase()["booting"] > 0
    starts = [one for one in hpa.log.intervals if one.state == "booting"]
    assert fsum(one.end_s - one.start_s for one in starts) % 60 == pytest.approx(0, abs=1e-6)
    # decisions fall on the sync period
    assert all(one.start_s % 15 == 0 for one in starts if one.start_s % 400)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    first, again = (run(tmp_path, arrivals="{process: poisson, rate_rps: 1}", horizon=1200) for _ in range(2))
    assert "booting" in {one.state for one in first.log.intervals}
    assert again.log.intervals == first.log.intervals
    assert [one.finished_s for one in again.log.requests] == [one.finished_s for one in first.log.requests]


@pytest.mark.slow
def test_knative_scales_to_zero_and_its_activator_keeps_the_request(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n1,100,50\n500,100,50\n501,100,50\n")
    scaler = "{policy: kpa, target: 8, max_replicas: 3}"
    text = SCENARIO % (USUAL | {"scaler": scaler, "horizon": 1000})
    start, end = text.index("workload:"), text.index("horizon_s")
    text = f"{text[:start]}workload: {{trace: {{path: t.csv, format: csv}}}}\n{text[end:]}"
    result = ran(tmp_path, text)
    check_laws(result)
    first, second, third = result.log.requests
    assert first.started_s == 1
    assert (serving(result, 120), serving(result, 400)) == (0, 0)
    # the start begins with the request, not at the next tick, and lasts a minute
    assert second.started_s == pytest.approx(560)
    assert third.started_s >= 560


@pytest.mark.slow
def test_unwanted_replicas_sleep_with_their_servers_on(tmp_path: Path) -> None:
    result = run(tmp_path, start=ASLEEP, arrivals="{process: poisson, rate_rps: 1}", horizon=600)
    check_laws(result)
    assert {"reserve", "loading", "serving"} <= {one.state for one in result.log.intervals} <= {
        "reserve", "loading", "serving", "draining"
    }  # fmt: skip
    assert result.ledger is not None
    assert result.ledger.by_phase()["reserve"] > 0
    # 14 GB from a drive at 1.3 GB/s, and 0.4 s; no two replicas of this pool share a server
    ends = [one for one in result.log.intervals if one.state == "loading"]
    assert ends[0].end_s - ends[0].start_s == pytest.approx(0.4 + 14 / 1.3)


class Wild:
    """Wants any number of replicas."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def wanted(self, seen: object) -> int:
        return self._random.randint(-1, 9)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 99),
    start=st.sampled_from(["{total_s: 0}", "{total_s: 37}", "{total_s: 900}", ASLEEP]),
    period=st.sampled_from([7, 60, 400]),
    most=st.integers(1, 5),
    fails=st.booleans(),
)
def test_random_scaling_loses_nothing(
    tmp_path_factory: pytest.TempPathFactory, seed: int, start: str, period: int, most: int, fails: bool
) -> None:
    enter([Registration("autoscaling", "wild", Wild)])
    scaler = f"{{policy: wild, seed: {seed}, sync_period_s: {period}, max_replicas: {most}}}"
    if fails:
        start += "\n        failures: {replica: {mtbf_h: 0.1, repair_h: 0.03}, detection_s: 5}"
    folder = tmp_path_factory.mktemp("wild")
    check_laws(run(folder, scaler=scaler, start=start, horizon=1500, arrivals="{process: poisson, rate_rps: 0.2}"))


@pytest.mark.slow
def test_one_line_for_each_mistake(tmp_path: Path) -> None:
    def told(**values: object) -> str:
        with pytest.raises(ScenarioErrors) as caught:
            run(tmp_path, **values)
        assert len(caught.value.errors) == 1, caught.value
        return str(caught.value)

    assert "autoscaling.max_replicas: is missing" in told(scaler="{policy: hpa, metric: gpu_busy, target: 1}")
    assert "min_replicas (9) must not exceed" in told(scaler=HPA.replace("max_", "min_replicas: 9, max_"))
    assert "autoscaling.target: must be" in told(scaler=HPA.replace("target: 4", "target: 0"))
    assert "must be one of outstanding_per_replica" in told(scaler=HPA.replace("outstanding_", "outstandin_"))
    assert "unknown policy 'hpaa'; did you mean hpa?" in told(scaler=HPA.replace("hpa", "hpaa"))
    assert "cold_start: without a model the loaded bytes" in told(start="null")
    assert "within the autoscaler's bounds, 1 to 6" in told(start="{total_s: 1}\n        replicas: 7")
    assert "unknown source of weights 'local_nvm'; did you mean local_nvme?" in told(start="{weights_from: local_nvm}")
    assert "cold_start.link: unknown link 'pci'" in told(start="{weights_from: peer_gpu, link: pci, weights_gb: 1}")
    assert "cold_start.weights_gb: without a model" in told(start="{engine_s: 1}")
    both = '{total_s: 1}\n        schedule: {replicas: {"07:00": 1}}'
    assert "autoscaling: conflicts with schedule" in told(start=both)
