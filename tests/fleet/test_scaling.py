"""Replicas that a schedule switches: states tile time, requests are conserved, rent runs from a start to its stop.

Starts of replicas: stages follow each other, links are shared, and every state's time has its phase.
"""

from itertools import pairwise
from math import fsum, inf
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from small_scenario import loaded, ran

from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.coldstart import StartTransfer
from sim.cost.clock import MIDNIGHT
from sim.cost.metering import OF_STATE, PHASES, ReplicaStop, gpu_s_by_phase, seconds_by_phase, stops, wall_j_by_phase
from sim.cost.rental import Billing
from sim.fleet.clock import FleetClock
from sim.fleet.replica import STATE_PROPERTIES, State
from sim.fleet.scaling import Links
from sim.records import Interval
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.replica_schedule import ReplicaSchedule
from sim.scenario.sweep import cases
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.rebill import Rebilling

CATALOG = load_catalog()
HOUR = 3600.0
SCENARIO = """\
name: switched
model: llama3.1-8b
workload:
  arrivals: {process: %(process)s}
  lengths:
    prompt: {distribution: fixed, value: 300}
    output: {distribution: geometric, mean: 100, max: 1000}
horizon_s: %(horizon)d
warmup_s: %(warmup)d
starts_at: 2026-07-01T06:00:00
fleets:
  - name: a
    pools: [{gpu: rtx-4090, replicas: 3, schedule: {replicas: %(replicas)s, starting_s: %(starting)d}}]
    routing: {policy: %(policy)s}
    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}, billing: {granularity_s: %(step)d, minimum_s: %(least)d}}
"""
USUAL = {
    "process": "poisson, rate_rps: 0.2", "horizon": 7200, "warmup": 0, "replicas": '{"06:30": 3, "07:00": 1}',
    "starting": 120, "policy": "least_outstanding", "step": 1, "least": 0,
}  # fmt: skip


def scenario_of(folder: Path, **values: object):
    return loaded(folder, SCENARIO % (USUAL | values))


def run(folder: Path, **values: object) -> CaseResult:
    return ran(folder, SCENARIO % (USUAL | values))


def by_replica(result: CaseResult) -> dict[int, list[Interval]]:
    found: dict[int, list[Interval]] = {}
    for interval in sorted(result.log.intervals, key=lambda one: one.start_s):
        found.setdefault(interval.replica, []).append(interval)
    return found


def ran_s(intervals: list[Interval], *states: str) -> float:
    return sum(one.end_s - one.start_s for one in intervals if one.state in states)


@pytest.mark.slow
def test_replicas_start_serve_drain_and_stop(tmp_path: Path) -> None:
    result = run(tmp_path)
    replicas = by_replica(result)
    assert {one.state for one in replicas[0]} == {"serving", "draining"}  # draining: after the horizon
    for index in (1, 2):
        states = [one.state for one in replicas[index]]
        order = [state for i, state in enumerate(states) if i == 0 or states[i - 1] != state]
        assert order in (["off", "booting", "serving", "draining", "off"], ["off", "booting", "serving", "off"])
        assert ran_s(replicas[index], "booting") == pytest.approx(120)
        # half past six to seven, less the start
        assert ran_s(replicas[index], "serving") == pytest.approx(1800 - 120)
        off = [one for one in replicas[index] if one.state == "off"]
        assert {(one.server_energy_j, one.output_tokens, one.busy_s) for one in off} == {(0.0, 0, 0.0)}
        assert all(one.server_energy_j > 0 for one in replicas[index] if one.state == "booting")
    for request in result.log.requests:
        assert request.finished_s > request.arrived_s
        if request.replica:
            assert 1800 + 120 <= request.arrived_s < HOUR


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["least_outstanding", "round_robin", "random", "power_of_two"])
def test_every_policy_chooses_serving_replicas_only(tmp_path: Path, policy: str) -> None:
    replicas = '{"06:10": 3, "06:20": 1}'
    result = run(tmp_path, policy=policy, process="poisson, rate_rps: 0.8", replicas=replicas, horizon=1500)
    used = {request.replica for request in result.log.requests if 720 <= request.arrived_s < 1200}
    assert used == {0, 1, 2}
    assert {request.replica for request in result.log.requests if not 720 <= request.arrived_s < 1200} == {0}


@pytest.mark.slow
def test_requests_wait_while_no_replica_serves(tmp_path: Path) -> None:
    result = run(tmp_path, replicas='{"06:30": 3, "07:00": 0}', horizon=3500)
    early = [request for request in result.log.requests if request.arrived_s < 1920]
    assert early
    assert min(request.first_token_s for request in early) >= 1920
    assert all(request.replica >= 0 for request in result.log.requests)


