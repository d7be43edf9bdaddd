"""Plan of several years, month by month: for each fleet as a building block, when to buy, replace and rent units.

The capacity of one unit within the service level comes from the search of `capacity.py`. Its quantities at part load
are interpolated linearly between a few simulated loads; with a `load_profile` these include the loads of its hours in
the plan's first month. Units share the load in proportion to their capacity. The assumption that n units serve n times
the load of one is conservative: a router that sees all of them leaves shorter queues.

A plan without new units buys from an API the load that the existing ones do not serve, until they are sold. The
existing units serve the same part of every hour's traffic, the largest for which their busiest hours are within their
capacity; so no peak is short. The API is paid by tokens, monthly in arrears: docs/money.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from math import ceil, fsum, inf
from pathlib import Path

import numpy as np

from sim.case.run import idle_window
from sim.catalogue.catalog import Catalog
from sim.cost import token_api
from sim.cost.cost_plan import CostPlan
from sim.cost.finance import Annuity, StraightLine
from sim.cost.metering import combined_window
from sim.cost.multi_year import MultiYear
from sim.cost.rental import Rent
from sim.cost.time_value import discount_factor, price_factor, real_rate
from sim.cost.token_api import ApiTariff
from sim.message import Message
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolve import FleetPlan, resolve_fleet
from sim.scenario.resolving.resolved import CasePlan, gpus_of
from sim.scenario.resolving.terms import FleetTerms
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.comparison import bridged_fleet
from sim.scenario.sweep import Case
from sim.scenario.year import hours_of, loads_within, peak_to_mean, usual_load
from sim.study.capacity import FleetCapacity, at_horizon
from sim.study.discounting import horizon_of
from sim.study.execution.cases import Progress, Workplace, do_all, jobs_of
from sim.study.execution.store import StoredCase
from sim.study.financing import AfterTax, Earnings, Payments, as_stated, compared, ways_to_finance
from sim.study.load_axis import ONLY_RAISED, LoadAxis
from sim.study.metrics.expected_load import mean_tokens, rate_per_load
from sim.study.order_timing import OrderTime, OrderTiming, drawn_outlook, expected_outlook, order_months
from sim.study.plan_cash import (
    SECONDS_PER_MONTH,
    MonthlyOperatingCost,
    PlanMonth,
    PlanTerms,
    best_sales,
    cash_rows,
    held_parts,
    held_rps,
    owed_usd,
    payments_of,
    present_usd,
    purchases_of,
    sold_in,
)
from sim.study.plan_units import (
    ROUNDING,
    Declines,
    HeldUnits,
    Purchasing,
    Quantities,
    Renting,
    Supply,
    UnitCosts,
    UnitKind,
    UnitLoads,
    still_needed,
    supply,
    units_in_service,
    units_needed,
    unlimited,
)
from sim.study.rebill import metered

API_LINE = "api"
RENT_MEANWHILE, API_MEANWHILE = "rent", "api"
"""Supply until purchased hardware is delivered."""


@dataclass(frozen=True, slots=True)
class ApiTerms:
    """Terms that convert demand into an API's bill."""

    plan: MultiYear
    tariff: ApiTariff
    finance: StraightLine | Annuity | None
    discount_rate: float
    tokens: tuple[float, float]
    """Mean prompt and output tokens of a request."""
    cached_fraction: float
    """Fraction of prompt tokens found in a prefix cache [1]."""
    rate_per_load: float
    """Requests per second at a load of 1."""
    bills: MonthlyOperatingCost
    """Bills of the units that exist."""

    def usd(self, requests: float, month: int) -> float:
        """Return the cost of a number of *requests* in *month* [USD]."""
        prompt, output = (requests * count for count in self.tokens)
        cached = prompt * self.cached_fraction
        growth = self.finance.growth_of(API_LINE) if self.finance is not None else 0.0
        return self.tariff.usd(prompt - cached, cached, output) * price_factor(-growth, month)


def no_api_plan(rate_per_load: float | None) -> str:
    """Return why no API plan can be made; empty where one can."""
    if rate_per_load is not None:
        return ""
    return (
        "clients that wait for answers send requests as fast as they get answers, and the answers of an API are not "
        "simulated"
    )


