"""Several years month by month: for each fleet as a building block, how many are bought, replaced, rented when.

The capacity of one unit within the service level comes from the search of `capacity.py`, its power at part load from a
few simulated cases; units share the load in proportion to their capacity. That n units serve n times the load of one is
on the safe side: a router that sees all of them leaves shorter queues.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from math import ceil, fsum, inf

from sim.catalogue.catalog import Catalog
from sim.cost import CostPlan, MultiYear
from sim.cost.finance.cash_flow import discount_factor
from sim.cost.rent.rental import Rent
from sim.scenario.resolving.resolve import FleetPlan, resolve_fleet
from sim.scenario.resolving.resolved import gpus_of
from sim.scenario.resolving.terms import FleetTerms
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.plan import bridged_fleet
from sim.scenario.year import hours_of, peak_to_mean, usual_load
from sim.study.fleets.capacity.axis import ONLY_RAISED, LoadAxis
from sim.study.fleets.capacity.search import Capacity
from sim.study.metrics.expected import mean_tokens, rate_per_load
from sim.study.money.breakeven.horizon import horizon_of
from sim.study.money.breakeven.tipping import API
from sim.study.money.plan.api import Elsewhere, api_rows, no_api_plan
from sim.study.money.plan.cash import Bills, PlanTerms, Row, cash_rows, owed_usd
from sim.study.money.plan.existing import HeldUnits, UnitKind, standing, still_needed, unlimited
from sim.study.money.plan.sale import best_sales
from sim.study.money.plan.supply import Purchasing, Renting, Supply, supply
from sim.study.money.plan.unit import Declines, Quantities, UnitCosts

TOKENS_PER_PRICE = 1e6


def why_no_plan(scenario: Scenario) -> str:
    """Return what the scenario lacks for a plan, with its key; empty if nothing."""
    if scenario.plan is None:
        return "plan: is missing: years, starts and what else is known of the years to come"
    if scenario.tenant is not None:
        return ONLY_RAISED
    if scenario.service is not None:
        return (
            f"service: {scenario.service} shares pools, and units of a plan share the loads of all services: remove "
            "`service`, and the loads of all grow in proportion"
        )
    return ""


def demand_of(scenario: Scenario) -> MultiYear:
    """Return the plan of *scenario*, whose busiest hours are at least those of its `load_profile`."""
    assert scenario.plan is not None
    peak = max(scenario.plan.peak_to_mean, peak_to_mean(hours_of(scenario)))
    return scenario.plan.model_copy(update={"peak_to_mean": peak})


def usual_demand(scenario: Scenario) -> float:
    """Return the mean load where the plan states none: that of the `load_profile`, else the scenario's."""
    return usual_load(scenario, LoadAxis.of(scenario).start)


@dataclass(frozen=True, slots=True)
class Outlook:
    """Plan of one fleet over the years; without rows where no unit of it meets the service level."""

    fleet: str
    capacity: Capacity
    """Capacity of one unit."""
    gpus: int
    """GPUs of one unit."""
    rows: tuple[Row, ...] = ()
    """Rows of the months, and the closing row."""
    stock: Supply | None = None
    discount_rate: float = 0.0
    reason: str = ""
    """Why there are no rows."""
    held: tuple[HeldUnits, ...] = ()
    """Units in service at the start, with the months in which they are sold."""
    api: bool = False
    """Whether tokens are bought from an API in place of new units."""
    owed_usd: float = 0.0
    """Rent that contracts oblige to pay after the plan; no total counts it."""

    @property
    def months(self) -> Sequence[Row]:
        """The rows without the closing one."""
        return self.rows[:-1]

    @property
    def bought(self) -> int:
        """Units bought over the years."""
        return sum(row.ordered for row in self.rows)

    @property
    def short(self) -> list[Row]:
        """Months whose busiest hours exceed the capacity."""
        return [row for row in self.months if not row.meets_slo]

    @property
    def cumulative_usd(self) -> tuple[float, ...]:
        """Cash paid less cash received since the start, at the end of each month and at the close [USD]."""
        return tuple(accumulate(row.net_usd for row in self.rows))

    @property
    def total_usd(self) -> float:
        """All that is paid less all that is received."""
        return fsum(row.net_usd for row in self.rows)

    @property
    def present_usd(self) -> float:
        """Net present cost: all that is paid less all that is received, discounted to the start [USD]."""
        return fsum(row.present_usd for row in self.rows)

    @property
    def output_tokens(self) -> float:
        """Served over the years."""
        return fsum(row.output_tokens for row in self.rows)

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """Total over what is served; None where nothing is."""
        return self.total_usd / self.output_tokens * TOKENS_PER_PRICE if self.output_tokens else None

    @property
    def levelised_usd_per_million_output_tokens(self) -> float | None:
        """Present value of the costs over present value of the tokens: the price at which the plan breaks even."""
        present = fsum(row.output_tokens * discount_factor(self.discount_rate, row.month + 1) for row in self.months)
        return self.present_usd / present * TOKENS_PER_PRICE if present else None


