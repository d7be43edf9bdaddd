"""What exists when a plan starts: units that serve beside new ones until they are sold.

A used unit is worth the same whether it was bought before the plan or in it: the price of its month of purchase, from
today's by the plan's decline, times what is left of it at its age. What it stands for in the books is sunk.
docs/money.md has the rules.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, inf

from sim.study.money.plan.supply import ROUNDING, units_needed
from sim.study.money.plan.unit import Declines, UnitCosts, value_of


@dataclass(frozen=True, slots=True)
class UnitKind:
    """One fleet as a unit."""

    fleet: str
    costs: UnitCosts
    capacity: float
    """Load that one unit serves within the service level."""
    declines: Declines


@dataclass(frozen=True, slots=True)
class HeldUnits:
    """Units of one entry of `plan.existing`, all sold together."""

    kind: UnitKind
    units: int
    bought: int
    """First month in service: 0 is the plan's first, those before it are negative."""
    ends: int
    """First month after their life."""
    sold: int
    """First month out of service."""
    book_value_usd: float | None
    """Of all units, at the start of the plan."""

    def serves(self, month: int) -> bool:
        """Whether the units are in service."""
        return month < self.sold

    @property
    def removal_usd(self) -> float:
        """What it costs to remove them."""
        return self.units * self.kind.costs.removal_usd

    def worth_usd(self, month: int) -> float:
        """What they fetch in *month*."""
        worth = value_of(self.kind.declines.finance, self.kind.declines, self.bought, self.bought, month)
        return self.units * self.kind.costs.resold_usd * worth

    def gain_usd(self, month: int) -> float:
        """What a sale in *month* brings over the book value then; 0 where nobody states one.

        The book value falls by equal parts a month to what the units fetch at the end of their life; it stays where it
        is if it is lower.
        """
        if self.book_value_usd is None:
            return 0.0
        written_off = max(0.0, self.book_value_usd - self.worth_usd(self.ends))
        return self.worth_usd(month) - (self.book_value_usd - written_off * min(month, self.ends) / self.ends)


def standing(held: Sequence[HeldUnits], month: int) -> list[HeldUnits]:
    """What of *held* is in service in *month*."""
    return [one for one in held if one.serves(month)]


def unlimited(held: Sequence[HeldUnits]) -> str:
    """Why no plan can be made around *held*; empty where one can."""
    names = sorted({one.kind.fleet for one in held if one.kind.capacity == inf})
    if not names:
        return ""
    return f"existing {' and '.join(names)}: one unit meets the service level at every load that was tried"


def still_needed(peak: float, capacity: float, reserve_units: int, standing: Sequence[HeldUnits]) -> int:
    """Units of *capacity* that are needed beside those that stand, so that all together carry the *peak* and the
    reserve: this number of the largest units among them.
    """
    if not standing:
        return units_needed(peak, capacity, reserve_units)
    there = fsum(one.units * one.kind.capacity for one in standing)
    largest = max(one.kind.capacity for one in standing)
    if there >= (peak + reserve_units * largest) * (1 - ROUNDING):
        return 0
    return units_needed(peak + reserve_units * max(largest, capacity) - there, capacity, 0)
