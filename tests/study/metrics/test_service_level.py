"""Limits on percentiles beside limits of each request, and one verdict for all commands."""

import ast
import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from sim.catalogue.catalog import load_catalog
from sim.report.charts.sweep_panels import panels_of
from sim.report.run.key_figures import blocks, columns_for
from sim.report.run.terminal import terminal_differences
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.slo import Slo
from sim.study.capacity import capacities
from sim.study.comparison import differences
from sim.study.execution.cases import run_points
from sim.study.execution.cores import ProcessPool
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.service_level import attainment_of, slack
from sim.study.points import summarize
from sim.study.size.bounds import PoolBounds

CATALOG = load_catalog()
SCENARIO = """
workload:
  arrivals: {process: poisson, rate_rps: 8.0}
  lengths: {prompt: {distribution: fixed, value: 200}, output: {distribution: uniform, min: 1, max: 40}}
horizon_s: 30
drain_limit_s: 1000
replications: 2
slo: SLO
fleets:
  - name: one
    pools:
      - steptime: {model: affine, base_s: 0.016, per_token_s: 9.0e-5, per_context_token_s: 1.4e-7}
        batching: {policy: vllm, max_num_seqs: 8, num_gpu_blocks: 2588, max_model_len: 4096}
"""


def scenario(tmp_path: Path, slo: str, sets: tuple[str, ...] = ()) -> Any:
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.replace("SLO", slo))
    return load(path, sets, catalog=CATALOG)


def metrics(**values: Any) -> CaseMetrics:
    return CaseMetrics.of_data({"requests": 1000, "slo_attainment": 0.96, "overloaded": False} | values)


def test_percentiles_and_limits_of_each_request_may_be_combined() -> None:
    slo = Slo.model_validate({"ttft_s": {"p50": 0.5, "p99.9": 2}, "tpot_s": 0.1, "attainment": 0.9})
    assert slo.per_request == {"tpot_s": 0.1}
    assert [(one.column, one.limit_s) for one in slo.percentiles] == [("ttft_s_p50", 0.5), ("ttft_s_p99.9", 2.0)]
    assert [goal.share for goal in slo.goals] == [0.9, 0.5, pytest.approx(0.999)]
    assert Slo.model_validate(slo.model_dump(exclude_none=True)) == slo


@pytest.mark.parametrize(
    ("slo", "told"),
    [
        ("{ttft_s: {p100: 2.0}}", "from p1 to p99.9"),
        ("{ttft_s: {p99: -1}}", "p99: a number of seconds above 0"),
        ("{ttft_s: {95: 2.0}}", "write p50, p95, p99"),
        ("{ttft_s: {}}", "names no percentile"),
        ("{ttft_s: fast}", "a number of seconds above 0"),
    ],
)
def test_wrong_limits_are_reported_with_their_line(tmp_path: Path, slo: str, told: str) -> None:
    with pytest.raises(ScenarioErrors, match=r"s.yaml:8: slo.ttft_s: .*") as caught:
        scenario(tmp_path, slo)
    assert told in str(caught.value)


def test_percentile_over_replications_is_their_mean() -> None:
    slo = Slo.model_validate({"ttft_s": {"p99": 2.0}})
    runs = [metrics(ttft_s_p99=1.5), metrics(ttft_s_p99=2.4)]
    assert attainment_of(slo, runs).met is True
    assert attainment_of(slo, [*runs, metrics(ttft_s_p99=2.2)]).met is False
    assert attainment_of(slo, [metrics(ttft_s_p99=float("inf"))]).met is False
    # the share within the limits of each request is not asked for
    assert attainment_of(slo, [metrics(ttft_s_p99=1.0, slo_attainment=0.2)]).met is True
    both = Slo.model_validate({"ttft_s": {"p99": 2.0}, "tpot_s": 0.1})
    assert attainment_of(both, [metrics(ttft_s_p99=1.0, slo_attainment=0.2)]).met is False
    assert attainment_of(both, [metrics(ttft_s_p99=1.0)]).met is True


def test_rounding_rejects_no_fleet() -> None:
    runs = [metrics(slo_attainment=0.95)] * 3
    assert sum([0.95] * 3) / 3 < 0.95, "a mean of equal shares is rounded"
    assert attainment_of(Slo(ttft_s=1.0), runs).met is True


def test_slack_is_that_of_the_goal_with_the_largest_shortfall() -> None:
    slo = Slo.model_validate({"ttft_s": {"p99": 2.0}, "tpot_s": 0.1})
    assert slack(slo, [metrics(slo_shares=[0.97, 0.95])]) == pytest.approx(0.95 - 0.99)


