"""Tenants of one fleet: shares, limits, fair queues, and what each had and cost."""

from collections import defaultdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.case.result import CaseResult
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.engine.schedulers.waiting_queue import FairQueue, FcfsQueue
from sim.engine.sequence import Sequence
from sim.fleet.admission import TokenBucket
from sim.fleet.fleet import RunningFleet
from sim.records import Request
from sim.rng import stream
from sim.scenario.checks.scenario import scenario_issues
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.slo import Slo
from sim.scenario.sweep import cases
from sim.study.execution.store import read_case, save_case
from sim.study.metrics.case_metrics import CaseMetrics, measure
from sim.study.metrics.metric import MeasuredRun
from sim.study.metrics.service_level import attainment_of, slack, tenants_met
from sim.study.tenants import tenant_rows
from sim.workload import TraceError, Workload
from sim.workload.tenants import RateLimit

LENGTHS = {name: {"distribution": "geometric", "mean": 50} for name in ("prompt", "output")}
TENANTS = ({"name": "quiet", "share": 1}, {"name": "noisy", "share": 9})
STEP = {"model": "affine", "base_s": 0.02, "per_token_s": 1e-4, "per_context_token_s": 0}


def workload(*tenants: dict[str, Any], rate_rps: float = 8, **more: Any) -> dict[str, Any]:
    arrivals = {"process": "poisson", "rate_rps": rate_rps}
    return {"arrivals": arrivals, "lengths": LENGTHS, "tenants": list(tenants or TENANTS)} | more


def test_tenants_are_drawn_by_their_shares() -> None:
    spec = Workload.model_validate(workload(*TENANTS, {"name": "never", "share": 0}))
    names = spec.tenant_names(partial(stream, 1, 0), 0, 4000)
    assert names is not None
    assert abs(names.count("quiet") / 4000 - 0.1) < 0.02
    assert "never" not in names
    assert spec.tenant_names(partial(stream, 1, 0), 100, 50) == names[100:150]


def test_a_session_has_one_tenant() -> None:
    sessions = {"turns": {"distribution": "fixed", "value": 3}, "think_s": {"distribution": "fixed", "value": 0.1}}
    tenants: dict[str, set[str]] = defaultdict(set)
    for request in requests_of(workload(sessions=sessions), "fcfs"):
        tenants[request.session].add(request.tenant)
    assert {len(names) for names in tenants.values()} == {1}
    assert {name for names in tenants.values() for name in names} == {"quiet", "noisy"}


def test_invalid_tenants_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="'a' is given twice"):
        Workload.model_validate(workload({"name": "a"}, {"name": "a"}))
    with pytest.raises(ValidationError, match="a share above 0"):
        Workload.model_validate(workload({"name": "a", "share": 0}))
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens,tenant\n0,1,1,a\n")
    traced = {"trace": {"path": str(tmp_path / "t.csv"), "format": "csv"}, "tenants": [{"name": "b"}]}
    with pytest.raises(TraceError, match="no request is of tenant 'b': the column 'tenant' has a"):
        Workload.model_validate(traced).verify()


@given(gaps=st.lists(st.sampled_from([0.0, 0.1, 0.5, 3.0]), max_size=60), burst=st.integers(1, 5))
@settings(max_examples=40)
def test_a_token_bucket_admits_what_has_accumulated(gaps: list[float], burst: int) -> None:
    bucket = TokenBucket(RateLimit(requests_per_s=2.0, burst=burst))
    taken_s: list[float] = []
    for now in np.cumsum(gaps).tolist():
        if bucket.takes(now):
            taken_s.append(now)
            for first in taken_s:  # of every window that ends now
                assert sum(first <= at <= now for at in taken_s) <= burst + 2.0 * (now - first) + 1e-6


