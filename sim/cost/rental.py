"""Rental of GPUs or whole instances by time; every rented hour is paid, whether used or not.

The landlord pays for space, electricity and repair. Rent runs from the start of a replica to its stop, in the
landlord's billing steps. Besides the hourly price, a tenant can agree on a commitment, or on spot capacity that may be
reclaimed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, fsum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from sim.cost.charge import Charge, FlatCharge, MarketPrice, Metered, PaymentTime, StatedFigure, UnitPrice
from sim.cost.hardware import FleetHardware, PoolFacts, servers_needed
from sim.cost.metering import (
    ALL_USED,
    NOT_RENTED,
    ByPhase,
    CommitmentUse,
    IdleShare,
    MeteredWindow,
    Phase,
    ReplicaStop,
    gpu_s_by_phase,
)
from sim.cost.prices import CostError, OfferedPrice, PriceBook, Problem, Quotes
from sim.cost.time_value import annuity_factor, level, present_value
from sim.message import Message
from sim.records import Interval
from sim.spec import Count, Fraction, NonNegative, Positive, Spec
from sim.units import HOURS_PER_MONTH, HOURS_PER_YEAR, SECONDS_PER_HOUR

TermMonth = Annotated[int, Field(gt=0)]
"""Month of a term, counted from 1; as the key of a mapping it may be read from JSON as text."""


class Ramp(Spec):
    """Steps of a commitment over its term, by the month of the term from which they hold."""

    gpus: dict[TermMonth, Count] = Field(default_factory=dict)
    """Month -> number of committed GPUs from then on: {13: 16}."""
    price: dict[TermMonth, Positive] = Field(default_factory=dict)
    """Month -> price from then on, relative to the discounted price: {13: 0.9}."""


class TakeOrPay(Spec):
    """Minimum volume at the hourly price: the bill of a month is that of the minimum or of the use, if larger."""

    gpu_hours_per_month: Positive
    """GPU-hours of a month (730 hours) that are paid at least; those that run count as use."""


class Commitment(Spec):
    """Reserved GPUs at a lower price, paid for the whole term whether used or not."""

    gpus: Count
    """Number of committed GPUs; instances are committed whole."""
    months: Positive
    """Term of the commitment [months]."""
    discount: Fraction
    """Discount on the hourly price, as a fraction; GPUs beyond the commitment pay the hourly price."""
    upfront: Literal["none", "partial", "all"] = "none"
    """Part of the term's rent that is paid at its start; the rest is paid monthly."""
    upfront_share: Annotated[Fraction, Field(gt=0, lt=1)] | None = None
    """Fraction of the rent that `partial` pays at the start; default: 0.5."""
    ramp: Ramp | None = None
    """Committed GPUs and prices that change during the term. Default: equal months."""

    @model_validator(mode="after")
    def _whole_term(self) -> Self:
        if self.upfront_share is not None and self.upfront != "partial":
            raise ValueError(Message("upfront_share is for upfront: partial, not {upfront}", self.upfront))
        steps = [*self.ramp.gpus, *self.ramp.price] if self.ramp is not None else []
        if self.ramp is not None and not steps:
            raise ValueError("ramp is empty: state gpus or price by month of the term")
        if steps and not 1 < min(steps) <= max(steps) <= self.months:
            raise ValueError(
                Message("ramp has a month {month}: steps are within months 2 to {last:g}", max(steps), self.months)
            )
        if (steps or self.upfront != "none") and self.months != round(self.months):
            raise ValueError(Message("months is {months:g}: upfront and ramp need whole months", self.months))
        return self

    @property
    def prepaid(self) -> float:
        """Fraction of the rent that is paid at the start of the term."""
        return {"none": 0.0, "partial": self.upfront_share or 0.5, "all": 1.0}[self.upfront]

    @property
    def by_month(self) -> list[tuple[int, float]]:
        """Committed GPUs and price relative to the discounted one, for each month of the term."""
        ramp, found = self.ramp or Ramp(), list[tuple[int, float]]()
        gpus, price = self.gpus, 1.0
        for month in range(1, round(self.months) + 1):
            gpus, price = ramp.gpus.get(month, gpus), ramp.price.get(month, price)
            found.append((gpus, price))
        return found


