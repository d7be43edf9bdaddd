"""Conditions on two runs: what they compare, and when they end a command with an error."""

import re
from types import SimpleNamespace
from typing import Any

import pytest

from sim.study.diff import StoredRun
from sim.study.gate import Condition, judged
from sim.study.points import Point


def run(*points: tuple[str, float, dict[str, Any]]) -> StoredRun:
    """A stored run with the given fleets, loads and values."""
    rows = [(fleet, rate, {"status": "ok", "reason": ""} | row) for fleet, rate, row in points]
    made = [Point(fleet, {"rate_rps": rate}, (), row) for fleet, rate, row in rows]
    return SimpleNamespace(points=made)  # type: ignore[return-value]


def fails(text: str, before: float | None, after: float | None) -> bool:
    name = re.split("[ <>]", text)[0]
    (outcome,) = judged(run(("a", 1, {name: before})), run(("a", 1, {name: after})), [Condition.parse(text)])
    return outcome.fails


@pytest.mark.parametrize(
    ("text", "before", "after", "expected"),
    [
        ("ttft_s_p99 > 2", 5.0, 2.0, False),
        ("ttft_s_p99 > 2", None, 2.01, True),
        ("slo_attainment < 0.95", 0.9, 0.95, False),
        ("slo_attainment < 95 %", 0.9, 0.949, True),
        ("usd_per_million_output_tokens > +5 %", 2.0, 2.1, False),
        ("usd_per_million_output_tokens > +5 %", 2.0, 2.11, True),
        ("usd_per_million_output_tokens>+5%", 2.0, 1.0, False),
        ("goodput_rps < -10 %", 10.0, 8.9, True),
        ("goodput_rps < -10 %", 10.0, 9.1, False),
        ("gpus > +2", 4.0, 6.0, False),
        ("gpus > +2", 4.0, 7.0, True),
        ("preemptions > +5 %", 0.0, 0.0, False),
        ("preemptions > +5 %", 0.0, 1.0, True),
        ("ttft_s_p99.9 > 1e-1", 0.0, 0.2, True),
    ],
)
def test_a_condition_holds_beyond_its_limit(text: str, before: float | None, after: float, expected: bool) -> None:
    assert fails(text, before, after) is expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ttft > 2", "summary.csv has no column 'ttft'"),
        ("ttft_s_p9x > 2", "summary.csv has no column 'ttft_s_p9x'; did you mean 'ttft_s_p99'?"),
        ("ttft_s_p99 >= 2", "is not a condition; examples: "),
        ("ttft_s_p99 > two", "is not a condition"),
        ("ttft_s_p99", "is not a condition"),
        ("ttft_s_p99 > 5 %", "a change in percent has a sign: ttft_s_p99 > +5 %"),
    ],
)
def test_a_condition_that_cannot_be_read_is_named(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        Condition.parse(text)


def test_a_fleet_that_no_longer_fits_fails_and_a_new_point_has_no_change() -> None:
    broken = {"status": "infeasible", "reason": "no KV cache"}
    first = run(("a", 1, {"gpus": 2.0}), ("b", 1, broken), ("c", 1, {"gpus": 1.0}))
    second = run(("a", 1, broken), ("b", 1, broken), ("c", 1, {"gpus": 1.0}), ("c", 2, {"gpus": 1.0}))
    found = judged(first, second, [Condition.parse("gpus > +50 %")])
    assert [(one.point.fleet, one.fails, one.reason) for one in found] == [
        ("a", True, "does not fit: no KV cache"),
        ("b", False, "does not fit: no KV cache"),
        ("c", False, ""),
        ("c", False, "not judged: the first run has no such value"),
    ]


def test_a_condition_that_nothing_can_be_compared_with_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'energy_kwh > 1': no point of the two runs has the values it needs"):
        judged(run(("a", 1, {})), run(("a", 1, {})), [Condition.parse("gpus > 1"), Condition.parse("energy_kwh > 1")])
