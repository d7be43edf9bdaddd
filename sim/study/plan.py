"""Several years month by month: for each fleet as a building block, how many are bought, replaced, rented when.

The capacity of one unit within the service level comes from the search of `capacity.py`, its power at part load from a
few simulated cases; units share the load evenly. That n units serve n times the load of one is on the safe side: a
router that sees all of them leaves shorter queues.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, fsum

from sim.catalog.catalog import Catalog
from sim.cost import CostPlan, MultiYear
from sim.cost.cash_flow import discount_factor
from sim.cost.rental import Rent
from sim.scenario.multi_year import bridged_fleet
from sim.scenario.resolve import FleetPlan, resolve_fleet
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.terms import Terms as FleetTerms
from sim.scenario.year import load_by_hour
from sim.study.capacity import Capacity, LoadAxis
from sim.study.expected import mean_tokens
from sim.study.plan_cash import Row, Terms, cash_rows
from sim.study.plan_supply import Purchasing, Supply, supply, units_needed
from sim.study.plan_unit import Declines, Quantities, UnitCosts

TOKENS_PER_PRICE = 1e6


@dataclass(frozen=True, slots=True)
class Outlook:
    """One fleet over the years; without rows where no unit of it meets the service level."""

    fleet: str
    capacity: Capacity
    """Of one unit."""
    gpus: int
    """Of one unit."""
    buys: bool
    rows: tuple[Row, ...] = ()
    """One a month, and the closing one."""
    stock: Supply | None = None
    discount_rate: float = 0.0
    reason: str = ""
    """Why there are no rows."""

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
    def total_usd(self) -> float:
        """All that is paid less all that is received."""
        return -fsum(row.net_usd for row in self.rows)

    @property
    def present_usd(self) -> float:
        """The same at its value at the start: the negative of the net present value."""
        return -fsum(row.present_usd for row in self.rows)

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
    tokens, usual = mean_tokens(scenario), LoadAxis.of(scenario).start
    by_name = {one.fleet: one for one in found}
    return [
        outlook(scenario, scenario.plan, fleet, catalog, by_name[fleet.name], measured.get(fleet.name), tokens, usual)
        for fleet in scenario.fleets
    ]


def outlook(
    scenario: Scenario,
    plan: MultiYear,
    fleet: Fleet,
    catalog: Catalog,
    capacity: Capacity,
    measured: Quantities | None,
    tokens: tuple[float, float],
    usual_load: float,
) -> Outlook:
    """One fleet's plan, from the *capacity* and the quantities of one unit; nothing is simulated."""
    built = resolve_fleet(scenario, fleet, catalog)
    gpus = sum(pool.replicas * pool.gpus_per_replica for pool in built.pools)
    buys = not isinstance(fleet.cost, Rent)
    if measured is None or built.costs is None:
        return Outlook(fleet.name, capacity, gpus, buys, reason=_reason(capacity))
    finance = fleet.finance or scenario.finance
    rate = plan.discount_rate if plan.discount_rate is not None else finance.rate_per_year if finance else 0.0
    bridged = bridged_fleet(scenario, fleet)
    owned = _unit_costs(scenario, fleet, built, measured, catalog)
    terms = Terms(
        plan,
        owned,
        owned if bridged is None else _unit_costs(scenario, bridged, built, measured, catalog),
        measured,
        capacity.mean,
        rate,
        Declines(plan.price_decline_per_year, plan.rental_decline_per_year, finance),
        tokens,
    )
    demand = plan.demand.by_month(plan.months, usual_load)
    needed = [units_needed(mean * plan.peak_to_mean, capacity.mean, plan.reserve_units) for mean in demand]
    purchasing = None
    if buys and finance is not None:
        purchasing = Purchasing(plan.lead_time_months, max(1, round(finance.life_months)))
    stock = supply(needed, purchasing, _term(plan, bridged.cost if bridged is not None else fleet.cost))
    return Outlook(fleet.name, capacity, gpus, buys, tuple(cash_rows(demand, stock, terms)), stock, rate)


def _unit_costs(
    scenario: Scenario, fleet: Fleet, built: FleetPlan, measured: Quantities, catalog: Catalog
) -> UnitCosts:
    """What units of *fleet* cost; the machines are those *built*."""

    @cache
    def priced(units: int) -> CostPlan:
        costs = FleetTerms.of(scenario, fleet).costs(built.machines, catalog, units)
        assert costs is not None  # multi_year_complaints has seen to it
        return costs

    return UnitCosts(priced, measured, load_by_hour(scenario))


def _term(plan: MultiYear, cost: object) -> int | None:
    """Months for which a unit is rented at least; None where none is."""
    if not isinstance(cost, Rent):
        return None
    committed = ceil(cost.commitment.months) if cost.commitment is not None else 1
    return max(1, committed, plan.rental_term_months)


def _reason(capacity: Capacity) -> str:
    if capacity.reason:
        return capacity.reason
    if capacity.mean:
        return "one unit meets the service level at every load that was tried: there is no number of units to plan"
    return "one unit does not meet the service level at any load"


def ranked(found: Sequence[Outlook]) -> Iterator[Outlook]:
    """Plans that can be made, the cheapest in present value first."""
    yield from sorted((one for one in found if one.rows), key=lambda one: one.present_usd)
