"""Cash flow of a plan by month: payments and receipts, present value, and the best months to sell existing units.

Hardware has the price of the month in which it is ordered and is paid on delivery, with its deployment; it is sold and
removed when its life ends. Hardware still in service at the end of the plan is sold then at its value at that age, in a
closing row after the last month. Those payments fall at the start of their month, operating cost and rent at its end:
docs/money.md. Units of several kinds share the load in proportion to their capacity.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import fsum, prod
from typing import Any, NamedTuple

from sim.cost.charge import MarketPrice
from sim.cost.financing import CARBON_PRICE, Holding
from sim.cost.multi_year import MultiYear
from sim.cost.revenue import Revenue, sold_usd
from sim.cost.time_value import discount_factor
from sim.study.financing import Payments
from sim.study.plan_units import (
    ROUNDING,
    BillLine,
    Contract,
    Declines,
    HeldUnits,
    OrderedUnits,
    ServingUnits,
    Supply,
    UnitBatch,
    UnitCosts,
    UnitKind,
    UnitLoads,
    by_component,
    total,
    units_in_service,
    value_of,
)
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

SECONDS_PER_MONTH = HOURS_PER_MONTH * SECONDS_PER_HOUR


PREPAID = BillLine("rental_reserved", MarketPrice.RENT, 1.0, by_peak=False, committed=True)
"""Line whose price prepaid rent follows."""


class PaidUnits(NamedTuple):
    """Units of one kind under one purchase option."""

    costs: UnitCosts
    declines: Declines
    serving: ServingUnits
    loads: UnitLoads


@dataclass(frozen=True, slots=True)
class MonthlyOperatingCost:
    """Operating cost by month, cached for plans that differ in other respects."""

    plan: MultiYear
    kinds: tuple[UnitKind, ...]
    """Kinds of units that there may be; their lines are in every bill, also at a cost of 0."""
    _known: dict[Any, tuple[dict[str, float], float]] = field(default_factory=dict)

    def of(self, month: int, parts: Sequence[PaidUnits]) -> tuple[dict[str, float], float]:
        """Return (operating cost by component, rent) of all *parts* in *month* [USD]."""
        key = (month, *((part.serving, part.loads) for part in parts))
        if key not in self._known:
            self._known[key] = self._bill(month, parts)
        return self._known[key]

    def _bill(self, month: int, parts: Sequence[PaidUnits]) -> tuple[dict[str, float], float]:
        lines = dict.fromkeys((line for kind in self.kinds for line in kind.costs.monthly_lines), 0.0)
        when = (month, self.plan.calendar(month)[1])
        for part in parts:
            for line, usd_per_h in part.costs.monthly_usd_per_h(part.serving, part.loads, *when, part.declines).items():
                lines[line] = lines.get(line, 0.0) + HOURS_PER_MONTH * usd_per_h
        rental_usd = total(usd for line, usd in lines.items() if line.follows is MarketPrice.RENT)
        opex = {line: usd for line, usd in lines.items() if line.follows is not MarketPrice.RENT}
        return by_component(opex), rental_usd


@dataclass(frozen=True, slots=True)
class PlanTerms:
    """Terms that convert units into payments."""

    plan: MultiYear
    kind: UnitKind
    """Kind of the purchased units; of all new units, where the fleet rents."""
    rented: UnitCosts
    """Costs of rented units: those of purchased units, or the terms that bridge the time until these are delivered."""
    discount_rate: float
    tokens: tuple[float, float]
    """Mean prompt and output tokens of a request."""
    bills: MonthlyOperatingCost
    held: tuple[HeldUnits, ...] = ()
    """Units in service at the start."""


@dataclass(frozen=True, slots=True)
class PlanMonth:
    """Month of one fleet's plan; the closing row has only the sales at the end."""

    month: int
    """Month, counted from 0."""
    demand: float
    """Mean load; 0 in the closing row."""
    peak: float
    needed: int
    ordered: int
    on_order: int
    owned: int
    """Number of purchased units in service, existing ones included."""
    rented: int
    retired: int
    """Number of units retired since the start."""
    capacity: float
    """Load that all units in service serve within the service level."""
    served: float
    """Mean load that is served: the demand, up to the capacity."""
    shortfall: float
    """Load by which the busiest hours exceed the capacity."""
    requests: float
    capex_usd: Mapping[str, float] = field(default_factory=dict)
    """Component -> payment for new hardware at delivery [USD]."""
    resale_usd: float = 0.0
    decommissioning_usd: float = 0.0
    opex_usd: Mapping[str, float] = field(default_factory=dict)
    """Component -> operating cost [USD]."""
    rental_usd: float = 0.0
    present_usd: float = 0.0
    """Net cost of the month, discounted to the start of the plan [USD]."""
    output_tokens: float = 0.0
    prompt_tokens: float = 0.0
    existing: int = 0
    """Units in service that were there before the plan."""
    existing_capacity: float = 0.0
    existing_sold: int = 0
    existing_resale_usd: float = 0.0
    """Proceeds of existing units, a part of `resale_usd` [USD]."""
    gain_usd: float = 0.0
    """Proceeds of sales over the book value of the units sold [USD]; not a payment."""
    elsewhere: float = 0.0
    """Mean load that an API serves."""
    working_usd: float = 0.0
    """Payments less receipts at the start of the month beside the purchases: deposits, payment terms, VAT and prepaid
    rent [USD]; the total is that of `prepaid_usd`."""
    prepaid_usd: float = 0.0
    """Part of the rent that was paid in advance [USD]."""

    @property
    def in_service(self) -> int:
        """Number of units in service, purchased and rented."""
        return self.owned + self.rented

    @property
    def meets_slo(self) -> bool:
        """True if capacity covers the busiest hours."""
        return self.shortfall == 0

    @property
    def utilisation(self) -> float | None:
        """Mean load over capacity [1]; None without capacity."""
        return self.served / self.capacity if self.capacity else None

    @property
    def capital_usd(self) -> float:
        """Payment for new hardware [USD]."""
        return fsum(self.capex_usd.values())

    @property
    def running_usd(self) -> float:
        """Operating cost without rents [USD]."""
        return fsum(self.opex_usd.values())

    @property
    def at_once_usd(self) -> float:
        """Payments minus receipts for hardware, at the start of the month [USD]."""
        return self.capital_usd + self.decommissioning_usd - self.resale_usd + self.working_usd

    @property
    def net_usd(self) -> float:
        """Cash paid minus cash received [USD]."""
        return self.at_once_usd + self.in_arrears_usd

    @property
    def in_arrears_usd(self) -> float:
        """Payments at the end of the month [USD]."""
        return self.running_usd + self.rental_usd - self.prepaid_usd


