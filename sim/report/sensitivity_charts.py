"""Tornado charts of fleets and of their difference, and the waterfall from one fleet's cost to another's."""

from collections.abc import Sequence

from sim.language import N_, _
from sim.report.charts.picture import SOFT
from sim.report.charts.tornado import AT_HIGH, AT_LOW, SideBar, TornadoBar, side_bars
from sim.report.charts.vega_bars import bar_figure
from sim.report.charts.vega_lite import PageFigure
from sim.report.words.money import converted_text, in_code, money_mark, shown
from sim.study.cost_gap import CostGap

BOTH_ENDS = N_("blue: the input at its low value; orange: at its high value")


def tornado_figure(title: str, base: float, bars: Sequence[TornadoBar], unit_label: str) -> PageFigure:
    """Build the tornado chart of how far each input changes a result."""
    return bar_figure(title, BOTH_ENDS, side_bars(base, bars), unit_label, base)


def gap_figure(title: str, gap: CostGap) -> PageFigure:
    """Build the waterfall from the second fleet's cost to the first's, a step for each group."""
    subtitle = _("from {second} to {first}, one step for each group", second=gap.second, first=gap.first)
    return bar_figure(title, subtitle, gap_bars(gap), in_code(_("USD per million output tokens")), 0.0)


def gap_bars(gap: CostGap) -> list[SideBar]:
    """Return the steps from the second fleet's cost (top) to the first's (bottom) [shown currency per million]."""
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
