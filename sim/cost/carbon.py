"""Greenhouse gas emissions of a fleet: operational (electricity) and embodied (manufacture of the machines)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import floor
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, model_validator

from sim.catalogue.market import Grid
from sim.cost.charge import StatedFigure
from sim.cost.clock import MIDNIGHT, SiteClock
from sim.cost.prices import CostError, Problem
from sim.message import Message
from sim.records import Interval
from sim.spec import NonNegative, Positive, Spec
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


class Carbon(Spec):
    """Carbon section of a scenario: grid intensity, and embodied emissions of the machines."""

    grid: str | None = None
    """Id in data/grids, whose annual mean intensity is used."""
    grid_g_per_kwh: FlatOrHourly | None = None
    """Grid intensity, in place of `grid` [g CO2e/kWh]: an average, or 24 values from midnight on."""
    embodied: Embodied | None = None
    """Embodied emissions of the machines; default: only electricity is counted, as the report states."""

    @model_validator(mode="after")
    def _one_grid(self) -> Self:
        if (self.grid is None) == (self.grid_g_per_kwh is None):
            raise ValueError("either grid (gpufleet list grids) or grid_g_per_kwh is needed")
        return self

    def plan(
        self, gpus: Mapping[str, float], servers: float, pue: float, clock: SiteClock, grid: Grid | None = None
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
        return CarbonPlan(by_hour, pue, kg_per_h, clock, tuple(self._stated(gpus)), notes, grid)

    def _stated(self, gpus: Mapping[str, float]) -> Iterator[StatedFigure]:
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
            total += max(0.0, to_h - from_h) * self._at((from_h + to_h) / 2 - self._hour(0.0))
        return total / (end_h - start_h)

    def _at(self, hours: float) -> float:
        """Return the grid intensity *hours* after simulated time 0, by the site's local time [g/kWh]."""
        return self.grid_g_per_kwh[self.clock.at(SECONDS_PER_HOUR * hours).hour % len(self.grid_g_per_kwh)]

    def _hour(self, at_s: float) -> float:
        """Return the hours at *at_s* since midnight of the day on which the simulation starts."""
        at = self.clock.starts_at
        return at.hour + at.minute / 60 + at.second / 3600 + at_s / SECONDS_PER_HOUR
