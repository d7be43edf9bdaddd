"""Rent, buy or API at the scenario's load: the cheapest candidate, and the tipping points of each input.

A tipping point is the value of one input beyond which another candidate is the cheapest, found by bisection on the
ledger.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from math import ceil, exp, log
from typing import Any

import numpy as np

from sim.cost import token_api
from sim.cost.financing import Financing, Holding
from sim.cost.time_value import Horizon
from sim.message import Message
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import Breakeven, models_of
from sim.scenario.sweep import as_data
from sim.study.booked_inputs import INPUTS, in_stated_currency, number_of
from sim.study.breakeven_costs import (
    Candidate,
    CandidateLedgers,
    Cost,
    CumulativeCost,
    carbon_usd,
    months,
    moved_usd,
)
from sim.study.capacity import FleetCapacity
from sim.study.financing import AfterTax, Earnings, Payments, as_stated, compared, ways_to_finance
from sim.study.monte_carlo import inputs_of
from sim.study.order_timing import OrderTiming, timings_of_candidates
from sim.units import HOURS_PER_MONTH

API = token_api.NAME
SPAN = 20.0
"""Largest factor by which an input is changed, up or down."""
STEPS = 12
"""Number of values on either side before the bisection; two changes of the verdict between them are missed."""
HALVINGS = 24
"""Number of steps of the bisection."""
LOAD = "load"
REFINEMENTS = 6
"""Largest number of times that a load at which the verdict changes is simulated and refined."""


@dataclass(frozen=True, slots=True)
class TippingPoints:
    """Tipping points of one input."""

    name: str
    unit: str
    now: float
    below: float | None
    """Nearest value below which another candidate is the cheapest; None: there is none in range."""
    above: float | None
    """Nearest value above which another candidate is the cheapest; None: there is none in range."""
    searched: tuple[float, float]
    then_below: str = ""
    """Cheapest candidate just below `below`."""
    then_above: str = ""
    """Cheapest candidate just above `above`."""


Costs = Callable[[float], dict[str, float]]
"""Function of the input's value: candidate -> cost of the load [USD/h]; empty where the value is not allowed."""
ANY = (0.0, float("inf"))
"""Allowed values of an input without limits."""


@dataclass(frozen=True, slots=True)
class TippingInput:
    """Input whose break-even value is searched for."""

    name: str
    unit: str
    now: float
    allowed: tuple[float, float]
    costs: Costs


def costs_at(ledgers: CandidateLedgers, load: float, overrides: dict[str, Any] | None = None) -> dict[str, float]:
    """Return the cost of *load* with every candidate that serves it, and with the API where there is one [USD/h]."""
    able = [one for one in ledgers.candidates if ledgers.carries(one, load)]
    found = {one.name: ledgers.cost(one, load, overrides) for one in able}
    api = ledgers.api(list(found.values()))
    return {name: cost.usd_per_h for name, cost in found.items()} | ({API: api.usd_per_h} if api is not None else {})


def tipping_points(ledgers: CandidateLedgers, with_api: bool = True) -> Iterator[TippingPoints]:
    """Yield the tipping points of each input at the scenario's load, the other inputs unchanged.

    Without the API the machines are compared among themselves.
    """
    if ledgers.candidates and (with_api or len(ledgers.candidates) > 1):
        for one in _inputs(ledgers):
            found = _tipping(one, with_api)
            yield _simulated(ledgers, one, found, with_api) if one.name == LOAD else found


