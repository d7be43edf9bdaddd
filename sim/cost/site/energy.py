"""Electricity: what the servers draw at the wall, times PUE, times the tariff."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from sim.cost.bill.charge import Metered, UnitPrice
from sim.cost.bill.phases import ByPhase, wall_j_by_phase
from sim.cost.bill.window import Window
from sim.cost.site.tariff import Band
from sim.records import Interval
from sim.units import JOULES_PER_KWH


@dataclass(frozen=True, slots=True)
class EnergyCharge(Metered):
    """Energy of one pool at the site's meter, booked to the phases that used it."""

    pool: str
    server: str
    pue: float
    """Energy at the site's meter / energy at the servers' plugs: power usage effectiveness, or cooling's own part."""
    price: UnitPrice
    band: Band | None = None
    """When the price holds; None: always."""
    component: str = "energy"

    def by_phase(self, interval: Interval) -> ByPhase | None:
        """Energy at the site's meter [kWh]; None while another price holds."""
        if self.band is not None and not self.band.holds(interval):
            return None
        return wall_j_by_phase(interval).scaled(self.pue / JOULES_PER_KWH)

    def quantity(self, followed: float, window: Window) -> float:
        """What was metered [kWh]."""
        return followed

    def least_usd_per_h(self, least_kw: float) -> float:
        """The power that is always drawn; nothing for a price of some hours, which others replace."""
        return 0.0 if self.band is not None else self.pue * least_kw * self.price.usd

    def averaged(self, month: int | None, by_hour: Sequence[float] | None) -> Self:
        """All energy at its part of the mean price: the charges of all bands together are energy at that price."""
        if self.band is None:
            return self
        usd = self.price.usd * self.band.share(month, by_hour)
        return replace(self, band=None, price=self.price.per(self.price.unit, usd))
