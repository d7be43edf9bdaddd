"""Rent, buy or API at the scenario's load: the whole answer as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

import numpy as np

from sim.cost.finance.horizon import Horizon
from sim.scenario.schema import Scenario
from sim.scenario.sections.breakeven import Breakeven
from sim.scenario.sections.compare import models_of
from sim.study.fleets.capacity.search import Capacity
from sim.study.money.breakeven.candidates import Candidate, Cost, Ledgers
from sim.study.money.breakeven.cash import Month, months
from sim.study.money.breakeven.tipping import API, Tipping, costs_at, tipping_points

LOADS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class BreakevenAnswer:
    """All of the answer."""

    axis: str
    load: float
    capacities: Sequence[Capacity]
    candidates: Sequence[Candidate]
    curves: Mapping[str, Sequence[tuple[float, Cost]]]
    """Candidate -> (utilisation, cost of one unit)."""
    cheaper: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
    """Candidate -> other way to get its tokens -> utilisations of one unit at which the candidate costs less."""
    by_load: Mapping[str, Sequence[tuple[float, float]]]
    """Candidate, or API -> (load, USD/h), whole units sharing the load."""
    at_load: Mapping[str, Cost]
    usd_per_h: Mapping[str, float]
    """Candidate, or API -> cost of the load."""
    cash: Mapping[str, Sequence[Month]]
    """Candidate, or API -> months from delivery on, to the end of the horizon and of `breakeven.months`."""
    shown_months: int
    """`breakeven.months`."""
    horizon: Horizon
    """Horizon over which net present costs are compared: the life of the hardware."""
    api: Cost | None
    """The API at the load; None without one."""
    tipping: Sequence[Tipping]
    """Input values at which another candidate, or the API, becomes the cheapest."""
    tipping_of_machines: Sequence[Tipping]
    """Input values at which another machine becomes the cheapest machine, where the API is cheaper than all."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model of every candidate, and of the tokens that the API is compared for, where models are ranked apart; then
    nothing tips from one to another."""
    uncertain: bool = False
    """Whether inputs of the scenario are distributions; all costs are those of their central values."""

    @property
    def api_usd_per_million(self) -> float | None:
        """Cost of a million output tokens and their prompts at the API [USD]; None without an API."""
        return self.api.usd_per_million_output_tokens if self.api is not None else None

    @property
    def months(self) -> Mapping[str, Sequence[Month]]:
        """The months that are shown."""
        return {name: path[: self.shown_months + 1] for name, path in self.cash.items()}

    @property
    def products(self) -> list[list[str]]:
        """Candidates that are ranked against each other, the API among them, each list by cost."""
        ranked = sorted(self.usd_per_h, key=lambda name: self.usd_per_h[name])
        models = dict.fromkeys(self.models.get(name, "") for name in self.usd_per_h)
        return [[name for name in ranked if self.models.get(name, "") == model] for model in models]

    @property
    def winner(self) -> str:
        """The cheapest at the load; empty where no fleet meets the service level at any."""
        return min(self.usd_per_h, key=lambda name: self.usd_per_h[name], default="")

    @property
    def best_machine(self) -> str:
        """The cheapest at the load, without the API."""
        return min(self.at_load, key=lambda name: self.usd_per_h[name], default="")


def decide(scenario: Scenario, ledgers: Ledgers, found: Sequence[Capacity]) -> BreakevenAnswer:
    """Costs, months and tipping points of all candidates."""
    terms = scenario.breakeven or Breakeven()
    rate, span = ledgers.horizon.discount_rate, max(terms.months, ceil(ledgers.horizon.months))
    at_load = {one.name: ledgers.cost(one, ledgers.load) for one in ledgers.candidates}
    api = ledgers.api(list(at_load.values()))
    every = at_load | ({API: api} if api is not None else {})
    usd_per_h = {name: cost.usd_per_h for name, cost in every.items()}
    models = _models(scenario, ledgers.candidates, api is not None)
    api_wins = API in usd_per_h and min(usd_per_h, key=lambda name: usd_per_h[name]) == API
    # first, as they simulate the loads at which the verdict tips: what follows reads these, too
    tipping = [] if models else list(tipping_points(ledgers))
    tipping_of_machines = list(tipping_points(ledgers, with_api=False)) if api_wins and not models else []
    return BreakevenAnswer(
        axis=ledgers.axis.label,
        load=ledgers.load,
        capacities=found,
        candidates=ledgers.candidates,
        curves={one.name: ledgers.curve(one) for one in ledgers.candidates},
        cheaper={one.name: ledgers.cheaper(one) for one in ledgers.candidates if at_load[one.name].flows.capex_usd},
        by_load=_by_load(ledgers),
        at_load=at_load,
        usd_per_h=usd_per_h,
        cash={name: months(cost.flows, cost.finance, rate, span) for name, cost in every.items()},
        shown_months=terms.months,
        horizon=ledgers.horizon,
        api=api,
        tipping=tipping,
        tipping_of_machines=tipping_of_machines,
        models=models,
        uncertain=scenario.futures is not None,
    )


def _models(scenario: Scenario, candidates: Sequence[Candidate], api: bool) -> dict[str, str]:
    """Model of every candidate, and of the API, which is asked for the tokens of the first; empty where one ranking
    holds for all.
    """
    of_fleet = models_of(scenario, scenario.compare)
    if not of_fleet or not candidates:
        return {}
    found = {one.name: of_fleet[one.fleet] for one in candidates}
    if len(set(found.values())) < 2:
        return {}
    return found | ({API: of_fleet[candidates[0].fleet]} if api else {})


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


def why_no_breakeven(scenario: Scenario) -> list[str]:
    """Return the reasons why the fleets of *scenario* cannot be compared, one line each; empty where they can."""
    refusals = []
    for position, fleet in enumerate(scenario.fleets):
        if fleet.has_own_costs:
            refusals.append(f"fleets.{position}.pools: ways to pay are compared for whole fleets, not for pools")
        elif fleet.cost is None:
            refusals.append(f"fleets.{position}.cost: is missing: what {fleet.name} costs is the question")
    return refusals
