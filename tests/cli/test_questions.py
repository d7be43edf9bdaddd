"""Answers for programs: one JSON document on stdout; and what `gpufleet capacity` leaves."""

import csv
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pages import text_of
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner

from sim.cli import app
from sim.report import progress
from sim.study import breakeven, breakeven_costs
from sim.study.execution import worker_progress
from sim.study.size.search_state import SearchState

pytestmark = pytest.mark.usefixtures("coarsely")

SCENARIO = """\
# How many requests a second do they take?
name: small
workload:
  arrivals: {process: poisson, rate_rps: 4.0}
  lengths:
    prompt: {distribution: fixed, value: 50}
    output: {distribution: geometric, mean: 40}
horizon_s: 12
warmup_s: 3
replications: 2
slo: {ttft_s: 0.5, attainment: 0.9}
fleets:
  - name: slow
    pools:
      - steptime: {model: affine, base_s: 0.02, per_token_s: 1e-4, per_context_token_s: 0}
        batching: {policy: vllm, max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 2000}
  - name: fast
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-4, per_context_token_s: 0}
        batching: {policy: vllm, max_num_seqs: 8, max_num_batched_tokens: 512, num_gpu_blocks: 2000}
sweep: {workload.arrivals.rate_rps: [4, 60]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SCENARIO)
    return tmp_path


def answer(*args: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*args, "--format", "json"])
    assert done.exit_code == 0, done.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document: dict[str, Any] = json.loads(done.stdout, parse_constant=refuse)
    return document


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_run_and_price_answer_what_their_tables_hold(folder: Path) -> None:
    said = answer("run", "small.yaml", "--no-report", "--out", "out", "--workers", "1")
    assert {*said} == {"scenario", "question", "seed", "out", "axes", "verdict", "notes", "points", "paired"}
    assert (said["scenario"], said["axes"], said["out"]) == ("small", ["rate_rps"], "out")
    rows = table(folder / "out" / "summary.csv")
    assert [point["fleet"] for point in said["points"]] == [row["fleet"] for row in rows]
    for point, row in zip(said["points"], rows, strict=True):
        assert {"axes", *row} == {*point, "rate_rps"}
        assert point["axes"]["rate_rps"] == float(row["rate_rps"])
        assert str(point["ttft_s_p95"]) == row["ttft_s_p95"]
    beyond = next(point for point in said["points"] if point["fleet"] == "slow" and point["axes"]["rate_rps"] == 60)
    assert beyond["ttft_s_p99"] == "inf"
    assert beyond["overloaded"] is True
    assert len(said["paired"]) == len(table(folder / "out" / "paired.csv"))
    again = answer("price", "out", "--no-report", "--out", "repriced")
    assert again["points"] == said["points"]


@pytest.mark.slow
def test_check_list_and_show(folder: Path) -> None:
    said = answer("check", "small.yaml")
    assert {*said} == {"scenario", "question", "seed", "cases", "plans", "predictions"}
    assert said["cases"] == 8
    assert {plan["fleet"] for plan in said["plans"]} == {"slow", "fast"}
    listed = answer("list", "gpus")
    [card] = [item for item in listed["items"] if item["id"] == "rtx-4090"]
    assert card["memory_bytes_per_s"] == 1.008e12
    shown = answer("show", "gpu", "RTX 4090")
    assert shown["kind"] == "gpus"
    assert shown["item"]["memory_bytes_per_s"]["source"] == "ada_wp"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["models", "quantizations", "kernels", "engines", "servers", "links", "prices"])
def test_every_kind_is_listed_as_json(folder: Path, kind: str) -> None:
    assert all("id" in item for item in answer("list", kind)["items"])


@pytest.mark.slow
def test_wrong_input_leaves_stdout_empty(folder: Path) -> None:
    done = CliRunner().invoke(app, ["run", "small.yaml", "--set", "horizon_s=-1", "--format", "json"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert CliRunner().invoke(app, ["list", "gpus", "--format", "yaml"]).exit_code == 2


@pytest.mark.slow
def test_capacity_leaves_tables_a_page_and_a_picture(folder: Path) -> None:
    search = [
        "capacity",
        "small.yaml",
        "--relative",
        "0.5",
        "--set",
        "sweep=null",
        "--set",
        "horizon_s=6",
        "--set",
        "warmup_s=1",
        "--set",
        "precision={max_replications: 5}",
    ]
    said = answer(*search, "--out", "out")
    basis = ["resolved.yaml", "scenario.yaml"]
    names = ["capacity.csv", "capacity.html", "capacity.png", "manifest.json", "points"]
    assert sorted(path.name for path in (folder / "out").iterdir()) == [*names, *basis, "search.csv"]
    slow, fast = table(folder / "out" / "capacity.csv")
    assert [float(row["rate_rps"]) for row in (slow, fast)] == [one["rate_rps"] for one in said["fleets"]]
    assert float(fast["rate_rps"]) > float(slow["rate_rps"])
    tried = table(folder / "out" / "search.csv")
    assert len(tried) == len(said["search"])
    assert {row["replication"] for row in tried} >= {"0", "1", "2", "3", "4"}
    page = text_of((folder / "out" / "capacity.html").read_text())
    assert "small with sweep=null" in page
    assert said["verdict"]["headline"] in page
    with Image.open(folder / "out" / "capacity.png") as picture:
        assert 1200 < picture.width < 2400
    done = CliRunner().invoke(app, [*search, "--out", "out", "--no-report"])
    assert done.exit_code == 0
    assert "Difference (slow minus fast)" in done.stdout
    assert not {"capacity.html", "capacity.png"} & {path.name for path in (folder / "out").iterdir()}


STUDIES = """\
# Which is the cheapest, and why?
name: studies
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 6}
  lengths:
    prompt: {distribution: fixed, value: 300}
    output: {distribution: geometric, mean: 60, max: 300}
