"""The points of a run as lines over one axis: what charts draw and the verdict compares."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sim.study.fleets.run.point import Point, fleets_of

Setting = tuple[tuple[str, Any], ...]
"""The values of the axes beside the main one: (axis, value)."""


@dataclass(frozen=True, slots=True)
class Line:
    """Points of one fleet along the axis, everything else held."""

    fleet: str
    setting: Setting
    """Empty where there is no other axis."""
    points: tuple[Point, ...]
    """Points that could run, in the order of the axis."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Lines over the first numeric axis; without any axis, lines of one point each."""

    axis: str
    """Empty where nothing is swept."""
    numeric: bool
    values: tuple[Any, ...]
    """Simulated values of the axis: in order where numeric, else in order of appearance."""
    lines: tuple[Line, ...]
    chosen: Any = None
    """Place that examples are taken from; None: `reference` looks for one."""

    def at(self, load: float) -> "Sweep":
        """Return this sweep with examples from the lowest simulated place that is not below *load*."""
        return replace(self, chosen=next((value for value in self.values if value >= load), self.values[-1]))

    def value(self, point: Point) -> Any:
        """The point's place on the axis."""
        return point.axes.get(self.axis)

    def x(self, point: Point) -> float:
        """The point's place on the axis as a number; values that are not numbers count by their rank."""
        value = self.value(point)
        return float(value) if self.numeric else float(self.values.index(value))

    @property
    def single(self) -> bool:
        """Whether there is nothing to draw a line through."""
        return len(self.values) < 2

    @property
    def settings(self) -> list[Setting]:
        """The other axes' combinations, in order."""
        return list(dict.fromkeys(line.setting for line in self.lines))

    @property
    def fleets(self) -> list[str]:
        """Fleets that could run, in order."""
        return list(dict.fromkeys(line.fleet for line in self.lines))

    @property
    def reference(self) -> Any:
        """The place on the axis that examples are taken from: the last where the most fleets meet the SLO."""
        if self.chosen is not None:
            return self.chosen
        fit = dict.fromkeys(self.values, 0)
        for line in self.lines:
            for point in line.points:
                fit[self.value(point)] += point.good
        most = max(fit.values(), default=0)
        chosen = (value for value in reversed(self.values) if fit[value] == most and most)
        return next(chosen, next(iter(self.values), None))


def sweep_of(points: Sequence[Point], axes: Sequence[str]) -> Sweep:
    """Arrange *points* along the first axis of *axes* that has two numbers or more, else two values or more."""
    axis, numeric = _main_axis(points, axes)
    placed = [point for point in points if not numeric or point.axes.get(axis) is not None]
    values = list(dict.fromkeys(point.axes.get(axis) for point in placed))
    if numeric:
        values.sort()
    others = _other_axes(placed, axis, axes)
    members: dict[tuple[str, Setting], list[Point]] = {}
    for point in placed:
        if point.ok:
            setting = tuple((name, point.axes[name]) for name in others if point.axes.get(name) is not None)
            members.setdefault((point.fleet, setting), []).append(point)
    rank = {value: index for index, value in enumerate(values)}
    lines = (
        Line(fleet, setting, tuple(sorted(group, key=lambda point: rank[point.axes.get(axis)])))
        for (fleet, setting), group in members.items()
    )
    order = {fleet: index for index, fleet in enumerate(fleets_of(points))}
    return Sweep(axis, numeric, tuple(values), tuple(sorted(lines, key=lambda line: order[line.fleet])))


def _main_axis(points: Sequence[Point], axes: Sequence[str]) -> tuple[str, bool]:
    varied = {}
    for axis in axes:
        values = [value for point in points if (value := point.axes.get(axis)) is not None]
        if len({repr(value) for value in values}) > 1:
            varied[axis] = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    for axis, numeric in varied.items():
        if numeric:
            return axis, True
    return (next(iter(varied)), False) if varied else ("", False)


def _other_axes(points: Sequence[Point], axis: str, axes: Sequence[str]) -> list[str]:
    """The axes that tell points of the same fleet and place apart; none where all vary together."""
    places = [(point.fleet, repr(point.axes.get(axis))) for point in points]
    if len(set(places)) == len(places):
        return []
    return [name for name in axes if name != axis and len({repr(point.axes.get(name)) for point in points}) > 1]
