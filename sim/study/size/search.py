"""Best-first search for the cheapest fleet that meets the service level, or for the best one within a budget.

The lower bound of a fleet's cost is its charges that do not depend on load plus its idle power. Fleets are simulated in
the order of that bound; a fleet that misses is replaced by the next larger one. When the lowest bound left is not below
the cheapest fleet found, nothing left can be cheaper (Lawler and Wood, 1966). The search assumes that more replicas of
a kind serve no worse.

Where no fleet meets the service level within a budget, the largest fleet of each kind that the budget holds is
simulated, in the order of an upper bound of its attainment: the share of requests that meet the service level alone,
and the share that its replicas can answer at all. When no bound left is above the best attainment found, nothing left
attains more. With several goals the one with the largest shortfall counts.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.cost.prices import CostError
from sim.message import Message
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.comparison import model_of
from sim.scenario.sections.size import OWNED, Budget, Size
from sim.scenario.year import at_peak
from sim.study.confidence import MeetingFleet, WinProbability, fleet_confidence, probability_cheaper
from sim.study.discounting import levelised
from sim.study.execution.cases import Workplace
from sim.study.size.bounds import SAMPLING_MARGIN, CandidateBounds, FleetNeeds, over
from sim.study.size.candidates import CandidateFleet, Sizing, Status, fastest_within, gpus_of, in_order, kinds_of
from sim.study.size.mixed_fleets import MixedSearch, MixedSearcher, MixedTrial
from sim.study.size.search_space import OwnedReplicas, Unit, spares_differ, units, with_spares
from sim.study.size.search_state import SearchState
from sim.study.size.trials import Runner, Trial, Trials

BATCH = 4
"""Number of fleets that are simulated at a time, whatever the number of workers: the answer must not depend on it."""


@dataclass(frozen=True, slots=True)
class EvaluatedFleet:
    """Fleet that may be within the budget, with the result of its simulation."""

    order: int
    """Index of the fleet's unit."""
    replicas: int
    floor_usd_per_h: float
    needs: FleetNeeds
    outcome: Trial
    """Result without spares."""
    usd_per_h: float
    """Cost with spares [USD/h]."""
    reason: str
    """Reason why the fleet is over the budget after simulation; empty if it is not."""


@dataclass(frozen=True, slots=True, order=True)
class _Candidate:
    less: float
    """Negative upper bound of the fleet's slack."""
    floor_usd_per_h: float
    order: int
    replicas: int


