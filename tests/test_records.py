"""Options of a request: those that it has, and the defaults of the rest."""

import pickle
from copy import copy, deepcopy

import pytest

from sim.records import (
    DEFAULT_OPTIONS,
    Batch,
    BusyTime,
    FleetLog,
    Interval,
    Leap,
    Meters,
    ReplicaProgress,
    ReplicaVisit,
    Request,
)


def test_rare_fields_are_shared_until_one_is_set() -> None:
    default, other = Request(0, 0.0, 8, 4), Request(1, 0.0, 8, 4, tenant="b")
    assert default.options is DEFAULT_OPTIONS is pickle.loads(pickle.dumps(default)).options
    other.kept_tokens = 3
    assert (other.tenant, other.kept_tokens, default.tenant, default.kept_tokens) == ("b", 3, "", 0)
    assert pickle.loads(pickle.dumps(other)).tenant == "b"


@pytest.mark.parametrize(
    "record",
    [
        Leap(1.0, 2.0, 3, 0.5, 0.25),
        ReplicaVisit(1, 2.0, 3.0, ReplicaProgress(4, 5), BusyTime(6.0)),
        Meters(busy_s=1.0),
        Interval("pool", "server", 1, "serving", 0.0, 1.0, 2.0),
        Batch(),
        FleetLog([], [], [Meters()], [0], 1.0),
    ],
)
def test_records_survive_pickle_and_copy(record: object) -> None:
    for other in (pickle.loads(pickle.dumps(record)), copy(record), deepcopy(record)):
        assert (other is not record, repr(other)) == (True, repr(record))


def test_requests_survive_pickle_and_copy() -> None:
    request = Request(3, 0.5, 8, 4, 2, replica=1, started_s=1.5, cached_tokens=6, preemptions=7, tenant="b")
    for other in (pickle.loads(pickle.dumps(request)), copy(request), deepcopy(request)):
        assert other is not request
        assert (other.index, other.arrived_s, other.prompt_tokens, other.output_tokens) == (3, 0.5, 8, 4)
        assert (other.priority, other.replica, other.started_s, other.finished_s == other.finished_s) == (
            2,
            1,
            1.5,
            False,
        )
        assert (other.cached_tokens, other.preemptions, other.tenant) == (6, 7, "b")
