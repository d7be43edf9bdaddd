"""An API server's one thread reads requests turn by turn: the engine behind it sees later arrivals, no more."""

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from engine_workloads import Affine, dates, rank_limits, workloads
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference_engine import drain

import sim
from sim.engine.asynchronous import AsyncEngine
from sim.engine.synchronous import VllmEngine
from sim.fleet.fleet import fleet_streams
from sim.fleet.intake import IntakeEngine, SequentialIntakeEngine
from sim.fleet.pool import replica_engines
from sim.records import Batch, Leap, ReplicaProgress, Request
from tests.small_scenario import TINY, planned, variant

READING_S = 2.0**-5


def read_at(arrivals_s: list[float]) -> list[float]:
    """Return the times at which a thread has read requests that arrive at these times, by turns written out."""
    done, at, free_s = [inf] * len(arrivals_s), 0, 0.0
    while at < len(arrivals_s):
        begin_s = max(free_s, arrivals_s[at])
        together = [i for i in range(at, len(arrivals_s)) if arrivals_s[i] <= begin_s]
        if free_s < arrivals_s[at]:  # who finds the thread idle is read by itself
            together = together[:1]
        free_s = begin_s + READING_S * len(together)
        for i in together:
            done[i] = free_s
        at += len(together)
    return done


@pytest.mark.slow
@given(workloads(), st.sampled_from([VllmEngine, AsyncEngine]))
@settings(max_examples=40, deadline=None)
def test_the_engine_works_as_if_requests_came_when_they_were_read(workload, kind) -> None:
    wanted, values = workload
    limits = rank_limits(**values)
    held, plain = [Request(**one) for one in wanted], [Request(**one) for one in wanted]
    drain(IntakeEngine(kind(Affine(), limits), READING_S, limits.serves), held)
    served = [i for i, one in enumerate(held) if not one.rejected]
    for i, read_s in zip(served, read_at([wanted[i]["arrived_s"] for i in served]), strict=True):
        plain[i].arrived_s = read_s
    drain(kind(Affine(), limits), plain)
    assert [dates(one) for one in held] == [dates(one) for one in plain]
    assert [one.rejected for one in held] == [one.rejected for one in plain]


def handed_over_at(arrivals_s: list[float]) -> list[float]:
    """Return the times at which the engine gets requests that arrive at these times, one turn after the other."""
    found: list[float] = []
    for arrived_s in arrivals_s:
        found.append(max(arrived_s, found[-1] + READING_S) if found else arrived_s)
    return found


@pytest.mark.slow
@given(workloads(), st.sampled_from([VllmEngine, AsyncEngine]))
@settings(max_examples=40, deadline=None)
def test_intake_turns_are_spaced_like_arrivals(workload, kind) -> None:
    wanted, values = workload
    # who is preempted goes by priority and arrival: of requests that arrived together, turns make some that did not
    assume(values["scheduling"] != "priority" or len({one["arrived_s"] for one in wanted}) == len(wanted))
    limits = rank_limits(**values)
    held, plain = [Request(**one) for one in wanted], [Request(**one) for one in wanted]
    drain(SequentialIntakeEngine(kind(Affine(), limits), READING_S, limits.serves), held)
    served = [i for i, one in enumerate(held) if not one.rejected]
    for i, at_s in zip(served, handed_over_at([wanted[i]["arrived_s"] for i in served]), strict=True):
        plain[i].arrived_s = at_s
    drain(kind(Affine(), limits), plain)
    assert [dates(one) for one in held] == [dates(one) for one in plain]


def test_a_single_request_waits_for_no_intake_turn() -> None:
    limits = rank_limits(
        num_gpu_blocks=100, block_size=16, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1000
    )
    alone, plain = ([request(i, 10.0 * i) for i in range(5)] for _ in range(2))
    drain(SequentialIntakeEngine(VllmEngine(Affine(), limits), READING_S, limits.serves), alone)
    drain(VllmEngine(Affine(), limits), plain)
    assert [dates(one) for one in alone] == [dates(one) for one in plain]


def engine(reading_s: float = READING_S) -> IntakeEngine:
    limits = rank_limits(
        num_gpu_blocks=100, block_size=16, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=1000
    )
    return IntakeEngine(VllmEngine(Affine(), limits), reading_s, limits.serves)


def request(index: int, at_s: float = 0.0) -> Request:
    return Request(index=index, arrived_s=at_s, prompt_tokens=16, output_tokens=4)


