"""The gate in front of a replica: what it turns away, by what is outstanding and how important a request is."""

from sim.routing.admission import Admission, AdmissionRules, Shed


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
