"""Actual payments beside a plan, read from a CSV file: date, line of the bill, amount, and the quantity behind it."""

import csv
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, NamedTuple

from sim.cost.operations import Operations
from sim.infile import opened
from sim.message import Message
from sim.spec import Spec

COLUMNS = ("date", "line", "amount_usd")
OPTIONAL = ("fleet", "quantity")
LINES = (
    *("gpu_capital", "server_capital", "rental", "energy", "cooling", "demand", "hosting", "api", "resale"),
    *Operations.model_fields,
)
"""Lines of a plan that can have an actual amount; `rental` is all rent."""


class Actual(NamedTuple):
    """Amount that was paid."""

    fleet: str
    date: str
    """Month, for example 2027-01."""
    line: str
    amount_usd: float
    """Payment [USD]; a receipt is negative."""
    quantity: float | None
    """Quantity behind the amount, in the unit of variances.csv; None: not stated."""


class ActualsError(ValueError):
    """Mistakes in a file of actual payments; `errors` has (line in the file, 0 for the whole, message)."""

    def __init__(self, errors: Sequence[tuple[int, str]]) -> None:
        self.errors = list(errors)
        super().__init__("; ".join(text for _, text in errors))


class Actuals(Spec):
    """Actual payments of the months that have passed, to compare with the plan."""

    path: str
    """CSV file with the columns date (2027-01), line (a component of the bill) and amount_usd; fleet where the plan has
    several; quantity, in the unit of variances.csv, splits a variance into price and quantity."""

    def read(self, dates: Sequence[str], fleets: Sequence[str]) -> list[Actual]:
        """Return the rows of the file for a plan of these months and fleets. Raises ActualsError with all mistakes."""
        try:
            with opened(self.path, "r", encoding="utf-8-sig", newline="") as file:
                reader = csv.DictReader(file, strict=True)
                rows = [(reader.line_num, row) for row in reader]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise ActualsError([(0, Message("cannot be read: {error}", error))]) from error
        found, errors = [], [(1, text) for text in _heads(reader.fieldnames or (), fleets)]
        taken: dict[tuple[str, str, str], int] = {}
        for line, row in rows if not errors else ():
            own = _ActualsRow(row, dates, fleets)
            errors += [(line, text) for text in own.mistakes]
            if not own.mistakes and (before := taken.setdefault(own.actual[:3], line)) != line:
                errors.append((line, Message("repeats the fleet, date and line of line {before}", before)))
            found.append(own)
        if errors:
            raise ActualsError(errors)
        return [own.actual for own in found]


def _heads(names: Sequence[str], fleets: Sequence[str]) -> Iterator[str]:
    needed = [*COLUMNS, *(["fleet"] if len(fleets) > 1 else [])]
    for name in needed:
        if name not in names:
            yield Message("column {name} is missing: {needed} are needed", name, ", ".join(needed))
    for name in names:
        if name not in (*COLUMNS, *OPTIONAL):
            yield Message("unknown column {name}: known are {known}", name, ", ".join((*COLUMNS, *OPTIONAL)))


class _ActualsRow:
    """Row of the file, and its mistakes."""

    def __init__(self, row: dict[str | Any, str | Any], dates: Sequence[str], fleets: Sequence[str]) -> None:
        self.mistakes: list[str] = []
        if None in row:  # DictReader's key of cells beyond the header, such as those of an unquoted 1,800
            self.mistakes.append("has more cells than the first line: write 1,800 as 1800")
        fleet = self._check_known(row.get("fleet") or fleets[0], fleets, "fleet")
        when = self._check_known(row["date"], dates, "date")
        line = self._check_known(row["line"], LINES, "line")
        quantity = self._number(row, "quantity") if row.get("quantity") else None
        self.actual = Actual(fleet, when, line, self._number(row, "amount_usd"), quantity)

    def _check_known(self, name: str | None, known: Sequence[str], what: str) -> str:
        if name not in known:
            near = get_close_matches(str(name), known, n=1)
            span = f"{known[0]} ... {known[-1]}" if what == "date" else ", ".join(dict.fromkeys(known))
            hint = Message("did you mean {near}?", near[0]) if near else Message("known are {known}", span)
            self.mistakes.append(Message("unknown {what} {name!r}; {hint}", what, name or "", hint))
        return name or ""

    def _number(self, row: dict[str | Any, str | Any], column: str) -> float:
        try:
            number = float(row[column])
        except (TypeError, ValueError):
            number = float("nan")
        if not isfinite(number):
            self.mistakes.append(Message("{column} is {value!r}: a number is needed", column, row[column] or ""))
        return number
