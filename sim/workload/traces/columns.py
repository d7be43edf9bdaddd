"""Columns of a trace: reading of delimited files with a header, and validation of numbers.

Every ragged row, misnamed column and wrong value is reported. Columns are checked as a whole, and value by value only
if something is wrong.
"""

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.decimals import numbers
from sim.infile import opened
from sim.message import Message
from sim.workload.traces.trace_file import TraceError, TraceFaults, misnamed, unreadable

ROWS_AT_ONCE = 512
"""Rows read at once; few enough to stay below the garbage collector's threshold, beyond which it scans every row."""


@dataclass(slots=True)
class TraceTable:
    """Columns of text by name, and the line of each row."""

    columns: dict[str, list[str]]
    lines: list[int] = field(default_factory=list)


def read_any_table(path: str, usual: Sequence[str], faults: TraceFaults) -> TraceTable:
    """Return all columns of a file, whatever their headers, separated by commas, semicolons or tabs.

    The error of an empty file names the *usual* headers. A row with too few or too many fields is added to *faults* and
    left out; blank lines are skipped. Raises TraceError if no rows can be separated.
    """
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            file.seek(0)
            if not first.strip():
                raise TraceError(
                    [(path, 0, Message("is empty; its first line must name the columns {usual}", ",".join(usual)))]
                )
            return _read_table(path, csv.reader(file, delimiter=_delimiter(first), strict=True), None, (), faults)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _delimiter(first: str) -> str:
    """Return the character that separates the names in the *first* line."""
    return max(",;\t", key=first.count)


def read_json_lines(path: str, faults: TraceFaults) -> TraceTable:
    """Return the objects of a JSON Lines file, their keys as columns of text: `{"a": {"b": 1}}` has the column `a.b`.

    Lists are left out. Raises TraceError if the file cannot be read; a line that is not an object is added to *faults*.
    """
    rows, table = [], TraceTable({})
    try:
        with opened(path, "r", encoding="utf-8-sig") as file:
            for line, text in enumerate(file, 1):
                if text.strip():
                    try:
                        row = json.loads(text)
                    except (ValueError, RecursionError):
                        row = None
                    if not isinstance(row, dict):
                        faults.add(line, "is not a JSON object")
                        continue
                    rows.append(dict(_flat(row)))
                    table.lines.append(line)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None
    if not rows:
        raise faults.error() if faults else TraceError([(path, 0, "holds no requests")])
    for name in dict.fromkeys(name for row in rows for name in row):
        table.columns[name] = [row.get(name, "") for row in rows]
    return table


