import csv
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest

from sim.report.run.tables import write_summary
from sim.study.metrics.columns import summary_columns
from sim.study.metrics.statistics import student_t
from sim.study.points import summarize

SLO = {"ttft_s": 3.0, "tpot_s": 0.1, "attainment": 0.95}
CONTRACT = """
    fleet rate_rps status reason replications requests completed rejected unfinished offered_rps requests_per_s
    output_tokens_per_s total_tokens_per_s goodput_rps slo_attainment meets_slo overloaded limited_by ttft_s_mean
    ttft_s_p50 ttft_s_p95 ttft_s_p99 tpot_s_mean tpot_s_p50 tpot_s_p95 tpot_s_p99 e2e_s_mean e2e_s_p50 e2e_s_p95
    e2e_s_p99 queue_s_p95 batch_mean gpu_busy_fraction kv_used_peak_fraction preemptions gpus servers
    gpu_power_w_mean it_power_w_mean facility_power_w_mean energy_kwh capex_usd cost_usd_per_h cost_usd_per_month
    usd_per_million_output_tokens usd_per_million_tokens usd_per_million_good_tokens
"""


def written(path: Path, cases: list[Any], axes: list[str]) -> list[dict[str, str]]:
    write_summary(path, summarize(cases, axes, SLO), axes)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_columns_are_those_of_the_contract_and_then_the_intervals() -> None:
    columns, expected = summary_columns(["rate_rps"], money=True), CONTRACT.split()
    assert [name for name in columns if name in expected] == expected
    marks = columns.index("low_sample_percentiles")
    assert columns[marks:][:3] == ["low_sample_percentiles", "nonstationary_columns", "intervals"]
    assert all(name.endswith(("_ci95", "_ci95_low", "_ci95_high")) for name in columns[marks + 3 :])
    assert columns[marks - 1] == "slo_verdict"
    ends = [name.removesuffix("_ci95_low") for name in columns if name.endswith("_low")]
    assert ends == ["slo_attainment", "gpu_busy_fraction", "kv_used_peak_fraction"]


def test_without_any_cost_there_are_no_money_columns() -> None:
    assert not [name for name in summary_columns([], money=False) if "usd" in name]


def test_one_row_per_fleet_and_point(tmp_path: Path, two_fleets: list[Any]) -> None:
    rows = written(tmp_path / "summary.csv", two_fleets, ["rate_rps"])
    assert [(row["fleet"], row["rate_rps"]) for row in rows][:2] == [("4x RTX 4090", "0.25"), ("4x RTX 4090", "0.5")]
    assert len(rows) == 10
    assert {row["replications"] for row in rows} == {"5"}
    assert {row["meets_slo"] for row in rows} == {"true", "false"}


def test_interval_of_a_column_by_hand(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=1.0) for i in range(3)]
    for case, value in zip(cases, (1.0, 2.0, 6.0), strict=True):
        case.set(ttft_s_p95=value)
    row = summarize(cases, [], SLO)[0].row
    assert row["ttft_s_p95"] == 3.0
    assert row["ttft_s_p95_ci95"] == pytest.approx(student_t(2) * (7.0 / 3) ** 0.5)


def test_one_replication_has_no_intervals(make_case: Callable[..., Any]) -> None:
    row = summarize([make_case("a", 1.0, capacity=2.0, usd_per_h=1.0)], [], SLO)[0].row
    assert not [name for name, value in row.items() if name.endswith("_ci95") and value is not None]


def test_dollars_per_million_are_a_ratio_of_sums(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=1.0) for i in range(2)]
    for case, usd, tokens in zip(cases, (1.0, 2.0), (1e6, 3e6), strict=True):
        case.set(cost_usd=usd, output_tokens=tokens, total_tokens=2 * tokens, good_output_tokens=0)
        case.set(window_h=0.5)
    row = summarize(cases, [], SLO)[0].row
    assert row["usd_per_million_output_tokens"] == 0.75
    assert row["usd_per_million_tokens"] == 0.375
    assert row["usd_per_million_good_tokens"] == inf
    assert (row["cost_usd_per_h"], row["cost_usd_per_month"]) == (3.0, 3.0 * 730)


def test_an_infinite_percentile_is_printed_inf(tmp_path: Path, make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 4.0, i, capacity=2.0, usd_per_h=None) for i in range(2)]
    cases[1].set(ttft_s_p99=inf)
    row = written(tmp_path / "summary.csv", cases, [])[0]
    assert (row["ttft_s_p99"], row["ttft_s_p99_ci95"]) == ("inf", "")
    assert float(row["ttft_s_p50"]) == summarize(cases, [], SLO)[0].row["ttft_s_p50"]


def test_low_sample_percentiles_are_named(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 0.5, i, capacity=2.0, usd_per_h=None) for i in range(2)]
    assert summarize(cases, [], SLO)[0].row["low_sample_percentiles"] == "ttft_s_p99"


def test_an_infeasible_fleet_is_a_row_with_its_reason(tmp_path: Path, make_case: Callable[..., Any]) -> None:
    case = make_case("a", 1.0, capacity=2.0, usd_per_h=None)
    case.status, case.reason, case.measured = "infeasible", "needs 145.9 GB, leaves 82.1", {}
    row = written(tmp_path / "summary.csv", [case], ["rate_rps"])[0]
    assert (row["status"], row["reason"], row["requests"]) == ("infeasible", "needs 145.9 GB, leaves 82.1", "")


def test_the_slo_is_met_by_the_mean_over_replications(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=None) for i in range(2)]
    cases[0].set(slo_attainment=0.94)
    cases[1].set(slo_attainment=0.97)
    assert summarize(cases, [], SLO)[0].row["meets_slo"] is True
    assert summarize(cases, [], {"attainment": 0.95})[0].row["meets_slo"] is None