def api_rows(demand: Sequence[float], terms: ApiTerms, held: Sequence[HeldUnits]) -> list[PlanMonth]:
    """Return the rows of the months, and the closing row."""
    return [_row(month, demand, terms, held) for month in range(terms.plan.months + 1)]


def _row(month: int, demand: Sequence[float], terms: ApiTerms, held: Sequence[HeldUnits]) -> PlanMonth:
    inside = month < terms.plan.months
    mean = demand[month] if inside else 0.0
    peak = mean * terms.plan.peak_to_mean
    there, sold = units_in_service(held, month), sold_in(month, held)
    capacity = fsum(one.units * one.kind.capacity for one in there)
    share = min(1.0, capacity / peak) if peak else 0.0
    utilisation = UnitLoads(share * mean / capacity, share * peak / capacity) if capacity else UnitLoads(0.0, 0.0)
    elsewhere = (1 - share) * mean
    own, bought = (
        held_rps(there, utilisation) * SECONDS_PER_MONTH,
        elsewhere * terms.rate_per_load * SECONDS_PER_MONTH,
    )
    opex_usd: dict[str, float] = {}
    if inside:
        own_usd, _ = terms.bills.of(month, held_parts(held, month, utilisation))
        opex_usd = {**own_usd, API_LINE: terms.usd(bought, month)}
    at_start_usd = sold.resale_usd - sold.removal_usd
    units = sum(one.units for one in there)
    return PlanMonth(
        month=month,
        demand=mean,
        peak=peak,
        needed=0,
        ordered=0,
        on_order=0,
        owned=units,
        rented=0,
        retired=sum(one.units for one in held if not one.serves(month)),
        capacity=capacity,
        served=share * mean,
        shortfall=0.0,
        requests=own + bought,
        resale_usd=sold.resale_usd,
        decommissioning_usd=sold.removal_usd,
        opex_usd=opex_usd,
        present_usd=present_usd(terms.discount_rate, month, at_start_usd, fsum(opex_usd.values())),
        prompt_tokens=(own + bought) * terms.tokens[0],
        output_tokens=(own + bought) * terms.tokens[1],
        existing=units,
        existing_capacity=capacity,
        existing_sold=sold.units,
        existing_resale_usd=sold.resale_usd,
        gain_usd=sold.gain_usd,
        elsewhere=elsewhere,
    )


TOKENS_PER_PRICE = 1e6


def why_no_plan(scenario: Scenario) -> str:
    """Return what the scenario lacks for a plan, with its key; empty if nothing."""
    if scenario.plan is None:
        return "plan: is missing: years, starts and the known data of the coming years"
    if scenario.tenant is not None:
        return ONLY_RAISED
    if scenario.service is not None:
        return Message(
            "service: {service} shares pools, and units of a plan share the loads of all services: remove "
            "`service`, and all loads grow in proportion",
            scenario.service,
        )
    return ""


def demand_of(scenario: Scenario) -> MultiYear:
    """Return the plan of *scenario*, with a peak of at least that of its `load_profile`."""
    assert scenario.plan is not None
    peak = max(scenario.plan.peak_to_mean, peak_to_mean(hours_of(scenario)))
    return scenario.plan.model_copy(update={"peak_to_mean": peak})


def usual_demand(scenario: Scenario) -> float:
    """Return the mean load where the plan states none: that of the `load_profile`, else the scenario's."""
    return usual_load(scenario, LoadAxis.of(scenario).start)


