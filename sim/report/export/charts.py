"""Charts that the spreadsheet draws itself, from the cells of its sheets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sim.report.charts.panels import style
from sim.report.export.book import Book

SIZE = {"width": 620, "height": 360}


class Line(NamedTuple):
    """One line or group of columns of a chart: rows *first* to *last* of two columns of a sheet, whose first one has
    its name: a text in its place may look like a formula to the writer (`=lab!A1`).
    """

    name: str
    first: int
    last: int


def scatter(book: Book, sheet: str, title: str, x: tuple[int, str], y: tuple[int, str], lines: Sequence[Line]) -> Any:
    """Lines with markers over a number; *x* and *y* are (column, label)."""
    chart = book.workbook.add_chart({"type": "scatter", "subtype": "straight_with_markers"})
    looks = style([line.name for line in lines])
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
    return _finished(chart, title, x[1], y[1])


def stacked(book: Book, sheet: str, title: str, labels: tuple[int, int], parts: Sequence[int], rows: Line) -> Any:
    """One column per row, its parts on top of one another; *labels* are the first and last column of its name."""
    chart = book.workbook.add_chart({"type": "column", "subtype": "stacked"})
    for column in parts:
        chart.add_series(
            {
                "name": [sheet, rows.first - 1, column],
                "categories": [sheet, rows.first, labels[0], rows.last, labels[1]],
                "values": [sheet, rows.first, column, rows.last, column],
                "gap": 60,
            }
        )
    return _finished(chart, title, "", book.currency)


def _finished(chart: Any, title: str, x: str, y: str) -> Any:
    chart.set_title({"name": title, "name_font": {"size": 12}, "overlay": False})
    chart.set_x_axis({"name": _literal(x), "name_font": {"bold": False}})
    chart.set_y_axis({"name": _literal(y), "name_font": {"bold": False}, "major_gridlines": {"visible": True}})
    chart.set_legend({"position": "bottom"})
    chart.set_size(SIZE)
    return chart


def _literal(title: str) -> str:
    """Return *title* as text that the writer does not read as a formula, which would begin with an equals sign."""
    return f" {title}" if title.startswith("=") else title
