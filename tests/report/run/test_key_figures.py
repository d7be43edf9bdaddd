import csv
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sim.report.run.key_figures import PairDifferences, blocks, columns_for, difference_table, mark_notes, write_paired
from sim.report.run.terminal import terminal_differences
from sim.study.comparison import differences
from sim.study.metrics.statistics import student_t
from sim.study.points import summarize

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95}


def test_a_difference_by_hand(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, 1.0, i, capacity=2.0, usd_per_h=1.0) for name in "ab" for i in range(3)]
    for case, value in zip(cases, (1.0, 2.0, 6.0, 0.0, 2.0, 4.0), strict=True):
        case.set(ttft_s_p95=value)
    found = {one.metric: one for one in differences(summarize(cases, ["rate_rps"], SLO))}
    # pairs differ by 1, 0 and 2: mean 1, variance 1
    one = found["ttft_s_p95"]
    assert (one.values, one.difference, one.pairs) == ((3.0, 2.0), 1.0, 3)
    assert one.half_width == pytest.approx(student_t(2) / 3**0.5)
    assert one.verdict == "cannot tell"
    assert found["usd_per_million_output_tokens"].verdict == "same"


def test_infinite_values_and_single_runs_claim_nothing(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, 1.0, i, capacity=2.0, usd_per_h=None) for name in "ab" for i in range(2)]
    cases[1].set(ttft_s_p95=inf)
    found = {one.metric: one for one in differences(summarize(cases, [], SLO))}
    assert (found["ttft_s_p95"].difference, found["ttft_s_p95"].verdict) == (inf, "cannot tell")
    assert "usd_per_million_output_tokens" not in found
    alone = differences(summarize([cases[0], cases[2]], [], SLO))
    assert {one.verdict for one in alone} == {""}
    assert {one.half_width for one in alone} == {None}


@pytest.mark.parametrize("met", [None, False])
def test_services_have_shares_within_the_slo_if_one_of_them_has_an_slo(
    make_case: Callable[..., Any], met: bool | None
) -> None:
    (point,) = summarize([make_case("a", 1.0, capacity=9.0, usd_per_h=1.0)], [], {})
    point = replace(point, row=point.row | {"meets_slo": met}, services={"chat": point.row})
    assert ("slo_attainment" in [one.name for one in columns_for([point], {})]) == (met is not None)


def test_requests_without_an_answer_are_stated_over_all_points_of_a_fleet(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, load, capacity=9.0, usd_per_h=1.0) for name in "ab" for load in (1.0, 2.0, 4.0)]
    for case, rejected in zip(cases, (0, 10, 25, 0, 0, 0), strict=True):
        case.set(requests=100, rejected=rejected, lost=rejected // 25)
    said = [note.replace("\u00a0", " ") for note in mark_notes(summarize(cases, ["rate_rps"], SLO)) if "reject" in note]
    assert said == [
        "requests without an answer, whose times count as infinite: a (10 % to 25 % rejected, 0 % to 1.0 % lost with a "
        "replica)"
    ]


@pytest.mark.slow
def test_every_pair_of_fleets_at_every_point(tmp_path: Path, two_fleets: list[Any], make_case: Any) -> None:
    third = [make_case("third", 1.0, i, capacity=1.5, usd_per_h=1.0) for i in range(3)]
    found = differences(summarize([*two_fleets, *third], ["rate_rps"], SLO))
    write_paired(tmp_path / "paired.csv", found, ["rate_rps"])
    with (tmp_path / "paired.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = {(row["first"], row["second"], row["rate_rps"], row["pairs"]) for row in rows}
    loads = ("0.25", "0.5", "1.0", "2.0", "4.0")
    assert pairs == {("4x RTX 4090", "2x A100 80GB", load, "5") for load in loads} | {
        (name, "third", "1.0", "3") for name in ("4x RTX 4090", "2x A100 80GB")
    }
    assert {row["nonstationary"] for row in rows if row["metric"] == "ttft_s_p95" and row["rate_rps"] == "4.0"} == {
        "true"
    }
    assert {row["nonstationary"] for row in rows if row["metric"] == "tpot_s_p95"} == {"false"}
    assert len(blocks(found, ["rate_rps"], SLO)) == 3


@pytest.mark.slow
def test_all_pairs_are_in_one_table(two_fleets: list[Any]) -> None:
    found = blocks(differences(summarize(two_fleets, ["rate_rps"], SLO)), ["rate_rps"], SLO)
    one_pair = difference_table(found)
    assert one_pair is not None
    assert one_pair.heads == found[0].heads
    assert [row for _, row in one_pair.rows] == list(found[0].rows)
    assert [pair for pair, _ in one_pair.rows] == [found[0].title, *[""] * (len(found[0].rows) - 1)]
    other = PairDifferences("a minus c", found[0].heads[1:], tuple(row[1:] for row in found[0].rows[:1]))
    both = difference_table([*found, other])
    assert both is not None
    assert both.heads == found[0].heads
    assert both.rows[-1] == ("a minus c", ("", *found[0].rows[0][1:]))
    assert difference_table([]) is None


@pytest.mark.slow
def test_the_block_fits_a_terminal(two_fleets: list[Any]) -> None:
    console = Console(width=80, record=True, file=None)
    with console.capture() as captured:
        console.print(*terminal_differences(two_fleets, ["rate_rps"], SLO))
    lines = captured.get().strip().splitlines()
    assert lines[0].startswith("Difference (4x RTX 4090 minus 2x A100 80GB)")
    assert sum("±" in line for line in lines) == 6
    assert "…" not in captured.get()
    one_fleet = [case for case in two_fleets if case.fleet == "4x RTX 4090"]
    assert terminal_differences(one_fleet, ["rate_rps"], SLO) == []
