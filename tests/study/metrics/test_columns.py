"""The one declaration of the columns of summary.csv, and those that lean on it."""

import importlib.util
from pathlib import Path
from typing import get_args

import pytest
from small_scenario import TINY, ran

from sim.report.run.key_figures import KeyFigure
from sim.scenario.sections.precision import Metric
from sim.scenario.sections.sensitivity import SensitivityMetric
from sim.study.metrics.case_metrics import LATENCY_NAMES, CaseMetrics, measure
from sim.study.metrics.columns import BY_NAME, COLUMNS, IN_REPORT, PAIRED, column, named_percentiles
from sim.study.metrics.metric import FIGURES, FORMATS, REGISTERED, Format, MetricColumn, SummaryMetric, metric
from sim.study.size.trials import METRICS


def test_column_names_are_unique_and_described() -> None:
    assert len(BY_NAME) == len(COLUMNS)
    assert not [one.name for one in COLUMNS if not one.meaning or one.meaning.endswith(".")]


def test_every_column_rests_on_figures_that_a_case_has() -> None:
    parts = {part for one in COLUMNS for part in one.average.parts(one.name)}
    assert not [part for part in parts if part not in FIGURES and not part.startswith(LATENCY_NAMES)]


def test_prices_change_costs_but_not_latencies() -> None:
    moved = {one.name for one in COLUMNS if one.depends_on_prices}
    assert {"usd_per_million_tokens", "capex_usd", "facility_power_w_mean", "kg_co2e_per_h", "currency"} <= moved
    assert not moved & {"ttft_s_p95", "output_tokens_per_s", "gpu_power_w_mean", "gpus", "warmup_s"}
    assert not BY_NAME["energy_kwh"].needs_cost, "a fleet without a cost has its energy"


def test_whoever_asks_for_a_column_finds_it() -> None:
    assert {*get_args(Metric), *get_args(SensitivityMetric), *METRICS, *PAIRED} <= BY_NAME.keys()
    assert all(BY_NAME[name].average.has_interval for name in get_args(Metric))
    assert all(BY_NAME[name].head for name in IN_REPORT)


def test_a_unit_without_a_format_is_an_error_at_registration() -> None:
    with pytest.raises(ValueError, match="column 'energy_j': unit 'J' has no format: give format="):
        metric("energy_j", "J", "energy", "power", heading="energy")
    assert "energy_j" not in REGISTERED
    assert FORMATS["kWh"].unit == "kWh"


def test_a_registered_column_has_its_heading_format_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    added: dict[str, MetricColumn] = {}
    monkeypatch.setattr("sim.study.metrics.metric.REGISTERED", added)
    monkeypatch.setattr("sim.study.metrics.metric.FIGURES", {})
    in_mj = Format("MJ", 3.6, "steady")
    metric("it_kwh", "kWh", "energy of the servers", "power", heading="IT energy", format=in_mj)(lambda run: 2.0)
    shown = KeyFigure.of(added["it_kwh"])
    assert (shown.head, shown.unit, shown.show(2.0), shown.scale) == ("IT energy", "MJ", "7.20", 3.6)
    assert added["it_kwh"].sheet == "IT energy"
    with pytest.raises(ValueError, match="registered already"):
        metric("it_kwh", "kWh", "energy of the servers", "power")
    with pytest.raises(ValueError, match="group 'energy'"):
        metric("it_gwh", "kWh", "energy of the servers", "energy")


def test_metric_changed_by_prices_cannot_read_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(FIGURES, "energy_kwh", SummaryMetric(lambda run: run.requests, "site", False))
    with pytest.raises(ValueError, match="a case priced anew has no requests"):
        measure(ran(tmp_path, TINY))


def test_a_percentile_that_a_service_level_names_is_a_column() -> None:
    assert column("tpot_s_p99.9").meaning == "99.9th percentile of the time per output token after the first"
    assert named_percentiles(["ttft_s_p95", "ttft_s_p90", "usd_per_request_p95"]) == ["ttft_s_p90"]
    with pytest.raises(KeyError):
        column("tfft_s_p95")


def test_a_misspelt_figure_is_an_error_and_a_missing_one_is_empty() -> None:
    found = CaseMetrics.of_data({"requests": 3, "ttft_s_p90": 0.5})
    assert (found["requests"], found["ttft_s_p90"], found["cost_usd"], found["tpot_s_p95"]) == (3, 0.5, None, None)
    with pytest.raises(KeyError):
        found["request"]


@pytest.mark.slow
def test_the_pages_have_every_column(root: Path) -> None:
    spec = importlib.util.spec_from_file_location("pages", root / "docs" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    page = pages.on_page_markdown((root / "docs" / "outputs.md").read_text(encoding="utf-8"))
    assert [one.name for one in COLUMNS if f"| `{one.name}` |" not in page] == []
