"""Parsing of numbers in tables and traces from users: decimal, finite, in ASCII digits."""

import re
from collections.abc import Sequence
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

DECIMAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
"""Decimal number as spreadsheets and programs write it. `float` also accepts 1_000, digits of other scripts, nan and
inf, which in a table are mistakes that would change a result unnoticed."""


def number(cell: object) -> float | None:
    """Return the finite decimal number in *cell*, a text or a number of JSON; None where it is none.

    >>> number(" 1.5e3 "), number(7), number("1_000"), number("٣"), number("nan"), number("1e400"), number(True)
    (1500.0, 7.0, None, None, None, None, None)
    """
    if type(cell) not in (int, float) and not (isinstance(cell, str) and DECIMAL.fullmatch(cell)):
        return None
    try:
        value = float(cell)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return value if isfinite(value) else None


def whole_number(cell: object) -> int | None:
    """Return the whole number in *cell*, exact however large it is; None where it is none.

    >>> whole_number("1700000000000000001"), whole_number(2.0), whole_number("2.5"), whole_number("1_000")
    (1700000000000000001, 2, None, None)
    """
    if type(cell) is int:
        return cell
    if isinstance(cell, str) and re.fullmatch(r"\s*[+-]?\d{1,30}\s*", cell, re.ASCII):
        return int(cell)
    value = number(cell)
    return int(value) if value is not None and value.is_integer() else None


def numbers(cells: Sequence[object]) -> NDArray[np.float64]:
    """Return `number` of each of *cells*, nan where it is None; a column of a million cells takes about 0.1 s."""
    kinds = set(map(type, cells))
    if kinds <= {int, float} or (kinds == {str} and _only_decimals("".join(cells))):  # type: ignore[arg-type]
        try:
            values = np.fromiter(map(float, cells), np.float64, len(cells))  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            pass
        else:
            return np.where(np.isfinite(values), values, nan)
    found = map(number, cells)
    return np.fromiter((nan if value is None else value for value in found), np.float64, len(cells))


def _only_decimals(text: str) -> bool:
    """Return whether `float` accepts in *text* only what `DECIMAL` matches, apart from infinities and nan."""
    return text.isascii() and "_" not in text
