"""What a finished point costs in many futures: its meters are added up once, and only its terms are priced anew.

A draw changes no quantity. A bill is then flat charges by the hour plus metered sums times prices, a tenth of a
millisecond; as the sums are rounded otherwise than the ledger's, a future is the ledger's own total plus what the draw
changes in this sum. A draw of the central values is thus the ledger's total to the last digit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import fsum
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.cost import CarbonPlan, CostPlan
from sim.cost.bill.charge import amount_usd
from sim.cost.bill.window import ONE_HOUR, Window, together
from sim.cost.site.carbon import GRAMS_PER_KG
from sim.records import Interval
from sim.scenario.reading.errors import Place
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolve import resolve_fleet
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines, place_in_terms
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, at_point
from sim.study.cases.store import StoredCase
from sim.study.fleets.futures.inputs import World
from sim.study.money.price.rebill import added_up, window_s

AMOUNTS = ("usd", "api_usd", "kg_co2e")


@dataclass(frozen=True, slots=True)
class Amounts:
    """What all replications of a point come to in one future; None: not asked for."""

    usd: float
    api_usd: float | None
    kg_co2e: float | None


@dataclass(frozen=True, slots=True)
class MeterReading:
    """The meters of one fleet at one point, all replications together."""

    window: Window
    """Of its intervals one per pool, state and, where electricity is priced by it, hour of the clock."""
    kwh_by_hour: tuple[float, ...]
    """Energy at the servers' plugs, by the hour of the grid's intensity; empty without `carbon` or known power."""

    @classmethod
    def of(cls, cases: Sequence[StoredCase], plan: CasePlan) -> "MeterReading":
        """Of the replications *cases*, which all have the *plan* but for their warm-up."""
        windows = []
        for case in cases:
            rows = [Interval(**row) for row in case.usage().to_pylist()]
            windows.append(Window.of(rows, *window_s(replace(plan, warmup_s=case.metrics.traffic.warmup_s), rows)))
        metered = [row for window in windows for rows in window.intervals.values() for row in rows]
        whole = together(windows)
        merged = {pool: added_up((_of_pool(row) for row in rows), plan.clock) for pool, rows in whole.intervals.items()}
        return cls(replace(whole, intervals=merged), tuple(_kwh_by_hour(metered, plan)))

    @property
    def window_h(self) -> float:
        """Length of the windows [h]."""
        return self.window.hours

    def total(self, name: str) -> int:
        """Sum of one meter."""
        return sum(getattr(interval, name) for rows in self.window.intervals.values() for interval in rows)

    def amounts(self, priced: "PricedTerms") -> Amounts:
        """What it comes to under *priced*, in float arithmetic."""
        usd = priced.flat_usd_per_h * self.window_h
        usd += fsum(amount_usd(charge, self.window) for charge in priced.metered)
        tokens = [self.total(name) for name in ("prompt_tokens", "cached_tokens", "output_tokens")]
        api_usd = None if priced.costs.api is None else priced.costs.api.usd(*tokens)
        return Amounts(usd, api_usd, self._kg_co2e(priced.carbon))

    def _kg_co2e(self, carbon: CarbonPlan | None) -> float | None:
        if carbon is None or not self.kwh_by_hour:
            return None
        grams = fsum(kwh * grid for kwh, grid in zip(self.kwh_by_hour, carbon.grid_g_per_kwh, strict=True))
        return carbon.pue * grams / GRAMS_PER_KG + carbon.embodied_kg_per_h * self.window_h


def _of_pool(row: Interval) -> Interval:
    """*row* without what distinguishes the replicas of a pool."""
    return Interval(**{f.name: getattr(row, f.name) for f in fields(Interval)} | _ALIKE)


_ALIKE: dict[str, Any] = {"service": "", "server": "", "replica": 0}


def _kwh_by_hour(inside: Iterable[Interval], plan: CasePlan) -> Iterable[float]:
    """Energy that each of the grid's intensities is multiplied by: what a plan with only that one would emit."""
    if plan.carbon is None or any(pool.power is None for pool in plan.pools):
        return
    rows, count = list(inside), len(plan.carbon.grid_g_per_kwh)
    for hour in range(count):
        only = tuple(GRAMS_PER_KG if index == hour else 0.0 for index in range(count))
        yield replace(plan.carbon, grid_g_per_kwh=only, pue=1.0).operational_kg(rows)