class SpotRental(Spec):
    """Spot capacity, which the landlord may reclaim. Interruptions are not simulated; more is rented to compensate."""

    availability: Annotated[Positive, Field(le=1)]
    """Fraction of the rented hours that serve; the rest is lost to notice periods, restarts and loading weights."""
    discount: Fraction = 0.0
    """Discount on the hourly price, as a fraction; 0 if the price is a spot price."""


class Billing(Spec):
    """Rounding of rented time by the landlord; relevant where a schedule starts and stops replicas."""

    granularity_s: Positive = 1.0
    """Billing step [s], of which a started one is paid whole: 3600 for hours, 1 for seconds."""
    minimum_s: NonNegative = 0.0
    """Minimum billed time per start [s]."""

    def billed_s(self, ran_s: float) -> float:
        """Return the billed time of a replica that ran for *ran_s* [s].

        >>> Billing(granularity_s=3600).billed_s(3700), Billing(minimum_s=600).billed_s(30)
        (7200.0, 600.0)
        """
        # schedule times have rounding errors well below a microsecond, which must not add a billing step
        return max(self.minimum_s, ceil(ran_s / self.granularity_s - 1e-9) * self.granularity_s)


@dataclass(frozen=True, slots=True)
class RentedTime(Metered):
    """Rent of one pool for the GPU-time from starts to stops, booked to phases as used.

    `RoundedUpTime` charges the time that is billed beyond the stops.
    """

    component: str
    pool: str
    server: str
    units_per_gpu_h: float
    """Units of `price` per GPU-hour, for example an eighth of an instance-hour."""
    price: UnitPrice
    billing: Billing
    unused: IdleShare = ALL_USED
    least_gpus: float = 0.0
    """Smallest number of GPUs that this charge is paid for at any time."""

    beyond_base: ClassVar[bool] = True
    """True if one more GPU that runs for an hour adds an hour to this charge."""
    paid: ClassVar[PaymentTime] = PaymentTime.SWITCHED_ON
    follows: ClassVar[MarketPrice] = MarketPrice.RENT

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the GPU-seconds of *interval* by phase; 0 while the replica is not rented."""
        if interval.state in NOT_RENTED:
            return ByPhase(0.0, 0.0, 0.0, 0.0)
        return gpu_s_by_phase(interval).with_idle_share(self.unused)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the billed units for the time that replicas ran in *window*."""
        return metered / SECONDS_PER_HOUR * self.units_per_gpu_h

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return the rent of the GPUs that always run [USD/h]."""
        return self.least_gpus * self.units_per_gpu_h * self.price.usd


ALL_IDLE = IdleShare(1.0, "idle")


@dataclass(frozen=True, slots=True)
class RoundedUpTime(RentedTime):
    """Rent of one pool for the time billed beyond the stops of its replicas; booked as idle time."""

    unused: IdleShare = ALL_IDLE

    beyond_base: ClassVar[bool] = False

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the GPU-seconds of *interval* if the replica is not rented; None otherwise."""
        return ByPhase.only(self.unused.phase, interval.gpu_s) if interval.state in NOT_RENTED else None

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the units by which the stops in *window* are rounded up."""
        gpu_s = sum((self.billing.billed_s(stop.ran_s) - stop.ran_s) * stop.gpus for stop in self._stops(window))
        return gpu_s / SECONDS_PER_HOUR * self.units_per_gpu_h

    def _stops(self, window: MeteredWindow) -> Sequence[ReplicaStop]:
        return window.stops.get(self.pool, ())


@dataclass(frozen=True, slots=True)
class CommittedGpus:
    """Reserved GPUs of one fleet with replicas that are switched on and off."""

    pools: tuple[str, ...]
    """Names of the pools whose replicas use them."""
    gpus: float
    """Number of reserved GPUs per copy of the fleet."""

    def uses(self, window: MeteredWindow) -> list[CommitmentUse]:
        """Return the use of the reserved GPUs in each part of *window*."""
        return window.coverages(self.pools, self.gpus)

    def covered_share(self, interval: Interval, window: MeteredWindow) -> float:
        """Return the share of the GPU-time of *interval*, in a single *window*, that reserved GPUs cover [1]."""
        uses = self.uses(window)
        return uses[0].covered_share(interval) if len(uses) == 1 else 1.0

    def gpu_s(self, window: MeteredWindow, pool: str, quantity: Callable[[CommitmentUse, Interval], float]) -> float:
        """Return the sum of *quantity* over the intervals of *pool* in *window* [GPU s]."""
        parts = zip(window.parts or (window,), self.uses(window), strict=True)
        return fsum(quantity(use, one) for part, use in parts for one in part.intervals.get(pool, ()))


@dataclass(frozen=True, slots=True)
class ReservedTime(RentedTime):
    """Rent of the reserved GPUs that replicas of one pool use, where replicas are switched on and off."""

    reserved: CommittedGpus = field(kw_only=True)
    agreed_months: float = field(kw_only=True)

    beyond_base: ClassVar[bool] = False

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the GPU-seconds of *interval* that reserved GPUs cover, by phase."""
        if interval.state in NOT_RENTED:
            return ByPhase(0.0, 0.0, 0.0, 0.0)
        share = self.reserved.covered_share(interval, window) * (1 - self.unused.share)
        return gpu_s_by_phase(interval).scaled(share)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the reserved units in use in *window*."""
        gpu_s = self.reserved.gpu_s(window, self.pool, lambda use, one: use.covered_share(one) * one.gpu_s)
        return gpu_s * (1 - self.unused.share) / SECONDS_PER_HOUR * self.units_per_gpu_h

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return this pool's part of the whole commitment, which is paid whether used or not [USD/h]."""
        return self.reserved.gpus * self.units_per_gpu_h * self.price.usd / len(self.reserved.pools)


