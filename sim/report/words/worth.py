"""What predictions are worth, in words: marks, reasons and how far 80 % of real servers lie from a prediction."""

from collections.abc import Sequence

from sim.catalogue.catalog import Catalog
from sim.language import _, retold
from sim.report.terminal.fitted import FittedTable
from sim.report.words.text import plain
from sim.scenario.schema import Scenario
from sim.study.fidelity.marks import MARKS, Worth, fleet_worth

SHOWN = {"throughput": "tokens/s", "tpot": "TPOT", "ttft": "TTFT", "power": "W"}
"""Metric -> its head."""


def factors_told(worth: Worth) -> str:
    """For example `tokens/s 0.67 to 1.25, TPOT 0.79 to 1.47 times the prediction`; empty where nothing is known."""
    parts = [f"{SHOWN[metric]} {_span(*ends)}" for metric, ends in worth.factors.items() if metric != "power"]
    return _("{parts} times the prediction", parts=_(", ").join(parts)) if parts else ""


def _span(low: float, high: float) -> str:
    return _("{low} to {high}", low=plain(round(low, 2)), high=plain(round(high, 2)))


def worth_table(worths: Sequence[tuple[str, Worth]]) -> FittedTable:
    """One row per fleet: its mark, why, and the factors that hold 80 % of servers which nobody measured."""
    metrics = [metric for metric in SHOWN if any(metric in worth.factors for _name, worth in worths)]
    heads = (_("fleet"), _("prediction"), *(f"{SHOWN[metric]} [x]" for metric in metrics), _("because"))
    rows = [
        [
            name,
            _(worth.mark),
            *(_span(*worth.factors[metric]) if metric in worth.factors else "" for metric in metrics),
            _("; ").join(retold(why) for why in worth.why),
        ]
        for name, worth in worths
    ]
    title = "\n" + _("What predictions are worth: factors that hold 80 % of servers")
    return FittedTable(heads, rows, frozenset({0, 1, len(heads) - 1}), 1, title=title)


def fleet_worths(scenario: Scenario, catalog: Catalog) -> list[tuple[str, Worth]]:
    """(name, worth) of every fleet whose step time is computed, as the scenario has it before its sweep."""
    found = ((fleet.name, fleet_worth(scenario, fleet, catalog)) for fleet in scenario.fleets)
    return [(name, worth) for name, worth in found if worth is not None]


def extrapolated_note(scenario: Scenario, catalog: Catalog) -> list[str]:
    """A sentence where all fleets lie beyond what was measured; none otherwise."""
    worths = fleet_worths(scenario, catalog)
    if not worths or len(worths) < len(scenario.fleets) or any(one.mark != MARKS[-1] for _name, one in worths):
        return []
    reasons = _("; ").join(dict.fromkeys(retold(why) for _name, one in worths for why in one.why))
    told = _("All predictions are extrapolated ({reasons}).", reasons=reasons)
    factors = factors_told(worths[0][1])
    return [told + (_(" 80 % of such servers: {factors}.", factors=factors) if factors else "")]
