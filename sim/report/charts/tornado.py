"""Tornado charts: how far each input alone moves a result, the input that moves it most on top.

Source of the form: T. G. Eschenbach, "Spiderplots versus Tornado Diagrams for Sensitivity Analysis", Interfaces 22(6),
1992.
"""

from collections.abc import Sequence
from dataclasses import dataclass

AT_LOW, AT_HIGH = "#6f94c4", "#c2703d"
"""Colours of the result at the input's low and at its high value."""


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


def _rightwards(end: float, base: float, other: float) -> bool:
    """Whether the text stands right of *end*: away from the bar; where there is no bar, away from the other's."""
    return end > base if end != base else other < base
