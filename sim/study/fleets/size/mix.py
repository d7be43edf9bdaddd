"""Mixed fleets as an integer program: how many replicas of which kinds, and which of them serve which prompt lengths.

Requests fall into classes by the length of their prompts. A replica of kind u answers at most rho[i, u] requests of
class i per second, so a fleet with n[u] replicas that takes the shares x[i, u] of the classes' rates r[i] needs

    sum_i x[i, u] r[i] / rho[i, u] <= e[u, n] n[u]      for every kind u
    sum_u x[i, u] = 1                                   for every class i
    sum_iu x[i, u] s[i] g[i, u] >= attainment

at the least cost (after Griggs et al., "Melange: Cost Efficient Large Language Model Serving by Exploiting GPU
Heterogeneity", arXiv:2404.14527, which packs slices of classes into GPUs). g is the share of a class that keeps to
the service level when served alone; e, the part of the bound that n replicas reach, is what simulations lower.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import lil_array

SMALLEST_SHARE = 0.005
"""Of a class: a pool that would get less of it gets none."""
TOLERANCE = 1e-6
"""Of the solvers."""
Counts = tuple[tuple[int, int], ...]
"""(kind, replicas) of every pool."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """What is known of kinds of replicas and classes of prompts; arrays are classes x kinds."""

    rates_rps: NDArray[np.float64]
    """Of the classes."""
    most_rps: NDArray[np.float64]
    """One replica with requests of one class alone; 0 where it may not have any."""
    good: NDArray[np.float64]
    """Share of a class that keeps to the service level when served alone."""
    usd_per_h: tuple[tuple[float, ...], ...]
    """Per kind: what 1, 2, ... replicas cost at least."""
    families: tuple[str, ...]
    """Per kind: a fleet has at most one kind of a family."""
    borders: tuple[int, ...] = ()
    """The longest prompts of all classes but the last."""

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of the requests, by class."""
        return np.asarray(self.rates_rps / self.rates_rps.sum())

    @property
    def busy(self) -> NDArray[np.float64]:
        """Replicas that a class keeps busy if a kind has all of it, at the bound."""
        allowed = self.most_rps > 0
        return np.where(allowed, self.rates_rps[:, None] / np.where(allowed, self.most_rps, 1.0), 0.0)

    def only(self, chosen: Sequence[int]) -> "Kinds":
        """The *chosen* kinds alone."""
        return replace(
            self,
            most_rps=self.most_rps[:, chosen],
            good=self.good[:, chosen],
            usd_per_h=tuple(self.usd_per_h[u] for u in chosen),
            families=tuple(self.families[u] for u in chosen),
        )


@dataclass(frozen=True, slots=True)
class Mix:
    """A fleet of several kinds."""

    kinds: Kinds
    """Whose classes it divides."""
    counts: Counts
    split: NDArray[np.float64]
    """Classes x pools: the part of each class that each pool gets."""

    @property
    def pools(self) -> list[int]:
        """The kind of each."""
        return [u for u, _ in self.counts]

    @property
    def usd_per_h(self) -> float:
        """At least."""
        return sum(self.kinds.usd_per_h[u][n - 1] for u, n in self.counts)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """Of each pool, by the bound."""
        taken = (self.split * self.kinds.busy[:, self.pools]).sum(axis=0)
        return np.asarray(taken / np.array([n for _, n in self.counts]))


def cheapest_mix(
    kinds: Kinds,
    reached: Mapping[tuple[int, int], float],
    least_good: float,
    most_kinds: int,
    forbidden: Sequence[Counts],
    ceilings: Sequence[tuple[Sequence[Sequence[float]], float]] = (),
) -> Mix | None:
    """The cheapest fleet of two to *most_kinds* kinds that may serve the load; None where there is none.

    *reached* is the part of the bound for (kind, replicas), 1 where it is silent; *least_good* the share of requests
    that must keep to the service level. Each of *ceilings* has what 1, 2, ... replicas of every kind take at least of
    something, and how much there is of it.
    """
    classes, count = kinds.most_rps.shape
    options = [(u, n) for u in range(count) for n in range(1, len(kinds.usd_per_h[u]) + 1)]
    width = len(options) + classes * count
    column = {option: place for place, option in enumerate(options)}

    def share(i: int, u: int) -> int:
        place: int = len(options) + i * count + u
        return place

    rows = _Rows(width)
    for u in range(count):
        held = {column[u, n]: -n * reached.get((u, n), 1.0) for v, n in options if v == u}
        rows.add(held | {share(i, u): kinds.busy[i, u] for i in range(classes)}, most=0.0)
    for i in range(classes):
        rows.add({share(i, u): 1.0 for u in range(count)}, least=1.0, most=1.0)
    good = kinds.shares[:, None] * kinds.good
    rows.add({share(i, u): good[i, u] for i, u in product(range(classes), range(count))}, least=least_good)
    rows.add(dict.fromkeys(range(len(options)), 1.0), least=2.0, most=float(most_kinds))
    for family in dict.fromkeys(kinds.families):
        rows.add({column[one]: 1.0 for one in options if kinds.families[one[0]] == family}, most=1.0)
    for amounts, most in ceilings:
        scale = most or 1.0
        rows.add({column[u, n]: amounts[u][n - 1] / scale for u, n in options}, most=most / scale)
    for counts in forbidden:
        rows.add({column[one]: 1.0 for one in counts}, most=len(counts) - 1.0)
    cost = np.zeros(width)
    cost[: len(options)] = [kinds.usd_per_h[u][n - 1] for u, n in options]
    allowed = np.concatenate([np.ones(len(options)), (kinds.most_rps > 0).astype(float).ravel()])
    whole = np.concatenate([np.ones(len(options)), np.zeros(classes * count)])
    found = milp(cost, integrality=whole, bounds=Bounds(0.0, allowed), constraints=rows.constraint())
    if found.x is None:
        return None
    chosen = tuple(option for option, value in zip(options, found.x, strict=False) if value > 0.5)
    return _balanced(kinds, chosen, reached, least_good)


