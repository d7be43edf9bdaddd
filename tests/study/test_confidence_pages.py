"""What docs/fidelity.md and docs/calibrate.md say of intervals is what data/fidelity/intervals.yaml holds."""

import re

import pytest

from sim.catalogue.catalog import load_catalog
from sim.study.confidence import MARKS, Interval, read_intervals

ROOT = load_catalog().root
INTERVALS = read_intervals(ROOT / "fidelity" / "intervals.yaml")
ROWS = {"tokens/s": "throughput", "TPOT": "tpot", "TTFT": "ttft", "power": "power"}


def page(name: str) -> str:
    return (ROOT.parent / "docs" / name).read_text()


def told(interval: Interval | None) -> str:
    return "too few" if interval is None else f"{interval.low:.2f} to {interval.high:.2f}"


@pytest.mark.parametrize("row", ROWS)
def test_the_table_of_marks(row: str) -> None:
    _, _, table = page("fidelity.md").partition(f"| times the prediction | {' | '.join(MARKS)} |")
    (cells,) = re.findall(rf"^\| {row} \| (.*) \|$", table, re.MULTILINE)
    assert cells.split(" | ") == [told(INTERVALS.of(ROWS[row], mark)) for mark in MARKS]


@pytest.mark.parametrize("name", ["fidelity.md", "calibrate.md"])
def test_servers_that_their_owner_calibrated(name: str) -> None:
    text = " ".join(page(name).split())
    assert INTERVALS.calibrated
    assert [metric for metric, own in INTERVALS.calibrated.items() if told(own) not in text] == []


def test_what_calibrated_servers_are_compared_with() -> None:
    text = " ".join(page("calibrate.md").split())
    assert [metric for metric in INTERVALS.calibrated if told(INTERVALS.of(metric, MARKS[0])) not in text] == []
