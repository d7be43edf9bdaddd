"""Cells of the tables of candidates."""

from math import inf

import pytest

from sim.report.size_candidates import shown
from sim.study.size.candidates import CandidateFleet


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("tpot_s_p95", "424 ms"),  # one unit in the whole column
        ("ttft_s_p95", "85.0 ms"),
        ("e2e_s_p95", "12.5 s"),
        ("e2e_s_p50", ""),
        ("tpot_s_p99", "inf"),
    ],
)
def test_latencies_of_candidates(name: str, text: str) -> None:
    measured: dict[str, float | None] = {"tpot_s_p95": 0.424, "tpot_s_p99": inf, "ttft_s_p95": 0.085, "e2e_s_p95": 12.5}
    assert shown(CandidateFleet("a", "a", "h100", 1, 1, "misses", 1.0, 1.0, metrics=measured), name) == text
