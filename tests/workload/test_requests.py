"""The workload as a whole: what a scenario may say, and common random numbers across points."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from sim.rng import stream
from sim.workload import MergedWorkload, Workload
from sim.workload.traces import JsonlTrace, trace_of

STREAMS = partial(stream, 7, 0)
LENGTHS = {
    "prompt": {"distribution": "lognormal", "mean": 512, "cv": 1.0, "max": 4096},
    "output": {"distribution": "geometric", "mean": 256},
}
FIXED = {"prompt": {"distribution": "fixed", "value": 512}, "output": {"distribution": "fixed", "value": 128}}
POISSON = {"process": "poisson", "rate_rps": 2.0}
CLOSED = {"process": "closed_loop", "concurrency": 4}
BURST = {"process": "burst", "num_requests": 3}


def workload(**fields: object) -> Workload:
    return Workload.model_validate(fields)


@pytest.fixture
def trace(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,20\n5,30,40\n")
    return {"path": str(path), "format": "csv"}


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "needs arrivals and lengths, or a trace"),
        ({"lengths": LENGTHS}, "needs arrivals and lengths, or a trace; only lengths is given"),
        (
            {"arrivals": POISSON, "lengths": LENGTHS, "trace": {"path": "t", "format": "csv"}},
            "a trace brings its own requests: remove trace or arrivals and lengths",
        ),
        ({"arrivals": {"process": "poisson", "rate_rps": -1}, "lengths": LENGTHS}, "greater than 0"),
        ({"arrivals": {"process": "poison"}, "lengths": LENGTHS}, "'poison'"),
        ({"arrivals": {"process": "burst"}, "lengths": LENGTHS}, "num_requests"),
        ({"trace": {"path": "t", "format": "csv", "hash_block_tokens": 16}}, "Extra inputs are not permitted"),
    ],
)
def test_a_workload_is_drawn_or_recorded(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        workload(**fields)


def test_requests_are_the_same_at_every_rate() -> None:
    slow = workload(arrivals=POISSON, lengths=LENGTHS).open_table(STREAMS, 100.0)
    fast = workload(arrivals={"process": "poisson", "rate_rps": 4.0}, lengths=LENGTHS).open_table(STREAMS, 100.0)
    count = len(slow.arrived_s)
    assert len(fast.arrived_s) > count
    assert np.array_equal(fast.arrived_s[:count] * 2, slow.arrived_s)
    assert np.array_equal(fast.prompt_tokens[:count], slow.prompt_tokens)
    assert np.array_equal(fast.output_tokens[:count], slow.output_tokens)


def test_a_closed_loop_gets_the_lengths_that_an_open_one_gets() -> None:
    closed = workload(arrivals=CLOSED, lengths=LENGTHS)
    table = workload(arrivals=POISSON, lengths=LENGTHS).open_table(STREAMS, 50.0)
    prompts, outputs = closed.lengths_table(STREAMS, 10, 5)
    assert np.array_equal(prompts, table.prompt_tokens[10:15])
    assert np.array_equal(outputs, table.output_tokens[10:15])


def test_another_replication_is_another_draw() -> None:
    drawn = workload(arrivals=POISSON, lengths=LENGTHS)
    first, second = (drawn.open_table(partial(stream, 7, replication), 100.0) for replication in (0, 1))
    assert first.arrived_s[0] != second.arrived_s[0]
    assert not np.array_equal(first.prompt_tokens[:50], second.prompt_tokens[:50])


def test_a_closed_loop_has_clients_and_no_table() -> None:
    closed = workload(arrivals={**CLOSED, "think_s": 1.5}, lengths=LENGTHS)
    clients = closed.closed_loop()
    assert clients is not None
    assert (clients.concurrency, clients.think_s, clients.num_requests) == (4, 1.5, None)
    with pytest.raises(ValueError, match="closed loop"):
        closed.open_table(STREAMS, 10.0)
    assert workload(arrivals=POISSON, lengths=LENGTHS).closed_loop() is None


def test_a_trace_is_a_table_too(trace: dict[str, str]) -> None:
    recorded = workload(trace=trace)
    recorded.verify()
    assert recorded.open_table(STREAMS, 5.0).output_tokens.tolist() == [20]
    assert recorded.open_table(STREAMS, None).output_tokens.tolist() == [20, 40]
    assert recorded.notes() == ()


def test_what_needs_a_horizon(trace: dict[str, str]) -> None:
    assert workload(arrivals=POISSON, lengths=LENGTHS).needs_horizon
    assert workload(arrivals=CLOSED, lengths=LENGTHS).needs_horizon
    assert not workload(arrivals={**POISSON, "num_requests": 5}, lengths=LENGTHS).needs_horizon
    assert not workload(arrivals=BURST, lengths=LENGTHS).needs_horizon
    assert not workload(trace=trace).needs_horizon


def test_what_is_deterministic(trace: dict[str, str]) -> None:
    assert workload(trace=trace).deterministic
    assert workload(arrivals=BURST, lengths=FIXED).deterministic
    assert workload(arrivals=CLOSED, lengths=FIXED).deterministic
    assert not workload(arrivals=BURST, lengths=LENGTHS).deterministic
    assert not workload(arrivals=POISSON, lengths=FIXED).deterministic


def test_descriptions_and_rates(trace: dict[str, str]) -> None:
    drawn = workload(arrivals=POISSON, lengths=LENGTHS)
    assert drawn.mean_rate_rps() == 2.0
    assert drawn.describe() == (
        "Poisson arrivals at 2 requests/s; prompts: lognormal, mean 512 (cv 1), at most 4096 tokens; "
        "answers: geometric, mean 256 tokens."
    )
    assert workload(trace=trace).describe() == "2 requests of t.csv at 0.4 requests/s on average."
    assert workload(arrivals=BURST, lengths=FIXED).mean_rate_rps() is None
    assert workload(arrivals=CLOSED, lengths=FIXED).mean_rate_rps() is None


def test_what_is_stationary(trace: dict[str, str]) -> None:
    profile = {"process": "profile", "hourly_rps": [1.0, 3.0]}
    found = [workload(arrivals=one, lengths=FIXED).stationary for one in (POISSON, CLOSED, BURST, profile)]
    assert found == [True, True, False, False]
    assert not workload(trace=trace).stationary


def test_tenants_and_adapters_have_names(tmp_path: Path, trace: dict[str, str]) -> None:
    plain = workload(arrivals=POISSON, lengths=FIXED)
    assert (plain.names_tenants, plain.known_tenants, plain.uses_adapters, plain.adapter_names) == (
        False,
        [],
        False,
        [],
    )
    tenants = [{"name": "b", "adapter": "own"}, {"name": "a"}]
    drawn = workload(arrivals=POISSON, lengths=FIXED, tenants=tenants, adapters={"count": 2})
    assert (drawn.names_tenants, drawn.known_tenants) == (True, ["b", "a"])
    assert (drawn.uses_adapters, drawn.adapter_names) == (True, ["adapter-1", "adapter-2", "own"])
    assert workload(arrivals=POISSON, lengths=FIXED, tenants=tenants).adapter_names == ["own"]
    assert not workload(trace=trace).names_tenants
    path = tmp_path / "tenants.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens,tenant\n0,1,1,b\n1,1,1,\n2,1,1,a\n3,1,1,b\n")
    recorded = workload(trace={"path": str(path), "format": "csv"})
    assert (recorded.names_tenants, recorded.known_tenants) == (True, ["a", "b"])


def test_services_together_have_the_sum_of_the_rates(trace: dict[str, str]) -> None:
    steady, burst = workload(arrivals=POISSON, lengths=FIXED), workload(arrivals=BURST, lengths=FIXED)
    recorded = workload(trace=trace)
    assert MergedWorkload.of({"a": steady, "b": recorded}).mean_rate_rps() == pytest.approx(2.4)
    both = MergedWorkload.of({"a": steady, "b": burst})
    assert (both.mean_rate_rps(), both.stationary, both.deterministic, both.needs_horizon) == (None, False, False, True)
    still = MergedWorkload.of({"a": burst, "b": recorded})
    assert (still.stationary, still.deterministic, still.needs_horizon) == (False, True, False)
    assert MergedWorkload.of({"a": steady, "b": steady}).stationary


def test_a_trace_is_made_from_its_path_and_format() -> None:
    made = trace_of("t.jsonl", "jsonl")
    assert (type(made), made.path) == (JsonlTrace, "t.jsonl")
    with pytest.raises(KeyError):
        trace_of("t.jsonl", "parquet")
