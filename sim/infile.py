"""Files that a user names, the numbers in them, and the token counts of OpenTelemetry spans.

A pipe or a device is refused: to read it could take for ever, and it reads but once.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from difflib import get_close_matches
from math import isfinite, nan
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

STAGE: ContextVar[str] = ContextVar("stage", default="starting")
"""What a command is at, for the line of progress while it reads and checks."""
DECIMAL = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
"""Decimal number as spreadsheets and programs write it. `float` also takes 1_000, digits of other scripts, nan and inf,
which in a table are slips that would change a result unnoticed.
"""
PROMPT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHED_TOKENS = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")
"""Attributes of spans by OpenTelemetry's conventions for generative AI: today's name, then older ones."""
TOKEN_COUNT = re.compile(r"usage\.|token_?(count|usage)|(gen_ai|llm).*token", re.IGNORECASE)
"""Attributes that count tokens, by whatever convention."""
PART_OF_TOKENS = re.compile(r"total|cache|reasoning|details|cost|max|time|type|limit|request\.", re.IGNORECASE)
"""Attributes that hold a sum or a part of the counts above, or none of them."""


def opened(path: Path | str, mode: str = "rb", **how: Any) -> IO[Any]:
    """Opens a regular file to read; *how* goes to `open`. Raises OSError, also for a pipe, a socket or a device."""
    file = Path(path)
    kind = file.stat().st_mode
    if not S_ISREG(kind) and not S_ISDIR(kind):  # of a folder `open` says so itself
        raise OSError(None, "it is no regular file", str(path))
    return file.open(mode, **how)


def json_objects(text: str) -> list[Any]:
    """The objects of a JSON document (a list has several), or of one a line. Raises JSONDecodeError."""
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        return _by_line(text, error)
    return data if isinstance(data, list) else [data]


def _by_line(text: str, whole: json.JSONDecodeError) -> list[Any]:
    """*whole* is what is wrong if already the first line is no object. Raises JSONDecodeError."""
    found: list[Any] = []
    begin = 0
    for line in text.splitlines(keepends=True):
        try:
            found += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            raise (json.JSONDecodeError(error.msg, text, begin + error.pos) if found else whole) from None
        begin += len(line)
    return found


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
    """Whether `float` reads nothing in *text* that `DECIMAL` does not, infinities and nan apart."""
    return text.isascii() and "_" not in text


def unknown_token_keys(attributes: Iterable[str]) -> dict[str, str]:
    """Return the keys of a span that seem to count tokens but are not read, each with the nearest that is.

    >>> unknown_token_keys(["gen_ai.usage.input_token", "gen_ai.usage.total_tokens", "gen_ai.request.max_tokens"])
    {'gen_ai.usage.input_token': 'gen_ai.usage.input_tokens'}
    """
    known = (*PROMPT_TOKENS, *OUTPUT_TOKENS, *CACHED_TOKENS)
    return {
        key: get_close_matches(key, known[:4], n=1, cutoff=0.0)[0]
        for key in attributes
        if key not in known and TOKEN_COUNT.search(key) and not PART_OF_TOKENS.search(key)
    }


def first_of(attributes: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the value of the first of *names* that is among *attributes*; None where none is."""
    return next((attributes[name] for name in names if attributes.get(name) is not None), None)
