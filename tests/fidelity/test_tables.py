"""Files and output of `gpufleet validate`."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.benchdata.row import METRICS
from sim.cli import app
from sim.fidelity.tables import row_columns

TABLE = """\
id,gpu,n_gpus,tp,model,precision,load,isl,osl,concurrency,output_tok_s,ttft_mean_ms,tpot_mean_ms,use,trust
one,H100-SXM,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,130,30,7,score,A
two,H100-SXM,2,2,llama3.1-8b,fp8,closed_loop,500,100,4,500,35,8,score,A
lost,abacus,1,1,llama3.1-8b,bf16,closed_loop,500,100,1,130,,7,score,B
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("validate")
    (folder / "mine.csv").write_text(TABLE)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        done = CliRunner().invoke(app, ["validate", "mine.csv", "--workers", "1"], prog_name="gpufleet")
    assert done.exit_code == 0, done.output
    assert "2 (67%)" in done.stdout
    assert "unknown gpu 'abacus' (1)" in done.stdout
    return folder / "outputs" / "validate-mine"


@pytest.mark.slow
def test_every_row_with_its_errors(results: Path) -> None:
    with (results / "validation.csv").open() as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    assert list(rows) == ["one", "two", "lost"]
    assert list(rows["one"]) == row_columns()
    for metric in METRICS:
        assert {metric, f"{metric}_predicted", f"{metric}_error"} <= rows["one"].keys()
    one = rows["one"]
    error = float(one["output_tok_s_predicted"]) / float(one["output_tok_s"]) - 1
    assert float(one["output_tok_s_error"]) == pytest.approx(error)
    assert (one["status"], one["gpu"], one["family"]) == ("covered", "h100-80gb-sxm", "llama3-8b")
    assert (rows["lost"]["status"], rows["lost"]["reason"]) == ("not_covered", "unknown gpu 'abacus'")
    assert rows["lost"]["output_tok_s_predicted"] == rows["lost"]["ttft_mean_ms"] == ""


def test_the_other_files(results: Path) -> None:
    names = {"ranking.csv"} | {f"summary_by_{group}.csv" for group in ("class", "pair", "engine", "link", "load")}
    assert names | {"joint.csv", "coverage.csv", "validation.html", "validation.png", "manifest.json"} <= {
        file.name for file in results.iterdir()
    }
    assert json.loads((results / "manifest.json").read_text())["rows"] == 3
    assert (results / "validation.png").read_bytes().startswith(b"\x89PNG")
    with (results / "summary_by_class.csv").open() as file:
        found = {row["quantity"]: row for row in csv.DictReader(file)}
    assert (found["throughput"]["pairs"], found["throughput"]["covered"]) == ("2", "2")


def test_a_bad_table_ends_with_its_mistakes_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("gpu,model,concurrency\ng,m,x\n,m,1\n")
    done = CliRunner().invoke(app, ["validate", "bad.csv"], prog_name="gpufleet")
    assert done.exit_code == 2
    assert done.stderr == "bad.csv:2: concurrency must be a number, not 'x'\nbad.csv:3: gpu is missing\n"
    assert [file.name for file in tmp_path.iterdir()] == ["bad.csv"]
