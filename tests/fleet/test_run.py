"""Shards of a fleet: parts that are simulated apart have the log of one simulation."""

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sim.case.result import price_case
from sim.catalogue.catalog import load_catalog
from sim.fleet import run
from sim.fleet.fleet import RunningFleet, under_way
from sim.fleet.run import RunThere, ShardedFleet
from sim.records import FleetLog
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.study.execution.store import requests_table
from sim.study.metrics.case_metrics import measure
from sim.study.metrics.metric import MeasuredRun
from sim.workload import Workload

CATALOG = load_catalog()
STEP = {"model": "affine", "base_s": 0.0625, "per_token_s": 0.0, "per_context_token_s": 0.0}
"""Steps of a sixteenth second: steps, arrivals and meter readings often fall together."""
LIMITS = {"max_num_seqs": 4, "max_num_batched_tokens": 128, "num_gpu_blocks": 60, "max_model_len": 400}
BATCHING = [
    {"policy": "vllm", "async_scheduling": True},
    {"policy": "vllm", "async_scheduling": True, "enable_prefix_caching": True},
    {"policy": "vllm", "async_scheduling": False, "scheduling": "priority"},
    {"policy": "prefill_first", "overlap_schedule": True, "schedule_conservativeness": 1.0},
    {"policy": "reserve"},
    {"policy": "static"},
]
ARRIVALS = [
    {"process": "constant", "rate_rps": 8},
    {"process": "poisson", "rate_rps": 20},
    {"process": "poisson", "rate_rps": 5, "num_requests": 20},
    {"process": "burst", "num_requests": 9},
]
FIELDS = (
    *("index", "arrived_s", "prompt_tokens", "output_tokens", "priority", "replica", "came_s", "started_s"),
    *("first_token_s", "finished_s", "cached_tokens", "preemptions", "status"),
)
"""Fields of a request; compiled classes have no `__slots__`."""
TENANTS = [{"name": "a", "share": 1, "priority": 2}, {"name": "b", "rate_limit": {"requests_per_s": 2, "burst": 2}}]


def plan_of(data: dict[str, Any]) -> CasePlan:
    pools = [
        {"name": f"{place}", "replicas": replicas, "steptime": step, "batching": batching | LIMITS}
        for place, (replicas, step, batching) in enumerate(data["pools"])
    ]
    lengths = {"prompt": 420, "output": 20}
    workload = {
        "arrivals": data["arrivals"],
        "lengths": {name: {"distribution": "uniform", "min": 1, "max": most} for name, most in lengths.items()},
        "tenants": data["tenants"],
    }
    fleet = {"name": "a", "routing": {"policy": data["routing"]}, "pools": pools}
    given_ = {"name": "s", "seed": data["seed"], "horizon_s": 4, "workload": workload, "fleets": [fleet]}
    scenario = Scenario.model_validate(given_ | data["more"])
    return resolve(scenario, cases(scenario)[0], CATALOG)


def content(log: FleetLog) -> tuple[str, ...]:
    """Return all that *log* has, as text: floats by their last digit, nan equal to nan."""
    requests = [[getattr(one, name) for name in FIELDS] for one in log.requests]
    options = [asdict(one.options) for one in log.requests]
    return tuple(map(repr, (requests, options, log.intervals, log.meters, log.pool_of_replica, log.end_s)))


def outputs(plan: CasePlan, log: FleetLog) -> tuple[Any, ...]:
    """Return what is stored of *log*: figures and the table of requests."""
    result = price_case(plan, log)
    return repr(measure(result).as_data()), requests_table(MeasuredRun(result)).to_pylist()


@contextmanager
def others(takes: list[int], plan: CasePlan, work: Callable[[RunThere], None]) -> Iterator[None]:
    """Let as many threads as *takes* take part in *work*; each is killed when it has been called so often."""

    def run_there(left: Iterator[int], function: Callable[..., Any], *arguments: Any) -> Any:
        if next(left, None) is None:
            raise ConnectionError
        return pickle.loads(pickle.dumps(function(plan, *pickle.loads(pickle.dumps(arguments)))))

    def take_part(calls: int) -> None:
        with suppress(ConnectionError):
            work(partial(run_there, iter(range(calls))))

    threads = [threading.Thread(target=take_part, args=(calls,)) for calls in takes]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


