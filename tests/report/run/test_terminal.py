"""The decision of a run in the terminal: one table that fits, its marks, and the differences that decide."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from sim.report.run.terminal import decision

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95}


def printed(cases: list[Any], width: int = 80, **more: Any) -> list[str]:
    console = Console(width=width, file=None)
    with console.capture() as captured:
        console.print(*decision(cases, ["rate_rps"], SLO, **more))
    return captured.get().splitlines()


def rows(lines: list[str]) -> list[str]:
    """The rows of the first table: those that end in a figure."""
    table = lines[: next((i for i, line in enumerate(lines) if line.startswith(("Difference", "†", "▲"))), len(lines))]
    return [line for line in table if line.strip() and line.strip()[-1].isdigit()]


@pytest.mark.slow
def test_one_table_has_a_row_per_fleet_and_load(two_fleets: list[Any]) -> None:
    lines = printed(two_fleets)
    points = {(case.fleet, case.axes["rate_rps"]) for case in two_fleets}
    assert len(rows(lines)) == len(points)
    assert max(map(len, lines)) <= 80
    heads = " ".join(lines[:3]).split()
    for word in ("[req/s]", "TTFT", "TPOT", "[tok/s]", "[USD/h]", "USD/M"):
        assert heads.count(word) == 1, word
    assert "±" not in "".join(rows(lines))


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 70, 80])
@pytest.mark.parametrize("name", ["8x H200 with NVLink in Frankfurt, reserved for three years", "a" * 30])
def test_long_names_leave_one_table(two_fleets: list[Any], width: int, name: str) -> None:
    named = [replace(case, fleet=name) if case.fleet == "4x RTX 4090" else case for case in two_fleets]
    lines = printed(named, width)
    assert max(map(len, lines)) <= width
    assert " ".join(lines[:4]).split().count("TTFT") == 1
    assert "USD/M" in " ".join(lines[:4])


@pytest.mark.slow
def test_differences_are_those_of_the_pair_that_decides(two_fleets: list[Any]) -> None:
    lines = printed(two_fleets)
    (title,) = [line for line in lines if line.startswith("Difference")]
    assert title.strip() == "Difference (4x RTX 4090 minus 2x A100 80GB)"
    compared = [line for line in lines[lines.index(title) :] if "±" in line and line.strip()[0].isdigit()]
    assert 0 < len(compared) < len(rows(lines)) / 2
    assert not any(line.startswith("Difference") for line in printed(two_fleets, of_year=True))


@pytest.mark.slow
def test_a_fleet_that_cannot_run_has_a_row_and_a_reason(make_case: Callable[..., Any], two_fleets: list[Any]) -> None:
    unable = replace(make_case("small", 1.0, capacity=1.0, usd_per_h=1.0), status="infeasible", reason="needs 145.9 GB")
    text = " ".join(" ".join(printed([*two_fleets, unable])).split())
    assert "cannot run" in text
    assert "small: needs 145.9 GB" in text
