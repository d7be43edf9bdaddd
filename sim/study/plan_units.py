"""Units of a plan: costs of one unit, number in service in every month, and units that exist at the start.

A unit is one fleet of the scenario. Its meter readings between idle and its capacity come from simulation, its prices
from the charges that the ledger uses; the cost of a month is their product.

Units are purchased ahead of demand, replaced when their life ends, or rented. Orders are placed as late as possible, so
that the units in service cover each month's peak; units that cannot be delivered in time are rented where the terms are
known, else they are missing.

Existing units serve beside new ones until they are sold. The value of a used unit does not depend on whether it was
purchased before the plan or in it: the price of its month of purchase, from today's by the plan's decline, times its
remaining value at its age. Its book value is sunk. docs/money.md has the rules.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, fsum, inf
from typing import Any, NamedTuple

import numpy as np

from sim.cost.buying import PAYMENT_TERMS
from sim.cost.charge import Charge, MarketPrice, PaymentTime, amount_usd
from sim.cost.cost_plan import CostPlan
from sim.cost.finance import Annuity, StraightLine
from sim.cost.metering import ONE_HOUR, MeteredWindow
from sim.cost.price_paths import ELECTRICITY, PriceOutlook
from sim.cost.time_value import MONTHS_PER_YEAR, price_factor
from sim.message import Message
from sim.scenario.year import ALL_HOURS, Calendar, Hours

ROUNDING = 1e-9  # relative tolerance of quotients: a peak of exactly three capacities needs three units


@dataclass(frozen=True, slots=True)
class Purchasing:
    """Terms on which units are purchased."""

    lead_time_months: int
    life_months: int
    first_order: int = 0
    """First month in which units may be ordered."""

    @property
    def first_delivery(self) -> int:
        """First month in which purchased units may be in service."""
        return self.first_order + self.lead_time_months


@dataclass(frozen=True, slots=True)
class Renting:
    """Terms on which units are rented."""

    term_months: int
    """Shortest rental of a unit beyond a commitment [months]."""
    committed_units: int = 0
    """Number of units that a commitment covers fully."""
    committed_months: int = 0
    """Term of the commitment [months]; 0: no commitment."""


@dataclass(frozen=True, slots=True)
class UnitBatch:
    """Units that are purchased together."""

    units: int
    ordered: int
    """Month of the order, from 0."""
    delivered: int
    """First month in service."""
    retires: int
    """First month out of service again; at the latest the month after the plan."""

    def serves(self, month: int) -> bool:
        """Return whether the batch is in service in *month*."""
        return self.delivered <= month < self.retires


@dataclass(frozen=True, slots=True)
class Contract:
    """Units that are rented together."""

    units: int
    signed: int
    """First month of the contract."""
    ends: int
    """First month after the term."""
    committed: bool = False
    """True for a commitment, paid throughout; `units` are fully covered and serve as far as needed."""

    def runs(self, month: int) -> bool:
        """Return whether the units are rented in *month*."""
        return self.signed <= month < self.ends


@dataclass(frozen=True, slots=True)
class Supply:
    """Purchases and rents over a plan of `months`."""

    months: int
    needed: tuple[int, ...]
    """Number of units that each month's peak needs, the reserve included."""
    batches: tuple[UnitBatch, ...]
    contracts: tuple[Contract, ...]

    def ordered(self, month: int) -> int:
        """Return the number of units ordered in *month*."""
        return sum(batch.units for batch in self.batches if batch.ordered == month)

    def on_order(self, month: int) -> int:
        """Return the number of units ordered up to *month* that are not in service yet."""
        return sum(batch.units for batch in self.batches if batch.ordered <= month < batch.delivered)

    def owned(self, month: int) -> int:
        """Return the number of purchased units in service."""
        return sum(batch.units for batch in self.batches if batch.serves(month))

    def rented(self, month: int) -> int:
        """Return the number of rented units in service."""
        running = [contract for contract in self.contracts if contract.runs(month)]
        hired = sum(contract.units for contract in running if not contract.committed)
        covered = sum(contract.units for contract in running if contract.committed)
        return hired + max(0, min(covered, self.needed[month] - self.owned(month) - hired))

    def committed_in(self, month: int) -> int | None:
        """Return the month in which the commitment that runs in *month* was signed; None without a commitment."""
        return next((one.signed for one in self.contracts if one.committed and one.runs(month)), None)

    def retired(self, month: int) -> int:
        """Return the number of purchased units that have left service, in *month* or before."""
        return sum(batch.units for batch in self.batches if batch.retires <= month)

    def in_service(self, month: int) -> int:
        """Return the number of purchased and rented units in service."""
        return self.owned(month) + self.rented(month)

    @property
    def owed_unit_months(self) -> int:
        """Number of rented unit-months for which contracts extend beyond the plan."""
        return sum(contract.units * max(0, contract.ends - self.months) for contract in self.contracts)