def _inputs(ledgers: CandidateLedgers) -> Iterator[TippingInput]:
    data = as_data(ledgers.scenario)
    for usual, (name, unit, low, high) in INPUTS.items():
        found = number_of(data, usual)
        if found is not None and found[1] > 0:
            path, now = found
            named_unit = in_stated_currency(data, path, unit)
            yield TippingInput(name, named_unit, float(now), (low, high), _by_override(ledgers, path))
    usd_per_h = costs_at(ledgers, ledgers.load)
    for one in ledgers.candidates:
        cost = ledgers.cost(one, ledgers.load)
        flows = cost.flows
        if flows.resold_usd:
            moved = _scaled(usd_per_h, one, flows.resold_usd, cost.hardware_usd_per_h)
            yield TippingInput(Message("hardware price of {name}", one.name), "USD", flows.resold_usd, ANY, moved)
        if flows.rent_usd_per_h:
            moved = _scaled(usd_per_h, one, flows.rent_usd_per_h, cost.rent_usd_per_h)
            yield TippingInput(Message("rent of {name}", one.name), "USD/h", flows.rent_usd_per_h, ANY, moved)
    most = max((one.capacity for one in ledgers.candidates), default=0.0) if ledgers.beside_others else ANY[1]
    yield TippingInput(LOAD, ledgers.axis.label, ledgers.load, (0.0, most), lambda load: costs_at(ledgers, load))


def _by_override(ledgers: CandidateLedgers, path: str) -> Costs:
    def costs(value: float) -> dict[str, float]:
        try:
            return costs_at(ledgers, ledgers.load, {path: value})
        except ValueError:  # the scenario has no such price, or does not allow the value
            return {}

    return costs


def _scaled(now: dict[str, float], one: Candidate, paid: float, part_usd_per_h: float) -> Costs:
    """Return the costs *now* with the hardware of *one*, or its rent, at another price than *paid*.

    *part_usd_per_h* of its levelised cost is proportional to that price.
    """
    return lambda price: now | {one.name: now[one.name] + part_usd_per_h * (price / paid - 1)}


def _tipping(one: TippingInput, with_api: bool) -> TippingPoints:
    def costs(value: float) -> dict[str, float]:
        return {name: usd for name, usd in one.costs(value).items() if with_api or name != API}

    winner = _cheapest(costs(one.now))
    # where the current value lies outside the allowed range, only the side towards the range is searched
    low = min(one.now, max(one.allowed[0], one.now / SPAN))
    high = max(one.now, min(one.allowed[1], one.now * SPAN))
    below, then_below = _tips(one.now, low, winner, costs)
    above, then_above = _tips(one.now, high, winner, costs)
    return TippingPoints(one.name, one.unit, one.now, below, above, (low, high), then_below, then_above)


def _simulated(ledgers: CandidateLedgers, one: TippingInput, found: TippingPoints, with_api: bool) -> TippingPoints:
    """Return *found*, the tipping points of the load *one*, after simulating all fleets at the loads found."""
    for _ in range(REFINEMENTS):
        new = [ledgers.simulate_at(load) for load in (found.below, found.above) if load is not None]
        if not any(new):
            break
        found = _tipping(one, with_api)
    return found


def _tips(now: float, end: float, winner: str, costs: Costs) -> tuple[float | None, str]:
    """Return the value nearest to *now*, towards *end*, at which *winner* loses, and the cheapest candidate there."""
    before = now
    for step in range(1, STEPS + 1):
        value = exp(log(now) + (log(max(end, now / SPAN)) - log(now)) * step / STEPS)
        found = costs(value)
        if found and _cheapest(found) != winner:
            return _bisect(before, value, winner, costs), _cheapest(found)
        before = value
    return None, ""


def _bisect(holds: float, fails: float, winner: str, costs: Costs) -> float:
    for _ in range(HALVINGS):
        middle = (holds * fails) ** 0.5
        found = costs(middle)
        if found and _cheapest(found) == winner:
            holds = middle
        else:
            fails = middle
    return fails


def _cheapest(costs: dict[str, float]) -> str:
    return min(costs, key=lambda name: costs[name])


LOADS_SHOWN = 60
"""Number of loads at which costs are drawn over the load."""


