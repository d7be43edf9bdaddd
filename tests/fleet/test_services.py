"""Requests of several services: numbers and block ids that no two of them share."""

from types import SimpleNamespace
from typing import Any

from sim.fleet.fleet import end_of
from sim.fleet.services import ServiceBlockIds


def test_blocks_of_services_have_ids_of_their_own() -> None:
    ids = [0, 3, 7, 2**63]
    services = [ServiceBlockIds(ids, 3, content) for content in range(3)]
    for one in services:
        assert [one[place] for place in range(len(one))] == list(one[:])
        assert one[1:3] == (one[1], one[2])
    assert len({block for one in services for block in one}) == 3 * len(ids)


def test_a_run_ends_with_its_last_request_or_its_horizon() -> None:
    plans: list[Any] = [SimpleNamespace(stop_s=90.0, horizon_s=horizon_s) for horizon_s in (None, 60.0)]
    without, with_horizon = plans
    assert end_of(without, [(0, 20.0), (0, 40.0)], 30.0) == (40.0, 40.0)
    assert end_of(without, [(0, 20.0)], 30.0) == (30.0, float("inf"))  # the last request is refused
    assert end_of(with_horizon, [(0, 20.0)], 30.0) == (60.0, 60.0)
    assert end_of(with_horizon, [(2, 20.0), (0, 40.0)], 30.0) == (90.0, 90.0)
