"""How many units stand in every month: bought ahead of demand, replaced when their life ends, or rented.

A unit is one fleet of the scenario. Orders are placed as late as they can be, so that what is in service covers each
month's peak; what cannot be there in time is rented where the terms are known, else it is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

ROUNDING = 1e-9  # a peak of exactly three capacities needs three units, whatever floats make of the quotient


@dataclass(frozen=True, slots=True)
class Purchasing:
    """How units are bought."""

    lead_time_months: int
    life_months: int


@dataclass(frozen=True, slots=True)
class Renting:
    """How units are rented."""

    term_months: int
    """Shortest time of a unit beyond a commitment."""
    committed_units: int = 0
    """Units that a commitment pays for whole."""
    committed_months: int = 0
    """Its term; 0: there is none."""


@dataclass(frozen=True, slots=True)
class UnitBatch:
    """Units bought together."""

    units: int
    ordered: int
    """Month, from 0."""
    delivered: int
    """First month in service."""
    retires: int
    """First month out of service again; at the latest the one after the plan."""

    def serves(self, month: int) -> bool:
        """Whether the batch is in service."""
        return self.delivered <= month < self.retires


@dataclass(frozen=True, slots=True)
class Contract:
    """Units rented together."""

    units: int
    signed: int
    """First month."""
    ends: int
    """First month after the term."""
    committed: bool = False
    """Paid throughout, used or not; `units` are those that it pays for whole, which serve as far as they are needed."""

    def runs(self, month: int) -> bool:
        """Whether the units are rented in *month*."""
        return self.signed <= month < self.ends


@dataclass(frozen=True, slots=True)
class Supply:
    """All that is bought and rented over a plan of `months`."""

    months: int
    needed: tuple[int, ...]
    """Units that each month's peak needs, the reserve included."""
    batches: tuple[UnitBatch, ...]
    contracts: tuple[Contract, ...]

    def ordered(self, month: int) -> int:
        """Units ordered in *month*."""
        return sum(batch.units for batch in self.batches if batch.ordered == month)

    def on_order(self, month: int) -> int:
        """Units ordered up to *month* that are not in service yet."""
        return sum(batch.units for batch in self.batches if batch.ordered <= month < batch.delivered)

    def owned(self, month: int) -> int:
        """Bought units in service."""
        return sum(batch.units for batch in self.batches if batch.serves(month))

    def rented(self, month: int) -> int:
        """Rented units in service."""
        running = [contract for contract in self.contracts if contract.runs(month)]
        hired = sum(contract.units for contract in running if not contract.committed)
        covered = sum(contract.units for contract in running if contract.committed)
        return hired + max(0, min(covered, self.needed[month] - self.owned(month) - hired))

    def committed_in(self, month: int) -> int | None:
        """When the commitment that runs in *month* was signed; None without one."""
        return next((one.signed for one in self.contracts if one.committed and one.runs(month)), None)

    def retired(self, month: int) -> int:
        """Bought units that have left service, in *month* or before."""
        return sum(batch.units for batch in self.batches if batch.retires <= month)

    def in_service(self, month: int) -> int:
        """Bought and rented units."""
        return self.owned(month) + self.rented(month)

    @property
    def owed_unit_months(self) -> int:
        """Rented unit-months that contracts reach beyond the plan."""
        return sum(contract.units * max(0, contract.ends - self.months) for contract in self.contracts)


def units_needed(peak: float, capacity: float, reserve_units: int) -> int:
    """Whole units whose *capacity* covers *peak*, and the reserve.

    >>> units_needed(3.1, 1.0, reserve_units=1)
    5
    """
    return max(ceil(peak / capacity - ROUNDING), int(peak > 0)) + reserve_units


def supply(needed: Sequence[int], purchasing: Purchasing | None, renting: Renting | None) -> Supply:
    """Purchases and rents that cover *needed* units in every month.

    With *purchasing* units are bought, the first of them in service after the lead time; what is in service stays until
    the end of its life, also where demand falls. With *renting* what is missing is rented: a commitment is signed when
    the first unit is, and again when it has ended and units are needed; units beyond it have a term of their own.
    """
    months = len(needed)
    batches: list[UnitBatch] = []
    contracts: list[Contract] = []
    for month, need in enumerate(needed):
        if purchasing is not None and month >= purchasing.lead_time_months:
            missing = need - sum(batch.units for batch in batches if batch.serves(month))
            if missing > 0:
                retires = min(months, month + purchasing.life_months)
                batches.append(UnitBatch(missing, month - purchasing.lead_time_months, month, retires))
        if renting is not None:
            standing = sum(batch.units for batch in batches if batch.serves(month))
            running = [contract for contract in contracts if contract.runs(month)]
            standing += sum(contract.units for contract in running)
            if need > standing and renting.committed_months and not any(one.committed for one in running):
                ends = month + renting.committed_months
                contracts.append(Contract(renting.committed_units, month, ends, committed=True))
                standing += renting.committed_units
            if need > standing:
                contracts.append(Contract(need - standing, month, month + renting.term_months))
    return Supply(months, tuple(needed), tuple(batches), tuple(contracts))
