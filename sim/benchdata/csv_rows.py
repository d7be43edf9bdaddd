"""What tables of measurements have in common, whatever their columns: a header, a row a line, ids that stand once."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from sim.benchdata.errors import BenchdataError
from sim.decimals import number
from sim.infile import opened

Problem = tuple[int, str]
"""Line of the file, what is wrong there."""
MOST_COUNTED, LARGEST = 1_000_000_000, 1e15
"""Largest whole number in a table of measurements (GPUs, requests), and largest amount (tokens per second)."""


class CsvLine(NamedTuple):
    """A line that is not empty."""

    number: int
    """Of the row, from 1."""
    line: int
    """Of the file, from 1."""
    header: Sequence[str]
    cells: Sequence[str]

    def by_name(self) -> dict[str, str]:
        """Column -> cell; a line may be shorter or longer than the header."""
        return dict(zip(self.header, self.cells, strict=False))


class _Row(Protocol):
    @property
    def line(self) -> int: ...
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=_Row)


def read_rows(
    path: Path,
    header_problems: Callable[[Sequence[str]], Sequence[str]],
    row_of: Callable[[CsvLine, list[Problem]], Row | None],
) -> list[Row]:
    """The rows of the CSV file at *path*: one for each line of which *row_of* makes one.

    *header_problems* says what is wrong with the columns; then no line is read. *row_of* adds to the problems what is
    wrong with its line. Raises BenchdataError with all of it, also for a file that cannot be read or has no rows, and
    for ids that stand twice.
    """
    header, lines = _header_and_lines(path)
    problems = [(1, text) for text in header_problems(header)]
    rows: list[Row] = []
    if not problems:
        for number, (line, cells) in enumerate(lines, 1):
            row = row_of(CsvLine(number, line, header, cells), problems)
            rows += [] if row is None else [row]
        problems += _repeated(rows)
        if not lines:
            problems.append((1, "holds no rows"))
    if problems:
        raise BenchdataError([(str(path), line, text) for line, text in sorted(problems)])
    return rows


def amount(
    name: str, cell: object, line: int, problems: list[Problem], or_zero: bool = False, most: float = LARGEST
) -> float | None:
    """Return the number in *cell*, a text or a number of JSON; None where it is empty or, after a problem, wrong.

    A number must be above 0 and at most *most*; with *or_zero*, 0 stands for a figure that was not taken, and is None.
    """
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    value = number(cell)
    if value is None:
        problems.append((line, f"{name} must be a number, not {str(cell)[:40]!r}"))
    elif value < 0 or (value == 0 and not or_zero):
        said = str(cell)[:40]
        problems.append(
            (line, f"{name} must be at least 0, not {said}" if or_zero else f"{name} must be more than 0, not {said}")
        )
        return None
    elif value > most:
        problems.append((line, f"{name} must be at most {most:g}, not {str(cell)[:40]}"))
        return None
    return value or None


def count(name: str, value: float | None, line: int, problems: list[Problem]) -> int | None:
    """Return *value* as the whole number that it must be; None after a problem."""
    if value is None:
        return None
    if not value.is_integer() or value > MOST_COUNTED:
        bound = f" of at most {MOST_COUNTED:,}" if value > MOST_COUNTED else ""
        problems.append((line, f"{name} must be a whole number{bound}, not {value:g}"))
        return None
    return int(value)


def missing(required: Sequence[str], header: Sequence[str]) -> list[str]:
    """A sentence for each *required* column that is not in *header*."""
    return [f"the column {name!r} is missing" for name in required if name not in header]


def _header_and_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            return header, [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        told = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise BenchdataError([(str(path), 0, f"cannot be read: {told}")]) from None


def _repeated(rows: Sequence[_Row]) -> list[Problem]:
    first: dict[str, int] = {}
    return [
        (row.line, f"the id {row.id!r} stands in line {first[row.id]} too")
        for row in rows
        if first.setdefault(row.id, row.line) != row.line
    ]