def outlooks(
    scenario: Scenario, catalog: Catalog, found: Sequence[Capacity], measured: Mapping[str, Quantities]
) -> list[Outlook]:
    """The plan of every fleet, from the capacities *found* of one unit and what a unit *measured* at part load.

    Raises ValueError where the scenario has no `plan` section.
    """
    if scenario.plan is None:
        raise ValueError("the scenario has no plan section")
    plan, tokens, usual = demand_of(scenario), mean_tokens(scenario), usual_demand(scenario)
    by_name = {one.fleet: one for one in found}
    held = existing_units(scenario, catalog, by_name, measured)
    plans = [
        outlook(scenario, plan, fleet, catalog, by_name[fleet.name], measured.get(fleet.name), tokens, usual, held)
        for fleet in scenario.fleets
    ]
    return [*plans, *api_outlook(scenario, catalog, measured, held)]


def outlook(
    scenario: Scenario,
    plan: MultiYear,
    fleet: Fleet,
    catalog: Catalog,
    capacity: Capacity,
    measured: Quantities | None,
    tokens: tuple[float, float],
    usual_load: float,
    held: tuple[HeldUnits, ...] = (),
) -> Outlook:
    """Return one fleet's plan around the units *held*, from the *capacity* and the quantities of one unit."""
    built = resolve_fleet(scenario, fleet, catalog)
    gpus = int(gpus_of(built.pools))
    if reason := _no_plan(measured, built, capacity, held):
        return Outlook(fleet.name, capacity, gpus, reason=reason)
    assert measured is not None
    finance = fleet.finance or scenario.finance
    rate = plan.discount_rate if plan.discount_rate is not None else horizon_of(scenario).discount_rate
    bridged = bridged_fleet(plan, fleet)
    kind = _kind(scenario, plan, fleet, built, capacity.mean, measured, catalog)
    rented = kind.costs if bridged is None else _unit_costs(scenario, bridged, built, measured, catalog)
    purchasing = None
    if not isinstance(fleet.cost, Rent) and finance is not None:
        purchasing = Purchasing(plan.lead_time_months, finance.whole_life_months)
    renting = _renting(plan, bridged.cost if bridged is not None else fleet.cost, rented)
    demand = plan.demand.by_month(plan.months, usual_load)

    def stock_around(held: Sequence[HeldUnits]) -> Supply:
        needed = [
            still_needed(mean * plan.peak_to_mean, kind.capacity, plan.reserve_units, standing(held, month))
            for month, mean in enumerate(demand)
        ]
        return supply(needed, purchasing, renting)

    bills = Bills(plan, (kind, *(one.kind for one in held if one.kind.fleet != kind.fleet)))
    terms = PlanTerms(plan, kind, rented, rate, tokens, bills)

    def rows_around(held: tuple[HeldUnits, ...]) -> Sequence[Row]:
        return cash_rows(demand, stock_around(held), replace(terms, held=held))

    best = best_sales(held, plan.months, rows_around)
    stock = stock_around(best.held)
    owed = owed_usd(stock, terms)
    return Outlook(fleet.name, capacity, gpus, tuple(best.rows), stock, rate, held=best.held, owed_usd=owed)


