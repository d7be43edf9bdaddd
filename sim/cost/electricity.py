"""Electricity at a site: tariffs, energy and demand charges, and a separately metered cooling plant.

A tariff's price depends on the hour, the day of the week and the season.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import lru_cache
from math import fsum
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from sim.cost.charge import Metered, UnitPrice
from sim.cost.clock import SiteClock
from sim.cost.metering import ByPhase, MeteredWindow, wall_j_by_phase
from sim.cost.power_contract import ContractBook
from sim.cost.prices import HourlyPrices, StatedPrice
from sim.message import Message
from sim.records import Interval
from sim.spec import Count, Fraction, Positive, Spec
from sim.units import HOURS_PER_MONTH, JOULES_PER_KWH

HOURS = range(24)
MONTHS = range(1, 13)
WEEKDAYS = range(7)
SATURDAY, SUNDAY = 5, 6

Month = Annotated[Count, Field(le=12)]


class Week(Spec):
    """24 prices for each day of a week; the first applies from midnight to 1 o'clock."""

    hourly_usd_per_kwh: HourlyPrices
    """Prices of all days without their own."""
    saturday_usd_per_kwh: HourlyPrices | None = None
    """Prices on Saturdays [USD/kWh]. Default: those of the other days."""
    sunday_usd_per_kwh: HourlyPrices | None = None
    """Prices on Sundays and holidays [USD/kWh]. Default: those of the other days."""

    def of_day(self, weekday: int) -> tuple[tuple[StatedPrice, ...], str]:
        """Return the prices of *weekday* (0 is Monday), and the key that states them."""
        if weekday == SATURDAY and self.saturday_usd_per_kwh is not None:
            return self.saturday_usd_per_kwh, "saturday_usd_per_kwh"
        if weekday == SUNDAY and self.sunday_usd_per_kwh is not None:
            return self.sunday_usd_per_kwh, "sunday_usd_per_kwh"
        return self.hourly_usd_per_kwh, "hourly_usd_per_kwh"


class Season(Week):
    """Months with a separate week of prices."""

    months: Annotated[tuple[Month, ...], Field(min_length=1)]
    """Month numbers; 1 is January."""


class Tariff(Week):
    """Energy price by hour at the site's meter, in local time (the site's `timezone`)."""

    seasons: tuple[Season, ...] = ()
    """Months with different prices."""
    holidays: tuple[date, ...] = ()
    """Days with Sunday prices, for example [2026-12-25, 2027-01-01]."""

    @model_validator(mode="after")
    def _no_month_twice(self) -> Self:
        months = [month for season in self.seasons for month in season.months]
        twice = sorted({month for month in months if months.count(month) > 1})
        if twice:
            raise ValueError(Message("month {month} is in two seasons", twice[0]))
        return self

    @model_validator(mode="after")
    def _holidays_have_prices(self) -> Self:
        weeks: tuple[Week, ...] = (self, *self.seasons)
        if self.holidays and all(week.sunday_usd_per_kwh is None for week in weeks):
            raise ValueError("holidays have the prices of a Sunday: state sunday_usd_per_kwh")
        return self

    def usd_per_kwh(self, at: datetime) -> float:
        """Return the price at local time *at* [USD/kWh]."""
        return self._week(at.month)[0].of_day(self._weekday(at.date()))[0][at.hour].usd

    def mean_usd_per_kwh(
        self, clock: SiteClock, month: int | None = None, weights: Sequence[float] | None = None
    ) -> float:
        """Return the mean price over the year in which *clock* starts, or over one *month* of it [USD/kWh].

        *weights* are a load by hour of the day (24) or of the week (168, from Monday's midnight), in any unit and not
        all 0; None: an even load. Hours that summer time skips or repeats are weighted by their real duration.
        """
        parts = self.parts(clock, month, weights)
        return fsum(weight * usd for (_, usd), weight in parts.items()) / fsum(parts.values())

    def by_hour(self, clock: SiteClock, count: int = 24) -> tuple[float, ...]:
        """Return the annual mean price of each hour of the day [USD/kWh]; *count* 168: of each hour of the week."""
        return _by_hour(self, clock, count)

    @property
    def varies_by_weekday(self) -> bool:
        """True if some days of the week have their own prices."""
        weeks: tuple[Week, ...] = (self, *self.seasons)
        return any(week.saturday_usd_per_kwh or week.sunday_usd_per_kwh for week in weeks)

    def parts(
        self, clock: SiteClock, month: int | None = None, weights: Sequence[float] | None = None
    ) -> Mapping[tuple[int, float], float]:
        """Return the hours by (month, price) in the year in which *clock* starts, weighted by the load."""
        return _parts(self, clock, month, None if weights is None else tuple(weights))

    def bands(self) -> Iterator[tuple[StatedPrice, str]]:
        """Return each distinct price with the first key in `site.electricity` that states it."""
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

    def cells(self, clock: SiteClock) -> Iterator[tuple[int, int, int, float, float]]:
        """Yield (month, weekday, hour, duration in the year in which *clock* starts [h], price) for each cell."""
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
def _calendar(clock: SiteClock, holidays: frozenset[date]) -> dict[tuple[int, int, int], tuple[float, ...]]:
    """Return the total duration of each hour of the day [h], by (month, weekday, weekday whose prices apply)."""
    sums: dict[tuple[int, int, int], list[float]] = {}
    for day, lengths in clock.days:
        weekday = day.weekday()
        cell = sums.setdefault((day.month, weekday, SUNDAY if day in holidays else weekday), [0.0] * len(HOURS))
        for hour, length_h in enumerate(lengths):
            cell[hour] += length_h
    return {key: tuple(lengths) for key, lengths in sums.items()}


