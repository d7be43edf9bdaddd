"""curves.png: all charts of a run under its question and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from sim.language import _
from sim.report.charts.draw import HEAD, INK, NORMAL, SMALL, SOFT, draw
from sim.report.charts.fonts import glyphs, lines_of, settings
from sim.report.charts.panels import DASHES, Panel, dashes, style
from sim.study.fleets.run.sweep import Sweep

PANEL_IN = (4.6, 3.3)
LEFT, RIGHT, TOP, BOTTOM = 0.55, 0.15, 0.55, 0.48
"""Margins around a plot area [inches]."""
MARGIN = 0.2
DOTS_PER_INCH = 120
KEY_STEP = 0.26
GLYPH = 0.6 / 72
"""Mean width of a glyph [inches] per point of font size."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One mark of the key, its text and its place."""

    text: str
    marker: str
    dash: Any
    """Line style of a mark that is a line, empty for one that is a point."""
    color: str
    bold: bool
    """A fleet: filled and in its colour."""
    x: float
    """[inches]"""
    line: int


def write_curves(path: Path, panels: Sequence[Panel], sweep: Sweep, question: str, answer: str, note: str = "") -> None:
    """Write one picture of all *panels* under the *question*, the *answer* and a *note* on the charts."""
    write_png(path, curves(panels, sweep, question, answer, note))


def curves(panels: Sequence[Panel], sweep: Sweep, question: str, answer: str, note: str = "") -> Any:
    """A matplotlib figure of all *panels* under the *question*, the *answer* and a *note* on the charts."""
    columns = max(len(panels), 2) if len(panels) < 4 else -(-len(panels) // 2)
    rows = -(-len(panels) // columns)
    width = columns * PANEL_IN[0]
    lines = [(text, 14.0, INK, 0.26) for text in wrapped(question, 14.0, width)]
    lines += [(text, HEAD, SOFT, 0.2) for text in wrapped(answer, HEAD, width)]
    lines += [(text, HEAD, INK, 0.2) for text in (wrapped(note, HEAD, width) if note else ())]
    entries = _entries(sweep, width)
    key = KEY_STEP * (entries[-1].line + 1)
    height = rows * PANEL_IN[1] + 2 * MARGIN + sum(step for *_, step in lines) + key
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


def write_png(path: Path, figure: Any) -> None:
    """Writes the complete *figure* to *path*; the same figure gives the same bytes."""
    data = BytesIO()
    figure.savefig(data, format="png", metadata={"Software": None})
    path.write_bytes(data.getvalue())


def wrapped(text: str, size: float, width: float) -> list[str]:
    """Lines of *text* in type of *size* points that fit a picture of *width* inches."""
    return lines_of(text, int((width - 2 * MARGIN) / (GLYPH * size)))


def figure_of(width: float, height: float) -> Any:
    """An empty figure of the given size [inches]."""
    return _picture()(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")


@cache
def _picture() -> Any:
    """Figures that are drawn with the fonts they were laid out for, whoever draws them, and that a notebook shows."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def draw(self, renderer: Any) -> None:
            with settings():
                super().draw(renderer)

        def _repr_png_(self) -> bytes:
            data = BytesIO()
            self.savefig(data, format="png")
            return data.getvalue()

    return Picture


def plot(figure: Any, panel: Panel, x: float, y: float) -> None:
    """Draw *panel* into the cell whose lower left corner is at (x, y) [inches]."""
    width, height = figure.get_size_inches()
    size = (PANEL_IN[0] - LEFT - RIGHT, PANEL_IN[1] - TOP - BOTTOM)
    draw(figure.add_axes(((x + LEFT) / width, (y + BOTTOM) / height, size[0] / width, size[1] / height)), panel)


def draw_key(figure: Any, entries: Sequence[LegendEntry], y: float) -> None:
    """Draw the lines of the key below *y* [inches]."""
    from matplotlib.lines import Line2D

    width, height = figure.get_size_inches()
    for entry in entries:
        x, level = entry.x / width, (y - entry.line * KEY_STEP) / height
        right = x + (0.35 / width if entry.dash else 0.0)
        mark = Line2D([x, right] if entry.dash else [x], [level, level] if entry.dash else [level])
        mark.set(color=entry.color, linewidth=1.8, linestyle=entry.dash or "", marker=entry.marker, markersize=6)
        mark.set(markerfacecolor=entry.color if entry.bold else "white", markeredgecolor=entry.color)
        figure.add_artist(mark)
        look = {"fontsize": NORMAL if entry.bold else SMALL, "fontweight": "bold" if entry.bold else "normal"}
        figure.text(right + 0.1 / width, level, entry.text, color=entry.color, va="center", **look)


def _entries(sweep: Sweep, width: float) -> list[LegendEntry]:
    """The fleets, the line styles of further axes, what hollow points and arrowheads mean; wrapped at *width*."""
    wanted = [(name, marker, "", color, True) for name, (color, marker) in style(sweep.fleets).items()]
    wanted += [(_("misses the SLO or is overloaded"), "o", "", SOFT, False), (_("off the chart"), "^", "", SOFT, False)]
    if len(sweep.settings) > 1:
        wanted += [(setting, "", DASHES[name], SOFT, False) for setting, name in dashes(sweep).items()]
    return laid_out(wanted, width)


def laid_out(wanted: Sequence[tuple[str, str, Any, str, bool]], width: float) -> list[LegendEntry]:
    """(text, marker, dash, colour, bold) of every mark, placed in lines of *width* inches."""
    entries: list[LegendEntry] = []
    x, line = MARGIN + 0.05, 0
    for text, marker, dash, color, bold in wanted:
        size = GLYPH * (1.12 * NORMAL if bold else 0.95 * SMALL) * glyphs(text) + (0.7 if dash else 0.35)
        if x + size > width and x > MARGIN + 0.05:
            x, line = MARGIN + 0.05, line + 1
        entries.append(LegendEntry(text, marker, dash, color, bold, x, line))
        x += size
    return entries
