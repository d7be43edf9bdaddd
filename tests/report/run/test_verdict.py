import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from sim.report.run.verdict import Verdict, verdict
from sim.report.words.service_level import storm_notes
from sim.study.points import Point, summarize

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95}


def answer(cases: list[Any], axes: list[str], slo: dict[str, float] = SLO) -> Verdict:
    return verdict(summarize(cases, axes, slo), axes, slo)


def test_the_cheaper_fleet_the_range_and_who_is_left_beyond(two_fleets: list[Any]) -> None:
    assert answer(two_fleets, ["rate_rps"]).headline == (
        "4x RTX 4090 is cheaper per million output tokens wherever both meet the SLO (0.25 to 2 req/s): "
        "$0.333 against $0.821 at 2 req/s (59\u00a0% less). At 4 req/s only 2x A100 80GB meets the SLO."
    )


def test_findings_state_range_limits_and_overload(two_fleets: list[Any]) -> None:
    findings = " ".join(answer(two_fleets, ["rate_rps"]).findings)
    assert "0.25 to 4 req/s; 5 replications each" in findings
    assert "(the limit lies between that and 4 req/s)" in findings
    assert "exceeds its 95 % interval" in findings
    assert "Overloaded: 4x RTX 4090 at 4 req/s." in findings


def test_costs_within_their_interval_are_called_the_same(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, 1.0, i, capacity=2.0, usd_per_h=1.0) for name in "ab" for i in range(3)]
    for case, usd in zip(cases, (1.0, 1.1, 1.2, 1.2, 1.1, 1.01), strict=True):
        case.set(cost_usd=usd)
    said = answer(cases, [])
    assert said.headline.startswith("a and b cost the same per million output tokens within the 95 % interval")
    assert "Within the 95 % interval the costs do not differ." in said.findings


@pytest.mark.parametrize(("capacity", "told"), [(9.0, "all 3 meet the SLO"), (0.5, "2 of 3 meet the SLO")])
def test_the_verdict_counts_the_fleets_that_meet_the_slo(
    make_case: Callable[..., Any], capacity: float, told: str
) -> None:
    costs, loads = {"a": 1.0, "b": 2.0, "c": 3.0}, {"a": 9.0, "b": 9.0, "c": capacity}
    cases = [make_case(name, 1.0, i, capacity=loads[name], usd_per_h=costs[name]) for name in "abc" for i in range(3)]
    assert answer(cases, []).headline.startswith(f"a is cheapest per million output tokens, and {told}:")


@pytest.mark.parametrize("runs", [1, 2])
def test_one_or_two_runs_report_that_there_is_no_interval(two_fleets: list[Any], runs: int) -> None:
    said = answer([case for case in two_fleets if case.replication < runs], ["rate_rps"])
    assert any(line.startswith("Fewer than 3 runs each") for line in said.findings)


def test_what_is_inconclusive_is_neither_met_nor_missed_in_the_headline(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", load, i, capacity=9.0, usd_per_h=1.0) for load in (1.0, 2.0, 4.0) for i in range(3)]
    for case, share in zip(cases, [0.99, 0.99, 0.99, 0.93, 0.95, 0.98, 0.80, 0.81, 0.82], strict=True):
        case.set(slo_attainment=share, slo_shares=[share])
    said = answer(cases, ["rate_rps"])
    assert said.headline.startswith("a meets the SLO at 1 req/s;")
    assert " It does not at 4 req/s. Inconclusive whether a at 2 req/s (" in said.headline
    assert said.headline.endswith("meets the SLO: the 95 % interval contains the target.")
    detail = next(line for line in said.findings if line.startswith("Inconclusive"))
    assert "a at 2 req/s (95.3\u00a0% of the requests, interval" in detail


def test_a_fleet_whose_only_point_is_inconclusive_has_no_other_headline(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=9.0, usd_per_h=1.0) for i in range(3)]
    for case, share in zip(cases, [0.93, 0.95, 0.98], strict=True):
        case.set(slo_attainment=share, slo_shares=[share])
    assert answer(cases, []).headline.startswith("Inconclusive whether a (")