def cash_rows(demand: Sequence[float], stock: Supply, terms: PlanTerms) -> list[PlanMonth]:
    """Return the rows of the months, and the closing row."""
    return [_row(month, demand, stock, terms) for month in range(stock.months + 1)]


def _row(month: int, demand: Sequence[float], stock: Supply, terms: PlanTerms) -> PlanMonth:
    inside, kind = month < stock.months, terms.kind
    mean = demand[month] if inside else 0.0
    peak = mean * terms.plan.peak_to_mean
    owned, rented = stock.owned(month), stock.rented(month) if inside else 0
    there = units_in_service(terms.held, month)
    alike = owned + rented + sum(one.units * (one.kind.capacity / kind.capacity) for one in there)
    capacity = alike * kind.capacity
    served = fsum(one.share * min(one.relative * mean, capacity) for one in kind.costs.hours)
    short = peak - capacity
    loads = UnitLoads(mean / alike, min(peak, capacity) / alike) if alike else UnitLoads(0.0, 0.0)
    rps = (owned + rented) * kind.costs.served_rps(loads)
    utilisation = UnitLoads(loads.mean / kind.capacity, loads.peak / kind.capacity)
    requests = (rps + held_rps(there, utilisation)) * SECONDS_PER_MONTH
    capex_usd, resale_usd, removal_usd = _capital(month, stock, terms)
    sold = sold_in(month, terms.held)
    resale_usd, removal_usd = resale_usd + sold.resale_usd, removal_usd + sold.removal_usd
    opex_usd, rental_usd = _running(month, stock, terms, loads) if inside else ({}, 0.0)
    working_usd, prepaid_usd = _moved_in(month, stock, terms)
    at_start_usd = resale_usd - removal_usd - total(capex_usd.values()) - working_usd
    in_arrears_usd = total(opex_usd.values()) + rental_usd - prepaid_usd
    return PlanMonth(
        month=month,
        demand=mean,
        peak=peak,
        needed=stock.needed[month] if inside else 0,
        ordered=stock.ordered(month),
        on_order=stock.on_order(month),
        owned=owned + sum(one.units for one in there),
        rented=rented,
        retired=stock.retired(month) + sum(one.units for one in terms.held if not one.serves(month)),
        capacity=capacity,
        served=served,
        shortfall=short if short > ROUNDING * peak else 0.0,
        requests=requests,
        capex_usd=capex_usd,
        resale_usd=resale_usd,
        decommissioning_usd=removal_usd,
        opex_usd=opex_usd,
        rental_usd=rental_usd,
        prompt_tokens=requests * terms.tokens[0],
        output_tokens=requests * terms.tokens[1],
        existing=sum(one.units for one in there),
        existing_capacity=fsum(one.units * one.kind.capacity for one in there),
        existing_sold=sold.units,
        existing_resale_usd=sold.resale_usd,
        gain_usd=sold.gain_usd,
        present_usd=present_usd(terms.discount_rate, month, at_start_usd, in_arrears_usd),
        working_usd=working_usd,
        prepaid_usd=prepaid_usd,
    )