def units_needed(peak: float, capacity: float, reserve_units: int) -> int:
    """Return the number of whole units whose *capacity* covers *peak*, plus the reserve.

    >>> units_needed(3.1, 1.0, reserve_units=1)
    5
    """
    return max(ceil(peak / capacity - ROUNDING), int(peak > 0)) + reserve_units


def supply(needed: Sequence[int], purchasing: Purchasing | None, renting: Renting | None) -> Supply:
    """Return the purchases and rents that cover *needed* units in every month.

    With *purchasing*, units are bought, the first of them in service at `first_delivery`; they stay in service until
    the end of their life, also where demand falls. With *renting*, missing units are rented: a commitment is signed
    with the first rented unit, and again when it has ended and units are needed; units beyond it have a term of their
    own.
    """
    months = len(needed)
    batches: list[UnitBatch] = []
    contracts: list[Contract] = []
    for month, need in enumerate(needed):
        if purchasing is not None and month >= purchasing.first_delivery:
            missing = need - sum(batch.units for batch in batches if batch.serves(month))
            if missing > 0:
                retires = min(months, month + purchasing.life_months)
                batches.append(UnitBatch(missing, month - purchasing.lead_time_months, month, retires))
        if renting is not None:
            in_service = sum(batch.units for batch in batches if batch.serves(month))
            running = [contract for contract in contracts if contract.runs(month)]
            in_service += sum(contract.units for contract in running)
            if need > in_service and renting.committed_months and not any(one.committed for one in running):
                ends = month + renting.committed_months
                contracts.append(Contract(renting.committed_units, month, ends, committed=True))
                in_service += renting.committed_units
            if need > in_service:
                contracts.append(Contract(need - in_service, month, month + renting.term_months))
    return Supply(months, tuple(needed), tuple(batches), tuple(contracts))


@dataclass(frozen=True, slots=True)
class Quantities:
    """Metered quantities of one unit at several loads, from 0 to its capacity."""

    loads: tuple[float, ...]
    windows: tuple[MeteredWindow, ...]
    """Meter readings at each load."""
    requests_per_s: tuple[float, ...]

    def served_rps(self, load: float) -> float:
        """Return the requests per second at *load*, interpolated linearly between simulated loads."""
        return float(np.interp(load, self.loads, self.requests_per_s))

    @property
    def cached_fraction(self) -> float:
        """Share of prompt tokens found in the prefix cache at the highest load [1]."""
        rows = [one for intervals in self.windows[-1].intervals.values() for one in intervals]
        cached, computed = sum(one.cached_tokens for one in rows), sum(one.prompt_tokens for one in rows)
        return cached / (cached + computed) if cached else 0.0


class BillLine(NamedTuple):
    """Line of a bill, for charges whose prices change together."""

    component: str
    follows: MarketPrice
    follows_share: float
    by_peak: bool
    """True if the line is paid for the month's peak."""
    committed: bool
    """True if the price is agreed for the term of a commitment."""
    profile: tuple[float, ...] = ()
    """Ratio of each month's amount, over the units' life or the contract, to the level amount; empty: equal months."""

    def of_month(self, month: int) -> float:
        """Return the ratio of the amount of *month* (from 0) of the life or contract to the level amount."""
        return self.profile[min(max(0, month), len(self.profile) - 1)] if self.profile else 1.0


