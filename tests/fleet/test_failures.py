"""Replicas that break down: long-run availability, repair crews, domains, spares, and requests that are not lost."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from math import comb, factorial, fsum
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import spsolve
from small_scenario import ONE_SEAT, planned, variant

from sim.catalogue.catalog import load_catalog
from sim.coldstart import ReplicaStart, fixed_start
from sim.failures import (
    FailureDomain,
    FailureTimes,
    MaintenanceSpec,
    ServerLayout,
    SpotInterruptions,
    StandbyReplicas,
    domains_of,
)
from sim.fleet.fleet import RunningFleet
from sim.fleet.replica import STATE_PROPERTIES, State
from sim.records import FleetLog
from sim.scenario.replica_schedule import ReplicaSchedule
from sim.scenario.resolving.resolved import CasePlan, FailurePlan
from sim.workload.client import Client

CATALOG = load_catalog()
WITHIN_999 = NormalDist().inv_cdf(0.9995)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CasePlan:
    return planned(tmp_path_factory.mktemp("failures"), variant(ONE_SEAT, {"fleets.0.pools.0.replicas": 2}))


def failing(
    plan: CasePlan, replicas: int, domains: tuple[FailureDomain, ...], rate_rps: float = 1.0, **changes
) -> CasePlan:
    """Return *plan* with *replicas* that fail, and other settings of its failures (*failures*) or of its own."""
    settings_ = {name: changes.pop(name) for name in ("detection_s", "crews", "spares") if name in changes}
    start = changes.pop("start", plan.pools[0].start)
    failures = FailurePlan(domains, **settings_)
    schedule = changes.pop("schedule", None)
    pool = replace(plan.pools[0], replicas=replicas, failures=failures, start=start, schedule=schedule)
    arrivals = plan.workload.arrivals.model_copy(update={"rate_rps": rate_rps})
    return replace(plan, pools=(pool,), workload=plan.workload.model_copy(update={"arrivals": arrivals}), **changes)


def of_replicas(replicas: int, law: FailureTimes) -> tuple[FailureDomain, ...]:
    return domains_of({"replica": law}, ServerLayout(replicas, 1), 1)


def time_in(log: FleetLog) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for one in log.intervals:
        found[one.state] += one.end_s - one.start_s
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [FailureTimes(100, 10), FailureTimes(100, 10, shape=3, repair="lognormal", repair_cv=0.5)]
)
def test_availability_is_that_of_a_renewal_process(plan: CasePlan, law: FailureTimes) -> None:
    replicas, horizon_s = 30, 1e4
    log = RunningFleet(failing(plan, replicas, of_replicas(replicas, law), 1e-3, horizon_s=horizon_s)).run()
    down = [0.0] * replicas
    for one in log.intervals:
        down[one.replica] += (one.end_s - one.start_s) * (one.state != "serving")
    half = WITHIN_999 * float(np.std(down, ddof=1)) / replicas**0.5
    assert fsum(down) / replicas == pytest.approx((1 - law.availability) * log.end_s, abs=half)


@pytest.mark.slow
def test_few_crews_are_those_of_the_machine_repairman(plan: CasePlan) -> None:
    machines, crews, fails, mends = 5, 2, 1 / 100, 1 / 60
    weights = []
    for down in range(machines + 1):
        busy = factorial(down) if down <= crews else factorial(crews) * crews ** (down - crews)
        weights.append(comb(machines, down) * factorial(down) / busy * (fails / mends) ** down)
    expected = sum(down * weight for down, weight in enumerate(weights)) / sum(weights)
    domains = of_replicas(machines, FailureTimes(1 / fails, 1 / mends))
    means = []
    for replication in range(10):
        case = failing(plan, machines, domains, 1e-3, crews=crews, horizon_s=1e4, replication=replication)
        log = RunningFleet(case).run()
        means.append(time_in(log)["repairing"] / log.end_s)
    assert np.mean(means) == pytest.approx(expected, abs=WITHIN_999 * np.std(means, ddof=1) / 10**0.5)


@pytest.mark.slow
def test_a_queue_with_breakdowns_is_as_long_as_in_closed_form(plan: CasePlan) -> None:
    """M/M/1 whose server breaks down at any time and goes on where it stopped (White and Christie, 1958)."""
    arrive, serve, fail, mend = 0.4, 64 / 40, 1 / 20, 1 / 5
    up = mend / (fail + mend)
    drift = serve - arrive - fail * arrive / mend
    slope = arrive + fail * arrive * (mend + arrive) / mend**2
    on = up * slope / drift
    expected = on + fail * on / mend + fail * arrive * up / mend**2
    means = []
    for replication in range(10):
        case = failing(
            plan, 1, of_replicas(1, FailureTimes(1 / fail, 1 / mend)), arrive,
            horizon_s=2000.0, replication=replication,
            client=Client(attempts=10_000, backoff_s=0, retry="resume"),
        )  # fmt: skip
        log = RunningFleet(case).run()
        assert all(one.status == "finished" for one in log.requests)
        means.append(fsum(one.finished_s - one.arrived_s for one in log.requests) / 2000)
    # steps of 1/64 s end a stop late, half a step in the mean
    assert np.mean(means) == pytest.approx(expected, abs=WITHIN_999 * np.std(means, ddof=1) / 10**0.5)


laws = st.builds(FailureTimes, st.sampled_from([3.0, 20.0]), st.sampled_from([0.5, 4.0]))
failures = st.fixed_dictionaries(
    {},
    optional={
        "detection_s": st.sampled_from([0.0, 0.5, 3.0]),
        "crews": st.integers(1, 2),
        "spares": st.builds(StandbyReplicas, count=st.just(1), kind=st.sampled_from(["hot", "warm", "cold"])),
        "schedule": st.just(ReplicaSchedule(replicas={0: 3}, starting_s=None)),
    },
)


@pytest.mark.slow
@given(
    law=laws, of_server=laws, settings_=failures, seed=st.integers(0, 1000), start_s=st.sampled_from([0.0, 2.0]),
    timeout_s=st.sampled_from([None, 1.0, 5.0]), retry=st.sampled_from(["restart", "resume"]),
)  # fmt: skip
@settings(max_examples=20, deadline=None)
def test_no_request_is_lost(plan, law, of_server, settings_, seed, start_s, timeout_s, retry) -> None:
    if "schedule" in settings_:
        settings_.pop("spares", None)
    domains = domains_of({"replica": law, "server": of_server}, ServerLayout(3, 1, replicas_per_server=2), 1)
    client = None if timeout_s is None else Client(timeout_s=timeout_s, attempts=5, backoff_s=0.25, retry=retry)
    stages = ReplicaStart(fixed_start(start_s))
    case = failing(
        plan, 3, domains, 3.0, seed=seed, horizon_s=12.0, drain_limit_s=1e5, client=client, start=stages, **settings_
    )
    fleet = RunningFleet(case)
    log = fleet.run()
    assert fleet._outstanding == 0
    for one in log.requests:
        assert one.status in (("finished",) if client is None else ("finished", "timed_out", "lost"))
        if client is not None:
            assert one.attempts <= 5
        if one.status == "finished":
            assert one.arrived_s <= one.started_s <= one.first_token_s <= one.finished_s
    for replica in range(3):
        intervals = sorted((i for i in log.intervals if i.replica == replica), key=lambda i: i.start_s)
        assert (intervals[0].start_s, intervals[-1].end_s) == (0.0, log.end_s)
        assert all(a.end_s == b.start_s for a, b in pairwise(intervals))
        assert all(i.server_energy_j == 0 or STATE_PROPERTIES[State(i.state)].powered for i in intervals)


def moves(log: FleetLog, replica: int) -> list[float]:
    return [one.start_s for one in log.intervals if one.replica == replica and one.state == "repairing"]


@pytest.mark.slow
def test_fleets_meet_the_same_failures(plan: CasePlan) -> None:
    law = FailureTimes(30, 2)
    few = RunningFleet(failing(plan, 2, of_replicas(2, law), 0.1, horizon_s=500.0, drain_limit_s=0.0)).run()
    many = RunningFleet(failing(plan, 5, of_replicas(5, law), 2.0, horizon_s=500.0, drain_limit_s=0.0)).run()
    assert [moves(few, place) for place in range(2)] == [moves(many, place) for place in range(2)]
    assert moves(few, 0)
    assert moves(few, 0) != moves(few, 1)


@pytest.mark.slow
def test_two_replicas_that_break_down_are_as_full_as_their_markov_chain(plan: CasePlan) -> None:
    """The shorter queue of two servers that fail independently; the other one goes on with what a failed one had."""
    arrive, serve, fail, mend = 1.4, 64 / 40, 1 / 20, 1 / 5
    expected = mean_in_chain(arrive, serve, fail, mend, most=60)
    means = []
    for replication in range(10):
        case = failing(
            plan, 2, of_replicas(2, FailureTimes(1 / fail, 1 / mend)), arrive,
            horizon_s=800.0, replication=replication,
            client=Client(attempts=10_000, backoff_s=0, retry="resume"),
        )  # fmt: skip
        log = RunningFleet(case).run()
        assert all(one.status == "finished" for one in log.requests)
        means.append(fsum(one.finished_s - one.arrived_s for one in log.requests) / 800)
    assert np.mean(means) == pytest.approx(expected, abs=WITHIN_999 * np.std(means, ddof=1) / 10**0.5)


def mean_in_chain(arrive: float, serve: float, fail: float, mend: float, most: int) -> float:
    """Mean number of requests, at most *most*: both serve (a, b), one serves with all (n,), or none does (n, None)."""
    both = [(a, b) for a in range(most + 1) for b in range(most + 1 - a)]
    states = {state: i for i, state in enumerate([*both, *((n,) for n in range(most + 1))])}
    states |= {(n, None): len(states) + n for n in range(most + 1)}
    moves: dict[tuple[int, int], float] = defaultdict(float)
    for state, i in states.items():
        queues = [n for n in state if n is not None]
        total, down = sum(queues), 2 - len(queues) if None not in state else 2
        to: list[tuple[tuple, float]] = []
        if down == 0:
            shorter = queues.index(min(queues))
            for place, n in enumerate(queues):
                other = queues[1 - place]
                to += [((other, n - 1), serve)] if n else []
                to += [((other, n + 1), arrive)] if place == shorter and total < most else []
            to.append(((total,), 2 * fail))
        elif down == 1:
            to += [((total - 1,), serve)] if total else []
            to += [((total + 1,), arrive)] if total < most else []
            to += [((total, None), fail), ((total, 0), mend)]
        else:
            to += [((total + 1, None), arrive)] if total < most else []
            to.append(((total,), 2 * mend))
        for following, rate in to:
            moves[states[following], i] += rate
            moves[i, i] -= rate
    for i in range(len(states)):
        moves[0, i] = 1.0  # in place of one balance equation: the probabilities sum to one
    places, rates = zip(*moves.items(), strict=True)
    rows, columns = zip(*places, strict=True)
    right = np.zeros(len(states))
    right[0] = 1.0
    chances = spsolve(csc_matrix((rates, (rows, columns))), right)
    return float(sum(chance * sum(n for n in state if n) for state, chance in zip(states, chances, strict=True)))


class Once(FailureTimes):
    """Fails at 20 s for 30 s."""

    def outage(self, rng: np.random.Generator) -> tuple[float, float]:
        return 20.0, 30.0


class EveryQuarter(FailureTimes):
    """Fails 15 s after it began to work."""

    def outage(self, rng: np.random.Generator) -> tuple[float, float]:
        return 15.0, 30.0


@pytest.mark.parametrize(("kind", "state", "takes_over_s"), [("warm", "reserve", 23.0), ("cold", "off", 30.0)])
def test_a_spare_takes_over_after_its_start(plan: CasePlan, kind: str, state: str, takes_over_s: float) -> None:
    domains = (FailureDomain("replica 0", (0,), Once(1, 1)),)
    spares = StandbyReplicas(count=1, kind=kind, takeover_s=2.0 if kind == "warm" else 0.0)
    case = failing(
        plan, 2, domains, spares=spares, detection_s=1.0, drain_limit_s=0.0,
        horizon_s=100.0, start=ReplicaStart(fixed_start(9.0)),
    )  # fmt: skip
    log = RunningFleet(case).run()
    life = {place: [(i.state, i.start_s) for i in log.intervals if i.replica == place] for place in (0, 1)}
    assert life[0][:3] == [("serving", 0.0), ("failed", 20.0), ("repairing", 21.0)]
    # back at 51 s it is not wanted: the spare serves
    assert [one for one, at in life[0] if at == 51.0] == ["booting" if kind == "warm" else "off"]
    assert life[1] == [(state, 0.0), ("booting", 21.0), ("serving", takes_over_s)]
    assert all(one.status == "finished" for one in log.requests if one.arrived_s < 60)


def test_requests_to_a_failed_replica_are_stranded_until_detection(plan: CasePlan) -> None:
    domains = (FailureDomain("replica 0", (0,), Once(1, 1)),)
    late = RunningFleet(failing(plan, 2, domains, 2.5, detection_s=10.0, horizon_s=48.0)).run()
    early = RunningFleet(failing(plan, 2, domains, 2.5, detection_s=0.0, horizon_s=48.0)).run()
    hit = [one for one in late.requests if one.attempts > 1]
    assert len(hit) > sum(one.attempts > 1 for one in early.requests)
    # the step under way is dropped: whoever is dead does not go on
    assert time_in(late)["failed"] == 10.0
    assert all(one.busy_s == 0 for one in late.intervals if one.state == "failed")
    # all of them began anew when the failure was noticed, at 30 s
    assert all(one.first_token_s >= 30.0 for one in hit)
    assert {one.arrived_s > 20 for one in hit} == {True, False}


@pytest.mark.parametrize(("kind", "fails_s"), [("replica", 30.0), ("rack", 15.0)])
def test_components_that_are_switched_off_do_not_fail(plan: CasePlan, kind: str, fails_s: float) -> None:
    # the spare is off at 15 s and serves from 20 s on
    serving, spare = domains_of({kind: Once(1, 1)}, ServerLayout(2, 1), 1)
    domains = (serving, replace(spare, law=EveryQuarter(1, 1)))
    log = RunningFleet(failing(plan, 2, domains, spares=StandbyReplicas(count=1, kind="cold"), horizon_s=45.0)).run()
    assert [moves(log, place)[0] for place in (0, 1)] == [20.0, fails_s]


def states_of(log: FleetLog, replica: int) -> list[tuple[str, float]]:
    return [(i.state, i.start_s) for i in log.intervals if i.replica == replica]


def test_maintenance_drains_one_server_after_another(plan: CasePlan) -> None:
    case = failing(plan, 2, (), 1.0, horizon_s=100.0, drain_limit_s=50.0)
    work = MaintenanceSpec(every_h=60 / 3600, takes_h=5 / 3600)
    failures = FailurePlan((), servers=((0,), (1,)), maintenance=work)
    case = replace(case, pools=(replace(case.pools[0], failures=failures),))
    log = RunningFleet(case).run()
    assert all(one.status == "finished" and one.attempts == 1 for one in log.requests)
    for replica, begins_s in ((0, 30.0), (1, 60.0)):
        out_s = moves(log, replica)[0]
        assert begins_s <= out_s < begins_s + 3
        serving = [at for state, at in states_of(log, replica) if state == "serving"]
        assert serving[1] == pytest.approx(out_s + 5)


def spot_plan(plan: CasePlan, spot: SpotInterruptions, start_s: float = 0.0, **changes) -> CasePlan:
    """Three spot replicas and two on demand that stand in for them."""
    stages = ReplicaStart(fixed_start(start_s))
    pools = (
        replace(plan.pools[0], name="spot", replicas=3, spot=spot, start=stages),
        replace(plan.pools[0], name="on demand", replicas=2, on_call=spot.fallback is not None, start=stages),
    )
    return replace(plan, pools=pools, **changes)


def test_a_trace_of_spot_capacity_is_followed_with_notice_and_a_fallback(plan: CasePlan) -> None:
    spot = SpotInterruptions(trace={10 / 3600: 1, 40 / 3600: 3}, notice_s=2.0, fallback="on demand")
    log = RunningFleet(spot_plan(plan, spot, 5.0, horizon_s=80.0, drain_limit_s=200.0)).run()
    assert all(one.status == "finished" for one in log.requests)
    assert [state for state, _ in states_of(log, 0)] == ["serving", "draining"]
    for replica in (1, 2):
        life = dict(reversed(states_of(log, replica)))
        assert life["off"] <= 12.0
        assert life["booting"] == 40.0
    for replica in (3, 4):
        states = states_of(log, replica)
        assert states[:3] == [("off", 0.0), ("booting", 10.0), ("serving", 15.0)]
        # back at 45 s, the spot replicas need nobody to stand in for them
        assert next(at for state, at in states[3:] if state in ("off", "draining")) == 45.0


def test_requests_of_an_interrupted_spot_replica_continue_elsewhere(plan: CasePlan) -> None:
    spot = SpotInterruptions(trace={10 / 3600: 1}, notice_s=30.0, on_notice="migrate")
    log = RunningFleet(spot_plan(busy(plan, 5), spot, horizon_s=15.0, drain_limit_s=200.0)).run()
    moved = [one for one in log.requests if one.left]
    assert {one.left[0].left_s for one in moved} == {10.0}
    assert any(one.kept_tokens for one in moved)
    assert all(one.status == "finished" and one.attempts == 1 for one in log.requests)
    assert all(states_of(log, replica)[1] == ("off", 10.0) for replica in (1, 2))
    # no token is made twice
    assert sum(one.output_tokens for one in log.intervals) == sum(one.output_tokens for one in log.requests)


def busy(plan: CasePlan, rate_rps: float) -> CasePlan:
    arrivals = plan.workload.arrivals.model_copy(update={"rate_rps": rate_rps})
    return replace(plan, workload=plan.workload.model_copy(update={"arrivals": arrivals}))


def test_spot_capacity_that_returns_within_the_notice_is_another_instance(plan: CasePlan) -> None:
    spot = SpotInterruptions(trace={10 / 3600: 2, 12 / 3600: 3}, notice_s=5.0)
    case = spot_plan(busy(plan, 30), spot, 4.0, horizon_s=25.0, drain_limit_s=10.0)
    states = states_of(RunningFleet(case).run(), 2)
    assert states[:4] == [("serving", 0.0), ("draining", 10.0), ("booting", 15.0), ("serving", 19.0)]


@pytest.mark.slow
def test_every_notice_has_the_stated_length(plan: CasePlan) -> None:
    # nothing to answer at first, so the instance is gone at once; the second time it answers to the end of the notice
    spot = SpotInterruptions(trace={0: 2, 1 / 3600: 3, 20 / 3600: 2}, notice_s=25.0)
    case = spot_plan(busy(plan, 30), spot, 4.0, horizon_s=30.0, drain_limit_s=30.0)
    states = states_of(RunningFleet(case).run(), 2)
    states = [one for one in states if one != ("draining", 30.0)]  # a reading at the horizon
    assert states == [("off", 0.0), ("booting", 1.0), ("serving", 5.0), ("draining", 20.0), ("off", 45.0)]


def test_replicas_that_begin_to_serve_at_once_share_the_waiting_requests(plan: CasePlan) -> None:
    spot = SpotInterruptions(trace={0: 0, 10 / 3600: 3}, notice_s=0.0)
    case = spot_plan(busy(plan, 4), spot, 5.0, horizon_s=15.0, drain_limit_s=1e4)
    case = replace(case, pools=case.pools[:1])
    waited = Counter(one.replica for one in RunningFleet(case).run().requests if one.arrived_s < 15)
    assert len(waited) == 3
    assert max(waited.values()) <= min(waited.values()) + 1


@pytest.mark.slow
@given(
    seed=st.integers(0, 1000), notice_s=st.sampled_from([0.0, 0.5]), fallback=st.sampled_from([None, "on demand"]),
    on_notice=st.sampled_from(["drain", "migrate"]),
)  # fmt: skip
@settings(max_examples=8, deadline=None)
def test_interrupted_spot_replicas_lose_no_request(plan, seed, notice_s, fallback, on_notice) -> None:
    spot = SpotInterruptions(
        interruptions_per_h=600, recovery_h=3 / 3600, notice_s=notice_s, fallback=fallback, on_notice=on_notice
    )
    case = spot_plan(plan, spot, 1.0, seed=seed, horizon_s=20.0, drain_limit_s=1e5)
    law, pool = FailureTimes(20, 2), case.pools[1]
    case = replace(case, pools=(case.pools[0], replace(pool, failures=FailurePlan(of_replicas(2, law)))))
    fleet = RunningFleet(case)
    log = fleet.run()
    assert fleet._outstanding == 0
    assert all(one.status == "finished" for one in log.requests)
    assert sum(one.attempts > 1 for one in log.requests) >= 0