@pytest.mark.slow
@settings(max_examples=20)
@given(
    replicas=st.dictionaries(st.integers(6 * 60, 7 * 60), st.integers(0, 3), min_size=1, max_size=5).filter(
        lambda found: max(found.values()) == 3
    ),
    starting=st.integers(0, 900),
    warmup=st.sampled_from([0, 1000]),
)
def test_states_tile_time_and_nothing_is_lost(tmp_path_factory, replicas, starting, warmup) -> None:
    folder = tmp_path_factory.mktemp("switched")
    values = {"replicas": str(replicas), "starting": starting, "warmup": warmup, "horizon": 4500}
    result = run(folder, process="poisson, rate_rps: 0.05", **values)
    for intervals in by_replica(result).values():
        assert intervals[0].start_s == 0
        assert intervals[-1].end_s == result.log.end_s
        assert all(a.end_s == b.start_s for a, b in pairwise(intervals))
    for request in result.log.requests:
        assert (
            request.finished_s >= request.first_token_s >= request.arrived_s or request.finished_s != request.finished_s
        )
    served = sum(request.output_tokens for request in result.log.requests if request.finished_s == request.finished_s)
    assert sum(one.output_tokens for one in result.log.intervals) >= served
    assert result.ledger is not None
    assert sum(row.amount_nano_usd for row in result.ledger.rows) == result.ledger.total_nano_usd


@pytest.mark.slow
def test_rent_runs_from_a_start_to_its_stop_in_whole_steps(tmp_path: Path) -> None:
    # replica 0 runs all of two hours; 1 and 2 from 06:30 to 07:00 and a little more, which is one started hour each
    seldom = "poisson, rate_rps: 0.05"
    exact = run(tmp_path, process=seldom)
    extra_s = sum(ran_s(by_replica(exact)[index], "draining") for index in (1, 2))
    assert exact.ledger is not None
    assert exact.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * (2 + 2 * 0.5) + 0.5 * extra_s / HOUR, abs=3e-4)
    hourly = run(tmp_path, process=seldom, step=3600)
    assert hourly.ledger is not None
    assert hourly.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * (2 + 2 * 1), rel=1e-9)
    least = run(tmp_path, process=seldom, least=5400)
    assert least.ledger is not None
    assert least.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * (2 + 2 * 1.5), rel=1e-9)
    assert hourly.ledger.by_phase()["booting"] > 0


@pytest.mark.slow
def test_no_edge_of_the_window_is_a_start_or_a_stop(tmp_path: Path) -> None:
    # the window begins in the middle of the run of 1 and 2: the whole hour is due when they stop, less what ran before
    result = run(tmp_path, step=3600, warmup=2700)
    assert result.ledger is not None
    assert result.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * (4500 / HOUR + 2 * (1 - 900 / HOUR)), rel=1e-9)
    # and a window that ends before they stop rounds nothing
    early = run(tmp_path, step=3600, horizon=3000)
    assert early.ledger is not None
    assert early.ledger.total_nano_usd / 1e9 == pytest.approx(0.5 * (3000 + 2 * 1200) / HOUR, rel=1e-9)


@pytest.mark.slow
def test_bills_in_memory_follow_starts_and_stops(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, step=3600, warmup=2700)
    stored = run_points(scenario, CATALOG, tmp_path / "out", ProcessPool(1), lambda *_: None)
    rebilling = Rebilling(scenario, CATALOG, list(zip(cases(scenario), stored, strict=True)))
    bill = rebilling.bills()[0]
    assert bill.usd_per_h * bill.window_h == pytest.approx(stored[0].metrics["cost_usd"], rel=1e-9)
    assert bill.output_tokens == stored[0].metrics["output_tokens"]
    finer = rebilling.bills({"fleets.0.cost.billing.granularity_s": 1})[0]
    assert finer.usd_per_h < bill.usd_per_h


@pytest.mark.parametrize(
    ("billing", "ran", "billed"),
    [(Billing(), 59.5, 60), (Billing(granularity_s=3600), 3600, 3600), (Billing(granularity_s=3600), 3601, 7200),
     (Billing(granularity_s=60, minimum_s=600), 61, 600), (Billing(granularity_s=3600, minimum_s=600), 61, 3600)],
)  # fmt: skip
def test_started_steps_are_paid_whole(billing: Billing, ran: float, billed: float) -> None:
    assert billing.billed_s(ran) == billed


def test_stops_are_where_a_run_ends() -> None:
    def interval(start: float, end: float, state: str) -> Interval:
        return Interval("p", "", 0, state, start, end, 2 * (end - start))

    found = stops([interval(0, 10, "serving"), interval(10, 20, "draining"), interval(20, 50, "off"),
                   interval(50, 60, "booting"), interval(60, 90, "serving")])  # fmt: skip
    assert found == [ReplicaStop(20, 20, 2)]


@pytest.mark.parametrize(("text", "minutes"), [("08:30", 510), (510, 510), ("510", 510), ("00:00", 0), ("23:59", 1439)])
def test_a_time_of_day(text: object, minutes: int) -> None:
    found = TypeAdapter(ReplicaSchedule).validate_python({"replicas": {text: 1}, "starting_s": 0})
    assert list(found.replicas) == [minutes]