FLEET: dict[str, Any] = {
    "seed": 0, "routing": "random", "arrivals": ARRIVALS[1], "tenants": [], "more": {},
    "pools": [(5, STEP, BATCHING[0])],
}  # fmt: skip
FLEETS = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 1000),
        "routing": st.sampled_from(["round_robin", "random"]),
        "arrivals": st.sampled_from(ARRIVALS),
        "tenants": st.sampled_from([[], TENANTS]),
        "pools": st.lists(
            st.tuples(
                st.integers(1, 3), st.sampled_from([STEP, STEP | {"per_token_s": 1e-4}]), st.sampled_from(BATCHING)
            ),
            min_size=1,
            max_size=2,
        ),
        "more": st.sampled_from(
            [
                {},
                {"horizon_s": None},
                {"drain_limit_s": 0.5},
                {"warmup_s": 1, "meter_interval_s": 0.5, "cost_per_request": True},
                {"horizon_s": None, "meter_interval_s": 0.5},
            ]
        ),
    }
)


@pytest.mark.slow
@given(data=FLEETS, engines=st.integers(1, 3), takes=st.lists(st.sampled_from([0, 1, 2, 3, 100]), max_size=2))
@example({**FLEET, "arrivals": ARRIVALS[0], "pools": [(1, STEP, BATCHING[0])]}, 1, [1])  # preempted, and served again
@settings(max_examples=25, deadline=None)
def test_a_fleet_in_shards_has_the_log_of_the_whole_fleet(data: dict[str, Any], engines: int, takes: list[int]) -> None:
    if data["more"].get("horizon_s", 4) is None and "num_requests" not in data["arrivals"]:
        data["arrivals"] = data["arrivals"] | {"num_requests": 30}
    plan = plan_of(data)
    assert plan.has_independent_replicas
    whole = RunningFleet(plan).run()
    log = ShardedFleet(plan, engines).run(partial(others, takes))
    assert content(log) == content(whole)
    assert not run.SERVED
    assert outputs(plan, log) == outputs(plan, whole)


@pytest.mark.slow
def test_requests_of_a_trace_in_shards_keep_their_priorities(tmp_path: Path) -> None:
    rows = [f"{second},{20 + second},5,{second % 3}" for second in range(8)]
    trace = tmp_path / "requests.csv"
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,priority", *rows]))
    plan = plan_of(FLEET)
    plan = replace(plan, workload=Workload.model_validate({"trace": {"path": str(trace), "format": "csv"}}))
    whole = RunningFleet(plan).run()
    assert len({request.priority for request in whole.requests}) == 3
    assert content(ShardedFleet(plan, 2).run()) == content(whole)


@pytest.mark.slow
def test_large_fleets_run_in_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = content(RunningFleet(plan_of(FLEET)).run())
    for engines, requests, sharded in ((5, 9, False), (2, 1_000, True), (4, 40, True)):
        monkeypatch.setattr(run, "SHARD_ENGINES", engines)
        monkeypatch.setattr(run, "SHARD_REQUESTS", requests)
        assert run.runs_in_shards(plan_of(FLEET)) is sharded
        assert content(run.run_fleet(plan_of(FLEET))) == whole


@pytest.mark.slow
def test_progress_is_that_of_served_shards_and_the_one_under_way() -> None:
    fleet, seen = ShardedFleet(plan_of(FLEET), 2), []

    @contextmanager
    def watched(plan: CasePlan, work: Callable[[RunThere], None]) -> Iterator[None]:
        seen.append(fleet.progress)
        yield
        with under_way(RunningFleet(plan)):
            seen.append(fleet.progress)

    requests = fleet.run(watched).requests
    (start_s, *before), (end_s, *after) = seen
    assert (start_s, before) == (0, [4, 0, 0])
    assert (end_s > 0, after) == (True, [4, len(requests), 0])


@pytest.mark.parametrize(
    "changed",
    [
        {"routing": "least_outstanding"},
        {"arrivals": {"process": "closed_loop", "concurrency": 4, "num_requests": 20}},
        {"more": {"client": {"timeout_s": 1.0}}},
        {"pools": [(2, STEP, BATCHING[0] | {"max_num_queued_reqs": 3})]},
    ],
)
def test_replicas_that_affect_each_other_are_not_independent(changed: dict[str, Any]) -> None:
    assert plan_of(FLEET).has_independent_replicas
    assert not plan_of(FLEET | changed).has_independent_replicas
