"""Greenhouse gas emissions of a fleet: operational (electricity) and embodied (manufacture of the machines)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, fsum
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sim.catalogue.market import Grid
from sim.cost.charge import Metered, StatedFigure, UnitPrice
from sim.cost.clock import MIDNIGHT, SiteClock
from sim.cost.metering import ByPhase, MeteredWindow, gpu_s_by_phase, wall_j_by_phase
from sim.cost.power_contract import ContractBook
from sim.cost.prices import CostError, Price, Problem
from sim.message import Message
from sim.records import Interval
from sim.spec import Fraction, NonNegative, Positive, Spec
from sim.units import HOURS_PER_DAY, HOURS_PER_YEAR, JOULES_PER_KWH, SECONDS_PER_HOUR

GRAMS_PER_KG = 1000.0


def _hours(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return (value,)
    if len(value) not in (1, HOURS_PER_DAY):
        raise ValueError(Message("one value or 24, from midnight on, are needed, not {count}", len(value)))
    return value


FlatOrHourly = Annotated[
    tuple[NonNegative, ...], BeforeValidator(_hours, json_schema_input_type=float | tuple[float, ...])
]


class Embodied(Spec):
    """Embodied emissions of manufacture, transport and disposal of the machines."""

    gpu_kg: NonNegative | dict[str, NonNegative]
    """Embodied emissions of one GPU [kg CO2e]: one number, or numbers by GPU id."""
    server_kg: NonNegative
    """Embodied emissions of one server without its GPUs [kg CO2e]."""
    life_years: Positive
    """Lifetime over which embodied emissions are spread [years]."""
    busy_fraction: Annotated[Fraction, Field(gt=0)] | None = None
    """Fraction of their life in which the GPUs are expected to be busy: embodied emissions then count by use, per busy
    GPU-hour. Default: by time, idle hours included."""


class MarketBased(Spec):
    """Market-based account of electricity, with which the scopes of the GHG Protocol are reported."""

    certified: Fraction = 0.0
    """Fraction of the electricity outside `site.power_contracts` that is covered by energy attribute certificates."""
    residual_g_per_kwh: NonNegative | None = None
    """Intensity of all other electricity: the residual mix [g CO2e/kWh]. Default: that of the grid."""


class Carbon(Spec):
    """Carbon section of a scenario: grid intensity, and embodied emissions of the machines."""

    grid: str | None = None
    """Id in data/grids, whose annual mean intensity is used."""
    grid_g_per_kwh: FlatOrHourly | None = None
    """Grid intensity, in place of `grid` [g CO2e/kWh]: an average, or 24 values from midnight on."""
    embodied: Embodied | None = None
    """Embodied emissions of the machines; default: only electricity is counted, as the report states."""
    market: MarketBased | None = None
    """Scopes 2 and 3, with scope 2 by location and by market; `{}` for no certificates and the grid's intensity."""
    usd_per_t: Price | None = None
    """Internal price of emissions per metric ton CO2e: the line `carbon_price` of the bill, which is not a payment."""
    priced: Literal["location", "market"] = "location"
    """Account of electricity to which the internal price applies."""

    @model_validator(mode="after")
    def _market_is_stated(self) -> Self:
        if self.priced == "market" and self.market is None:
            raise ValueError("priced: market needs market, the account that it prices")
        return self

    @model_validator(mode="after")
    def _one_grid(self) -> Self:
        if (self.grid is None) == (self.grid_g_per_kwh is None):
            raise ValueError("either grid (gpufleet list grids) or grid_g_per_kwh is needed")
        return self

    def plan(
        self,
        gpus: Mapping[str, float],
        servers: float,
        pue: float,
        clock: SiteClock,
        grid: Grid | None = None,
        rented: Collection[str] = (),
        contracts: ContractBook | None = None,
    ) -> "CarbonPlan":
        """Return the emission factors of *gpus* (by id) in *servers*, at a site with *pue*.

        Parameters
        ----------
        gpus
            Number of GPUs by catalogue id.
        servers
            Number of servers; 0 if the fleet names none.
        pue
            Power usage effectiveness of the site.
        clock
            Local time at the site.
        grid
            Catalogue entry of `grid`; None if the scenario names none.
        rented
            Names of rented pools, whose electricity is of scope 3.
        contracts
            Power purchase contracts of the site; None without any.

        Raises
        ------
        CostError
            A GPU has no embodied emissions in `embodied.gpu_kg`.

        """
        by_hour = self.grid_g_per_kwh or ((grid.g_per_kwh.value,) if grid is not None else ())
        kg_per_h = 0.0
        notes: tuple[str, ...] = ()
        if self.embodied is None:
            notes = ("Carbon covers electricity only; manufacturing of the machines is not included.",)
        else:
            made_kg = sum(count * _gpu_kg(self.embodied, gpu) for gpu, count in gpus.items())
            made_kg += servers * self.embodied.server_kg
            if not servers and self.embodied.server_kg:
                notes += ("Carbon of manufacturing the server is not included: the fleet names no server.",)
            kg_per_h = made_kg / (self.embodied.life_years * HOURS_PER_YEAR)
        busy = self.embodied.busy_fraction if self.embodied is not None else None
        own = (frozenset(rented), contracts, self.market, busy)
        return CarbonPlan(by_hour, pue, kg_per_h, clock, tuple(self._stated_figures(gpus)), notes, grid, *own)

    def _stated_figures(self, gpus: Mapping[str, float]) -> Iterator[StatedFigure]:
        if (by_hour := self.grid_g_per_kwh) is not None:
            unit = "g CO2e/kWh" if len(by_hour) == 1 else "mean g CO2e/kWh"
            yield StatedFigure("carbon.grid_g_per_kwh", sum(by_hour) / len(by_hour), unit)
        if self.embodied is not None:
            for gpu in gpus:
                key = f"gpu_kg.{gpu}" if isinstance(self.embodied.gpu_kg, dict) else "gpu_kg"
                yield StatedFigure(f"carbon.embodied.{key}", _gpu_kg(self.embodied, gpu), "kg CO2e/GPU")
            yield StatedFigure("carbon.embodied.server_kg", self.embodied.server_kg, "kg CO2e/server")
            yield StatedFigure("carbon.embodied.life_years", self.embodied.life_years, "years")