@dataclass(frozen=True, slots=True)
class UnusedReservedTime(ReservedTime):
    """Rent of the reserved GPUs that no replica uses, where replicas are switched on and off.

    `unused.share` is 1: all of it is booked to the phase of unused commitments. `idle_share` is the share of a rented
    instance that no replica can use.
    """

    idle_share: float = field(kw_only=True)

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the part of *interval* in the GPU-seconds that are reserved and not used."""
        uses = self.reserved.uses(window)
        gpu_s = self._gpu_s(uses[0], interval) if len(uses) == 1 else interval.gpu_s
        return ByPhase.only(self.unused.phase, gpu_s)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the reserved units that are not used in *window*."""
        return self.reserved.gpu_s(window, self.pool, self._gpu_s) / SECONDS_PER_HOUR * self.units_per_gpu_h

    def least_usd_per_h(self, least_kw: float) -> float:
        """Return 0: `ReservedTime` counts the whole commitment [USD/h]."""
        return 0.0

    def _gpu_s(self, use: CommitmentUse, interval: Interval) -> float:
        return use.unused_part_gpu_s(interval) + self.idle_share * use.covered_share(interval) * interval.gpu_s


@dataclass(frozen=True, slots=True)
class TimeBeyond(RentedTime):
    """Rent of the GPUs that run beyond the reserved ones, where replicas are switched on and off."""

    reserved: CommittedGpus = field(kw_only=True)

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the GPU-seconds of *interval* beyond the reserved GPUs, by phase."""
        if interval.state in NOT_RENTED:
            return ByPhase(0.0, 0.0, 0.0, 0.0)
        share = 1 - self.reserved.covered_share(interval, window)
        return gpu_s_by_phase(interval).scaled(share).with_idle_share(self.unused)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the billed units for the time that GPUs ran beyond the reserved ones in *window*."""
        gpu_s = self.reserved.gpu_s(window, self.pool, _beyond_gpu_s)
        return gpu_s / SECONDS_PER_HOUR * self.units_per_gpu_h


def _beyond_gpu_s(use: CommitmentUse, interval: Interval) -> float:
    return 0.0 if interval.state in NOT_RENTED else (1 - use.covered_share(interval)) * interval.gpu_s


