"""Text that a spreadsheet would run as a formula is quoted in every table, and read back as it was."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.csvio import cell, unquoted
from sim.report.export.stored_answer import read_run

NAMES = ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "'=quoted"]


@given(st.text("'=+-@\t\r\n1a.", max_size=6))
def test_quoting_is_undone(text: str) -> None:
    assert unquoted(str(cell(text))) == text


@given(st.floats())
def test_numbers_stay(number: float) -> None:
    assert cell(number) == number or (number != number and cell(number) == "")


def test_no_cell_of_a_run_is_a_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pools = "steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}, batching: "
    pools += "{policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 1000}"
    fleets = "".join(f'  - {{name: "{name}", pools: [{{name: "=pool", {pools}}}]}}\n' for name in NAMES)
    (tmp_path / "s.yaml").write_text(
        "workload:\n  arrivals: {process: constant, rate_rps: 1.0}\n"
        "  lengths: {prompt: {distribution: fixed, value: 9}, output: {distribution: fixed, value: 3}}\n"
        f"horizon_s: 3\nfleets:\n{fleets}sweep: {{fleets.+1+1.pools.0.replicas: [1, 2]}}\n"
    )
    run(tmp_path)
    for path in (tmp_path / "out").glob("*.csv"):
        with path.open(newline="") as file:
            for row in csv.reader(file):
                assert not [text for text in row if text[:1] in set("=+@\t\r\n") or text[:2] == "-2"]
    frames = read_run(tmp_path / "out")
    assert list(dict.fromkeys(frames.summary["fleet"])) == NAMES
    assert set(frames.usage["pool"]) == {"=pool"}


def run(folder: Path) -> None:
    from sim.catalogue.catalog import load_catalog
    from sim.deliver.run import run_scenario
    from sim.scenario.reading.load import load
    from sim.study.execution.cores import Cores

    catalog = load_catalog()
    with Cores(1) as cores:
        run_scenario(load(folder / "s.yaml", catalog=catalog), catalog, folder / "out", cores, False, True, ["x"])
