"""A spreadsheet's calculation, as far as our workbooks use one: arithmetic, names, SUM, SUMPRODUCT, EXACT and IRR."""

import re
from functools import cache
from typing import Any

import numpy as np
from openpyxl.worksheet.worksheet import Worksheet
from scipy.optimize import newton

_WORD = re.compile(
    r"(?:'([^']+)'!)?(?:(\$?[A-Z]+\$?\d+:\$?[A-Z]+\$?\d+)|(\$?[A-Z]+\$?\d+))|([a-z_]+)|(?<![<>])(=)|(\^)"
)


class _Text(str):
    """Text as `=` compares it: whatever the case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.casefold() == other.casefold()

    __hash__ = str.__hash__


def _exact(span: Any, one: str) -> Any:
    return np.array([str(each) == str(one) for each in span])


def _irr(flows: Any, guess: float) -> float:
    return float(newton(lambda rate: sum(usd / (1 + rate) ** month for month, usd in enumerate(flows)), guess))


class Sheet:
    """The values of a sheet's cells; formulas are calculated, whatever value was stored with them."""

    def __init__(self, sheet: Worksheet, names: dict[str, Any]) -> None:
        self.sheet, self.names = sheet, names
        self.others: dict[str, Sheet] = {}
        self.value = cache(self._value)

    def _value(self, cell: str) -> Any:
        held = self.sheet[cell]
        if held.data_type == "f":
            return self.evaluate(held.value[1:])
        return _Text(held.value) if isinstance(held.value, str) else held.value

    def evaluate(self, formula: str) -> Any:
        def python(found: re.Match[str]) -> str:
            sheet, span, cell, name, equals, _ = found.groups()
            of = "" if sheet is None else f"sheet({sheet!r})."
            if span:
                return f"{of}{'_' if of else ''}span({span.replace('$', '')!r})"
            if cell:
                return f"{of}value({cell.replace('$', '')!r})"
            return f"names[{name!r}]" if name else "==" if equals else "**"

        functions = {"SUM": np.sum, "SUMPRODUCT": np.sum, "EXACT": _exact, "IRR": _irr, "span": self._span}
        functions["sheet"] = self.on
        return eval(_WORD.sub(python, formula), functions | {"value": self.value, "names": self.names})

    def on(self, name: str) -> "Sheet":
        """Another sheet of the workbook."""
        if name not in self.others:
            self.others[name] = Sheet(self.sheet.parent[name], self.names)
        return self.others[name]

    def _span(self, cells: str) -> Any:
        held = [self.value(cell.coordinate) for row in self.sheet[cells] for cell in row]
        return np.array(held, dtype=object if any(isinstance(one, str) for one in held) else None)
