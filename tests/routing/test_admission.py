"""The gate in front of a replica: what it turns away, by what is outstanding and how important a request is."""

import pytest

from sim.records import Request
from sim.routing.admission import Admission, AdmissionRules, Ejection, Shed


def test_requests_of_low_priority_are_refused_first() -> None:
    gate = AdmissionRules(
        Admission(max_outstanding=4, shed=Shed(above_priority=0, from_outstanding=2)), [lambda: 0], lambda *_: None
    )

    class Asked:
        priority = 0

    for outstanding in range(5):
        Asked.priority = 0
        assert gate.admits(Asked, 0, 1.0) is (outstanding < 4)
        Asked.priority = 1
        assert gate.admits(Asked, 0, 1.0) is (outstanding < 2)
        gate.joined(0)


ANY = Request(0, 0.0, 1, 1)


@pytest.mark.parametrize(
    ("answers", "predicted_s"),
    [
        (7, 0.0),  # too few to predict
        (8, 3 * (8.5 - 1) / 8),
        (32, 3 * (32.5 - 1) / 32),
        (40, 3 * (40.5 - 9) / 32),  # the last 32 alone
    ],
)
def test_waiting_requests_take_their_time_at_the_rate_of_the_last_answers(answers: int, predicted_s: float) -> None:
    # three requests wait, and the replica has answered one in each second
    gate = AdmissionRules(Admission(max_predicted_ttft_s=100), [lambda: 9, lambda: 3], lambda *_: None)
    for second in range(1, answers + 1):
        gate.answered(1, float(second))
    assert gate.predicted_s(1, answers + 0.5) == pytest.approx(predicted_s)
    assert gate.predicted_s(0, answers + 0.5) == 0


@pytest.mark.parametrize(("limit_s", "admitted"), [(3.0, True), (2.9, False)])
def test_a_predicted_wait_may_reach_the_limit(limit_s: float, admitted: bool) -> None:
    gate = AdmissionRules(Admission(max_predicted_ttft_s=limit_s), [lambda: 3], lambda *_: None)
    for second in range(1, 9):
        gate.answered(0, float(second))
    assert gate.admits(ANY, 0, 9.0) is admitted


def test_a_request_that_left_makes_room() -> None:
    gate = AdmissionRules(Admission(max_outstanding=2), [lambda: 0] * 2, lambda *_: None)
    gate.joined(0)
    gate.joined(0)
    assert (gate.admits(ANY, 0, 0.0), gate.admits(ANY, 1, 0.0)) == (False, True)
    gate.left(0)
    assert gate.admits(ANY, 0, 0.0)


def test_consecutive_timeouts_eject_a_replica() -> None:
    ejected: list[tuple[int, float]] = []
    rules = Admission(ejection=Ejection(timeouts=2, for_s=10))
    gate = AdmissionRules(rules, [lambda: 0] * 2, lambda *what: ejected.append(what))
    for event in (gate.timed_out, lambda replica: gate.answered(replica, 1.0), gate.timed_out):
        event(1)  # an answer between them
    gate.timed_out(0)
    assert ejected == []
    gate.timed_out(1)
    assert ejected == [(1, 10)]
    gate.timed_out(1)  # counted from none again
    assert ejected == [(1, 10)]
    gate.timed_out(1)
    assert ejected == [(1, 10), (1, 10)]
