"""Replicas withdrawn from a fleet: nothing runs on a machine that is off, whatever the reasons and their number."""

from dataclasses import replace

import pytest
from small_scenario import ONE_SEAT, planned, variant

from sim.catalogue.catalog import load_catalog
from sim.failures import MaintenanceSpec, SpotInterruptions
from sim.fleet.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.resolving.resolved import CasePlan, FailurePlan
from sim.workload.client import Client

STEADY = {
    "workload.arrivals.process": "constant",
    "workload.lengths.output": {"distribution": "fixed", "value": 20},
    "horizon_s": 30,
    "fleets.0.pools.0.steptime.base_s": 0.5,
    "fleets.0.pools.0.batching.max_num_seqs": 99,
}
CATALOG = load_catalog()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> CasePlan:
    return planned(tmp_path_factory.mktemp("leaving"), variant(ONE_SEAT, STEADY))


def life(log: FleetLog) -> list[tuple[str, float]]:
    """The states of the only replica and when they began, without the reading at the horizon."""
    found = [(one.state, one.start_s) for one in log.intervals]
    return [one for place, one in enumerate(found) if not place or one[0] != found[place - 1][0]]


def idle_where_off(log: FleetLog) -> bool:
    gone = [one for one in log.intervals if one.state in ("off", "failed", "repairing")]
    return bool(gone) and all(one.busy_s == 0 and one.output_tokens == 0 for one in gone)


def withdrawn(plan: CasePlan, spot: SpotInterruptions, maintained_at_s: float, takes_s: float) -> FleetLog:
    """Run a fleet whose one replica is interrupted as *spot* and maintained, and return its log."""
    maintenance = MaintenanceSpec(every_h=maintained_at_s / 3600, takes_h=takes_s / 3600)
    failures = FailurePlan((), servers=((0,),), maintenance=maintenance)
    pool = replace(plan.pools[0], spot=spot, failures=failures)
    return RunningFleet(replace(plan, pools=(pool,), drain_limit_s=100.0)).run()


def test_a_draining_replica_that_is_withdrawn_again_continues(plan: CasePlan) -> None:
    # a request takes 10 s: at 9.5 s there are ten, the last of which is answered at 19.0 s; spot capacity goes at 12 s
    spot = SpotInterruptions(trace={12 / 3600: 0, 25 / 3600: 1}, notice_s=12.0)
    log = withdrawn(plan, spot, 9.5, 3.0)
    assert idle_where_off(log)
    assert life(log)[:4] == [("serving", 0.0), ("draining", 9.5), ("repairing", 19.0), ("off", 22.0)]
    assert ("serving", 25.0) in life(log)


@pytest.mark.parametrize(("back_s", "serves_s"), [(22.0, 25.0), (28.0, 28.0)])
def test_a_replica_withdrawn_for_two_reasons_returns_when_both_have_ended(
    plan: CasePlan, back_s: float, serves_s: float
) -> None:
    # gone at 11 s at the latest, under maintenance from 20 s to 25 s
    spot = SpotInterruptions(trace={9 / 3600: 0, back_s / 3600: 1}, notice_s=2.0)
    log = withdrawn(replace(plan, horizon_s=32.0), spot, 20.0, 5.0)
    assert idle_where_off(log)
    assert [at for state, at in life(log) if state == "serving"][:2] == [0.0, serves_s]


def test_the_step_of_abandoned_requests_ends_when_the_replica_is_switched_off(plan: CasePlan) -> None:
    # the last one came at 9 s, just before the notice, and gives up in the middle of a step
    spot = SpotInterruptions(trace={10 / 3600: 0}, notice_s=10.0)
    pool = replace(plan.pools[0], spot=spot)
    client = Client(timeout_s=1.25, attempts=1)
    log = RunningFleet(replace(plan, pools=(pool,), client=client, drain_limit_s=30.0)).run()
    assert ("off", 10.25) in life(log)
    assert idle_where_off(log)
