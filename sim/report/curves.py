"""curves.png and the same charts as SVG for report.html."""

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from io import BytesIO, StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any

from sim.report.draw import HEAD, INK, NORMAL, SMALL, SOFT, draw
from sim.report.panels import DASHES, Panel, dashes, style
from sim.report.sweep import Sweep

PANEL_IN = (4.6, 3.3)
LEFT, RIGHT, TOP, BOTTOM = 0.55, 0.15, 0.55, 0.48
"""Margins around a plot area [inches]."""
MARGIN = 0.2
DOTS_PER_INCH = 120
GLYPH = 0.6 / 72
"""Mean width of a glyph [inches] per point of font size."""
SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "gpufleet",
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
}


def write_curves(path: Path, panels: Sequence[Panel], sweep: Sweep, question: str, answer: str) -> None:
    """One picture of all *panels* under the *question* and the *answer*."""
    columns = max(len(panels), 2) if len(panels) < 4 else -(-len(panels) // 2)
    rows = -(-len(panels) // columns)
    width = columns * PANEL_IN[0]
    lines = [(text, 14.0, INK, 0.26) for text in _wrap(question, 14.0, width)]
    lines += [(text, HEAD, SOFT, 0.2) for text in _wrap(answer, HEAD, width)]
    height = rows * PANEL_IN[1] + 2 * MARGIN + sum(step for *_, step in lines) + 0.3
    with _settings():
        figure = _figure(width, height)
        for index, panel in enumerate(panels):
            row, column = divmod(index, columns)
            _plot(figure, panel, column * PANEL_IN[0], (rows - row - 1) * PANEL_IN[1])
        y = height - MARGIN
        for text, size, color, step in lines:
            figure.text(MARGIN / width, y / height, text, fontsize=size, color=color, va="top")
            y -= step
        _key(figure, sweep, (MARGIN + 0.05) / width, (y - 0.12) / height, width)
        data = BytesIO()
        figure.savefig(data, format="png", metadata={"Software": None})
    path.write_bytes(data.getvalue())


def _wrap(text: str, size: float, width: float) -> list[str]:
    return wrap(text, int((width - 2 * MARGIN) / (GLYPH * size)))


def svg(panel: Panel) -> str:
    """One panel as an `svg` element to stand inside a page: no prolog, no identifiers of groups, no addresses."""
    with _settings():
        figure = _figure(*PANEL_IN)
        _plot(figure, panel, 0.0, 0.0)
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawn = text.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    drawn = re.sub(r' xmlns(:xlink)?="[^"]*"', "", drawn).replace("xlink:href", "href")
    return re.sub(r'<g id="[^"]*">', "<g>", drawn)


def _settings() -> AbstractContextManager[None]:
    import matplotlib as mpl

    return mpl.rc_context(SETTINGS)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, facecolor="white")


def _plot(figure: Any, panel: Panel, x: float, y: float) -> None:
    """Draw *panel* into the cell whose lower left corner is at (x, y) [inches]."""
    width, height = figure.get_size_inches()
    size = (PANEL_IN[0] - LEFT - RIGHT, PANEL_IN[1] - TOP - BOTTOM)
    draw(figure.add_axes(((x + LEFT) / width, (y + BOTTOM) / height, size[0] / width, size[1] / height)), panel)


def _key(figure: Any, sweep: Sweep, x: float, y: float, width: float) -> None:
    """The fleets' marks, the line styles of further axes, and what hollow points and arrowheads mean."""
    from matplotlib.lines import Line2D

    marks = [(name, marker, color, color, NORMAL, "bold") for name, (color, marker) in style(sweep.fleets).items()]
    marks += [
        (text, mark, SOFT, "white", SMALL, "normal")
        for text, mark in (("misses the SLO or is overloaded", "o"), ("off the chart", "^"))
    ]
    for text, marker, edge, face, size, weight in marks:
        figure.add_artist(Line2D([x], [y], marker=marker, markersize=6, markerfacecolor=face, markeredgecolor=edge))
        figure.text(x + 0.1 / width, y, text, color=edge, fontsize=size, va="center", fontweight=weight)
        x += (0.35 + GLYPH * (1.12 if weight == "bold" else 0.95) * size * len(text)) / width
    for setting, name in dashes(sweep).items() if len(sweep.settings) > 1 else ():
        figure.add_artist(Line2D([x, x + 0.4 / width], [y, y], color=SOFT, linewidth=1.8, linestyle=DASHES[name]))
        figure.text(x + 0.48 / width, y, setting, color=SOFT, fontsize=SMALL, va="center")
        x += (0.75 + GLYPH * SMALL * len(setting)) / width
