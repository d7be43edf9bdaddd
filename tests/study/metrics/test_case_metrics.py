"""Replicas that serve, weighted by time, and the GPUs that are held for them."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from small_scenario import SMALL

import sim
from sim.report.run.page_tables import glance
from sim.report.run.terminal import terminal_table
from sim.scenario.slo import Slo
from sim.study.execution.store import load_case
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.machines import TimeWeightedLevel
from sim.study.points import Point, summarize, sweep_of

LONGER = SMALL.replace("horizon_s: 5\nreplications: 2", "horizon_s: 500\nreplications: 1\nmeter_interval_s: 200")
SCALED = LONGER.replace("rate_rps: 1}", "rate_rps: 4}")
POOL = "{gpu: rtx-4090, replicas: 1, batching: {policy: vllm, max_num_seqs: 2}}"
HPA = POOL.replace(
    "batching",
    "autoscaling: {policy: hpa, metric: outstanding_per_replica, target: 1, max_replicas: 9}, batching",
)
RENT = "    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}}\n"
ON = {"booting", "loading", "serving", "draining", "failed", "reserve"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sim.Run:
    """Two fleets: one of a fixed number of replicas, the other scaled by Kubernetes' HPA."""
    path = tmp_path_factory.mktemp("scaled") / "scaled.yaml"
    pool = "{gpu: rtx-4090, replicas: 1, batching: {policy: vllm}}"
    fixed = SCALED.replace(pool, POOL.replace("replicas: 1", "replicas: 3")) + RENT
    path.write_text(fixed + f"  - name: hpa\n    pools: [{HPA}]\n" + RENT, encoding="utf-8")
    return sim.run(path, quiet=True)


def test_level_by_hand() -> None:
    # 1 for 90 s, 3 for 8 s, 2 for 2 s: 95 % of 100 s lie in 1, then 2 (to 92 s), then 3
    spans = [(0.0, 100.0, 1.0), (90.0, 98.0, 2.0), (98.0, 100.0, 1.0)]
    assert TimeWeightedLevel.of(spans) == TimeWeightedLevel(mean=pytest.approx(1.18), p95=3.0, highest=3.0)
    assert TimeWeightedLevel.of([(0.0, 95.0, 1.0), (95.0, 100.0, 4.0)]).p95 == 1.0, "weighted by time"
    assert TimeWeightedLevel.of([]) == TimeWeightedLevel(0.0, 0.0, 0.0)


@pytest.mark.slow
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(1, 5))
def test_cutting_intervals_changes_nothing(levels: list[int], parts: int) -> None:
    whole = [(10.0 * i, 10.0 * (i + 1), float(level)) for i, level in enumerate(levels)]
    cut = [(a + (b - a) * k / parts, a + (b - a) * (k + 1) / parts, n) for a, b, n in whole for k in range(parts)]
    one, other = TimeWeightedLevel.of(whole), TimeWeightedLevel.of(cut)
    assert (other.mean, other.p95, other.highest) == (pytest.approx(one.mean), one.p95, one.highest)
    assert one.highest == max(levels)
    assert one.mean <= one.highest


@pytest.mark.slow
@pytest.mark.parametrize("fleet", ["one", "hpa"])
def test_figures_are_those_of_usage(run: sim.Run, fleet: str) -> None:
    # requests that were under way at the end are answered behind it
    usage = run.usage[(run.usage.fleet == fleet) & (run.usage.start_s < 500)]
    row = run.summary.set_index("fleet").loc[fleet]
    serving = usage[usage.state == "serving"]
    usage_s = usage.end_s - usage.start_s
    assert row.replicas_mean == pytest.approx(((serving.end_s - serving.start_s).sum()) / 500)
    edges = sorted({*usage.start_s, *usage.end_s})
    steps = [(int(((serving.start_s <= a) & (serving.end_s >= b)).sum()), b - a) for a, b in pairwise(edges)]
    assert row.replicas_max == max(count for count, _ in steps)
    beyond = sum(length for count, length in steps if count > row.replicas_p95)
    at_or_beyond = sum(length for count, length in steps if count >= row.replicas_p95)
    assert beyond <= 0.05 * 500 < at_or_beyond
    assert row.gpu_hours_per_day == pytest.approx(24 * usage_s[usage.state.isin(ON)].sum() / 500)


@pytest.mark.slow
def test_a_scaled_fleet_has_the_gpus_that_it_holds_and_never_its_bound(run: sim.Run) -> None:
    rows = run.summary.set_index("fleet")
    fixed, scaled = rows.loc["one"], rows.loc["hpa"]
    assert tuple(fixed[["gpus", "replicas_mean", "replicas_p95", "replicas_max", "gpu_hours_per_day"]]) == (
        3, 3, 3, 3, 72,
    )  # fmt: skip
    assert 1 < scaled.replicas_mean < scaled.replicas_max <= scaled.gpus < 9
    # paid by the second while switched on: the bill follows the GPU-hours
    assert scaled.cost_usd_per_h == pytest.approx(0.5 * scaled.gpu_hours_per_day / 24, rel=2e-3)


@pytest.mark.slow
def test_what_is_bought_is_held_all_the_time(tmp_path: Path) -> None:
    path = tmp_path / "bought.yaml"
    bought = "    cost: {acquisition: buy, quotes: {rtx-4090: 2000}}\n"
    finance = "finance: {method: straight_line, life_years: 3}\n"
    cheap = SCALED.replace("horizon_s: 500", "horizon_s: 60") + bought + finance
    path.write_text(cheap.replace("{gpu: rtx-4090, replicas: 1, batching: {policy: vllm}}", HPA), encoding="utf-8")
    [row] = sim.run(path, {"site": {"electricity_usd_per_kwh": 0.1, "pue": 1.2}}, quiet=True).summary.to_dict("records")
    assert (row["gpus"], row["gpu_hours_per_day"]) == (9, pytest.approx(216))
    assert row["replicas_max"] < 9


@pytest.mark.slow
def test_page_and_terminal_show_the_replicas_of_a_scaled_fleet(
    run: sim.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = dict(glance(sweep_of(points(run), []), Slo()))
    assert rows["GPU-hours a day"][0] == "72"
    assert rows["Serving replicas"][0] == "3"
    assert rows["Serving replicas"][1].startswith("mean ")
    assert "p95 " in rows["Serving replicas"][1]
    assert rows["GPUs, servers"][1].startswith("peak ")
    assert "9 GPU" not in str(rows)
    Console(width=80).print(terminal_table([case for point in points(run) for case in point.cases], [], {}))
    shown = capsys.readouterr().out
    assert "GPU-hours" in shown
    assert "highest" in shown


def points(run: sim.Run) -> list[Point]:
    found = sorted(map(load_case, (run.folder / "points").glob("[!.]*")), key=lambda case: case.fleet != "one")
    return summarize([case for case in found if case is not None], [], {})


def test_figures_that_an_earlier_version_stored_are_read_under_their_names() -> None:
    stored = CaseMetrics.of_data({"thin_percentiles": ["ttft_s_p99"]})
    assert stored["low_sample_percentiles"] == ["ttft_s_p99"]