class UnitLoads(NamedTuple):
    """Load of one unit in a month."""

    mean: float
    """Mean offered load over the month's hours."""
    peak: float
    """Highest load that the unit carries; hours with more load are served up to it."""


class BookValue(NamedTuple):
    """Stated book value of existing units, which falls in equal parts."""

    usd: float
    """Value of one unit at the start of the plan [USD]."""
    loss_usd: float
    """Loss of value per month [USD]."""
    months: int
    """Months over which the value falls."""

    def at(self, month: int) -> float:
        """Return the value of one unit at the start of *month* [USD]."""
        return self.usd - self.loss_usd * min(month, self.months)


class OrderedUnits(NamedTuple):
    """Units that were ordered or rented together."""

    units: int
    agreed: int
    """Month in which their price was agreed: that of the order or the contract."""
    delivered: int = 0
    """First month in service of purchased units, or of a contract."""
    book: BookValue | None = None
    """Stated book value; None: the straight line from the price."""


class ServingUnits(NamedTuple):
    """Units of one kind that serve under one purchase option."""

    units: int
    by_price: tuple[OrderedUnits, ...]
    """Groups of the units by agreed price; for rented units only those beyond a commitment."""
    committed: int | None = None
    """Month in which their commitment was signed; None without a commitment."""


