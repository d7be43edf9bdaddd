"""Electricity whose price depends on the hour, the day of the week and the season."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import lru_cache
from math import fsum
from typing import Annotated, Self

from pydantic import Field, model_validator

from sim.cost.money import HourlyPrices, StatedPrice
from sim.cost.site.clock import Clock
from sim.records import Interval
from sim.spec import Count, Spec

HOURS = range(24)
MONTHS = range(1, 13)
WEEKDAYS = range(7)
SATURDAY, SUNDAY = 5, 6

Month = Annotated[Count, Field(le=12)]


class Week(Spec):
    """24 prices for each day of a week, the first from midnight to 1 o'clock."""

    hourly_usd_per_kwh: HourlyPrices
    """Of every day that has no prices of its own."""
    saturday_usd_per_kwh: HourlyPrices | None = None
    sunday_usd_per_kwh: HourlyPrices | None = None

    def of_day(self, weekday: int) -> tuple[tuple[StatedPrice, ...], str]:
        """Prices of a day, 0 is Monday, and the key that states them."""
        if weekday == SATURDAY and self.saturday_usd_per_kwh is not None:
            return self.saturday_usd_per_kwh, "saturday_usd_per_kwh"
        if weekday == SUNDAY and self.sunday_usd_per_kwh is not None:
            return self.sunday_usd_per_kwh, "sunday_usd_per_kwh"
        return self.hourly_usd_per_kwh, "hourly_usd_per_kwh"


class Season(Week):
    """Months with prices of their own, for the whole week."""

    months: Annotated[tuple[Month, ...], Field(min_length=1)]
    """1 is January."""


class Tariff(Week):
    """A price of energy for each hour, at the site's meter and on its clock: local time with the site's `timezone`."""

    seasons: tuple[Season, ...] = ()
    """Months in which other prices hold."""
    holidays: tuple[date, ...] = ()
    """Days with the prices of a Sunday: [2026-12-25, 2027-01-01]."""

    @model_validator(mode="after")
    def _no_month_twice(self) -> Self:
        months = [month for season in self.seasons for month in season.months]
        twice = sorted({month for month in months if months.count(month) > 1})
        if twice:
            raise ValueError(f"month {twice[0]} stands in two seasons")
        return self

    @model_validator(mode="after")
    def _holidays_have_prices(self) -> Self:
        weeks: tuple[Week, ...] = (self, *self.seasons)
        if self.holidays and all(week.sunday_usd_per_kwh is None for week in weeks):
            raise ValueError("holidays have the prices of a Sunday: state sunday_usd_per_kwh")
        return self

    def usd_per_kwh(self, at: datetime) -> float:
        """Price at the local time *at*."""
        return self._week(at.month)[0].of_day(self._weekday(at.date()))[0][at.hour].usd

    def mean_usd_per_kwh(self, clock: Clock, month: int | None = None, weights: Sequence[float] | None = None) -> float:
        """Mean price over the year in which *clock* starts, or over one *month* of it [USD/kWh].

        *weights* are a load by the hour of the day (24) or of the week (168, from Monday's midnight), in any unit and
        not 0 throughout; None: an even load. Hours that summer time skips or repeats count as often as they come.
        """
        parts = self.parts(clock, month, weights)
        return fsum(weight * usd for (_, usd), weight in parts.items()) / fsum(parts.values())

    def by_hour(self, clock: Clock, count: int = 24) -> tuple[float, ...]:
        """Mean price of each hour of the day over the year in which *clock* starts; *count* 168: of the week."""
        return _by_hour(self, clock, count)

    @property
    def knows_weekdays(self) -> bool:
        """Whether some days of the week have prices of their own."""
        weeks: tuple[Week, ...] = (self, *self.seasons)
        return any(week.saturday_usd_per_kwh or week.sunday_usd_per_kwh for week in weeks)

    def parts(
        self, clock: Clock, month: int | None = None, weights: Sequence[float] | None = None
    ) -> Mapping[tuple[int, float], float]:
        """(month, price) -> its hours in the year in which *clock* starts, times the load in them."""
        return _parts(self, clock, month, None if weights is None else tuple(weights))

    def bands(self) -> Iterator[tuple[StatedPrice, str]]:
        """Each price with the key in `site.electricity` that states it first."""
        days: dict[str, tuple[StatedPrice, ...]] = {}
        for month in MONTHS:
            week, holder = self._week(month)
            for weekday in WEEKDAYS:
                prices, key = week.of_day(weekday)
                days.setdefault(f"{holder}{key}", prices)
        stated: dict[float, tuple[StatedPrice, str]] = {}
        for place, prices in days.items():
            for hour, price in enumerate(prices):
                stated.setdefault(price.usd, (price, f"{place}.{hour}"))
        return iter(stated.values())

    def cells(self, clock: Clock) -> Iterator[tuple[int, int, int, float, float]]:
        """(month, weekday, hour, hours that it lasts in the year in which *clock* starts, its price)."""
        for (month, weekday, priced_as), lengths in _calendar(clock, frozenset(self.holidays)).items():
            prices = self._week(month)[0].of_day(priced_as)[0]
            for hour, length_h in enumerate(lengths):
                yield month, weekday, hour, length_h, prices[hour].usd

    def _weekday(self, day: date) -> int:
        return SUNDAY if day in self.holidays else day.weekday()

    def _week(self, month: int) -> tuple[Week, str]:
        for index, season in enumerate(self.seasons):
            if month in season.months:
                return season, f"seasons.{index}."
        return self, ""


