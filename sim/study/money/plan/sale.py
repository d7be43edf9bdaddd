"""Best month of sale of each group of existing units."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import fsum, prod

from sim.study.money.plan.cash import Row
from sim.study.money.plan.existing import HeldUnits

MOST_TOGETHER = 500
"""Ways to sell all groups that are tried one by one; where there are more, each group's month is chosen in turn."""

RowsOf = Callable[[tuple[HeldUnits, ...]], Sequence[Row]]
"""Plans around groups whose months of sale are given."""


@dataclass(frozen=True, slots=True)
class Sales:
    """A plan around what exists."""

    held: tuple[HeldUnits, ...]
    """Existing units, with the months of sale."""
    rows: Sequence[Row]

    @property
    def cost(self) -> tuple[float, float]:
        """(load that is missing over the months, cost at its value at the start): what decides, in this order."""
        missing, usd = fsum(row.shortfall for row in self.rows), fsum(row.present_usd for row in self.rows)
        return round(missing, _DIGITS), round(usd, _DIGITS)


_DIGITS = 4  # what differs by less is equal, whatever floats make of the sums


def best_sales(held: Sequence[HeldUnits], months: int, rows_of: RowsOf) -> Sales:
    """The plan of *months* that is short of the least load and, among those, costs least.

    Every choice is tried where there are at most `MOST_TOGETHER`. Else each group in turn is given its best month until
    none improves, once from keeping all and once from selling all, so that no other month of any one group is
    better. Of equals the latest sale is taken.
    """
    choices = [list(_choices(one, months)) for one in held]
    if prod(map(len, choices)) <= MOST_TOGETHER:
        return _best(product(*choices), rows_of)
    starts = (tuple(one[0] for one in choices), tuple(one[-1] for one in choices))
    return min((_in_turn(start, choices, rows_of) for start in starts), key=lambda one: one.cost)


def _choices(one: HeldUnits, months: int) -> Iterator[HeldUnits]:
    """The group with every month of sale, the latest first; what serves nothing is sold at once."""
    latest = min(one.ends, months) if one.kind.capacity else 0
    yield from (replace(one, sold=month) for month in range(latest, -1, -1))


def _best(ways: Iterable[tuple[HeldUnits, ...]], rows_of: RowsOf) -> Sales:
    return min((Sales(held, rows_of(held)) for held in ways), key=lambda one: one.cost)


def _in_turn(start: tuple[HeldUnits, ...], choices: Sequence[Sequence[HeldUnits]], rows_of: RowsOf) -> Sales:
    best = Sales(start, rows_of(start))
    while True:
        before = best
        for place, group in enumerate(choices):
            around = best.held
            ways = ((*around[:place], one, *around[place + 1 :]) for one in group)
            best = min((best, _best(ways, rows_of)), key=lambda one: one.cost)
        if best is before:
            return best
