"""Panels drawn with matplotlib: one panel into axes, and pictures of several under a question and its answer.

matplotlib takes 0.4 s to import, so it is imported only where something is drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.language import _
from sim.report.charts.fonts import glyphs, lines_of, settings, shortened
from sim.report.charts.layout import BOLDER, GLYPH_WIDTH, Scale, Text, core, lay_out, on_the_edge
from sim.report.charts.layout import INK as INK
from sim.report.charts.panels import DASHES, ChartCurve, Limit, Panel, Span, style
from sim.report.charts.sweep_panels import dashes
from sim.study.points import Sweep

SOFT, FAINT = "#666666", "#e3e3e3"
SMALL, NORMAL, HEAD = 8.0, 9.0, 10.5
USUAL_NUMBER = 33.0
"""Room for the numbers left of a plot area [points]."""
LEAST_STEP = 24.0
"""Between two numbers below it [points]; long ones take as much as they are wide."""
PLATE: dict[str, Any] = {"bbox": {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.5}}
"""Behind a text that may cover a limit's line."""
HEADING_LEFT, HEADING_RIGHT = 26.0, 10.0
"""How far a heading reaches beyond the plot area [points]."""
PROSE_WIDTH = 0.46
"""Mean width of a character of a sentence in units of the font size."""


def draw(axes: Any, panel: Panel) -> None:
    """Draw *panel* into matplotlib *axes*, direct labels included."""
    x_scale = Scale(core(panel, "x", panel.x_limit), panel.x_anchored, linear=panel.x_linear)
    y_scale = Scale(core(panel, "y", panel.y_limit), True, panel.y_share, panel.y_linear)
    moved = _make_room(axes, list(map(panel.y_format, y_scale.ticks())))
    _frame(axes, panel, x_scale, y_scale, moved)
    for curve in panel.curves:
        _line(axes, curve, x_scale, y_scale)
    for span in panel.spans:
        _span(axes, span)
    for limit, upright in ((panel.x_limit, True), (panel.y_limit, False)):
        if limit is not None:
            _limit(axes, limit, upright, x_scale)
    points_per_dot = 72.0 / axes.figure.dpi
    size = (axes.bbox.width * points_per_dot, axes.bbox.height * points_per_dot)
    for text in lay_out(panel, x_scale, y_scale, size, (SMALL, NORMAL)):
        _write(axes, text)


def _make_room(axes: Any, numbers: Sequence[str]) -> float:
    """Moves the left edge to the right where *numbers* beside it are wider than usual; by how much [points]."""
    moved = max(map(_width, numbers), default=0.0) - USUAL_NUMBER
    if moved <= 0:
        return 0.0
    place, part = axes.get_position(), moved / (72.0 * axes.figure.get_figwidth())
    axes.set_position((place.x0 + part, place.y0, place.width - part, place.height))
    return moved


def _width(number: str) -> float:
    """Of a number on an axis [points]."""
    return GLYPH_WIDTH * SMALL * glyphs(number)


def _frame(axes: Any, panel: Panel, x_scale: Scale, y_scale: Scale, moved: float) -> None:
    """The axes; where their left edge was *moved*, the heading stays where it is."""
    for scale, setter, bounds in ((x_scale, axes.set_xscale, axes.set_xlim), (y_scale, axes.set_yscale, axes.set_ylim)):
        setter("log" if scale.log else "linear")
        bounds(scale.low, scale.high)
    wanted = [tick for tick in panel.x_ticks if x_scale.low <= tick <= x_scale.high] or x_scale.ticks()
    names = dict(zip(panel.x_ticks, panel.x_names, strict=False))
    numbers = [panel.x_format(tick) for tick in wanted if not names.get(tick)]
    ticks = _spaced(axes, wanted, max((LEAST_STEP, *map(_width, numbers))))
    axes.set_xticks(ticks, [names.get(tick) or panel.x_format(tick) for tick in ticks])
    axes.set_yticks(y_scale.ticks(), list(map(panel.y_format, y_scale.ticks())))
    axes.minorticks_off()
    axes.tick_params(length=3, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(color=SOFT, linewidth=0.6)
    axes.set_xlabel(panel.x_label, fontsize=SMALL, color=SOFT, loc="left")
    above = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom"}
    room = HEADING_LEFT + moved + axes.bbox.width * 72.0 / axes.figure.dpi + HEADING_RIGHT
    title = shortened(panel.title, room / (GLYPH_WIDTH * BOLDER * HEAD))
    subtitle = shortened(panel.subtitle, room / (PROSE_WIDTH * SMALL))
    left = -HEADING_LEFT - moved
    axes.annotate(title, (0, 1), (left, 24), fontsize=HEAD, color=INK, fontweight="bold", **above)
    axes.annotate(subtitle, (0, 1), (left, 11), fontsize=SMALL, color=SOFT, **above)


def _spaced(axes: Any, ticks: Sequence[float], step: float) -> list[float]:
    """Ticks at least *step* points apart, the last one always kept."""
    project = _projection(axes)
    kept: list[float] = []
    edge = inf
    for tick in reversed(ticks):
        place = float(project(np.array([[tick, axes.get_ylim()[0]]]))[0, 0])
        if edge - place >= step:
            kept.append(tick)
            edge = place
    return kept[::-1]


def _projection(axes: Any) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """From data to points, counted from the lower left corner of the plot area."""
    points_per_dot = 72.0 / axes.figure.dpi

    def project(data: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((axes.transData.transform(data) - axes.bbox.p0) * points_per_dot)

    return project


def _span(axes: Any, span: Span) -> None:
    axes.axvspan(span.at - span.half, span.at + span.half, color=span.color, alpha=0.16, linewidth=0)
    axes.axvline(span.at, color=span.color, linewidth=1.4, zorder=2)
    look: dict[str, Any] = {"fontsize": NORMAL, "fontweight": "bold", "color": span.color, "rotation": 90}
    axes.annotate(span.text, (span.at, 0.0), (4, 5), xycoords=("data", "axes fraction"), textcoords="offset points",
                  va="bottom", ha="left", **look)  # fmt: skip


def _limit(axes: Any, limit: Limit, upright: bool, x: Scale) -> None:
    style = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 3)), "zorder": 1.5}
    if upright:
        axes.axvline(limit.at, **style)
        if limit.forbids and limit.at < x.high:
            axes.axvspan(limit.at, x.high, color="#000000", alpha=0.035, linewidth=0)
    else:
        axes.axhline(limit.at, **style)