@dataclass(frozen=True, slots=True)
class FleetPlanOutlook:
    """Plan of one fleet over the years; without rows where no unit of it meets the service level."""

    fleet: str
    capacity: FleetCapacity
    """Capacity of one unit."""
    gpus: int
    """GPUs of one unit."""
    rows: tuple[PlanMonth, ...] = ()
    """Rows of the months, and the closing row."""
    stock: Supply | None = None
    discount_rate: float = 0.0
    inflation: float | None = None
    """General inflation per year; None: not stated."""
    reason: str = ""
    """Reason why there are no rows."""
    held: tuple[HeldUnits, ...] = ()
    """Units in service at the start, with the months in which they are sold."""
    api: bool = False
    """True if tokens are bought from an API in place of new units."""
    owed_usd: float = 0.0
    """Rent that contracts oblige to pay after the plan [USD]; not part of any total."""
    financings: Mapping[str, AfterTax] = field(default_factory=dict)
    """Way to finance -> cost after financing and tax, the stated one last; empty where none is stated."""
    earnings: Earnings | None = None
    """Value and return of the revenue less all costs and taxes; None without prices of tokens."""
    timing: OrderTiming | None = None
    """Months of the first order that are compared; None without `price_paths`, or where only one month is possible."""

    @property
    def after_tax(self) -> AfterTax | None:
        """Cost after the stated financing and tax; None where none is stated."""
        return list(self.financings.values())[-1] if self.financings else None

    @property
    def months(self) -> Sequence[PlanMonth]:
        """Rows without the closing one."""
        return self.rows[:-1]

    @property
    def bought(self) -> int:
        """Number of units bought over the years."""
        return sum(row.ordered for row in self.rows)

    @property
    def short(self) -> list[PlanMonth]:
        """Months whose busiest hours exceed the capacity."""
        return [row for row in self.months if not row.meets_slo]

    @property
    def cumulative_usd(self) -> tuple[float, ...]:
        """Cash paid minus cash received since the start, at the end of each month and at the close [USD]."""
        return tuple(accumulate(row.net_usd for row in self.rows))

    @property
    def total_usd(self) -> float:
        """Cash paid minus cash received over the plan [USD]."""
        return fsum(row.net_usd for row in self.rows)

    @property
    def present_usd(self) -> float:
        """Net present cost: all that is paid minus all that is received, discounted to the start [USD]."""
        return fsum(row.present_usd for row in self.rows)

    @property
    def output_tokens(self) -> float:
        """Number of output tokens served over the years."""
        return fsum(row.output_tokens for row in self.rows)

    @property
    def usd_per_million_output_tokens(self) -> float | None:
        """Total cost per million served output tokens [USD]; None where nothing is served."""
        return self.total_usd / self.output_tokens * TOKENS_PER_PRICE if self.output_tokens else None

    @property
    def levelised_usd_per_million_output_tokens(self) -> float | None:
        """Levelised cost: present value of the costs over that of the tokens [USD per million output tokens].

        A plan that sells tokens at this price breaks even. None where nothing is served.
        """
        return self._levelised_usd(self.discount_rate)

    @property
    def real_levelised_usd_per_million_output_tokens(self) -> float | None:
        """Levelised cost in today's money: tokens at this price, which follows inflation, break even [USD].

        None without general inflation.
        """
        return None if self.inflation is None else self._levelised_usd(real_rate(self.discount_rate, self.inflation))

    def _levelised_usd(self, rate: float) -> float | None:
        """Return the price per million output tokens whose present value is that of the costs, discounted at *rate*."""
        present = fsum(row.output_tokens * discount_factor(rate, row.month + 1) for row in self.months)
        return self.present_usd / present * TOKENS_PER_PRICE if present else None