horizon_s: 4
replications: 1
slo: {ttft_s: 1, tpot_s: 0.05}
max_model_len: 4096
fleets:
  - name: a
    pools: [{gpu: rtx-4090}]
    cost: {acquisition: rent, quotes: {rtx-4090: 0.5}}
  - name: b
    pools: [{gpu: l40s}]
    cost: {acquisition: rent, quotes: {l40s: 0.9}}
size:
  gpus: [rtx-4090, l40s]
  tensor_parallel_sizes: [1]
  max_replicas: 2
  costs: {rented: {acquisition: rent, quotes: {rtx-4090: 0.5, l40s: 0.9}}}
sensitivity: {metric: tpot_s_p95, inputs: {workload.arrivals.rate_rps: [5, 7]}}
"""


def tables_alone(folder: Path, command: str, page: str, picture: str, *options: str) -> None:
    """--no-report leaves out page and picture, not the tables; --quiet prints nothing."""
    before = {path.name: path.read_bytes() for path in (folder / "out").glob("*.*") if path.name != "manifest.json"}
    asked = [command, "studies.yaml", "--out", "out", "--quiet", "--no-report", *options]
    done = CliRunner().invoke(app, asked)
    assert (done.exit_code, done.output) == (0, "")
    after = {path.name: path.read_bytes() for path in (folder / "out").glob("*.*") if path.name != "manifest.json"}
    assert {page, picture} <= {*before} - {*after}
    assert after == {name: held for name, held in before.items() if not name.endswith((".html", ".png"))}


@pytest.mark.slow
def test_size_answers_what_its_tables_hold(folder: Path) -> None:
    (folder / "studies.yaml").write_text(STUDIES)
    said = answer("size", "studies.yaml", "--out", "out")
    rows = table(folder / "out" / "size.csv")
    assert [one["fleet"] for one in said["candidates"]] == [row["fleet"] for row in rows]
    assert said["winner"]["fleet"] == rows[0]["fleet"]
    assert said["winner"]["why"] == "the cheapest"
    assert {one["status"] for one in said["candidates"]} == {row["status"] for row in rows}
    assert [one["fleet"] for one in said["pareto"]] == [row["fleet"] for row in table(folder / "out" / "pareto.csv")]
    assert said["winner"]["fleet"] in said["verdict"]["headline"]
    tables_alone(folder, "size", "size.html", "size.png")


@pytest.mark.slow
def test_sensitivity_answers_what_its_tables_hold(folder: Path) -> None:
    (folder / "studies.yaml").write_text(STUDIES)
    said = answer("sensitivity", "studies.yaml", "--out", "out")
    rows = table(folder / "out" / "sensitivity.csv")
    assert len(said["swings"]) == len(rows) > 0
    assert [*said["swings"][0]] == [*rows[0]]
    assert said["metric"] == "tpot_s_p95"
    assert said["gap"] == []
    tables_alone(folder, "sensitivity", "sensitivity.html", "tornado.png")


@pytest.mark.slow
def test_breakeven_answers_what_its_tables_hold(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakeven_costs, "UTILISATIONS", (0.5, 1.0))
    monkeypatch.setattr(breakeven, "LOADS_SHOWN", 6)
    monkeypatch.setattr(breakeven, "STEPS", 3)
    monkeypatch.setattr(breakeven, "HALVINGS", 3)
    (folder / "studies.yaml").write_text(STUDIES)
    said = answer("breakeven", "studies.yaml", "--out", "out")
    for key, name in (
        ("ranking", "ranking"),
        ("utilisation", "breakeven"),
        ("months", "months"),
        ("tipping", "tipping"),
    ):
        rows = table(folder / "out" / f"{name}.csv")
        assert len(said[key]) == len(rows) > 0
        assert [*said[key][0]] == [*rows[0]]
    costs = [one["usd_per_h"] for one in said["ranking"]]
    assert costs == sorted(costs)
    assert said["ranking"][0]["candidate"] in said["verdict"]["headline"]
    tables_alone(folder, "breakeven", "breakeven.html", "breakeven.png")


@pytest.mark.slow
def test_plan_answers_what_its_tables_hold(folder: Path) -> None:
    finance = "finance: {method: annuity, discount_rate: 0.08, life_years: 4}\n"
    (folder / "studies.yaml").write_text(f"{STUDIES}plan: {{years: 1, starts: 2027-01}}\n{finance}")
    said = answer("plan", "studies.yaml", "--out", "out", "--relative", "0.5")
    months, totals = table(folder / "out" / "plan.csv"), table(folder / "out" / "summary.csv")
    assert [str(one["month"]) for one in said["months"]] == [row["month"] for row in months]
    assert [one["fleet"] for one in said["fleets"]] == [row["fleet"] for row in totals] == ["a", "b"]
    assert [*said["fleets"][0]] == [*totals[0]]
    assert [repr(one["net_present_cost_usd"]) for one in said["fleets"]] == [
        row["net_present_cost_usd"] for row in totals
    ]
    tables_alone(folder, "plan", "plan.html", "plan.png", "--relative", "0.5")


def test_a_search_shows_progress(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 0.1)
    with progress.SearchProgress(quiet=False) as told:
        told(SearchState(225, 225, 9, 2.0, 36))
        time.sleep(0.2)
    with progress.SearchProgress(quiet=True) as told:
        told(SearchState(225, 225, 10, 2.0))
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "0 s: 9 cases simulated, cheapest so far $1,460 a month, about 0 s left for the 36 fleets that may be cheaper\n"
    )


class Running:
    """Fleet that is simulated now, with this progress."""

    def __init__(self, *numbers: Any) -> None:
        self.progress = numbers


def test_progress_inside_simulations_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.simulation_progress() == ""
    monkeypatch.setattr(worker_progress, "RUNNING", [Running(600.0, 1800.0, 1234, 5)])
    assert progress.simulation_progress() == "; this case: 600 of 1,800 s simulated, 1,234 requests done"
    with worker_progress.progress_file() as file:
        file.write_bytes(worker_progress._record())
        assert progress.simulation_progress().endswith("1,234 requests done; 1 more case runs")
    monkeypatch.setattr(worker_progress, "RUNNING", [Running(38.0, 30.0, 12, 5)])
    assert progress.simulation_progress() == "; this case: 30 s simulated, 12 requests done, 5 still to be answered"


def test_a_worker_shows_its_progress_and_how_long_it_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "FIRST_S", 0.1)
    with worker_progress.progress_file() as file, progress.CaseProgress(quiet=False) as told:
        file.write_bytes(worker_progress._RECORD.pack(50.0, 100.0, 7, 1))
        told(0, 1, 0)
        time.sleep(0.3)
    assert "0 of 1 cases, about 0 s left; this case: 50 of 100 s simulated, 7 requests done" in capsys.readouterr().err


def test_what_a_command_has_simulated_itself_is_not_found_from_before(capsys: pytest.CaptureFixture[str]) -> None:
    for later_stage in (False, True):
        with progress.CaseProgress(quiet=False, later_stage=later_stage) as told:
            told(2, 18, 2)
    assert capsys.readouterr().err == "2 of 18 cases are finished already; continuing from there\n"


@pytest.mark.parametrize("widgets", [True, False])
def test_a_notebook_has_a_bar_where_it_can_draw_one(
    widgets: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    notebook = Console(force_jupyter=True)
    monkeypatch.setattr(progress, "FIRST_S", 0.3)
    monkeypatch.setattr(progress, "Console", lambda stderr: notebook)
    monkeypatch.setattr(progress, "find_spec", lambda name: name if widgets and name == "ipywidgets" else None)
    monkeypatch.setattr(progress.Bar, "start", lambda bar: bar.disable or drawn.append(1))
    monkeypatch.setattr(progress.Bar, "stop", lambda bar: None)
    with progress.CaseProgress(quiet=False) as told:
        told(1, 2, 0)
        time.sleep(0.5)
    assert (len(drawn), "s: 1 of 2 cases" in capsys.readouterr().err) == (int(widgets), not widgets)
