"""CSV output, the only module that writes CSV files, so that spreadsheets run no cell as a formula."""

import csv
import re
from collections.abc import Iterable, Sequence
from io import StringIO
from math import isnan
from pathlib import Path
from typing import IO, Any, NamedTuple

_FORMULA = re.compile(r"'*(?:[\t\r\n]|[\s\u200b\ufeff]*[=+\-@＝＋－＠﹦﹢﹣﹫])")

PLAIN_FROM, PLAIN_BELOW = 1e-4, 1e10
"""Magnitudes between which neither repr nor pyarrow writes an exponent."""
ROWS_AT_ONCE = 65_536
"""Number of rows from which blocks are written, which bounds the memory."""


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
        writer = _rows(file)
        writer.writerow(map(cell, header))
        writer.writerows([cell(value) for value in line] for line in lines)


def write_csv_columns(path: Path, header: Iterable[str], blocks: Iterable[tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Write *header* and *blocks* of rows to the file *path*, with the bytes that `write_csv` would write.

    A block is (values that all of its rows begin with, its further columns as pyarrow arrays). Small blocks are
    written together.
    """
    with path.open("wb") as file:
        file.write(_line(header))
        waiting: list[tuple[Sequence[Any], Sequence[Any]]] = []
        rows = 0
        for block in blocks:
            waiting.append(block)
            rows += len(block[1][0])
            if rows >= ROWS_AT_ONCE:
                file.write(_lines(waiting))
                waiting, rows = [], 0
        if waiting:
            file.write(_lines(waiting))


class _Lines(NamedTuple):
    """File whose lines end with a line feed, though the writer ends them with both characters that need quotes."""

    file: IO[str]

    def write(self, line: str) -> int:
        """Write *line*, which ends with a carriage return and a line feed."""
        return self.file.write(f"{line[:-2]}\n")


def _rows(file: IO[str]) -> Any:
    """Return a writer to *file*. A carriage return in a cell would end the row in most readers."""
    return csv.writer(_Lines(file), lineterminator="\r\n")


def _line(values: Iterable[Any]) -> bytes:
    """Return the line of a CSV file with *values*."""
    text = StringIO()
    _rows(text).writerow(map(cell, values))
    return text.getvalue().encode()


def _lines(blocks: Sequence[tuple[Sequence[Any], Sequence[Any]]]) -> Any:
    """Return the lines of *blocks* as a buffer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [_texts_together(columns) for columns in zip(*(columns for _, columns in blocks), strict=True)]
    if any(front for front, _ in blocks):
        starts = pa.array([",".join(map(_text, front)) for front, _ in blocks])
        numbers = [number for number, (_, one) in enumerate(blocks) for _ in range(len(one[0]))]
        texts.insert(0, starts.take(pa.array(numbers, pa.int32())))
    elif len(texts) == 1:  # the csv writer quotes an empty cell that is alone on its line
        texts = [pc.replace_with_mask(texts[0], pc.equal(texts[0], ""), '""')]
    lines = pc.binary_join_element_wise(pc.binary_join_element_wise(*texts, ","), "", "\n")
    return lines.buffers()[2] if len(lines) else b""


def _texts_together(columns: Sequence[Any]) -> Any:
    """Return the texts of pyarrow arrays that follow each other in one column."""
    import pyarrow as pa

    alike = all(column.type == columns[0].type for column in columns)
    return _texts(pa.concat_arrays(columns)) if alike else pa.concat_arrays([*map(_texts, columns)])


def _text(value: Any) -> str:
    """Return *value* as it is written between two commas."""
    return _line([value, 0]).decode().removesuffix(",0\n")


def _texts(column: Any) -> Any:
    """Return the pyarrow array *column* as an array of the texts between commas; null and nan become empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_floating(kind):
        texts = _numbers(column.cast(pa.float64()))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        texts = column.cast(pa.string())
    else:
        coded = column if pa.types.is_dictionary(kind) else column.dictionary_encode()
        texts = pa.array(map(_text, coded.dictionary.to_pylist()), pa.string()).take(coded.indices)
    return pc.fill_null(texts, "")


def _numbers(column: Any) -> Any:
    """Return floats as texts by their repr.

    pyarrow's shortest text has the digits of repr. Where it has no exponent, whole numbers lack only their `.0`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    column = pc.if_else(pc.is_nan(column), pa.scalar(None, pa.float64()), column)
    size = pc.abs(column)
    plain = pc.fill_null(pc.and_(pc.less(size, PLAIN_BELOW), pc.greater_equal(size, PLAIN_FROM)), fill_value=True)
    plain = pc.or_(plain, pc.fill_null(pc.equal(size, 0.0), fill_value=True))
    texts = column.cast(pa.string())
    whole = pc.equal(column, pc.trunc(column))
    if pc.any(whole).as_py():
        texts = pc.if_else(whole, pc.binary_join_element_wise(texts, "0", "."), texts)
    if pc.all(plain).as_py() is False:
        odd = pc.invert(plain)
        texts = pc.replace_with_mask(texts, odd, pa.array(map(repr, column.filter(odd).to_pylist()), pa.string()))
    return texts