def payments_of(
    rows: Sequence[PlanMonth],
    held: Sequence[HeldUnits],
    discount_rate: float,
    bought: Sequence[Holding] = (),
    prices: Revenue | None = None,
) -> Payments:
    """Return the payments of a plan before financing and tax; the start of a month is the end of the one before.

    The tax value of existing units is their book value, 0 without one.
    """
    existing = [
        Holding(
            0,
            one.sold,
            0.0,
            one.resale_usd(one.sold) - one.removal_usd,
            tax_value_usd=one.book_value_usd or 0.0,
            book_months=one.ends,
            book_usd=one.resale_usd(one.ends),
        )
        for one in held
    ]
    carbon = [row.opex_usd.get(CARBON_PRICE, 0.0) for row in rows[:-1]]
    operating = [row.running_usd + row.rental_usd - usd for row, usd in zip(rows[:-1], carbon, strict=True)]
    sold = [sold_usd(prices, row.prompt_tokens, row.output_tokens) for row in rows[:-1]]
    return Payments(
        operating,
        [*bought, *existing],
        discount_rate,
        [usd for usd in sold if usd is not None],
        carbon if any(carbon) else (),
    )


def purchases_of(stock: Supply, terms: PlanTerms) -> list[Holding]:
    """Return the purchases of a plan, from delivery to sale."""
    unit, declines = terms.kind.costs, terms.kind.declines
    found = []
    for batch in stock.batches:
        price = fsum(
            usd * declines.factor(line, batch.ordered, batch.ordered) for line, usd in unit.delivery_usd.items()
        )
        hardware = unit.resold_usd * declines.hardware(batch.ordered)
        resale = unit.resold_usd * value_of(declines.finance, declines, batch.ordered, batch.delivered, batch.retires)
        price, brings, hardware, resale = (
            batch.units * usd for usd in (price, resale - unit.removal_usd, hardware, resale)
        )
        moved = moved_usd(stock, terms).get(batch, ())
        today = batch.units * declines.hardware(batch.ordered)
        due = _settled(unit.terms_usd, today, batch.delivered, batch.retires)
        times = (batch.delivered, batch.retires)
        found.append(Holding(*times, price, brings, hardware, resale, moved_usd=moved, terms_usd=due))
    contracts = ((one, moved) for one, moved in moved_usd(stock, terms).items() if isinstance(one, Contract))
    return found + [Holding(one.signed, moved[-1][0], 0.0, 0.0, moved_usd=moved) for one, moved in contracts]


def moved_usd(stock: Supply, terms: PlanTerms) -> dict[UnitBatch | Contract, tuple[tuple[int, float], ...]]:
    """Return purchase or commitment -> its payments (month, amount [USD]) beside the purchase and the rent.

    What is still open when units leave, or at the end of the plan, is settled then.
    """
    declines, found = terms.kind.declines, dict[UnitBatch | Contract, tuple[tuple[int, float], ...]]()
    if bought := terms.kind.costs.moved_usd:
        for batch in stock.batches:
            found[batch] = _settled(
                bought, batch.units * declines.hardware(batch.ordered), batch.delivered, batch.retires
            )
    for one in stock.contracts:
        if one.committed and (prepaid := terms.rented.prepaid_usd(one.units)):
            price = declines.factor(PREPAID, one.signed, one.signed)
            found[one] = _settled(prepaid, price, one.signed, min(one.ends, stock.months))
    return found


