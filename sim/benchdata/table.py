"""Reader of CSV tables of measurements: a header, one row per line, unique ids.

The functions that check cells are used for every table of measurements. `read_table` reads tables with one operating
point of a serving engine per line, in the columns of `row`.
"""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from sim.benchdata.errors import BenchdataError
from sim.benchdata.row import AMOUNTS, CONDITIONS, COUNTS, LOADS, METRICS, TEXTS, BenchRow
from sim.decimals import number
from sim.infile import opened
from sim.message import OR, Message, joined, os_reason

Problem = tuple[int, str]
"""Line of the file, and the mistake in it."""
MOST_COUNTED, LARGEST = 1_000_000_000, 1e15
"""Largest whole number in a table of measurements (GPUs, requests), and largest amount (tokens per second)."""


class CsvLine(NamedTuple):
    """Non-empty line of a CSV file."""

    number: int
    """Number of the row, from 1."""
    line: int
    """Line of the file, from 1."""
    header: Sequence[str]
    cells: Sequence[str]

    def by_name(self) -> dict[str, str]:
        """Return the cells keyed by column; a line may be shorter or longer than the header."""
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
    """Read the rows of a CSV file.

    Parameters
    ----------
    path
        CSV file.
    header_problems
        Function header -> mistakes in the columns. If there are any, no line is read.
    row_of
        Function (line, problems) -> row, or None; appends the line's mistakes to the problems.

    Raises
    ------
    BenchdataError
        The file has mistakes or duplicate ids, has no rows, or cannot be read; the error lists all mistakes.

    """
    header, lines = _header_and_lines(path)
    problems = [(1, text) for text in header_problems(header)]
    rows: list[Row] = []
    if not problems:
        for number, (line, cells) in enumerate(lines, 1):
            row = row_of(CsvLine(number, line, header, cells), problems)
            rows += [] if row is None else [row]
        problems += _repeated_ids(rows)
        if not lines:
            problems.append((1, "holds no rows"))
    if problems:
        raise BenchdataError([(str(path), line, text) for line, text in sorted(problems)])
    return rows


def amount(
    name: str, cell: object, line: int, problems: list[Problem], or_zero: bool = False, most: float = LARGEST
) -> float | None:
    """Return the number in *cell*, a text or a JSON number; None if it is empty or, after a problem, invalid.

    A number must be above 0 and at most *most*; with *or_zero*, 0 stands for a missing measurement and gives None.
    """
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return None
    value = number(cell)
    if value is None:
        problems.append((line, Message("{name} must be a number, not {value!r}", name, str(cell)[:40])))
    elif value < 0 or (value == 0 and not or_zero):
        said = str(cell)[:40]
        problems.append(
            (
                line,
                Message("{name} must be at least 0, not {value}", name, said)
                if or_zero
                else Message("{name} must be more than 0, not {value}", name, said),
            )
        )
        return None
    elif value > most:
        problems.append((line, Message("{name} must be at most {limit:g}, not {value}", name, most, str(cell)[:40])))
        return None
    return value or None


def count(name: str, value: float | None, line: int, problems: list[Problem]) -> int | None:
    """Return *value* as a whole number; None after a problem."""
    if value is None:
        return None
    if not value.is_integer() or value > MOST_COUNTED:
        bound = Message(" of at most {most_counted:,}", MOST_COUNTED) if value > MOST_COUNTED else ""
        problems.append((line, Message("{name} must be a whole number{bound}, not {value:g}", name, bound, value)))
        return None
    return int(value)


def missing(required: Sequence[str], header: Sequence[str]) -> list[str]:
    """Return a sentence for each *required* column that is not in *header*, or one on its separators."""
    if len(header) == 1 and (mark := next((mark for mark in ";\t|" if mark in header[0]), "")):
        return [Message("columns must be separated by commas, not by {mark!r}", mark)]
    return [Message("the column {name!r} is missing", name) for name in required if name not in header]


