"""Tables of MLPerf Inference results: one run of one benchmark a line."""

import csv
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from sim.benchdata.errors import BenchdataError

REQUIRED = ("accelerator", "benchmark", "scenario")
SERVICE_METRICS = ("samples_s", "mean_latency_ms")
"""Columns that a prediction is compared in: samples per second of the whole system, and milliseconds per query."""
COUNTS, AMOUNTS = ("n_accelerators",), ("samples_s", "scheduled_samples_s", "mean_latency_ms")


@dataclass(frozen=True, slots=True)
class MlperfRow:
    """A run; empty texts are unknown."""

    line: int
    id: str
    """The table's, or the row's number from 1."""
    accelerator: str
    benchmark: str
    scenario: str
    """In lower case: offline, server, singlestream, multistream, ..."""
    n_accelerators: int = 1
    system: str = ""
    round: str = ""
    submitter: str = ""
    source: str = ""
    measured: dict[str, float] = field(default_factory=dict)
    """By SERVICE_METRICS; what was not measured is absent."""

    @property
    def power_limited(self) -> bool:
        """A submission tuned for performance per watt, with the cards' power capped."""
        return "maxq" in self.system.lower()


def read_mlperf(path: Path) -> list[MlperfRow]:
    """The rows of a CSV file with the columns REQUIRED and any of COUNTS, AMOUNTS; others are passed over.

    A Server run without `samples_s` counts the rate at which its queries were scheduled. Raises BenchdataError with
    everything that is wrong.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            lines = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BenchdataError([(str(path), 0, f"cannot be read: {error}")]) from None
    problems: list[tuple[int, str]] = []
    rows = [_row(number, line, cells, problems) for number, (line, cells) in enumerate(lines, 1)]
    seen: dict[str, int] = {}
    for row in rows:
        if row.id in seen:
            problems.append((row.line, f"the id {row.id!r} stands in line {seen[row.id]} too"))
        seen.setdefault(row.id, row.line)
    if not rows:
        problems.append((1, "holds no rows"))
    if problems:
        raise BenchdataError([(str(path), line, text) for line, text in sorted(problems)])
    return rows


def _row(number: int, line: int, cells: dict[str, str | None], problems: list[tuple[int, str]]) -> MlperfRow:
    texts = {
        name: (cells.get(name) or "").strip() for name in (*REQUIRED, "id", "system", "round", "submitter", "source")
    }
    problems += [(line, f"{name} is missing") for name in REQUIRED if not texts[name]]
    if None in cells:
        problems.append((line, "more fields than the first line names"))
    amounts = {name: _number(name, cells.get(name), line, problems) for name in (*COUNTS, *AMOUNTS)}
    count = amounts["n_accelerators"] or 1
    if count != int(count):
        problems.append((line, f"n_accelerators must be a whole number, not {count:g}"))
    scenario = texts.pop("scenario").lower()
    rate = amounts["samples_s"] or (amounts["scheduled_samples_s"] if scenario == "server" else None)
    measured = {"samples_s": rate, "mean_latency_ms": amounts["mean_latency_ms"]}
    return MlperfRow(
        line=line,
        scenario=scenario,
        n_accelerators=int(count),
        measured={name: value for name, value in measured.items() if value is not None},
        **texts | {"id": texts["id"] or str(number)},
    )


def _number(name: str, cell: str | None, line: int, problems: list[tuple[int, str]]) -> float | None:
    if cell is None or not cell.strip():
        return None
    try:
        value = float(cell)
    except ValueError:
        value = float("nan")
    if not isfinite(value) or value < 0:
        problems.append((line, f"{name} must be a number from 0, not {cell[:40]!r}"))
        return None
    return value or None
