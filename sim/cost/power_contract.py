"""Power purchase contracts: bands of fixed volume beside a tariff, with take-or-pay."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import ClassVar

from sim.cost.charge import Metered, UnitPrice
from sim.cost.metering import ByPhase, MeteredWindow, wall_j_by_phase
from sim.cost.prices import Price
from sim.records import Interval
from sim.spec import Fraction, NonNegative, Positive, Spec
from sim.units import JOULES_PER_KWH


class PowerContract(Spec):
    """Contract for a band of power in every hour; energy within it has the contract's price, the rest the tariff's."""

    kw: Positive
    """Volume: power of the band, for the whole site [kW]."""
    usd_per_kwh: Price
    """Price; `finance.inflation: {power_contract: 0.02}` is its indexation."""
    take_or_pay: Fraction = 1.0
    """Fraction of the volume that is paid even if it is not drawn."""
    g_per_kwh: NonNegative = 0.0
    """Emissions of this electricity in market-based accounts [g CO2e/kWh]; 0 with renewable guarantees of origin."""


@dataclass(frozen=True, slots=True)
class ContractBook:
    """Contracts of a site, for one of several equal fleets, with the machines behind its meter.

    Notes
    -----
    With the energy E of the site in a window of h hours and volumes V1, V2, ... (kW times h), contract i covers the
    part of E between V1 + ... + V(i-1) and V1 + ... + Vi. Each simulated window is settled on its own: it stands for
    hours of its load.

    """

    contracts: tuple[PowerContract, ...]
    pools: tuple[str, ...]
    """Pools behind the meter."""
    facility_factor: float
    """Energy at the site's meter divided by that at the servers' plugs."""
    copies: int = 1
    """Number of equal fleets that share the contracts."""

    def drawn_kwh(self, window: MeteredWindow) -> float:
        """Return the energy at the site's meter in *window* [kWh]."""
        return self.facility_factor * window.energy_j(self.pools) / JOULES_PER_KWH

    def drawn_in(self, window: MeteredWindow) -> float:
        """Return the energy at the site's meter in all parts of *window* [kWh]."""
        return fsum(self.drawn_kwh(part) for part in window.parts or (window,))

    def covered_kwh(self, window: MeteredWindow) -> list[float]:
        """Return the energy that each contract covers in *window* [kWh]."""
        return [covered for covered, _ in self._settled(window)]

    def paid_kwh(self, window: MeteredWindow) -> list[float]:
        """Return the energy that is paid under each contract in *window*, drawn or not [kWh]."""
        return [paid for _, paid in self._settled(window)]

    def _settled(self, window: MeteredWindow) -> list[tuple[float, float]]:
        """Return (covered, paid) energy of each contract, summed over the parts of *window* [kWh]."""
        totals = [(0.0, 0.0)] * len(self.contracts)
        for part in window.parts or (window,):
            left = self.drawn_kwh(part)
            for index, one in enumerate(self.contracts):
                volume = one.kw / self.copies * part.hours
                covered = min(left, volume)
                left -= covered
                before = totals[index]
                totals[index] = (before[0] + covered, before[1] + max(covered, one.take_or_pay * volume))
        return totals

    def beyond(self, window: MeteredWindow) -> float:
        """Return the fraction of the energy in *window* that the tariff prices [1]."""
        drawn = self.drawn_in(window)
        return max(0.0, 1 - fsum(self.covered_kwh(window)) / drawn) if drawn else 1.0


@dataclass(frozen=True, slots=True)
class ContractCharge(Metered):
    """Charge of one contract for one pool: its part of the paid energy, by the energy that it drew."""

    pool: str
    server: str
    book: ContractBook
    index: int
    """Position of the contract in the book."""
    price: UnitPrice
    component: str = "power_contract"

    shared: ClassVar[bool] = True

    def by_phase(self, interval: Interval, window: MeteredWindow) -> ByPhase:
        """Return the energy at the site's meter in *interval* [kWh]."""
        return wall_j_by_phase(interval).scaled(self.book.facility_factor / JOULES_PER_KWH)

    def quantity(self, metered: float, window: MeteredWindow) -> float:
        """Return the pool's part of the energy that is paid under the contract [kWh]."""
        drawn = self.book.drawn_in(window)
        return metered / drawn * self.book.paid_kwh(window)[self.index] if drawn else 0.0


def contract_charges(
    book: ContractBook, pools: Sequence[tuple[str, str]], prices: Sequence[UnitPrice]
) -> list[ContractCharge]:
    """Return the charges of the contracts at *prices* for *pools*, given as (name, server)."""
    return [
        ContractCharge(pool, server, book, index, price) for index, price in enumerate(prices) for pool, server in pools
    ]
