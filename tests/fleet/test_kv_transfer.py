"""Pools that compute prompts and pools that answer: the KV between them, and its closed forms.

KV that leaves layer by layer, and requests between two replicas where clients give up and replicas fail.
"""

from collections import defaultdict
from dataclasses import replace
from itertools import chain
from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_fleets import LIMITS, PAIR, log_of, moved, scenario

from sim.case.result import CaseResult
from sim.fleet.clock import FleetClock
from sim.fleet.kv_transfer import PortNetwork
from sim.memory.kv_cache import SequenceCache
from sim.routing import LeastOutstanding
from sim.routing.kv_transfer import PoolPorts, TransferPlan
from sim.scenario.reading.errors import ScenarioErrors
from sim.study.metrics.case_metrics import measure


@pytest.mark.slow
def test_an_infinite_link_makes_two_queues_in_tandem(tmp_path) -> None:
    _, log = log_of(scenario({"bytes_per_s": 1e30}, PAIR), tmp_path)
    alone = scenario(None, [{"name": "p", "replicas": 3}])
    alone["workload"]["lengths"]["output"] = {"distribution": "fixed", "value": 1}
    _, prompts = log_of(alone, tmp_path)
    assert [one.first_token_s for one in log.requests] == [one.first_token_s for one in prompts.requests]
    assert len(moved(log)) == sum(one.output_tokens > 1 for one in log.requests)
    assert all(one.kv_transfer_s < 1e-12 for one in moved(log))
    assert all(not isnan(one.finished_s) for one in log.requests)
    made = [sum(i.output_tokens for i in log.intervals if i.pool == pool) for pool in ("p", "d")]
    assert made == [len(log.requests), sum(one.output_tokens - 1 for one in log.requests)]
    assert sum(i.prompt_tokens for i in log.intervals if i.pool == "d") == 0


@pytest.mark.slow
def test_one_transfer_at_a_time_is_a_queue_with_one_server(tmp_path) -> None:
    pools = [PAIR[0] | {"replicas": 8}, PAIR[1] | {"replicas": 1}]
    slow = scenario({"bytes_per_s": 5e8, "latency_s": 0.002, "concurrent": 1}, pools)
    fleet, log = log_of(slow | {"horizon_s": 150}, tmp_path)
    service_s = 0.002 + 500 * 30_000 / 5e8
    arrived = sorted((one.first_token_s, one.first_token_s + one.kv_transfer_s) for one in moved(log))
    free_s = 0.0
    for came_s, there_s in arrived:  # Lindley's recursion
        free_s = max(free_s, came_s) + service_s
        assert there_s == pytest.approx(free_s)
    load = len(arrived) / 150 * service_s
    waited_s = sum(there_s - came_s for came_s, there_s in arrived) / len(arrived) - service_s
    assert waited_s == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.2)  # M/D/1
    sent_s = sum(max(0.0, min(there_s, 150.0) - (there_s - service_s + 0.002)) for _, there_s in arrived)
    assert log.kv_sent_bytes == {0: pytest.approx(sent_s * 5e8)}
    figures = measure(CaseResult(fleet._plan, log, None, None))
    assert figures["kv_port_busy_fraction"] == pytest.approx(sent_s / 150)
    assert (figures["kv_transfer_s_p50"], figures["kv_transfer_s_p95"]) == pytest.approx(
        tuple(np.percentile([there_s - came_s for came_s, there_s in arrived if came_s < 150], [50, 95])), rel=0.05
    )
    assert figures["limited_by"] != "kv transfer"


def test_windows_and_states_are_sent_with_the_last_tokens_of_a_prompt(tmp_path) -> None:
    cache = SequenceCache(30_000, window=128, window_token_bytes=5_000, state_bytes=1e6)
    for overlap in ({}, {"overlap": "layers"}):
        data = scenario({"bytes_per_s": 1e9} | overlap, PAIR, rate_rps=2.0)
        _, log = log_of(data, tmp_path, lambda running: None, lambda pool: replace(pool, sequence_cache=cache))
        assert log.kv_sent_bytes == {0: pytest.approx(len(moved(log)) * (500 * 30_000 + 128 * 5_000 + 1e6))}


