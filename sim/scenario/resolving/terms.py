"""Prices and terms of one fleet: its own sections, else the scenario's.

Hardware is not looked up again here: with the same machines, other terms are priced in a tenth of a millisecond.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol, runtime_checkable

from sim.catalogue.catalog import Catalog
from sim.catalogue.market import USD
from sim.cost.buying import Buy
from sim.cost.carbon import Carbon, CarbonPlan, EmbodiedCharge, EmissionCharge
from sim.cost.charge import Charge, FlatCharge
from sim.cost.clock import MIDNIGHT, SiteClock
from sim.cost.cost_plan import Cost, CostPlan, costs_by_pool, resolve_costs
from sim.cost.finance import Finance
from sim.cost.hardware import FleetHardware, PoolFacts
from sim.cost.hosting import PerRack
from sim.cost.operations import Operations
from sim.cost.prices import CostError, Problem, missing_rate_text, with_rates
from sim.cost.rental import Rent
from sim.cost.revenue import Revenue
from sim.cost.site import Site
from sim.cost.token_api import Api
from sim.message import Message
from sim.scenario.experiment import TERMS, Experiment, Fleet
from sim.scenario.reading.layers import put
from sim.validation import Place

SECTIONS = ("cost", *TERMS)
KG, KG_PER_T = "kg CO2e", 1000.0


@dataclass(frozen=True, slots=True)
class Machines:
    """Properties of a fleet's plan that its bill depends on."""

    pools: tuple[PoolFacts, ...]
    servers: float
    """Number of servers that are filled; a fraction where they are shared."""


