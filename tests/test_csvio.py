"""Cells of CSV files: text is never a formula, numbers stay numbers, and one module writes all of them.

Text that a spreadsheet would run as a formula is quoted in every table, and read back as it was.
"""

import ast
import csv
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from characters import any_of
from hypothesis import given
from hypothesis import strategies as st

from sim.csvio import cell, unquoted, write_csv, write_csv_columns
from sim.report.export.stored_answer import read_run

RISKY = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(1)",
    "\tx",
    "\rx",
    "\nx",
    "＝1",
    "＋1",
    "－1",
    "＠A1",
    "﹣1",
    " =1",
    "\u3000＝1",
    "'=1",
    "' -",
]
HARMLESS = ["a=1", "a\r=1", "a\n=1", "it's", "4x RTX 4090", "", "−1", "1-2"]
WRITERS = {"writer", "DictWriter", "to_csv", "write_csv"}


def _written_elsewhere(package: Path) -> list[str]:
    """Uses of csv.writer, csv.DictWriter, DataFrame.to_csv and pyarrow.csv outside of sim/csvio.py."""
    found = []
    for file in sorted(package.rglob("*.py")):
        text = file.read_text()
        if file.name == "csvio.py" or not any(name in text for name in (*WRITERS, "pyarrow.csv")):
            continue
        for node in ast.walk(ast.parse(text)):
            attribute = isinstance(node, ast.Attribute) and node.attr in WRITERS
            module = isinstance(node, ast.Import) and any(alias.name == "pyarrow.csv" for alias in node.names)
            part = isinstance(node, ast.ImportFrom) and (
                (node.module == "pyarrow" and any(alias.name == "csv" for alias in node.names))
                or node.module == "pyarrow.csv"
                or (node.module == "csv" and any(alias.name in WRITERS for alias in node.names))
            )
            if attribute or module or part:
                found.append(f"{file.relative_to(package)}:{node.lineno}")
    return found


@pytest.mark.slow
def test_one_module_writes_csv(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert _written_elsewhere(pytestconfig.rootpath / "sim") == []
    (tmp_path / "other.py").write_text("import csv\nimport pyarrow.csv\ncsv.writer(file)\nframe.to_csv(path)\n")
    assert _written_elsewhere(tmp_path) == ["other.py:2", "other.py:3", "other.py:4"]


def test_text_is_no_formula_and_numbers_stay(tmp_path: Path) -> None:
    assert [cell(text) for text in RISKY] == [f"'{text}" for text in RISKY]
    assert [cell(text) for text in HARMLESS] == HARMLESS
    assert [cell(value) for value in (-1.5, -3, True, None, float("nan"))] == [-1.5, -3, "true", "", ""]
    assert [unquoted(cell(text)) for text in RISKY + HARMLESS] == RISKY + HARMLESS
    texts = RISKY + HARMLESS
    numbers = [-1.5] * len(texts)
    write_csv(tmp_path / "lines.csv", RISKY[:2], zip(texts, numbers, strict=True))
    write_csv_columns(tmp_path / "columns.csv", RISKY[:2], [([], [pa.array(texts), pa.array(numbers)])])
    for name in ("lines.csv", "columns.csv"):
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        assert head == ["'=1+1", "'+1"]
        assert rows == [[cell(text), "-1.5"] for text in texts]


def test_constant_columns_are_cells(tmp_path: Path) -> None:
    write_csv_columns(tmp_path / "t.csv", ["a", "b", "c"], [(["=a", None], [pa.array([1.5, None])])])
    assert (tmp_path / "t.csv").read_text() == "a,b,c\n'=a,,1.5\n'=a,,\n"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's pattern")
def test_the_page_copies_cells_by_the_same_rule(pytestconfig: pytest.Config) -> None:
    script = (pytestconfig.rootpath / "sim/report/page/page.js").read_text()
    formula, number = (re.search(rf"const {name} = (/.*/i?);", script)[1] for name in ("FORMULA", "NUMBER"))
    asked = [*RISKY, *HARMLESS, "-1.5", "+12%", "-1+cmd"]
    code = f"console.log(JSON.stringify({asked!r}.map((text) => {formula}.test(text) && !{number}.test(text))))"
    told = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True).stdout
    quoted = [text not in ("+1", "-1") for text in RISKY] + [False] * len(HARMLESS) + [False, False, True]
    assert told.strip() == str(quoted).lower().replace(" ", "")


NAMES = ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "'=quoted"]


@pytest.mark.slow
@given(st.text(any_of("'=+-@\t\r\n1a."), max_size=6))
def test_quoting_is_undone(text: str) -> None:
    assert unquoted(str(cell(text))) == text


@given(st.floats())
def test_numbers_stay(number: float) -> None:
    assert cell(number) == number or (number != number and cell(number) == "")


@pytest.mark.slow
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


CHARACTERS = st.one_of(*(st.integers(*ends).map(chr) for ends in ((0, 0x7F), (0x80, 0xD7FF), (0xE000, 0x10FFFF))))
"""All characters but surrogates: Hypothesis would first try which ones UTF-8 can encode, in 2 s."""
TEXTS = st.one_of(
    st.none(), st.text(CHARACTERS), st.text(any_of('",\n\r\t=+-@ 1a'), max_size=4), st.sampled_from(RISKY)
)
FLOATS = st.one_of(st.none(), st.floats(), st.integers(-(10**20), 10**20).map(float), st.floats(-1e11, 1e11))
ROW = st.tuples(FLOATS, FLOATS, TEXTS, st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.booleans())
KINDS = (pa.float64(), pa.float64(), pa.string(), pa.int64(), pa.bool_())


@pytest.mark.slow
@given(st.lists(ROW, max_size=6), st.lists(TEXTS | FLOATS | st.booleans(), max_size=2), st.integers(1, len(KINDS)))
def test_columns_have_the_bytes_of_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], front: list[Any], width: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(KINDS[:width])]
    coded = [column.dictionary_encode() if pa.types.is_string(column.type) else column for column in columns]
    names = [*("a" * len(front)), *"bcdef"[:width]]
    write_csv(folder / "rows.csv", names, ([*front, *row[:width]] for row in rows))
    write_csv_columns(
        folder / "columns.csv", names, [(front, [one[:3] for one in columns]), (front, [one[3:] for one in columns])]
    )
    write_csv_columns(folder / "coded.csv", names, [(front, coded)])
    assert (folder / "columns.csv").read_bytes() == (folder / "rows.csv").read_bytes()
    assert (folder / "coded.csv").read_bytes() == (folder / "rows.csv").read_bytes()


def run(folder: Path) -> None:
    from sim.answers.run import run_scenario
    from sim.catalogue.catalog import load_catalog
    from sim.scenario.reading.load import load
    from sim.study.execution.cores import ProcessPool

    catalog = load_catalog()
    with ProcessPool(1) as cores:
        run_scenario(load(folder / "s.yaml", catalog=catalog), catalog, folder / "out", cores, False, True, ["x"])