def test_what_is_missed_for_certain_leaves_nothing_inconclusive(make_case: Callable[..., Any]) -> None:
    slo = SLO | {"ttft_s": {"p95": 0.001}, "tpot_s": 0.1}
    cases = [make_case("a", 1.0, i, capacity=9.0, usd_per_h=1.0) for i in range(3)]
    for case, share in zip(cases, [0.93, 0.95, 0.98], strict=True):
        case.set(slo_attainment=share, slo_shares=[share, share], slo={})
    said = answer(cases, [], slo)
    assert said.headline.startswith("a does not meet the SLO")
    assert not [line for line in said.findings if line.startswith("Inconclusive")]


def test_one_fleet_alone(two_fleets: list[Any]) -> None:
    said = answer([case for case in two_fleets if case.fleet == "4x RTX 4090"], ["rate_rps"])
    assert said.headline == (
        "4x RTX 4090 meets the SLO at 0.25 to 2 req/s; a million output tokens costs $0.333 at 2 req/s. "
        "It does not at 4 req/s."
    )


def test_without_an_slo_what_counts_is_keeping_up(two_fleets: list[Any]) -> None:
    assert "wherever both keep up (0.25 to 2 req/s)" in answer(two_fleets, ["rate_rps"], {}).headline


def test_a_fleet_that_refuses_many_requests_does_not_keep_up(make_case: Callable[..., Any]) -> None:
    """2 % without an answer still keep up, and are stated beside the headline, whatever happened to them."""
    cases = [make_case("a", load, capacity=9.0, usd_per_h=1.0) for load in (1.0, 2.0, 4.0)]
    for case, ends in zip(cases, ({"rejected": 1}, {"timed_out": 2}, {"rejected": 25, "lost": 5}), strict=True):
        case.set(requests=100, **ends)
    said = answer(cases, ["rate_rps"], {})
    assert said.headline.replace("\u00a0", " ") == (
        "a keeps up with the load at 1 to 2 req/s; a million output tokens costs $0.511 at 2 req/s. It does not at 4 "
        "req/s. Requests without an answer: a at 4 req/s (25 % rejected, 5.0 % lost with a replica)."
    )
    few = "Requests without an answer: a at 1 to 2 req/s (0 % to 1.0 % rejected, 0 % to 2.0 % timed out)."
    assert few in [line.replace("\u00a0", " ") for line in said.findings]
    judged = answer(cases, ["rate_rps"]).headline
    assert judged.startswith("a meets the SLO at 1 to 4 req/s;")  # the service level counts these requests
    assert judged.replace("\u00a0", " ").endswith("(25 % rejected, 5.0 % lost with a replica).")


def test_without_an_slo_a_queue_that_seems_to_grow_is_inconclusive(make_case: Callable[..., Any]) -> None:
    case = make_case("a", 1.0, capacity=9.0, usd_per_h=1.0)
    case.set(late_growth=100.0, late_growth_error=1.0)
    assert answer([case], [], {}).headline.startswith("Inconclusive whether a (")
    assert answer([case], [], {}).headline.endswith(
        "keeps up with the load: the queue seems to grow; a longer horizon_s shows whether it does."
    )
    beyond = make_case("a", 12.0, capacity=9.0, usd_per_h=1.0)
    both = answer([case, beyond], ["rate_rps"], {}).headline.replace("\u00a0", " ")
    assert both.startswith("a does not keep up with the load at 12 req/s. Inconclusive whether a at 1 req/s")


def test_figures_of_few_random_requests_are_called_rough(make_case: Callable[..., Any]) -> None:
    case = make_case("a", 1.0, capacity=9.0, usd_per_h=1.0)
    case.set(requests=7)
    said = " Rough figures: only 7 requests arrived; a longer horizon_s or more replications give steadier ones."
    assert answer([case], []).headline.endswith(said)
    case.set(chance=False)
    assert "Rough" not in answer([case], []).headline


def test_without_a_cost_latency_decides(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, 1.0, capacity=c, usd_per_h=None) for name, c in (("slow", 2.0), ("fast", 4.0))]
    said = answer(cases, [])
    assert said.headline.startswith("slow meets the SLO; fast meets the SLO. Their p95 time to first token is")
    assert said.headline.index("(fast)") < said.headline.index("(slow)")
    assert "$" not in said.headline + "".join(said.findings)