@dataclass(frozen=True, slots=True)
class Declines:
    """Change of prices over the years."""

    hardware_per_year: float
    rent_per_year: float
    finance: StraightLine | Annuity | None
    """Terms of finance, with the inflation of each line."""
    outlook: PriceOutlook | None = None
    """Future prices; None: the declines alone. Where it is drawn, factors are arrays over the draws."""

    def hardware(self, month: int) -> Any:
        """Return the price of new hardware in *month* over today's."""
        if self.outlook is not None and self.outlook.gives("hardware"):
            return self.outlook.factor("hardware", month)
        return price_factor(self.hardware_per_year, month)

    def rent(self, month: int) -> Any:
        """Return the rent of a contract signed in *month* over today's."""
        if self.outlook is not None and self.outlook.gives("rent"):
            return self.outlook.factor("rent", month)
        return price_factor(self.rent_per_year, month)

    def resale(self, month: int) -> Any:
        """Return the value of used hardware in *month* over that of its age at today's prices."""
        return 1.0 if self.outlook is None else self.outlook.factor("resale", month)

    def factor(self, line: BillLine, month: int, agreed: int) -> Any:
        """Return the price of *line* in *month* over today's, for units whose price was *agreed* then."""
        growth = self.finance.growth_of(line.component) if self.finance is not None and self.finance.inflation else 0.0
        if line.follows is MarketPrice.RENT:
            return self.rent(agreed) * price_factor(-growth, agreed)
        dearer = price_factor(-growth, month) if growth else 1.0
        if self.outlook is not None and line.component in ELECTRICITY:
            dearer = self.outlook.factor("electricity", month)
        if line.follows is MarketPrice.NOTHING:
            return dearer
        index = self.hardware(month if line.follows is MarketPrice.HARDWARE else agreed)
        return (1 + line.follows_share * (index - 1)) * dearer


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Costs of units of one fleet under one purchase option."""

    priced: Callable[[int], CostPlan]
    """Number of units -> their charges, in which terms agreed once, such as a commitment, appear once."""
    quantities: Quantities
    hours: tuple[Hours, ...] = ALL_HOURS
    """Hours of the year by their load."""
    _by_clock: dict[int, dict[BillLine, float]] = field(default_factory=dict)
    _metered: dict[tuple[int, Calendar, int], dict[BillLine, list[float]]] = field(default_factory=dict)

    @property
    def delivery_usd(self) -> dict[BillLine, float]:
        """Cost of one unit at delivery by line [USD]."""
        return _lines((one, one.once_usd) for one in self._bought)

    @property
    def _bought(self) -> list[Charge]:
        """Charges that are paid at delivery."""
        return [
            one
            for one in self.priced(1).charges
            if one.paid is PaymentTime.AT_DELIVERY and (one.once_usd or not one.moved_usd)
        ]

    @property
    def moved_usd(self) -> tuple[tuple[int, float], ...]:
        """Payments (month from delivery, amount [USD]) of one unit beside its purchase, at today's price."""
        return tuple(one for charge in self.priced(1).charges if not charge.agreed_months for one in charge.moved_usd)

    @property
    def terms_usd(self) -> tuple[tuple[int, float], ...]:
        """Part of `moved_usd` for terms of payment of the price."""
        return tuple(
            one for charge in self.priced(1).charges if charge.component == PAYMENT_TERMS for one in charge.moved_usd
        )

    def prepaid_usd(self, units: int) -> tuple[tuple[int, float], ...]:
        """Return the payments (month of the contract, amount [USD]) beside the rent of committed *units*, today.

        One payment per month, from month 0, the signing, to the end of the term; empty where nothing is prepaid.
        """
        found: dict[int, float] = {}
        for charge in self.priced(max(1, units)).charges:
            for month, usd in charge.moved_usd if charge.agreed_months else ():
                found[month] = found.get(month, 0.0) + usd
        return tuple(sorted(found.items()))

    @property
    def resold_usd(self) -> float:
        """Part of the delivery cost that can be resold, at its price when new [USD]."""
        return sum(one.once_usd for one in self.priced(1).charges if one.resold)

    @property
    def removal_usd(self) -> float:
        """Cost of removing one unit at the end of its service [USD]."""
        return sum(one.once_usd for one in self.priced(1).charges if one.paid is PaymentTime.AT_END)

    @property
    def committed_units(self) -> int:
        """Number of units that a commitment covers fully; 0 without a commitment."""
        count = 0
        while count < MOST_COMMITTED:
            charges = self.priced(count + 1).charges
            rents = [one for one in charges if one.paid.monthly and one.follows is MarketPrice.RENT]
            if not rents or not all(one.agreed_months for one in rents):
                break
            count += 1
        return count

    @property
    def monthly_lines(self) -> list[BillLine]:
        """Lines that are paid monthly."""
        return list(_lines((one, 0.0) for one in self.priced(1).charges if one.paid.monthly))

    def monthly_usd_per_h(
        self, serving: ServingUnits, loads: UnitLoads, month: int, calendar_month: int, declines: Declines
    ) -> dict[BillLine, float]:
        """Return the operating cost of *serving* in *month* by line [USD/h].

        Parameters
        ----------
        serving
            Units that serve.
        loads
            Load of each unit.
        month
            Month of the plan, from 0.
        calendar_month
            Month of the calendar, 1 for January.
        declines
            Change of prices over the years.

        """
        if not serving.units and serving.committed is None:
            return {}
        clock = self._clock_usd_per_h(serving.units)
        metered = self._metered_usd_per_h(loads, calendar_month, self._equivalent_units(serving.units))
        found: dict[BillLine, float] = {}
        for line in {**clock, **metered}:
            usd = clock.get(line, 0.0) + serving.units * metered.get(line, 0.0)
            found[line] = usd * self._factor(line, serving, month, declines)
        return found

    def _factor(self, line: BillLine, serving: ServingUnits, month: int, declines: Declines) -> Any:
        """Return the price of *line* in *month* over today's, averaged over the units by their agreed prices."""
        groups = (
            [OrderedUnits(1, serving.committed, serving.committed)]
            if line.committed and serving.committed is not None
            else serving.by_price
        )
        count = sum(group.units for group in groups)
        if not count:
            return declines.factor(line, month, month)
        return sum(group.units * self._group_factor(line, group, month, declines) for group in groups) / count

    def _group_factor(self, line: BillLine, group: OrderedUnits, month: int, declines: Declines) -> Any:
        """Return the price of *line* for units ordered together; a share of their book value follows a stated one."""
        if group.book is not None and line.profile and line.follows is MarketPrice.MACHINES:
            return group.book.at(month) / self.resold_usd * line.of_month(0)
        return declines.factor(line, month, group.agreed) * line.of_month(month - group.delivered)

    def _clock_usd_per_h(self, units: int) -> dict[BillLine, float]:
        """Return the cost of charges per hour, for all *units* together [USD/h]."""
        if units not in self._by_clock:
            charges = [one for one in self.priced(units).charges if one.paid.by_the_clock and one.paid.monthly]
            self._by_clock[units] = _lines((one, amount_usd(one, ONE_HOUR)) for one in charges)
        return self._by_clock[units]

    def served_rps(self, loads: UnitLoads) -> float:
        """Return the mean requests per second that one unit answers over the hours of a year."""
        served = self.quantities.served_rps
        return fsum(one.share * served(min(one.relative * loads.mean, loads.peak)) for one in self.hours)

    def _equivalent_units(self, units: int) -> int:
        """Return a number of units with the same metered prices as *units*, as small as possible.

        A metered charge depends on the number of units where they share one commitment, or contracts of their site.
        """
        metered = (one for one in self.priced(1).charges if not one.paid.by_the_clock)
        return units if units and any(one.agreed_months or one.shared for one in metered) else 1

    def _metered_usd_per_h(self, loads: UnitLoads, calendar_month: int, units: int) -> dict[BillLine, float]:
        """Return the metered cost of one of *units* units [USD/h].

        Each hour of the profile has its own load and price.
        """
        found: dict[BillLine, float] = {}
        for one in self.hours:
            load = min(one.relative * loads.mean, loads.peak)
            for line, values in self._table(calendar_month, one.calendar, units).items():
                usd_per_h = np.interp(loads.peak if line.by_peak else load, self.quantities.loads, values)
                found[line] = found.get(line, 0.0) + one.share * float(usd_per_h)
        return found

    def _table(self, calendar_month: int, calendar: Calendar, units: int) -> dict[BillLine, list[float]]:
        """Return the metered cost of one of *units* units by line, at each of the simulated loads [USD/h].

        Prices are the means over the hours *calendar* of *calendar_month*.
        """
        if (calendar_month, calendar, units) not in self._metered:
            charges = self.priced(units).averaged(calendar_month, calendar.by_hour).charges
            table: dict[BillLine, list[float]] = {}
            for position, window in enumerate(self.quantities.windows):
                metered = (
                    (one, amount_usd(one, window) / window.hours) for one in charges if not one.paid.by_the_clock
                )
                for line, usd_per_h in _lines(metered).items():
                    table.setdefault(line, [0.0] * len(self.quantities.windows))[position] = usd_per_h
            self._metered[calendar_month, calendar, units] = table
        return self._metered[calendar_month, calendar, units]


