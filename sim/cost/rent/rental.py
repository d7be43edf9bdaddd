"""Renting GPUs or whole instances by time: every rented hour is paid, busy or not.

Space, electricity and repair are the landlord's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from pydantic import Field

from sim.cost.bill.charge import Charge, FlatCharge, Follows, Stated, UnitPrice
from sim.cost.bill.phases import ALL_USED, Phase, Unused
from sim.cost.hardware import Hardware, PoolFacts, boxes_needed
from sim.cost.prices import CostError, OfferedPrice, PriceBook, Problem, Quotes
from sim.cost.rent.rental_terms import Commitment, Spot
from sim.cost.rent.rented_time import Billing, RentedTime, RoundedUpTime
from sim.spec import Spec
from sim.units import HOURS_PER_MONTH, HOURS_PER_YEAR

_UNITS = {
    "gpu_hour": ("GPU-h", 1),
    "gpu_day": ("GPU-day", 24),
    "gpu_year": ("GPU-year", HOURS_PER_YEAR),
    "instance_hour": ("instance-h", 1),
    "instance_day": ("instance-day", 24),
    "instance_month": ("instance-month", HOURS_PER_MONTH),
}
"""Unit of an offer -> its name in the ledger, and hours in it."""


UNUSED: Phase = "unused commitment"
"""Component and phase of reserved GPUs that no replica uses."""


class Rent(Spec):
    """Rented GPUs: no capital, no hosting, no electricity bill."""

    acquisition: Literal["rent"]
    price: str | None = None
    """The offer, `<item>/<offer>` in data/prices; not needed where every GPU is quoted."""
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU id, dollars per GPU-hour; they override `price`."""
    share: bool = False
    """Pay only for the part of an instance that is used."""
    commitment: Commitment | None = None
    """Reserved GPUs, paid whether used or not; left out: everything at the hourly price."""
    spot: Spot | None = None
    """GPUs beyond the commitment are spot capacity; left out: on demand."""
    billing: Billing = Billing()
    """How started time is counted where a schedule starts and stops replicas; left out: to the second."""

    def charges(self, fleet: Sequence[Hardware], book: PriceBook) -> list[Charge]:
        """Rent of *fleet*, a charge per pool. Raises CostError."""
        kinds = {hardware.gpu for hardware in fleet if hardware.gpu not in self.quotes}
        if self.price is not None and len(kinds) > 1:
            text = (
                f"{self.price} is one price for different GPUs ({', '.join(sorted(kinds))}): quote all but one of them"
            )
            raise CostError(Problem("cost.price", text))
        if self.commitment is not None and len(fleet) > 1:
            text = f"a commitment is for one kind of GPU and server; this fleet has {len(fleet)}"
            raise CostError(Problem("cost.commitment", text))
        if self.commitment is not None and any(pool.scheduled for hardware in fleet for pool in hardware.pools):
            text = "is paid whether used or not: put the replicas that a schedule switches into a fleet of their own"
            raise CostError(Problem("cost.commitment", text))
        return [charge for hardware in fleet for charge in self._rent(hardware, book)]

    def _rent(self, hardware: Hardware, book: PriceBook) -> list[Charge]:
        priced = book.rental(hardware.gpu, self.price)
        unit = priced.price.unit
        if unit not in _UNITS:
            text = f"{priced.price.offer or hardware.gpu} is a price per {unit}; rent is per {', '.join(_UNITS)}"
            raise CostError(Problem("cost.price", text))
        name, hours = _UNITS[unit]
        by_instance = unit.startswith("instance")
        rented = self._instances(hardware, priced) if by_instance else float(hardware.gpus)
        committed = self._committed(hardware, priced) if by_instance else self._committed_gpus
        price = priced.price.per(name, priced.price.usd)
        term = self.commitment.months if self.commitment is not None else 0.0
        unused = Unused.of(hardware.gpus, rented * (priced.gpus or hardware.slots)) if by_instance else ALL_USED
        reserved = min(rented, committed) * (1 - unused.share)
        parts = [(part, term, ALL_USED) for part in self._reserved(reserved, committed, price)]
        parts += [(part, 0.0, unused) for part in self._beyond(rented - committed, price)]
        return [
            charge
            for (component, units, part_price), held_months, idle in parts
            for pool, units_per_h in hardware.shared(units / hours)
            for charge in self._charges(component, pool, hardware.copies, units_per_h, part_price, held_months, idle)
        ]

    def _charges(
        self,
        component: str,
        pool: PoolFacts,
        copies: int,
        units_per_h: float,
        price: UnitPrice,
        held_months: float,
        unused: Unused,
    ) -> Iterator[Charge]:
        """Yield charges by the clock, or from start to stop where replicas are switched."""
        if pool.scheduled or (pool.fails and not held_months):
            per_gpu_h = float(units_per_h / (copies * pool.gpus))
            facts = (component, pool.name, pool.server_id, per_gpu_h, price, self.billing)
            yield RentedTime(*facts, unused)
            yield RoundedUpTime(*facts)
            return
        unused = Unused(1.0, UNUSED) if component == UNUSED else unused
        flat = FlatCharge(component, pool.name, pool.server_id, units_per_h, price, unused=unused)
        yield replace(flat, follows=Follows.RENT, held_months=held_months)

    def _reserved(self, used: float, committed: float, price: UnitPrice) -> Iterator[tuple[str, float, UnitPrice]]:
        """Committed units in use, and those that are paid for and not used: (component, units, price)."""
        if self.commitment is not None:
            discount = Stated("cost.commitment.discount", self.commitment.discount, "below the hourly price")
            reserved = price.discounted(discount)
            yield "rental_reserved", used, reserved
            if committed > used:
                yield UNUSED, committed - used, reserved

    def _beyond(self, units: float, price: UnitPrice) -> Iterator[tuple[str, float, UnitPrice]]:
        """Units at the hourly or the spot price, and the spot units that make up for interruptions."""
        if units <= 0:
            return
        if self.spot is None:
            yield "rental", units, price
            return
        spot = price.discounted(Stated("cost.spot.discount", self.spot.discount, "below the hourly price"))
        yield "rental_spot", units, spot
        yield "spot_interruptions", units * (1 / self.spot.availability - 1), spot

    @property
    def _committed_gpus(self) -> float:
        return float(self.commitment.gpus) if self.commitment is not None else 0.0

    def _committed(self, hardware: Hardware, priced: OfferedPrice) -> float:
        """Committed instances."""
        return float(ceil(self._committed_gpus / (priced.gpus or hardware.slots)))

    def _instances(self, hardware: Hardware, priced: OfferedPrice) -> float:
        gpus = priced.gpus or hardware.slots
        if not gpus:
            text = f"{priced.price.offer or hardware.gpu} does not say how many GPUs an instance has (includes_gpus)"
            raise CostError(Problem("cost.price", text))
        return hardware.copies * boxes_needed(hardware.gpus_each, gpus, self.share)
