"""Tables of every command fit a terminal of 80 and of 100 columns, with nothing cut."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sim.answers.questions import QUESTIONS
from sim.catalogue.catalog import KINDS
from sim.cli import app
from sim.fidelity import calibration, fit, validation
from sim.report.terminal_table import FittedTable
from sim.study import breakeven, cost_gap

pytestmark = pytest.mark.usefixtures("coarsely")

Once = Callable[[Any, str], None]
BOUGHT = "4x RTX 4090 in workstation-4x4090, quantized gptq-int4, bought"
RENTED = "4x RTX 4090 in workstation-4x4090, quantized gptq-int4, rented"
POOL = "{gpu: rtx-4090, server: workstation-4x4090, tensor_parallel_size: 4, max_model_len: 4096}"
SCENARIO = f"""\
name: wide
model: qwen2-72b-instruct
quantization: gptq-int4
workload:
  arrivals: {{process: poisson, rate_rps: 1.0}}
  lengths: {{prompt: {{distribution: fixed, value: 100}}, output: {{distribution: geometric, mean: 20}}}}
horizon_s: 4
warmup_s: 0.5
replications: 2
slo: {{ttft_s: {{p50: 2.0, p99: 3.0}}, tpot_s: {{p90: 0.1}}, e2e_s: 5, attainment: 0.9}}
fleets:
  - name: {BOUGHT}
    pools: [{POOL}]
    cost: {{acquisition: buy}}
  - name: {RENTED}
    pools: [{POOL}]
    cost: {{acquisition: rent, quotes: {{rtx-4090: 123.45}}}}
site: {{electricity_usd_per_kwh: 0.2, pue: 1.2}}
finance: {{method: annuity, discount_rate: 0.08, life_years: 4, fx: {{RMB: 0.138}}, currency: RMB}}
operations: {{staff: {{fte: 90, usd_per_fte_year: 100000, over_gpus: 4}}}}
"""  # fmt: skip
SECTIONS = {
    "run": "futures: {draws: 100, inputs: {site.electricity_usd_per_kwh: {uniform: [0.1, 0.4]}}}\n",
    "capacity": "precision: {max_replications: 5}\n",
    "breakeven": "",
    "plan": "plan: {years: 0.5, starts: 2027-01, demand: {growth_per_year: 1.0}}\n",
    "sensitivity": "sensitivity: {inputs: {site.electricity_usd_per_kwh: [0.1, 0.3], finance.life_years: [2, 5]}}\n",
    "size": "size: {gpus: [rtx-4090], tensor_parallel_sizes: [4], max_replicas: 1, budget: {capex_usd: 100000, kw: 9},"
    " costs: {bought in instalments: {acquisition: buy}}}\n",
    "check": "",
}
MOST = {"plan": ["--relative", "0.5"], "capacity": ["--relative", "0.5"], "breakeven": ["--replications", "1"]}
RUNS = """\
gpu,model,engine,engine_version,concurrency,isl,osl,output_tok_s,tpot_mean_ms,ttft_mean_ms
RTX 4090,llama3.1-8b,vLLM,0.14.0,1,64,16,40,24,90
RTX 4090,llama3.1-8b,vLLM,0.14.0,2,64,16,120,31,180
"""


def printed(width: int, *command: str) -> str:
    """Return the output of *command*, whose table lines fit. A sentence is one line, which the terminal wraps."""
    done = CliRunner().invoke(app, list(command), env={"COLUMNS": str(width)})
    assert done.exit_code == 0, done.output
    assert "…" not in done.stdout
    assert "..." not in done.stdout
    lines = [line for line in done.stdout.splitlines() if re.search(r"\S {2,}\S", line)]
    assert lines
    assert [line for line in lines if len(line.rstrip()) > width] == []
    return " ".join(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize("command", SECTIONS)
def test_long_names_and_large_figures_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Once, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if command in QUESTIONS:
        once(type(QUESTIONS[command]), "compute")
    monkeypatch.setattr(cost_gap, "FULL_HORIZON_S", 4.0)
    monkeypatch.setattr(breakeven, "HALVINGS", 2)
    (tmp_path / "s.yaml").write_text(SCENARIO + SECTIONS[command])
    out = ["--details"] if command == "check" else ["--out", "out", "--no-report"]
    for width in (80, 100):
        text = printed(width, command, "s.yaml", *out, *MOST.get(command, []))
    assert "workstation-4x4090" in text
    assert "gptq-int4" in text
    if command == "run":
        printed(80, "price", "out", "--out", "again", "--no-report")
    if command == "plan":
        with Path("out/summary.csv").open() as file:
            for row in csv.DictReader(file):
                assert f"{float(row['total_RMB']):,.0f}" in text


@pytest.mark.slow
def test_the_catalogue_fits() -> None:
    for kind in KINDS:
        printed(80, "list", kind)
    for width in (80, 100):
        printed(width, "list", "gpus")
        printed(width, "show", "gpu", "rtx-4090")
        printed(width, "show", "prices", "rtx-4090")


@pytest.mark.slow
def test_addresses_are_whole(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = CliRunner().invoke(app, ["check", str(tmp_path / "s.yaml"), "--format", "json"])
    document = json.loads(done.stdout)
    addresses = {one["url"] for one in document["plans"][0]["sources"].values() if one["url"]}
    assert max(map(len, addresses)) > 80
    text = printed(80, "check", str(tmp_path / "s.yaml"), "--details")
    assert addresses <= set(text.split())
    for told in document["predictions"]:
        assert told["mark"] in text
        assert all(f"{end:.2f}".rstrip("0") in text for ends in told["factors"].values() for end in ends)
    assert [told["fleet"] for told in document["predictions"]] == [plan["fleet"] for plan in document["plans"]]


@pytest.mark.slow
def test_validation_and_calibration_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: Once) -> None:
    monkeypatch.chdir(tmp_path)
    once(validation, "run_validation")
    once(calibration, "calibrate")
    monkeypatch.setattr(fit, "MOST_TRIALS", 1)
    (tmp_path / "runs.csv").write_text(RUNS)
    for width in (80, 100):
        printed(width, "validate", "runs.csv")
        printed(width, "calibrate", "runs.csv", "--gpu", "rtx-4090", "--out", "ours.yaml")


@pytest.mark.parametrize("width", [32, 40, 79, 80, 120, 400])
def test_every_figure_is_uncut_in_one_of_the_tables(width: int) -> None:
    figures = [f"{10.0**power:,.2f}" for power in range(12)]
    table = FittedTable(["fleet", *(f"money of kind {power}" for power in range(12))], [["a long name", *figures]])
    console = Console(width=width, record=True)
    with console.capture() as capture:
        console.print(table)
    words = capture.get().split()
    assert [figure for figure in figures if figure not in words] == []
    assert max(len(line) for line in capture.get().splitlines()) <= width
    assert (capture.get().count("a long name") == 1) == (width == 400)


def test_a_name_wider_than_its_column_is_divided_after_a_hyphen() -> None:
    table = FittedTable(["fleet", "GPUs"], [["4x l40s in workstation-2xa100-nvlink, bought", "4"]], optional=[1])
    console = Console(width=20, record=True, file=io.StringIO())
    console.print(table)
    lines = [line.strip() for line in console.export_text().splitlines()]
    assert lines == ["fleet", "4x l40s in", "workstation-2xa100-", "nvlink, bought"]