def _header_and_lines(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    try:
        with opened(path, "r", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip().lower() for name in next(reader, [])]
            return header, [(reader.line_num, cells) for cells in reader if cells]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        told = os_reason(error) if isinstance(error, OSError) else str(error)
        raise BenchdataError([(str(path), 0, Message("cannot be read: {reason}", told))]) from None


def _repeated_ids(rows: Sequence[_Row]) -> list[Problem]:
    first: dict[str, int] = {}
    return [
        (row.line, Message("the id {id!r} is in line {first} too", row.id, first[row.id]))
        for row in rows
        if first.setdefault(row.id, row.line) != row.line
    ]


COLUMNS = (*TEXTS, *COUNTS, *AMOUNTS, *METRICS)
REQUIRED_COLUMNS = ("gpu", "model")
NEEDS: dict[str, tuple[str, ...]] = {
    "closed_loop": ("concurrency",),
    "poisson": ("rate_req_s",),
    "constant": ("rate_req_s",),
    "static_batch": ("concurrency", "avg_batch"),
}
"""Columns, keyed by load, of which at least one is required."""
MOST = {"isl": 1e8, "osl": 1e8, "prompt_cv": 100.0, "output_cv": 100.0}
"""Largest mean lengths (ten times the longest context of any model) [tokens], and coefficients of variation."""
NUMBER_COLUMNS = (*COUNTS, *CONDITIONS)
SIMILAR = 0.8
MEASURED = ("ttft", "tpot", "itl", "e2e", "throughput", "latency", "output_tok", "total_tok", "req_s", "power")
"""Parts of names of measured values."""


def read_table(path: Path) -> list[BenchRow]:
    """Read a CSV file in the columns of `row`; other columns are ignored.

    Raises
    ------
    BenchdataError
        Columns are missing or misspelt, cells are not numbers, loads lack their rate or concurrency, or ids repeat.

    """
    return read_rows(path, _header_problems, partial(_row, path.parent))


def row_of(cells: dict[str, Any], line: int, folder: Path, problems: list[Problem]) -> BenchRow | None:
    """Return the row of *cells*; mistakes are added to *problems*. *folder* may hold the row's replay file."""
    found = len(problems)
    texts = {name: str(cells.get(name) or "").strip() for name in TEXTS}
    numbers = {
        name: amount(name, cells.get(name), line, problems, name in METRICS, MOST.get(name, LARGEST))
        for name in (*COUNTS, *AMOUNTS, *METRICS)
    }
    counts = {name: count(name, numbers[name], line, problems) for name in COUNTS}
    texts["load"] = texts["load"] or _usual_load(numbers)
    there = [name for name, cell in cells.items() if cell is not None and str(cell).strip()]
    problems += [(line, text) for text in _contradictions(texts, numbers, there)]
    if len(problems) > found:
        return None
    kept: dict[str, Any] = {name: numbers[name] for name in NUMBER_COLUMNS} | counts
    kept |= {name: kept[name] or 1 for name in ("pp", "dp")}
    kept["n_gpus"] = kept["n_gpus"] or max(_ranks(kept), kept["ep"] or 1)
    kept |= texts | {"id": texts["id"] or Message("line {line}", line)}
    return BenchRow(
        line=line,
        **kept,
        replay=_replay(folder, texts) if texts["load"] == "trace" else "",
        measured={name: value for name in METRICS if (value := numbers[name]) is not None},
    )


def _ranks(sizes: Mapping[str, Any]) -> int:
    """Return the number of GPUs that the parallel sizes need; left-out sizes count as one."""
    return prod(int(sizes[name] or 1) for name in ("tp", "pp", "dp"))


def _row(folder: Path, read: CsvLine, problems: list[Problem]) -> BenchRow | None:
    if len(read.cells) != len(read.header):
        problems.append(
            (
                read.line,
                Message("{count} fields where the first line names {columns}", len(read.cells), len(read.header)),
            )
        )
        return None
    return row_of(dict(read.by_name()), read.line, folder, problems)


def _header_problems(header: Sequence[str]) -> list[str]:
    if not header:
        return [
            Message("is empty; its first line must name the columns, {required} at least", ", ".join(REQUIRED_COLUMNS))
        ]
    problems: list[str] = [
        Message("the column {name!r} is given twice", name) for name in sorted(set(header)) if header.count(name) > 1
    ]
    problems += missing(REQUIRED_COLUMNS, header)
    for name in header:
        near = get_close_matches(name, COLUMNS, n=1, cutoff=SIMILAR)
        if name not in COLUMNS and near and near[0] not in header:
            problems.append(Message("unknown column {name!r}; did you mean {near}?", name, near[0]))
    return problems


def unread_measurements(header: Iterable[str]) -> list[str]:
    """Return the columns of *header* that seem to be measured values and are not read.

    >>> unread_measurements(["gpu", "ttft_mean_ms", "median_ttft_ms", "throughput (tok/s)", "note"])
    ['median_ttft_ms', 'throughput (tok/s)']
    """
    return sorted(name for name in header if name not in COLUMNS and any(part in name for part in MEASURED))


def _usual_load(numbers: dict[str, float | None]) -> str:
    return "poisson" if numbers["rate_req_s"] is not None and numbers["concurrency"] is None else "closed_loop"


def _contradictions(texts: dict[str, str], numbers: dict[str, float | None], there: Sequence[str]) -> list[str]:
    """Return the mistakes of a row apart from its numbers; *there* are the columns with a cell, valid or not."""
    load = texts["load"]
    problems: list[str] = [Message("{name} is missing", name) for name in REQUIRED_COLUMNS if not texts[name]]
    if load not in LOADS:
        problems.append(Message("unknown load {load!r}; one of {loads}", load, ", ".join(LOADS)))
    needed = NEEDS.get(load, ())
    if needed and not any(name in there for name in needed):
        problems.append(Message("load {load} needs {needed}", load, joined(OR, needed)))
    if texts["measured_at"] not in ("", "client", "engine"):
        problems.append(Message("measured_at must be client or engine, not {measured_at!r}", texts["measured_at"]))
    if (gpus := numbers["n_gpus"]) is not None and gpus < _ranks(numbers):
        problems.append(Message("n_gpus is {gpus:g}, but tp, pp and dp need {ranks}", gpus, _ranks(numbers)))
    for name in ("gpu_memory_utilization", "cached_share"):
        share = numbers[name]
        if share is not None and share > 1:
            problems.append(Message("{name} must be at most 1, not {share:g}", name, share))
    return problems


def _replay(folder: Path, texts: dict[str, str]) -> str:
    """Return the file of a trace's recorded requests, replay_<gpu>_<model>.csv next to the table; empty without one."""
    file = folder / f"replay_{texts['gpu']}_{texts['model']}.csv"
    return str(file) if file.is_file() else ""