@dataclass(frozen=True, slots=True)
class RoundedUpTimeBeyond(RoundedUpTime):
    """Rent billed beyond the stops of GPUs that ran beyond the reserved ones; booked as idle time."""

    reserved: CommittedGpus = field(kw_only=True)

    def _stops(self, window: MeteredWindow) -> Sequence[ReplicaStop]:
        found = []
        for part, use in zip(window.parts or (window,), self.reserved.uses(window), strict=True):
            every = [stop for pool in self.reserved.pools for stop in part.stops.get(pool, ())]
            for stop in part.stops.get(self.pool, ()):
                together = fsum(one.gpus for one in every if one.at_s == stop.at_s)
                found.append(stop._replace(gpus=stop.gpus * use.share_beyond(stop.at_s, together)))
        return found


@dataclass(frozen=True, slots=True)
class UnmetMinimum(RentedTime):
    """Rent of the GPU-hours that a take-or-pay contract charges beyond those that run; booked as unused commitment."""

    pools: tuple[str, ...] = field(kw_only=True)
    """Names of the pools whose replicas count."""
    least_gpu_h_per_h: float = field(kw_only=True)
    """Minimum per copy of the fleet, in GPU-hours per hour."""

    beyond_base: ClassVar[bool] = False

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase | None:
        """Return the GPU-seconds of *interval*, all in the phase of unused commitments."""
        return ByPhase.only(self.unused.phase, interval.gpu_s)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the billed units that do not run in *window*."""
        runs = [one for pool in self.pools for one in window.intervals.get(pool, ()) if one.state not in NOT_RENTED]
        used = fsum(one.gpu_s for one in runs) / SECONDS_PER_HOUR
        return max(0.0, self.least_gpu_h_per_h * window.hours - used) * self.units_per_gpu_h


_UNITS = {
    "gpu_hour": ("GPU-h", 1),
    "gpu_day": ("GPU-day", 24),
    "gpu_year": ("GPU-year", HOURS_PER_YEAR),
    "instance_hour": ("instance-h", 1),
    "instance_day": ("instance-day", 24),
    "instance_month": ("instance-month", HOURS_PER_MONTH),
}
"""Unit of an offer -> its name in the ledger, and its hours."""


UNUSED: Phase = "unused commitment"
"""Component and phase of reserved GPUs that no replica uses."""


class Rent(Spec):
    """Rented GPUs: no capital, no hosting, no electricity bill.

    Notes
    -----
    Per hour, for n units of which c are committed::

        rental_reserved     min(n, c) * price * (1 - commitment.discount)
        unused commitment   max(0, c - n) * price * (1 - commitment.discount)
        rental              max(0, n - c) * price, without spot
        take_or_pay         max(0, minimum - n) * price
        rental_spot         max(0, n - c) * price * (1 - spot.discount)
        spot_interruptions  (1 / spot.availability - 1) * rental_spot

    Where an autoscaler or a schedule switches replicas, n is the number of units that run at each moment.

    """

    acquisition: Literal["rent"]
    price: str | None = None
    """Offer in data/prices, `<item>/<offer>`; not needed if every GPU is quoted."""
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU id, in dollars per GPU-hour; they override `price`."""
    share: bool = False
    """Pay only for the part of an instance that is used."""
    commitment: Commitment | None = None
    """Reserved GPUs, paid whether used or not; default: everything at the hourly price."""
    spot: SpotRental | None = None
    """Terms of spot capacity for the GPUs beyond the commitment; default: on demand."""
    billing: Billing = Billing()
    """Rounding of rented time where a schedule starts and stops replicas; default: to the second."""
    take_or_pay: TakeOrPay | None = None
    """Minimum volume of a month at the hourly price. Default: only what is rented is paid."""

    @model_validator(mode="after")
    def _one_minimum(self) -> Self:
        others = [name for name in ("commitment", "spot") if getattr(self, name) is not None]
        if self.take_or_pay is not None and others:
            raise ValueError(
                Message("take_or_pay is a minimum at the hourly price: remove {others}", " and ".join(others))
            )
        return self

    def charges(self, fleet: Sequence[FleetHardware], book: PriceBook, rate_per_year: float = 0.0) -> list[Charge]:
        """Return the rent of *fleet*, a charge per pool; payments are levelled at *rate_per_year*. Raises CostError."""
        kinds = {hardware.gpu for hardware in fleet if hardware.gpu not in self.quotes}
        if self.price is not None and len(kinds) > 1:
            text = Message(
                "{price} is one price for different GPUs ({kinds}): quote all but one of them",
                self.price,
                ", ".join(sorted(kinds)),
            )
            raise CostError(Problem("cost.price", text))
        if self.commitment is not None and len(fleet) > 1:
            text = Message("a commitment is for one kind of GPU and server; this fleet has {count}", len(fleet))
            raise CostError(Problem("cost.commitment", text))
        if self.take_or_pay is not None and len(fleet) > 1:
            text = Message(
                "a take-or-pay minimum is for one kind of GPU and server; this fleet has {count}", len(fleet)
            )
            raise CostError(Problem("cost.take_or_pay", text))
        return [charge for hardware in fleet for charge in self._rent(hardware, book, rate_per_year)]

    def _rent(self, hardware: FleetHardware, book: PriceBook, rate_per_year: float) -> list[Charge]:
        priced = book.rental(hardware.gpu, self.price)
        unit = priced.price.unit
        if unit not in _UNITS:
            text = Message(
                "{offer} is a price per {unit}; rent is per {units}",
                priced.price.offer or hardware.gpu,
                unit,
                ", ".join(_UNITS),
            )
            raise CostError(Problem("cost.price", text))
        name, hours = _UNITS[unit]
        by_instance = unit.startswith("instance")
        rented = self._instances(hardware, priced) if by_instance else float(hardware.gpus)
        committed = self._committed(hardware, priced, self._committed_gpus) if by_instance else self._committed_gpus
        price = priced.price.per(name, priced.price.usd)
        term = self.commitment.months if self.commitment is not None else 0.0
        unused = IdleShare.of(hardware.gpus, rented * (priced.gpus or hardware.slots)) if by_instance else ALL_USED
        reserved = min(rented, committed) * (1 - unused.share)
        parts = [(part, term, ALL_USED) for part in self._reserved(reserved, committed, price)]
        parts += [(part, 0.0, unused) for part in self._uncommitted(rented - committed, price)]
        per_gpu = 1 / (priced.gpus or hardware.slots) if by_instance else 1.0
        least = list(self._unmet(hardware, rented / hours, per_gpu / hours, price))
        if self.commitment is not None and hardware.copies and any(pool.scheduled for pool in hardware.pools):
            if self.commitment.ramp is not None:
                raise CostError(Problem("cost.commitment.ramp", "a ramp is for replicas that always run"))
            found = list(self._switched(hardware, rented / hours, committed / hours, price, unused))
            return [*found, *self._prepaid(hardware, [committed / hours] * round(term), price, rate_per_year)]
        if self.commitment is not None and self.commitment.ramp is not None:

            def units_of(gpus: int) -> float:
                return self._committed(hardware, priced, float(gpus)) if by_instance else float(gpus)

            steps = [(units_of(gpus), factor) for gpus, factor in self.commitment.by_month]
            return self._ramped(hardware, rented, steps, price, unused, rate_per_year, hours)
        if self.commitment is not None:
            least += self._prepaid(hardware, [committed / hours] * round(term), price, rate_per_year)
        return least + [
            charge
            for (component, units, part_price), agreed_months, idle in parts
            for pool, units_per_h in hardware.per_pool(units / hours)
            for charge in self._charges(component, pool, hardware.copies, units_per_h, part_price, agreed_months, idle)
        ]

    def _unmet(
        self, hardware: FleetHardware, rented_per_h: float, per_gpu_h: float, price: UnitPrice
    ) -> Iterator[Charge]:
        """Yield the rent of a take-or-pay minimum that is not used."""
        if self.take_or_pay is None or not hardware.copies:
            return
        least = self.take_or_pay.gpu_hours_per_month / HOURS_PER_MONTH
        idle = IdleShare(1.0, UNUSED)
        if any(pool.scheduled or pool.fails for pool in hardware.pools):
            names, first = tuple(pool.name for pool in hardware.pools), hardware.pools[0]
            facts = ("take_or_pay", first.name, first.server_id, per_gpu_h, price, self.billing, idle)
            yield UnmetMinimum(*facts, pools=names, least_gpu_h_per_h=least / hardware.copies)
            return
        for pool, units_per_h in hardware.per_pool(max(0.0, least * per_gpu_h - rented_per_h)):
            flat = FlatCharge("take_or_pay", pool.name, pool.server_id, units_per_h, price, unused=idle)
            yield replace(flat, follows=MarketPrice.RENT)

    def _prepaid(
        self, hardware: FleetHardware, units_per_h: Sequence[float], price: UnitPrice, rate_per_year: float
    ) -> Iterator[FlatCharge]:
        """Yield the interest of rent that is paid at the start of a term with *units_per_h* in each month."""
        assert self.commitment is not None
        if not self.commitment.prepaid:
            return
        usd = [HOURS_PER_MONTH * each * price.discounted(self._commitment_discount).usd for each in units_per_h]
        share, paid = self.commitment.prepaid, PaymentTime.AT_DELIVERY
        moved = [(0, share * fsum(usd)), *((month, -share * part) for month, part in enumerate(usd, 1))]
        each_usd = present_value(rate_per_year, moved) / annuity_factor(rate_per_year, len(usd)) / HOURS_PER_MONTH
        stated = StatedFigure("cost.commitment.upfront", share, "of the rent")
        for pool, part in hardware.per_pool(1.0):
            interest = price.derived(each_usd, "h", stated)
            flat = FlatCharge("prepayment", pool.name, pool.server_id, part, interest, paid, follows=MarketPrice.RENT)
            moved_usd = tuple((month, part * amount) for month, amount in moved)
            yield replace(flat, agreed_months=self.commitment.months, moved_usd=moved_usd)

    def _ramped(
        self,
        hardware: FleetHardware,
        rented: float,
        steps: Sequence[tuple[float, float]],
        price: UnitPrice,
        idle: IdleShare,
        rate_per_year: float,
        hours: float,
    ) -> list[Charge]:
        """Return the rent beside a commitment of *steps* (units, price factor) by month of its term."""
        assert self.commitment is not None
        if any(pool.fails for pool in hardware.pools):
            raise CostError(Problem("cost.commitment.ramp", "a ramp is for replicas that always run"))
        series: dict[str, list[float]] = {}
        prices: dict[str, UnitPrice] = {}
        for month, (committed, factor) in enumerate(steps):
            reserved = min(rented, committed) * (1 - idle.share)
            agreed = [(name, factor * units, each) for name, units, each in self._reserved(reserved, committed, price)]
            for name, units, each in [*agreed, *self._uncommitted(rented - committed, price)]:
                series.setdefault(name, [0.0] * len(steps))[month] = units
                prices[name] = each
        charges: list[Charge] = []
        for name, units_by_month in series.items():
            if equal := level(rate_per_year, units_by_month):
                profile = tuple(units / equal for units in units_by_month)
                is_agreed = name in ("rental_reserved", UNUSED)
                unused = IdleShare(1.0, UNUSED) if name == UNUSED else ALL_USED if is_agreed else idle
                for pool, units_per_h in hardware.per_pool(equal / hours):
                    flat = FlatCharge(name, pool.name, pool.server_id, units_per_h, prices[name], unused=unused)
                    term = self.commitment.months if is_agreed else 0.0
                    charges.append(replace(flat, follows=MarketPrice.RENT, agreed_months=term, profile=profile))
        committed_per_h = [units * factor / hours for units, factor in steps]
        return [*charges, *self._prepaid(hardware, committed_per_h, price, rate_per_year)]

    def _charges(
        self,
        component: str,
        pool: PoolFacts,
        copies: int,
        units_per_h: float,
        price: UnitPrice,
        agreed_months: float,
        unused: IdleShare,
    ) -> Iterator[Charge]:
        """Yield the rent by the clock, or from start to stop for switched replicas; *unused* is per instance."""
        if pool.scheduled or (pool.fails and not agreed_months):
            per_gpu_h = float(units_per_h / (copies * pool.gpus))
            facts = (component, pool.name, pool.server_id, per_gpu_h, price, self.billing)
            yield RentedTime(*facts, unused, float(pool.least_replicas * pool.gpus_per_replica))
            yield RoundedUpTime(*facts)
            return
        unused = IdleShare(1.0, UNUSED) if component == UNUSED else unused
        flat = FlatCharge(component, pool.name, pool.server_id, units_per_h, price, unused=unused)
        yield replace(flat, follows=MarketPrice.RENT, agreed_months=agreed_months)

    def _switched(
        self, hardware: FleetHardware, rented_per_h: float, committed_per_h: float, price: UnitPrice, idle: IdleShare
    ) -> Iterator[Charge]:
        """Yield the rent of pools with switched replicas, beside a commitment; *idle* is per instance."""
        assert self.commitment is not None
        per_gpu_h = rented_per_h / hardware.gpus
        names = tuple(pool.name for pool in hardware.pools)
        reserved = CommittedGpus(names, committed_per_h / per_gpu_h / hardware.copies)
        term = self.commitment.months
        reserved_price = price.discounted(self._commitment_discount)
        beyond = list(self._uncommitted(1.0, price)) if rented_per_h > committed_per_h else []
        for pool in hardware.pools:
            facts: dict[str, Any] = {"pool": pool.name, "server": pool.server_id, "billing": self.billing}
            facts |= {"reserved": reserved}
            known = facts | {"units_per_gpu_h": per_gpu_h, "price": reserved_price, "agreed_months": term}
            yield ReservedTime(component="rental_reserved", unused=idle, **known)
            yield UnusedReservedTime(component=UNUSED, unused=IdleShare(1.0, UNUSED), idle_share=idle.share, **known)
            for component, units, part_price in beyond:
                known = facts | {"component": component, "units_per_gpu_h": per_gpu_h * units, "price": part_price}
                yield TimeBeyond(unused=idle, **known)
                yield RoundedUpTimeBeyond(**known)

    def _reserved(self, used: float, committed: float, price: UnitPrice) -> Iterator[tuple[str, float, UnitPrice]]:
        """Yield the committed units in use, and those paid for but not used, as (component, units, price)."""
        if self.commitment is not None:
            reserved = price.discounted(self._commitment_discount)
            yield "rental_reserved", used, reserved
            if committed > used:
                yield UNUSED, committed - used, reserved

    def _uncommitted(self, units: float, price: UnitPrice) -> Iterator[tuple[str, float, UnitPrice]]:
        """Yield the units at the hourly or spot price, and the spot units that compensate for interruptions."""
        if units <= 0:
            return
        if self.spot is None:
            yield "rental", units, price
            return
        spot = price.discounted(StatedFigure("cost.spot.discount", self.spot.discount, "below the hourly price"))
        yield "rental_spot", units, spot
        yield "spot_interruptions", units * (1 / self.spot.availability - 1), spot

    @property
    def _commitment_discount(self) -> StatedFigure:
        assert self.commitment is not None
        return StatedFigure("cost.commitment.discount", self.commitment.discount, "below the hourly price")

    @property
    def _committed_gpus(self) -> float:
        return float(self.commitment.gpus) if self.commitment is not None else 0.0

    def _committed(self, hardware: FleetHardware, priced: OfferedPrice, gpus: float) -> float:
        """Return the number of committed instances for *gpus*."""
        return float(ceil(gpus / (priced.gpus or hardware.slots)))

    def _instances(self, hardware: FleetHardware, priced: OfferedPrice) -> float:
        gpus = priced.gpus or hardware.slots
        if not gpus:
            text = Message(
                "{offer} does not say how many GPUs an instance has (includes_gpus)", priced.price.offer or hardware.gpu
            )
            raise CostError(Problem("cost.price", text))
        return hardware.copies * servers_needed(hardware.gpus_per_copy, gpus, self.share)
