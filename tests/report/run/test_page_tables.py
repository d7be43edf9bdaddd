"""Tests of the tables of report.html."""

from math import inf

import pytest

from sim.report.run.page_tables import latencies
from sim.study.points import Point


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.0129, inf, None), ["12.9 ms", "inf", ""]),
        ((0.0129, 4.81), ["0.0129 s", "4.81 s"]),
        ((inf,), ["inf"]),
    ],
)
def test_unbounded_latencies_do_not_choose_the_unit(values: tuple[float | None, ...], texts: list[str]) -> None:
    points = [Point("a", {}, (), {"tpot_s_p95": value}) for value in values]
    assert latencies(points, "tpot_s_p95") == texts
