"""A point counts as itself alone, and a run is billed anew only as long as what it has simulated still stands."""

import csv
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim.catalogue.catalog import load_catalog
from sim.cli import app
from sim.scenario.reading.errors import ScenarioErrors
from sim.study.reprice import load_repriced

AFFINE = """\
name: tiny
workload:
  arrivals: {process: poisson, rate_rps: 5}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: geometric, mean: 10}}
horizon_s: 20
slo: {ttft_s: 1}
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.005, per_token_s: 1.0e-5, per_context_token_s: 1.0e-8}
        batching: {policy: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 50000}
replications: 2
"""
TRACED = """\
name: traced
model: llama3.1-8b
workload: {trace: {path: t.csv, format: csv}}
fleets:
  - name: a
    pools: [{gpu: rtx-4090, server: workstation-1x4090}]
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-1x4090: 1300}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.4}
finance: {method: annuity, discount_rate: 0.08, life_years: 4}
"""


def tables(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix == ".csv"}


def by_replication(out: Path) -> list[Path]:
    points = list((out / "points").iterdir())
    return sorted(points, key=lambda point: '"replication": 1' in (point / "case.json").read_text())


@pytest.mark.parametrize("how", ["copied", "swapped", "linked", "linked to nothing"])
def test_a_point_that_is_another_one_is_simulated_again(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "s.yaml").write_text(AFFINE)
    out = tmp_path / "out"
    command = ["run", str(tmp_path / "s.yaml"), "--out", str(out), "--no-report", "--quiet", "--workers", "1"]
    assert CliRunner().invoke(app, command).exit_code == 0
    sound, (first, second) = tables(out), by_replication(out)
    aside = shutil.move(second, tmp_path / "aside")
    if how == "copied":
        shutil.copytree(first, second)
    elif how == "swapped":
        shutil.move(first, second)
        shutil.move(aside, first)
    else:
        second.symlink_to(first if how == "linked" else tmp_path / "nowhere")
    assert CliRunner().invoke(app, command).exit_code == 0
    strange = {"copied": 1, "swapped": 2, "linked": 1, "linked to nothing": 0}[how]
    assert ["holds another point" in message for message in caplog.messages] == [True] * strange
    assert tables(out) == sound
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(caplog.messages) == strange


def test_a_search_counts_no_point_twice_either(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = AFFINE.replace("horizon_s: 20", "horizon_s: 10").replace("max_num_seqs: 256", "max_num_seqs: 2")
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"
    command = [
        "capacity",
        str(tmp_path / "s.yaml"),
        "--out",
        str(out),
        "--quiet",
        "--relative",
        "0.3",
        "--workers",
        "1",
    ]
    assert CliRunner().invoke(app, command).exit_code == 0
    sound, (first, *_, last) = tables(out), by_replication(out)
    shutil.rmtree(last)
    shutil.copytree(first, last)
    assert CliRunner().invoke(app, command).exit_code == 0
    assert ["holds another point" in message for message in caplog.messages] == [True]
    assert tables(out) == sound


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "s.yaml").write_text(TRACED)
    (folder / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,10\n1,200,20\n")
    command = ["run", str(folder / "s.yaml"), "--out", str(folder / "out"), "--no-report", "--quiet"]
    assert CliRunner().invoke(app, command).exit_code == 0
    return folder


def test_an_edited_scenario_is_no_matter_of_money(finished: Path) -> None:
    kept = finished / "out/scenario.yaml"
    text = kept.read_text()
    other = finished / "priced"
    for more in ("seed: 3\n", "slo: {ttft_s: 0.001}\n"):
        kept.write_text(text + more)
        told = CliRunner().invoke(app, ["price", str(finished / "out"), "--out", str(other)])
        assert told.exit_code == 2
        assert told.stderr.startswith(f"{kept}: differs from what was simulated in more than site, finance")
        assert not other.exists()
    kept.write_text(text.replace("pue: 1.4", "pue: 1.2"))  # is one
    assert CliRunner().invoke(app, ["price", str(finished / "out"), "--out", str(other), "--no-report"]).exit_code == 0
    kept.write_text(text)
    with (other / "summary.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert float(row["facility_power_w_mean"]) == pytest.approx(1.2 * float(row["it_power_w_mean"]))
    again = CliRunner().invoke(app, ["price", str(other), "--set", "site.pue=1.4", "--no-report"])
    assert again.exit_code == 0, "what was billed anew can be billed once more"


CHANGED = "has changed since this run was simulated: run its scenario again"


def test_a_changed_trace_is_named(finished: Path) -> None:
    trace = finished / "t.csv"
    text = trace.read_text()
    trace.write_text(text + "2,300,30\n")
    told = CliRunner().invoke(app, ["price", str(finished / "out"), "--set", "site.pue=1.1"])
    trace.write_text(text)
    assert told.exit_code == 2
    name = f"{finished.name}/t.csv"
    assert told.stderr == f"{finished}/out: the file {name} {CHANGED}\n"


def test_a_changed_catalogue_is_named_unless_no_simulation_reads_it(finished: Path, tmp_path: Path) -> None:
    root = shutil.copytree(load_catalog().root, tmp_path / "data")
    card = root / "gpus/rtx-4090.yaml"
    card.write_text(card.read_text().replace("450", "451", 1))
    with pytest.raises(ScenarioErrors) as caught:
        load_repriced(finished / "out", (), load_catalog(root))
    assert str(caught.value).endswith(f"out: the catalogue (gpus) {CHANGED}")
    shutil.copy(load_catalog().root / "gpus/rtx-4090.yaml", card)
    for file in (*(root / "prices").glob("*.yaml"), root / "fidelity/intervals.yaml"):
        file.write_text(file.read_text() + "\n# of another day\n")
    assert load_repriced(finished / "out", (), load_catalog(root)).name == "traced"
