"""Rejected requests are never reported as answered within the service level."""

import pytest

from sim.report.words.service_level import exactly, number_beside, readings, seconds_beside, share_beside, slo_text
from sim.scenario.slo import Slo


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("share", "target", "told"),
    [
        (0.9496, 0.95, "94.96 %"),
        (0.94999, 0.95, "94.999 %"),
        (0.95, 0.95, "95 %"),
        (0.9504, 0.95, "95.04 %"),
        (0.9549, 0.955, "95 %"),
        (0.955, 0.955, "95.5 %"),
        (0.9996, 0.999, "99.96 %"),
        (0.5, 0.95, "50 %"),
        (1.0, 0.95, "100 %"),
    ],
)
def test_a_share_is_distinguished_from_its_target(share: float, target: float, told: str) -> None:
    assert plain(share_beside(share, target)) == told
    assert (plain(share_beside(share, target)) == plain(exactly(target))) is (share == target)


def test_a_latency_is_distinguished_from_its_limit() -> None:
    assert seconds_beside(2.0004, 2.0) == "2.0004 s"
    assert seconds_beside(0.05001, 0.05) == "50.01 ms"
    assert number_beside(1.5, 2.0) == "1.50"
    assert seconds_beside(float("inf"), 2.0) == "inf"


def test_reasons_have_both_figures() -> None:
    slo = Slo.model_validate({"ttft_s": {"p99": 2.0}, "tpot_s": 0.1, "attainment": 0.955})
    told = readings(slo, {"slo_attainment": 0.95496, "ttft_s_p99": 2.0004})
    assert plain(told[0]) == "95 % of the requests are within its limits (95.5 % asked for)"
    assert told[1] == "TTFT p99 is 2.0004 s (at most 2 s)"
    assert plain(slo_text(slo)) == "95.5 % of the requests within TPOT 0.1 s, TTFT p99 at most 2 s"