def api_outlook(
    scenario: Scenario, catalog: Catalog, measured: Mapping[str, Quantities], held: tuple[HeldUnits, ...] = ()
) -> Iterator[Outlook]:
    """The plan that buys from the scenario's API what the units that are *held* do not serve; none without an API.

    Tokens found in a prefix cache are those of the first fleet that was *measured*.
    """
    fleet = next((one for one in scenario.fleets if FleetTerms.of(scenario, one).api), None)
    if fleet is None or scenario.plan is None:
        return
    plan = demand_of(scenario)
    costs = resolve_fleet(scenario, fleet, catalog).costs
    tariff, finance = costs.api if costs is not None else None, scenario.finance or fleet.finance
    rate = plan.discount_rate if plan.discount_rate is not None else horizon_of(scenario).discount_rate
    capacity, per_load = Capacity(API, inf, None, ()), rate_per_load(scenario)
    if reason := no_api_plan(per_load) or unlimited(held):
        yield Outlook(API, capacity, 0, reason=reason, api=True)
        return
    assert tariff is not None
    assert per_load is not None
    demand = plan.demand.by_month(plan.months, usual_demand(scenario))
    bills = Bills(plan, tuple(one.kind for one in held))
    cached = next((one.cached_fraction for one in measured.values()), 0.0)
    terms = Elsewhere(plan, tariff, finance, rate, mean_tokens(scenario), cached, per_load, bills)
    best = best_sales(held, plan.months, lambda held: api_rows(demand, terms, held))
    yield Outlook(API, capacity, 0, tuple(best.rows), None, rate, held=best.held, api=True)


def _no_plan(measured: Quantities | None, built: FleetPlan, capacity: Capacity, held: Sequence[HeldUnits]) -> str:
    """Why there is none; empty where there is one."""
    if measured is None or built.costs is None:
        return _reason(capacity)
    return unlimited(held)


def _kind(
    scenario: Scenario,
    plan: MultiYear,
    fleet: Fleet,
    built: FleetPlan,
    capacity: float,
    measured: Quantities,
    catalog: Catalog,
) -> UnitKind:
    declines = Declines(plan.price_decline_per_year, plan.rental_decline_per_year, fleet.finance or scenario.finance)
    return UnitKind(fleet.name, _unit_costs(scenario, fleet, built, measured, catalog), capacity, declines)


def existing_units(
    scenario: Scenario, catalog: Catalog, found: Mapping[str, Capacity], measured: Mapping[str, Quantities]
) -> tuple[HeldUnits, ...]:
    """Return the units in service at the start, kept as long as allowed, by the capacities *found* of one unit each."""
    plan = scenario.plan
    assert plan is not None
    fleets = {fleet.name: fleet for fleet in scenario.fleets}
    result = []
    for entry in plan.existing:
        fleet = fleets[entry.fleet]
        finance = fleet.finance or scenario.finance
        built, capacity = resolve_fleet(scenario, fleet, catalog), found[entry.fleet].mean
        what = measured.get(entry.fleet, NOTHING)
        kind = _kind(scenario, plan, fleet, built, capacity, what, catalog)
        age = plan.age_months(entry.bought)
        ends = (finance.whole_life_months if finance is not None else plan.months) - age
        result.append(HeldUnits(kind, entry.units, -age, ends, min(ends, plan.months), entry.book_value_usd))
    return tuple(result)


NOTHING = Quantities((0.0,), (), (0.0,))
"""Quantities of a unit that serves nothing within the service level."""


def _unit_costs(
    scenario: Scenario, fleet: Fleet, built: FleetPlan, measured: Quantities, catalog: Catalog
) -> UnitCosts:
    """Return the costs of units of *fleet*; the machines are those *built*."""

    @cache
    def priced(units: int) -> CostPlan:
        costs = FleetTerms.of(scenario, fleet).costs(built.machines, catalog, units)
        assert costs is not None  # multi_year_complaints has seen to it
        return costs

    return UnitCosts(priced, measured, hours_of(scenario))


def _renting(plan: MultiYear, cost: object, unit: UnitCosts) -> Renting | None:
    """Return how units are rented; None where none is."""
    if not isinstance(cost, Rent):
        return None
    if cost.commitment is None:
        return Renting(plan.rental_term_months)
    return Renting(plan.rental_term_months, unit.committed_units, ceil(cost.commitment.months))


def _reason(capacity: Capacity) -> str:
    if capacity.reason:
        return capacity.reason
    if capacity.requests_run_out:
        return (
            "one unit meets the service level at every load that was tried, and at higher ones all requests arrive "
            "within the warm-up: a longer trace or a shorter warmup_s shows how much it takes"
        )
    if capacity.mean:
        return "one unit meets the service level at every load that was tried: there is no number of units to plan"
    return "one unit does not meet the service level at any load"


def ranked(found: Sequence[Outlook]) -> Iterator[Outlook]:
    """Plans that can be made, the cheapest in present value first."""
    yield from sorted((one for one in found if one.rows), key=lambda one: one.present_usd)
