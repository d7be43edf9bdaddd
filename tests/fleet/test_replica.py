"""A replica's states: which may follow, what they mean for rent, and how time and energy split over them.

Requests that are taken from one replica and sent to another: none is lost, and every visit is on record.
"""

from collections import defaultdict
from itertools import pairwise
from math import fsum, inf, isnan
from pathlib import Path

import pytest
from engine_workloads import rank_limits
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenario import ran

from sim.case.result import CaseResult
from sim.catalogue.catalog import load_catalog
from sim.cost.charge import UnitPrice
from sim.cost.metering import ONE_HOUR, ByPhase, stops
from sim.cost.rental import Billing, RentedTime
from sim.engine.synchronous import VllmEngine
from sim.fleet.clock import FleetClock
from sim.fleet.replica import STATE_PROPERTIES, IllegalTransition, Replica, ReplicaLifecycle, State
from sim.records import Batch, Interval, Leap, ReplicaProgress, Request

CATALOG = load_catalog()
SCENARIO = """\
name: switched
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: %(rate)s}
  lengths:
    prompt: {distribution: fixed, value: 300}
    output: {distribution: fixed, value: %(output)d}
horizon_s: 3600
warmup_s: 100
meter_interval_s: 500
starts_at: 2026-07-01T06:00:00
fleets:
  - name: a
    pools: [{gpu: rtx-4090, replicas: 3, schedule: {replicas: %(replicas)s, starting_s: 130}}]
    routing: {policy: least_outstanding}
"""


def run(folder: Path, replicas: str, rate: str = "0.5", output: int = 50) -> CaseResult:
    return ran(folder, SCENARIO % {"replicas": replicas, "rate": rate, "output": output})


def test_every_state_can_be_reached_and_left() -> None:
    assert set(STATE_PROPERTIES) == set(State)
    reached = {State.OFF}
    while more := {state for one in reached for state in STATE_PROPERTIES[one].successors} - reached:
        reached |= more
    assert reached == set(State)
    assert all(state is State.OFF or State.OFF in STATE_PROPERTIES[state].successors for state in State)
    assert all(state not in STATE_PROPERTIES[state].successors for state in State)
    assert [state for state in State if STATE_PROPERTIES[state].routed] == [State.SERVING]


@pytest.mark.parametrize("state", State)
def test_rent_counts_the_states_that_the_table_says(state: State) -> None:
    def interval(start_s: float, end_s: float, what: str) -> Interval:
        return Interval("p", "", 0, what, start_s, end_s, end_s - start_s)

    charge = RentedTime("rental", "p", "", 1.0, UnitPrice(1.0, "GPU-h", ""), Billing())
    charged = charge.by_phase(interval(0, 10, state.value), ONE_HOUR)
    assert fsum(charged) == (10 if STATE_PROPERTIES[state].rented else 0)
    assert isinstance(charged, ByPhase)
    ends = stops([interval(0, 10, "serving"), interval(10, 20, state.value)])
    assert bool(ends) is not STATE_PROPERTIES[state].rented


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(State)), max_size=40))
def test_transitions_follow_the_table_and_are_reported_in_order(moves: list[tuple[int, State]]) -> None:
    told: list[tuple[int, State, State]] = []
    openings = []
    states = [State.OFF, State.OFF, State.SERVING]
    lifecycle = ReplicaLifecycle(
        states, lambda *move: told.append((*move, states[move[0]])), lambda: openings.append(list(states))
    )
    for replica, state in moves:
        before, count = states[replica], len(told)
        if state is before:
            lifecycle.move([replica], state)
            assert len(told) == count
        elif state in STATE_PROPERTIES[before].successors:
            lifecycle.move([replica], state)
            # told while it still was in the former state
            assert told[-1] == (replica, before, state, before)
            assert states[replica] is state
        else:
            with pytest.raises(IllegalTransition, match=f"replica {replica} is {before} and cannot be {state} next"):
                lifecycle.move([replica], state)
            assert states[replica] is before
    assert len(openings) == sum(after is State.SERVING for _, _, after, _ in told)
    assert lifecycle.moves == [sum(replica == one for replica, *_ in told) for one in range(3)]


def test_replicas_that_belong_together_open_at_once() -> None:
    states = [State.DRAINING, State.BOOTING, State.SERVING]
    seen = []
    ReplicaLifecycle(states, lambda *_: None, lambda: seen.append(list(states))).move([0, 1, 2], State.SERVING)
    assert seen == [[State.SERVING] * 3]


@pytest.mark.slow
def test_time_and_energy_tile_over_states_and_each_replica_is_read_for_itself(tmp_path: Path) -> None:
    result = run(tmp_path, '{"06:00": 1, "06:05": 3, "06:20": 1, "06:31": 2, "06:40": 3}')
    log, power = result.log, result.plan.pools[0].power
    assert power is not None
    of_replica: dict[int, list[Interval]] = defaultdict(list)
    for interval in log.intervals:
        of_replica[interval.replica].append(interval)
    idle_w = power.server_energy_j(1.0, power.gpu_energy_j(1.0, 0.0))
    fixed = {100.0, *(500.0 * n for n in range(1, 8)), 3600.0, log.end_s}
    for intervals in of_replica.values():
        intervals.sort(key=lambda one: one.start_s)
        assert (intervals[0].start_s, intervals[-1].end_s) == (0.0, log.end_s)
        assert all(a.end_s == b.start_s for a, b in pairwise(intervals))
        # cut at the fixed readings and where this replica moves, nowhere else
        assert all(a.state != b.state or a.end_s in fixed for a, b in pairwise(intervals))
        for one in intervals:
            duration_s = one.end_s - one.start_s
            loaded_j = power.server_energy_j(duration_s, power.gpu_energy_j(duration_s, one.busy_s))
            least_j = idle_w * duration_s if STATE_PROPERTIES[State(one.state)].powered else 0.0
            assert least_j * (1 - 1e-12) <= one.server_energy_j <= loaded_j * (1 + 1e-12)
            if one.state in ("off", "booting"):
                assert (one.busy_s, one.output_tokens) == (0.0, 0)
                assert one.server_energy_j == pytest.approx(least_j)
    time_s: dict[str, float] = defaultdict(float)
    for one in log.intervals:
        time_s[one.state] += one.end_s - one.start_s
    assert fsum(time_s.values()) == pytest.approx(3 * log.end_s)
    assert time_s["booting"] == pytest.approx(4 * 130)
    made = sum(one.output_tokens for one in log.intervals)
    assert made == sum(request.output_tokens for request in log.requests)