class BestWithinBudget:
    """Search for the fleet that attains the most within a budget, where none meets the service level within it."""

    def __init__(
        self, size: Size, budget: Budget, units: Sequence[Unit], candidate_bounds: CandidateBounds, trials: Trials
    ) -> None:
        self._size, self._budget = size, budget
        self._units, self._bounds, self._trials = units, candidate_bounds, trials
        self._heap: list[_Candidate] = []
        self._settled: dict[str, int] = {}
        """Machine -> largest number of replicas simulated within the budget.

        Fewer replicas, or as many with another purchase option, attain no more.
        """
        self._needs: dict[tuple[int, int], FleetNeeds] = {}
        self._best: EvaluatedFleet | None = None
        self.judged: list[EvaluatedFleet] = []
        """All fleets that were simulated."""

    def run(self) -> EvaluatedFleet | None:
        """Return the fleet that attains the most; None where no fleet that can start stays within the budget."""
        for order, unit in enumerate(self._units):
            if self._may_start(unit):
                self._push(order, self._bounds.most_replicas(unit, self._size))
        while batch := self._batch():
            fleets = [self._units[one.order].fleet(one.replicas) for one in batch]
            outcomes = self._trials.in_full(fleets)
            spare = self._size.spare_replicas
            paid = self._trials.in_full([self._units[one.order].fleet(one.replicas, spare) for one in batch])
            for one, outcome, whole in zip(batch, outcomes, paid if spare else outcomes, strict=True):
                self._judge(one, outcome, whole)
        return self._best

    def _may_start(self, unit: Unit) -> bool:
        if unit.own is not None and any(pool.replicas <= unit.own_spares for pool in unit.own.pools):
            return False
        try:
            return not self._bounds.cannot_start(unit)
        except (ValueError, ArithmeticError):
            return False

    def _push(self, order: int, most: int) -> None:
        """Queue the largest fleet of a unit within the budget, of at most *most* replicas."""
        unit = self._units[order]
        for replicas in range(most, 0, -1):
            try:
                floor, needs = self._bounds.floor(unit, replicas, self._size.spare_replicas)
            except CostError:
                return
            if not over(self._budget, needs):
                self._needs[order, replicas] = needs
                heapq.heappush(self._heap, _Candidate(-self._bound(unit, replicas), floor, order, replicas))
                return

    def _bound(self, unit: Unit, replicas: int) -> float:
        """Return the upper bound of the fleet's slack: attained share of requests minus the target [1]."""
        demand, goals = self._bounds.demand, self._trials.slo.goals
        if self._bounds.demands:
            return 1.0 - max(goal.share for slo in self._bounds.levels for goal in slo.goals)
        if unit.own is not None or unit.beside is not None or unit.owned is not None:
            return min(1.0 - goal.share for goal in goals)
        floor = self._bounds.pool(unit)
        alone = min(min(1.0, floor.good_alone(goal) + SAMPLING_MARGIN) - goal.share for goal in goals)
        if not demand.rate_rps:
            return alone
        # unanswered requests count against every goal, so the least demanding goal gives the bound
        answered = replicas * floor.replica_rps() / demand.rate_rps
        return min(alone, min(goal.share for goal in goals) * (answered - 1)) if answered < 1 else alone

    def _batch(self) -> list[_Candidate]:
        """Return the next fleets to simulate; none once no remaining bound is above the best attainment."""
        found: list[_Candidate] = []
        machines: set[str] = set()
        later: list[_Candidate] = []
        slack = -inf if self._best is None else self._best.outcome.slack
        while self._heap and len(found) < BATCH and -self._heap[0].less > slack:
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
        judged = EvaluatedFleet(one.order, one.replicas, one.floor_usd_per_h, needs, outcome, whole.usd_per_h, reason)
        self.judged.append(judged)
        if reason:
            if self._units[one.order].own is None:
                self._push(one.order, one.replicas - 1)
            return
        self._settled[machine] = max(one.replicas, self._settled.get(machine, 0))
        if self._best is None or _merit(judged) > _merit(self._best):
            self._best = judged


def _merit(best: EvaluatedFleet) -> tuple[float, float]:
    """Return the sort key of a fleet: attainment, then lower cost."""
    return best.outcome.slack, -best.usd_per_h


BATCH_AFTER_BEST = 16
"""Number of fleets that are simulated at a time once the cheapest is known and the order no longer matters."""

ProgressCallback = Callable[[SearchState], None]
"""Callback with the progress of a search."""


@dataclass(frozen=True, slots=True, order=True)
class _QueuedCandidate:
    """Fleet that waits to be simulated."""

    floor_usd_per_h: float
    order: int
    replicas: int


@dataclass(frozen=True, slots=True)
class _OwnedWithOthers:
    """All owned GPUs in one layout with each other kind of replicas; bounded only when their least cost counts."""

    least_usd_per_h: float
    """Lower bound of the cost of all of them: that of the owned GPUs alone [USD/h]."""
    owned: OwnedReplicas
    members: list[tuple[int, Unit]]
    """Order and unit of each combination."""


RATE_SPREAD = 1.05
"""Factor on the highest measured rate of output tokens that a further fleet's rate is taken to stay below."""


