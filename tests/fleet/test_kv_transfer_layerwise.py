"""KV that leaves layer by layer, and requests between two replicas where clients give up and replicas fail."""

from collections import defaultdict
from itertools import chain
from math import inf, isnan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from split_fleets import LIMITS, PAIR, log_of, moved, scenario

LINK = {"bytes_per_s": 2e8, "latency_s": 0.002}


def transfer_s(request) -> float:
    return 0.002 + request.prompt_tokens * 30_000 / 2e8


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("overlap")
    lengths = {"distribution": "uniform", "min": 100, "max": 3000}
    return [log_of(scenario(LINK | overlap, PAIR, lengths, 2.0), folder)[1] for overlap in ({}, {"overlap": "layers"})]


def test_layers_are_never_there_before_prompt_and_transfer(both) -> None:
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
    """Of every request that goes on elsewhere, all KV has been sent and has arrived."""
    handover = fleet._handover
    network = handover.network
    send, arrived, land = network.send, network._arrived, handover._land
    size: dict = {}
    received: dict = defaultdict(float)

    def sent(move, source, target, size_bytes, making=None):
        transfer = send(move, source, target, size_bytes, making)
        size[transfer] = size_bytes
        return transfer

    def came(transfer, now):
        received[transfer.what] += size.pop(transfer)
        arrived(transfer, now)

    def landed(move, now):
        assert received[move] == move.request.prompt_tokens * 30_000
        land(move, now)

    network.send, network._arrived, handover._land = sent, came, landed


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
    handover = fleet._handover
    assert [*handover._moves, *handover._homeless, *chain(*handover._expected)] == []
    network = handover.network
    assert [*network._waiting, *chain(*(port.flowing for port in (*network.sending, *network.receiving)))] == []
    for replica in fleet._replicas:
        if replica.engine.under_way():  # with somebody who has left
            replica.engine.advance()
        (pool,) = replica.engine.caches()
        assert pool.free == pool.usable
