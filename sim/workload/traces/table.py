"""Comma-separated files with a header, read fast and with every ragged or misnamed thing reported."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sim.infile import opened
from sim.workload.traces.faults import Faults, TraceError, misnamed, unreadable

ROWS_AT_ONCE = 512
"""Few enough to stay below the threshold of the garbage collector, which would scan every row."""


@dataclass(slots=True)
class TraceTable:
    """Columns of text by name, and the line of each row."""

    columns: dict[str, list[str]]
    lines: list[int] = field(default_factory=list)


def header(path: str) -> set[str]:
    """Names in the first line of a file. Raises TraceError where it cannot be read."""
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            return {name.strip() for name in next(csv.reader(file), [])}
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    except csv.Error:
        return set()  # read_table says where


def read_table(path: str, required: Sequence[str], optional: Sequence[str], faults: Faults) -> TraceTable:
    """The named columns of a file; other columns are an error. Raises TraceError where no rows can be separated.

    A row with too few or too many fields goes to *faults* and is left out; blank lines are passed over.
    """
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            return _read(path, csv.reader(file, strict=True), required, optional, faults)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _read(
    path: str, reader: Iterator[list[str]], required: Sequence[str], optional: Sequence[str], faults: Faults
) -> TraceTable:
    header = [name.strip() for name in next(reader, [])]
    places = _places(path, header, required, optional)
    table = TraceTable({name: [] for name in places})
    line = 2
    try:
        while rows := list(islice(reader, ROWS_AT_ONCE)):
            lines: Sequence[int] = range(line, line + len(rows))
            line += len(rows)
            if set(map(len, rows)) != {len(header)}:
                rows, lines = _whole_rows(rows, lines, len(header), faults)
            table.lines.extend(lines)
            for name, place in places.items():
                table.columns[name].extend([row[place] for row in rows])
    except csv.Error as error:
        raise TraceError([(path, line, f"at or after this line: {error}")]) from None
    if not table.lines and not faults:
        raise TraceError([(path, 0, "holds no requests")])
    return table


def _places(path: str, header: list[str], required: Sequence[str], optional: Sequence[str]) -> dict[str, int]:
    """Where each wanted column stands."""
    if not header:
        raise TraceError([(path, 0, "is empty; its first line must name the columns " + ",".join(required))])
    complaints = [f"the column {name!r} stands twice" for name in sorted(set(header)) if header.count(name) > 1]
    if set(required).isdisjoint(header):
        complaints.append(f"the first line must name the columns {','.join(required)}; it is {','.join(header)[:80]!r}")
    else:
        complaints += misnamed("column", header, required, optional)
    if complaints:
        raise TraceError([(path, 1, complaint) for complaint in complaints])
    return {name: place for place, name in enumerate(header)}


def _whole_rows(
    rows: list[list[str]], lines: Sequence[int], width: int, faults: Faults
) -> tuple[list[list[str]], list[int]]:
    """The rows with *width* fields; what is neither that nor blank is a fault."""
    kept = [(row, line) for row, line in zip(rows, lines, strict=True) if len(row) == width]
    for row, line in zip(rows, lines, strict=True):
        if row and len(row) != width:
            faults.add(line, f"{len(row)} fields where the first line names {width}")
    return [row for row, _ in kept], [line for _, line in kept]
