"""Every block of docs/python.md, and every cell of the notebook, runs."""

import builtins
import json
import re
from pathlib import Path
from typing import Any

import pytest

import sim

pytestmark = pytest.mark.slow


def executed(pieces: list[str]) -> dict[str, Any]:
    """Run the *pieces*, short: at most 30 s are simulated, and 300 requests of a trace."""
    space: dict[str, Any] = {"__name__": "a_notebook"}
    for number, piece in enumerate(pieces, start=1):
        short = re.sub(r'("horizon_s": )\d+', r"\g<1>30", re.sub(r"\b1200\b", "300", piece))
        exec(compile(short, f"block {number}", "exec"), space)
    return space


def test_the_page_runs_from_top_to_bottom(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (root / "docs/python.md").read_text()
    monkeypatch.chdir(tmp_path)
    space = executed(re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cost_vs_latency.pdf", "cost_vs_latency.png"]
    assert space["again"].summary.meets_slo.all()
    assert str(space["sized"].winner["name"]).endswith("-winner")
    offered = set(re.findall(r"`sim\.(\w+)`", page)) | set(re.findall(r"^\| `(\w+)`.* \|", page, flags=re.MULTILINE))
    assert offered <= {*sim.__all__, *dir(builtins)}


def test_the_notebook_leads_to_a_decision(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((root / "docs/notebooks/first-comparison.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    monkeypatch.chdir(tmp_path)
    space = executed(cells)
    assert space["run"].summary.meets_slo.any()
    assert len(space["run"].summary) == 6
    assert not list(tmp_path.glob("*/summary.csv")), "the results stay in memory"
