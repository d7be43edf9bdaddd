"""Software licences by the year."""

from collections.abc import Sequence
from typing import Self

from pydantic import model_validator

from sim.cost.bill.charge import FlatCharge
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.operations.component import UserComponent, for_each
from sim.cost.prices import CostError, Problem
from sim.units import HOURS_PER_YEAR


class Software(UserComponent):
    """Licences for GPUs in use, for servers, or both."""

    usd_per_gpu_year: Price | None = None
    usd_per_server_year: Price | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if self.usd_per_gpu_year is None and self.usd_per_server_year is None:
            raise ValueError("usd_per_gpu_year or usd_per_server_year is needed")
        return self

    def charges(self, fleet: Sequence[Hardware]) -> list[FlatCharge]:
        """Licences, a charge per pool and measure. Raises CostError where servers are not known."""
        return for_each(fleet, self._of)

    def _of(self, hardware: Hardware) -> list[FlatCharge]:
        result = []
        if self.usd_per_gpu_year is not None:
            result += _licences(hardware, hardware.gpus, "gpu", self.usd_per_gpu_year)
        if self.usd_per_server_year is not None:
            if hardware.server is None:
                text = f"pool {hardware.pool_names} names no server to license"
                raise CostError(Problem("operations.software.usd_per_server_year", text))
            result += _licences(hardware, hardware.servers, "server", self.usd_per_server_year)
        return result


def _licences(hardware: Hardware, count: float, measure: str, usd_per_year: Price) -> list[FlatCharge]:
    unit = {"gpu": "GPU-year", "server": "server-year"}[measure]
    price = usd_per_year.unit_price(unit, f"operations.software.usd_per_{measure}_year")
    return [
        FlatCharge("software", pool.name, pool.server_id, years_per_h, price)
        for pool, years_per_h in hardware.shared(count / HOURS_PER_YEAR)
    ]
