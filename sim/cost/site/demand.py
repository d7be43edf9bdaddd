"""Demand charge: a price per kW of the highest draw in a month.

Utilities take the highest mean over a demand interval, usually 15 minutes (McLaren, Gagnon and Mullendore, Identifying
Potential Markets for Behind-the-Meter Battery Energy Storage: A Survey of U.S. Demand Charges, NREL/BR-6A20-68963,
2017). The simulated window stands for the month: its highest interval is the month's peak, and each pool pays for what
it draws then.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self

from sim.cost.bill.charge import Metered, UnitPrice
from sim.cost.bill.phases import ByPhase, wall_j_by_phase
from sim.cost.bill.window import Window
from sim.records import Interval
from sim.units import HOURS_PER_MONTH, JOULES_PER_KWH


@dataclass(frozen=True, slots=True)
class DemandCharge(Metered):
    """One pool's part of the site's peak, booked to the phases that used energy."""

    pool: str
    server: str
    pools: tuple[str, ...]
    """All of the fleet behind the same meter."""
    facility_factor: float
    """Power at the site's meter / power at the servers' plugs."""
    price: UnitPrice
    component: str = "demand"

    by_peak: ClassVar[bool] = True

    def by_phase(self, interval: Interval) -> ByPhase:
        """Energy at the site's meter [kWh]."""
        return wall_j_by_phase(interval).scaled(self.facility_factor / JOULES_PER_KWH)

    def quantity(self, followed: float, window: Window) -> float:
        """What the pool draws at the site's peak, times the months that the window is part of [kW-months]."""
        parts = window.parts or (window,)
        kw_h = sum(part.peak_kw(self.pools)[self.pool] * part.hours for part in parts)
        return self.facility_factor * kw_h / HOURS_PER_MONTH

    def least_usd_per_h(self, least_kw: float) -> float:
        """Of the power that is always drawn."""
        return self.facility_factor * least_kw * self.price.usd / HOURS_PER_MONTH

    def scaled(self, part: float, pool: str) -> Self:
        """Itself: the price does not change, more hardware draws more."""
        return replace(self, pool=pool, pools=tuple(pool if name == self.pool else name for name in self.pools))