def _flat(value: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted keys of an object and of objects in it, with their values as text."""
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{above}{key}.")
        elif not isinstance(item, list):
            yield above + key, "" if item is None else str(item)


def read_table(path: str, required: Sequence[str], optional: Sequence[str], faults: TraceFaults) -> TraceTable:
    """Return the named columns of a file; other columns are an error. Raises TraceError if no rows can be separated.

    A row with too few or too many fields is added to *faults* and left out; blank lines are skipped.
    """
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            return _read_table(path, csv.reader(file, strict=True), required, optional, faults)
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from None


def _read_table(
    path: str, reader: Iterator[list[str]], required: Sequence[str] | None, optional: Sequence[str], faults: TraceFaults
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
        raise TraceError([(path, line, Message("at or after this line: {error}", error))]) from None
    if not table.lines and not faults and required is not None:
        raise TraceError([(path, 0, "holds no requests")])
    return table


def _places(path: str, header: list[str], required: Sequence[str] | None, optional: Sequence[str]) -> dict[str, int]:
    """Return the position of each column in a row. Without *required* names, any header is accepted."""
    if not header:
        raise TraceError(
            [(path, 0, Message("is empty; its first line must name the columns {required}", ",".join(required or ())))]
        )
    complaints: list[str] = [
        Message("the column {name!r} is given twice", name) for name in sorted(set(header)) if header.count(name) > 1
    ]
    if required is None:
        pass
    elif set(required).isdisjoint(header):
        complaints.append(
            Message(
                "the first line must name the columns {required}; it is {header!r}",
                ",".join(required),
                ",".join(header)[:80],
            )
        )
    else:
        complaints += misnamed("column", header, required, optional)
    if complaints:
        raise TraceError([(path, 1, complaint) for complaint in complaints])
    return {name: place for place, name in enumerate(header)}


def _whole_rows(
    rows: list[list[str]], lines: Sequence[int], width: int, faults: TraceFaults
) -> tuple[list[list[str]], list[int]]:
    """Return the rows with *width* fields; other rows that are not blank are added to *faults*."""
    kept = [(row, line) for row, line in zip(rows, lines, strict=True) if len(row) == width]
    for row, line in zip(rows, lines, strict=True):
        if row and len(row) != width:
            faults.add(line, Message("{count} fields where the first line names {columns}", len(row), width))
    return [row for row, _ in kept], [line for _, line in kept]


LARGEST = 2**53
"""Largest whole number up to which floats are exact."""
LATEST_S = 1e9
"""Latest arrival time, about 32 years after the start [s]; larger numbers are dates."""


def seconds(texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults) -> NDArray[np.float64]:
    """Return a column of times: finite, not negative, never falling."""
    values = finite(texts, name, lines, faults)
    check_times(values, texts, name, lines, faults)
    return values


def check_times(
    values: NDArray[np.float64], texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults
) -> None:
    """Report times that are negative or earlier than the one before."""
    negative = values < 0
    faults.add_rows(
        np.flatnonzero(negative), lines, lambda row: Message("{name} must not be negative: {value}", name, texts[row])
    )
    check_order(np.where(negative, nan, values), texts, name, lines, faults)


def check_not_dates(
    arrived_s: NDArray[np.float64], texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults
) -> NDArray[np.float64]:
    """Return *arrived_s* unchanged; the first value that is a date (seconds since 1970) is added to *faults*."""
    late = np.flatnonzero(arrived_s > LATEST_S)[:1]
    why = "counts from the start of the trace: take the first request's time from all of them"
    faults.add_rows(late, lines, lambda row: f"{name} {why}, not {texts[row]}")
    return arrived_s


def check_order(
    times: NDArray[np.float64], texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults
) -> None:
    """Report times earlier than the preceding one; nan, already reported, is skipped."""
    known = np.flatnonzero(~np.isnan(times))
    late = np.flatnonzero(np.diff(times[known]) < 0)
    before = dict(zip(known[late + 1].tolist(), known[late].tolist(), strict=True))

    def message(row: int) -> str:
        earlier = before[row]
        return Message(
            "not sorted: {name} {value} comes after {earlier} (line {line})",
            name,
            texts[row],
            texts[earlier],
            lines[earlier],
        )

    faults.add_rows(known[late + 1], lines, message)


def tokens(
    texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults, least: int = 1
) -> NDArray[np.int64]:
    """Return a column of whole numbers of at least *least*."""
    return _whole(texts, name, lines, faults, Message(" of at least {least}", least), least)


def integers(texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults) -> NDArray[np.int64]:
    """Return a column of whole numbers of either sign."""
    return _whole(texts, name, lines, faults, "", -LARGEST)


def _whole(
    texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults, bound: str, least: int
) -> NDArray[np.int64]:
    values = finite(texts, name, lines, faults)
    wrong = (values < least) | (values > LARGEST) | (values != np.rint(values)) & ~np.isnan(values)
    faults.add_rows(
        np.flatnonzero(wrong),
        lines,
        lambda row: Message("{name} must be a whole number{bound}, not {value}", name, bound, texts[row]),
    )
    return np.where(wrong | np.isnan(values), least, values).astype(np.int64)


def finite(texts: Sequence[object], name: str, lines: Sequence[int], faults: TraceFaults) -> NDArray[np.float64]:
    """Return a column of finite numbers; other values become nan and are reported."""
    values = numbers(texts)
    wrong = np.isnan(values)
    faults.add_rows(
        np.flatnonzero(wrong),
        lines,
        lambda row: Message("{name} must be a number, not {value}", name, _shown(texts[row])),
    )
    return values


def _shown(text: object) -> str:
    shown = str(text).strip(" \t\r\n")
    return repr(shown[:40]) if shown else "empty"
