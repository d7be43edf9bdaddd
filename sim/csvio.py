"""CSV output, the only module that writes CSV files, so that spreadsheets run no cell as a formula."""

import csv
import re
from collections.abc import Iterable, Sequence
from itertools import repeat
from math import isnan
from pathlib import Path
from typing import IO, Any, NamedTuple

_FORMULA = re.compile(r"'*(?:[\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠﹦﹢﹣﹫])")


def cell(value: Any) -> Any:
    """Return *value* as written in CSV files: true/false, floats by repr, empty for None and nan.

    Text that begins with `= + - @` (also full-width, small, or after blanks), a tab, a carriage return or a line feed
    is quoted with an apostrophe; `unquoted` removes it. Numbers stay numbers.

    References
    ----------
    OWASP, "CSV Injection".

    """
    if isinstance(value, str):
        return f"'{value}" if _FORMULA.match(value) else value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or (isinstance(value, float) and isnan(value)):
        return ""
    return value


def unquoted(text: str) -> str:
    """Return the text that `cell` was called with.

    >>> [unquoted(cell(text)) for text in ("=1+1", "'=1+1", "-5", "it's")]
    ['=1+1', "'=1+1", '-5', "it's"]
    """
    return text[1:] if text[:1] == "'" and _FORMULA.match(text) else text


def write_csv(path: Path, header: Iterable[str], lines: Iterable[Iterable[Any]]) -> None:
    """Write *header* and *lines* to the file *path*, every value as a `cell`."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = _writer(file, header)
        writer.writerows([cell(value) for value in line] for line in lines)


def write_csv_columns(
    path: Path, header: Iterable[str], blocks: Iterable[tuple[Sequence[Any], Sequence[Sequence[Any]]]]
) -> None:
    """Write *header* and *blocks* of rows to the file *path*, every value as a `cell`.

    A block is (values that all of its rows begin with, its further columns).
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = _writer(file, header)
        for front, columns in blocks:
            writer.writerows(zip(*(repeat(cell(value)) for value in front), *map(_cells, columns), strict=False))


class _Lines(NamedTuple):
    """File whose lines end with a line feed, though the writer ends them with both characters that need quotes."""

    file: IO[str]

    def write(self, line: str) -> int:
        """Write *line*, which ends with a carriage return and a line feed."""
        return self.file.write(f"{line[:-2]}\n")


def _writer(file: IO[str], header: Iterable[str]) -> Any:
    """Return a writer to *file* with *header* written.

    A carriage return in a cell would end the row in most readers.
    """
    writer = csv.writer(_Lines(file), lineterminator="\r\n")
    writer.writerow(map(cell, header))
    return writer


def _cells(values: Sequence[Any]) -> Iterable[Any]:
    """Return *values* as cells; numbers stay as they are, as csv writes a float by its repr."""
    kinds = set(map(type, values))
    numbers = kinds <= {int, float} and not (float in kinds and any(map(isnan, values)))
    return values if numbers else map(cell, values)