@pytest.mark.parametrize("text", ["24:00", "8h", "08:60", 1440, True])
def test_no_time_of_day(text: object) -> None:
    with pytest.raises(ValidationError, match="a time of day is needed"):
        TypeAdapter(ReplicaSchedule).validate_python({"replicas": {text: 1}, "starting_s": 0})


@pytest.mark.slow
@given(replicas=st.dictionaries(st.integers(0, 1439), st.integers(0, 5), min_size=1), at=st.floats(0, 86399))
def test_the_wanted_number_changes_only_at_switching_times(replicas, at) -> None:
    schedule = ReplicaSchedule(replicas=replicas, starting_s=0)
    switches = [0.0, *schedule.switches_s(MIDNIGHT, 86400.0), 86400.0]
    before = max(time for time in switches if time <= at)
    assert schedule.wanted(at) == schedule.wanted(before)


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"replicas": '{"06:30": 2}'}, "pools.0.replicas: must be 2, the highest number in the schedule, not 3"),
        ({"replicas": '{"25:00": 3}'}, "a time of day is needed"),
        ({"replicas": "{}"}, "replicas"),
    ],
)
def test_bad_schedules(tmp_path: Path, values: dict[str, object], line: str) -> None:
    with pytest.raises(ScenarioErrors) as caught:
        scenario_of(tmp_path, **values)
    assert line in str(caught.value)


def arrivals(transfers: list[tuple[float, StartTransfer, int]]) -> list[float]:
    """Return the time at which each of (begins [s], transfer, server) is complete."""
    env = FleetClock()
    links, ended = Links(env), [-1.0] * len(transfers)

    def begin(place: int, transfer: StartTransfer, server: int) -> None:
        links.send(transfer, server, lambda: ended.__setitem__(place, env.now))

    for place, (at_s, transfer, server) in enumerate(transfers):
        env.timeout(at_s).callbacks.append(lambda _, p=place, t=transfer, s=server: begin(p, t, s))
    while env.next_s() < inf:
        env.step()
    return ended


def store(size_bytes: float, most: float = 1e9, of_server: bool = False) -> StartTransfer:
    return StartTransfer(size_bytes, "store", of_server, 1e9, most)


def test_replicas_that_load_at_once_share_the_link() -> None:
    # alone 10 s; the second comes at 4 s: 6 GB + 10 GB are left for 1 GB/s, the first ends when both have had 6 GB
    assert arrivals([(0, store(10e9), 0), (4, store(10e9), 1)]) == pytest.approx([16.0, 20.0])
    # who can take a quarter only leaves the rest to the other
    assert arrivals([(0, store(5e9, most=0.25e9), 0), (0, store(15e9), 1)]) == pytest.approx([20.0, 20.0])
    # each server has its own disk
    assert arrivals([(0, store(10e9, of_server=True), server) for server in (0, 1)]) == pytest.approx([10.0, 10.0])
    assert arrivals([(0, store(10e9, of_server=True), 0)] * 2) == pytest.approx([20.0, 20.0])


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20), st.sampled_from([0.1, 0.5, 1.0])), max_size=8))
def test_a_shared_link_gives_no_more_than_it_has(
    wanted: list[tuple[int, int, float]],
) -> None:
    transfers = [(at, store(size * 1e9, most * 1e9), 0) for at, size, most in wanted]
    ended = arrivals(transfers)
    for end_s, (at_s, transfer, _) in zip(ended, transfers, strict=True):
        assert end_s >= at_s + transfer.alone_s - 1e-6
    if wanted:
        assert max(ended) >= min(at for at, *_ in wanted) + sum(size for _, size, _ in wanted) - 1e-6


def test_a_cancelled_start_leaves_its_link_share_to_the_others() -> None:
    env = FleetClock()
    links, ended = Links(env), []
    first = links.send(store(10e9), 0, lambda: ended.append(("first", env.now)))
    links.send(store(10e9), 1, lambda: ended.append(("second", env.now)))
    env.timeout(4).callbacks.append(lambda _: first.link.stop(first))
    while env.next_s() < inf:
        env.step()
    assert ended == [("second", pytest.approx(12.0))]


@pytest.mark.parametrize("state", State)
def test_time_and_energy_of_every_state_have_one_phase(state: State) -> None:
    one = Interval("p", "", 0, state.value, 0.0, 10.0, 40.0, server_energy_j=500.0, idle_energy_j=500.0)
    phase = OF_STATE.get(state.value, "idle")
    for split, whole in ((seconds_by_phase(one), 10.0), (gpu_s_by_phase(one), 40.0), (wall_j_by_phase(one), 500.0)):
        assert fsum(split) == whole
        assert getattr(split, phase) == whole
    assert split._fields == tuple(name.replace(" ", "_") for name in PHASES)
    assert (phase == "idle") == (STATE_PROPERTIES[state].routed or state in (State.OFF, State.DRAINING))
