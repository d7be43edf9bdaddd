"""Hosting by the rack: so many servers fit, by places and by power."""

from collections.abc import Sequence
from math import ceil, floor
from typing import Literal

from sim.cost.charge import FlatCharge
from sim.cost.hardware import Hardware
from sim.cost.money import Price
from sim.cost.prices import CostError, Problem
from sim.spec import Count, Positive, Spec
from sim.units import HOURS_PER_MONTH

_ROUNDING = 1e-9  # 30.6 kW hold three servers of 10.2 kW, whatever floats make of the quotient


class PerRack(Spec):
    """A price per rack and month."""

    per: Literal["rack"]
    usd_per_month: Price
    power_limit_kw: Positive
    """What one rack supplies and cools; servers count with their nameplate."""
    servers_per_rack: Count
    """Places in one rack."""
    count: Literal["fraction", "whole"]
    """Whole racks are rented for each kind of server; by fraction, somebody else fills the rest."""
    electricity: Literal["metered", "included"] = "metered"

    def charges(self, fleet: Sequence[Hardware]) -> list[FlatCharge]:
        """Racks for *fleet*, a charge per pool. Raises CostError where one server exceeds a rack's power."""
        return [charge for hardware in fleet for charge in self._racks(hardware)]

    def _racks(self, hardware: Hardware) -> list[FlatCharge]:
        racks = hardware.servers / self._servers_in_a_rack(hardware)
        if self.count == "whole":
            racks = float(ceil(racks))
        price = self.usd_per_month.unit_price("rack-month", "site.hosting.usd_per_month")
        return [
            FlatCharge("hosting", pool.name, pool.server_id, months_per_h, price)
            for pool, months_per_h in hardware.shared(racks / HOURS_PER_MONTH)
        ]

    def _servers_in_a_rack(self, hardware: Hardware) -> int:
        if hardware.server is None or hardware.server_w is None:
            text = f"racks hold servers: name a server with a known power for pool {hardware.pool_names}"
            raise CostError(Problem("site.hosting", text))
        server_kw = hardware.server_w / 1000
        by_power = floor(self.power_limit_kw / server_kw + _ROUNDING) if server_kw > 0 else self.servers_per_rack
        fit = min(self.servers_per_rack, by_power)
        if fit < 1:
            text = f"{hardware.server.id} draws up to {server_kw:g} kW, a rack gives {self.power_limit_kw:g}"
            raise CostError(Problem("site.hosting.power_limit_kw", text))
        return fit
