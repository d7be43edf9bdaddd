"""The cheapest fleet that meets the service level: best first over a floor of the cost, simulated until it is proved.

A fleet never costs less than its charges that run with the clock and its idle power. Fleets are simulated in the order
of that floor; one that misses makes room for the next larger one of its kind. When the lowest floor left is not below
the cheapest fleet found, nothing that is left can be cheaper (best-first branch and bound: Lawler and Wood,
"Branch-and-Bound Methods: A Survey", Operations Research 14, 1966). More replicas of a kind are taken to serve no
worse.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Literal

from sim.catalog.catalog import Catalog
from sim.cost import CostError
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.size import Size
from sim.study.capacity import why_not_its_mean
from sim.study.execute import Workplace
from sim.study.size_mixed import MixedSearch, MixedSearcher, MixedTrial
from sim.study.size_runner import Runner
from sim.study.size_trials import Trials
from sim.study.size_units import Prospects, Unit, units

TOGETHER = 4
"""Fleets that are tried at a time, however many workers there are: the answer must not depend on them."""
TOGETHER_BEYOND = 16
"""The same once the cheapest is known: what is tried then would be tried anyway."""

Told = Callable[[int, float], None]
"""Told (cases simulated, USD per hour of the cheapest fleet so far; infinite before any)."""
Status = Literal["meets", "misses", "not simulated", "impossible"]


@dataclass(frozen=True, slots=True)
class Tried:
    """One fleet and what is known of it."""

    name: str
    machine: str
    """The same for fleets that differ only in number and in how they are paid for."""
    gpu: str
    """Catalogue ids of its GPUs."""
    replicas: int
    """Those that carry the load, spares left out; 0 where none could."""
    gpus: int
    status: Status
    usd_per_h: float | None
    """Mean over replications; None where it was not simulated to the end."""
    floor_usd_per_h: float | None
    """What it costs at least; None without prices."""
    reason: str = ""
    """Why it is impossible."""
    overloaded: bool = False
    metrics: dict[str, float | None] | None = None
    """Means over what was simulated; None for a fleet that was not."""
    fleet: Fleet | None = None
    half_widths: Mapping[str, float] = field(default_factory=dict)
    """Halves of 95 % intervals of what the service level is about, for a fleet that meets it."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer of a search."""

    winner: Tried | None
    tried: tuple[Tried, ...]
    """All candidates: those that meet, those that miss, those not simulated, each by cost; then the impossible."""
    simulated: int
    """Cases that this call has simulated; others were found on disk."""
    mixed: MixedSearch | None = None
    """What came of fleets of several kinds, where they are asked for."""


@dataclass(frozen=True, slots=True, order=True)
class _Entry:
    """A fleet that waits for its turn."""

    floor_usd_per_h: float
    order: int
    replicas: int


def why_no_size(scenario: Scenario) -> str:
    """What the scenario lacks for a search, with its key; empty if nothing."""
    if scenario.size is None:
        return "size: is missing: it names the GPUs, layouts and prices to choose from"
    if not scenario.slo.goals:
        return "slo: a fleet is sized to at least one limit: ttft_s, tpot_s or e2e_s"
    return why_not_its_mean(scenario)