def outlooks(
    scenario: Scenario, catalog: Catalog, found: Sequence[FleetCapacity], measured: Mapping[str, Quantities]
) -> list[FleetPlanOutlook]:
    """Return the plan of every fleet, from the capacities *found* and the part-load quantities *measured* of one unit.

    Raises
    ------
    ValueError
        Where the scenario has no `plan` section.

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
    return _with_returns([*plans, *api_outlook(scenario, catalog, measured, held)])


def _with_returns(found: Sequence[FleetPlanOutlook]) -> list[FleetPlanOutlook]:
    """Return the plans with the returns of each against the cheapest after tax that has less capital cost."""
    after = {one.fleet: one.after_tax for one in found if one.after_tax is not None}
    capital = {one.fleet: fsum(row.capital_usd for row in one.rows) for one in found}
    result = []
    for one in found:
        cheaper = [name for name in after if one.financings and capital[name] < capital[one.fleet]]
        other = min(cheaper, key=lambda name: after[name].net_present_usd, default="")
        ways = {label: compared(way, after[other], other) if other else way for label, way in one.financings.items()}
        result.append(replace(one, financings=ways) if ways else one)
    return result


def _financings(payments: Payments, finance: StraightLine | Annuity | None) -> dict[str, AfterTax]:
    """Return the cost of each way to finance a plan; empty where neither financing nor tax is stated."""
    return ways_to_finance(payments, finance) if finance is not None and finance.is_financed else {}


def _earnings(payments: Payments, finance: StraightLine | Annuity | None) -> Earnings | None:
    """Return the value and return of a plan with its financing and tax; None where the scenario sells no tokens."""
    return as_stated(payments, finance).earnings if payments.revenue_usd else None


def outlook(
    scenario: Scenario,
    plan: MultiYear,
    fleet: Fleet,
    catalog: Catalog,
    capacity: FleetCapacity,
    measured: Quantities | None,
    tokens: tuple[float, float],
    usual_load: float,
    held: tuple[HeldUnits, ...] = (),
) -> FleetPlanOutlook:
    """Return one fleet's plan around the units *held*, from the *capacity* and the quantities of one unit."""
    built = resolve_fleet(scenario, fleet, catalog)
    gpus = int(gpus_of(built.pools))
    if reason := _no_plan(measured, built, capacity, held):
        return FleetPlanOutlook(fleet.name, capacity, gpus, reason=reason)
    assert measured is not None
    finance = fleet.finance or scenario.finance
    rate = plan.discount_rate if plan.discount_rate is not None else horizon_of(scenario).discount_rate
    bridged = bridged_fleet(plan, fleet)
    kind = _kind(scenario, plan, fleet, built, capacity.mean, measured, catalog)
    rented = kind.costs if bridged is None else _unit_costs(scenario, bridged, built, measured, catalog)
    purchasing = None
    if not isinstance(fleet.cost, Rent) and finance is not None:
        own = fleet.cost.lead_time_months if fleet.cost is not None else None
        purchasing = Purchasing(plan.lead_time_months if own is None else own, finance.whole_life_months)
    renting = _renting(plan, bridged.cost if bridged is not None else fleet.cost, rented)
    demand = plan.demand.by_month(plan.months, usual_load)

    def needed_around(held: Sequence[HeldUnits]) -> list[int]:
        return [
            still_needed(mean * plan.peak_to_mean, kind.capacity, plan.reserve_units, units_in_service(held, month))
            for month, mean in enumerate(demand)
        ]

    def stock_around(held: Sequence[HeldUnits]) -> Supply:
        return supply(needed_around(held), purchasing, renting)

    bills = MonthlyOperatingCost(plan, (kind, *(one.kind for one in held if one.kind.fleet != kind.fleet)))
    terms = PlanTerms(plan, kind, rented, rate, tokens, bills)

    def rows_around(held: tuple[HeldUnits, ...]) -> Sequence[PlanMonth]:
        return cash_rows(demand, stock_around(held), replace(terms, held=held))

    best = best_sales(held, plan.months, rows_around)
    stock = stock_around(best.held)
    prices = built.costs.revenue if built.costs is not None else None
    owed = owed_usd(stock, terms)
    payments = payments_of(best.rows, best.held, rate, purchases_of(stock, terms), prices)
    payments = payments._replace(inflation=horizon_of(scenario).inflation, starts=plan.starts)
    timing = None
    if scenario.price_paths is not None and purchasing is not None:
        ways = OrderWays(purchasing, renting, _api_usd(scenario, terms, measured, demand), needed_around)
        timing = _order_timing(demand, ways, replace(terms, held=best.held), _drawn_terms(scenario, terms, best.held))
    return FleetPlanOutlook(
        fleet.name,
        capacity,
        gpus,
        tuple(best.rows),
        stock,
        rate,
        horizon_of(scenario).inflation,
        held=best.held,
        owed_usd=owed,
        financings=_financings(payments, finance),
        earnings=_earnings(payments, finance),
        timing=timing,
    )


@dataclass(frozen=True, slots=True)
class OrderWays:
    """Ways to serve the demand until hardware is delivered, and after."""

    purchasing: Purchasing
    renting: Renting | None
    api_usd: Sequence[float]
    """Cost of each month's demand at the API [USD]; empty without an API."""
    needed: Callable[[Sequence[HeldUnits]], Sequence[int]]
    """Function of the existing units: number of further units needed in each month."""


