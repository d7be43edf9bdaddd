"""Search for the cheapest fleet of several kinds of replicas: an integer program proposes, simulations test.

The program chooses the number of replicas of each kind, and the prompt lengths that each kind serves. Requests fall
into classes by the length of their prompts. A replica of kind u answers at most rho[i, u] requests of class i per
second, so a fleet with n[u] replicas that serves the shares x[i, u] of the classes' rates r[i] needs

    sum_i x[i, u] r[i] / rho[i, u] <= e[u, n] n[u]      for every kind u
    sum_u x[i, u] = 1                                   for every class i
    sum_iu x[i, u] s[i] g[i, u] >= attainment

at the least cost. s[i] is the share of the requests in class i, and g the share of a class that meets the service level
when served alone. e, the fraction of its bound that a pool of n replicas reaches, starts at 1 and is lowered by
simulations:

    bounds -> integer program -> proposed fleets -> simulation -> meets: new best cost
                     ^                                    |
                     +------ lower e of the pools that missed

The loop ends when the next proposal costs no less than the best fleet known. The program then runs once more with e
reset to 1, for numbers of replicas that were not simulated before.

References
----------
Griggs et al., "Melange: Cost Efficient Large Language Model Serving by Exploiting GPU Heterogeneity", arXiv:2404.14527,
which packs slices of classes into GPUs.

"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, permutations, product
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import lil_array

from sim.cost.prices import CostError
from sim.scenario.schema import Fleet
from sim.scenario.sections.size import Budget, MixedFleets, Size
from sim.scenario.slo import SloGoal
from sim.study.execution.store import StoredCase
from sim.study.metrics.window_requests import latencies_s
from sim.study.size.bounds import SAMPLING_MARGIN, CandidateBounds, FleetNeeds, OfferedLoad, ceilings, over
from sim.study.size.search_space import Unit, dominated
from sim.study.size.search_space import family as unit_family
from sim.study.size.trials import Trial, Trials

SMALLEST_SHARE = 0.005
"""Least share of a class that a pool is given; smaller shares become zero."""
TOLERANCE = 1e-6
"""Tolerance of the solvers."""
Counts = tuple[tuple[int, int], ...]
"""(kind, replicas) of every pool."""


@dataclass(frozen=True, slots=True)
class KindLimits:
    """Limits of kinds of replicas per class of prompts; arrays are classes x kinds."""

    rates_rps: NDArray[np.float64]
    """Arrival rate of each class [1/s]."""
    most_rps: NDArray[np.float64]
    """Highest rate of one replica with requests of one class alone [1/s]; 0 where it may not serve the class."""
    good: NDArray[np.float64]
    """Share of a class that meets the service level when served alone [1]."""
    usd_per_h: tuple[tuple[float, ...], ...]
    """Lower bound of the cost of 1, 2, ... replicas, per kind [USD/h]."""
    families: tuple[str, ...]
    """Family of each kind; a fleet has at most one kind of a family."""
    borders: tuple[int, ...] = ()
    """Longest prompt of each class but the last [tokens]."""

    @property
    def shares(self) -> NDArray[np.float64]:
        """Share of the requests in each class [1]."""
        return np.asarray(self.rates_rps / self.rates_rps.sum())

    @property
    def busy(self) -> NDArray[np.float64]:
        """Number of replicas that a class keeps busy if a kind serves all of it, at the bound."""
        allowed = self.most_rps > 0
        return np.where(allowed, self.rates_rps[:, None] / np.where(allowed, self.most_rps, 1.0), 0.0)

    def only(self, chosen: Sequence[int]) -> "KindLimits":
        """Return the limits of the *chosen* kinds."""
        return replace(
            self,
            most_rps=self.most_rps[:, chosen],
            good=self.good[:, chosen],
            usd_per_h=tuple(self.usd_per_h[u] for u in chosen),
            families=tuple(self.families[u] for u in chosen),
        )


@dataclass(frozen=True, slots=True)
class MixedFleet:
    """Fleet of several kinds, with the split of the classes among its pools."""

    kinds: KindLimits
    """Limits of the kinds, with the classes that the fleet splits."""
    counts: Counts
    split: NDArray[np.float64]
    """Share of each class that each pool serves; classes x pools."""

    @property
    def pools(self) -> list[int]:
        """Kind of each pool."""
        return [u for u, _ in self.counts]

    @property
    def usd_per_h(self) -> float:
        """Lower bound of the cost [USD/h]."""
        return sum(self.kinds.usd_per_h[u][n - 1] for u, n in self.counts)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """Utilisation of each pool, by the bound [1]."""
        taken = (self.split * self.kinds.busy[:, self.pools]).sum(axis=0)
        return np.asarray(taken / np.array([n for _, n in self.counts]))


def cheapest_mix(
    kinds: KindLimits,
    reached: Mapping[tuple[int, int], float],
    least_good: float,
    most_kinds: int,
    forbidden: Sequence[Counts],
    ceilings: Sequence[tuple[Sequence[Sequence[float]], float]] = (),
) -> MixedFleet | None:
    """Return the cheapest fleet of two to *most_kinds* kinds that may serve the load; None where there is none.

    Parameters
    ----------
    kinds
        Limits of the kinds.
    reached
        (kind, replicas) -> fraction of the bound that is reached; 1 where absent.
    least_good
        Share of the requests that must meet the service level [1].
    most_kinds
        Largest number of kinds in a fleet.
    forbidden
        Fleets that must not be returned.
    ceilings
        Limits of a budget: needs of 1, 2, ... replicas of every kind, and the limit.

    """
    classes, count = kinds.most_rps.shape
    options = [(u, n) for u in range(count) for n in range(1, len(kinds.usd_per_h[u]) + 1)]
    width = len(options) + classes * count
    column = {option: place for place, option in enumerate(options)}

    def share(i: int, u: int) -> int:
        place: int = len(options) + i * count + u
        return place

    rows = _ConstraintRows(width)
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


def _balanced(
    kinds: KindLimits, counts: Counts, reached: Mapping[tuple[int, int], float], least_good: float
) -> MixedFleet:
    """Return the fleet with the split that minimises the utilisation of its fullest pool."""
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
    return MixedFleet(kinds, counts, np.round(split / split.sum(axis=1, keepdims=True), 3))


def split_by_length(kinds: KindLimits, counts: Counts, least_good: float, most: int) -> list[MixedFleet]:
    """Return splits of *counts* in which each pool serves one range of prompt lengths alone.

    Of every order of the pools the *most* splits with the lowest utilisation of the fullest pool are returned, as far
    as the bounds allow them.

    The balanced split loads pools evenly, but a long prompt delays the short ones beside it, which the bounds do not
    model; and where some requests may be late, a small pool may serve the long ones alone. Reached fractions of the
    bound are not applied: they were observed with other lengths.
    """
    classes, pools = len(kinds.rates_rps), [u for u, _ in counts]
    room = np.array([float(n) for _, n in counts])
    busy, good = kinds.busy[:, pools], kinds.shares[:, None] * kinds.good[:, pools]
    barred = kinds.most_rps[:, pools] == 0
    every: list[MixedFleet] = []
    for order in permutations(range(len(pools))):
        found: list[tuple[float, MixedFleet]] = []
        for borders in combinations(range(1, classes), len(pools) - 1):
            owner = np.repeat(order, np.diff([0, *borders, classes]))
            split = (owner[:, None] == np.arange(len(pools))).astype(float)
            fullest = float(((split * busy).sum(axis=0) / room).max())
            if not (split * barred).any() and float((good * split).sum()) >= least_good and fullest <= 1:
                found.append((fullest, MixedFleet(kinds, counts, split)))
        every += [mix for _, mix in sorted(found, key=lambda one: one[0])[:most]]
    return every


def merged(classes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the classes with neighbours merged that have the same shares of the same pools."""
    found: list[dict[str, Any]] = []
    for one in classes:
        if found and found[-1]["pools"] == one["pools"]:
            found[-1] = one
        else:
            found.append(one)
    return found