@lru_cache
def quiet_ttft_s(scheduling: str) -> float:
    spec = workload({"name": "quiet", "share": 1}, {"name": "noisy", "share": 9}, rate_rps=25)
    done = [r for r in requests_of(spec, scheduling) if r.tenant == "quiet"]
    return float(np.mean([r.first_token_s - r.arrived_s for r in done]))


def scenario(spec: dict[str, Any], scheduling: str) -> dict[str, Any]:
    batching = {"policy": "vllm", "num_gpu_blocks": 2000, "max_num_seqs": 8, "max_model_len": 4000}
    pool = {"steptime": STEP, "batching": batching | {"scheduling": scheduling}}
    fleets = [{"name": "a", "pools": [pool]}]
    return {"name": "t", "workload": spec, "horizon_s": 20, "drain_limit_s": 60, "fleets": fleets}


def requests_of(spec: dict[str, Any], scheduling: str) -> list[Request]:
    loaded = Scenario.model_validate(scenario(spec, scheduling))
    return RunningFleet(resolve(loaded, cases(loaded)[0], load_catalog())).run().requests


@pytest.mark.slow
def test_fair_shares_keep_a_noisy_neighbour_from_the_others() -> None:
    assert quiet_ttft_s("fair") < 0.1 * quiet_ttft_s("fcfs")


def test_only_requests_over_the_limit_are_refused() -> None:
    limited = workload({"name": "quiet"}, {"name": "noisy", "rate_limit": {"requests_per_s": 1, "burst": 3}})
    requests = requests_of(limited, "fcfs")
    served = [r for r in requests if r.tenant == "noisy" and not r.rejected]
    assert any(r.rejected for r in requests)
    assert len(served) <= 3 + 20
    assert not any(r.rejected for r in requests if r.tenant == "quiet")


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=60, max_size=60))
@settings(max_examples=20, deadline=None)
def test_backlogged_tenants_get_tokens_by_weight(sizes: list[tuple[int, int]]) -> None:
    queue, weights = FairQueue(FcfsQueue), {"a": 1.0, "b": 3.0}
    for index, (prompt, output) in enumerate(sizes):
        request = Request(index, 0.0, prompt, output, tenant="ab"[index % 2])
        request.weight = weights[request.tenant]
        queue.add(Sequence(request))
    served = dict.fromkeys("ab", 0.0)
    while {tenant for (_, tenant), waiting in queue._queues.items() if len(waiting)} == {"a", "b"}:
        request = queue.pop().request
        served[request.tenant] += (request.prompt_tokens + 2 * request.output_tokens) / request.weight
        assert abs(served["a"] - served["b"]) <= 120


def test_idle_tenants_gain_no_credit() -> None:
    queue = FairQueue(FcfsQueue)
    for index in range(6):
        queue.add(Sequence(Request(index, float(index), 10, 10, tenant="busy")))
    for _ in range(3):
        queue.pop()
    for index in range(6, 9):
        queue.add(Sequence(Request(index, float(index), 10, 10, tenant="late")))
    assert [queue.pop().request.tenant for _ in range(6)] == ["busy", "late"] * 3