def _moved_in(month: int, stock: Supply, terms: PlanTerms) -> tuple[float, float]:
    """Return (payments at the start of a month beside purchases, prepaid part of the rent at its end) [USD].

    Prepaid rent of months after the plan is returned in the closing row.
    """
    working, prepaid = [], []
    for one, moved in moved_usd(stock, terms).items():
        for place, (at, usd) in enumerate(moved):
            if isinstance(one, Contract) and 0 < place == at - one.signed:
                prepaid += [-usd] if at == month + 1 else []
            elif at == month:
                working.append(usd)
    return total(working), total(prepaid)


def _settled(moved: Sequence[tuple[int, float]], price: float, start: int, end: int) -> tuple[tuple[int, float], ...]:
    """Return payments of *moved* (month from the start, amount) at *price*, from *start* to *end* at the latest."""
    return tuple((min(max(0, start + at), end), price * usd) for at, usd in moved)


def present_usd(discount_rate: float, month: int, received_usd: float, paid_usd: float) -> float:
    """Return payments at the end of *month* minus receipts at its start, discounted to the plan's start [USD]."""
    start, end = (discount_factor(discount_rate, at) for at in (month, month + 1))
    return paid_usd * end - received_usd * start


class SoldUnits(NamedTuple):
    """Existing units that are sold in a month."""

    units: int
    resale_usd: float
    removal_usd: float
    gain_usd: float


def sold_in(month: int, held: Sequence[HeldUnits]) -> SoldUnits:
    """Return the number and proceeds of the units of *held* that are sold in *month*."""
    gone = [one for one in held if one.sold == month]
    return SoldUnits(
        sum(one.units for one in gone),
        total(one.resale_usd(month) for one in gone),
        fsum(one.removal_usd for one in gone),
        fsum(one.gain_usd(month) for one in gone),
    )


def held_rps(there: Sequence[HeldUnits], utilisation: UnitLoads) -> float:
    """Return the requests per second that the units *there* answer at these fractions of their capacity."""
    return sum(one.units * one.kind.costs.served_rps(_of_capacity(utilisation, one.kind)) for one in there)


def _of_capacity(utilisation: UnitLoads, kind: UnitKind) -> UnitLoads:
    """Return the loads of a unit of *kind* at these fractions of its capacity."""
    return UnitLoads(utilisation.mean * kind.capacity, utilisation.peak * kind.capacity)


def _capital(month: int, stock: Supply, terms: PlanTerms) -> tuple[dict[str, float], float, float]:
    """Return (capex by component, resale, removal) of the plan's purchases in a month [USD]."""
    unit, declines = terms.kind.costs, terms.kind.declines
    capex = dict.fromkeys(by_component(unit.delivery_usd), 0.0)
    resale_usd = removal_usd = 0.0
    for batch in stock.batches:
        if batch.delivered == month:
            for line, usd in unit.delivery_usd.items():
                capex[line.component] += batch.units * usd * declines.factor(line, batch.ordered, batch.ordered)
        if batch.retires == month:
            worth = value_of(declines.finance, declines, batch.ordered, batch.delivered, month)
            resale_usd += batch.units * unit.resold_usd * worth
            removal_usd += batch.units * unit.removal_usd
    return capex, resale_usd, removal_usd


def _running(month: int, stock: Supply, terms: PlanTerms, loads: UnitLoads) -> tuple[dict[str, float], float]:
    """Return (operating cost by component, rent) of a month [USD]."""
    kind = terms.kind
    others = [one for one in terms.held if one.kind.fleet != kind.fleet]
    alike = [one for one in terms.held if one.kind.fleet == kind.fleet]
    batches = [
        OrderedUnits(batch.units, batch.ordered, batch.delivered) for batch in stock.batches if batch.serves(month)
    ]
    hired = [one for one in stock.contracts if one.runs(month) and not one.committed]
    groups = tuple(OrderedUnits(one.units, one.signed) for one in hired)
    rented = ServingUnits(stock.rented(month), groups, stock.committed_in(month))
    utilisation = UnitLoads(loads.mean / kind.capacity, loads.peak / kind.capacity)
    parts = [
        PaidUnits(kind.costs, kind.declines, serving_units([*ordered_units(alike, month), *batches]), loads),
        *held_parts(others, month, utilisation),
        PaidUnits(terms.rented, kind.declines, rented, loads),
    ]
    return terms.bills.of(month, parts)


