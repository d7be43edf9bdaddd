"""Assumptions of a plan over several years: growth of demand, decline of prices, lead times, existing units."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.cost.actuals import Actuals
from sim.cost.rental import Rent
from sim.cost.time_value import MONTHS_PER_YEAR, price_factor
from sim.message import Message
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, WholeNumber

MONTHS_PER_QUARTER = 3
_FORM = "a month is needed, for example 2027-01"


def _month(value: Any) -> str:
    year, _, month = str(value).partition("-")
    digits = len(year) == 4 and year.isdecimal() and month.isdecimal()
    if not digits or not 1 <= int(month) <= MONTHS_PER_YEAR:
        raise ValueError(f"{_FORM}, not {value!r}")
    return f"{year}-{int(month):02}"


CalendarMonth = Annotated[str, BeforeValidator(_month)]


def months_between(start: str, end: str) -> int:
    """Return the months from the calendar month *start* to *end*; negative if *end* is earlier.

    >>> months_between("2025-03", "2027-01")
    22
    """
    (year, month), (last, of_last) = (map(int, when.split("-")) for when in (start, end))
    return (last - year) * MONTHS_PER_YEAR + of_last - month


def month_after(start: str, months: int) -> str:
    """Return the calendar month that is *months* after the calendar month *start*.

    >>> month_after("2025-03", 22)
    '2027-01'
    """
    year, month = map(int, start.split("-"))
    years, rest = divmod(month - 1 + months, MONTHS_PER_YEAR)
    return f"{year + years}-{rest + 1:02}"


Rate = Annotated[float, Field(gt=-1, le=10, strict=True)]
Decline = Annotated[float, Field(gt=-1, lt=1, strict=True)]


class Demand(Spec):
    """Mean load of every month, in the scenario's unit: requests per second, clients, or the trace's speed.

    The load grows at a constant rate, or is listed.
    """

    now: Positive | None = None
    """Mean load in the first month. Default: the mean of `load_profile`, or the scenario's load without one."""
    growth_per_year: Rate = 0.0
    """Growth per year, as a fraction, compounded monthly: 0.5 is half as much again after a year."""
    monthly: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """Load of each month, in place of growth."""
    quarterly: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """Load of each quarter, in place of growth."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in ("monthly", "quarterly") if getattr(self, name) is not None]
        grown = [name for name in ("now", "growth_per_year") if name in self.model_fields_set]
        if len(given) > 1 or (given and grown):
            raise ValueError(Message("{value} both give the demand: state one", " and ".join([*grown, *given])))
        return self

    def by_month(self, months: int, usual: float) -> tuple[float, ...]:
        """Return the mean load of each of *months*; *usual* is the scenario's own load."""
        if self.monthly is not None:
            return self.monthly
        if self.quarterly is not None:
            return tuple(value for value in self.quarterly for _ in range(MONTHS_PER_QUARTER))
        start = usual if self.now is None else self.now
        return tuple(start * price_factor(-self.growth_per_year, month) for month in range(months))


class ExistingUnits(Spec):
    """Units of a fleet in service at the start of the plan.

    Every plan starts with them, and sells them in the month with the lowest cost, at the end of their life at the
    latest.
    """

    fleet: str
    """Name of a fleet with bought hardware; it determines a unit's hardware, capacity and operating cost."""
    units: Count
    """Number of units, which are sold together; units that may be sold separately are separate entries."""
    bought: CalendarMonth
    """First month in service, for example 2025-03; the life in finance counts from here."""
    book_value_usd: NonNegative | None = None
    """Book value of all of these units together at the start of the plan [USD]. Property tax, insurance, and gain or
    loss on disposal follow it. Default: the straight line from the price; no gain or loss is reported."""


class MultiYear(Spec):
    """Plan by month. Each fleet is a building block, of which the plan uses as many whole units as the demand needs."""

    years: Positive
    """Length of the plan, in whole months [years]."""
    starts: CalendarMonth
    """First month of the plan, for example 2027-01."""
    demand: Demand = Demand()
    """Load over time. Default: the mean of `load_profile`, or the scenario's load without one, without growth."""
    peak_to_mean: Annotated[Positive, Field(ge=1)] = 1.0
    """Load of the busiest hours divided by the month's mean; capacity must cover the busiest hours. A higher ratio in
    `load_profile` applies instead."""
    reserve_units: WholeNumber = 0
    """Units in service beyond those that the peak needs (N + k)."""
    lead_time_months: WholeNumber = 0
    """Months from an order to service."""
    price_decline_per_year: Decline = 0.0
    """Price decline of the same hardware per year, as a fraction; negative if it becomes more expensive."""
    rental_decline_per_year: Decline = 0.0
    """Decline of rents per year, as a fraction; a contract keeps the price at which it was signed."""
    rental_term_months: Count = 1
    """Minimum rental period of a unit [months]; a commitment has its own."""
    discount_rate: Fraction | None = None
    """Discount rate per year; default: the one in finance."""
    bridge: dict[str, Rent] = Field(default_factory=dict)
    """Name of a fleet with bought hardware -> terms for renting the same hardware until its first orders arrive."""
    existing: tuple[ExistingUnits, ...] = ()
    """Units in service at the start of the plan."""
    actuals: Actuals | None = None
    """Actual payments of months that have passed; variances.csv compares them with the plan."""

    @model_validator(mode="after")
    def _whole_months(self) -> Self:
        if abs(self.years * MONTHS_PER_YEAR - self.months) > 1e-6 or self.months == 0:
            raise ValueError(Message("years is {years:g}: whole months are needed", self.years))
        for name, length in (("monthly", 1), ("quarterly", MONTHS_PER_QUARTER)):
            listed = getattr(self.demand, name)
            if listed is not None and len(listed) * length != self.months:
                raise ValueError(
                    Message(
                        "demand.{name} has {count} values; {years:g} years need {needed:g}",
                        name,
                        len(listed),
                        self.years,
                        self.months / length,
                    )
                )
        return self

    @property
    def months(self) -> int:
        """Length of the plan [months]."""
        return round(self.years * MONTHS_PER_YEAR)

    def calendar(self, month: int) -> tuple[int, int]:
        """Return the calendar (year, month from 1 to 12) of the plan's *month*, counted from 0."""
        year, of_year = self.date(month).split("-")
        return int(year), int(of_year)

    def date(self, month: int) -> str:
        """Return the plan's *month*, counted from 0, as year and month: 2027-01."""
        return month_after(self.starts, month)

    @property
    def dates(self) -> list[str]:
        """Months of the plan, for example 2027-01."""
        return list(map(self.date, range(self.months)))

    def age_months(self, bought: str) -> int:
        """Return the months from *bought* to the start of the plan.

        >>> MultiYear(years=1, starts="2027-01").age_months("2025-03")
        22
        """
        return months_between(bought, self.starts)