class Search:
    """One search, from its bounds to its proof."""

    def __init__(
        self,
        scenario: Scenario,
        size: Size,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        progress: Told = lambda *_: None,
    ) -> None:
        # a search of mixed fleets reads of each request how it fared
        kept = {"requests": "csv"} if size.mixed is not None and scenario.requests == "none" else {}
        self.scenario = scenario.model_copy(update={"sweep": None, "size": None, **kept})
        self.size, self.catalog, self._progress = size, catalog, progress
        self._runner = Runner(self.scenario, catalog, out, workplace, self._tell)
        self._trials = Trials(self.scenario, self._runner)
        self._prospects = Prospects(self.scenario, catalog)
        self._units = list(units(scenario, size))
        self._heap: list[_Entry] = []
        self._tried: list[Tried] = []
        self._best_usd_per_h = inf
        self._missed: dict[tuple[str, int], Tried] = {}
        """By machine and replicas: another way to pay for the same machines serves no better."""
        self._met: dict[tuple[str, int], _Entry] = {}
        """Likewise, under the way to pay that was the first to be tried."""

    def run(self) -> Sizing:
        """Simulates what is not on disk yet."""
        for order, unit in enumerate(self._units):
            self._consider(order, unit)
        while batch := self._next_batch():
            self._try(batch)
        has_rate = self._prospects.demand.rate_rps is not None
        mixed = self._mixed() if self.size.mixed is not None and has_rate else None
        self._extend_front()
        while self._heap:
            entry = heapq.heappop(self._heap)
            if not self._known_to_miss(entry):
                self._tried.append(self._row(entry, "not simulated"))
        ranked = sorted(self._tried, key=_rank)
        winner = next((one for one in ranked if one.status == "meets"), None)
        return Sizing(winner, tuple(ranked), self._runner.simulated, mixed)

    def _extend_front(self) -> None:
        """Simulates dearer fleets that may be faster: what less latency costs."""
        for entry in list(self._met.values()):
            self._push_next(entry)
        while batch := self._next_batch(self.size.front_up_to, TOGETHER_BEYOND):
            before = set(self._met)
            self._try(batch)
            for key in self._met.keys() - before:
                self._push_next(self._met[key])

    def _push_next(self, entry: _Entry) -> None:
        """One replica more."""
        if self._units[entry.order].own is None and entry.replicas < self.size.max_replicas:
            self._push(entry.order, entry.replicas + 1)

    def _mixed(self) -> MixedSearch:
        """Fleets of several kinds that may be cheaper than the best of one kind."""
        assert self.size.mixed is not None
        known = (self._units, self._prospects, self._trials, self._best_usd_per_h)
        found = MixedSearcher(self.size, self.size.mixed, *known).run()
        for trial in found.best_by_name():
            self._add_mixed(trial)
        return found

    def _add_mixed(self, trial: MixedTrial) -> None:
        fleet, outcome = trial.fleet, trial.outcome
        status: Status = "meets" if outcome.meets else "misses"
        usd_per_h = outcome.usd_per_h if outcome.meets else None
        self._best_usd_per_h = min(self._best_usd_per_h, inf if usd_per_h is None else usd_per_h)
        facts = (fleet.name, fleet.name, _kinds(fleet), trial.replicas, _gpus(fleet), status, usd_per_h)
        overloaded = not outcome.meets and outcome.overloaded
        known = (trial.floor_usd_per_h, "", overloaded, outcome.metrics, fleet, outcome.half_widths)
        self._tried.append(Tried(*facts, *known))

    def _tell(self, simulated: int) -> None:
        self._progress(simulated, self._best_usd_per_h)

    def _consider(self, order: int, unit: Unit) -> None:
        """Puts *unit* into the heap with as many replicas as it needs at least, or says why not."""
        machine = self._prospects.look(unit)
        reason, least = machine.reason, machine.least_replicas
        if not reason and least > self.size.max_replicas and unit.own is None:
            reason = f"needs at least {least} replicas, {self.size.max_replicas} allowed"
        if reason:
            self._tried.append(self._refused(unit, reason))
            return
        try:
            self._push(order, least)
        except CostError as error:
            self._tried.append(self._refused(unit, f"no price: {error}"))

    def _push(self, order: int, replicas: int) -> None:
        floor = self._prospects.usd_per_h(self._units[order], replicas, self.size.spare_replicas)
        heapq.heappush(self._heap, _Entry(floor, order, replicas))

    def _next_batch(self, factor: float = 1.0, most: int = TOGETHER) -> list[_Entry]:
        """The next fleets to simulate; none once nothing left can cost less than *factor* times the cheapest."""
        batch: list[_Entry] = []
        machines: set[str] = set()
        later: list[_Entry] = []
        while self._heap and len(batch) < most and self._heap[0].floor_usd_per_h < factor * self._best_usd_per_h:
            entry = heapq.heappop(self._heap)
            machine = self._units[entry.order].machine
            if self._known_to_miss(entry):
                continue
            if (machine, entry.replicas) in self._met and entry.floor_usd_per_h >= self._best_usd_per_h:
                self._tried.append(self._row(entry, "not simulated"))
                continue
            if machine in machines:
                later.append(entry)
            else:
                machines.add(machine)
                batch.append(entry)
        for entry in later:
            heapq.heappush(self._heap, entry)
        return batch

    def _known_to_miss(self, entry: _Entry) -> bool:
        """Whether the same machines have missed under another way to pay; then more of them wait for their turn."""
        missed = self._missed.get((self._units[entry.order].machine, entry.replicas))
        if missed is not None:
            self._miss(entry, missed.metrics, missed.overloaded)
        return missed is not None

    def _try(self, batch: Sequence[_Entry]) -> None:
        """Simulates the fleets, and those that meet with their spares, which are on the bill."""
        met = []
        fleets = [self._units[entry.order].fleet(entry.replicas) for entry in batch]
        for entry, outcome in zip(batch, self._trials.of(fleets), strict=True):
            if outcome.meets:
                met.append((entry, outcome))
            else:
                self._miss(entry, outcome.metrics, outcome.overloaded)
        spare = self.size.spare_replicas
        if spare:
            whole = [self._units[entry.order].fleet(entry.replicas, spare) for entry, _ in met]
            met = [(entry, one) for (entry, _), one in zip(met, self._trials.of(whole), strict=True)]
        for entry, outcome in met:
            self._best_usd_per_h = min(self._best_usd_per_h, outcome.usd_per_h)
            self._met.setdefault((self._units[entry.order].machine, entry.replicas), entry)
            row = self._row(entry, "meets", outcome.usd_per_h, outcome.metrics)
            self._tried.append(replace(row, half_widths=outcome.half_widths))

    def _miss(self, entry: _Entry, metrics: dict[str, float | None] | None, overloaded: bool) -> None:
        unit = self._units[entry.order]
        row = self._row(entry, "misses", None, metrics, overloaded)
        self._tried.append(row)
        self._missed[unit.machine, entry.replicas] = row
        self._push_next(entry)

    def _row(
        self,
        entry: _Entry,
        status: Status,
        usd_per_h: float | None = None,
        metrics: dict[str, float | None] | None = None,
        overloaded: bool = False,
    ) -> Tried:
        unit = self._units[entry.order]
        fleet = unit.fleet(entry.replicas, self.size.spare_replicas)
        return Tried(
            fleet.name,
            unit.machine,
            _kinds(fleet),
            entry.replicas,
            _gpus(fleet),
            status,
            usd_per_h,
            entry.floor_usd_per_h,
            "",
            overloaded,
            metrics,
            fleet,
        )

    def _refused(self, unit: Unit, reason: str) -> Tried:
        fleet = unit.fleet(1, self.size.spare_replicas)
        return Tried(unit.name, unit.machine, _kinds(fleet), 0, _gpus(fleet), "impossible", None, None, reason)


def search(
    scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace, progress: Told = lambda *_: None
) -> Sizing:
    """The cheapest fleet for *scenario*, which `why_no_size` has let pass; cases are kept under `out/points`."""
    assert scenario.size is not None
    return Search(scenario, scenario.size, catalog, out, workplace, progress).run()


def _gpus(fleet: Fleet) -> int:
    sizes = (
        pool.replicas * pool.tensor_parallel_size * pool.pipeline_parallel_size * pool.data_parallel_size
        for pool in fleet.pools
    )
    return sum(sizes)


def _kinds(fleet: Fleet) -> str:
    return " and ".join(dict.fromkeys(pool.gpu for pool in fleet.pools if pool.gpu))


def _rank(one: Tried) -> tuple[int, float, str]:
    order: dict[Status, int] = {"meets": 0, "misses": 1, "not simulated": 2, "impossible": 3}
    return order[one.status], one.usd_per_h or one.floor_usd_per_h or 0.0, one.name