@pytest.mark.slow
def test_held_requests_go_to_a_draining_replica_that_serves_again(tmp_path: Path) -> None:
    # the only replica drains from 06:05 on, with an answer of minutes, and is wanted again a minute later
    result = run(tmp_path, '{"06:00": 3, "06:05": 0, "06:06": 3}', rate="0.1", output=8000)
    held = [one for one in result.log.requests if 300 < one.arrived_s < 360]
    assert held
    assert max(one.started_s for one in held) < 361


def test_a_request_that_never_moves_has_one_visit(tmp_path: Path) -> None:
    result = run(tmp_path, '{"06:00": 3}', rate="0.02")
    for request in result.log.requests:
        (hop,) = request.hops
        assert (hop.replica, hop.came_s, hop.left_s) == (request.replica, request.arrived_s, request.finished_s)
        assert hop.progress is None


LIMITS = rank_limits(num_gpu_blocks=40, block_size=4, max_num_seqs=4, max_num_batched_tokens=32, max_model_len=1000)


class Affine:
    """A sixty-fourth of a second and a little for each token."""

    window = None

    def leap(self, batch: Batch) -> Leap:
        return Leap(2**-6 + 2**-12 * (batch.decode_seqs + batch.prefill_tokens))


class Two:
    """Two replicas; each request begins at the first."""

    def __init__(self, rows: list[Request]) -> None:
        self.env = FleetClock()
        self.finished: list[Request] = []
        self.engines = [VllmEngine(Affine(), LIMITS) for _ in range(2)]
        self.replicas = [
            Replica(self.env, engine, index, 0, lambda until_s: None, lambda _, done, end_s: self.finished.extend(done))
            for index, engine in enumerate(self.engines)
        ]
        for request in rows:
            self.at(request.arrived_s, lambda request=request: self.send(request, 0))

    def at(self, at_s: float, call) -> None:
        self.env.timeout(at_s).callbacks.append(lambda _: call())

    def send(self, request: Request, index: int) -> None:
        now, replica = self.env.now, self.replicas[index]
        request.replica, request.came_s = index, now
        if replica.offer(request, now):
            replica.replan(now)

    def move(self, request: Request) -> None:
        source = request.replica
        if source >= 0 and isnan(request.finished_s) and self.replicas[source].evict([request], self.env.now):
            self.send(request, 1 - source)


@pytest.mark.slow
@given(
    rows=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 60), st.integers(1, 40)), min_size=1, max_size=12),
    moves=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 11)), max_size=25),
)
@settings(max_examples=40, deadline=None)
def test_requests_that_move_are_finished_once(rows, moves) -> None:
    requests = [Request(i, at / 64, prompt, output) for i, (at, prompt, output) in enumerate(sorted(rows))]
    fleet = Two(requests)
    for at, place in moves:
        if place < len(requests):
            fleet.at(at / 128, lambda request=requests[place]: fleet.move(request))
    while fleet.env.next_s() < inf:
        fleet.env.step()
    assert sorted(one.index for one in fleet.finished) == list(range(len(requests)))
    assert all(cache.free == cache.usable for engine in fleet.engines for cache in engine.caches())
    for request in requests:
        hops = request.hops
        assert [hop.replica for hop in hops] == [place % 2 for place in range(len(hops))]
        assert hops[0].came_s == request.arrived_s
        assert hops[-1].left_s == request.finished_s
        assert all(a.left_s == b.came_s for a, b in pairwise(hops))
        assert all(hop.progress.output_tokens < request.output_tokens for hop in hops[:-1])
        assert hops[-1].progress is None
    made = sum(engine.meters(1e9).output_tokens for engine in fleet.engines)
    kept = sum(r.output_tokens + sum(hop.progress.output_tokens for hop in r.left) for r in requests)
    visits = sum(len(r.left) for r in requests)
    assert kept <= made <= kept + visits


def test_a_prompt_begun_elsewhere_is_computed_again() -> None:
    request = Request(0, 0.0, 60, 3)
    fleet = Two([request])
    # two steps compute the prompt and make the first token
    fleet.at(2.5 * (2**-6 + 2**-12 * 32), lambda: fleet.move(request))
    while fleet.env.next_s() < inf:
        fleet.env.step()
    first, second = (engine.meters(1e9) for engine in fleet.engines)
    assert request.left[0].progress == ReplicaProgress(60, 1)
    assert (first.prompt_tokens, first.recomputed_tokens) == (60, 0)
    assert (second.prompt_tokens, second.recomputed_tokens) == (0, 60)
    assert second.prefill_s == 0 < second.recompute_s