@pytest.mark.slow
def test_tenants_and_unattributed_rows_sum_to_the_fleet(tmp_path: Path) -> None:
    scenario = Scenario.model_validate(
        {
            "name": "t",
            "model": "llama3.1-8b",
            "max_model_len": 2000,
            "workload": workload(rate_rps=2),
            "horizon_s": 12,
            "warmup_s": 3,
            "cost_per_request": True,
            "fleets": [
                {
                    "name": "a",
                    "pools": [{"gpu": "rtx-4090", "replicas": 2}],
                    "cost": {"acquisition": "rent", "quotes": {"rtx-4090": 0.4}},
                }
            ],
        }
    )
    case = cases(scenario)[0]
    result = run_case(scenario, case, load_catalog())
    assert isinstance(result, CaseResult)
    assert result.ledger is not None
    metrics = measure(result)
    save_case(tmp_path / "point", case, MeasuredRun(result), metrics, True, {})
    tenants = tenant_rows([read_case(tmp_path / "point")], ())
    assert [row["tenant"] for row in tenants] == ["noisy", "quiet", "(nobody)"]
    assert sum(row["requests"] for row in tenants) == metrics["requests"]
    nano = [round(row["cost_usd"] * 1e9) for row in tenants]
    assert sum(nano) == sum(row.amount_nano_usd for row in result.ledger.rows)
    assert all(amount > 0 for amount in nano)
    joules = [interval.server_energy_j for interval in result.log.intervals if 3 < interval.end_s <= 12]
    assert sum(row["it_energy_kwh"] for row in tenants) * 3.6e6 == pytest.approx(sum(joules), rel=1e-12)
    assert all(row["it_energy_kwh"] >= 0 for row in tenants)
    done = [one for one in result.log.requests if 3 <= one.arrived_s < 12 and one.status == "finished"]
    for name in ("prompt_tokens", "output_tokens"):
        assert sum(row[name] for row in tenants) == sum(getattr(one, name) for one in done)


def test_services_select_their_rows_of_a_trace(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens,service\n0,9,1,chat\n1,9,1,code\n")
    pool = {"steptime": STEP, "batching": {"policy": "vllm", "num_gpu_blocks": 99, "max_model_len": 400}}

    def scenario(**keys: str) -> Scenario:
        trace = {"path": str(tmp_path / "t.csv"), "format": "csv"}
        return Scenario.model_validate(
            {
                "name": "t",
                "services": [{"name": "chat", "workload": {"trace": trace | keys}}],
                "horizon_s": 9,
                "fleets": [{"name": "a", "pools": [pool | {"service": "chat"}]}],
            }
        )

    (told,) = (str(one) for one in scenario_issues(scenario()))
    assert "name one with service: <name>" in told
    assert list(scenario_issues(scenario(service="chat"))) == []


def judged(slo: dict[str, Any]) -> tuple[CaseResult, CaseMetrics]:
    """A fair fleet of a quiet and a noisy tenant under *slo*."""
    loaded = Scenario.model_validate(scenario(workload(rate_rps=14), "fair") | {"slo": slo, "warmup_s": 1})
    result = run_case(loaded, cases(loaded)[0], load_catalog())
    assert isinstance(result, CaseResult)
    return result, measure(result)


@pytest.mark.slow
def test_a_tenant_is_judged_by_its_own_limits_and_the_fleet_by_all() -> None:
    strict, loose = {"ttft_s": 3.0, "attainment": 0.5}, {"e2e_s": 1e3}
    for others, own, met in ((strict, loose, True), (strict, {"e2e_s": 1e-3}, False), ({"e2e_s": 1e-3}, loose, False)):
        slo = Slo.model_validate(others | {"tenants": {"noisy": own}})
        result, metrics = judged(slo.model_dump(exclude_none=True))
        assert attainment_of(slo, [metrics]).met is met
        assert tenants_met(slo, [metrics]) == {"noisy": own is loose}
        assert (slack(slo, [metrics]) >= 0) is met
        requests = [request for request in result.log.requests if request.arrived_s >= 1]
        kept = [
            level["e2e_s"] >= request.finished_s - request.arrived_s
            if "e2e_s" in (level := own if request.tenant == "noisy" else others)
            else request.first_token_s - request.arrived_s <= level["ttft_s"]
            for request in requests
        ]
        assert metrics["slo_attainment"] == pytest.approx(sum(kept) / len(kept))


def test_limits_of_unknown_tenants_are_refused() -> None:
    data = scenario(workload(), "fcfs") | {"slo": {"tenants": {"noise": {"e2e_s": 1}, "quiet": {}}}}
    told = [str(one) for one in scenario_issues(Scenario.model_validate(data))]
    assert any("there is no tenant 'noise' in the workload; did you mean noisy?" in one for one in told), told
    assert any("has no limit" in one for one in told)
    assert any("leaves the other tenants without limits" in one for one in told)
