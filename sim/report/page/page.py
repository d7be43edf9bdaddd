"""An answer as a small self-contained page and as a picture, and what a notebook shows of it.

Each has the verdict, charts and tables.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim.report.charts.drawing import (
    HEAD,
    INK,
    KEY_STEP,
    MARGIN,
    PANEL_IN,
    SOFT,
    LegendEntry,
    draw_key,
    figure_of,
    laid_out,
    plot,
    wrapped,
    write_png,
)
from sim.report.charts.fonts import settings
from sim.report.charts.panels import DASHES, GLYPHS, Panel
from sim.report.charts.vega_lite import Drawn, PageFigure, panel_figures
from sim.report.page.template import render
from sim.report.page.template import render as filled
from sim.report.terminal_table import FittedTable

TEMPLATE = "page/page.html.j2"
LINES = {"solid": "━━", "dashed": "╍╍", "dash-dotted": "━·━", "fine dashes": "┅┅"}
"""Of the styles of lines."""


class Mark(NamedTuple):
    """One entry of the key of a picture: a marker, a line, or both."""

    name: str
    color: str
    marker: str = ""
    dash: Any = ""

    @property
    def glyph(self) -> str:
        """The mark as a character: its marker, else its line."""
        if self.marker:
            return GLYPHS[self.marker]
        return LINES.get(next((name for name, dash in DASHES.items() if dash == self.dash), ""), LINES["solid"])


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a page; cells are text already. From the second column on they stand right, as numbers do."""

    title: str
    note: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    worded: tuple[int, ...] = ()
    """Columns of words, which stand left."""
    folded: bool = False
    """On a page it is shown on demand, under its title and the number of its rows."""


def text_table(table: Table) -> FittedTable:
    """*table* for a terminal."""
    return FittedTable(table.heads, table.rows, frozenset({0, *table.worded}))


def render_page(
    name: str,
    question: str,
    answers: Sequence[str],
    panels: Sequence[Panel],
    tables: Sequence[Table],
    notes: Sequence[str],
    drawings: Sequence[PageFigure] = (),
    key: Sequence[Mark] = (),
    details: Mapping[str, Any] | None = None,
) -> str:
    """The page's text; the same arguments give the same bytes. *details* has what is known of a point, by its key;
    *drawings* stand behind the panels.
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
        drawn=Drawn(details or {}) if panels or drawings else None,
    )


def _entries(marks: Sequence[Mark], width: float) -> list[LegendEntry]:
    return laid_out([(mark.name, mark.marker, mark.dash, mark.color, True) for mark in marks], width)


def write_picture(
    path: Path, panels: Sequence[Panel], question: str, answers: Sequence[str], key: Sequence[Mark] = ()
) -> None:
    """One picture of all *panels*, two abreast, under the *question*, the *answers* and the *key*."""
    write_png(path, picture(panels, question, answers, key))


def picture(panels: Sequence[Panel], question: str, answers: Sequence[str], key: Sequence[Mark] = ()) -> Any:
    """A matplotlib figure of all *panels*, two abreast, under the *question*, the *answers* and the *key*."""
    columns = 2
    rows = -(-len(panels) // columns)
    width = columns * PANEL_IN[0]
    lines = [(text, 14.0, INK, 0.26) for text in wrapped(question, 14.0, width)]
    lines += [(text, HEAD, SOFT, 0.2) for answer in answers for text in wrapped(answer, HEAD, width)]
    entries = _entries(key, width)
    keys = KEY_STEP * (entries[-1].line + 1) if entries else 0.0
    height = rows * PANEL_IN[1] + 2 * MARGIN + sum(step for *_, step in lines) + keys
    with settings():
        figure = figure_of(width, height)
        for index, panel in enumerate(panels):
            row, column = divmod(index, columns)
            plot(figure, panel, column * PANEL_IN[0], (rows - row - 1) * PANEL_IN[1])
        y = height - MARGIN
        for text, size, color, step in lines:
            figure.text(MARGIN / width, y / height, text, fontsize=size, color=color, va="top")
            y -= step
        draw_key(figure, entries, y - 0.12)
    return figure


NOTEBOOK_TEMPLATE = "page/notebook.html.j2"


def notebook_html(
    name: str, verdict: str, findings: Sequence[str], tables: Sequence[FittedTable], picture: Any = None
) -> str:
    """A piece of a page, without scripts and with nothing to fetch; *picture* is a matplotlib figure."""
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