@lru_cache(maxsize=512)
def _parts(
    tariff: Tariff, clock: SiteClock, of_month: int | None, weights: tuple[float, ...] | None
) -> dict[tuple[int, float], float]:
    parts: dict[tuple[int, float], float] = {}
    for month, weekday, hour, length_h, usd in tariff.cells(clock):
        if of_month in (None, month):
            weight = 1.0 if weights is None else weights[(24 * weekday + hour) % len(weights)]
            parts[month, usd] = parts.get((month, usd), 0.0) + length_h * weight
    return parts


@lru_cache(maxsize=64)
def _by_hour(tariff: Tariff, clock: SiteClock, count: int) -> tuple[float, ...]:
    hours: list[dict[tuple[int, float], float]] = [{} for _ in range(count)]
    for month, weekday, hour, length_h, usd in tariff.cells(clock):
        cell = hours[(24 * weekday + hour) % count]
        cell[month, usd] = cell.get((month, usd), 0.0) + length_h
    return tuple(fsum(length * usd for (_, usd), length in of.items()) / fsum(of.values()) for of in hours)


@dataclass(frozen=True, slots=True)
class Band:
    """Hours in which one price of a tariff applies, by the site's clock."""

    clock: SiteClock
    tariff: Tariff
    usd_per_kwh: float

    def applies_to(self, interval: Interval) -> bool:
        """Return whether *interval*, which lies within one clock hour, is charged at this price."""
        return self.tariff.usd_per_kwh(self.clock.at(interval.middle_s)) == self.usd_per_kwh

    def share(self, month: int | None = None, weights: Sequence[float] | None = None) -> float:
        """Return the fraction of the energy of a year, or of one *month*, that is charged at this price.

        *weights* are the load, as in `Tariff.mean_usd_per_kwh`. The shares of a tariff's bands sum to 1.
        """
        parts = self.tariff.parts(self.clock, month, weights)
        return fsum(part for (_, usd), part in parts.items() if usd == self.usd_per_kwh) / fsum(parts.values())


class DemandRatchet(Spec):
    """Least billed demand, as a fraction of the highest peak of earlier months."""

    fraction: Annotated[Fraction, Field(gt=0)]
    """Fraction of that peak, often 0.5 to 1."""
    peak_kw: Positive
    """Highest peak of the months that the ratchet looks back on, at the site's meter [kW]."""

    @property
    def least_kw(self) -> float:
        """Power that is billed at least [kW]."""
        return self.fraction * self.peak_kw


class Cooling(Spec):
    """Cooling plant billed separately, for a PUE that covers power distribution only."""

    cop: Positive
    """Coefficient of performance: heat removed per unit of electricity, about 3 to 6 for chillers."""

    @property
    def per_server_energy(self) -> float:
        """Electricity of the cooling plant per unit of the servers' energy, all of which becomes heat.

        >>> Cooling(cop=4).per_server_energy
        0.25
        """
        return 1 / self.cop


