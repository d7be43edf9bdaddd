"""Clients that give up or ask again: every request ends once, and a resumed one makes the rest of its answer."""

from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_scenario import planned

from sim.catalogue.catalog import load_catalog
from sim.fleet.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.resolving.resolved import CasePlan
from sim.steptime.affine_step_time import AffineStepTime
from sim.workload.client import Client

SCENARIO = """\
workload:
  arrivals: %s
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: geometric, mean: 20, max: 80}}
horizon_s: 20
client: {timeout_s: 1}
fleets:
  - name: a
    pools:
      - replicas: 2
        steptime: {model: affine, base_s: 0.0625, per_token_s: 0.0001220703125, per_context_token_s: 0.0}
        batching: {policy: vllm, max_num_seqs: 3, max_num_batched_tokens: 512, num_gpu_blocks: 40, max_model_len: 400}
"""
ARRIVALS = {
    "open": "{process: poisson, rate_rps: 6}",
    "closed": "{process: closed_loop, concurrency: 20, think_s: 0.0}",
    "burst": "{process: burst, num_requests: 8}",
}
CATALOG = load_catalog()


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CasePlan]:
    folder: Path = tmp_path_factory.mktemp("attempts")
    found = {}
    for name, arrivals in ARRIVALS.items():
        found[name] = planned(folder, SCENARIO % arrivals)
    return found


def run(plan: CasePlan, client: Client | None, **changes: object) -> FleetLog:
    return RunningFleet(replace(plan, client=client, **changes)).run()


clients = st.builds(
    Client,
    timeout_s=st.sampled_from([None, 0.5, 2.0, 5.0]),
    patience_s=st.sampled_from([None, 0.25, 1.0, 4.0]),
    attempts=st.integers(1, 4),
    backoff_s=st.sampled_from([0.0, 0.125, 1.0]),
    retry=st.sampled_from(["restart", "resume"]),
)


@pytest.mark.slow
@given(client=clients, arrivals=st.sampled_from(["open", "closed"]), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_every_request_ends_once(plans: dict[str, CasePlan], client: Client, arrivals: str, seed: int) -> None:
    fleet = RunningFleet(replace(plans[arrivals], client=client, seed=seed, horizon_s=6.0, drain_limit_s=1e4))
    log = fleet.run()
    assert fleet._outstanding == 0
    for one in log.requests:
        assert one.status in ("finished", "timed_out")
        assert (one.status == "finished") is not isnan(one.finished_s)
        assert 1 <= one.attempts <= client.attempts
        assert len(one.left) <= one.attempts
        if client.patience_s is None and one.status == "timed_out":
            assert one.attempts == client.attempts
        if one.status == "finished":
            assert one.arrived_s <= one.started_s <= one.first_token_s <= one.finished_s
            if client.patience_s is not None and one.attempts == 1:
                assert one.first_token_s <= one.arrived_s + client.patience_s + 1e-9


def test_without_limits_clients_change_nothing(plans: dict[str, CasePlan]) -> None:
    patient, none = run(plans["open"], Client()), run(plans["open"], None)
    assert [one.finished_s for one in patient.requests] == [one.finished_s for one in none.requests]


@pytest.mark.slow
def test_retries_keep_an_overloaded_fleet_from_answering(plans: dict[str, CasePlan]) -> None:
    once = run(plans["open"], Client(timeout_s=3, attempts=1))
    often = run(plans["open"], Client(timeout_s=3, attempts=10, backoff_s=0))
    answered = [sum(one.status == "finished" for one in log.requests) for log in (once, often)]
    sent = sum(one.attempts for one in often.requests) / len(often.requests)
    assert sent > 2
    assert answered[1] < sent * answered[0]


def test_a_resumed_answer_is_made_to_its_end_and_its_time_counts_from_its_first_token(
    plans: dict[str, CasePlan],
) -> None:
    # alone on the fleet an answer of 80 tokens takes 80 steps: two and a half timeouts of two seconds
    workload = plans["open"].workload.model_copy(
        update={"arrivals": plans["open"].workload.arrivals.model_copy(update={"num_requests": 1})}
    )
    lengths = workload.lengths.model_copy(update={"output": workload.lengths.prompt.model_copy(update={"value": 80})})
    workload = workload.model_copy(update={"lengths": lengths})
    for retry in ("restart", "resume"):
        client = Client(timeout_s=2, attempts=3, backoff_s=0, retry=retry)
        (one,) = run(plans["open"], client, workload=workload, horizon_s=200.0).requests
        made = [hop.progress.output_tokens for hop in one.left]
        if retry == "restart":
            assert one.status == "timed_out"
            assert len(set(made)) == 1
        else:
            assert one.status == "finished"
            assert one.attempts == 3
            assert made == [one.left[0].progress.output_tokens, one.kept_tokens]
            assert 0 < made[0] < made[1] < 80
            first_step_s = 0.0625 + 100 / 8192
            assert one.first_token_s == pytest.approx(one.arrived_s + first_step_s)
            # what was streamed is computed again in one step, with the prompt
            steps = 80 - made[1]
            last_s = steps * 0.0625 + (100 + made[1] + steps - 1) / 8192
            assert one.finished_s - one.came_s == pytest.approx(last_s, abs=0.07)


def test_nothing_is_computed_for_requests_that_time_out_together_at_the_end_of_a_step(
    plans: dict[str, CasePlan],
) -> None:
    plan = plans["burst"]
    (pool,) = plan.pools
    pool = replace(
        pool, replicas=1, steptime=AffineStepTime(pool.steptime.base_s, 0.0, pool.steptime.per_context_token_s)
    )
    lengths = plan.workload.lengths
    long = lengths.model_copy(update={"output": lengths.prompt.model_copy(update={"value": 80})})
    workload = plan.workload.model_copy(update={"lengths": long})
    log = run(plan, Client(timeout_s=1, attempts=1), pools=(pool,), workload=workload)
    assert [one.status for one in log.requests] == ["timed_out"] * 8
    # three run and five wait, whom no step may join
    assert sum(one.busy_s for one in log.intervals) == 1.0
    assert [isnan(one.started_s) for one in log.requests] == [False] * 3 + [True] * 5