class _ConstraintRows:
    """Builder of a matrix of linear constraints, row by row."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows: list[Mapping[int, float]] = []
        self._least: list[float] = []
        self._most: list[float] = []

    def add(self, row: Mapping[int, float], least: float = -np.inf, most: float = np.inf) -> None:
        """Add the constraint *least* <= row <= *most*."""
        self._rows.append(row)
        self._least.append(least)
        self._most.append(most)

    def constraint(self) -> LinearConstraint:
        """Return all constraints as one."""
        matrix = lil_array((len(self._rows), self._width))
        for place, row in enumerate(self._rows):
            for column, value in row.items():
                matrix[place, column] = value
        return LinearConstraint(matrix.tocsr(), self._least, self._most)


MOST_TRIALS = 120
"""Approximate limit of the number of simulated fleets; beyond it the answer reports that the search was cut off."""
BATCH = 4
"""Number of fleets that are simulated at a time, whatever the number of workers: the answer must not depend on it."""
MOST_SPLITS = 2
"""Number of splits by ranges of lengths, per order of the pools, that are simulated beside the balanced one."""
CUTS = 11
"""Number of borders between such ranges to choose from."""
STEPS = ((0.02, 0.97), (0.1, 0.93), (1.0, 0.85))
"""(Largest shortfall of a pool's attainment; fraction of its load that it then reaches.)"""
BEHIND = 0.9
"""Answers over arrivals below which a pool falls behind."""


@dataclass(frozen=True, slots=True)
class MixedTrial:
    """Mixed fleet with the result of its simulation."""

    fleet: Fleet
    replicas: int
    """Number of replicas, without spares."""
    floor_usd_per_h: float
    outcome: Trial
    needs: FleetNeeds

    def over(self, budget: Budget | None) -> str:
        """Return the limits of *budget* that the fleet exceeds at its simulated cost, in words; empty if none."""
        return over(budget, self.needs, self.outcome.usd_per_h, self.outcome.rounding_usd_per_h)

    @property
    def merit(self) -> tuple[bool, float]:
        """Rank of the trial: fleets that meet by lower cost, above the others by smaller shortfall."""
        return self.outcome.meets, -self.outcome.usd_per_h if self.outcome.meets else self.outcome.slack


@dataclass(frozen=True, slots=True)
class MixedSearch:
    """Result of a search among mixed fleets."""

    trials: tuple[MixedTrial, ...]
    least_usd_per_h: float
    """Lower bound of the cost of all fleets that were not simulated [USD/h]; infinite where none is left."""
    proved: bool
    """True if the search was completed, false if it was cut off."""

    def best_by_name(self) -> list[MixedTrial]:
        """Return the trials, the best one of fleets that differ only in their router."""
        found: dict[str, MixedTrial] = {}
        for trial in self.trials:
            known = found.get(trial.fleet.name)
            if known is None or trial.merit > known.merit:
                found[trial.fleet.name] = trial
        return list(found.values())


def length_classes(demand: OfferedLoad, count: int) -> list[int]:
    """Return the longest prompts of all classes but the last [tokens].

    The at most *count* classes have about the same number of prompt tokens each.

    >>> demand = OfferedLoad(1.0, np.array([1.0, 1.0, 2.0, 4.0, 8.0]), np.ones(5), False)
    >>> length_classes(demand, 2)
    [4]
    """
    ordered = np.sort(demand.prompts)
    filled = np.cumsum(ordered) / ordered.sum()
    places = [int(np.searchsorted(filled, part / count)) for part in range(1, count)]
    borders = sorted({int(ordered[place]) for place in places})
    return [border for border in borders if border < ordered[-1]]


class MixedSearcher:
    """Search for a mixed fleet among *units*, cheaper than *best_usd_per_h*."""

    def __init__(
        self,
        size: Size,
        mixed: MixedFleets,
        units: Sequence[Unit],
        candidate_bounds: CandidateBounds,
        trials: Trials,
        best_usd_per_h: float,
    ) -> None:
        self._size, self._mixed, self._trials, self._bounds = size, mixed, trials, candidate_bounds
        self._best_usd_per_h = best_usd_per_h
        self._goal = trials.slo.goals[0]
        """Goal for which bounds are computed; simulations judge all goals."""
        self._units, self._kinds = self._eligible(units)
        self._ranges = self._by_class(self._units, CUTS + 1, self._kinds.usd_per_h)
        """Limits of the units for the finer classes from which ranges of lengths are built."""
        self._ceilings = ceilings(size.budget, [self._shared_needs(place) for place in range(len(self._units))])
        self._reached: dict[tuple[int, int], float] = {}
        self._simulated: list[Counts] = []
        self._forbidden: list[Counts] = []
        """Fleets that the program must not propose again."""
        self._split: set[Counts] = set()
        """Fleets that were simulated with their classes split by ranges."""
        self._learning = True
        """True while trials lower the reached fractions; a proof requires a final pass on the bounds alone."""

    def run(self) -> MixedSearch:
        """Return the result of the search; cases that are not on disk are simulated."""
        trials_so_far: list[MixedTrial] = []
        while True:
            batch, least_usd_per_h = self._proposals()
            if not batch and self._learning:
                self._by_bounds_alone()
                continue
            if not batch or len(trials_so_far) >= MOST_TRIALS:
                return MixedSearch(tuple(trials_so_far), least_usd_per_h, not batch)
            splits = [self._splits(mix) for mix in batch]
            trials = self._try([split for mine in splits for split in mine])
            trials_so_far += trials
            following = iter(trials)
            for mine in splits:
                self._judge([(split, next(following)) for split in mine])

    def _by_bounds_alone(self) -> None:
        """Reset the reached fractions, which depend on the lengths their pools served, and exclude simulated fleets."""
        self._learning, self._reached = False, {}
        self._forbidden += self._simulated

    def _splits(self, mix: MixedFleet) -> list[MixedFleet]:
        """Return the splits of *mix* to simulate: the balanced one and, the first time, splits by ranges of lengths."""
        if mix.counts in self._split or self._same_machines(mix):
            return [mix]
        self._split.add(mix.counts)
        least_good = self._goal.share - SAMPLING_MARGIN
        others = split_by_length(self._ranges, mix.counts, least_good, MOST_SPLITS)
        return [mix, *others]

    def _judge(self, splits: Sequence[tuple[MixedFleet, MixedTrial]]) -> None:
        """Update the search with the trials of one fleet: its cost if a split meets, else its least shortfall."""
        counts = splits[0][0].counts
        self._simulated.append(counts)
        met = [trial for _, trial in splits if trial.outcome.meets]
        if met:
            paid = [one.outcome.usd_per_h for one in met if not one.over(self._size.budget)]
            self._best_usd_per_h = min(self._best_usd_per_h, *paid, inf)
        if met or not self._learning:
            self._forbidden.append(counts)
        else:
            mix, trial = max(splits, key=lambda one: one[1].outcome.slack)
            self._learn(mix, trial.outcome.cases)

    def _proposals(self) -> tuple[list[MixedFleet], float]:
        """Return the cheapest mixes that may beat the best fleet, and the lower bound of what is left [USD/h]."""
        found: list[MixedFleet] = []
        least_good = self._goal.share - SAMPLING_MARGIN
        while len(found) < BATCH and len(self._units) > 1 and self._kinds.borders:
            forbidden = [*self._forbidden, *(mix.counts for mix in found)]
            most = self._mixed.most_kinds
            mix = cheapest_mix(self._kinds, self._reached, least_good, most, forbidden, self._ceilings)
            if mix is None or mix.usd_per_h >= self._best_usd_per_h:
                return found, inf if mix is None else mix.usd_per_h
            if mix.split.any(axis=0).all() and not self._exceeds_budget(self._needs(mix)):
                found.append(mix)
            else:  # a single kind serves all classes, as in fleets already known, or the mix exceeds the budget
                self._forbidden.append(mix.counts)
        return found, found[0].usd_per_h if found else inf

    def _eligible(self, units: Sequence[Unit]) -> tuple[list[Unit], KindLimits]:
        """Return the units that may be part of a cheaper fleet, and their limits."""
        costs: dict[int, tuple[float, ...]] = {}
        for place, unit in enumerate(units):
            if unit.own is None and not self._bounds.cannot_start(unit):
                costs[place] = tuple(self._costs(unit))
        held = [place for place in costs if costs[place] and not dominated(place, units, costs)]
        known = self._by_class(
            [units[place] for place in held], self._mixed.length_classes, tuple(costs[place] for place in held)
        )
        chosen = np.flatnonzero(known.most_rps.any(axis=0)).tolist()
        return [units[held[u]] for u in chosen], known.only(chosen)

    def _by_class(self, units: Sequence[Unit], count: int, usd_per_h: tuple[tuple[float, ...], ...]) -> KindLimits:
        """Return the limits of *units* for at most *count* classes of prompts."""
        demand = self._bounds.demand
        borders = length_classes(demand, count)
        classes = [demand.of_prompts(low, high) for low, high in pairwise([-inf, *borders, inf])]
        rates: dict[str, tuple[list[float], list[float]]] = {}
        for unit in units:
            if unit.machine not in rates:
                rates[unit.machine] = self._rates(unit, classes)
        shape = (len(units), len(classes))
        most_rps = np.array([rates[unit.machine][0] for unit in units]).reshape(shape).T
        good = np.array([rates[unit.machine][1] for unit in units]).reshape(shape).T
        arriving = np.array([one.rate_rps for one in classes], dtype=float)
        return KindLimits(arriving, most_rps, good, usd_per_h, tuple(map(unit_family, units)), tuple(borders))

    def _costs(self, unit: Unit) -> Iterator[float]:
        """Yield the lower bound of the cost of 1, 2, ... replicas [USD/h], up to the cost of the best fleet."""
        for replicas in range(1, self._bounds.most_replicas(unit, self._size) + 1):
            try:
                usd_per_h, needs = self._bounds.floor(unit, replicas, self._size.spare_replicas)
            except CostError:
                return
            if usd_per_h >= self._best_usd_per_h or self._exceeds_budget(needs):
                return
            yield usd_per_h

    def _shared_needs(self, place: int) -> list[FleetNeeds]:
        """Return the needs of 1, 2, ... replicas of a kind, where other kinds fill the rest of its servers."""
        unit, spare = self._units[place], self._size.spare_replicas
        shared = replace(unit, cost=unit.cost | {"share": True})
        counts = range(1, len(self._kinds.usd_per_h[place]) + 1) if self._size.budget is not None else ()
        return [self._bounds.needs(shared.fleet(n, spare)) for n in counts]

    def _needs(self, mix: MixedFleet) -> FleetNeeds:
        return self._bounds.needs(self.fleet(mix, self._size.spare_replicas))

    def _exceeds_budget(self, needs: FleetNeeds) -> bool:
        return bool(over(self._size.budget, needs))

    def _rates(self, unit: Unit, classes: Sequence[OfferedLoad]) -> tuple[list[float], list[float]]:
        """Return, per class, the highest rate of one replica [1/s] and the share of requests that can be good [1]."""
        whole = self._bounds.pool(unit)
        floors = [whole.under(part) for part in classes]
        good = [floor.good_alone(self._goal) for floor in floors]
        most_rps = [floor.replica_rps() if floor.served else 0.0 for floor in floors]
        shares = [len(part.prompts) / len(self._bounds.demand.prompts) for part in classes]
        apart = sum(share / rps for share, rps in zip(shares, most_rps, strict=True) if rps)
        # steps filled with prompts and decodes of several classes answer more than those of one class
        help_factor = max(1.0, apart * whole.replica_rps()) if all(most_rps) else 1.0
        return [rps * help_factor for rps in most_rps], good

    def _try(self, batch: Sequence[MixedFleet]) -> list[MixedTrial]:
        """Simulate the mixes, and once more with their spares those that meet the service level."""
        outcomes = self._trials.of([self.fleet(mix, 0) for mix in batch])
        spare = self._size.spare_replicas
        fleets = [self.fleet(mix, spare) for mix in batch]
        if spare:
            met = [place for place, outcome in enumerate(outcomes) if outcome.meets]
            for place, outcome in zip(met, self._trials.of([fleets[place] for place in met]), strict=True):
                outcomes[place] = outcome
        return [
            MixedTrial(fleet, sum(n for _, n in mix.counts), mix.usd_per_h, outcome, self._needs(mix))
            for mix, fleet, outcome in zip(batch, fleets, outcomes, strict=True)
        ]

    def fleet(self, mix: MixedFleet, spare: int) -> Fleet:
        """Return *mix* as a fleet of a scenario."""
        names = _names([self._units[u] for u in mix.pools])
        pools, words = [], []
        for (u, n), name in zip(mix.counts, names, strict=True):
            unit = self._units[u]
            pools.append({"name": name, **unit.pool, "replicas": n + spare, "cost": unit.cost})
            words.append(unit.counted(n, spare))
        data = {"name": " + ".join(words), "pools": pools}
        if self._same_machines(mix):
            return Fleet.model_validate(data)
        limits = [*({"up_to_prompt_tokens": border} for border in mix.kinds.borders), {}]
        classes = [
            limit | {"pools": {name: float(part) for name, part in zip(names, row, strict=True) if part}}
            for limit, row in zip(limits, mix.split, strict=True)
        ]
        return Fleet.model_validate(data | {"routing": {"policy": "by_length", "classes": merged(classes)}})

    def _same_machines(self, mix: MixedFleet) -> bool:
        """Return whether the pools of *mix* are equal machines with other purchase options, which need no split."""
        rates = mix.kinds.most_rps[:, mix.pools]
        return bool((rates == rates[:, :1]).all())

    def _learn(self, mix: MixedFleet, cases: Sequence[StoredCase]) -> None:
        """Lower the reached fractions of the kinds whose pools missed, for this number of replicas and fewer.

        Where a pool falls behind, its answered share bounds the kind with any number of replicas.
        """
        names = _names([self._units[u] for u in mix.pools])
        results = [_pool_results(cases, name, self._goal) for name in names]
        good = mix.kinds.good[:, mix.pools]
        sent = mix.kinds.shares[:, None] * mix.split
        attainable = (sent * good).sum(axis=0) / sent.sum(axis=0)
        needed = np.minimum(attainable, self._goal.share)
        short = [max(0.0, float(need) - has) for need, (has, _) in zip(needed, results, strict=True)]
        if not any(short):  # no pool misses its attainable share, but together they miss the goal
            short = [max(0.001, float(possible) - has) for possible, (has, _) in zip(attainable, results, strict=True)]
        for (u, n), lacks, loaded, (_, answered) in zip(mix.counts, short, mix.utilisation, results, strict=True):
            if lacks:
                factor = next(factor for most, factor in STEPS if lacks <= most)
                self._lower(u, n, factor * loaded)
                if answered < BEHIND:
                    self._lower(u, self._size.max_replicas, answered * loaded)

    def _lower(self, kind: int, most: int, reached: float) -> None:
        """Limit the reached fraction of *kind* and equally fast kinds to *reached*, for up to *most* replicas."""
        rates = self._kinds.most_rps
        alike = [v for v in range(len(self._units)) if np.array_equal(rates[:, v], rates[:, kind])]
        for v, n in product(alike, range(1, most + 1)):
            self._reached[v, n] = min(self._reached.get((v, n), 1.0), reached)


def _pool_results(cases: Sequence[StoredCase], pool: str, goal: SloGoal) -> tuple[float, float]:
    """Return, for the measured requests of *pool*, the share within *goal*, and answers over arrivals meanwhile."""
    good = arrived = answered = 0
    for case in cases:
        table = case.requests()
        table = table.filter(pc.equal(table["pool"], pool))
        mine = table.filter(pc.equal(table["measured"], 1))
        if not len(mine):
            continue
        first_s, last_s = pc.min(mine["arrived_s"]), pc.max(mine["arrived_s"])
        ended: Any = pc.and_(pc.greater_equal(table["finished_s"], first_s), pc.less_equal(table["finished_s"], last_s))
        good += _count_within(mine, goal)
        arrived += len(mine)
        answered += pc.sum(ended).as_py() or 0
    return (good / arrived, answered / arrived) if arrived else (1.0, 1.0)


def _count_within(requests: pa.Table, goal: SloGoal) -> int:
    """Return the number of the measured *requests* within *goal*."""
    if goal.percentile is None:
        return pc.sum(requests["slo_met"]).as_py() or 0
    late = latencies_s(requests, goal.percentile.latency) > goal.percentile.limit_s
    return len(requests) - int(late.sum())


def _names(units: Sequence[Unit]) -> list[str]:
    """Return the name of each unit's pool: its GPU, or the unit's name where several have the same GPU."""
    wanted = [str(unit.pool["gpu"]) for unit in units]
    return [name if wanted.count(name) == 1 else unit.name for name, unit in zip(wanted, units, strict=True)]