@dataclass(frozen=True, slots=True)
class FleetTerms:
    """Terms of a fleet: prices of machines and energy, finance, operations, API and carbon."""

    cost: Cost | None
    own_costs: tuple[Cost | None, ...]
    """Cost section of each pool; None: the fleet's."""
    site: Site | None
    finance: Finance | None
    operations: Operations | None
    api: Api | None
    carbon: Carbon | None
    starts_at: datetime | None
    revenue: Revenue | None = None
    lead_time_months: int | None = None
    """Months from order to delivery of the plan; None without a plan."""

    @classmethod
    def of(cls, scenario: Experiment, fleet: Fleet) -> "FleetTerms":
        """Return the terms of *fleet*, with the sections of *scenario* where it has none."""
        return cls(
            cost=fleet.cost,
            own_costs=tuple(pool.cost for pool in fleet.pools),
            site=fleet.site or scenario.site,
            finance=fleet.finance or scenario.finance,
            operations=fleet.operations or scenario.operations,
            api=fleet.api or scenario.api,
            carbon=fleet.carbon or scenario.carbon,
            starts_at=scenario.starts_at,
            revenue=fleet.revenue or scenario.revenue,
            lead_time_months=None if (plan := getattr(scenario, "plan", None)) is None else plan.lead_time_months,
        )

    def ordered(self, cost: Cost | None) -> Cost | None:
        """Return *cost* with the plan's lead time where it states none and has a deposit at the order."""
        if not isinstance(cost, Buy) or cost.lead_time_months is not None or self.lead_time_months is None:
            return cost
        if cost.payment is None or not cost.payment.at_order:
            return cost
        return cost.model_copy(update={"lead_time_months": self.lead_time_months})

    @property
    def is_priced(self) -> bool:
        """True if the fleet or a pool has a `cost` section."""
        return self.cost is not None or any(own is not None for own in self.own_costs)

    @property
    def clock(self) -> SiteClock | None:
        """Local time at the site, for terms that depend on the hour; None without `starts_at`. Raises ClockError."""
        return (
            None if self.starts_at is None else SiteClock.of(self.starts_at, self.site.timezone if self.site else None)
        )

    @property
    def by_height(self) -> bool:
        """True if the bill depends on the height of servers."""
        hosting = self.site.hosting if self.site is not None else None
        bought = any(isinstance(cost, Buy) for cost in (self.cost, *self.own_costs))
        return bought and isinstance(hosting, PerRack) and hosting.by_height

    @property
    def facility_factor(self) -> float:
        """Ratio of the site's energy to that of the servers; 1 without a site."""
        return self.site.facility_factor if self.site else 1.0

    def costs(self, machines: Machines, catalog: Catalog, copies: int = 1) -> CostPlan | None:
        """Return the charges for *copies* of *machines*; None without a `cost`.

        Raises CostError with all missing prices.
        """
        if not self.is_priced:
            return None

        operations = _with_rates(self.operations, catalog)

        def priced(cost: Cost | None, pools: Sequence[PoolFacts], others: Sequence[FleetHardware] = ()) -> CostPlan:
            if cost is None:
                raise CostError(Problem("cost", "is missing: other pools of the fleet have one"))
            context = (self.clock, operations, self.api, others, copies)
            return resolve_costs(self.ordered(cost) or cost, self.site, self.finance, pools, catalog.prices, *context)

        if all(own is None for own in self.own_costs):
            costs = priced(self.cost, machines.pools)
        else:
            costs = costs_by_pool([own or self.cost for own in self.own_costs], machines.pools, priced, copies)
        if self.carbon is not None and self.carbon.usd_per_t is not None:
            costs = replace(costs, charges=(*costs.charges, *self._emission_charges(machines, catalog, copies)))
        return costs if self.revenue is None else replace(costs, revenue=self.revenue)

    def _emission_charges(self, machines: Machines, catalog: Catalog, copies: int) -> Iterator[Charge]:
        """Yield the charges of an internal carbon price; raises CostError where emissions or the rate are not known."""
        plan, carbon = self.carbon_plan(machines, catalog, copies), self.carbon
        assert plan is not None
        assert carbon is not None
        assert carbon.usd_per_t is not None
        fx = self.finance.rates if self.finance else {}
        if carbon.usd_per_t.currency not in (USD, *fx):
            text = missing_rate_text(carbon.usd_per_t.currency, fx)
            raise CostError(Problem("carbon.usd_per_t", text))
        unknown = [pool.gpu for pool in machines.pools if pool.gpu_tdp_w is None]
        if unknown:
            text = Message("the power of {id} is not known, so its emissions have no price", unknown[0])
            raise CostError(Problem("carbon.usd_per_t", text))
        if len(plan.grid_g_per_kwh) > 1 and self.starts_at is None:
            text = "a price of emissions by the hour needs starts_at: the date and time of day at simulated time 0"
            raise CostError(Problem("carbon.grid_g_per_kwh", text))
        stated = with_rates(carbon.usd_per_t, fx).unit_price("t CO2e", "carbon.usd_per_t")
        price, gpus = stated.per(KG, stated.usd / KG_PER_T), float(sum(pool.gpus for pool in machines.pools))
        for pool in machines.pools:
            place = (pool.name, pool.server_id)
            yield EmissionCharge(*place, plan, carbon.priced == "market", price)
            kg_per_h = plan.embodied_kg_per_h * float(pool.gpus) / gpus if gpus else 0.0
            if kg_per_h and plan.busy_fraction is None:
                yield FlatCharge("carbon_price", *place, copies * kg_per_h, price)
            elif kg_per_h and plan.busy_fraction is not None:
                yield EmbodiedCharge(*place, kg_per_h / float(pool.gpus) / plan.busy_fraction, price)

    def carbon_plan(self, machines: Machines, catalog: Catalog, copies: int = 1) -> CarbonPlan | None:
        """Return the greenhouse gases of *machines*, one of *copies* equal fleets; None without `carbon`.

        Raises CostError where a GPU has no figure.
        """
        if self.carbon is None:
            return None
        gpus: dict[str, float] = {}
        for pool in machines.pools:
            gpus[pool.gpu] = gpus.get(pool.gpu, 0) + float(pool.gpus)
        grid = catalog.grid(self.carbon.grid) if self.carbon.grid is not None else None
        ways = zip(machines.pools, self.own_costs or [None] * len(machines.pools), strict=True)
        rented = {pool.name for pool, own in ways if isinstance(own or self.cost, Rent)}
        owned = [pool.name for pool in machines.pools if pool.name not in rented]
        book = self.site.contract_book(owned, copies) if self.site is not None else None
        place = (self.facility_factor, self.clock or MIDNIGHT, grid)
        return self.carbon.plan(gpus, machines.servers, *place, rented, book)

    def data(self) -> dict[str, Any]:
        """Return every section as plain data, as in a scenario file."""
        sections = {name: getattr(self, name) for name in SECTIONS}
        return {name: one.model_dump(exclude_unset=True) for name, one in sections.items() if one}

    def with_values(self, data: Mapping[str, Any], values: Mapping[Place, Any]) -> "FleetTerms":
        """Return these terms with *values* set, keyed by place from the section on: ("site", "pue").

        *data* is the result of `data`. Raises pydantic.ValidationError where a value is not allowed.
        """
        changed: dict[str, Any] = {}
        for place, value in values.items():
            section = str(place[0])
            if section not in changed:
                changed[section] = _deep_copy(data[section])
            put(changed[section], place[1:], value)
        return replace(self, **{name: type(getattr(self, name)).model_validate(one) for name, one in changed.items()})