def _api_usd(scenario: Scenario, terms: PlanTerms, measured: Quantities, demand: Sequence[float]) -> Sequence[float]:
    """Return the cost of each month's *demand* at the scenario's API [USD]; empty where no API can serve it."""
    tariff, per_load = terms.kind.costs.priced(1).api, rate_per_load(scenario)
    if tariff is None or per_load is None:
        return ()
    finance = terms.kind.declines.finance
    plan, rate, tokens, cached = terms.plan, terms.discount_rate, terms.tokens, measured.cached_fraction
    api = ApiTerms(plan, tariff, finance, rate, tokens, cached, per_load, terms.bills)
    return [api.usd(mean * per_load * SECONDS_PER_MONTH, month) for month, mean in enumerate(demand)]


def _drawn_terms(scenario: Scenario, terms: PlanTerms, held: tuple[HeldUnits, ...]) -> PlanTerms | None:
    """Return *terms* with the prices of all draws, around the units *held*; None where no price is random."""
    drawn = drawn_outlook(scenario, terms.plan.starts, terms.plan.months)
    if drawn is None:
        return None

    def at_drawn(kind: UnitKind) -> UnitKind:
        return replace(kind, declines=replace(kind.declines, outlook=drawn))

    units = tuple(replace(one, kind=at_drawn(one.kind), book_value_usd=None) for one in held)
    bills = MonthlyOperatingCost(terms.plan, tuple(map(at_drawn, terms.bills.kinds)))
    return replace(terms, kind=at_drawn(terms.kind), bills=bills, held=units)


def _order_timing(
    demand: Sequence[float], ways: OrderWays, expected: PlanTerms, drawn: PlanTerms | None
) -> OrderTiming | None:
    """Return the months of order that leave no more load unserved than ordering now; None where there is no other.

    Existing units are sold as in the plan that orders now.
    """
    plan, lead = expected.plan, ways.purchasing.lead_time_months
    needed = list(ways.needed(expected.held))
    found: list[tuple[float, OrderTime]] = []
    for first in [*order_months(max(1, plan.months - lead)), None]:
        purchasing = None if first is None else replace(ways.purchasing, first_order=first)
        served = plan.months if first is None else first + lead
        for by_api in (False, True) if ways.api_usd and served and not expected.held else (False,):
            elsewhere = ways.api_usd[:served] if by_api else ()
            rest = [0] * len(elsewhere) + needed[len(elsewhere) :]
            stock = supply(rest, purchasing, None if by_api else ways.renting)
            rows = cash_rows(demand, stock, expected)
            api_usd = fsum(present_usd(expected.discount_rate, month, 0.0, usd) for month, usd in enumerate(elsewhere))
            usd = np.array([api_usd + fsum(row.present_usd for row in rows)])
            expected_usd = float(usd[0])
            if drawn is not None:
                usd = np.asarray(api_usd + sum(np.asarray(row.present_usd) for row in cash_rows(demand, stock, drawn)))
            meanwhile = API_MEANWHILE if by_api else RENT_MEANWHILE if stock.contracts else ""
            missing = fsum(row.shortfall for row in rows[len(elsewhere) :])
            found.append((missing, OrderTime(first, meanwhile, expected_usd, usd)))
    least = min(missing for missing, one in found if one.month == 0) + ROUNDING * fsum(demand)
    times = tuple(one for missing, one in found if missing <= least)
    return OrderTiming(times) if len(times) > 1 else None


