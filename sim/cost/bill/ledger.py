"""The bill of a window: metered quantities times sourced prices, booked to pools, components and phases."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from sim.cost.bill.charge import Charge
from sim.cost.bill.phases import PHASES
from sim.cost.bill.row import LedgerRow
from sim.cost.bill.split import split
from sim.cost.bill.window import Window
from sim.cost.cost_plan import CostPlan
from sim.records import Interval
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows that sum to the total to the last nano-USD.

    For each component there is one row per meter interval, pool and phase; the intervals tile the window. A component's
    amount is rounded once for the window and then split, so a row's amount differs from quantity x unit price by less
    than two nano-USD (and float rounding).
    """

    rows: tuple[LedgerRow, ...]
    start_s: float
    end_s: float
    capex_usd: float
    """Purchase price of the hardware, paid up front [USD]; 0 when renting."""

    @classmethod
    def of(cls, intervals: Iterable[Interval], plan: CostPlan, start_s: float, end_s: float) -> "Ledger":
        """Price what was metered in [start_s, end_s) [s]; other intervals are ignored, none may straddle an edge.

        The same intervals under another plan are priced anew without a simulation. Raises ValueError where a pool
        that is charged by the clock has no reading in the window.
        """
        window = Window.of(intervals, start_s, end_s)
        entries: dict[str, list[_Entry]] = {}
        for charge in plan.charges:
            entries.setdefault(charge.component, []).extend(_entries(charge, window))
        rows = [row for component in entries.values() for row in _rows(component)]
        return cls(tuple(rows), start_s, end_s, plan.capex_usd)

    @property
    def window_h(self) -> float:
        """Length of the window [h]."""
        return (self.end_s - self.start_s) / SECONDS_PER_HOUR

    @property
    def total_nano_usd(self) -> int:
        """Total cost of the window [nano-USD]."""
        return sum(row.amount_nano_usd for row in self.rows)

    @property
    def usd_per_h(self) -> float:
        """Cost of the fleet per hour of the window [USD/h]."""
        return self.total_nano_usd / NANO_PER_USD / self.window_h

    def by_component(self) -> dict[str, int]:
        """Amount of each component in the window [nano-USD]."""
        return _totals((row.component, row.amount_nano_usd) for row in self.rows)

    def by_phase(self, components: Collection[str] | None = None) -> dict[str, int]:
        """Amount of each phase in the window, of all *components* or of these [nano-USD]."""
        return _totals(
            (row.phase, row.amount_nano_usd) for row in self.rows if components is None or row.component in components
        )

    def component_usd_per_h(self) -> dict[str, float]:
        """Cost of each component per hour [USD/h]."""
        return {name: amount / NANO_PER_USD / self.window_h for name, amount in self.by_component().items()}


RARE = ("booting", "held", "failed", "reserve", "unused", "unused commitment")
"""Phases without empty rows: few fleets start replicas, fail, share a cluster with jobs or reserve too many GPUs."""


class _Entry(NamedTuple):
    """Ledger row before its amount is rounded."""

    charge: Charge
    start_s: float
    end_s: float
    phase: str
    quantity: float

    @property
    def exact_usd(self) -> float:
        return self.quantity * self.charge.price.usd


def _entries(charge: Charge, window: Window) -> list[_Entry]:
    """Spread the quantity of *window* over meter intervals and phases, replicas taken together."""
    followed: dict[tuple[float, float], list[float]] = {}
    for interval in window.intervals.get(charge.pool, ()):
        parts = charge.by_phase(interval)
        if parts is None:
            continue
        sums = followed.setdefault((interval.start_s, interval.end_s), [0.0] * len(PHASES))
        for index, part in enumerate(parts):
            sums[index] += part
    total = fsum(part for sums in followed.values() for part in sums)
    quantity = charge.quantity(total, window)
    if not quantity and charge.unused.share == 1:
        return []
    if total == 0 and quantity != 0:
        raise ValueError(f"pool {charge.pool!r} has no meter reading in the window to book {charge.component} by")
    return [
        _Entry(charge, start_s, end_s, phase, part / total * quantity if total else 0.0)
        for (start_s, end_s), sums in sorted(followed.items())
        for phase, part in zip(PHASES, sums, strict=True)
        if part or (phase not in RARE and charge.unused.share < 1)
    ]


def _rows(entries: Sequence[_Entry]) -> list[LedgerRow]:
    """Return the rows of one component, their amounts rounded so that they sum to the rounded total."""
    exact_usd = [entry.exact_usd for entry in entries]
    amounts = split(round(fsum(exact_usd) * NANO_PER_USD), exact_usd)
    return [_row(entry, amount) for entry, amount in zip(entries, amounts, strict=True)]


def _row(entry: _Entry, amount_nano_usd: int) -> LedgerRow:
    charge, price = entry.charge, entry.charge.price
    return LedgerRow(
        start_s=entry.start_s,
        end_s=entry.end_s,
        pool=charge.pool,
        server=charge.server,
        component=charge.component,
        phase=entry.phase,
        quantity=entry.quantity,
        unit=price.unit,
        unit_price_usd=price.usd,
        amount_nano_usd=amount_nano_usd,
        currency=price.currency,
        amount_in_currency=amount_nano_usd / NANO_PER_USD / price.fx_rate,
        fx_rate=price.fx_rate,
        source=price.source,
    )


def _totals(items: Iterable[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, amount in items:
        totals[name] = totals.get(name, 0) + amount
    return totals
