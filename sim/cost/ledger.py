"""Ledger of a window: metered quantities times sourced prices, booked to pools, components and phases.

A row of the ledger is one amount, traceable to its quantity, price and source. `request_costs` allocates the rows to
requests: each pays its part of its pool's cost, phase by phase. Amounts are split exactly, to the nano-USD.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from sim.cost.charge import Charge
from sim.cost.cost_plan import CostPlan
from sim.cost.metering import PHASES, MeteredWindow
from sim.message import Message
from sim.records import Interval
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR


@dataclass(slots=True)
class LedgerRow:
    """Row of the ledger: one amount, traceable to its quantity, price and source."""

    start_s: float
    end_s: float
    pool: str
    server: str
    component: str
    phase: str
    quantity: float
    unit: str
    unit_price_usd: float
    amount_nano_usd: int
    currency: str
    amount_in_currency: float
    fx_rate: float
    source: str


_WEIGHT_BITS = 62


def split(amount_nano_usd: int, weights: Sequence[float]) -> list[int]:
    """Return *amount_nano_usd* split in proportion to *weights* by the largest remainder (Hamilton's method).

    The parts sum to the amount exactly, and each differs from its exact share by less than one nano-USD. Equal
    remainders go to the earlier part, so the result is deterministic. Weights are taken to 62 bits of the largest one
    and the arithmetic is in integers, so that rounding cannot lose a unit.

    Raises
    ------
    ValueError
        The amount or a weight is negative, or there is an amount but no positive weight.

    Examples
    --------
    >>> split(100, [1.0, 1.0, 1.0])
    [34, 33, 33]

    """
    largest = max(weights, default=0.0)
    if amount_nano_usd < 0 or min(weights, default=0.0) < 0:
        raise ValueError("only an amount of zero or more is split, by weights of zero or more")
    if largest == 0:
        if amount_nano_usd:
            raise ValueError("there is nothing to split the amount by: all weights are zero")
        return [0] * len(weights)
    whole = [int(weight / largest * 2**_WEIGHT_BITS) for weight in weights]
    total = sum(whole)
    parts, remainders = zip(*(divmod(amount_nano_usd * weight, total) for weight in whole), strict=True)
    result = list(parts)
    by_remainder = sorted(range(len(whole)), key=lambda index: -remainders[index])
    for index in by_remainder[: amount_nano_usd - sum(result)]:
        result[index] += 1
    return result


@dataclass(frozen=True, slots=True)
class Ledger:
    """Rows of a window's bill, which sum exactly to the total.

    Each component has one row per meter interval, pool and phase; the intervals tile the window. A component's amount
    is rounded once for the window and then split, so a row's amount differs from quantity * unit price by less than two
    nano-USD (and float rounding)::

        start_s                                                     end_s
        |  interval 1: prefill, decode, ...  |  interval 2: prefill, ...  |     per pool and component
    """

    rows: tuple[LedgerRow, ...]
    start_s: float
    end_s: float
    capex_usd: float
    """Purchase price of the hardware, paid at delivery [USD]; 0 when renting."""

    @classmethod
    def of(cls, intervals: Iterable[Interval], plan: CostPlan, start_s: float, end_s: float) -> "Ledger":
        """Return the bill of the readings in [start_s, end_s) [s]; other intervals are ignored.

        The same intervals can be priced under another plan without a new simulation.

        Parameters
        ----------
        intervals
            Meter readings of the fleet.
        plan
            Charges of the fleet.
        start_s, end_s
            Window in simulated time [s].

        Raises
        ------
        ValueError
            An interval straddles an edge of the window, or a pool that is charged by the clock has no reading in it.

        """
        window = MeteredWindow.of(intervals, start_s, end_s)
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
        """Return the amount of each component in the window [nano-USD]."""
        return _totals((row.component, row.amount_nano_usd) for row in self.rows)

    def by_phase(self, components: Collection[str] | None = None) -> dict[str, int]:
        """Return the amount of each phase in the window, for all *components* or the given ones [nano-USD]."""
        return _totals(
            (row.phase, row.amount_nano_usd) for row in self.rows if components is None or row.component in components
        )

    def component_usd_per_h(self) -> dict[str, float]:
        """Return the cost of each component [USD/h]."""
        return {name: amount / NANO_PER_USD / self.window_h for name, amount in self.by_component().items()}


OPTIONAL_PHASES = ("booting", "held", "failed", "reserve", "unused", "unused commitment")
"""Phases for which no empty rows are written.

Few fleets start replicas, have failures, share a cluster with jobs or reserve too many GPUs.
"""


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


def _entries(charge: Charge, window: MeteredWindow) -> list[_Entry]:
    """Return the quantity of *window* divided among meter intervals and phases, summed over replicas."""
    metered: dict[tuple[float, float], list[float]] = {}
    for interval in window.intervals.get(charge.pool, ()):
        parts = charge.by_phase(interval, window)
        if parts is None:
            continue
        sums = metered.setdefault((interval.start_s, interval.end_s), [0.0] * len(PHASES))
        for index, part in enumerate(parts):
            sums[index] += part
    total = fsum(part for sums in metered.values() for part in sums)
    quantity = charge.quantity(total, window)
    if not quantity and charge.unused.share == 1:
        return []
    if total == 0 and quantity != 0:
        raise ValueError(
            Message(
                "pool {pool!r} has no meter reading in the window to book {component} by", charge.pool, charge.component
            )
        )
    return [
        _Entry(charge, start_s, end_s, phase, part / total * quantity if total else 0.0)
        for (start_s, end_s), sums in sorted(metered.items())
        for phase, part in zip(PHASES, sums, strict=True)
        if part or (phase not in OPTIONAL_PHASES and charge.unused.share < 1)
    ]


def _rows(entries: Sequence[_Entry]) -> list[LedgerRow]:
    """Return the rows of one component, their amounts rounded so that they sum to the rounded total.

    Credits, such as the interest of a supplier's terms, are rounded apart from costs.
    """
    rows: dict[int, LedgerRow] = {}
    for sign in (1, -1):
        places = [place for place, entry in enumerate(entries) if (entry.exact_usd < 0) == (sign < 0)]
        exact_usd = [sign * entries[place].exact_usd for place in places]
        amounts = split(round(fsum(exact_usd) * NANO_PER_USD), exact_usd)
        rows |= {place: _row(entries[place], sign * part) for place, part in zip(places, amounts, strict=True)}
    return [rows[place] for place in range(len(entries))]


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


class RequestUse(NamedTuple):
    """Busy time of a replica that a request used inside the window [s], named like the phases."""

    pool: str
    prefill: float
    decode: float
    recompute: float


def request_costs(rows: Iterable[LedgerRow], uses: Sequence[RequestUse]) -> list[int]:
    """Return the amount of each use [nano-USD], in the order of *uses*.

    A pool's cost of prefill is divided by the time of the requests' prompts, and likewise for decode and recompute,
    each exactly; prices are means over the window. Costs without a causing request (mainly idle time) stay with the
    fleet: the requests' amounts and this remainder sum to the total exactly.
    """
    totals: dict[tuple[str, str], int] = {}
    for row in rows:
        totals[row.pool, row.phase] = totals.get((row.pool, row.phase), 0) + row.amount_nano_usd
    members: dict[str, list[int]] = {}
    for index, use in enumerate(uses):
        members.setdefault(use.pool, []).append(index)
    costs = [0] * len(uses)
    for pool, indices in members.items():
        for phase in ("prefill", "decode", "recompute"):
            weights = [max(0.0, getattr(uses[index], phase)) for index in indices]
            amount = totals.get((pool, phase), 0)
            if any(weights) and amount > 0:
                for index, part in zip(indices, split(amount, weights), strict=True):
                    costs[index] += part
    return costs
