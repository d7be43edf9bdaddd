"""Where no fleet meets the service level within a budget: the one that attains the most within it.

More replicas are taken to serve no worse, so of each kind the most that the budget holds are simulated, in the order of
an upper bound of what they attain: the share of requests that keep to the service level alone, and the share that so
many replicas can answer at all. When no bound left is above the best attainment found, nothing left attains more. With
several goals the one that is missed most counts.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from sim.cost import CostError
from sim.scenario.sections.size import Budget, Size
from sim.study.fleets.size.bounds import SAMPLING_MARGIN, Floor
from sim.study.fleets.size.budget import Needs, over
from sim.study.fleets.size.prospects import Prospects
from sim.study.fleets.size.trials import Trial, Trials
from sim.study.fleets.size.units import Unit

TOGETHER = 4
"""Fleets that are tried at a time, however many workers there are: the answer must not depend on them."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A fleet that may be within the budget, and what became of it."""

    order: int
    """Place of its unit."""
    replicas: int
    floor_usd_per_h: float
    needs: Needs
    outcome: Trial
    """Without its spares."""
    usd_per_h: float
    """With them."""
    reason: str
    """Why it is over the budget after all; empty if it is not."""


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    less: float
    """The upper bound of its slack, negative."""
    floor_usd_per_h: float
    order: int
    replicas: int


class Nearest:
    """One search among *units* that all miss the service level, or exceed the budget."""

    def __init__(self, size: Size, budget: Budget, units: Sequence[Unit], prospects: Prospects, trials: Trials) -> None:
        self._size, self._budget = size, budget
        self._units, self._prospects, self._trials = units, prospects, trials
        self._heap: list[_Candidate] = []
        self._settled: dict[str, int] = {}
        """Machine -> the most replicas simulated within the budget: fewer, or as many paid otherwise, do no better."""
        self._needs: dict[tuple[int, int], Needs] = {}
        self._best: Judged | None = None
        self.judged: list[Judged] = []
        """All that were simulated."""

    def run(self) -> Judged | None:
        """None where nothing that can start stays within the budget."""
        for order, unit in enumerate(self._units):
            if self._may_start(unit):
                self._push(order, self._prospects.most_replicas(unit, self._size))
        while batch := self._batch():
            fleets = [self._units[one.order].fleet(one.replicas) for one in batch]
            outcomes = self._trials.whole(fleets)
            spare = self._size.spare_replicas
            paid = self._trials.whole([self._units[one.order].fleet(one.replicas, spare) for one in batch])
            for one, outcome, whole in zip(batch, outcomes, paid if spare else outcomes, strict=True):
                self._judge(one, outcome, whole)
        return self._best

    def _may_start(self, unit: Unit) -> bool:
        if unit.own is not None and any(pool.replicas <= unit.own_spares for pool in unit.own.pools):
            return False
        try:
            return not self._prospects.cannot_start(unit)
        except (ValueError, ArithmeticError):
            return False

    def _push(self, order: int, most: int) -> None:
        """At most *most* replicas of a unit: as many as the budget holds."""
        unit = self._units[order]
        for replicas in range(most, 0, -1):
            try:
                floor, needs = self._prospects.floor(unit, replicas, self._size.spare_replicas)
            except CostError:
                return
            if not over(self._budget, needs):
                self._needs[order, replicas] = needs
                heapq.heappush(self._heap, _Candidate(-self._bound(unit, replicas), floor, order, replicas))
                return

    def _bound(self, unit: Unit, replicas: int) -> float:
        """Upper bound of its slack, the part of the requests that it attains beyond what is asked for."""
        demand, goals = self._prospects.demand, self._trials.slo.goals
        if self._prospects.demands:
            return 1.0 - max(goal.share for slo in self._prospects.levels for goal in slo.goals)
        if unit.own is not None or unit.beside is not None:
            return min(1.0 - goal.share for goal in goals)
        floor = Floor(self._prospects.plan(unit).pools[0], demand)
        alone = min(min(1.0, floor.good_alone(goal) + SAMPLING_MARGIN) - goal.share for goal in goals)
        if not demand.rate_rps:
            return alone
        # the goal that asks for most of the rate is missed by at least this part of its share
        answered = replicas * floor.replica_rps() / demand.rate_rps
        return min(alone, min(goal.share for goal in goals) * (answered - 1)) if answered < 1 else alone

    def _batch(self) -> list[_Candidate]:
        """The next to simulate; none once no bound that is left is above the best."""
        found: list[_Candidate] = []
        machines: set[str] = set()
        later: list[_Candidate] = []
        slack = -inf if self._best is None else self._best.outcome.slack
        while self._heap and len(found) < TOGETHER and -self._heap[0].less > slack:
            one = heapq.heappop(self._heap)
            machine = self._units[one.order].machine
            if one.replicas <= self._settled.get(machine, 0):
                continue
            (later if machine in machines else found).append(one)
            machines.add(machine)
        for one in later:
            heapq.heappush(self._heap, one)
        return found

    def _judge(self, one: _Candidate, outcome: Trial, whole: Trial) -> None:
        needs, machine = self._needs[one.order, one.replicas], self._units[one.order].machine
        reason = over(self._budget, needs, whole.usd_per_h, whole.rounding_usd_per_h)
        judged = Judged(one.order, one.replicas, one.floor_usd_per_h, needs, outcome, whole.usd_per_h, reason)
        self.judged.append(judged)
        if reason:
            if self._units[one.order].own is None:
                self._push(one.order, one.replicas - 1)
            return
        self._settled[machine] = max(one.replicas, self._settled.get(machine, 0))
        if self._best is None or _merit(judged) > _merit(self._best):
            self._best = judged


def _merit(best: Judged) -> tuple[float, float]:
    """The higher attainment, then the lower cost."""
    return best.outcome.slack, -best.usd_per_h
