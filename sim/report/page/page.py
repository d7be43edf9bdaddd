"""Self-contained page of an answer, and its fragment for notebooks: verdict, charts and tables."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.charts.chart import Chart
from sim.report.charts.panels import Panel
from sim.report.charts.picture import KeyEntry
from sim.report.charts.vega_lite import PageCharts, PageFigure, panel_figures
from sim.report.page.template import render
from sim.report.page.template import render as filled
from sim.report.terminal_table import FittedTable

TEMPLATE = "page/page.html.j2"


@dataclass(frozen=True, slots=True)
class PageTable:
    """Table of a page; cells are text. All columns but the first are right-aligned."""

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    worded: tuple[int, ...] = ()
    """Columns of words, which are left-aligned."""
    folded: bool = False
    """True if the page shows the table on demand, under its title and the number of its rows."""


def text_table(table: PageTable) -> FittedTable:
    """Convert *table* to a table for the terminal."""
    return FittedTable(table.heads, table.rows, frozenset({0, *table.worded}))


def render_page(
    name: str,
    question: str,
    answers: Sequence[str],
    panels: Sequence[Panel],
    tables: Sequence[PageTable],
    notes: Sequence[str],
    drawings: Sequence[PageFigure] = (),
    key: Sequence[KeyEntry] = (),
    details: Mapping[str, Any] | None = None,
) -> str:
    """Render the page of an answer; the same arguments give the same bytes.

    *drawings* follow the panels; *details* has the tooltip of a point by its key.
    """
    return filled(
        TEMPLATE,
        name=name,
        question=question,
        answers=answers,
        figures=[*panel_figures(panels), *drawings],
        tables=tables,
        notes=notes,
        key=[{"name": mark.name, "color": mark.color, "glyph": mark.glyph} for mark in key],
        drawn=PageCharts(details or {}) if panels or drawings else None,
    )


NOTEBOOK_TEMPLATE = "page/notebook.html.j2"


def notebook_html(
    name: str, verdict: str, findings: Sequence[str], tables: Sequence[FittedTable], picture: Chart | None = None
) -> str:
    """Render the fragment for a notebook, without scripts or network access."""
    drawn = "" if picture is None else b64encode(picture._repr_png_()).decode()
    shown = [
        {
            "title": table.title,
            "heads": table.heads,
            "rows": [[cell.split("\n") for cell in row] for row in table.rows],
            "worded": table.worded,
        }
        for table in tables
        if table.rows
    ]
    return render(NOTEBOOK_TEMPLATE, name=name, verdict=verdict, findings=findings, tables=shown, picture=drawn)
