"""Renting GPUs or whole instances by time: every rented hour is paid, busy or not.

Space, electricity and repair are the landlord's.
"""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from sim.cost.charge import FlatCharge
from sim.cost.hardware import Hardware, boxes_needed
from sim.cost.prices import CostError, PriceBook, Priced, Problem, Quotes
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


class Rent(Spec):
    """Rented GPUs: no capital, no hosting, no electricity bill."""

    acquisition: Literal["rent"]
    price: str | None = None
    """The offer, `<item>/<offer>` in data/prices; not needed where every GPU is quoted."""
    quotes: Quotes = Field(default_factory=dict)
    """The planner's own prices by GPU id, dollars per GPU-hour; they override `price`."""
    share: bool = False
    """Pay only for the part of an instance that is used."""

    def charges(self, fleet: Sequence[Hardware], book: PriceBook) -> list[FlatCharge]:
        """Rent of *fleet*, a charge per pool. Raises CostError."""
        kinds = {hardware.gpu for hardware in fleet if hardware.gpu not in self.quotes}
        if self.price is not None and len(kinds) > 1:
            text = (
                f"{self.price} is one price for different GPUs ({', '.join(sorted(kinds))}): quote all but one of them"
            )
            raise CostError(Problem("cost.price", text))
        return [charge for hardware in fleet for charge in self._rent(hardware, book)]

    def _rent(self, hardware: Hardware, book: PriceBook) -> list[FlatCharge]:
        priced = book.rental(hardware.gpu, self.price)
        unit = priced.price.unit
        if unit not in _UNITS:
            text = f"{priced.price.offer or hardware.gpu} is a price per {unit}; rent is per {', '.join(_UNITS)}"
            raise CostError(Problem("cost.price", text))
        name, hours = _UNITS[unit]
        rented = self._instances(hardware, priced) if unit.startswith("instance") else float(hardware.gpus)
        price = priced.price.per(name, priced.price.usd)
        return [
            FlatCharge("rental", pool.name, pool.server_id, units_per_h, price)
            for pool, units_per_h in hardware.shared(rented / hours)
        ]

    def _instances(self, hardware: Hardware, priced: Priced) -> float:
        gpus = priced.gpus or hardware.slots
        if not gpus:
            text = f"{priced.price.offer or hardware.gpu} does not say how many GPUs an instance has (includes_gpus)"
            raise CostError(Problem("cost.price", text))
        return boxes_needed(hardware.gpus, gpus, self.share)