@dataclass(frozen=True, slots=True)
class EnergyCharge(Metered):
    """Energy charge of one pool at the site's meter, booked to the phases that used the energy.

    Notes
    -----
    amount = energy at the servers' plugs * PUE * price of the tariff. A cooling plant is a separate charge, only where
    the PUE does not include it.

    """

    pool: str
    server: str
    pue: float
    """Energy at the site's meter divided by energy at the servers' plugs: the PUE, or the cooling plant's part."""
    price: UnitPrice
    band: Band | None = None
    """Hours in which the price applies; None: always."""
    component: str = "energy"
    contracts: ContractBook | None = None
    """Contracts that price a part of the energy; None: the tariff prices all of it."""

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """True if equal fleets share contracts."""
        return self.contracts is not None

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the energy at the site's meter in *interval* [kWh]; None while another price applies."""
        if self.band is not None and not self.band.applies_to(interval):
            return None
        return wall_j_by_phase(interval).scaled(self.pue / JOULES_PER_KWH)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the energy at the tariff [kWh]."""
        return metered if self.contracts is None else metered * self.contracts.beyond(window)

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return the cost of the minimum power; 0 for a price of some hours, or beside contracts [USD/h]."""
        varies = self.band is not None or self.contracts is not None
        return 0.0 if varies else self.pue * least_kw * self.price.usd

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """Return the charge for all energy at this price's share of the mean price.

        The charges of all bands together then are the energy at the mean price.
        """
        if self.band is None:
            return self
        usd = self.price.usd * self.band.share(month, by_hour)
        return replace(self, band=None, price=self.price.per(self.price.unit, usd))


@dataclass(frozen=True, slots=True)
class DemandCharge(Metered):
    """Demand charge: one pool's part of the site's peak power, booked to the phases that used energy.

    Notes
    -----
    amount = power of the pool in the site's peak interval [kW] * months * price per kW-month.

    Utilities take the highest mean over a demand interval, usually 15 minutes. The simulated window represents the
    month: its highest interval is the month's peak, and each pool pays for its power in that interval.

    References
    ----------
    McLaren, Gagnon and Mullendore, Identifying Potential Markets for Behind-the-Meter Battery Energy Storage: A Survey
    of U.S. Demand Charges, NREL/BR-6A20-68963, 2017.

    """

    pool: str
    server: str
    pools: tuple[str, ...]
    """All pools of the fleet behind the same meter."""
    facility_factor: float
    """Power at the site's meter divided by power at the servers' plugs."""
    price: UnitPrice
    least_billed_kw: float = 0.0
    """Power at the site's meter that is billed at least: the ratchet's part of an earlier peak [kW]."""
    component: str = "demand"

    by_peak: ClassVar[bool] = True

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """True if equal fleets share a ratchet."""
        return self.least_billed_kw > 0

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the energy at the site's meter in *interval* [kWh]."""
        return wall_j_by_phase(interval).scaled(self.facility_factor / JOULES_PER_KWH)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the pool's power at the site's peak, times the months in the window [kW-months]."""
        parts = window.parts or (window,)
        kw_h = sum(self._billed_kw(part.peak_kw(self.pools)) * part.hours for part in parts)
        return self.facility_factor * kw_h / HOURS_PER_MONTH

    def _billed_kw(self, peak_kw: Mapping[str, float]) -> float:
        """Return the pool's part of the billed power at the servers' plugs, from all pools' power at the peak [kW]."""
        site_kw = self.facility_factor * sum(peak_kw.values())
        return peak_kw[self.pool] * (max(1.0, self.least_billed_kw / site_kw) if site_kw else 1.0)

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return the demand charge of the minimum power [USD/h]."""
        return self.facility_factor * least_kw * self.price.usd / HOURS_PER_MONTH

    def scaled(self, part: float, pool: str) -> Self:
        """Return this charge in *pool*, unchanged: more hardware draws more power."""
        return replace(self, pool=pool, pools=tuple(pool if name == self.pool else name for name in self.pools))
