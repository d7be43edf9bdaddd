"""Fewest racks that hold servers of several kinds, each with its height and its power: vector bin packing.

First-fit decreasing (Johnson 1974) packs them; where that takes more than total height and power do, an integer program
over the ways to fill one rack decides (the cutting-stock formulation of Gilmore and Gomory 1961).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from math import ceil, floor, isfinite
from typing import NamedTuple

import numpy as np

MOST_FILLINGS = 20_000
"""Of one rack; fleets of a dozen kinds of small servers have more, and keep what first-fit decreasing found."""
EMPTY = (1.0, 1.0)
"""Space and power of an empty rack."""
_ROUNDING = 1e-9  # 30.6 kW hold three servers of 10.2 kW, whatever floats make of the quotient


class ServerKind(NamedTuple):
    """Servers of one kind."""

    number: int
    space: float
    """What one takes of a rack's height, 0 to 1."""
    power: float
    """What one takes of a rack's power, 0 to 1."""


def whole(number: float) -> float:
    """*number* rounded down, but for the rounding of floats.

    >>> whole(30.6 / 10.2)
    3
    """
    return floor(number + _ROUNDING) if isfinite(number) else number


@lru_cache(maxsize=1024)
def racks_needed(kinds: tuple[ServerKind, ...]) -> int:
    """Fewest racks for *kinds*, each of which fits into an empty one.

    >>> racks_needed((ServerKind(2, 0.6, 0.2), ServerKind(2, 0.3, 0.7)))
    2
    """
    found = _first_fit(kinds)
    space, power = (sum(kind.number * kind[axis] for kind in kinds) for axis in (1, 2))
    least = ceil(max(space, power) - _ROUNDING)
    if found <= least or len(kinds) == 1:
        return found
    fillings = list(islice(_fillings(kinds, 1.0, 1.0), MOST_FILLINGS + 1))
    return found if len(fillings) > MOST_FILLINGS else _fewest(kinds, fillings)


def _first_fit(kinds: Sequence[ServerKind]) -> int:
    """Racks of first-fit decreasing; those that are filled alike are kept together, so thousands cost nothing."""
    racks: Counter[tuple[float, float]] = Counter()
    for servers, space, power in sorted(kinds, key=lambda kind: -max(kind.space, kind.power)):
        left, after = servers, Counter[tuple[float, float]]()
        for free, number in [*racks.items(), (EMPTY, servers)]:
            each = int(min(whole(free[0] / space), whole(free[1] / power) if power else left, left))
            full = min(number, left // each) if each else 0
            rest = left - full * each if each and full < number else 0
            untouched = 0 if free == EMPTY else number - full - bool(rest)
            for added, of in ((each, full), (rest, int(bool(rest))), (0, untouched)):
                if of:
                    after[free[0] - added * space, free[1] - added * power] += of
            left -= full * each + rest
        racks = after
    return racks.total()


def _fillings(kinds: Sequence[ServerKind], space: float, power: float) -> Iterator[tuple[int, ...]]:
    """Ways to fill one rack to which no server of the last kind can be added."""
    first, *others = kinds
    most = int(
        min(first.number, whole(space / first.space), whole(power / first.power) if first.power else first.number)
    )
    if not others:
        yield (most,)
        return
    for taken in range(most, -1, -1):
        for rest in _fillings(others, space - taken * first.space, power - taken * first.power):
            yield (taken, *rest)


def _fewest(kinds: Sequence[ServerKind], fillings: Sequence[tuple[int, ...]]) -> int:
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to import, rarely needed

    table = np.array(fillings, dtype=np.float64).T
    needed = LinearConstraint(table, lb=np.array([float(kind.number) for kind in kinds]))
    costs, whole_numbers = np.ones(len(fillings)), np.ones(len(fillings), dtype=np.int64)
    found = milp(costs, integrality=whole_numbers, bounds=Bounds(0.0, np.inf), constraints=needed)
    if found.fun is None:
        raise RuntimeError(f"the packing of racks failed: {found.message}")
    return round(found.fun)
