"""Charges: one component of one pool's bill, with quantity, unit price, time of payment and market price.

All readers of a bill (ledger, prices, break-even, plan, size, Monte Carlo draws) use the `Charge` interface; none
depends on component names. A new component therefore reaches every command.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import fsum
from typing import Any, ClassVar, NamedTuple, Protocol, Self

from sim.catalogue.value import Value
from sim.cost.metering import ALL_USED, ByPhase, IdleShare, MeteredWindow, gpu_s_by_phase
from sim.records import Interval


class PaymentTime(Enum):
    """Time of payment of a charge. The ledger books every charge by the hour; a cash flow does not."""

    AT_DELIVERY = "at delivery"
    """Single payment at delivery of the machines."""
    IN_SERVICE = "in service"
    """Monthly payments in arrears, for the time that machines are owned or reserved."""
    SWITCHED_ON = "switched on"
    """Monthly payments in arrears, for the time that replicas are switched on."""
    METERED = "metered"
    """Monthly payments in arrears, for metered quantities."""
    AT_END = "at the end"
    """Single payment when the machines leave service."""

    @property
    def by_the_clock(self) -> bool:
        """True if the amount per hour does not depend on the load."""
        return self not in (PaymentTime.SWITCHED_ON, PaymentTime.METERED)

    @property
    def monthly(self) -> bool:
        """True if the charge is paid month by month, as operating cost."""
        return self not in (PaymentTime.AT_DELIVERY, PaymentTime.AT_END)


class MarketPrice(Enum):
    """Market price that a charge follows."""

    NOTHING = "nothing"
    HARDWARE = "hardware"
    """Price of new hardware at the time of the order."""
    MACHINES = "machines"
    """Price paid for the machines in service."""
    RENT = "rent"
    """Rent at the time when the contract was signed."""


class StatedFigure(NamedTuple):
    """Figure of the scenario from which a price is computed."""

    path: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class UnitPrice:
    """Price of one unit [USD], with its source."""

    usd: float
    unit: str
    source: str
    """Key of data/sources.yaml, or `scenario:` and the scenario key that states the price."""
    currency: str = "USD"
    """Currency of the price as stated (ISO 4217)."""
    fx_rate: float = 1.0
    """Exchange rate of `currency` [USD per unit]."""
    offer: str = ""
    """Name `item/offer` of a catalogue price; empty otherwise."""
    value: Value | None = None
    """Value in the catalogue; None if the scenario states the price."""
    stated: tuple["StatedFigure", ...] = ()
    """Figures of the scenario from which the price was computed."""

    def derived(self, usd: float, unit: str, *stated: "StatedFigure") -> "UnitPrice":
        """Return a price computed from this one and the scenario's figures *stated*; the first is its source."""
        source = f"scenario: {stated[0].path}"
        return replace(self, usd=usd, unit=unit, source=source, stated=(*stated, *self.stated))

    def discounted(self, discount: "StatedFigure") -> "UnitPrice":
        """Return this price lowered by the fraction *discount*, with the same origin."""
        return replace(self, usd=self.usd * (1 - discount.value), stated=(discount, *self.stated))

    def per(self, unit: str, usd: float) -> "UnitPrice":
        """Return a price of *usd* for one *unit* of another quantity, with this price's origin."""
        return replace(self, usd=usd, unit=unit)


class Charge(Protocol):
    """Interface of a cost component to the readers of a bill.

    The amount in a window is `quantity(...)` times `price.usd`; its rows share it in proportion to `by_phase`.
    """

    @property
    def component(self) -> str:
        """Name in the ledger, for example server_capital."""

    @property
    def pool(self) -> str:
        """Name of the pool that pays."""

    @property
    def server(self) -> str:
        """Catalogue id of the server; empty without one."""

    @property
    def price(self) -> UnitPrice:
        """Price of one unit of the quantity."""

    @property
    def paid(self) -> PaymentTime:
        """Time of payment."""

    @property
    def once_usd(self) -> float:
        """Amount paid at delivery or at the end [USD]; 0 for a charge that is paid month by month."""

    @property
    def resold(self) -> bool:
        """True if the payment at delivery buys hardware that is resold at the end of its life."""

    @property
    def follows(self) -> MarketPrice:
        """Market price that the charge follows."""

    @property
    def follows_share(self) -> float:
        """Fraction of the charge that follows that market price [1]."""

    @property
    def moved_usd(self) -> Sequence[tuple[int, float]]:
        """Payments (month from delivery, amount [USD]) beside `once_usd` that sum to 0: deposits, terms, refunds."""

    @property
    def profile(self) -> Sequence[float]:
        """Amount of each month of the machines' life or of the contract, as a ratio to the level one; empty: equal."""

    @property
    def agreed_months(self) -> float:
        """Months for which the price is agreed (the term of a commitment); 0 if every month has its own price."""

    @property
    def unused(self) -> IdleShare:
        """Share of the charge that pays for hardware no replica can use, and its phase."""

    @property
    def by_peak(self) -> bool:
        """True if the charge depends on when energy is used within an hour; its readings must not be summed."""

    @property
    def shared(self) -> bool:
        """True if equal fleets share a metered quantity, so that its cost per fleet depends on their number."""

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the metered quantity of one interval of *window*; None where the charge does not apply to it."""

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the billed units in *window*, over which `by_phase` sums to *metered*."""

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return a lower bound of the charge at any load, where the pool's servers draw at least *least_kw* [USD/h]."""

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """Return the charge at its mean price over *month* (1 to 12) or the whole year.

        Hours of the day are weighted by the 24 numbers *by_hour* (168: those of the week), or alike.
        """

    def scaled(self, part: float, pool: str) -> Self:
        """Return the charge in *pool* for *part* times as much hardware, where it is paid for hardware."""


