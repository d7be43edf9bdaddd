"""A heading asks what is answered: with --set it is no longer the question that the file asks."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import Catalog, load_catalog
from sim.cli import app
from sim.scenario.reading.load import load
from sim.yamlio import read

pytestmark = pytest.mark.slow

SCENARIO = """\
# Over four years, do we buy or rent? Both serve one request a second.
name: grow
workload:
  arrivals: {process: constant, rate_rps: 1.0}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 20
slo: {ttft_s: 0.5}
fleets:
  - name: own
    pools:
      - gpu: rtx-4090
        server: workstation-1x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: buy}
site: {electricity_usd_per_kwh: 0.2, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 1, residual_fraction: 0.3}
plan: {years: 4, starts: 2027-01}
"""
ASKED = "Over four years, do we buy or rent?"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(SCENARIO)
    return tmp_path


def done(*command: str) -> None:
    result = CliRunner().invoke(app, list(command))
    assert result.exit_code == 0, result.output


def test_the_heading_of_a_plan_states_the_settings(folder: Path) -> None:
    done("plan", "s.yaml", "--set", "plan.years=0.5", "--relative", "0.5", "--out", "out", "--workers", "1")
    page = (folder / "out/plan.html").read_text()
    assert "Over 0.5 years" in page
    assert "our years" not in page
    assert "<h1>grow with plan.years=0.5</h1>" in page


def test_a_run_and_its_repricing_state_the_settings_of_each(folder: Path) -> None:
    done("run", "s.yaml", "--set", "workload.arrivals.rate_rps=3", "--set", "site.pue=1.1", "--out", "out")
    assert "<h1>grow with workload.arrivals.rate_rps=3; site.pue=1.1</h1>" in (folder / "out/report.html").read_text()
    done("price", "out", "--set", "site.pue=1.5", "--out", "again")
    assert "<h1>grow with workload.arrivals.rate_rps=3; site.pue=1.5</h1>" in (folder / "again/report.html").read_text()


def test_more_of_the_same_leaves_the_question(folder: Path, catalog: Catalog) -> None:
    for sets in ([], ["replications=3"], ["seed=5", "limits={cases: 7}", "name=other"]):
        assert load("s.yaml", sets, catalog=catalog, seed=3).question.startswith(ASKED)
    assert load("s.yaml", ["question=Mine?", "site.pue=2"], catalog=catalog).question == "Mine?"


def test_a_single_winner_has_no_question(folder: Path) -> None:
    size = "size: {gpus: [rtx-4090], max_replicas: 1, costs: {rented: {acquisition: rent, quotes: {rtx-4090: 1}}}}\n"
    (folder / "s.yaml").write_text(SCENARIO.replace("name: grow\n", f"name: grow\nmodel: llama3.1-8b\n{size}"))
    done("size", "s.yaml", "--out", "out", "--workers", "1")
    assert "question" not in read(folder / "out/winner.yaml").data