@dataclass(frozen=True, slots=True)
class BreakevenAnswer:
    """Answer of `breakeven`: costs, cash and tipping points of all candidates."""

    axis: str
    load: float
    capacities: Sequence[FleetCapacity]
    candidates: Sequence[Candidate]
    curves: Mapping[str, Sequence[tuple[float, Cost]]]
    """Candidate -> (utilisation [1], cost of one unit)."""
    cheaper: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
    """Candidate -> alternative source of its tokens -> utilisations of one unit at which the candidate costs less."""
    by_load: Mapping[str, Sequence[tuple[float, float]]]
    """Candidate, or API -> (load, cost [USD/h]), with the load shared by whole units."""
    at_load: Mapping[str, Cost]
    usd_per_h: Mapping[str, float]
    """Candidate, or API -> cost of the load [USD/h]."""
    cash: Mapping[str, Sequence[CumulativeCost]]
    """Candidate, or API -> months from delivery to the end of the horizon and of `breakeven.months`."""
    shown_months: int
    """Number of months shown: `breakeven.months`."""
    horizon: Horizon
    """Horizon over which net present costs are compared: the life of the hardware."""
    api: Cost | None
    """Cost of the API at the load; None without an API."""
    tipping: Sequence[TippingPoints]
    """Input values at which another candidate, or the API, becomes the cheapest."""
    tipping_of_machines: Sequence[TippingPoints]
    """Input values at which another machine becomes the cheapest machine, where the API is cheaper than all."""
    models: Mapping[str, str] = field(default_factory=dict)
    """Model of every candidate, and of the tokens that the API is compared for, where models are ranked separately.

    No tipping points are then searched.
    """
    after_tax: Mapping[str, AfterTax] = field(default_factory=dict)
    """Candidate, or API -> cost with its financing and income tax; empty where no financing or tax is stated."""
    earnings: Mapping[str, Earnings] = field(default_factory=dict)
    """Candidate, or API -> value and return with its revenue; empty where the scenario states no price of tokens."""
    financings: Mapping[str, Mapping[str, AfterTax]] = field(default_factory=dict)
    """Candidate, or API -> way to finance -> cost with it; empty as above."""
    timings: Mapping[str, OrderTiming] = field(default_factory=dict)
    """Purchase -> months of order that are compared; empty without `price_paths`."""
    starts: str | None = None
    """First month of `timings`; None where it has no date."""
    tips_searched: bool = True
    """False if `tipping` was not searched, which takes longer than all other figures."""
    all_simulated: bool = True
    """False if a load in `tipping` was interpolated because nothing may be simulated."""
    uncertain: bool = False
    """True if inputs of the scenario are distributions; all costs are those of their central values."""

    @property
    def api_usd_per_million(self) -> float | None:
        """Cost of a million output tokens and their prompts at the API [USD]; None without an API."""
        return self.api.usd_per_million_output_tokens if self.api is not None else None

    @property
    def months(self) -> Mapping[str, Sequence[CumulativeCost]]:
        """Months that are shown, by candidate."""
        return {name: path[: self.shown_months + 1] for name, path in self.cash.items()}

    @property
    def products(self) -> list[list[str]]:
        """Lists of the candidates that are ranked against each other, the API among them, each list by cost."""
        ranked = sorted(self.usd_per_h, key=lambda name: self.usd_per_h[name])
        models = dict.fromkeys(self.models.get(name, "") for name in self.usd_per_h)
        return [[name for name in ranked if self.models.get(name, "") == model] for model in models]

    @property
    def winner(self) -> str:
        """Cheapest candidate at the load; empty where no fleet meets the service level at any load."""
        return min(self.usd_per_h, key=lambda name: self.usd_per_h[name], default="")

    @property
    def best_machine(self) -> str:
        """Cheapest candidate at the load without the API; empty where there is none."""
        return min(self.at_load, key=lambda name: self.usd_per_h[name], default="")