@pytest.mark.slow
def test_run_and_capacity_hold_a_percentile_to_its_limit(tmp_path: Path) -> None:
    asked = scenario(tmp_path, "{ttft_s: {p90: 0.06}}", ("sweep={workload.arrivals.rate_rps: [2, 30]}",))
    with ProcessPool(1) as workplace:
        cases = run_points(asked, CATALOG, tmp_path / "run", workplace, lambda *_: None)
        plain = asked.model_copy(update={"sweep": None})
        (found,) = capacities(plain, CATALOG, tmp_path / "capacity", workplace, 0.2)
    slo = asked.slo.model_dump(exclude_none=True)
    points = summarize(cases, ["rate_rps"], slo)
    for point in points:
        times = [run.requests() for run in point.cases]
        waits = [np.subtract(t["first_token_s"].to_numpy(), t["arrived_s"].to_numpy()) for t in times]
        expected = np.mean([np.percentile(wait, 90) for wait in waits])
        assert point.row["ttft_s_p90"] == pytest.approx(expected)
        assert point.row["meets_slo"] is bool(expected <= 0.06)
    assert [point.row["meets_slo"] for point in points] == [True, False]
    for one in found.found:
        assert all(load.meets is ((load.percentiles["ttft_s_p90"] or 0) <= 0.06) for load in one.loads)
    heads = [column.brief for column in columns_for(points, slo, brief=True)]
    assert "TTFT p90 [s]" in heads
    assert "TTFT p95 [s]" not in heads
    lines = {panel.subtitle: panel.y_limit for panel in panels_of(points, ["rate_rps"], slo)}
    (limit,) = [line for subtitle, line in lines.items() if subtitle.startswith("p90")]
    assert limit is not None
    assert limit.at == 0.06


@pytest.mark.slow
def test_a_sweep_of_service_levels_judges_each_point_by_its_own(tmp_path: Path) -> None:
    levels = "sweep={slo.ttft_s: [{p90: 0.0001}, {p90: 100}, 100]}"
    asked = scenario(tmp_path, "{ttft_s: 1}", (levels,))
    with ProcessPool(1) as workplace:
        cases = run_points(asked, CATALOG, tmp_path / "run", workplace, lambda *_: None)
    points = summarize(cases, ["ttft_s"], asked.slo.model_dump(exclude_none=True))
    assert [point.row["meets_slo"] for point in points] == [False, True, True]


def test_size_refuses_what_no_percentile_allows(tmp_path: Path) -> None:
    from sim.scenario.resolving.case import resolve
    from sim.scenario.sweep import cases
    from sim.study.size.bounds import OfferedLoad

    asked = scenario(tmp_path, "{tpot_s: {p50: 0.001}}")
    floor = PoolBounds(resolve(asked, cases(asked)[0], CATALOG).pools[0], OfferedLoad.of(asked))
    assert "per output token" in floor.refusal(asked.slo)
    assert floor.refusal(Slo.model_validate({"tpot_s": {"p50": 1.0}})) == ""
    # nearly all of the prompts take 34 ms alone: so does the median, whatever few requests do
    assert "to the first token" in floor.refusal(Slo.model_validate({"ttft_s": {"p50": 0.03}}))


@pytest.mark.slow
def test_only_service_level_module_decides_verdicts(root: Path) -> None:
    """No other module compares a share with `attainment`, or a latency with its limit, for a verdict."""
    readers = {
        str(path.relative_to(root))
        for path in (root / "sim").rglob("*.py")
        if "attainment" in (text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare)
        and any("attainment" in str(value) for part in ast.walk(node) for value in vars(part).values())
    }
    # the others compare names of columns, an interval with the target or a share with None, and look for where a
    # line crosses it
    assert readers <= {
        "sim/study/year.py",
        "sim/study/diff.py",
        "sim/study/metrics/service_level.py",
        "sim/report/run/key_figures.py",
        "sim/scenario/sections/precision.py",
        "sim/report/words/service_level.py",
        "sim/report/diff.py",
        "sim/serve/page_data.py",
    }


@pytest.mark.slow
def test_search_csv_has_the_percentile(tmp_path: Path) -> None:
    from sim.answers.answer import write_answer
    from sim.answers.questions import QUESTIONS

    asked = scenario(tmp_path, "{ttft_s: {p90: 0.06}}")
    with ProcessPool(1) as workplace:
        write_answer(QUESTIONS["capacity"], asked, CATALOG, tmp_path / "out", workplace, 0.3)
    rows = list(csv.DictReader((tmp_path / "out" / "search.csv").read_text().splitlines()))
    assert all(float(row["ttft_s_p90"]) > 0 for row in rows)
    assert "TTFT p90 at most 0.06 s" in (tmp_path / "out" / "capacity.html").read_text()


@pytest.mark.slow
def test_the_paired_table_compares_the_percentiles_that_are_named(tmp_path: Path) -> None:
    """Terminal and report compare p90 of TTFT, the goal, and not p95."""
    text = SCENARIO.replace("SLO", "{ttft_s: {p90: 0.06}}")
    pools = text.partition("  - name: one\n")[2]
    (tmp_path / "s.yaml").write_text(f"{text}  - name: two\n{pools}")
    asked = load(tmp_path / "s.yaml", ["horizon_s=20"], catalog=CATALOG)
    with ProcessPool(1) as workplace:
        cases = run_points(asked, CATALOG, tmp_path / "run", workplace, lambda *_: None)
    slo = asked.slo.model_dump(exclude_none=True)
    (block,) = blocks(differences(summarize(cases, [], slo)), [], slo)
    assert block.heads == ("TTFT p90 [s]", "TPOT p95 [ms]")
    console = Console(width=80)
    with console.capture() as captured:
        console.print(*terminal_differences(cases, [], slo))
    words = captured.get().split()
    assert [word for word in words if word in ("p90", "p95")] == ["p90", "p95"]
    assert "SLO" not in words
