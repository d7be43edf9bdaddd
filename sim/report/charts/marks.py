"""How near measurements are to the points of a chart: a ring around each that was not measured near."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sim.catalogue.catalog import Catalog
from sim.language import N_, _, retold
from sim.report.charts.panels import ChartCurve, Panel, key_of
from sim.scenario.schema import Scenario
from sim.study.fidelity.marks import MARKS, Worth, point_worths
from sim.study.fleets.run.point import Point

NEAR, BETWEEN, BEYOND = MARKS
NAMES = (N_("measured near here"), N_("interpolated"), N_("extrapolated"))
"""Of the marks, as they are shown."""
KEY = {
    NEAR: N_("no ring: measured near here"),
    BETWEEN: N_("thin ring: interpolated between measurements"),
    BEYOND: N_("dotted ring: extrapolated beyond measurements"),
}
"""What the rings mean."""


def worths_by_key(scenario: Scenario, catalog: Catalog, points: Sequence[Point]) -> dict[str, Worth]:
    """What the predictions at *points* of the scenario's sweep are worth, by the key of the point."""
    found = point_worths(scenario, points, catalog)
    return {key_of(point): worth for point, worth in zip(points, found, strict=True) if worth is not None}


def marked(panels: Iterable[Panel], worths: Mapping[str, Worth]) -> list[Panel]:
    """*panels* with the marks of their points; *worths* by the key of a point."""
    return [replace(panel, curves=tuple(_marked(curve, worths) for curve in panel.curves)) for panel in panels]


def _marked(curve: ChartCurve, worths: Mapping[str, Worth]) -> ChartCurve:
    if not curve.marker:
        return curve
    return replace(curve, marks=tuple(worths[key].mark if key in worths else "" for key in curve.keys))


def ring_key(worths: Iterable[Worth]) -> list[str]:
    """What the rings mean, for the marks that there are, from the nearest."""
    there = {one.mark for one in worths}
    return [_(text) for mark, text in KEY.items() if mark in there]


def worth_told(worth: Worth) -> str:
    """A mark in words, with the reasons: `extrapolated: no GPU of its architecture was measured`."""
    reasons: Sequence[str] = [retold(one) for one in worth.why]
    if not reasons:
        return _(worth.mark)
    return _("{mark}: {reasons}", mark=_(worth.mark), reasons=_("; ").join(reasons))
