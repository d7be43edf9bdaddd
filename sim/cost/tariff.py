"""Electricity that costs more at some hours than at others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import fsum
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.records import Interval
from sim.spec import Count, NonNegative, Spec

HOURS = range(24)
MONTHS = range(1, 13)
DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
MonthAndHour = tuple[int, int]
"""(1 to 12, 0 to 23)."""

Hourly = Annotated[tuple[NonNegative, ...], Field(min_length=24, max_length=24)]
Month = Annotated[Count, Field(le=12)]


class Season(Spec):
    """Months with prices of their own."""

    months: Annotated[tuple[Month, ...], Field(min_length=1)]
    """1 is January."""
    hourly_usd_per_kwh: Hourly


class Tariff(Spec):
    """A price of energy for each hour of the day, at the site's meter and on its clock, summer time left out."""

    hourly_usd_per_kwh: Hourly
    """24 prices, the first from midnight to 1 o'clock."""
    seasons: tuple[Season, ...] = ()
    """Months in which other prices hold."""

    @model_validator(mode="after")
    def _no_month_twice(self) -> Self:
        months = [month for season in self.seasons for month in season.months]
        twice = sorted({month for month in months if months.count(month) > 1})
        if twice:
            raise ValueError(f"month {twice[0]} stands in two seasons")
        return self

    def usd_per_kwh(self, month: int, hour: int) -> float:
        """Price of the hour that begins at *hour* o'clock in *month*."""
        return self._prices(month)[0][hour]

    def by_hour(self) -> tuple[float, ...]:
        """Mean price of each hour of the day over the 365 days of a year."""
        days = sum(DAYS)
        return tuple(fsum(DAYS[m] * self.usd_per_kwh(m, hour) for m in MONTHS) / days for hour in HOURS)

    def bands(self) -> Iterator[tuple[float, str, frozenset[MonthAndHour]]]:
        """Each price with the key in `site.electricity` that states it first, and when it holds."""
        hours: dict[float, set[MonthAndHour]] = {}
        stated: dict[float, str] = {}
        for month in MONTHS:
            prices, key = self._prices(month)
            for hour, price in enumerate(prices):
                hours.setdefault(price, set()).add((month, hour))
                stated.setdefault(price, f"{key}.{hour}")
        return ((price, stated[price], frozenset(when)) for price, when in hours.items())

    def _prices(self, month: int) -> tuple[tuple[float, ...], str]:
        for index, season in enumerate(self.seasons):
            if month in season.months:
                return season.hourly_usd_per_kwh, f"seasons.{index}.hourly_usd_per_kwh"
        return self.hourly_usd_per_kwh, "hourly_usd_per_kwh"


@dataclass(frozen=True, slots=True)
class Band:
    """When one price of a tariff holds, on the clock of a simulation that begins at `starts_at`."""

    starts_at: datetime
    when: frozenset[MonthAndHour]

    def holds(self, interval: Interval) -> bool:
        """Whether *interval*, which lies within one hour of the clock, is charged at this price."""
        middle = self.starts_at + timedelta(seconds=(interval.start_s + interval.end_s) / 2)
        return (middle.month, middle.hour) in self.when

    def share(self, month: int | None = None, by_hour: Sequence[float] | None = None) -> float:
        """Part of the hours of *month* (1 to 12), or of the 365 days of a year, at which the price holds.

        Hours of the day count as the 24 numbers *by_hour* say, or alike.
        """
        weights = [1.0] * len(HOURS) if by_hour is None else by_hour
        days = {m: DAYS[m] for m in (MONTHS if month is None else (month,))}
        held = fsum(days[m] * weights[hour] for m, hour in self.when if m in days)
        return held / (sum(days.values()) * fsum(weights))


def crosses_the_hour(interval: Interval, starts_at: datetime) -> bool:
    """Whether *interval* reaches from one hour of the clock into the next: no hourly price holds for all of it."""
    first, last = (starts_at + timedelta(seconds=at_s) for at_s in (interval.start_s, interval.end_s))
    next_hour = first.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    return last > next_hour