def test_no_fleet_meets_the_slo(make_case: Callable[..., Any]) -> None:
    cases = [make_case(name, load, capacity=1.0, usd_per_h=1.0) for name in "ab" for load in (2.0, 4.0)]
    said = answer(cases, ["rate_rps"]).headline
    assert said.startswith("Neither fleet meets the SLO at any simulated point (2 to 4 req/s). a comes nearest")

    alone = [case for case in cases if case.fleet == "a"]
    at = "a does not meet the SLO at any simulated point (2 to 4 req/s). It comes nearest at 2 req/s: "
    assert at in answer(alone, ["rate_rps"]).headline
    only = answer(alone[:5], []).headline
    assert re.fullmatch(r"a does not meet the SLO\. [0-9.]+\s% of the requests are within its limits .*", only), only


def test_each_setting_of_a_second_axis_has_its_answer(make_case: Callable[..., Any]) -> None:
    cases = [
        make_case(name, load, capacity=2.3, usd_per_h=usd, cv=cv)
        for name, usd in (("a", 1.0), ("b", 2.0))
        for load in (0.5, 1.0)
        for cv in (1, 4)
    ]
    said = answer(cases, ["rate_rps", "cv"]).headline
    assert said.startswith("At cv 1: a is cheaper")
    assert "At cv 4: a is cheaper" in said


@pytest.mark.slow
def test_many_settings_are_a_sentence_and_a_table(make_case: Callable[..., Any]) -> None:
    cases = [
        make_case(name, load, capacity=capacity, usd_per_h=usd, cv=cv)
        for name, usd, capacity in (("a", 1.0, 0.6), ("b", 2.0, 2.3))
        for load in (0.5, 1.0, 4.0)
        for cv in (1, 2, 3, 4)
    ]
    said = answer(cases, ["rate_rps", "cv"])
    assert said.headline == (
        "Cheapest per million output tokens among those that meet the SLO, by simulated setting: a at 4 of 12; b at 4 "
        "of 12; no fleet at 4 of 12."
    )
    assert "Settings at which each fleet meets the SLO: a at 4 of 12; b at 8 of 12." in said.findings
    assert said.table is not None
    assert said.table.heads[1:] == ["0.5 req/s", "1 req/s", "4 req/s"]
    assert [row[0] for row in said.table.rows] == ["cv 1", "cv 2", "cv 3", "cv 4"]
    assert [cell.split()[0] for cell in said.table.rows[0][1:]] == ["a", "b", "no"]
    assert len(said.findings) < 6


def test_a_fleet_that_cannot_run_is_named_with_its_reason(two_fleets: list[Any]) -> None:
    without = [replace(case, status="infeasible", reason="needs 145.9 GB") for case in two_fleets[25:]]
    said = answer([*two_fleets[:25], *without], ["rate_rps"])
    assert said.headline.startswith("4x RTX 4090 meets the SLO")
    assert "2x A100 80GB cannot run: needs 145.9 GB." in said.findings


def test_many_winners_are_listed_without_their_figures(make_case: Callable[..., Any]) -> None:
    kinds = [("a", 0.6, 1.0), ("b", 1.2, 2.0), ("c", 2.4, 3.0), ("d", 2.5, 9.0)]
    cases = [
        make_case(name, load, capacity=capacity, usd_per_h=usd)
        for name, capacity, usd in kinds
        for load in (0.5, 1.0, 2.0)
    ]
    said = answer(cases, ["rate_rps"]).headline
    assert said == (
        "Cheapest per million output tokens among those that meet the SLO: a at 0.5 req/s; b at 1 req/s; c at 2 req/s."
    )


@pytest.mark.parametrize(("clients_ask", "told"), [(True, ["Retry storm: a: load 1.6x offered."]), (False, [])])
def test_only_clients_make_a_retry_storm(clients_ask: bool, told: list[str]) -> None:
    case: Any = SimpleNamespace(metrics={"clients_ask": clients_ask})
    point = Point("a", {}, (case,), {"attempts_per_request": 1.6})
    assert [note.split(" Clients")[0] for note in storm_notes([point])] == told