def _balanced(kinds: Kinds, counts: Counts, reached: Mapping[tuple[int, int], float], least_good: float) -> Mix:
    """The split that leaves the fullest pool of *counts* as far from full as it can be."""
    classes, pools = len(kinds.rates_rps), [u for u, _ in counts]
    busy, good = kinds.busy[:, pools], (kinds.shares[:, None] * kinds.good)[:, pools]
    room = np.array([n * reached.get((u, n), 1.0) for u, n in counts])
    width = classes * len(pools) + 1
    full = np.zeros((len(pools), width))
    for place in range(len(pools)):
        full[place, place : width - 1 : len(pools)] = busy[:, place]
        full[place, -1] = -room[place]
    enough = np.concatenate([-good.ravel(), [0.0]])
    each = np.zeros((classes, width))
    for i in range(classes):
        each[i, i * len(pools) : (i + 1) * len(pools)] = 1.0
    most = np.append((kinds.most_rps[:, pools] > 0).astype(float).ravel(), np.inf)
    found = linprog(
        np.append(np.zeros(width - 1), 1.0),
        A_ub=np.vstack([full, enough]),
        b_ub=np.append(np.zeros(len(pools)), -least_good + TOLERANCE),
        A_eq=each,
        b_eq=np.ones(classes),
        bounds=[(0.0, float(value)) for value in most],
        method="highs",
    )
    assert found.x is not None  # the integer program has found a split
    split = np.asarray(found.x[:-1]).reshape(classes, len(pools))
    split = np.where(split < SMALLEST_SHARE, 0.0, split)
    return Mix(kinds, counts, np.round(split / split.sum(axis=1, keepdims=True), 3))


def split_by_length(kinds: Kinds, counts: Counts, least_good: float, most: int) -> list[Mix]:
    """Splits of *counts* in which each pool has the classes of one range of lengths for itself: for every order of the
    pools at most this number of those that the bounds allow, with the most room in the fullest pool.

    The balanced split fills pools evenly, but a long prompt holds up the short ones beside it, which the bounds do not
    see; and where a few may be late, it is the long ones that a small pool may have for itself. What a kind has reached
    does not count here: it was with other lengths.
    """
    classes, pools = len(kinds.rates_rps), [u for u, _ in counts]
    room = np.array([float(n) for _, n in counts])
    busy, good = kinds.busy[:, pools], kinds.shares[:, None] * kinds.good[:, pools]
    barred = kinds.most_rps[:, pools] == 0
    every: list[Mix] = []
    for order in permutations(range(len(pools))):
        found: list[tuple[float, Mix]] = []
        for borders in combinations(range(1, classes), len(pools) - 1):
            owner = np.repeat(order, np.diff([0, *borders, classes]))
            split = (owner[:, None] == np.arange(len(pools))).astype(float)
            fullest = float(((split * busy).sum(axis=0) / room).max())
            if not (split * barred).any() and float((good * split).sum()) >= least_good and fullest <= 1:
                found.append((fullest, Mix(kinds, counts, split)))
        every += [mix for _, mix in sorted(found, key=lambda one: one[0])[:most]]
    return every


def merged(classes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours that go to the same pools in the same shares as one class."""
    found: list[dict[str, Any]] = []
    for one in classes:
        if found and found[-1]["pools"] == one["pools"]:
            found[-1] = one
        else:
            found.append(one)
    return found


class _Rows:
    """Linear constraints, one by one."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[Mapping[int, float]] = []
        self._least: list[float] = []
        self._most: list[float] = []

    def add(self, row: Mapping[int, float], least: float = -np.inf, most: float = np.inf) -> None:
        """*least* <= row <= *most*."""
        self._rows.append(row)
        self._least.append(least)
        self._most.append(most)

    def constraint(self) -> LinearConstraint:
        """All of them."""
        matrix = lil_array((len(self._rows), self._width))
        for place, row in enumerate(self._rows):
            for column, value in row.items():
                matrix[place, column] = value
        return LinearConstraint(matrix.tocsr(), self._least, self._most)