MOST_COMMITTED = 100_000


def value_of(finance: StraightLine | Annuity | None, declines: Declines, agreed: int, delivered: int, now: int) -> Any:
    """Return the resale value in month *now* over today's price when new; at most the price of a new machine then."""
    if finance is None:
        return 0.0
    own = declines.hardware(agreed) * finance.value_fraction((now - delivered) / MONTHS_PER_YEAR)
    own, new = own * declines.resale(now), declines.hardware(now)
    return np.minimum(own, new) if isinstance(own, np.ndarray) or isinstance(new, np.ndarray) else min(own, new)


def total(amounts: Iterable[Any]) -> Any:
    """Return the sum of *amounts*: exactly rounded for numbers, by draw for arrays over draws."""
    listed = list(amounts)
    return sum(listed) if any(isinstance(one, np.ndarray) for one in listed) else fsum(listed)


def _lines(amounts: Iterable[tuple[Charge, float]]) -> dict[BillLine, float]:
    found: dict[BillLine, float] = {}
    for charge, usd in amounts:
        line = BillLine(
            charge.component,
            charge.follows,
            charge.follows_share,
            charge.by_peak,
            charge.agreed_months > 0,
            tuple(charge.profile),
        )
        found[line] = found.get(line, 0.0) + usd
    return found