def _deep_copy(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _deep_copy(value) for key, value in data.items()}
    return [_deep_copy(item) for item in data] if isinstance(data, list | tuple) else data


def place_in_terms(place: Place, position: int, fleet: Fleet) -> Place | None:
    """Return the place in a fleet's terms of a value at *place* of the scenario; None if it has none.

    >>> place_in_terms(("fleets", 1, "cost", "quotes", "l4"), 1, Fleet.model_construct(site=None))
    ('cost', 'quotes', 'l4')
    >>> place_in_terms(("site", "pue"), 0, Fleet.model_construct(site=None))
    ('site', 'pue')
    """
    if place[0] == "fleets":
        return place[2:] if place[1] == position and place[2] in SECTIONS else None
    if place[0] not in SECTIONS or getattr(fleet, str(place[0])) is not None:
        return None
    return place


class Reporting(Protocol):
    """Scenario or fleet with a `finance` section, which names a currency."""

    @property
    def finance(self) -> Finance | None:
        """Financing terms and currency of reports."""


@runtime_checkable
class ReportingFleets(Reporting, Protocol):
    """Scenario of any kind with fleets."""

    @property
    def fleets(self) -> Sequence[Reporting]:
        """Candidate fleets of the scenario."""


def reporting_currency(scenario: ReportingFleets) -> tuple[str, float]:
    """Return the currency of the report, and US dollars per unit of it.

    It is the `finance.currency` of the scenario, else that of the first fleet that names another than the dollar.
    """
    sections = [scenario.finance, *(fleet.finance for fleet in scenario.fleets)]
    named = [one for one in sections if one is not None and one.currency != "USD"]
    return (named[0].currency, named[0].rates.get(named[0].currency, 1.0)) if named else ("USD", 1.0)


def other_currencies(scenario: ReportingFleets) -> Iterator[tuple[int, str]]:
    """Yield (index, message) of fleets whose own `finance` reports in another currency or at another rate."""
    code, usd = reporting_currency(scenario)
    for index, fleet in enumerate(scenario.fleets):
        own = fleet.finance
        if own is None or own.currency == "USD" or own.currency not in own.rates:
            continue
        if (own.currency, own.rates[own.currency]) != (code, usd):
            text = Message(
                "reports in {currency} at {rates:g} US dollars, the rest in {code} at {usd:g}",
                own.currency,
                own.rates[own.currency],
                code,
                usd,
            )
            yield index, Message("{text}: one report has one currency and one rate", text)


def _with_rates(operations: Operations | None, catalog: Catalog) -> Operations | None:
    """Return *operations* with its published failure rate looked up. Raises CostError if it is not of GPUs."""
    failures = operations.failures if operations is not None else None
    if operations is None or failures is None or failures.rate is None:
        return operations
    found = catalog.failure_rate(failures.rate)
    if found.component != "gpu":
        text = Message(
            "{rate} is the rate of a {component}; GPUs are what is replaced here", failures.rate, found.component
        )
        raise CostError(Problem("operations.failures.rate", text))
    return operations.model_copy(update={"failures": failures.at(found.mtbf_h.value)})
