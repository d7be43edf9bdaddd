"""Rent, buy or API at the scenario's load: the whole answer as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sim.cost.finance import Annuity, StraightLine
from sim.scenario.breakeven import Breakeven
from sim.scenario.schema import Scenario
from sim.study.breakeven import Candidate, Cost, Ledgers, Month, months
from sim.study.capacity import Capacity
from sim.study.tipping import API, Tipping, costs_at, tipping_points

LOADS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that is told."""

    axis: str
    load: float
    capacities: Sequence[Capacity]
    candidates: Sequence[Candidate]
    curves: Mapping[str, Sequence[tuple[float, Cost]]]
    """Candidate -> (utilisation, cost of one unit)."""
    by_load: Mapping[str, Sequence[tuple[float, float]]]
    """Candidate, or API -> (load, USD/h), whole units sharing the load."""
    at_load: Mapping[str, Cost]
    usd_per_h: Mapping[str, float]
    """Candidate, or API -> cost of the load."""
    months: Mapping[str, Sequence[Month]]
    api_usd_per_million: float | None
    tipping: Sequence[Tipping]
    """What would make another candidate, or the API, the cheapest."""
    tipping_of_machines: Sequence[Tipping]
    """What would make another machine the cheapest of them, where the API is cheaper than all."""

    @property
    def winner(self) -> str:
        """The cheapest at the load; empty where no fleet meets the service level at any."""
        return min(self.usd_per_h, key=lambda name: self.usd_per_h[name], default="")

    @property
    def best_machine(self) -> str:
        """The cheapest at the load, the API left aside."""
        return min(self.at_load, key=lambda name: self.usd_per_h[name], default="")


def decide(scenario: Scenario, ledgers: Ledgers, found: Sequence[Capacity]) -> Answer:
    """Costs, months and tipping points of all candidates."""
    terms = scenario.breakeven or Breakeven()
    at_load = {one.name: ledgers.cost(one, ledgers.load) for one in ledgers.candidates}
    finances = {one.name: _finance(scenario, one) for one in ledgers.candidates}
    paid = {name: months(cost, finances[name], terms.months) for name, cost in at_load.items()}
    usd_per_h = costs_at(ledgers, ledgers.load) if ledgers.candidates else {}
    if API in usd_per_h:
        api = Cost(ledgers.load, 1, usd_per_h[API], 0.0, 0.0, 1.0, None)
        paid[API] = months(api, next(iter(finances.values())), terms.months)
    api_wins = API in usd_per_h and min(usd_per_h, key=lambda name: usd_per_h[name]) == API
    return Answer(
        axis=ledgers.axis.label,
        load=ledgers.load,
        capacities=found,
        candidates=ledgers.candidates,
        curves={one.name: ledgers.curve(one) for one in ledgers.candidates},
        by_load=_by_load(ledgers),
        at_load=at_load,
        usd_per_h=usd_per_h,
        months=paid,
        api_usd_per_million=ledgers.api_usd_per_million(),
        tipping=list(tipping_points(ledgers)),
        tipping_of_machines=list(tipping_points(ledgers, with_api=False)) if api_wins else [],
    )


def _by_load(ledgers: Ledgers) -> dict[str, list[tuple[float, float]]]:
    """Costs from a thirtieth of the verdict's load, or of the least capacity, to twice the greater of them."""
    if not ledgers.candidates:
        return {}
    ends = [ledgers.load, *(one.capacity for one in ledgers.candidates)]
    found: dict[str, list[tuple[float, float]]] = {}
    for load in np.geomspace(min(ends) / 30, 2 * max(ends), LOADS_SHOWN):
        for name, usd_per_h in costs_at(ledgers, float(load)).items():
            found.setdefault(name, []).append((float(load), usd_per_h))
    return found


def _finance(scenario: Scenario, one: Candidate) -> Annuity | StraightLine | None:
    fleet = next(fleet for fleet in scenario.fleets if fleet.name == one.fleet)
    return fleet.finance or scenario.finance
