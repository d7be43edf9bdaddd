"""Tornado charts: how far each input alone moves a result, the input that moves it most on top.

Source of the form: T. G. Eschenbach, "Spiderplots versus Tornado Diagrams for Sensitivity Analysis", Interfaces 22(6),
1992.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sim.report.charts.drawing import FAINT, INK, SMALL, SOFT

AT_LOW, AT_HIGH = "#6f94c4", "#c2703d"
"""Colours of the result at the input's low and at its high value."""
HALF_HEIGHT = 0.34
GAP = 4.0
"""Between a bar and its text [points]."""
GLYPH = 0.6
"""Mean width of a glyph in units of the font size."""
LINE_IN, EDGES_IN = 0.34, 0.62
"""Height of a bar with its gap, and of what stands above and below all of them [inches]."""


@dataclass(frozen=True, slots=True)
class TornadoBar:
    """One input: the result where it alone is at its low and at its high value, all others as they are."""

    label: str
    low: float
    """The result at the input's low value, in the unit of the chart; below or above the one at its high value."""
    high: float
    low_text: str
    """The input's low value as people read it."""
    high_text: str

    def swing(self, base: float) -> float:
        """How far the result changes in all, from *base* to one side or to both."""
        return max(self.low, self.high, base) - min(self.low, self.high, base)


@dataclass(frozen=True, slots=True)
class SideBar:
    """One horizontal bar of a chart, as whoever draws it needs it."""

    row: int
    """From the top."""
    label: str
    start: float
    end: float
    color: str
    text: str
    text_at: float
    rightwards: bool
    """The text goes right of where it stands."""
    half: float = 0.0
    """Half-width of the 95 % interval of its end."""
    fleet: str = ""
    """Whose bar it is; empty for those of no one fleet."""


def side_bars(base: float, bars: Sequence[TornadoBar]) -> list[SideBar]:
    """Two for each input around the result *base*, the widest on top; of two on one side the shorter comes later."""
    ordered = sorted(bars, key=lambda bar: -bar.swing(base))
    return [one for row, bar in enumerate(ordered) for one in _both(row, base, bar)]


def _both(row: int, base: float, bar: TornadoBar) -> list[SideBar]:
    parts = [(bar.low, AT_LOW, bar.low_text), (bar.high, AT_HIGH, bar.high_text)]
    parts.sort(key=lambda part: -abs(part[0] - base))
    one_sided = (bar.low - base) * (bar.high - base) > 0
    found = []
    for index, (end, color, text) in enumerate(parts):
        at, rightwards = end, _rightwards(end, base, parts[1 - index][0])
        if index == 1 and (one_sided or end == parts[0][0]):  # beside its end it would stand on the longer part
            at, rightwards = base, parts[0][0] < base
        found.append(SideBar(row, bar.label, base, end, color, text, at, rightwards))
    return found


def tornado_height_in(bars: Sequence[TornadoBar]) -> float:
    """Height of a figure for *bars* [inches]."""
    return EDGES_IN + LINE_IN * max(1, len(bars))


def draw_tornado(ax: Any, base: float, bars: Sequence[TornadoBar], unit_label: str) -> None:
    """Draw *bars* into the matplotlib axes *ax* around the result *base*, the widest on top.

    Each end of a bar carries the input's value that leads there. *unit_label* says what the horizontal axis shows, with
    its unit: `USD a month`. An input that moves the result to one side only has both parts there, overlaid.
    """
    ordered = sorted(bars, key=lambda bar: -bar.swing(base))
    ends = [base, *(end for bar in ordered for end in (bar.low, bar.high))]
    reach = (max(ends) - min(ends)) or abs(base) or 1.0
    for one in side_bars(base, bars):
        ax.barh(-one.row, one.end - base, left=base, height=2 * HALF_HEIGHT, color=one.color, linewidth=0, zorder=2)
        if one.text:
            _write_end(ax, one)
    ax.axvline(base, color=INK, linewidth=0.9, zorder=3)
    beside = _share_beside(ax, ordered) * reach
    ax.set_xlim(min(ends) - beside, max(ends) + beside)
    ax.set_ylim(0.4 - max(1, len(ordered)), 0.6)
    ax.set_yticks([-float(row) for row in range(len(ordered))], [bar.label for bar in ordered])
    ax.set_xlabel(unit_label, fontsize=SMALL, color=SOFT, loc="left")
    ax.xaxis.set_major_locator(_few_ticks())
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}".replace("-", "−"))
    ax.tick_params(axis="x", length=3, width=0.6, color=SOFT, labelcolor=SOFT, labelsize=SMALL)
    ax.tick_params(axis="y", length=0, labelcolor=INK, labelsize=SMALL)
    ax.grid(axis="x", color=FAINT, linewidth=0.6)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set(color=SOFT, linewidth=0.6)


def _share_beside(ax: Any, bars: Sequence[TornadoBar]) -> float:
    """Space on either side that the longest text needs, over the width that is left for the bars."""
    longest = max((len(text) for bar in bars for text in (bar.low_text, bar.high_text)), default=0)
    text_points = 2 * GAP + GLYPH * (SMALL - 1) * longest
    width_points = ax.bbox.width * 72.0 / ax.figure.dpi
    return float(text_points / max(width_points - 2 * text_points, 0.2 * width_points))


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10])


def _rightwards(end: float, base: float, other: float) -> bool:
    """Whether the text stands right of *end*: away from the bar; where there is no bar, away from the other's."""
    return end > base if end != base else other < base


def _write_end(ax: Any, bar: SideBar) -> None:
    aside = {"textcoords": "offset points", "va": "center", "ha": "left" if bar.rightwards else "right"}
    beside = (GAP if bar.rightwards else -GAP, 0)
    ax.annotate(bar.text, (bar.text_at, -bar.row), beside, fontsize=SMALL - 1, color=SOFT, zorder=4, **aside)
