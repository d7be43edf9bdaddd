"""Rent, buy or API: what the same tokens cost under each, over utilisation and over months.

Utilisation is the offered load over the fleet's capacity under its service level. Every candidate (a fleet and a way
to pay for it) is simulated at fractions of its own capacity; ways to pay share the simulations, as money changes no
quantity. Beyond one unit's capacity whole units are added, each with an even share of the load.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, exp, log
from pathlib import Path
from typing import Any

import numpy as np

from sim.catalog.catalog import Catalog
from sim.cost.finance import Annuity, StraightLine
from sim.scenario.breakeven import Breakeven
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.study.capacity import Capacity, LoadAxis
from sim.study.execute import Job, Progress, Workplace, do_all
from sim.study.points import jobs_of
from sim.study.rebill import Bill, Rebilling
from sim.study.store import StoredCase
from sim.units import HOURS_PER_MONTH

UTILISATIONS = (0.03, 0.07, 0.15, 0.3, 0.5, 0.7, 0.85, 1.0)
"""Where a fleet's cost is simulated; between two of them it is a straight line."""
OWN_WAY = {"buy": "bought", "rent": "rented"}
"""How a fleet's own `cost` is called beside other ways to pay for it."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A fleet and a way to pay for it."""

    name: str
    fleet: str
    overrides: dict[str, Any]
    """Dotted path -> value that makes the scenario's own bill this candidate's; empty: the fleet's own `cost`."""
    capacity: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a candidate costs at one load, means over replications."""

    load: float
    units: int
    usd_per_h: float
    capital_usd_per_h: float
    capex_usd: float
    output_tokens_per_h: float
    api_usd_per_h: float | None

    @property
    def running_usd_per_h(self) -> float:
        """All but the recovery of purchase money."""
        return self.usd_per_h - self.capital_usd_per_h

    @property
    def usd_per_million_output_tokens(self) -> float:
        """Infinite where nothing was answered."""
        return 1e6 * self.usd_per_h / self.output_tokens_per_h if self.output_tokens_per_h else float("inf")


Overrides = Mapping[str, Any]


class Ledgers:
    """Costs of all candidates at any load, under any prices, from one set of simulations."""

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        found: Sequence[Capacity],
        progress: Progress = lambda *_: None,
    ) -> None:
        """Simulates what is not yet in *out*/points."""
        self.scenario, self.axis = scenario, LoadAxis.of(scenario)
        self.load = (scenario.breakeven or Breakeven()).load or self.axis.start
        self.candidates = list(_candidates(scenario, found))
        capacity_of = {one.fleet: one.capacity for one in self.candidates}
        loads = {
            name: sorted({*(u * most for u in UTILISATIONS), self.share(most)}) for name, most in capacity_of.items()
        }
        self._billing = {
            (name, load): Rebilling(scenario, catalog, cases)
            for (name, load), cases in _simulated(scenario, self.axis, catalog, out, workplace, loads, progress).items()
        }
        self._loads = loads

    def share(self, capacity: float) -> float:
        """The load of one unit where whole units carry the scenario's load evenly."""
        return self.load / ceil(self.load / capacity - 1e-9)

    def cost(self, candidate: Candidate, load: float, overrides: Overrides | None = None) -> Cost:
        """Of as many units as *load* needs, which share it; on straight lines through the loads simulated."""
        units = max(1, ceil(load / candidate.capacity - 1e-9))
        each = load / units
        known = self._loads[candidate.fleet]
        # beyond the ends the line through the nearest two goes on: cost is a fixed part and one per request
        right = min(max(1, int(np.searchsorted(known, each * (1 - 1e-12)))), len(known) - 1)
        low, high = known[right - 1], known[right]
        part = (each - low) / (high - low)
        kept = [(at, weight) for at, weight in ((low, 1 - part), (high, part)) if abs(weight) > 1e-12]
        return self._line(candidate, load, units, [at for at, _ in kept], [weight for _, weight in kept], overrides)

    def _line(
        self,
        candidate: Candidate,
        load: float,
        units: int,
        at: Sequence[float],
        weights: Sequence[float],
        overrides: Overrides | None,
    ) -> Cost:
        wanted = {**candidate.overrides, **(overrides or {})}
        bills = [
            (bill, weight) for x, weight in zip(at, weights, strict=True) for bill in self._bills(candidate, x, wanted)
        ]

        def mean(value: Callable[[Bill], float]) -> float:
            return units * sum(weight * value(bill) for bill, weight in bills) / sum(weight for _, weight in bills)

        api = None if bills[0][0].api_usd_per_h is None else mean(lambda bill: bill.api_usd_per_h or 0.0)
        return Cost(
            load=load,
            units=units,
            usd_per_h=mean(lambda bill: bill.usd_per_h),
            capital_usd_per_h=mean(lambda bill: bill.capital_usd_per_h),
            capex_usd=mean(lambda bill: bill.capex_usd),
            output_tokens_per_h=mean(lambda bill: bill.output_tokens / bill.window_h),
            api_usd_per_h=api,
        )

    def _bills(self, candidate: Candidate, load: float, overrides: Overrides) -> list[Bill]:
        return self._billing[candidate.fleet, load].bills(overrides)

    def curve(self, candidate: Candidate) -> list[tuple[float, Cost]]:
        """(utilisation, cost) of one unit."""
        return [(u, self.cost(candidate, u * candidate.capacity)) for u in UTILISATIONS]

    def api_usd_per_million(self, overrides: Overrides | None = None) -> float | None:
        """What a million output tokens and their prompts cost at the API, at the verdict's load; None without one."""
        for candidate in self.candidates:
            cost = self.cost(candidate, self.load, overrides)
            if cost.api_usd_per_h is not None and cost.output_tokens_per_h:
                return 1e6 * cost.api_usd_per_h / cost.output_tokens_per_h
        return None