def _gpu_kg(embodied: Embodied, gpu: str) -> float:
    if not isinstance(embodied.gpu_kg, dict):
        return embodied.gpu_kg
    if gpu not in embodied.gpu_kg:
        raise CostError(Problem("carbon.embodied.gpu_kg", Message("no figure for {gpu}: add {gpu}: <kg CO2e>", gpu)))
    return embodied.gpu_kg[gpu]


@dataclass(frozen=True, slots=True)
class CarbonPlan:
    """Emission factors of a fleet, per kWh and per hour.

    Notes
    -----
        operational = energy at the servers * PUE * grid intensity
        embodied    = emissions of manufacture * hours of use / hours of life

    Idle machines count, too: they age as busy ones do.

    References
    ----------
    CodeCarbon and the ML CO2 calculator (operational); the Green Software Foundation's SCI, time share, and EcoLogits
    (embodied).

    """

    grid_g_per_kwh: tuple[float, ...]
    pue: float
    """Energy of the site divided by that of the servers."""
    embodied_kg_per_h: float
    clock: SiteClock = MIDNIGHT
    """Local time at the site, which selects among 24 intensities."""
    stated: tuple[StatedFigure, ...] = ()
    """Figures stated in the scenario."""
    notes: tuple[str, ...] = ()
    """Sentences for the report."""
    grid: Grid | None = None
    """Catalogue entry of the grid; None if the scenario names none."""
    rented: frozenset[str] = frozenset()
    """Names of rented pools."""
    contracts: ContractBook | None = None
    """Power purchase contracts; None without any."""
    market: MarketBased | None = None
    """Terms of the market-based account; None: scopes are not reported."""
    busy_fraction: float | None = None
    """Expected busy fraction of the GPUs' life; None: embodied emissions count by time."""

    def embodied_kg(self, intervals: Sequence[Interval], hours: float) -> float:
        """Return the embodied emissions of the machines in *hours*, in which *intervals* were metered [kg CO2e]."""
        if self.busy_fraction is None:
            return self.embodied_kg_per_h * hours
        metered_s = fsum(one.gpu_s for one in intervals)
        busy_s = fsum(busy_gpu_s(one) for one in intervals)
        return self.embodied_kg_per_h * hours * busy_s / metered_s / self.busy_fraction if metered_s else 0.0

    def scope_2_kg(self, window: MeteredWindow, by_market: bool) -> float:
        """Return the emissions of the owned machines' electricity in *window* [kg CO2e]."""
        owned = [one for pool, rows in window.intervals.items() if pool not in self.rented for one in rows]
        if not by_market:
            return self.operational_kg(owned)
        kg = fsum(self.market_g_per_kwh(one, window) * one.server_energy_j for one in owned)
        return self.pue * kg / JOULES_PER_KWH / GRAMS_PER_KG

    def scope_3_kg(self, window: MeteredWindow) -> float:
        """Return the embodied emissions, and those of the rented machines' electricity, in *window* [kg CO2e]."""
        rented = [one for pool, rows in window.intervals.items() if pool in self.rented for one in rows]
        every = [one for rows in window.intervals.values() for one in rows]
        return self.operational_kg(rented) + self.embodied_kg(every, window.hours)

    def g_per_kwh(self, interval: Interval) -> float:
        """Return the grid's mean intensity in *interval* [g CO2e/kWh]."""
        return self._intensity(interval.start_s, interval.end_s)

    def market_g_per_kwh(self, interval: Interval, window: MeteredWindow) -> float:
        """Return the market-based intensity of the electricity of *interval*, part of *window* [g CO2e/kWh].

        The energy under contracts has their intensity, the certified rest none, all other the residual mix.
        """
        assert self.market is not None
        residual = self.market.residual_g_per_kwh
        rest = (1 - self.market.certified) * (self.g_per_kwh(interval) if residual is None else residual)
        if self.contracts is None or interval.pool in self.rented:
            return rest
        covered, drawn = self.contracts.covered_kwh(window), self.contracts.drawn_in(window)
        if not drawn:
            return rest
        under = fsum(kwh * one.g_per_kwh for kwh, one in zip(covered, self.contracts.contracts, strict=True))
        return (under + max(0.0, drawn - fsum(covered)) * rest) / drawn

    def averaged(self, weights: Sequence[float] | None) -> "CarbonPlan":
        """Return the plan with the mean grid intensity of the year, its hours weighted by *weights* (24 or 168)."""
        if len(self.grid_g_per_kwh) == 1:
            return self
        by_hour = [1.0] * HOURS_PER_DAY
        if weights is not None:
            by_hour = [fsum(weights[hour::HOURS_PER_DAY]) for hour in range(HOURS_PER_DAY)]
        mean = fsum(g * one for g, one in zip(self.grid_g_per_kwh, by_hour, strict=True)) / fsum(by_hour)
        return replace(self, grid_g_per_kwh=(mean,))

    def operational_kg(self, intervals: Iterable[Interval]) -> float:
        """Return the operational emissions of the energy that *intervals* metered at the servers' plugs [kg CO2e]."""
        grams = sum(
            interval.server_energy_j / JOULES_PER_KWH * self._intensity(interval.start_s, interval.end_s)
            for interval in intervals
        )
        return self.pue * grams / GRAMS_PER_KG

    def _intensity(self, start_s: float, end_s: float) -> float:
        """Return the mean grid intensity over [start_s, end_s) [g/kWh]."""
        if len(self.grid_g_per_kwh) == 1 or end_s <= start_s:
            return self.grid_g_per_kwh[floor(self._hour(start_s)) % len(self.grid_g_per_kwh)]
        total = 0.0
        start_h, end_h = self._hour(start_s), self._hour(end_s)
        for hour in range(floor(start_h), floor(end_h) + 1):
            from_h, to_h = max(start_h, hour), min(end_h, hour + 1)
            total += max(0.0, to_h - from_h) * self._intensity_at((from_h + to_h) / 2 - self._hour(0.0))
        return total / (end_h - start_h)

    def _intensity_at(self, hours: float) -> float:
        """Return the grid intensity *hours* after simulated time 0, by the site's local time [g/kWh]."""
        return self.grid_g_per_kwh[self.clock.at(SECONDS_PER_HOUR * hours).hour % len(self.grid_g_per_kwh)]

    def _hour(self, at_s: float) -> float:
        """Return the hours at *at_s* since midnight of the day on which the simulation starts."""
        at = self.clock.starts_at
        return at.hour + at.minute / 60 + at.second / 3600 + at_s / SECONDS_PER_HOUR


