"""Electricity: what the servers draw at the wall, times PUE, times the tariff."""

from dataclasses import dataclass

from sim.cost.charge import UnitPrice
from sim.cost.phases import ByPhase, wall_j_by_phase
from sim.cost.tariff import Band
from sim.records import Interval
from sim.units import JOULES_PER_KWH


@dataclass(frozen=True, slots=True)
class EnergyCharge:
    """Energy of one pool at the site's meter, booked to the phases that used it."""

    pool: str
    server: str
    pue: float
    """Energy at the site's meter / energy at the servers' plugs: power usage effectiveness, or cooling's own part."""
    price: UnitPrice
    band: Band | None = None
    """When the price holds; None: always."""
    component: str = "energy"
    capex_usd: float = 0.0

    def by_phase(self, interval: Interval) -> ByPhase | None:
        """Energy at the site's meter [kWh]; None while another price holds."""
        if self.band is not None and not self.band.holds(interval):
            return None
        return wall_j_by_phase(interval).scaled(self.pue / JOULES_PER_KWH)

    def quantity(self, followed: float, window_h: float) -> float:
        """What was metered [kWh]."""
        return followed