def owed_usd(stock: Supply, terms: PlanTerms) -> float:
    """Return the rent that contracts oblige to pay for the months after the plan [USD].

    No total of the plan includes it, because the contracts' units serve in those months.
    """
    last = max((contract.ends for contract in stock.contracts), default=0)
    return fsum(_owed_in(month, stock, terms) for month in range(stock.months, last))


def _owed_in(month: int, stock: Supply, terms: PlanTerms) -> float:
    running = [one for one in stock.contracts if one.runs(month)]
    groups = tuple(OrderedUnits(one.units, one.signed) for one in running if not one.committed)
    serving = ServingUnits(sum(one.units for one in running), groups, stock.committed_in(month))
    return terms.bills.of(month, [PaidUnits(terms.rented, terms.kind.declines, serving, UnitLoads(0.0, 0.0))])[1]


def serving_units(groups: Sequence[OrderedUnits]) -> ServingUnits:
    """Return the units of all *groups* together."""
    return ServingUnits(sum(group.units for group in groups), tuple(groups))


def ordered_units(held: Sequence[HeldUnits], month: int) -> list[OrderedUnits]:
    """Return the units of *held* in service, by the price that was paid for them."""
    return [OrderedUnits(one.units, one.bought, one.bought, one.book) for one in units_in_service(held, month)]


def held_parts(held: Sequence[HeldUnits], month: int, utilisation: UnitLoads) -> list[PaidUnits]:
    """Return one part for each kind among *held*, at that fraction of its capacity."""
    kinds = {one.kind.fleet: one.kind for one in held}
    found = []
    for name, kind in kinds.items():
        groups = ordered_units([one for one in held if one.kind.fleet == name], month)
        found.append(PaidUnits(kind.costs, kind.declines, serving_units(groups), _of_capacity(utilisation, kind)))
    return found


MOST_COMBINATIONS = 500
"""Largest number of combinations of sales that are evaluated in full; beyond it each group is chosen in turn."""

RowsOf = Callable[[tuple[HeldUnits, ...]], Sequence[PlanMonth]]
"""Function that returns the rows of a plan, given the months of sale of the existing groups."""


@dataclass(frozen=True, slots=True)
class SalePlan:
    """Plan with given months of sale of the existing units."""

    held: tuple[HeldUnits, ...]
    """Existing units, with their months of sale."""
    rows: Sequence[PlanMonth]

    @property
    def cost(self) -> tuple[float, float]:
        """Ranking key: (load missing over the months, present cost [USD])."""
        missing, usd = fsum(row.shortfall for row in self.rows), fsum(row.present_usd for row in self.rows)
        return round(missing, _DIGITS), round(usd, _DIGITS)


_DIGITS = 4  # digits to which costs are compared, so that rounding errors of sums do not matter


def best_sales(held: Sequence[HeldUnits], months: int, rows_of: RowsOf) -> SalePlan:
    """Return the plan of *months* with the least missing load and, among those, the least cost.

    All combinations are evaluated where there are at most `MOST_COMBINATIONS`. Otherwise each group in turn is given
    its best month until none improves, once from keeping all groups and once from selling all, so that no other month
    of a single group is better. Of equal plans the one with the latest sale is returned.
    """
    choices = [list(_choices(one, months)) for one in held]
    if prod(map(len, choices)) <= MOST_COMBINATIONS:
        return _cheapest_sale(product(*choices), rows_of)
    starts = (tuple(one[0] for one in choices), tuple(one[-1] for one in choices))
    return min((_in_turn(start, choices, rows_of) for start in starts), key=lambda one: one.cost)


def _choices(one: HeldUnits, months: int) -> Iterator[HeldUnits]:
    """Yield the group with every month of sale, the latest first; a group without capacity is sold at once."""
    latest = min(one.ends, months) if one.kind.capacity else 0
    yield from (replace(one, sold=month) for month in range(latest, -1, -1))


def _cheapest_sale(ways: Iterable[tuple[HeldUnits, ...]], rows_of: RowsOf) -> SalePlan:
    return min((SalePlan(held, rows_of(held)) for held in ways), key=lambda one: one.cost)


def _in_turn(start: tuple[HeldUnits, ...], choices: Sequence[Sequence[HeldUnits]], rows_of: RowsOf) -> SalePlan:
    best = SalePlan(start, rows_of(start))
    while True:
        before = best
        for place, group in enumerate(choices):
            around = best.held
            ways = ((*around[:place], one, *around[place + 1 :]) for one in group)
            best = min((best, _cheapest_sale(ways, rows_of)), key=lambda one: one.cost)
        if best is before:
            return best
