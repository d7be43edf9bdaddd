"""A run over time, worked by hand, and the charts that are made of it."""

from dataclasses import dataclass
from math import inf, isnan
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sim.report.run.timeline import timeline_panels
from sim.study.timeline import is_switched, timeline_of

NONE = float("nan")
STATES = [
    # replica, state, start, end: one serves throughout, the other starts at 100 s, breaks down at 180 s
    (0, "serving", 0.0, 240.0),
    (1, "off", 0.0, 100.0),
    (1, "booting", 100.0, 121.0),
    (1, "serving", 121.0, 180.0),
    (1, "failed", 180.0, 200.0),
    (1, "repairing", 200.0, 240.0),
]


@dataclass
class Case:
    states: list[tuple[int, str, float, float]]
    keeps_requests: bool = True

    def usage(self) -> pa.Table:
        columns = zip(*self.states, strict=True)
        return pa.table(dict(zip(("replica", "state", "start_s", "end_s"), map(list, columns), strict=True)))

    def requests(self) -> pa.Table:
        rows = [(1.0, 1.0, 2.0), (3.0, 5.0, 7.0), (10.0, NONE, NONE)] if self.keeps_requests else []
        names = ("arrived_s", "started_s", "first_token_s")
        return pa.table({name: pa.array([row[i] for row in rows], pa.float64()) for i, name in enumerate(names)})

    def costs(self) -> pa.Table:
        # 240 s at 3.6 USD per hour from the beginning, 100 s at 7.2 from 121 s on
        return pa.table({"start_s": [0.0, 121.0], "end_s": [240.0, 221.0], "amount_usd": [0.24, 0.2]})


def test_short_remainder_is_merged_into_the_last_interval() -> None:
    course = timeline_of(Case([(0, "serving", 0.0, 250.5)]))
    assert course.edges_s[-2:].tolist() == [245.0, 250.5]


def test_the_cost_rate_is_that_of_the_time_billed() -> None:
    # the bill ends at 240 s, the run soon after
    rate = timeline_of(Case([(0, "serving", 0.0, 242.4)])).usd_per_h
    assert rate is not None
    assert rate[[0, -1]].tolist() == pytest.approx([3.6, 3.6])


def test_means_over_intervals() -> None:
    case: Any = Case(STATES)
    course = timeline_of(case)
    assert is_switched(case)
    assert np.diff(course.edges_s).tolist() == [2.0] * 120
    assert course.replicas["serving"][[0, 60, 61, 89, 90]].tolist() == pytest.approx([1, 1.5, 2, 2, 1])
    assert course.replicas["booting"][[49, 50, 60]].tolist() == pytest.approx([0, 1, 0.5])
    total = sum(course.replicas.values())
    assert total.tolist() == pytest.approx([2.0] * 120)
    assert course.failed_s == (180.0,)
    assert course.arrivals_rps is not None
    assert course.ttft_s is not None
    assert course.waiting is not None
    assert course.usd_per_h is not None
    assert course.arrivals_rps[:6].tolist() == [0.5, 0.5, 0, 0, 0, 0.5]
    assert np.isnan(course.arrivals_rps[6:]).all()
    assert course.ttft_s[[0, 1, 5]].tolist() == [1.0, 4.0, inf]
    assert isnan(course.ttft_s[2])
    assert course.waiting[[0, 1, 2, 5, 119]].tolist() == [0, 1, 0, 1, 1]
    assert course.usd_per_h[[0, 60, 61]].tolist() == pytest.approx([3.6, 7.2, 10.8])


def panels(**fleets: Any) -> list[Any]:
    lines = [SimpleNamespace(fleet=name, points=(SimpleNamespace(cases=(case,)),)) for name, case in fleets.items()]
    sweep: Any = SimpleNamespace(lines=lines, fleets=list(fleets), reference=None, value=lambda point: None)
    return timeline_panels(sweep, {"ttft_s": 3.0})


def test_charts_only_where_something_changes() -> None:
    still = Case([(0, "serving", 0.0, 240.0), (0, "draining", 240.0, 250.0)])
    assert panels(a=still) == []
    both = panels(still=still, moving=Case(STATES))
    titles = ["Load", "Time to first token", "Queue", "Cost rate", "Replicas: moving"]
    assert [panel.title for panel in both] == titles
    assert [panel.y_linear for panel in both] == [True, False, True, True, True]
    assert all(panel.x_linear for panel in both), (
        "time runs evenly, also where nothing is billed before the warm-up ends"
    )
    assert [curve.name for curve in both[1].curves] == ["still", "moving"]
    assert [curve.name for curve in both[-1].curves] == ["serving", "starting", "broken down", "failure"]
    assert (both[-1].curves[-1].x, both[-1].curves[-1].y) == ((180.0,), (2.0,))
    assert all(not any(map(isnan, curve.y)) for panel in both for curve in panel.curves)
    assert [panel.title for panel in panels(a=Case(STATES, keeps_requests=False))] == [*titles[3:4], "Replicas: a"]


def test_the_cost_rate_is_drawn_in_the_currency_of_its_heading(monkeypatch: pytest.MonkeyPatch) -> None:
    (dollars,) = panels(a=Case(STATES))[3].curves
    monkeypatch.setattr("sim.report.run.timeline.shown", lambda usd: usd / 1.2)
    (euros,) = panels(a=Case(STATES))[3].curves
    assert euros.y == pytest.approx([one / 1.2 for one in dollars.y])
    assert dollars.y[0] == pytest.approx(3.6)