def test_no_request_of_a_burst_reaches_the_engine_before_all_are_read() -> None:
    burst = [request(i) for i in range(50)]
    drain(engine(1.0), burst)
    assert min(one.started_s for one in burst[1:]) == pytest.approx(50.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate_rps", "chats", "limit"), [(95, True, "api server"), (20, True, "load"), (650, False, "api server")]
)
def test_a_server_busy_with_reading_limits_throughput(rate_rps: int, chats: bool, limit: str) -> None:
    """vLLM 0.11 reads a chat in 10.4 ms and another prompt in 1.5: no more than 96 and 667 a second."""
    lengths = {"prompt": {"distribution": "fixed", "value": 20}, "output": {"distribution": "fixed", "value": 2}}
    pool = {"gpu": "h100-80gb-sxm", "steptime": {"model": "roofline", "chat_template": chats}}
    scenario = {
        "name": "chats", "model": "llama3.1-8b", "engine": "vllm-0.11", "horizon_s": 2,
        "workload": {"arrivals": {"process": "constant", "rate_rps": rate_rps}, "lengths": lengths},
        "fleets": [{"name": "one", "pools": [pool]}],
    }  # fmt: skip
    assert sim.run(scenario, quiet=True).summary.limited_by[0] == limit


@pytest.mark.slow
def test_each_service_has_its_own_intake() -> None:
    """96 chats a second are as many as one server reads; the other service's server reads 20."""
    lengths = {"prompt": {"distribution": "fixed", "value": 20}, "output": {"distribution": "fixed", "value": 2}}
    rates = {"quiet": 20, "busy": 95}
    read_anew = {"gpu": "h100-80gb-sxm", "steptime": {"model": "roofline", "chat_template": True}}
    scenario = {
        "name": "chats", "model": "llama3.1-8b", "engine": "vllm-0.11", "horizon_s": 2,
        "services": [
            {"name": name, "workload": {"arrivals": {"process": "constant", "rate_rps": rate}, "lengths": lengths}}
            for name, rate in rates.items()
        ],
        "fleets": [{"name": "two", "pools": [read_anew | {"service": name} for name in rates]}],
    }  # fmt: skip
    services = sim.run(scenario, quiet=True).services.set_index("service")
    assert services.limited_by.to_dict() == {"quiet": "load", "busy": "api server"}


def test_a_request_evicted_while_it_is_read_leaves_no_trace() -> None:
    server, leaves = engine(), request(1)
    server.offer(request(0), 0.0)
    server.offer(leaves, 0.0)
    assert server.plan(0.0) == READING_S
    assert server.evict(leaves, 0.0) == ReplicaProgress(0, 0)
    assert server.advance() == []
    assert not leaves.started_s >= 0


def test_a_failed_server_loses_the_requests_it_was_reading() -> None:
    server, lost = engine(), request(0)
    server.offer(lost, 0.0)
    server.plan(0.0)
    server.evict(lost, 0.0)
    server.crash(0.0)
    assert server.plan(0.0) == inf


@pytest.mark.parametrize(
    ("options", "most"),
    [
        ({"policy": "reserve"}, 4),
        ({"policy": "prefill_first", "schedule_conservativeness": 1.0}, 2),
        ({"policy": "prefill_first"}, 3),
    ],
    ids=["max_batch_size of TensorRT-LLM", "pp_max_micro_batch_size of SGLang", "share of a virtual engine"],
)
def test_a_pipeline_batch_has_as_many_requests_as_its_engine_allows(
    tmp_path: Path, options: dict[str, Any], most: int
) -> None:
    class Counting:
        window, largest = None, 0

        def leap(self, batch: Batch) -> Leap:
            self.largest = max(self.largest, batch.decode_seqs + batch.prefill_seqs)
            return Leap(1.0)

    sizes = {"max_num_seqs": 4, "max_num_batched_tokens": 2048, "num_gpu_blocks": 999, "max_model_len": 999}
    plan = planned(tmp_path, variant(TINY, {"fleets.0.pools.0.batching": options | sizes}))
    pool = replace(plan.pools[0], pipeline_parallel_size=2, steptime=Counting())
    [engine] = replica_engines(pool, fleet_streams(plan))
    drain(engine, [request(place, 0.0) for place in range(6)])
    assert pool.steptime.largest == most