class Search:
    """Search of one scenario, from the bounds to the proof that no cheaper fleet is left."""

    def __init__(
        self,
        scenario: Scenario,
        size: Size,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        progress: ProgressCallback = lambda _: None,
    ) -> None:
        # a search of mixed fleets needs the table of requests
        kept = {"requests": "csv"} if size.mixed is not None and scenario.requests == "none" else {}
        self.scenario = levelised(at_peak(scenario)).model_copy(update={"sweep": None, "size": None, **kept})
        """Scenario at the peak of its load profile, which fleets must carry."""
        self.size, self.catalog, self._progress = size, catalog, progress
        self._runner = Runner(self.scenario, catalog, out, workplace, self._report_progress)
        self._trials = Trials(self.scenario, self._runner, catalog, size)
        self._bounds = CandidateBounds(self.scenario, catalog)
        self._units = list(units(self.scenario, size, catalog))
        self._needs: dict[tuple[int, int], FleetNeeds] = {}
        """(unit, replicas) -> money and power of the fleet."""
        self._levels = {one.name: one.slo for one in scenario.services}
        self._heap: list[_QueuedCandidate] = []
        self._deferred: list[_OwnedWithOthers] = []
        """Combinations with owned GPUs that are not bounded yet, the cheapest last."""
        self._bounded, self._kinds = 0, 0
        self._candidates: list[CandidateFleet] = []
        self._best_usd_per_h = inf
        self._cheapest: _QueuedCandidate | None = None
        self._missed: dict[tuple[str, int], Trial] = {}
        """(machine, replicas) -> trial that missed; another purchase option of the same machines serves no better."""
        self._met: dict[tuple[str, int], _QueuedCandidate] = {}
        """(machine, replicas) -> fleet that met, with the purchase option that was simulated first."""

    def run(self) -> Sizing:
        """Return the answer; cases that are not on disk are simulated."""
        units = list(enumerate(self._units))
        self._consider_all([(order, unit) for order, unit in units if unit.owned is None])
        self._defer([(order, unit) for order, unit in units if unit.owned is not None])
        while batch := self._next_batch():
            self._try(batch)
        self._try_each_kind()
        has_rate = self._bounds.demand.rate_rps is not None
        mixed = self._mixed() if self.size.mixed is not None and has_rate else None
        self._extend_front()
        self._find_conclusive()
        while self._heap:
            entry = heapq.heappop(self._heap)
            if not self._record_known_miss(entry):
                self._candidates.append(self._row(entry, "not simulated"))
        self._candidates += map(self._deferred_row, self._deferred)
        best_within_budget = (
            self._best_within_budget() if self.size.budget is not None and self._best_usd_per_h == inf else None
        )
        ranked = in_order(self._candidates, best_within_budget, self.scenario)
        winner = self._winner([one for one in ranked if one.status == "meets"])
        ranked.sort(key=lambda one: one is not winner and one is not best_within_budget)
        fastest = fastest_within(ranked, self.size.cost_ceiling)
        instead = None if winner else best_within_budget
        found = Sizing(winner, tuple(ranked), self._runner.simulated, mixed, instead, fastest)
        return replace(found, win_probability=self._win_probability(found))

    def _win_probability(self, found: Sizing) -> WinProbability | None:
        """Return the probability, under the model's error, that the winner is cheaper than its rival."""
        best, rival = found.winner, found.rival
        if best is None or rival is None:
            return None
        fleets = [None if self._levels else self._meeting_fleet(one) for one in (best, rival)]
        share = probability_cheaper(fleets[0], fleets[1], self.scenario.seed) if fleets[0] and fleets[1] else None
        return None if share is None else WinProbability(rival.name, share, rival.usd_per_h is None)

    def _meeting_fleet(self, one: CandidateFleet) -> MeetingFleet | None:
        """Return *one* in the form for Monte Carlo draws; None for several pools or without a computed step time."""
        single = one.fleet is not None and len(one.fleet.pools) == 1 and one.replicas and not one.autoscaled
        confidence = (
            fleet_confidence(self.scenario, one.fleet, self.catalog) if single and one.fleet is not None else None
        )
        return (
            None
            if confidence is None or one.least_usd_per_h is None
            else MeetingFleet(one.least_usd_per_h, one.replicas, confidence)
        )

    def _best_within_budget(self) -> CandidateFleet | None:
        """Return the fleet of one kind that attains the most within the budget."""
        assert self.size.budget is not None
        # replicas that serve attain no less than standby replicas
        serving = [unit for unit in self._units if unit.standby is None and unit.elastic is None]
        search = BestWithinBudget(self.size, self.size.budget, serving, self._bounds, self._trials)
        best = search.run()
        rows = [self._judged_row(one) for one in search.judged]
        judged = [(self._units[one.order], one) for one in search.judged]
        seen = {(unit.machine, unit.total(one.replicas)): one.outcome for unit, one in judged}
        names = {row.name for row in rows}
        for one in self._candidates:
            if one.name not in names:
                outcome = seen.get((one.machine, one.replicas)) if one.status == "misses" else None
                rows.append(one if outcome is None else one.with_results(outcome, self._levels))
        self._candidates = rows
        return None if best is None else rows[search.judged.index(best)]

    def _judged_row(self, one: EvaluatedFleet) -> CandidateFleet:
        """Return the row of a fleet of the search for the best attainment."""
        self._needs[one.order, one.replicas] = one.needs
        status: Status = "over budget" if one.reason else "meets" if one.outcome.meets else "misses"
        row = self._row(_QueuedCandidate(one.floor_usd_per_h, one.order, one.replicas), status, one.usd_per_h)
        return replace(row, reason=one.reason).with_results(one.outcome)

    def _conclusive_usd_per_h(self) -> float:
        """Return the lowest cost among fleets whose verdict is not inconclusive; infinite without one [USD/h]."""
        met = [one for one in self._candidates if one.status == "meets" and not one.inconclusive]
        return min((one.usd_per_h for one in met if one.usd_per_h is not None), default=inf)

    def _find_conclusive(self) -> None:
        """Simulate what may cost less than the cheapest fleet whose verdict is not inconclusive."""
        least = self._conclusive_usd_per_h()
        while least < inf and (batch := self._next_batch(least / self._best_usd_per_h)):
            self._try(batch)
            least = self._conclusive_usd_per_h()

    @staticmethod
    def _winner(met: Sequence[CandidateFleet]) -> CandidateFleet | None:
        """Return the first fleet of *met* whose verdict is not inconclusive, or else the first; None without one."""
        return next((one for one in met if not one.inconclusive), met[0] if met else None)

    def _extend_front(self) -> None:
        """Simulate more expensive fleets that may be faster, for the front of cost against latency."""
        for entry in list(self._met.values()):
            self._push_faster(entry)
        factor = max(self.size.front_up_to, self._ceiling_usd_per_h() / self._best_usd_per_h)
        while batch := self._next_batch(factor, BATCH_AFTER_BEST):
            before = set(self._met)
            self._try(batch)
            for key in self._met.keys() - before:
                self._push_faster(self._met[key])

    def _ceiling_usd_per_h(self) -> float:
        """Return the cost up to which fleets may be within the ceiling [USD/h]; 0 without a ceiling.

        A price per token is converted at the highest measured rate of output tokens.
        """
        ceiling = self.size.cost_ceiling
        if ceiling is None:
            return 0.0
        rates = [one.output_tokens_per_s or 0.0 for one in self._candidates if one.status == "meets"]
        per_token = (ceiling.usd_per_million_output_tokens or inf) * max(rates, default=0.0) * 3600 / 1e6
        return min(ceiling.usd_per_h or inf, RATE_SPREAD * per_token if rates else 0.0)

    def _push_faster(self, entry: _QueuedCandidate) -> None:
        """Queue the fleet with one more replica, except where an autoscaler would start it on demand only."""
        if self._units[entry.order].elastic is None:
            self._push_more(entry)

    def _push_next(self, entry: _QueuedCandidate, outcome: Trial) -> None:
        """Queue the fleet with one more serving replica, or with one more spare where it suffices without failures."""
        unit, spares = self._units[entry.order], self.size.spares
        if unit.standby is not None:
            self._push_standby(entry, unit.standby.kind, unit.standby.count + 1)
        elif outcome.over is None or spares is None or unit.own is not None:
            self._push_more(entry)
        else:
            for kind in spares.kinds:
                self._push_more(entry) if kind == "hot" else self._push_standby(entry, kind, 1)

    def _push_standby(self, entry: _QueuedCandidate, kind: str, count: int) -> None:
        """Queue the replicas of *entry* with *count* warm or cold spares of *kind*."""
        unit = with_spares(self._units[entry.order], self.size, kind, count)
        if entry.replicas > self._bounds.most_replicas(unit, self.size):
            return
        self._units.append(unit)
        reason = self._bounds.refusal(unit) if count == 1 else ""
        try:
            if not reason:
                self._push(len(self._units) - 1, entry.replicas, entry.floor_usd_per_h)
                return
        except CostError as error:
            reason = Message("no price: {error}", error)
        self._candidates.append(replace(self._impossible(unit, reason), name=unit.counted(entry.replicas)))

    def _try_each_kind(self) -> None:
        """Simulate the cheapest fleet with each other kind of spares, to compare with the cheapest of all."""
        if self._cheapest is None or self.size.spares is None:
            return
        best = self._units[self._cheapest.order]
        for kind in self.size.spares.kinds:
            while not self._with_spares_of(self._met.values(), best, kind) and (
                left := self._with_spares_of(self._heap, best, kind)
            ):
                self._heap.remove(entry := min(left))
                heapq.heapify(self._heap)
                if not self._record_known_miss(entry):
                    self._try([entry])

    def _with_spares_of(self, entries: Iterable[_QueuedCandidate], best: Unit, kind: str) -> list[_QueuedCandidate]:
        return [one for one in entries if spares_differ(self._units[one.order], best, kind)]

    def _push_more(self, entry: _QueuedCandidate) -> None:
        unit = self._units[entry.order]
        if unit.standby is None and entry.replicas < self._bounds.most_replicas(unit, self.size):
            self._push(entry.order, entry.replicas + 1)

    def _mixed(self) -> MixedSearch:
        """Return the result of the search among fleets of several kinds cheaper than the best of one kind."""
        assert self.size.mixed is not None
        known = (self._units, self._bounds, self._trials, self._best_usd_per_h)
        found = MixedSearcher(self.size, self.size.mixed, *known).run()
        for trial in found.best_by_name():
            self._add_mixed(trial)
        return found

    def _add_mixed(self, trial: MixedTrial) -> None:
        fleet, outcome = trial.fleet, trial.outcome
        reason = trial.over(self.size.budget) if outcome.meets else ""
        status: Status = "over budget" if reason else "meets" if outcome.meets else "misses"
        usd_per_h = outcome.usd_per_h if outcome.meets else None
        self._best_usd_per_h = min(self._best_usd_per_h, inf if usd_per_h is None or reason else usd_per_h)
        facts = (fleet.name, fleet.name, kinds_of(fleet), trial.replicas, self._gpus(fleet), status, usd_per_h)
        row = CandidateFleet(*facts, trial.floor_usd_per_h, reason, fleet=fleet, needs=trial.needs)
        self._candidates.append(row.with_results(outcome, self._levels))

    def _report_progress(self, simulated: int) -> None:
        below = self._best_usd_per_h * self.size.front_up_to
        queued = sum(one.floor_usd_per_h < below for one in self._heap)
        self._progress(SearchState(self._bounded, self._kinds, simulated, self._best_usd_per_h, queued))

    def _consider_all(self, members: Sequence[tuple[int, Unit]]) -> None:
        """Queue or refuse each of *members*, and report the progress after each."""
        self._kinds += len(members)
        for order, unit in members:
            self._consider(order, unit)
            self._bounded += 1
            self._report_progress(self._runner.simulated)

    def _defer(self, members: Sequence[tuple[int, Unit]]) -> None:
        """Group combinations with owned GPUs by layout; those of a layout that cannot serve are left out."""
        groups: dict[str, _OwnedWithOthers] = {}
        for order, unit in members:
            owned = unit.owned
            assert owned is not None
            if owned.name not in groups:
                groups[owned.name] = _OwnedWithOthers(self._least_with(owned), owned, [])
            groups[owned.name].members.append((order, unit))
        able = [one for one in groups.values() if not self._bounds.bounds_of(one.owned.unit).reason]
        self._deferred = sorted(able, key=lambda one: -one.least_usd_per_h)

    def _least_with(self, owned: OwnedReplicas) -> float:
        """Return the least cost of all *owned* replicas, to which others add theirs [USD/h]; 0 without a price."""
        try:
            return self._bounds.floor(owned.unit, owned.replicas, 0)[0]
        except CostError:
            return 0.0

    def _lowest_usd_per_h(self, limit_usd_per_h: float, may_bound: bool) -> float:
        """Return the lowest bound of the queue [USD/h]; infinite if it is empty, or if others come first.

        Combinations with owned GPUs are bounded, if *may_bound*, once they may be the cheapest below the limit.
        """
        while self._deferred:
            least = self._deferred[-1].least_usd_per_h
            if least >= limit_usd_per_h or (self._heap and least > self._heap[0].floor_usd_per_h):
                break
            if not may_bound:
                return inf
            self._consider_all(self._deferred.pop().members)
        return self._heap[0].floor_usd_per_h if self._heap else inf

    def _deferred_row(self, group: _OwnedWithOthers) -> CandidateFleet:
        """Return one row for all combinations of *group*, none of which is simulated."""
        owned, unit = group.owned, group.owned.unit
        name = Message("{owned} with others", owned.name)
        machine = Message("{owned} with others", unit.machine)
        choice = f"{owned.replicas}x {unit.choice} +" if unit.choice else ""
        gpus = owned.replicas * unit.gpus_per_replica
        status: Status = "not simulated"
        facts = (name, machine, unit.pool["gpu"], owned.replicas, gpus, status, None, group.least_usd_per_h)
        return CandidateFleet(*facts, choice=choice)

    def _consider(self, order: int, unit: Unit) -> None:
        """Queue *unit* with its least number of replicas, or add a row with the reason why it is impossible."""
        machine = self._bounds.bounds_of(unit)
        reason, least = self._other_product(unit) or machine.reason, machine.least_replicas
        most = self._bounds.most_replicas(unit, self.size)
        if unit.beside is not None and unit.beside.replicas > 1 and (reason or least > most):
            return  # refused with the variant that has one decode replica, which has the most room for prompts
        if unit.owned is not None and (reason or least > most):
            return  # refused with the single kinds
        if unit.elastic is not None and (least > most or self._bounds.bounds_of(unit.steady).reason):
            return  # refused with the same replicas without an autoscaler
        if not reason and least > most and unit.own is None:
            host = "" if most == self.size.max_replicas else Message("; its server has power for {count}", unit.most)
            if unit.way == OWNED:
                owned = self.size.owned[unit.pool["gpu"]]
                reason = Message(
                    "needs at least {least} replicas, and the {owned} owned GPUs are {replicas}", least, owned, most
                )
            else:
                reason = Message(
                    "needs at least {least} replicas, {limit} allowed{host}", least, self.size.max_replicas, host
                )
        if reason:
            self._candidates.append(self._impossible(unit, reason))
            return
        try:
            self._push(order, least)
        except CostError as error:
            self._candidates.append(self._impossible(unit, Message("no price: {error}", error)))

    def _other_product(self, unit: Unit) -> str:
        """Return why the scenario's own fleet *unit*, with another model, cannot be ranked; empty if it can."""
        compare, wanted = self.scenario.compare, self.scenario.model
        if unit.own is None or not wanted or (compare is not None and compare.across_models):
            return ""
        model = model_of(unit.own, self.scenario)
        if model in ("", wanted):
            return ""
        return Message(
            "serves {model} and the others {wanted}: compare: {{across_models: true}} ranks them as one product",
            model,
            wanted,
        )

    def _push(self, order: int, replicas: int, least_usd_per_h: float = 0.0) -> None:
        floor, needs = self._bounds.floor(self._units[order], replicas, self.size.spare_replicas)
        floor = max(floor, least_usd_per_h)
        self._needs[order, replicas] = needs
        entry = _QueuedCandidate(floor, order, replicas)
        if reason := over(self.size.budget, needs):
            self._candidates.append(replace(self._row(entry, "over budget"), reason=reason))
        else:
            heapq.heappush(self._heap, entry)

    def _next_batch(self, factor: float = 1.0, most: int = BATCH) -> list[_QueuedCandidate]:
        """Return the next fleets to simulate; none once nothing left can cost less than *factor* times the cheapest."""
        batch: list[_QueuedCandidate] = []
        machines: set[str] = set()
        later: list[_QueuedCandidate] = []
        limit_usd_per_h = factor * self._best_usd_per_h
        while len(batch) < most and self._lowest_usd_per_h(limit_usd_per_h, not batch) < limit_usd_per_h:
            entry = heapq.heappop(self._heap)
            machine = self._units[entry.order].machine
            if self._record_known_miss(entry):
                continue
            if (machine, entry.replicas) in self._met and entry.floor_usd_per_h >= self._best_usd_per_h:
                self._candidates.append(self._row(entry, "not simulated"))
                continue
            if machine in machines:
                later.append(entry)
            else:
                machines.add(machine)
                batch.append(entry)
        for entry in later:
            heapq.heappush(self._heap, entry)
        return batch

    def _record_known_miss(self, entry: _QueuedCandidate) -> bool:
        """Record a miss if the same machines have missed under another purchase option; return whether they have."""
        missed = self._missed.get((self._units[entry.order].machine, entry.replicas))
        if missed is not None:
            self._miss(entry, missed)
        return missed is not None

    def _try(self, batch: Sequence[_QueuedCandidate]) -> None:
        """Simulate the fleets, and those that meet once more with their spares, which are on the bill."""
        met = []
        fleets = [self._units[entry.order].fleet(entry.replicas) for entry in batch]
        for entry, outcome in zip(batch, self._trials.of(fleets), strict=True):
            if outcome.meets:
                met.append((entry, outcome))
            else:
                self._miss(entry, outcome)
        spare = self.size.spare_replicas
        if spare:
            whole = [self._units[entry.order].fleet(entry.replicas, spare) for entry, _ in met]
            met = [(entry, one) for (entry, _), one in zip(met, self._trials.of(whole), strict=True)]
        for entry, outcome in met:
            needs, usd_per_h = self._needs[entry.order, entry.replicas], outcome.usd_per_h
            if reason := over(self.size.budget, needs, usd_per_h, outcome.rounding_usd_per_h):
                row = self._row(entry, "over budget", usd_per_h).with_results(outcome, self._levels)
                self._candidates.append(replace(row, reason=reason))
                self._push_more(entry)
                continue
            if usd_per_h < self._best_usd_per_h:
                self._best_usd_per_h, self._cheapest = usd_per_h, entry
            self._met.setdefault((self._units[entry.order].machine, entry.replicas), entry)
            self._candidates.append(self._row(entry, "meets", usd_per_h).with_results(outcome, self._levels))

    def _miss(self, entry: _QueuedCandidate, outcome: Trial) -> None:
        self._candidates.append(self._row(entry, "misses").with_results(outcome, self._levels))
        self._missed[self._units[entry.order].machine, entry.replicas] = outcome
        self._push_next(entry, outcome)

    def _row(self, entry: _QueuedCandidate, status: Status, usd_per_h: float | None = None) -> CandidateFleet:
        unit = self._units[entry.order]
        fleet = unit.fleet(entry.replicas, self.size.spare_replicas)
        return CandidateFleet(
            fleet.name,
            unit.machine,
            kinds_of(fleet),
            unit.total(entry.replicas),
            self._gpus(fleet),
            status,
            usd_per_h,
            entry.floor_usd_per_h,
            fleet=fleet,
            needs=self._needs[entry.order, entry.replicas],
            choice=unit.choice,
            standby=unit.standby,
        )

    def _gpus(self, fleet: Fleet) -> int:
        return gpus_of(fleet, self._bounds.scenario, self._bounds.catalog)

    def _impossible(self, unit: Unit, reason: str) -> CandidateFleet:
        fleet = unit.fleet(unit.fewest, self.size.spare_replicas)
        known = (unit.name, unit.machine, kinds_of(fleet), 0, self._gpus(fleet))
        return CandidateFleet(*known, "impossible", None, None, reason, choice=unit.choice, standby=unit.standby)


def search(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, progress: ProgressCallback = lambda _: None
) -> Sizing:
    """Return the cheapest fleet for *scenario*, with cases stored under `out/points`.

    The scenario must satisfy `why_no_size`.
    """
    assert scenario.size is not None
    return Search(scenario, scenario.size, catalog, out, workplace, progress).run()