def amount_usd(charge: Charge, window: MeteredWindow) -> float:
    """Return the amount of *charge* in *window* [USD]."""
    inside = window.intervals.get(charge.pool, ())
    metered = fsum(part for interval in inside for part in charge.by_phase(interval, window) or ())
    return charge.quantity(metered, window) * charge.price.usd


def purchase(
    component: str,
    pool: str,
    server: str,
    units: float,
    price: UnitPrice,
    usd: float,
    unused: IdleShare = ALL_USED,
) -> "FlatCharge":
    """Return the charge for *units* of hardware at *usd* each, paid at delivery and resold; *price* recovers it."""
    once = (PaymentTime.AT_DELIVERY, units * usd, True, MarketPrice.HARDWARE)
    return FlatCharge(component, pool, server, units, price, *once, unused=unused)


@dataclass(frozen=True, slots=True)
class FlatCharge:
    """Charge per hour of service, independent of load; booked to phases by GPU time."""

    component: str
    pool: str
    server: str
    units_per_h: float
    """Units of `price` that an hour takes, for example 8 GPU-hours."""
    price: UnitPrice
    paid: PaymentTime = PaymentTime.IN_SERVICE
    once_usd: float = 0.0
    resold: bool = False
    follows: MarketPrice = MarketPrice.NOTHING
    follows_share: float = 1.0
    agreed_months: float = 0.0
    unused: IdleShare = ALL_USED
    moved_usd: tuple[tuple[int, float], ...] = ()
    profile: tuple[float, ...] = ()

    by_peak: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the GPU-seconds of *interval* by phase, with the unused share in its own phase."""
        return gpu_s_by_phase(interval).with_idle_share(self.unused)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the units of the whole window: a window is a sample of a flat load, so the charge is a rate."""
        return self.units_per_h * window.hours

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return the whole charge, which is the same at any load [USD/h]."""
        return self.units_per_h * self.price.usd

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """Return this charge unchanged: its price does not vary by hour."""
        return self

    def scaled(self, part: float, pool: str) -> Self:
        """Return the charge in *pool* for *part* times the units."""
        moved = tuple((month, part * usd) for month, usd in self.moved_usd)
        units = part * self.units_per_h
        return replace(self, pool=pool, units_per_h=units, once_usd=part * self.once_usd, moved_usd=moved)


class Metered:
    """Base of charges that follow a meter: nothing is paid once, and hardware does not scale them."""

    __slots__ = ()

    paid: ClassVar[PaymentTime] = PaymentTime.METERED
    once_usd: ClassVar[float] = 0.0
    resold: ClassVar[bool] = False
    follows: ClassVar[MarketPrice] = MarketPrice.NOTHING
    follows_share: ClassVar[float] = 1.0
    moved_usd: ClassVar[Sequence[tuple[int, float]]] = ()
    profile: ClassVar[Sequence[float]] = ()
    agreed_months: float = 0.0
    unused: IdleShare = ALL_USED
    by_peak: ClassVar[bool] = False
    shared: ClassVar[bool] = False

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return *metered*: the meter reads billed units."""
        return metered

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return 0: the meter readings of an idle fleet are not known in general [USD/h]."""
        return 0.0

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """Return this charge unchanged: its price does not vary by hour."""
        return self

    def scaled(self, part: float, pool: str) -> Self:
        """Return this charge in *pool*, unchanged: more hardware is metered more."""
        charge: Any = self
        moved: Self = replace(charge, pool=pool)
        return moved
