"""Tornado charts of every fleet and of a difference, and the waterfall from one fleet's cost to another's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.language import N_, _
from sim.report.charts.drawing import (
    FAINT,
    GLYPH,
    HEAD,
    INK,
    MARGIN,
    NORMAL,
    SMALL,
    SOFT,
    figure_of,
    wrapped,
    write_png,
)
from sim.report.charts.fonts import settings, shortened
from sim.report.charts.tornado import (
    AT_HIGH,
    AT_LOW,
    SideBar,
    TornadoBar,
    draw_tornado,
    side_bars,
    tornado_height_in,
)
from sim.report.charts.vega_bars import bar_figure
from sim.report.charts.vega_lite import PageFigure
from sim.report.words.money import converted_text, in_code, money_mark, shown
from sim.study.cost_gap import Gap

WIDTH_IN, LABELS_IN, RIGHT_IN, TITLE_IN, BOTTOM_IN = 6.2, 2.1, 0.2, 0.5, 0.45
COLUMNS = 2
TITLE_LINE_IN = 0.2
ROW_IN, ROW_HEIGHT = 0.36, 0.6
ROOM = 0.2
"""Space for the figures beside the bars, as a share of all that is drawn."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One drawing with its title and height, without the title's room [inches]."""

    title: str
    subtitle: str
    height_in: float
    draw: Callable[[Any], None]
    figure: PageFigure
    """The same on a page."""


BOTH_ENDS = N_("blue: the input at its low value; orange: at its high value")


def tornado_chart(title: str, base: float, bars: Sequence[TornadoBar], unit_label: str) -> Chart:
    """How far each input changes one result."""
    return Chart(
        title,
        BOTH_ENDS,
        tornado_height_in(bars),
        lambda ax: draw_tornado(ax, base, [replace(bar, label=_label(bar.label)) for bar in bars], unit_label),
        bar_figure(title, BOTH_ENDS, side_bars(base, bars), unit_label, base),
    )


def _label(text: str) -> str:
    """What fits beside the bars."""
    return shortened(text, LABELS_IN / (GLYPH * SMALL))


def gap_chart(title: str, gap: Gap) -> Chart:
    """From the second fleet's cost to the first's, a step for each group."""
    bars = gap_bars(gap)
    height = ROW_IN * len(bars) + BOTTOM_IN
    subtitle = _("from {second} to {first}, one step for each group", second=gap.second, first=gap.first)
    figure = bar_figure(title, subtitle, bars, in_code(_("USD per million output tokens")), 0.0)
    return Chart(title, subtitle, height, lambda ax: draw_waterfall(ax, bars), figure)


def gap_bars(gap: Gap) -> list[SideBar]:
    """Steps from the second fleet's cost at the top to the first's at the bottom [shown currency per million]."""
    first, second = shown(gap.first_usd), shown(gap.second_usd)
    steps, at = [(gap.second, 0.0, second)], second
    for name, usd in gap.parts.items():
        steps.append((name, at, at + shown(usd)))
        at += shown(usd)
    steps.append((gap.first, 0.0, first))
    found = []
    for row, (name, start, end) in enumerate(steps):
        total = row in (0, len(steps) - 1)
        color = SOFT if total else AT_HIGH if end > start else AT_LOW
        found.append(SideBar(row, name, start, end, color, _step_text(start, end, total), max(start, end), True))
    return found


def _step_text(start: float, end: float, total: bool) -> str:
    if total:
        return converted_text(end)
    if end == start:
        return money_mark(0.0)
    return f"{'+' if end > start else ''}{converted_text(end - start)}".replace("-", "−")


def draw_waterfall(ax: Any, bars: Sequence[SideBar]) -> None:
    """Draw the steps *bars* into the matplotlib axes *ax*, each joined to the next."""
    ends = [0.0, *(bar.end for bar in bars)]
    reach = max(ends) - min(ends) or 1.0
    for bar in bars:
        row, end = bar.row, bar.end
        ax.barh(-row, end - bar.start, left=bar.start, height=ROW_HEIGHT, color=bar.color, linewidth=0, zorder=2)
        if row + 1 < len(bars):
            ax.plot([end, end], [-row - 1 + ROW_HEIGHT / 2, -row], color=SOFT, linewidth=0.6, zorder=1)
        style = {"textcoords": "offset points", "va": "center", "fontsize": SMALL, "color": INK}
        ax.annotate(bar.text, (bar.text_at, -row), (4, 0), **style)
    ax.set_xlim(min(0.0, *ends), max(ends) + ROOM * reach)
    ax.set_ylim(0.6 - len(bars), 0.6)
    ax.set_yticks([-bar.row for bar in bars], [_label(bar.label) for bar in bars])
    _dress(ax)
    ax.set_xlabel(in_code(_("USD per million output tokens")), fontsize=SMALL, color=SOFT, loc="left")


def _dress(ax: Any) -> None:
    ax.tick_params(axis="x", length=3, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    ax.tick_params(axis="y", length=0, labelcolor=INK, labelsize=SMALL)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set(color=SOFT, linewidth=0.6)


def write_charts(path: Path, charts: Sequence[Chart], question: str, answers: Sequence[str]) -> None:
    """One picture of all *charts*, two abreast, under the *question* and the *answers*."""
    write_png(path, picture(charts, question, answers))


def picture(charts: Sequence[Chart], question: str, answers: Sequence[str]) -> Any:
    """A matplotlib figure of all *charts*, two abreast, under the *question* and the *answers*."""
    columns = min(COLUMNS, len(charts))
    rows = [charts[i : i + columns] for i in range(0, len(charts), columns)]
    heights = [max(chart.height_in for chart in row) + TITLE_IN for row in rows]
    width = columns * WIDTH_IN
    lines = [(text, 14.0, INK, 0.26) for text in wrapped(question, 14.0, width)]
    lines += [(text, HEAD, SOFT, TITLE_LINE_IN) for answer in answers for text in wrapped(answer, HEAD, width)]
    height = sum(heights) + 2 * MARGIN + sum(step for *_, step in lines)
    with settings():
        figure = figure_of(width, height)
        y = height - MARGIN
        for text, size, color, step in lines:
            figure.text(MARGIN / width, y / height, text, fontsize=size, color=color, va="top")
            y -= step
        for row, row_height in zip(rows, heights, strict=True):
            for column, chart in enumerate(row):
                _place(figure, chart, column * WIDTH_IN, y)
            y -= row_height
    return figure


def _place(figure: Any, chart: Chart, x: float, top: float) -> None:
    """Draw *chart* with its upper left corner at (x, top) [inches]."""
    width, height = figure.get_size_inches()
    title = shortened(chart.title, (WIDTH_IN - MARGIN) / (GLYPH * (NORMAL + 1)))
    figure.text((x + MARGIN) / width, (top - 0.08) / height, title, fontsize=NORMAL + 1, color=INK, va="top")
    figure.text((x + MARGIN) / width, (top - 0.28) / height, chart.subtitle, fontsize=SMALL, color=SOFT, va="top")
    bottom = top - TITLE_IN - chart.height_in + BOTTOM_IN
    size = (WIDTH_IN - LABELS_IN - RIGHT_IN, chart.height_in - BOTTOM_IN)
    box = ((x + LABELS_IN) / width, bottom / height, size[0] / width, size[1] / height)
    chart.draw(figure.add_axes(box))