def decide(
    scenario: Scenario, ledgers: CandidateLedgers, found: Sequence[FleetCapacity], with_tips: bool = True
) -> BreakevenAnswer:
    """Return costs, months and, *with_tips*, tipping points of all candidates."""
    terms = scenario.breakeven or Breakeven()
    rate, span = ledgers.horizon.discount_rate, max(terms.months, ceil(ledgers.horizon.months))
    at_load, api = _at_load(ledgers)
    every = _with_api(at_load, api)
    usd_per_h = {name: cost.usd_per_h for name, cost in every.items()}
    models = _models(scenario, ledgers.candidates, api is not None)
    api_wins = API in usd_per_h and min(usd_per_h, key=lambda name: usd_per_h[name]) == API
    # runs before the curves below, which use the loads simulated by this search
    searched = with_tips and not models
    tipping = list(tipping_points(ledgers)) if searched else []
    tipping_of_machines = list(tipping_points(ledgers, with_api=False)) if searched and api_wins else []
    answer = BreakevenAnswer(
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
        tips_searched=with_tips,
        all_simulated=ledgers.all_simulated,
        timings=timings_of_candidates(scenario, ledgers, every if not models else at_load),
        starts=ledgers.horizon.starts,
        uncertain=bool(inputs_of(scenario)),
    )
    return refinanced(answer, ledgers)


def refinanced(answer: BreakevenAnswer, ledgers: CandidateLedgers) -> BreakevenAnswer:
    """Return *answer* with the loans, leases, taxes and books of the scenario of *ledgers*.

    All other terms of that scenario are those of *answer*, whose other figures are before financing and tax.
    """
    at_load, api = _at_load(ledgers)
    every, others = _with_api(at_load, api), (ledgers.scenario.breakeven or Breakeven()).financing
    financed_by = cache(lambda name: _financed(every[name], answer.cash[name], answer.horizon))
    financed = _after_tax(every, financed_by, {one.name: one.fleet for one in answer.candidates}, others)
    return replace(
        answer,
        at_load=at_load,
        api=api,
        after_tax=financed,
        earnings=_earnings(every, financed_by),
        financings=_financings(every, answer.cash, answer.horizon, financed, others),
    )


def _at_load(ledgers: CandidateLedgers) -> tuple[dict[str, Cost], Cost | None]:
    """Return the cost of the scenario's load by candidate, and that of the API; None without an API."""
    found = {one.name: ledgers.cost(one, ledgers.load) for one in ledgers.candidates}
    return found, ledgers.api(list(found.values()))


def _with_api(at_load: dict[str, Cost], api: Cost | None) -> dict[str, Cost]:
    return at_load | ({API: api} if api is not None else {})


def _after_tax(
    costs: Mapping[str, Cost],
    financed: Callable[[str], AfterTax],
    fleets: Mapping[str, str],
    others: Mapping[str, Financing] | None = None,
) -> dict[str, AfterTax]:
    """Return the cost of each candidate with its financing and tax over the horizon in whole months; empty without any.

    *financed* returns it by candidate. A purchase is compared with the other ways to pay for its own fleet (*fleets*:
    candidate -> fleet), else with the cheapest candidate with less capital cost. *others* are further ways to finance,
    which need this cost, too.
    """
    if not others and not any(one.finance is not None and one.finance.is_financed for one in costs.values()):
        return {}
    flows = {name: financed(name) for name in costs}
    present = {name: one.net_present_usd for name, one in flows.items()}
    found = {}
    for name, cost in costs.items():
        cheaper = [one for one in costs if costs[one].flows.capex_usd < cost.flows.capex_usd]
        own = [one for one in cheaper if fleets.get(one) == fleets.get(name)]
        other = min(own or cheaper, key=lambda one: present[one], default="")
        found[name] = compared(flows[name], flows[other], other) if other else flows[name]
    return found


def _financed(cost: Cost, path: Sequence[CumulativeCost], horizon: Horizon) -> AfterTax:
    """Return *cost* with its own financing and tax over the *horizon*; without any, its payments."""
    return as_stated(_payments(cost, path, horizon), cost.finance)


