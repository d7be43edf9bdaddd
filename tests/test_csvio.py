"""Cells of CSV files: text is never a formula, numbers stay numbers, and one module writes all of them."""

import ast
import csv
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sim.csvio import cell, unquoted, write_csv, write_csv_columns

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
    write_csv_columns(tmp_path / "columns.csv", RISKY[:2], [([], [texts, numbers])])
    for name in ("lines.csv", "columns.csv"):
        with (tmp_path / name).open(encoding="utf-8", newline="") as file:
            head, *rows = csv.reader(file)
        assert head == ["'=1+1", "'+1"]
        assert rows == [[cell(text), "-1.5"] for text in texts]


def test_constant_columns_are_cells(tmp_path: Path) -> None:
    write_csv_columns(tmp_path / "t.csv", ["a", "b", "c"], [(["=a", None], [[1.5, float("nan")]])])
    assert (tmp_path / "t.csv").read_text() == "a,b,c\n'=a,,1.5\n'=a,,\n"


@pytest.mark.skipif(shutil.which("node") is None, reason="node runs the page's pattern")
def test_the_page_copies_cells_by_the_same_rule(pytestconfig: pytest.Config) -> None:
    script = (pytestconfig.rootpath / "sim/report/page/page.js").read_text()
    formula, number = (re.search(rf"const {name} = (/.*/i?);", script)[1] for name in ("FORMULA", "NUMBER"))
    asked = [*RISKY, *HARMLESS, "-1.5", "+12%", "-1+cmd"]
    code = f"console.log(JSON.stringify({asked!r}.map((text) => {formula}.test(text) && !{number}.test(text))))"
    told = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True).stdout
    quoted = [text not in ("+1", "-1") for text in RISKY] + [False] * len(HARMLESS) + [False, False, True]
    assert told.strip() == str(quoted).lower().replace(" ", "")