def _candidates(scenario: Scenario, found: Sequence[Capacity]) -> Iterator[Candidate]:
    also = (scenario.breakeven or Breakeven()).also
    for position, fleet in enumerate(scenario.fleets):
        capacity = next(one.at_least for one in found if one.fleet == fleet.name)
        if not capacity:
            continue
        ways = also.get(fleet.name, {})
        assert fleet.cost is not None  # breakeven_complaints has seen to it
        own = f"{fleet.name} {OWN_WAY[fleet.cost.acquisition]}" if ways else fleet.name
        yield Candidate(own, fleet.name, {}, capacity)
        for label, cost in ways.items():
            data = cost.model_dump(mode="json", exclude_unset=True)
            yield Candidate(f"{fleet.name} {label}", fleet.name, {f"fleets.{position}.cost": data}, capacity)


def _simulated(
    scenario: Scenario,
    axis: LoadAxis,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    loads: Mapping[str, Sequence[float]],
    progress: Progress,
) -> dict[tuple[str, float], list[tuple[Case, StoredCase]]]:
    """The cases of every fleet at its loads, taken from *out* where they are finished."""
    plain = scenario.model_copy(update={"sweep": None})
    found: dict[tuple[str, float], list[Job]] = {}
    for fleet, values in loads.items():
        for load in values:
            value = axis.value(load)
            cases = [Case(fleet, {axis.label: value}, {axis.path: value}, one) for one in range(scenario.replications)]
            found[fleet, load] = jobs_of(plain, cases, catalog, out)
    do_all(workplace, [job for jobs in found.values() for job in jobs], progress)
    return {key: [(job.case, job.stored()) for job in jobs] for key, jobs in found.items()}


@dataclass(frozen=True, slots=True)
class Month:
    """Where a candidate stands after so many months."""

    months: int
    cash_usd: float
    """Paid so far, nothing sold."""
    net_present_usd: float
    """Present value of all that was paid, less that of what the hardware would fetch now."""


def months(cost: Cost, finance: Annuity | StraightLine | None, count: int) -> list[Month]:
    """Cumulative cost of a candidate month by month.

    Money spent at the end of month m is worth (1 + r)^(-m/12) of today's (net present value: Brealey, Myers and Allen,
    "Principles of Corporate Finance"). Hardware is paid at once and replaced at the end of its life, when it
    fetches its resale value; what it would fetch between is on a straight line, or finance.resale's.
    """
    r = finance.discount_rate if finance is not None else 0.0
    running = cost.running_usd_per_h * HOURS_PER_MONTH
    life = max(1, round(12 * finance.life_years)) if finance is not None else count
    cash, present = cost.capex_usd, cost.capex_usd
    found = [Month(0, cash, present - cost.capex_usd)]
    for month in range(1, count + 1):
        discount = (1 + r) ** (-month / 12)
        age = (month - 1) % life + 1
        cash, present = cash + running, present + running * discount
        worth = cost.capex_usd * (resale_fraction(finance, age / 12) if finance is not None else 0.0)
        found.append(Month(month, cash, present - worth * discount))
        if age == life and month < count and cost.capex_usd:
            cash, present = cash + cost.capex_usd - worth, present + (cost.capex_usd - worth) * discount
    return found


def resale_fraction(finance: Annuity | StraightLine, age_years: float) -> float:
    """Share of the price that hardware fetches at *age_years*, at most its life."""
    if finance.resale is not None:
        return finance.resale.fraction(min(age_years, finance.life_years))
    return 1 - (1 - finance.residual_fraction) * min(1.0, age_years / finance.life_years)


def payback_months(bought: Cost, other_usd_per_h: float) -> float:
    """Months until what a purchase saves has paid for it, nothing discounted; infinite if it saves nothing.

    Simple payback = price / saving per month (Short, Packey and Holt, "A Manual for the Economic Evaluation of Energy
    Efficiency and Renewable Energy Technologies", NREL/TP-462-5173, 1995).
    """
    saving = (other_usd_per_h - bought.running_usd_per_h) * HOURS_PER_MONTH
    return bought.capex_usd / saving if saving > 0 else float("inf")


def below(xs: Sequence[float], first: Sequence[float], second: Sequence[float]) -> list[tuple[float, float]]:
    """The ranges of *xs* in which *first* is below *second*, on straight lines in logarithms.

    >>> below([1.0, 2.0, 4.0], [5.0, 1.0, 1.0], [2.0, 2.0, 2.0])[0][1]
    4.0
    """
    gaps = [log(a) - log(b) for a, b in zip(first, second, strict=True)]
    found: list[tuple[float, float]] = []
    start = xs[0] if gaps[0] < 0 else None
    for i, (gap, following) in enumerate(pairwise(gaps)):
        if (gap < 0) == (following < 0):
            continue
        at = exp(log(xs[i]) + gap / (gap - following) * (log(xs[i + 1]) - log(xs[i])))
        if start is None:
            start = at
        else:
            found.append((start, at))
            start = None
    return found if start is None else [*found, (start, xs[-1])]