def _earnings(costs: Mapping[str, Cost], financed: Callable[[str], AfterTax]) -> dict[str, Earnings]:
    """Return the value and return of each candidate that sells tokens; *financed* returns its financing and tax."""
    return {name: financed(name).earnings for name, cost in costs.items() if cost.revenue_usd_per_h is not None}


def _payments(cost: Cost, path: Sequence[CumulativeCost], horizon: Horizon) -> Payments:
    """Return the payments of a candidate over the *horizon* in whole months, from its cash in *path*."""
    span = max(1, round(horizon.months))
    path = path[: span + 1]
    bought = [0, *(at.months for at in path[1:-1] if at.months and _is_renewed(cost, at.months))]
    hardware_usd, removal_usd = cost.flows.resold_usd, cost.flows.removal_usd
    holdings = [
        Holding(
            start,
            end,
            cost.flows.capex_usd,
            brings,
            hardware_usd,
            brings + removal_usd,
            moved_usd=tuple(moved_usd(cost.flows, span, start, end, contracts=False)),
            terms_usd=tuple((min(max(0, start + month), end), usd) for month, usd in cost.flows.terms_usd.items()),
        )
        for start, end in pairwise([*bought, span])
        if cost.flows.capex_usd or removal_usd
        for brings in [path[end].brings_usd]
    ]
    prepaid = tuple(moved_usd(cost.flows, span, 0, span)) if not holdings else ()
    holdings += [Holding(0, span, 0.0, 0.0, moved_usd=prepaid)] if prepaid else []
    sold = [] if cost.revenue_usd_per_h is None else [cost.revenue_usd_per_h * HOURS_PER_MONTH] * span
    operating = [at.operating_usd for at in path[1:]]
    carbon = carbon_usd(cost.flows, cost.finance, span)
    if carbon:
        operating = [paid - emitted for paid, emitted in zip(operating, carbon, strict=True)]
    return Payments(operating, holdings, horizon.discount_rate, sold, carbon, horizon.inflation, horizon.starts)


def _financings(
    costs: Mapping[str, Cost],
    cash: Mapping[str, Sequence[CumulativeCost]],
    horizon: Horizon,
    stated: Mapping[str, AfterTax],
    others: Mapping[str, Financing],
) -> dict[str, dict[str, AfterTax]]:
    """Return each candidate of *stated* with each way to finance it, compared as the candidate is."""
    found: dict[str, dict[str, AfterTax]] = {}
    for name, one in stated.items():
        finance = costs[name].finance
        ways = ways_to_finance(_payments(costs[name], cash[name], horizon), finance, others)
        against = stated.get(one.against)
        found[name] = {
            label: way if against is None else compared(way, against, one.against) for label, way in ways.items()
        }
    return found


def _is_renewed(cost: Cost, month: int) -> bool:
    """Return whether hardware is replaced at the end of *month*."""
    return cost.finance is not None and month % cost.finance.whole_life_months == 0


def _models(scenario: Scenario, candidates: Sequence[Candidate], api: bool) -> dict[str, str]:
    """Return the model of every candidate, and of the API; empty where one ranking holds for all.

    The API is compared for the tokens of the first candidate.
    """
    of_fleet = models_of(scenario, scenario.compare)
    if not of_fleet or not candidates:
        return {}
    found = {one.name: of_fleet[one.fleet] for one in candidates}
    if len(set(found.values())) < 2:
        return {}
    return found | ({API: of_fleet[candidates[0].fleet]} if api else {})


def _by_load(ledgers: CandidateLedgers) -> dict[str, list[tuple[float, float]]]:
    """Return the costs by load, from a thirtieth of the least of load and capacities to twice the greatest."""
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
    refusals: list[str] = []
    for position, fleet in enumerate(scenario.fleets):
        if fleet.has_own_costs:
            refusals.append(
                Message("fleets.{position}.pools: ways to pay are compared for whole fleets, not for pools", position)
            )
        elif fleet.cost is None:
            refusals.append(
                Message("fleets.{position}.cost: is missing: the cost of {name} is compared", position, fleet.name)
            )
    return refusals
