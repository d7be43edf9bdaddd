"""Requests that are turned away, and replicas that are left alone, while too much is asked of a fleet."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from engine_workloads import rank_limits
from small_scenario import ONE_SEAT, planned, variant

from sim.batching import POLICIES, PrefillFirst
from sim.catalogue.catalog import load_catalog
from sim.engine.schedulers.prefill_first import SglangScheduler
from sim.engine.synchronous import VllmEngine
from sim.failures import FailureDomain, FailureTimes
from sim.fleet.admission import LimitedServer
from sim.fleet.clock import FleetClock
from sim.fleet.fleet import RunningFleet
from sim.fleet.intake import SequentialIntakeEngine
from sim.fleet.replica import Replica
from sim.records import FleetLog, Request
from sim.routing.admission import Admission, Ejection
from sim.scenario.resolving.resolved import CasePlan, FailurePlan
from sim.workload.client import Client

CATALOG = load_catalog()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CasePlan:
    return planned(
        tmp_path_factory.mktemp("admission"), variant(ONE_SEAT, {"workload.arrivals.rate_rps": 1.6, "horizon_s": 1000})
    )


def run(plan: CasePlan, **changes: object) -> FleetLog:
    return RunningFleet(replace(plan, **changes)).run()


@pytest.mark.slow
def test_a_queue_limit_refuses_as_many_as_in_the_closed_form(plan: CasePlan) -> None:
    """M/M/1/K: the share of arrivals that find the system full."""
    most, load = 4, 1.6 * 40 / 64
    expected = load**most / sum(load**n for n in range(most + 1))
    shares = []
    for replication in range(6):
        log = run(plan, admission=Admission(max_outstanding=most), replication=replication)
        shares.append(np.mean([one.rejected for one in log.requests]))
        assert {one.status for one in log.requests} == {"finished", "rejected"}
    half = NormalDist().inv_cdf(0.9995) * np.std(shares, ddof=1) / 6**0.5
    assert np.mean(shares) == pytest.approx(expected, abs=half)


def limited(plan: CasePlan, policy: str = "", ranks: int = 1, **limits: object) -> CasePlan:
    """*plan* with queue limits of the server."""
    pool, limits = plan.pools[0], limits | ({"policy": policy} if policy else {})
    kind = POLICIES[policy] if policy else type(pool.batching)
    known = {key: value for key, value in pool.batching.model_dump().items() if key in kind.model_fields}
    batching = kind(**known | limits)
    return replace(plan, pools=(replace(pool, batching=batching, data_parallel_size=ranks),))


@pytest.mark.slow
def test_a_server_queue_limit_refuses_the_same_requests_as_the_gateway(plan: CasePlan) -> None:
    short = replace(plan, horizon_s=200.0)
    by_gateway = run(short, admission=Admission(max_outstanding=4))
    sglang = {"policy": "prefill_first", "schedule_conservativeness": 1.0, "max_queued_requests": 3}
    for limits in ({"max_num_queued_reqs": 4}, sglang):
        assert [one.status for one in run(limited(short, **limits)).requests] == [
            one.status for one in by_gateway.requests
        ]
    assert sum(one.rejected for one in by_gateway.requests) > 20


def test_a_full_queue_refuses_the_least_urgent(plan: CasePlan) -> None:
    limits = rank_limits(99, 4, 1, 64, 99, scheduling="priority", schedule_conservativeness=1.0)
    engine = VllmEngine(plan.pools[0].steptime, limits, SglangScheduler)
    replica = Replica(FleetClock(), engine, 0, 0, lambda until_s: None, lambda *finished: None)
    spec = PrefillFirst(policy="prefill_first", scheduling="priority", max_queued_requests=2)
    server, refused = LimitedServer(spec, [replica]), []
    for index, priority in enumerate([1, 2, 1, 2, 0, 0]):
        request, now = Request(index, index / 1000, 8, 10, priority=priority), index / 1000
        loser = server.request_to_refuse(request, replica, now)
        refused.append(-1 if loser is None else loser.index)
        if loser is not request:
            if loser is not None:
                engine.evict(loser, now)
            engine.offer(request, now)
            engine.plan(now)
    # an equal one does not push the second out; the fifth and the sixth push out who is last then
    assert refused == [-1, -1, -1, 3, 1, 2]


def test_requests_being_read_count_towards_the_queue_limit(plan: CasePlan) -> None:
    limits = rank_limits(99, 4, 1, 64, 99, schedule_conservativeness=1.0)
    engine = SequentialIntakeEngine(VllmEngine(plan.pools[0].steptime, limits, SglangScheduler), 0.001, limits.serves)
    replica = Replica(FleetClock(), engine, 0, 0, lambda until_s: None, lambda *finished: None)
    server, refused = LimitedServer(PrefillFirst(policy="prefill_first", max_queued_requests=3), [replica]), 0
    for index in range(20):
        request = Request(index, 0.0, 8, 10)
        if server.request_to_refuse(request, replica, 0.0) is None:
            engine.offer(request, 0.0)
        else:
            refused += 1
    assert (refused, engine.waiting()) == (17, 3)


def test_the_limits_of_a_vllm_server_are_those_of_all_its_ranks(plan: CasePlan) -> None:
    busy = replace(at_rate(plan, 6.0), horizon_s=30.0)
    for limits, most in (({"max_num_queued_reqs": 3}, 3), ({"max_num_queued_tokens": 1}, None)):
        requests = run(limited(busy, ranks=2, **limits)).requests
        for one in requests:
            before = [each for each in requests if each.arrived_s < one.arrived_s and not each.rejected]
            if most is None:  # a prompt has one token: nobody waits for its first one
                assert one.rejected is any(not each.first_token_s < one.arrived_s for each in before)
            else:
                assert one.rejected is (sum(not each.finished_s < one.arrived_s for each in before) >= most)
        assert {one.replica for one in requests if not one.rejected} == {0, 1}
        assert 10 < sum(one.rejected for one in requests) < len(requests) - 10


@pytest.mark.slow
def test_requests_that_a_full_cache_ends_are_sent_again(plan: CasePlan) -> None:
    busy = replace(at_rate(plan, 3.0), horizon_s=40.0)
    shared = limited(busy, "slots", kv_unified=True, max_num_seqs=4, max_model_len=200)
    once, often = run(shared), run(shared, client=Client(attempts=9, backoff_s=0.5))
    for log in (once, often):
        assert {one.status for one in log.requests} == {"finished", "rejected"}
        assert all(one.finished_s > 0 for one in log.requests if one.status == "finished")
    ended = [one for one in once.requests if one.left]
    assert len(ended) > 10
    assert all(one.rejected and one.started_s >= one.arrived_s for one in ended)
    assert sum(one.attempts > 1 and not one.rejected for one in often.requests) > 10


@pytest.mark.slow
def test_requests_that_a_pipeline_of_sglang_aborts_are_sent_again(plan: CasePlan) -> None:
    tight = limited(plan, "prefill_first", schedule_conservativeness=1.0, num_gpu_blocks=12, max_num_seqs=4)
    tight = replace(tight, pools=(replace(tight.pools[0], pipeline_parallel_size=2),), horizon_s=20.0)
    once, often = run(tight), run(tight, client=Client(attempts=9, backoff_s=0.5))
    ended = [one for one in once.requests if one.left]
    assert ended
    assert all(one.status == "rejected" for one in ended)
    assert any(one.attempts > 1 and one.status == "finished" for one in often.requests)


@pytest.mark.slow
def test_refused_clients_send_again(plan: CasePlan) -> None:
    rules = Admission(max_outstanding=2)
    for backoff_s in (0.0, 1.0):
        log = run(plan, admission=rules, client=Client(attempts=3, backoff_s=backoff_s), horizon_s=200.0)
        assert {one.attempts for one in log.requests} >= {1, 3}
        assert all(one.attempts == 3 for one in log.requests if one.rejected)


def at_rate(plan: CasePlan, rate_rps: float) -> CasePlan:
    arrivals = plan.workload.arrivals.model_copy(update={"rate_rps": rate_rps})
    return replace(plan, workload=plan.workload.model_copy(update={"arrivals": arrivals}))


@pytest.mark.slow
def test_a_predicted_wait_keeps_the_queue_short(plan: CasePlan) -> None:
    busy = at_rate(plan, 4.0)
    free = run(busy, horizon_s=100.0)
    kept = run(busy, horizon_s=100.0, admission=Admission(max_predicted_ttft_s=2.0))
    waits = [
        [one.started_s - one.arrived_s for one in log.requests if one.status == "finished"] for log in (free, kept)
    ]
    assert np.median(waits[0]) > 10
    assert 1 < np.percentile(waits[1], 90) < 5


class Once(FailureTimes):
    """Fails at 20 s for 60 s."""

    def outage(self, rng: np.random.Generator) -> tuple[float, float]:
        return 20.0, 60.0


def test_a_replica_whose_requests_time_out_is_ejected(plan: CasePlan) -> None:
    # nobody notices the failure for two minutes, but clients do
    failures = FailurePlan((FailureDomain("replica 0", (0,), Once(1, 1)),), detection_s=120.0)
    pools = (replace(plan.pools[0], replicas=2, failures=failures),)
    client = Client(timeout_s=3, attempts=10, backoff_s=0.5)
    lost = []
    for ejection in (None, Ejection(timeouts=3, for_s=40)):
        admission = Admission(max_outstanding=100, ejection=ejection) if ejection else None
        log = run(at_rate(plan, 0.8), pools=pools, client=client, admission=admission, horizon_s=100.0)
        assert all(one.status == "finished" for one in log.requests if one.arrived_s < 80)
        lost.append(sum(one.attempts - 1 for one in log.requests))
    assert lost[1] < 0.7 * lost[0]