def by_component(lines: Mapping[BillLine, float]) -> dict[str, float]:
    """Return the sum of the lines of each component."""
    found: dict[str, float] = {}
    for line, usd in lines.items():
        found[line.component] = found.get(line.component, 0.0) + usd
    return found


@dataclass(frozen=True, slots=True)
class UnitKind:
    """Fleet as a building block of a plan."""

    fleet: str
    costs: UnitCosts
    capacity: float
    """Load that one unit serves within the service level."""
    declines: Declines


@dataclass(frozen=True, slots=True)
class HeldUnits:
    """Units of one entry of `plan.existing`, all sold together."""

    kind: UnitKind
    units: int
    bought: int
    """First month in service; 0 is the plan's first month, earlier ones are negative."""
    ends: int
    """First month after the end of their life."""
    sold: int
    """First month out of service."""
    book_value_usd: float | None
    """Book value of all units together, at the start of the plan [USD]; None where none is stated."""
    book: BookValue | None = None
    """Book value of one unit, by which property tax and insurance are paid, also in draws of prices; None: unstated."""

    def serves(self, month: int) -> bool:
        """Return whether the units are in service in *month*."""
        return month < self.sold

    @property
    def removal_usd(self) -> float:
        """Cost of removing the units [USD]."""
        return self.units * self.kind.costs.removal_usd

    def resale_usd(self, month: int) -> Any:
        """Return the resale value of the units in *month* [USD]."""
        worth = value_of(self.kind.declines.finance, self.kind.declines, self.bought, self.bought, month)
        return self.units * self.kind.costs.resold_usd * worth

    def gain_usd(self, month: int) -> Any:
        """Return the proceeds of a sale in *month* over the book value then [USD]; 0 without a book value.

        The book value falls linearly to the resale value at the end of the units' life; it stays constant if it is
        lower.
        """
        book = self.stated_book
        return 0.0 if book is None else self.resale_usd(month) - self.units * book.at(month)

    @property
    def stated_book(self) -> BookValue | None:
        """Book value of one unit that follows from `book_value_usd`; None without it."""
        if self.book_value_usd is None:
            return None
        lost = max(0.0, self.book_value_usd - self.resale_usd(self.ends))
        return BookValue(self.book_value_usd / self.units, lost / self.ends / self.units, self.ends)


def units_in_service(held: Sequence[HeldUnits], month: int) -> list[HeldUnits]:
    """Return the units of *held* that are in service in *month*."""
    return [one for one in held if one.serves(month)]


def unlimited(held: Sequence[HeldUnits]) -> str:
    """Return why no plan can be made around *held*; empty where one can."""
    names = sorted({one.kind.fleet for one in held if one.kind.capacity == inf})
    if not names:
        return ""
    return Message(
        "existing {names}: one unit meets the service level at every load that was tried", " and ".join(names)
    )


def still_needed(peak: float, capacity: float, reserve_units: int, existing: Sequence[HeldUnits]) -> int:
    """Return the number of units of *capacity* needed beside those *existing* to carry the *peak* and the reserve.

    The reserve is *reserve_units* of the largest unit among all of them.
    """
    if not existing:
        return units_needed(peak, capacity, reserve_units)
    existing_capacity = fsum(one.units * one.kind.capacity for one in existing)
    largest = max(one.kind.capacity for one in existing)
    if existing_capacity >= (peak + reserve_units * largest) * (1 - ROUNDING):
        return 0
    return units_needed(peak + reserve_units * max(largest, capacity) - existing_capacity, capacity, 0)
