"""The share of requests over failures: states from failures alone, and what each attains from requests."""

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from small_scenario import ONE_SEAT, loaded, planned, variant

from sim.cost.operations import Operations
from sim.cost.replacement import FailureCost as Replaced
from sim.failures import FailureDomain, FailureTimes, ServerLayout, StandbyReplicas, domains_of
from sim.scenario.experiment import Fleet
from sim.scenario.resolving.resolved import CasePlan, FailurePlan
from sim.study.availability import (
    BATCHES,
    OverFailures,
    ServingStates,
    in_state,
    over_failures,
    pools_as_data,
    run_state_search,
    serving_states,
    why_no_availability,
)
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.statistics import half_width

FOUR = variant(
    ONE_SEAT, {"workload.lengths.output": {"distribution": "fixed", "value": 9}, "fleets.0.pools.0.replicas": 4}
)
SCALED = [
    "fleets.0.pools.0.autoscaling={policy: kpa, target: 1, max_replicas: 4}",
    "fleets.0.pools.0.cold_start={total_s: 1}",
]
LAW = FailureTimes(mtbf_s=90.0, repair_s=10.0)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CasePlan:
    return planned(tmp_path_factory.mktemp("availability"), FOUR)


def failing(plan: CasePlan, domains: tuple[FailureDomain, ...], **settings: object) -> CasePlan:
    return replace(plan, pools=(replace(plan.pools[0], failures=FailurePlan(domains, **settings)),))


def expected_near(found: ServingStates, counts: tuple[int, ...], share: float) -> None:
    half = half_width(list(found.shares[counts])) or 0.0
    # the interval of ten batches holds 95 %; twice that is as good as certain
    assert found.share(counts) == pytest.approx(share, abs=2 * half)


@pytest.mark.slow
def test_states_of_independent_replicas_are_binomial(plan: CasePlan) -> None:
    found = serving_states(failing(plan, domains_of({"replica": LAW}, ServerLayout(4, 1), 1)), failures=1500)
    assert np.sum(list(found.shares.values()), axis=0) == pytest.approx(np.ones(BATCHES))
    for up in (4, 3, 2):
        expected_near(found, (up,), comb(4, up) * 0.9**up * 0.1 ** (4 - up))
    assert found.full == (4,)


@pytest.mark.slow
def test_warm_spare_serves_after_its_takeover(plan: CasePlan) -> None:
    spares = StandbyReplicas(count=1, kind="warm", takeover_s=2.0)
    found = serving_states(
        failing(plan, domains_of({"replica": LAW}, ServerLayout(4, 1), 1), spares=spares), failures=500
    )
    assert found.full == (3,)
    # three of four work: 0.9477; and while one serves less than could: a takeover of 2 s after each failure
    assert 0.85 < found.share((3,)) < 0.9477


@pytest.mark.slow
def test_server_failure_stops_both_of_its_replicas(plan: CasePlan) -> None:
    domains = domains_of({"server": LAW}, ServerLayout(4, 1, replicas_per_server=2), 1)
    found = serving_states(failing(plan, domains), failures=1500)
    assert set(found.shares) == {(4,), (2,), (0,)}
    expected_near(found, (2,), 2 * 0.9 * 0.1)


def case(attained: float, overloaded: bool = False) -> CaseMetrics:
    data = {"requests": 1000, "slo_attainment": attained, "overloaded": overloaded, "e2e_s_mean": 3.0}
    return CaseMetrics.of_data(data | {"queue_growth": 0, "waiting_growth": 0})


STATES = ServingStates(
    {(2,): (0.9,) * BATCHES, (1,): (0.09,) * BATCHES, (0,): (0.01,) * BATCHES}, strikes_per_s=1e-4, detection_s=2.0
)


def share(wanted: float, with_one: CaseMetrics) -> tuple[OverFailures, list[int]]:
    asked: list[int] = []

    def ask(counts: tuple[int, ...]) -> list[CaseMetrics]:
        asked.append(counts[0])
        return [case(1.0)] if counts == (2,) else [with_one]

    return run_state_search(over_failures(STATES, wanted), ask), asked


def test_the_share_is_that_of_the_states_less_what_failures_hit() -> None:
    # 1e-4 failures a second hit 5 s of the requests of one of 1.89 replicas
    hit = 1e-4 * 5 / 1.89
    found, asked = share(0.95, case(0.8))
    assert found.hit_share == pytest.approx(hit)
    assert (found.share, found.meets) == (pytest.approx(0.9 + 0.09 * 0.8 - hit), True)
    assert asked == [2, 1]
    assert not share(0.98, case(0.8))[0].meets


def test_what_is_certain_early_is_not_simulated() -> None:
    assert share(0.89, case(1.0))[1] == [2]
    # even with all of the rest 0.9999 is out of reach: nothing serves for a hundredth of the time
    assert share(0.9999, case(1.0))[0].meets is False


def test_overloaded_state_attains_zero() -> None:
    assert share(0.95, case(0.9, overloaded=True))[0].meets is False


def test_fleet_in_a_state_has_serving_replicas_without_failures(plan: CasePlan, tmp_path: Path) -> None:
    (fleet,) = loaded(tmp_path, FOUR, "fleets.0.pools.0.failures={replica: {mtbf_h: 1, repair_h: 1}}").fleets
    (pool,) = in_state(fleet, (3,)).pools
    assert (pool.replicas, pool.failures) == (3, None)


@pytest.mark.slow
def test_standby_spares_are_on_the_bill_of_the_whole_fleet(tmp_path: Path) -> None:
    failures = "{replica: {mtbf_h: 1, repair_h: 1}, spares: {count: 1}}"
    (fleet,) = loaded(tmp_path, FOUR, f"fleets.0.pools.0.failures={failures}").fleets
    (pool,) = in_state(fleet, (3,)).pools
    assert pool.failures is not None
    assert (pool.replicas, pool.failures.components, pool.failures.spares) == (4, {}, StandbyReplicas(count=1))
    assert pools_as_data(fleet, (3,))[0]["failures"] == {"spares": {"count": 1}}
    assert in_state(fleet, (2,)).pools[0].failures is None


def test_replacements_at_the_rate_of_a_pool_are_refused(plan: CasePlan) -> None:
    slo = plan.slo.model_copy(update={"availability": 0.99, "ttft_s": 1.0})
    booked = Operations(failures=Replaced(handling_usd=150))
    fleet = Fleet.model_validate({"name": "a", "pools": [{"gpu": "l4"}]})
    assert "give per_gpu_year or rate" in why_no_availability(slo, [fleet], booked)
    known = Operations(failures=Replaced(handling_usd=150, per_gpu_year=0.1))
    assert not why_no_availability(slo, [fleet], known)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            ["fleets.0.pools.0.spot={trace: {0: 4, 1: 0}, notice_s: 5}"],
            "by a trace of hours; availability over years needs",
        ),
        (["fleets.0.pools.0.spot={interruptions_per_h: 1, recovery_h: 1, notice_s: 5}"], ""),
        (SCALED, "is scaled"),
    ],
)
def test_what_has_no_share_over_years_is_refused(tmp_path: Path, more: list[str], told: str) -> None:
    slo = "slo={ttft_s: 1, attainment: 0.9, availability: 0.99}"
    scenario = loaded(tmp_path, FOUR, slo, *more)
    found = why_no_availability(scenario.slo, scenario.fleets)
    assert bool(found) == bool(told)
    assert told in found