@pytest.mark.slow
def test_full_ports_limit_throughput(tmp_path) -> None:
    slow = scenario({"bytes_per_s": 2e8}, [PAIR[0], PAIR[1] | {"replicas": 1}])
    fleet, log = log_of(slow | {"horizon_s": 10, "drain_limit_s": 0}, tmp_path)
    figures = measure(CaseResult(fleet._plan, log, None, None))
    assert sum(isnan(one.kv_transfer_s) for one in moved(log)) > 10  # on their way in the end, and carried in part
    assert 0.9 < figures["kv_port_busy_fraction"] <= 1
    assert figures["limited_by"] == "kv transfer"


@pytest.mark.slow
def test_all_blocks_are_free_in_the_end_and_short_prompts_stay(tmp_path) -> None:
    tight = {"batching": LIMITS | {"num_gpu_blocks": 150, "enable_prefix_caching": True}}
    lengths = {"distribution": "uniform", "min": 10, "max": 1500}
    transfer = {"bytes_per_s": 2e8, "min_prompt_tokens": 300, "oversubscription": 2}
    both = {"name": "b", "role": "both", "replicas": 1}
    fleet, log = log_of(scenario(transfer, [pool | tight for pool in [*PAIR, both]], lengths, 6.0), tmp_path)
    for replica in fleet._replicas:
        (pool,) = replica.engine.caches()
        assert pool.free == pool.usable
    long = [one for one in log.requests if one.prompt_tokens >= 300]
    assert len(moved(log)) > 50
    assert all(one.prompt_tokens >= 300 for one in moved(log))
    assert {log.pool_of_replica[one.replica] for one in log.requests if one not in long} == {1, 2}
    assert max(one.kv_transfer_s for one in moved(log)) > 0.5  # some waited for blocks
    assert all(one.status == "finished" for one in log.requests)
    for one in moved(log):
        there, here = one.hops
        assert there.left_s == one.first_token_s <= here.came_s <= one.finished_s
    assert not any(port.flowing for port in fleet._kv_transfers.network.sending)


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(0, 3), st.integers(0, 3), st.integers(1, 50)), min_size=1, max_size=25
    ),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([1.0, 3.0]),
)
@settings(max_examples=30, deadline=None)
def test_no_port_carries_more_than_its_rate_and_all_bytes_arrive(transfers, concurrent, oversubscription) -> None:
    plan = TransferPlan(
        (PoolPorts(8.0), PoolPorts(4.0, 2)), (True, False), 0.125, concurrent, oversubscription, 0,
        LeastOutstanding(policy="least_outstanding"),
    )  # fmt: skip
    pools = [0, 0, 1, 1, 1, 1]
    clock = FleetClock()
    there: dict[int, float] = {}
    network = PortNetwork(clock, plan, pools, lambda transfer, now: there.__setitem__(transfer.payload, now))
    asked: dict[int, tuple[float, float]] = {}
    for number, (at, source, target, size) in enumerate(transfers):
        due = clock.timeout(at / 8)
        asked[number] = at / 8, float(size)
        due.callbacks.append(lambda _, n=number, s=source, t=target, b=size: network.send(n, s % 2, 2 + t, float(b)))
    while clock.next_s() < inf:
        clock.step()
        for port in (*network.sending, *network.receiving, network._core):
            assert sum(one.rate for one in port.flowing) <= port.bytes_per_s * (1 + 1e-12)
    assert there.keys() == asked.keys()
    for number, (at_s, size) in asked.items():
        assert there[number] >= at_s + 0.125 + size / 4.0 - 1e-9
    for target in (0, 1):  # a receiving port, over its whole busy time
        ends = sorted(there[n] for n, row in enumerate(transfers) if row[2] // 2 == target)
        sizes = sum(row[3] for row in transfers if row[2] // 2 == target)
        if ends:
            first = min(row[0] / 8 for row in transfers if row[2] // 2 == target)
            assert sizes <= 4.0 * (ends[-1] - first) + 1e-9


WRONG = {
    "kv_transfer: is missing": (None, PAIR),
    "transfers nothing: no pool has role: prefill": ({"bytes_per_s": 1e9}, [{"name": "p"}]),
    "decode needs another pool with role: prefill": ({"bytes_per_s": 1e9}, [PAIR[1]]),
    "prefill needs another pool with role: decode or both": ({"bytes_per_s": 1e9}, [PAIR[0]]),
    "give either link or bytes_per_s": ({}, PAIR),
    "unknown link": ({"link": "infiniband-ndx"}, PAIR),
    "only vllm can send prompts": (
        {"bytes_per_s": 1e9}, [PAIR[0], PAIR[1] | {"batching": LIMITS | {"policy": "prefill_first"}}]
    ),
    "kv_bytes_per_token: is missing": ({"bytes_per_s": 1e9}, [PAIR[0] | {"kv_bytes_per_token": None}, PAIR[1]]),
    "kv_bytes_per_token: differs from that of pool 0": (
        {"bytes_per_s": 1e9}, [PAIR[0], PAIR[1] | {"kv_bytes_per_token": 7.0}]
    ),
    "kv_transfer.bytes_per_s: must be above 0, not 0": ({"bytes_per_s": 0}, PAIR),
    "kv_bytes_per_token: follows from the model llama3.1-8b: leave it out": (
        {"bytes_per_s": 1e9}, [PAIR[0] | {"model": "llama3.1-8b", "kv_bytes_per_token": 7.0},
                               PAIR[1] | {"model": "llama3.1-8b", "kv_bytes_per_token": None}]
    ),
}  # fmt: skip


@pytest.mark.parametrize("told", WRONG)
def test_invalid_roles_are_reported_in_one_line(told, tmp_path) -> None:
    with pytest.raises(ScenarioErrors) as found:
        log_of(scenario(*WRONG[told]), tmp_path)
    assert [told in str(error) for error in found.value.errors] == [True]


LINK = {"bytes_per_s": 2e8, "latency_s": 0.002}


def transfer_s(request) -> float:
    return 0.002 + request.prompt_tokens * 30_000 / 2e8


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overlap")
    lengths = {"distribution": "uniform", "min": 100, "max": 3000}
    return [log_of(scenario(LINK | overlap, PAIR, lengths, 2.0), folder)[1] for overlap in ({}, {"overlap": "layers"})]


@pytest.mark.slow
def test_layers_never_arrive_before_prompt_and_transfer(both) -> None:
    after, during = both
    assert [one.first_token_s for one in during.requests] == [one.first_token_s for one in after.requests]
    assert len(moved(during)) == len(moved(after)) > 50
    for late, early in zip(moved(after), moved(during), strict=True):
        assert early.index == late.index
        assert early.kv_transfer_s >= 0
        assert early.came_s >= early.started_s + transfer_s(early) - 1e-9
    saved = sum(
        late.kv_transfer_s - early.kv_transfer_s for late, early in zip(moved(after), moved(during), strict=True)
    )
    assert saved > 0.2 * sum(late.kv_transfer_s for late in moved(after))


def test_one_prompt_overlaps_by_hand(tmp_path) -> None:
    """A prompt of one step, alone: all of its KV is sent from the latency on, or as fast as it is computed."""
    for rate, slow in ((2e8, True), (1e12, False)):
        data = scenario({"bytes_per_s": rate, "overlap": "layers"}, PAIR, {"distribution": "fixed", "value": 1000})
        data["workload"]["arrivals"] = {"process": "burst", "num_requests": 1}
        data["workload"]["lengths"]["output"] = {"distribution": "fixed", "value": 5}
        _, log = log_of(data, tmp_path)
        (request,) = log.requests
        step_s = request.first_token_s - request.started_s
        sent_s = 1000 * 30_000 / rate
        assert request.kv_transfer_s == pytest.approx(sent_s - step_s if slow else 0.0, abs=1e-9)


AUTOSCALING = {
    "policy": "hpa", "metric": "outstanding_per_replica", "target": 2, "min_replicas": 1, "max_replicas": 3,
    "sync_period_s": 1,
}  # fmt: skip
FAILING = st.fixed_dictionaries({"mtbf_h": st.sampled_from([0.002, 0.01]), "repair_h": st.just(0.001)})


def count_bytes(fleet) -> None:
    """Check that all KV of every request that moves to another replica is sent and arrives."""
    handover = fleet._kv_transfers
    network = handover.network
    if not hasattr(network, "__dict__"):
        return  # the methods of compiled classes cannot be replaced
    send, arrived, land = network.send, network._arrived, handover._complete
    size: dict = {}
    received: dict = defaultdict(float)

    def sent(move, source, target, size_bytes, production=None):
        transfer = send(move, source, target, size_bytes, production)
        size[transfer] = size_bytes
        return transfer

    def came(transfer, now):
        received[transfer.payload] += size.pop(transfer)
        arrived(transfer, now)

    def landed(move, now):
        assert received[move] == move.request.prompt_tokens * 30_000
        land(move, now)

    network.send, network._arrived, handover._complete = sent, came, landed


@pytest.mark.slow
@given(
    data=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 1000),
            "overlap": st.sampled_from([{}, {"overlap": "layers"}]),
            "concurrent": st.sampled_from([{}, {"concurrent": 1}]),
            "blocks": st.sampled_from([250, 4000]),
            "detection_s": st.sampled_from([0.0, 1.5]),
            "fails": st.tuples(st.none() | FAILING, st.none() | FAILING),
            "client": st.none() | st.just({"timeout_s": 1.0, "attempts": 2, "backoff_s": 0.1}),
            "short": st.sampled_from([0, 300]),
            "spot": st.booleans(),
            "scaled": st.booleans(),
        }
    )
)
@settings(max_examples=12, deadline=None)
def test_every_request_ends_once_whatever_breaks(tmp_path_factory, data) -> None:
    pools = []
    for pool, failing in zip(PAIR, data["fails"], strict=True):
        pool = pool | {"batching": LIMITS | {"num_gpu_blocks": data["blocks"]}}
        if failing is not None:
            pool |= {"failures": {"replica": failing, "detection_s": data["detection_s"]}}
        pools.append(pool)
    if data["spot"]:
        pools[0] = pools[0] | {"spot": {"interruptions_per_h": 600, "recovery_h": 0.0005, "notice_s": 0.5}}
    if data["scaled"] and data["fails"][1] is None:
        pools[1] = pools[1] | {"autoscaling": AUTOSCALING, "cold_start": {"total_s": 1.0}}
    transfer = {"bytes_per_s": 1e8, "min_prompt_tokens": data["short"]} | data["overlap"] | data["concurrent"]
    given_ = scenario(transfer, pools, {"distribution": "uniform", "min": 10, "max": 2500}, 3.0)
    given_ |= {"horizon_s": 12, "drain_limit_s": 10_000, "seed": data["seed"]}
    if data["client"] is not None:
        given_["client"] = data["client"]
    fleet, log = log_of(given_, tmp_path_factory.mktemp("broken"), count_bytes)
    assert len({one.index for one in log.requests}) == len(log.requests)
    for one in log.requests:
        assert one.status in ("finished", "timed_out", "lost", "rejected")
        assert isnan(one.finished_s) == (one.status != "finished")
        if one.status == "finished" and one.prefill_replica >= 0:
            assert 0 <= one.kv_transfer_s < inf
    handover = fleet._kv_transfers
    assert [*handover._moves, *handover._unassigned, *chain(*handover._expected)] == []
    network = handover.network
    assert [*network._waiting, *chain(*(port.flowing for port in (*network.sending, *network.receiving)))] == []
    for replica in fleet._replicas:
        if replica.engine.under_way():  # with somebody who has left
            replica.engine.advance()
        (pool,) = replica.engine.caches()
        assert pool.free == pool.usable