def api_outlook(
    scenario: Scenario, catalog: Catalog, measured: Mapping[str, Quantities], held: tuple[HeldUnits, ...] = ()
) -> Iterator[FleetPlanOutlook]:
    """Yield the plan that buys the load beyond the *held* units from the scenario's API; none without an API.

    Tokens found in a prefix cache are those of the first fleet that was *measured*.
    """
    fleet = next((one for one in scenario.fleets if FleetTerms.of(scenario, one).api), None)
    if fleet is None or scenario.plan is None:
        return
    plan = demand_of(scenario)
    costs = resolve_fleet(scenario, fleet, catalog).costs
    tariff, finance = costs.api if costs is not None else None, scenario.finance or fleet.finance
    rate = plan.discount_rate if plan.discount_rate is not None else horizon_of(scenario).discount_rate
    capacity, per_load = FleetCapacity(token_api.NAME, inf, None, ()), rate_per_load(scenario)
    if reason := no_api_plan(per_load) or unlimited(held):
        yield FleetPlanOutlook(token_api.NAME, capacity, 0, reason=reason, api=True)
        return
    assert tariff is not None
    assert per_load is not None
    demand = plan.demand.by_month(plan.months, usual_demand(scenario))
    bills = MonthlyOperatingCost(plan, tuple(one.kind for one in held))
    cached = next((one.cached_fraction for one in measured.values()), 0.0)
    terms = ApiTerms(plan, tariff, finance, rate, mean_tokens(scenario), cached, per_load, bills)
    best = best_sales(held, plan.months, lambda held: api_rows(demand, terms, held))
    sold = costs.revenue if costs is not None else None
    growth = horizon_of(scenario).inflation
    payments = payments_of(best.rows, best.held, rate, prices=sold)._replace(inflation=growth, starts=plan.starts)
    yield FleetPlanOutlook(
        token_api.NAME,
        capacity,
        0,
        tuple(best.rows),
        None,
        rate,
        growth,
        held=best.held,
        api=True,
        financings=_financings(payments, finance),
        earnings=_earnings(payments, finance),
    )


def _no_plan(measured: Quantities | None, built: FleetPlan, capacity: FleetCapacity, held: Sequence[HeldUnits]) -> str:
    """Return why no plan can be made; empty where one can."""
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
    finance, outlook = fleet.finance or scenario.finance, expected_outlook(scenario, plan.starts)
    declines = Declines(plan.price_decline_per_year, plan.rental_decline_per_year, finance, outlook)
    return UnitKind(fleet.name, _unit_costs(scenario, fleet, built, measured, catalog), capacity, declines)


