"""A charge: one component of one pool's bill, a quantity times a unit price."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from sim.catalog.value import Value
from sim.cost.phases import ByPhase, gpu_s_by_phase
from sim.records import Interval


class Stated(NamedTuple):
    """A figure of the scenario."""

    path: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """USD per unit, and how it came about."""

    usd: float
    unit: str
    source: str
    """A key of data/sources.yaml, or `scenario:` and the key in the scenario that states it."""
    currency: str = "USD"
    """Of the price as it was stated."""
    fx_rate: float = 1.0
    """USD per unit of that currency."""
    offer: str = ""
    """`item/offer` where the price is the catalogue's."""
    value: Value | None = None
    """The catalogue's value, None where the scenario states the price."""
    stated: tuple["Stated", ...] = ()
    """The scenario's figures that it was computed from."""

    def derived(self, usd: float, unit: str, *stated: "Stated") -> "UnitPrice":
        """A price computed from this one and the scenario's figures *stated*, the first of which is its source."""
        source = f"scenario: {stated[0].path}"
        return replace(self, usd=usd, unit=unit, source=source, stated=(*stated, *self.stated))

    def discounted(self, discount: "Stated") -> "UnitPrice":
        """The same origin at a price lower by the fraction *discount*."""
        return replace(self, usd=self.usd * (1 - discount.value), stated=(discount, *self.stated))

    def per(self, unit: str, usd: float) -> "UnitPrice":
        """The same origin, as *usd* for one *unit* of something else."""
        return replace(self, usd=usd, unit=unit)


class Charge(Protocol):
    """What the ledger needs of a cost component.

    The amount in a window is `quantity(...)` times `price.usd`; its rows share it in proportion to `by_phase`.
    """

    @property
    def component(self) -> str:
        """Name in the ledger, for example server_capital."""

    @property
    def pool(self) -> str:
        """The pool that pays."""

    @property
    def server(self) -> str:
        """Catalogue id, empty without one."""

    @property
    def price(self) -> UnitPrice:
        """Price of one unit of the quantity."""

    @property
    def capex_usd(self) -> float:
        """Purchase money that the charge recovers."""

    def by_phase(self, interval: Interval) -> ByPhase | None:
        """What the charge follows in one interval of its pool; None where it has no part in the interval."""

    def quantity(self, followed: float, window_h: float) -> float:
        """Units in a window of *window_h* hours in which `by_phase` came to *followed*."""


@dataclass(frozen=True, slots=True)
class FlatCharge:
    """A charge that runs with the clock, whether anything is served or not; booked to phases by GPU time."""

    component: str
    pool: str
    server: str
    units_per_h: float
    """Units of `price` that an hour takes, for example 8 GPU-hours."""
    price: UnitPrice
    capex_usd: float = 0.0

    def by_phase(self, interval: Interval) -> ByPhase:
        """GPU-seconds."""
        return gpu_s_by_phase(interval)

    def quantity(self, followed: float, window_h: float) -> float:
        """Units of the whole window: a window is a sample of a flat load, so the charge is a rate."""
        return self.units_per_h * window_h