def busy_gpu_s(interval: Interval) -> float:
    """Return the GPU-seconds of *interval* in which requests are computed [GPU s]."""
    parts = gpu_s_by_phase(interval)
    return parts.prefill + parts.decode + parts.recompute


@dataclass(frozen=True, slots=True)
class EmissionCharge(Metered):
    """Internal price of the emissions of one pool's electricity, booked to the phases that used the energy."""

    pool: str
    server: str
    plan: CarbonPlan
    by_market: bool
    price: UnitPrice
    component: str = "carbon_price"

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """True if the emissions depend on contracts that equal fleets share."""
        return self.by_market and self.plan.contracts is not None

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the emissions of *interval* [kg CO2e]."""
        plan = self.plan
        intensity = plan.market_g_per_kwh(interval, window) if self.by_market else plan.g_per_kwh(interval)
        return wall_j_by_phase(interval).scaled(plan.pue * intensity / JOULES_PER_KWH / GRAMS_PER_KG)

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """Return the charge at the mean grid intensity of the year."""
        return replace(self, plan=self.plan.averaged(by_hour))


@dataclass(frozen=True, slots=True)
class EmbodiedCharge(Metered):
    """Internal price of the embodied emissions of one pool by use, booked to the phases of its busy GPU time."""

    pool: str
    server: str
    kg_per_gpu_h: float
    """Embodied emissions per busy GPU-hour [kg CO2e]."""
    price: UnitPrice
    component: str = "carbon_price"

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the emissions of *interval* by use [kg CO2e]."""
        parts = gpu_s_by_phase(interval)
        busy = ByPhase(parts.prefill, parts.decode, parts.recompute, 0.0)
        return busy.scaled(self.kg_per_gpu_h / SECONDS_PER_HOUR)
