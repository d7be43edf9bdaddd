"""Tornado charts: the effect of each input alone on a result, the largest on top.

References
----------
T. G. Eschenbach, "Spiderplots versus Tornado Diagrams for Sensitivity Analysis", Interfaces 22(6), 1992.

"""

from collections.abc import Sequence
from dataclasses import dataclass

AT_LOW, AT_HIGH = "#6f94c4", "#c2703d"
"""Colours of the result at the input's low and at its high value."""


@dataclass(frozen=True, slots=True)
class TornadoBar:
    """Results at the low and the high value of an input, all other inputs unchanged."""

    label: str
    low: float
    """Result at the input's low value, in the unit of the chart; may exceed the result at the high value."""
    high: float
    """Result at the input's high value, in the unit of the chart."""
    low_text: str
    """Low value of the input as text."""
    high_text: str
    """High value of the input as text."""

    def swing(self, base: float) -> float:
        """Return the range of the result, *base* included."""
        return max(self.low, self.high, base) - min(self.low, self.high, base)


@dataclass(frozen=True, slots=True)
class SideBar:
    """Horizontal bar of a chart."""

    row: int
    """Row of the bar, counted from the top."""
    label: str
    start: float
    end: float
    color: str
    text: str
    text_at: float
    """Value at which the text is placed."""
    rightwards: bool
    """True if the text extends to the right of `text_at`."""
    half: float = 0.0
    """Half-width of the 95 % interval of the end."""
    fleet: str = ""
    """Fleet of the bar; empty for a bar of several fleets."""


def side_bars(base: float, bars: Sequence[TornadoBar]) -> list[SideBar]:
    """Return two bars per input around the result *base*, the widest input on top.

    Where both results lie on the same side of *base*, the shorter bar is drawn last.
    """
    ordered = sorted(bars, key=lambda bar: -bar.swing(base))
    return [one for row, bar in enumerate(ordered) for one in _bar_pair(row, base, bar)]


def _bar_pair(row: int, base: float, bar: TornadoBar) -> list[SideBar]:
    parts = [(bar.low, AT_LOW, bar.low_text), (bar.high, AT_HIGH, bar.high_text)]
    parts.sort(key=lambda part: -abs(part[0] - base))
    one_sided = (bar.low - base) * (bar.high - base) > 0
    found = []
    for index, (end, color, text) in enumerate(parts):
        at, rightwards = end, _rightwards(end, base, parts[1 - index][0])
        # at the end of the shorter bar, the text would overlap the longer bar
        if index == 1 and (one_sided or end == parts[0][0]):
            at, rightwards = base, parts[0][0] < base
        found.append(SideBar(row, bar.label, base, end, color, text, at, rightwards))
    return found


def _rightwards(end: float, base: float, other: float) -> bool:
    """Return whether the text is right of *end*: away from its bar, or from the other bar if it has no length."""
    return end > base if end != base else other < base