def existing_units(
    scenario: Scenario, catalog: Catalog, found: Mapping[str, FleetCapacity], measured: Mapping[str, Quantities]
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
        held = HeldUnits(kind, entry.units, -age, ends, min(ends, plan.months), entry.book_value_usd)
        result.append(replace(held, book=held.stated_book))
    return tuple(result)


NOTHING = Quantities((0.0,), (), (0.0,))
"""Quantities of a unit that serves nothing within the service level."""


def _unit_costs(
    scenario: Scenario, fleet: Fleet, built: FleetPlan, measured: Quantities, catalog: Catalog
) -> UnitCosts:
    """Return the costs of units of *fleet* with the machines *built*."""

    @cache
    def priced(units: int) -> CostPlan:
        costs = FleetTerms.of(scenario, fleet).costs(built.machines, catalog, units)
        assert costs is not None  # the checks of the scenario refuse a fleet without costs
        return costs

    return UnitCosts(priced, measured, hours_of(scenario))


def _renting(plan: MultiYear, cost: object, unit: UnitCosts) -> Renting | None:
    """Return the terms on which units are rented; None where none are."""
    if not isinstance(cost, Rent):
        return None
    if cost.commitment is None:
        return Renting(plan.rental_term_months)
    return Renting(plan.rental_term_months, unit.committed_units, ceil(cost.commitment.months))


def _reason(capacity: FleetCapacity) -> str:
    if capacity.reason:
        return capacity.reason
    if capacity.requests_run_out:
        return (
            "one unit meets the service level at every simulated load, and at higher loads all requests arrive "
            "within the warm-up: a longer trace or a shorter warmup_s shows its capacity"
        )
    if capacity.mean:
        return "one unit meets the service level at every simulated load: there is no number of units to plan"
    return "one unit does not meet the service level at any load"


def ranked(found: Sequence[FleetPlanOutlook]) -> Iterator[FleetPlanOutlook]:
    """Yield the plans that can be made, the cheapest in present value first."""
    yield from sorted((one for one in found if one.rows), key=lambda one: one.present_usd)


FRACTIONS = (0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7)
"""Simulated loads, as fractions of a unit's capacity.

The cases at capacity itself come from the search, power at no load from the hardware. Power is proportional to load
only where requests hardly ever overlap, and hardly rises where they always do; the load between depends on the fleet.
"""
SPARSE = 0.05
"""Fraction of a unit's capacity below which a window has few requests, so that its tokens determine its load."""


def part_loads(
    scenario: Scenario,
    catalog: Catalog,
    found: Sequence[FleetCapacity],
    out: Path,
    workplace: Workplace,
    progress: Progress = lambda *_: None,
) -> dict[str, Quantities]:
    """Return fleet -> quantities of one unit at part load, without fleets that have no capacity.

    Cases are stored under `out/points`.
    """
    usable = [one for one in found if 0 < one.mean < float("inf")]
    # the cases at capacity are those of the search, so all are measured over its horizon
    scenario = at_horizon(scenario, usable[0].horizon_s if usable else None)
    axis = LoadAxis.of(scenario)
    jobs = jobs_of(scenario, [case for one in usable for case in _cases(one, axis, scenario)], catalog, out)
    do_all(workplace, jobs, progress)
    result = {}
    for one in usable:
        loaded = [(float(job.case.axes[axis.label]), job.stored()) for job in jobs if job.case.fleet == one.fleet]
        stored = [*loaded, *((one.mean, each.at) for each in one.found)]
        plan = resolve(scenario, Case(one.fleet, {}, {}, 0), catalog)
        simulated = [(load, case) for load, case in stored if case is not None]
        result[one.fleet] = quantities(plan, simulated, rate_per_load(scenario))
    return result


def _cases(one: FleetCapacity, axis: LoadAxis, scenario: Scenario) -> list[Case]:
    loads = {axis.value(load) for load in (*(f * one.mean for f in FRACTIONS), *_of_profile(one, scenario))}
    return [
        Case(one.fleet, {axis.label: load}, axis.overrides(load), each.replication)
        for load in sorted(loads)
        if load < one.mean
        for each in one.found
    ]


def _of_profile(one: FleetCapacity, scenario: Scenario) -> list[float]:
    """Return the loads of one unit in the hours of a year, as in the plan's first month with demand."""
    hours = hours_of(scenario)
    if len(hours) < 2 or scenario.plan is None:
        return []
    plan = demand_of(scenario)
    mean = next((load for load in plan.demand.by_month(plan.months, usual_demand(scenario)) if load), 0.0)
    if not mean:
        return []
    return loads_within(hours, mean / units_needed(mean * plan.peak_to_mean, one.mean, plan.reserve_units))


def quantities(
    plan: CasePlan, simulated: Sequence[tuple[float, StoredCase]], rate_per_load: float | None
) -> Quantities:
    """Return means over the replications of each load in *simulated*, (load, case), and the idle unit of *plan*.

    *rate_per_load* is requests per second per unit of load; None where the simulation determines it (a closed loop).
    """
    cases: dict[float, list[StoredCase]] = {}
    for load, case in sorted(simulated, key=lambda one: one[0]):
        cases.setdefault(load, []).append(case)
    sparse = 0.0 if rate_per_load is None else SPARSE * max(cases)
    per_load = _tokens_per_h([case for load in cases if load >= sparse for case in cases[load]]) / fsum(
        load * len(cases[load]) for load in cases if load >= sparse
    )
    found = [(0.0, idle_window(plan), 0.0)]
    for load, at_load in cases.items():
        window = combined_window([metered(case, plan) for case in at_load])
        simulated_rps = fsum(case.metrics["requests_per_s"] for case in at_load) / len(at_load)
        at = load if load >= sparse else _tokens_per_h(at_load) / len(at_load) / per_load
        if at:
            found.append((at, window, simulated_rps if rate_per_load is None else rate_per_load * at))
    found.sort(key=lambda one: one[0])
    return Quantities(*map(tuple, zip(*found, strict=True)))


def _tokens_per_h(cases: Sequence[StoredCase]) -> float:
    """Return the sum of the output tokens per hour of *cases*."""
    return fsum(case.metrics["output_tokens"] / case.metrics["window_h"] for case in cases)