@lru_cache(maxsize=64)
def _calendar(clock: Clock, holidays: frozenset[date]) -> dict[tuple[int, int, int], tuple[float, ...]]:
    """(month, weekday, weekday whose prices hold) -> how long each hour of the day lasts on all such days [h]."""
    sums: dict[tuple[int, int, int], list[float]] = {}
    for day, lengths in clock.days:
        weekday = day.weekday()
        cell = sums.setdefault((day.month, weekday, SUNDAY if day in holidays else weekday), [0.0] * len(HOURS))
        for hour, length_h in enumerate(lengths):
            cell[hour] += length_h
    return {key: tuple(lengths) for key, lengths in sums.items()}


@lru_cache(maxsize=512)
def _parts(
    tariff: Tariff, clock: Clock, of_month: int | None, weights: tuple[float, ...] | None
) -> dict[tuple[int, float], float]:
    parts: dict[tuple[int, float], float] = {}
    for month, weekday, hour, length_h, usd in tariff.cells(clock):
        if of_month in (None, month):
            weight = 1.0 if weights is None else weights[(24 * weekday + hour) % len(weights)]
            parts[month, usd] = parts.get((month, usd), 0.0) + length_h * weight
    return parts


@lru_cache(maxsize=64)
def _by_hour(tariff: Tariff, clock: Clock, count: int) -> tuple[float, ...]:
    hours: list[dict[tuple[int, float], float]] = [{} for _ in range(count)]
    for month, weekday, hour, length_h, usd in tariff.cells(clock):
        cell = hours[(24 * weekday + hour) % count]
        cell[month, usd] = cell.get((month, usd), 0.0) + length_h
    return tuple(fsum(length * usd for (_, usd), length in of.items()) / fsum(of.values()) for of in hours)


@dataclass(frozen=True, slots=True)
class Band:
    """When one price of a tariff holds, on the clock of a simulation."""

    clock: Clock
    tariff: Tariff
    usd_per_kwh: float

    def holds(self, interval: Interval) -> bool:
        """Whether *interval*, which lies within one hour of the clock, is charged at this price."""
        return self.tariff.usd_per_kwh(self.clock.at(interval.middle_s)) == self.usd_per_kwh

    def share(self, month: int | None = None, weights: Sequence[float] | None = None) -> float:
        """Part of the energy of a year, or of one *month*, that is charged at this price.

        *weights* are the load, as in `Tariff.mean_usd_per_kwh`. The shares of a tariff's bands sum to 1.
        """
        parts = self.tariff.parts(self.clock, month, weights)
        return fsum(part for (_, usd), part in parts.items() if usd == self.usd_per_kwh) / fsum(parts.values())
