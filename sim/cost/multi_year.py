"""What a plan over several years assumes: how demand grows, how prices fall, how long an order takes."""

from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.cost.rental import Rent
from sim.cost.time_value import MONTHS_PER_YEAR, price_factor
from sim.spec import Count, Fraction, NonNegative, Positive, Spec, WholeNumber

MONTHS_PER_QUARTER = 3
_FORM = "a month is needed, for example 2027-01"


def _month(value: Any) -> str:
    year, dash, month = str(value).partition("-")
    if len(year) != 4 or not dash or not (year + month).isdecimal() or not 1 <= int(month) <= MONTHS_PER_YEAR:
        raise ValueError(f"{_FORM}, not {value!r}")
    return f"{year}-{int(month):02}"


CalendarMonth = Annotated[str, BeforeValidator(_month)]
Rate = Annotated[float, Field(gt=-1, le=10, strict=True)]
Decline = Annotated[float, Field(gt=-1, lt=1, strict=True)]


class Demand(Spec):
    """Mean load of every month, in the scenario's own unit: requests per second, clients, or the trace's speed.

    It grows at a constant rate, or it is listed.
    """

    now: Positive | None = None
    """Mean load in the first month. Default: the mean of `load_profile`, without one the scenario's load."""
    growth_per_year: Rate = 0.0
    """0.5: half as much again after a year; it compounds month by month."""
    monthly: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """One value a month, in place of growth."""
    quarterly: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """One value for every three months, in place of growth."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        given = [name for name in ("monthly", "quarterly") if getattr(self, name) is not None]
        grown = [name for name in ("now", "growth_per_year") if name in self.model_fields_set]
        if len(given) > 1 or (given and grown):
            raise ValueError(f"{' and '.join([*grown, *given])} both say what the demand is: state one")
        return self

    def by_month(self, months: int, usual: float) -> tuple[float, ...]:
        """Mean load in each of *months*; *usual* is the scenario's own."""
        if self.monthly is not None:
            return self.monthly
        if self.quarterly is not None:
            return tuple(value for value in self.quarterly for _ in range(MONTHS_PER_QUARTER))
        start = usual if self.now is None else self.now
        return tuple(start * price_factor(-self.growth_per_year, month) for month in range(months))


class ExistingUnits(Spec):
    """Units of a fleet that are in service when the plan starts: every plan starts with them, and sells them in the
    month that costs least, at the end of their life at the latest.
    """

    fleet: str
    """A fleet of the scenario that buys: it says what a unit is, serves and costs to run."""
    units: Count
    """Sold together; units that may go one by one are entries of their own."""
    bought: CalendarMonth
    """First month in service, for example 2025-03; the life of finance counts from here."""
    book_value_usd: NonNegative | None = None
    """What all of these units together stand for in the books at the start of the plan, in US dollars. It is sunk: it
    decides nothing, and gives the gain or loss on disposal. Left out: none is reported."""


class MultiYear(Spec):
    """A plan month by month. Each fleet is a building block: as many whole units of it as the demand needs."""

    years: Positive
    """How far the plan looks ahead, in whole months."""
    starts: CalendarMonth
    """The first month, for example 2027-01."""
    demand: Demand = Demand()
    """Default: the mean of `load_profile`, without one the scenario's load; no growth."""
    peak_to_mean: Annotated[Positive, Field(ge=1)] = 1.0
    """Load of the busiest hours over the mean of the month: capacity must cover the former. A higher ratio in
    `load_profile` counts instead."""
    reserve_units: WholeNumber = 0
    """Units in service beyond those that the peak needs (N + k)."""
    lead_time_months: WholeNumber = 0
    """From an order to its service."""
    price_decline_per_year: Decline = 0.0
    """How much less the same hardware costs a year later, as a fraction; below 0 it gets dearer."""
    rental_decline_per_year: Decline = 0.0
    """How much less rents cost a year later, as a fraction; a contract keeps the price at which it was signed."""
    rental_term_months: Count = 1
    """Shortest time for which a unit is rented; a commitment has its own."""
    discount_rate: Fraction | None = None
    """Per year; left out: the one in finance."""
    bridge: dict[str, Rent] = Field(default_factory=dict)
    """Fleet that buys -> terms on which the same hardware is rented while its first orders are on the way."""
    existing: tuple[ExistingUnits, ...] = ()
    """What is in service when the plan starts."""

    @model_validator(mode="after")
    def _whole_months(self) -> Self:
        if abs(self.years * MONTHS_PER_YEAR - self.months) > 1e-6 or self.months == 0:
            raise ValueError(f"years is {self.years:g}: whole months are needed")
        for name, length in (("monthly", 1), ("quarterly", MONTHS_PER_QUARTER)):
            listed = getattr(self.demand, name)
            if listed is not None and len(listed) * length != self.months:
                raise ValueError(
                    f"demand.{name} has {len(listed)} values; {self.years:g} years need {self.months / length:g}"
                )
        return self

    @property
    def months(self) -> int:
        """Length of the plan."""
        return round(self.years * MONTHS_PER_YEAR)

    def calendar(self, month: int) -> tuple[int, int]:
        """(year, month from 1 to 12) of the plan's *month*, counted from 0."""
        year, first = map(int, self.starts.split("-"))
        years, rest = divmod(first - 1 + month, MONTHS_PER_YEAR)
        return year + years, rest + 1

    def age_months(self, bought: str) -> int:
        """Months from *bought* to the start of the plan.

        >>> MultiYear(years=1, starts="2027-01").age_months("2025-03")
        22
        """
        (start, first), (year, month) = (map(int, when.split("-")) for when in (self.starts, bought))
        return (start - year) * MONTHS_PER_YEAR + first - month