@dataclass(frozen=True, slots=True)
class PricedTerms:
    """Terms of one future, priced for one fleet's machines."""

    costs: CostPlan
    carbon: CarbonPlan | None
    flat_usd_per_h: float
    metered: tuple[Any, ...]
    """Charges that follow a meter."""

    @classmethod
    def of(cls, terms: FleetTerms, machines: Machines, catalog: Catalog) -> "PricedTerms":
        """Raises CostError, which a scenario that has passed `load` does not."""
        costs = terms.costs(machines, catalog)
        assert costs is not None  # Biller has seen to it
        flat = [charge for charge in costs.charges if charge.paid.by_the_clock]
        metered = tuple(charge for charge in costs.charges if not charge.paid.by_the_clock)
        return cls(
            costs,
            terms.carbon_plan(machines, catalog),
            fsum(amount_usd(charge, ONE_HOUR) for charge in flat),
            metered,
        )


class Biller:
    """One fleet at one point of the sweep, ready to be billed in any future."""

    def __init__(self, scenario: Scenario, case: Case, cases: Sequence[StoredCase], catalog: Catalog) -> None:
        """*cases* are the finished replications of *case*. Raises ValueError where the fleet has no cost."""
        at = at_point(scenario, case.overrides)
        position = [fleet.name for fleet in scenario.fleets].index(case.fleet)
        fleet, self._catalog = at.fleets[position], catalog
        self.terms, self.machines = FleetTerms.of(at, fleet), resolve_fleet(at, fleet, catalog).machines
        if not self.terms.is_priced:
            raise ValueError(f"fleet {case.fleet} has no cost")
        self.reading = MeterReading.of(cases, resolve(scenario, case, catalog))
        self.stored = Amounts(
            fsum(one.metrics["cost_usd"] for one in cases),
            _sum(cases, "api_usd"),
            _sum(cases, "operational_kg_co2e", "embodied_kg_co2e"),
        )
        self._data = self.terms.data()
        self._fleet, self._position = fleet, position

    def same_terms(self, other: "Biller") -> bool:
        """Whether a future prices both alike."""
        mine, its = ((one._position, one.terms, one.machines) for one in (self, other))
        return mine == its

    def values(self, world: World) -> dict[Place, float]:
        """What of *world* stands in this fleet's terms."""
        found = ((place_in_terms(place, self._position, self._fleet), value) for place, value in world.items())
        return {place: value for place, value in found if place is not None}

    def priced(self, values: Mapping[Place, float]) -> PricedTerms:
        """The terms with *values*."""
        terms = self.terms.with_values(self._data, values) if values else self.terms
        return PricedTerms.of(terms, self.machines, self._catalog)

    def amounts(self, priced: PricedTerms, central: Amounts) -> Amounts:
        """The stored bill with what *priced* changes against *central*, the float bill of the central values."""
        now = self.reading.amounts(priced)
        return Amounts(
            self.stored.usd + (now.usd - central.usd),
            _moved(self.stored.api_usd, now.api_usd, central.api_usd),
            _moved(self.stored.kg_co2e, now.kg_co2e, central.kg_co2e),
        )


def _moved(stored: float | None, now: float | None, central: float | None) -> float | None:
    if stored is None or now is None or central is None:
        return None
    return stored + (now - central)


def _sum(cases: Sequence[StoredCase], *names: str) -> float | None:
    values = [case.metrics[name] for case in cases for name in names]
    return None if any(value is None for value in values) else fsum(value for value in values if value is not None)