def test_what_grows_with_the_horizon_is_named(make_case: Callable[..., Any]) -> None:
    over, steady = (
        summarize([make_case("a", load, i, capacity=2.0, usd_per_h=1.0) for i in range(3)], [], SLO)[0].row
        for load in (4.0, 1.0)
    )
    assert steady["nonstationary_columns"] == ""
    named = over["nonstationary_columns"].split()
    assert {"ttft_s_p95", "e2e_s_mean", "queue_s_p95", "slo_attainment"} <= set(named)
    assert not [name for name in named if name.startswith("tpot")]
    assert over["intervals"] == steady["intervals"] == "replications"


def test_an_axis_is_not_lost_to_a_column_of_its_name(tmp_path: Path, make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, capacity=2.0, usd_per_h=None, warmup_s=value) for value in (0, 30)]
    found = written(tmp_path / "summary.csv", cases, ["warmup_s"])
    assert [row["warmup_s"] for row in found] == ["0", "30"]
    assert (tmp_path / "summary.csv").read_text().splitlines()[0].split(",").count("warmup_s") == 1


def test_infinite_tpot_of_an_overloaded_fleet_is_reported(make_case: Callable[..., Any]) -> None:
    case = make_case("a", 4.0, capacity=2.0, usd_per_h=None)
    case.set(tpot_s_p95=inf)
    assert "tpot_s_p95" in summarize([case], [], SLO)[0].row["nonstationary_columns"].split()


def test_a_single_run_has_intervals_by_batch_means_and_reports_it(make_case: Callable[..., Any]) -> None:
    case = make_case("a", 1.0, capacity=2.0, usd_per_h=1.0)
    case.set(batch_ci95={"ttft_s_p95": 0.03})
    row = summarize([case], [], SLO)[0].row
    assert (row["ttft_s_p95_ci95"], row["intervals"]) == (0.03, "batch means")
    assert row["cost_usd_per_h_ci95"] is row["usd_per_million_tokens_ci95"] is None


def test_single_run_cost_interval_follows_token_interval(make_case: Callable[..., Any]) -> None:
    case = make_case("a", 1.0, capacity=2.0, usd_per_h=1.0)
    case.set(batch_ci95={"output_tokens_per_s": 0.1 * case.metrics["output_tokens_per_s"]})
    row = summarize([case], [], SLO)[0].row
    assert row["usd_per_million_output_tokens_ci95"] == pytest.approx(0.1 * row["usd_per_million_output_tokens"])
    assert row["usd_per_million_tokens_ci95"] is None


def test_automatic_warm_up_adds_columns(tmp_path: Path, make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=None) for i in range(2)]
    assert "warmup_s" not in written(tmp_path / "given.csv", cases, [])[0]
    for case, warmup_s, steady in zip(cases, (10.0, 30.0), (True, False), strict=True):
        case.set(warmup_s=warmup_s, warmup_steady=steady)
    row = written(tmp_path / "found.csv", cases, [])[0]
    assert (row["warmup_s"], row["warmup_unsteady"]) == ("20.0", "1")


def test_two_replications_have_batch_means_or_report_that_there_is_no_interval(make_case: Callable[..., Any]) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=1.0) for i in range(2)]
    bare = summarize(cases, [], SLO)[0].row
    assert (bare["intervals"], bare["slo_attainment_ci95"], bare["cost_usd_per_h_ci95"]) == ("none", None, None)
    for case, half in zip(cases, (0.03, 0.04), strict=True):
        case.set(batch_ci95={"ttft_s_p95": half, "output_tokens_per_s": 0.01 * case.metrics["output_tokens_per_s"]})
    row = summarize(cases, [], SLO)[0].row
    assert (row["intervals"], row["ttft_s_p95_ci95"], row["ttft_s_p99_ci95"]) == ("batch means", 0.025, None)
    # the tokens of each run are known to 1 %, those of both together to 1 % / sqrt(2)
    relative = row["usd_per_million_output_tokens_ci95"] / row["usd_per_million_output_tokens"]
    assert relative == pytest.approx(0.01 / 2**0.5)


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_no_share_has_an_interval_beyond_0_and_100_percent(make_case: Callable[..., Any], runs: int) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=1.0) for i in range(runs)]
    for case, share in zip(cases, (0.999, 0.72, 1.0, 0.4, 0.97), strict=False):
        case.set(slo_attainment=share, slo_shares=[share], batch_ci95={"slo_attainment": 0.5})
    row = summarize(cases, [], SLO)[0].row
    low, high = row["slo_attainment_ci95_low"], row["slo_attainment_ci95_high"]
    assert 0 <= low < row["slo_attainment"] < high <= 1
    assert row["slo_attainment_ci95"] == pytest.approx((high - low) / 2)
    assert row["slo_verdict"] == "inconclusive"


@pytest.mark.parametrize("runs", [1, 3])
def test_limits_met_while_the_queue_seems_to_grow_are_inconclusive(make_case: Callable[..., Any], runs: int) -> None:
    cases = [make_case("a", 1.0, i, capacity=2.0, usd_per_h=1.0) for i in range(runs)]
    assert summarize(cases, [], SLO)[0].row["slo_verdict"] == "met"
    for case in cases:
        case.set(late_growth=60.0, late_growth_error=8.0)
    (point,) = summarize(cases, [], SLO)
    assert (point.row["slo_verdict"], point.growing, point.certainly_good) == ("inconclusive", True, False)
    for case in cases:
        case.set(slo_attainment=0.2, slo_shares=[0.2])
    (point,) = summarize(cases, [], SLO)
    assert (point.row["slo_verdict"], point.growing) == ("missed", False)
