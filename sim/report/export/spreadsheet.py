"""Workbook under construction: formats, tables written row by row, and charts that the spreadsheet draws.

Rows are written one by one to bound memory; charts are drawn from the cells of the sheets.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from io import BytesIO
from math import isfinite, isnan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from xlsxwriter import Workbook
from xlsxwriter.utility import xl_rowcol_to_cell
from xlsxwriter.worksheet import Worksheet

from sim.language import ENGLISH, _, current, translate_rendered
from sim.report.breakeven import labels_of, with_labels
from sim.report.charts.panels import style
from sim.report.export.headings import CELLS, WORDED, heading
from sim.report.words.money import heading_mark
from sim.report.words.text import AXIS_UNITS

NARROWEST, WIDEST = 9, 48
"""Least and largest width of a column [characters]."""
MONEY = "#,##0.00##"
SHARE = "0.0%"
NUMBER = "#,##0.######"
SHARES = ("slo_attainment", "_fraction", "utilisation", "discount_rate")
"""Ends of the names of columns that are shown in percent."""


class Book:
    """Workbook whose sheets are written in order, each from its first row to its last."""

    def __init__(self, path: Path, currency: str, fleets: Mapping[str, str] | None = None) -> None:
        """Start the file *path*, with amounts in *currency*; *fleets* are the candidates by the name of their fleet."""
        self.currency = currency
        self.fleets = fleets or {}
        self.labels = labels_of(self.fleets) if self.fleets and current() != ENGLISH else {}
        self._path, self._content = path, BytesIO()  # a full disk would leave a half-closed archive
        self.workbook = Workbook(self._content, {"constant_memory": True})
        self.workbook.set_calc_mode("auto")
        made = {"title": {"bold": True, "font_size": 14}, "soft": {"font_color": "#555555"}}
        made |= {"head": {"bold": True, "text_wrap": True, "valign": "top", "bottom": 1}, "bold": {"bold": True}}
        made |= {"money": {"num_format": MONEY}, "share": {"num_format": SHARE}, "number": {"num_format": NUMBER}}
        made |= {"total": {"num_format": MONEY, "bold": True}, "wrap": {"text_wrap": True, "valign": "top"}}
        if (mark := heading_mark(currency)) != currency:
            amount = f'"{mark}"{MONEY}'
            made |= {"money": {"num_format": amount}, "total": {"num_format": amount, "bold": True}}
        made |= {"month": {"num_format": "yyyy-mm", "align": "right"}}
        made |= {"input": {"num_format": "0.0###%", "bg_color": "#FFF2CC", "border": 1}}
        made |= {"count": {"num_format": "0", "bg_color": "#FFF2CC", "border": 1}}
        self.formats = {name: self.workbook.add_format(one) for name, one in made.items()}

    def sheet(self, name: str, title: str, notes: Sequence[str] = ()) -> tuple[Worksheet, int]:
        """Add a sheet under *title* and *notes*; return it and its first free row."""
        sheet = self.workbook.add_worksheet(_(name))
        sheet.write_string(0, 0, title, self.formats["title"])
        for row, note in enumerate(notes, start=1):
            sheet.write_string(row, 0, note, self.formats["soft"])
        return sheet, len(notes) + 2

    def format_of(self, column: str) -> Any:
        """Return the number format of *column*."""
        if self.currency in column or "usd" in column:
            return self.formats["money"]
        return self.formats["share" if column.endswith(SHARES) else "number"]

    def heads(self, sheet: Worksheet, row: int, names: Sequence[str]) -> None:
        """Write the headings of the columns."""
        for column, name in enumerate(names):
            sheet.write_string(row, column, name, self.formats["head"])

    def cells(self, sheet: Worksheet, row: int, values: Iterable[Any], formats: Sequence[Any]) -> None:
        """Write a row; a value that begins with an equals sign is text, never a formula."""
        for column, (value, shown) in enumerate(zip(values, formats, strict=True)):
            self.cell(sheet, row, column, value, shown)

    def cell(self, sheet: Worksheet, row: int, column: int, value: Any, shown: Any) -> None:
        """Write a value, numbers in format *shown*, dates by their month; nothing for None and nan."""
        if value is None or (isinstance(value, float) and isnan(value)):
            return
        if isinstance(value, bool):
            sheet.write_boolean(row, column, value)
        elif isinstance(value, date):
            sheet.write_datetime(row, column, value, self.formats["month"])
        elif isinstance(value, int | float | np.number) and isfinite(value):
            sheet.write_number(row, column, value, shown)
        else:
            sheet.write_string(row, column, self.labels.get(str(value), str(value)))

    def table(self, sheet: Worksheet, top: int, frame: pd.DataFrame) -> int:
        """Write *frame* under headings with filters; return the row after it."""
        names = [str(name) for name in frame.columns]
        self.heads(sheet, top, [heading(name, self.currency) for name in names])
        formats = [self.format_of(name) for name in names]
        columns = [[self.worded(str(name), one) for one in column.tolist()] for name, column in frame.items()]
        for row, values in enumerate(zip(*columns, strict=True), start=top + 1):
            self.cells(sheet, row, values, formats)
        if names:
            sheet.autofilter(top, 0, top + max(1, len(frame)), len(names) - 1)
            sheet.freeze_panes(top + 1, 1)
        for column, name in enumerate(names):
            sheet.set_column(column, column, _width(name, frame[name]))
        return top + 1 + len(frame)

    def worded(self, name: str, value: Any) -> Any:
        """Return *value* of the column *name*, words and names of candidates in the language of the command."""
        text = worded(name, value)
        return with_labels(text, self.fleets) if name == "input" and self.labels else text

    def close(self) -> None:
        """Write the file."""
        self.workbook.close()
        self._path.write_bytes(self._content.getbuffer())


def worded(name: str, value: Any) -> Any:
    """Return *value* of the column *name*, words in the language of the command."""
    if not isinstance(value, str):
        return value
    if value in (words := CELLS.get(name, {})):
        return value if current() == ENGLISH else _(words[value])
    if name not in WORDED:
        return value
    if name == "unit" and value in AXIS_UNITS:
        return _(AXIS_UNITS[value]).format("").strip()
    return translate_rendered(value)


def cell(row: int, column: int, fixed: bool = False) -> str:
    """Return the name of a cell, B3; if *fixed*, $B$3."""
    return str(xl_rowcol_to_cell(row, column, fixed, fixed))


def _width(name: str, values: pd.Series) -> float:
    """Return the width of a column [characters]; headings wrap."""
    texts = values.head(50).map(str) if values.dtype.kind not in "fiu" else ()
    longest = max((len(text) for text in texts), default=0)
    return min(WIDEST, max(NARROWEST, longest + 1, max(map(len, name.replace("_", " ").split()), default=0) + 3))


SIZE = {"width": 620, "height": 360}


class ChartSeries(NamedTuple):
    """Series of a chart: rows *first* to *last* of two columns of a sheet.

    The first column holds its name: a text in its place may look like a formula to the writer (`=lab!A1`).
    """

    name: str
    first: int
    last: int


def scatter(
    book: Book, sheet: str, title: str, x: tuple[int, str], y: tuple[int, str], lines: Sequence[ChartSeries]
) -> Any:
    """Build a chart of lines with markers; *x* and *y* are (column, label)."""
    chart = book.workbook.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
    looks, sheet = style([line.name for line in lines]), _(sheet)
    for line in lines:
        color = looks[line.name][0]
        chart.add_series(
            {
                "name": [sheet, line.first, 0],
                "categories": [sheet, line.first, x[0], line.last, x[0]],
                "values": [sheet, line.first, y[0], line.last, y[0]],
                "line": {"color": color, "width": 1.75},
                "marker": {"type": "circle", "size": 5, "fill": {"color": color}, "border": {"color": color}},
            }
        )
    return _label_chart(chart, title, x[1], y[1])


def stacked(
    book: Book, sheet: str, title: str, labels: tuple[int, int], parts: Sequence[int], rows: ChartSeries
) -> Any:
    """Build a chart of stacked columns, one per row; *labels* are the first and last column of the row's name."""
    chart, sheet = book.workbook.add_chart({"type": "column", "subtype": "stacked"}), _(sheet)
    for column in parts:
        chart.add_series(
            {
                "name": [sheet, rows.first - 1, column],
                "categories": [sheet, rows.first, labels[0], rows.last, labels[1]],
                "values": [sheet, rows.first, column, rows.last, column],
                "gap": 60,
            }
        )
    return _label_chart(chart, title, "", heading_mark(book.currency))


def _label_chart(chart: Any, title: str, x: str, y: str) -> Any:
    chart.set_title({"name": title, "name_font": {"size": 12}, "overlay": False})
    chart.set_x_axis({"name": _literal(x), "name_font": {"bold": False}})
    chart.set_y_axis({"name": _literal(y), "name_font": {"bold": False}, "major_gridlines": {"visible": True}})
    chart.set_legend({"position": "bottom"})
    chart.set_size(SIZE)
    return chart


def _literal(title: str) -> str:
    """Return *title* as text that the writer does not read as a formula, which would begin with an equals sign."""
    return f" {title}" if title.startswith("=") else title