def _line(axes: Any, curve: ChartCurve, x: Scale, y: Scale) -> None:
    """Draw one curve; its points off the chart lie on the edge."""
    inside = on_the_edge(curve, x, y)
    known = ~np.isnan(inside).any(axis=1)
    steady = np.array(curve.steady or (True,) * len(inside)) & known
    path = inside[known]
    if not len(path):
        return
    axes.plot(*_steady_part(inside, steady), color=curve.color, linewidth=1.8, linestyle=curve.dash, zorder=3)
    if curve.dash != "None":
        dotted = {"linewidth": 1.0, "linestyle": (0, (1, 2)), "zorder": 2.5}
        axes.plot(*_unsteady_part(path, steady[known]), color=curve.color, **dotted)
    if curve.bands:
        _band(axes, curve, steady, y)
    if curve.filled:
        axes.fill_between(*path.T, y.low, color=curve.color, alpha=0.18, linewidth=0)
    if curve.marker:
        _markers(axes, curve, inside, x, y)


def _steady_part(inside: NDArray[np.float64], steady: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.asarray(np.where(steady[:, None], inside, np.nan).T)


def _unsteady_part(path: NDArray[np.float64], steady: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The stretches to or from an overloaded point, kept apart by nan."""
    gap = np.full(2, np.nan)
    ends = zip(path, path[1:], steady, steady[1:], strict=False)
    stretches = [point for a, b, first, second in ends if not (first and second) for point in (a, b, gap)]
    return np.array(stretches).reshape(-1, 2).T


def _band(axes: Any, curve: ChartCurve, steady: NDArray[np.bool_], y: Scale) -> None:
    ends = np.array([(np.nan, np.nan) if band is None else band for band in curve.bands])
    shown = steady & np.isfinite(ends).all(axis=1)
    low, high = np.maximum(ends[:, 0], y.low)[shown], np.minimum(ends[:, 1], y.most)[shown]
    axes.fill_between(np.array(curve.x)[shown], low, high, color=curve.color, alpha=0.18, linewidth=0)


def _markers(axes: Any, curve: ChartCurve, inside: NDArray[np.float64], x: Scale, y: Scale) -> None:
    """Filled where the SLO is met, hollow where not, an arrowhead at the edge where off the chart."""
    kinds: dict[tuple[str, bool], list[int]] = {}
    for index, (a, b) in enumerate(zip(curve.x, curve.y, strict=True)):
        kind = "^" if b > y.high else ">" if a > x.high else curve.marker
        kinds.setdefault((kind, curve.good[index]), []).append(index)
    for (kind, good), members in kinds.items():
        face = curve.color if good else "white"
        look = {"markerfacecolor": face, "markeredgecolor": curve.color, "markeredgewidth": 1.3, "clip_on": False}
        axes.plot(*inside[members].T, linestyle="", marker=kind, markersize=6.0, zorder=4, **look)


def _write(axes: Any, text: Text) -> None:
    look = {**({"fontweight": "bold"} if text.bold else {}), **(PLATE if text.plate else {})}
    at = (text.place.x, text.place.y)
    look |= {"fontsize": text.size, "color": text.color, "va": "bottom", "zorder": 5}
    axes.annotate(text.text, at, xycoords="axes points", **look)


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
