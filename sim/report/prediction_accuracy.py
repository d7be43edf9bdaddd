"""Accuracy of predictions: marks of points by their distance to measurements, reasons, and error factors.

A ring in a chart marks a point that is not close to a measured configuration; the factors of a fleet hold 80 % of the
servers that the fit did not use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from sim.catalogue.catalog import Catalog
from sim.language import N_, _, translate_rendered
from sim.report.charts.panels import ChartCurve, Panel
from sim.report.charts.sweep_panels import key_of
from sim.report.terminal_table import FittedTable
from sim.report.words.text import plain
from sim.scenario.schema import Scenario
from sim.study.confidence import MARKS, PredictionConfidence, fleet_confidence, point_confidences, worst
from sim.study.points import Point

SHOWN = {"throughput": "tokens/s", "tpot": "TPOT", "ttft": "TTFT", "power": "W"}
"""Headings of the metrics."""


def factors_text(confidence: PredictionConfidence) -> str:
    """Format the error factors: `tokens/s 0.67 to 1.25, TPOT 0.79 to 1.47 times the prediction`; else empty."""
    parts = [f"{SHOWN[metric]} {_span(*ends)}" for metric, ends in confidence.factors.items() if metric != "power"]
    return _("{parts} times the prediction", parts=_(", ").join(parts)) if parts else ""


def _span(low: float, high: float) -> str:
    return _("{low} to {high}", low=plain(round(low, 2)), high=plain(round(high, 2)))


def servers_text(confidence: PredictionConfidence) -> str:
    """Name the servers whose errors the factors describe: `vllm, PCIe cards`, with the metrics where these differ."""
    by_servers: dict[str, list[str]] = {}
    for metric, servers in confidence.servers.items():
        if metric != "power":
            by_servers.setdefault(translate_rendered(servers), []).append(SHOWN[metric])
    if len(by_servers) < 2:
        return "".join(by_servers)
    parts = [f"{servers} ({_(', ').join(metrics)})" for servers, metrics in by_servers.items()]
    return _("; ").join(parts)


def confidence_table(confidences: Sequence[tuple[str, PredictionConfidence]]) -> FittedTable:
    """Build the table of accuracy, a row per fleet: mark, error factors, their servers, and reasons."""
    metrics = [metric for metric in SHOWN if any(metric in confidence.factors for _name, confidence in confidences)]
    heads = (_("fleet"), _("prediction"), *(f"{SHOWN[metric]} [x]" for metric in metrics), _("errors of"), _("because"))
    rows = [
        [
            name,
            _(confidence.mark),
            *(_span(*confidence.factors[metric]) if metric in confidence.factors else "" for metric in metrics),
            servers_text(confidence),
            _("; ").join(translate_rendered(why) for why in confidence.why),
        ]
        for name, confidence in confidences
    ]
    title = "\n" + _("Accuracy of predictions: factors that hold 80 % of servers")
    return FittedTable(heads, rows, frozenset({0, 1, len(heads) - 2, len(heads) - 1}), 1, title=title)


def fleet_confidences(scenario: Scenario, catalog: Catalog) -> list[tuple[str, PredictionConfidence]]:
    """Return (name, confidence) of every fleet with a computed step time, as the scenario has it before its sweep."""
    found = ((fleet.name, fleet_confidence(scenario, fleet, catalog)) for fleet in scenario.fleets)
    return [(name, confidence) for name, confidence in found if confidence is not None]


def extrapolated_note(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Return a note if all fleets are extrapolated beyond measurements; else nothing. Its factors hold for each."""
    confidences = [one for _name, one in fleet_confidences(scenario, catalog)]
    together = worst(confidences)
    if together is None or len(confidences) < len(scenario.fleets) or any(one.mark != MARKS[-1] for one in confidences):
        return []
    reasons = _("; ").join(map(translate_rendered, together.why))
    text = _("All predictions are extrapolated ({reasons}).", reasons=reasons)
    factors = factors_text(together)
    return [text + (_(" 80 % of such servers: {factors}.", factors=factors) if factors else "")]


NEAR, BETWEEN, BEYOND = MARKS
NAMES = (N_("measured near here"), N_("interpolated"), N_("extrapolated"))
"""Marks as they are shown."""
KEY = {
    NEAR: N_("marker without a ring: servers like this one were measured"),
    BETWEEN: N_("ring around a marker: similar servers were measured; the prediction lies between them"),
    BEYOND: N_("dotted ring around a marker: no similar server was measured"),
}
"""Legend of the rings."""


def confidences_by_key(
    scenario: Scenario, catalog: Catalog, points: Sequence[Point]
) -> dict[str, PredictionConfidence]:
    """Return the confidence of the predictions at *points* of the scenario's sweep, by the key of the point."""
    found = point_confidences(scenario, points, catalog)
    return {
        key_of(point): confidence for point, confidence in zip(points, found, strict=True) if confidence is not None
    }


def marked(panels: Iterable[Panel], confidences: Mapping[str, PredictionConfidence]) -> list[Panel]:
    """Return *panels* with the marks of their points; *confidences* has the confidence by the key of a point."""
    return [replace(panel, curves=tuple(_with_marks(curve, confidences) for curve in panel.curves)) for panel in panels]


def _with_marks(curve: ChartCurve, confidences: Mapping[str, PredictionConfidence]) -> ChartCurve:
    if not curve.marker:
        return curve
    return replace(curve, marks=tuple(confidences[key].mark if key in confidences else "" for key in curve.keys))


def ring_key(confidences: Iterable[PredictionConfidence]) -> list[str]:
    """Return the legend of the rings that occur, the nearest first."""
    there = {one.mark for one in confidences}
    return [_(text) for mark, text in KEY.items() if mark in there]


def confidence_text(confidence: PredictionConfidence) -> str:
    """Describe a mark with its reasons: `extrapolated: no GPU of its architecture was measured`."""
    reasons: Sequence[str] = [translate_rendered(one) for one in confidence.why]
    if not reasons:
        return _(confidence.mark)
    return _("{mark}: {reasons}", mark=_(confidence.mark), reasons=_("; ").join(reasons))
