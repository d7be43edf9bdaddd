"""How much load a fleet takes: the highest rate, or number of clients, at which it still meets its service level.

Each replication has a capacity of its own, found by bisection on its own requests (request i is the same at every
load, so within a replication the attainment hardly ever rises with load). The mean over replications and its Student
interval are the answer, so the noise of the search and that of the traffic are one and the same.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, log2, sqrt
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.scenario.schema import Scenario
from sim.scenario.sections.precision import Precision
from sim.scenario.sections.slo import Slo
from sim.scenario.sweep import Case, is_deterministic
from sim.study.cases.execute import Job, Progress, Workplace, together
from sim.study.cases.points import POINTS, jobs_of
from sim.study.cases.store import StoredCase, discard_unfinished
from sim.study.fleets.availability.over_failures import OverFailures, why_no_availability
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.goal import Goal
from sim.study.metrics.precision import replications_next
from sim.study.metrics.service_level import standing
from sim.study.metrics.statistics import half_width, mean
from sim.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from sim.workload import Profile

WIDEST = 4096.0
"""The search leaves the load at which it begins by at most this factor either way."""


@dataclass(frozen=True, slots=True)
class TriedLoad:
    """One simulated load of a search."""

    load: float
    slo_attainment: float
    overloaded: bool
    meets: bool
    percentiles: Mapping[str, float | None] = field(default_factory=dict)
    """Those that the service level names, by column of summary.csv."""
    idle: bool = False
    """Whether no request arrives in the window: such a load says nothing of the fleet."""


@dataclass(frozen=True, slots=True)
class Found:
    """One fleet's capacity in one replication."""

    fleet: str
    replication: int
    capacity: float
    """Between the highest load that met the service level and the lowest that did not, a small fraction apart; of
    neighbouring numbers of clients the former. 0 if the lowest one tried did not, inf if the highest did."""
    at: StoredCase | None
    """The case at that load."""
    simulated: int
    tried: tuple[TriedLoad, ...] = ()
    """What was simulated on the way, by load."""
    met: float = 0.0
    """The highest load tried that met the service level."""
    over: OverFailures | None = None
    """What is attained there over failures, where the service level asks for it."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """One fleet's capacity over replications."""

    fleet: str
    mean: float
    half_width: float | None
    """Of the 95 % interval; None below two replications."""
    found: tuple[Found, ...]
    reason: str = ""
    """Why there is none: the model does not fit."""
    random: bool = True
    """False where every replication would be the same; there is one then."""

    @property
    def at_least(self) -> float:
        """The capacity; where it lies beyond the search, the highest load that every replication met."""
        return self.mean if self.mean < inf else min(one.met for one in self.found)

    @property
    def requests_run_out(self) -> bool:
        """Whether the capacity is not found because at higher loads all requests arrive within the warm-up."""
        return self.mean == inf and any(load.idle for one in self.found for load in one.tried)

    @property
    def relative(self) -> float | None:
        """Half-width over mean; inf for a single replication, None where there is nothing to be precise about."""
        if self.reason or not self.random or self.mean == inf:
            return None
        if self.half_width is None:
            return inf
        return self.half_width / self.mean if self.mean else 0.0


def why_no_capacity(scenario: Scenario) -> str:
    """What the scenario lacks for a capacity, of one workload or several services, with its key; empty if nothing."""
    levels = [(f"services.{i}.", one.slo) for i, one in enumerate(scenario.services)]
    return _why_no_load(scenario, levels or [("", scenario.slo)])


def _why_no_load(scenario: Scenario, levels: Sequence[tuple[str, Slo]]) -> str:
    """*levels* are the service levels, each with what stands before its key."""
    try:
        LoadAxis.of(scenario)
    except ValueError as error:
        return f"workload.arrivals: {error}"
    for place, slo in levels:
        if place and slo.availability is not None:
            return f"{place}slo.availability: is not looked at for several services: remove it"
        if refusal := why_not_its_mean(scenario) or why_no_availability(slo, scenario.fleets, scenario.operations):
            return refusal
    missing = next((place for place, slo in levels if not slo.goals), None)
    if missing is not None:
        return f"{missing}slo: a capacity needs at least one limit: ttft_s, tpot_s or e2e_s"
    return ""


def why_not_its_mean(scenario: Scenario) -> str:
    """Why the window does not see the mean of a day, of an hourly profile or of a schedule; empty if it does."""
    if not _sees_whole_days(scenario):
        return (
            "horizon_s: with a schedule the answer would depend on the hours that are simulated: "
            "measure whole days (horizon_s less warmup_s a multiple of 86400)"
        )
    end_s = scenario.horizon_s
    for workload in [one.workload for one in scenario.services] or [scenario.workload]:
        arrivals = workload.arrivals
        if isinstance(arrivals, Profile) and end_s is not None and end_s < arrivals.length_s:
            hours = arrivals.length_s / SECONDS_PER_HOUR
            return f"horizon_s: ends before the profile of {hours:g} hours does, so its mean load is never seen"
    return ""


def _sees_whole_days(scenario: Scenario) -> bool:
    scheduled = any(pool.schedule is not None for fleet in scenario.fleets for pool in fleet.pools)
    if not scheduled or scenario.horizon_s is None:
        return not scheduled
    measured_s = scenario.horizon_s - (0.0 if scenario.warmup_s == "auto" else scenario.warmup_s)
    return scenario.warmup_s != "auto" and measured_s > 0 and measured_s % SECONDS_PER_DAY == 0


Steps = Generator[Case, StoredCase, Found]
"""A search: asks for a case to be simulated and is sent it finished."""


def capacities(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float,
    progress: Progress = lambda *_: None,
    precision: Precision | None = None,
) -> list[Capacity]:
    """The capacity of every fleet, to within the fraction *relative*; cases are kept under `out/points`.

    The scenario's replications, and with a *precision* as many more as it takes, the same number for every fleet that
    chance has a part in. *progress* counts the searches, one per fleet and replication.
    """
    axis = LoadAxis.of(scenario)
    goals = {fleet.name: Goal.of(scenario, fleet, catalog) for fleet in scenario.fleets}
    random = {fleet.name: not is_deterministic(scenario, fleet) for fleet in scenario.fleets}
    found: dict[str, list[Found]] = {name: [] for name in random}
    have, target, done, total = 0, scenario.replications, 0, 0
    try:
        while have < target:
            wanted = [(name, one) for name in random for one in range(have, target) if one == 0 or random[name]]
            searches = [_search(axis, goals[name], name, one, relative) for name, one in wanted]
            total += len(wanted)
            for one in _side_by_side(searches, scenario, catalog, out, workplace):
                found[one.fleet].append(one)
                done += 1
                progress(done, total, 0)
            known = [_capacity(name, members, random[name]) for name, members in found.items()]
            have, target = target, _next_target(precision, known, target)
    finally:
        discard_unfinished(out / POINTS)
    return known


def _next_target(precision: Precision | None, known: Sequence[Capacity], have: int) -> int:
    relatives = [one.relative for one in known]
    if precision is None or all(one is None for one in relatives):
        return have
    return replications_next(precision, relatives, have)


def _side_by_side(
    searches: Iterable[Steps], scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace
) -> Iterator[Found]:
    """What the *searches* find, in any order: each goes on as soon as the case that it waits for is there."""
    waiting: dict[Path, Steps] = {}
    found: list[Found] = []

    def go_on(search: Steps, stored: StoredCase | None) -> Iterator[Job]:
        """The next job that *search* waits for, if any."""
        while True:
            try:
                case = next(search) if stored is None else search.send(stored)
            except StopIteration as end:
                found.append(end.value)
                return
            (job,) = jobs_of(scenario, [case], catalog, out)
            stored = job.found()
            if stored is None:
                waiting[job.folder] = search
                yield job
                return

    jobs = [job for search in searches for job in go_on(search, None)]
    while True:
        for group in together(jobs):
            workplace.submit(group)
        yield from found
        found.clear()
        if not waiting:
            return
        members = workplace.finished().members
        jobs = [job for one in members for job in go_on(waiting.pop(one.folder), one.stored())]


def _search(axis: LoadAxis, goal: Goal, fleet: str, replication: int, relative: float) -> Steps:
    """Doubles or halves the load until the service level is bracketed, then bisects on the logarithm."""
    tried: dict[float, TriedLoad] = {}
    over: dict[float, OverFailures] = {}
    slo = goal.slo

    def meets(case: StoredCase) -> bool:
        found = over.get(case.axes[axis.label])
        good = standing(slo, [case.metrics]).good  # where no requests arrive, too
        return good and (found is None or found.meets)

    def attempt(load: float) -> Generator[Case, StoredCase, StoredCase]:
        value = axis.value(load)
        stored = yield goal.undisturbed(case := Case(fleet, {axis.label: value}, axis.overrides(value), replication))
        if stored.status == "ok":
            if goal.states is not None and standing(slo, [stored.metrics]).good:
                over[value] = yield from goal.in_all_states(case, stored, goal.states)
            met = stored.metrics
            named = {one.column: met[one.column] for one in slo.percentiles}
            attained, overloaded = met.traffic.slo_attainment or 0.0, met.traffic.overloaded
            tried[value] = TriedLoad(value, attained, overloaded, meets(stored), named, _idle(stored))
        return stored

    # on one grid of loads whatever the scenario's own load is, so the capacity does not depend on it
    start = 2.0 ** round(log2(axis.start)) * 2.0 ** _offset(replication)
    best = yield from attempt(start)
    if best.status != "ok":
        return Found(fleet, replication, 0.0, best, 1)
    low, high, kept = yield from _bracket(axis, start, attempt, meets, best)
    while low and high < inf and _apart(axis, low, high, relative):
        middle = sqrt(low * high)
        case = yield from attempt(middle)
        if meets(case):
            low, kept = middle, case
        else:
            high = middle
    if kept is not None and _idle(kept):
        low, kept = 0.0, None
    ordered = tuple(sorted(tried.values(), key=lambda one: one.load))
    found = over.get(kept.axes[axis.label] if kept is not None else min(over, default=0.0))
    return Found(fleet, replication, _between(axis, low, high), kept, len(tried), ordered, low, found)


def _offset(replication: int) -> float:
    """Between -1/2 and 1/2 by the golden ratio, 0 for the first: replications that all searched on the same grid of
    loads would agree by more than their traffic does.
    """
    return (replication * (sqrt(5) - 1) / 2 + 0.5) % 1 - 0.5


def _between(axis: LoadAxis, low: float, high: float) -> float:
    """The capacity, of which is known that *low* meets and *high* does not: their geometric mean, so as not to lean."""
    if not low or high == inf:
        return high if low else 0.0
    neighbours = axis.whole and axis.value(high) - axis.value(low) <= 1
    return float(axis.value(low)) if neighbours else sqrt(low * high)


def _bracket(
    axis: LoadAxis,
    start: float,
    attempt: Callable[[float], Generator[Case, StoredCase, StoredCase]],
    meets: Callable[[StoredCase], bool],
    first: StoredCase,
) -> Generator[Case, StoredCase, tuple[float, float, StoredCase | None]]:
    """(a load that meets, one that does not, the case at the former); 0 and None where none meets, inf where all do."""
    load = start
    if meets(first):
        kept = first
        while load < start * WIDEST:
            case = yield from attempt(2 * load)
            if _idle(case) and not _idle(kept):
                break  # all requests that there are arrive before the window
            if not meets(case):
                return load, 2 * load, kept
            load, kept = 2 * load, case
        return load, inf, kept
    while load > start / WIDEST and not (axis.whole and load <= 1):
        case = yield from attempt(load / 2)
        if _idle(case):
            break
        if meets(case):
            return load / 2, load, case
        load /= 2
    return 0.0, load, None


def _apart(axis: LoadAxis, low: float, high: float, relative: float) -> bool:
    """Whether there is still something between *low* and *high*."""
    if axis.whole and axis.value(high) - axis.value(low) <= 1:
        return False
    return high / low > 1 + relative


def _idle(case: StoredCase) -> bool:
    """Whether no request arrived in the window: a load that says nothing of the fleet."""
    return case.metrics.traffic.requests == 0


def _capacity(fleet: str, unordered: Sequence[Found], random: bool) -> Capacity:
    found = sorted(unordered, key=lambda one: one.replication)
    reasons = [one.at.reason for one in found if one.at is not None and one.at.status != "ok"]
    if reasons:
        return Capacity(fleet, 0.0, None, tuple(found), reasons[0], random)
    values = [one.capacity for one in found]
    return Capacity(fleet, mean(values), half_width(values), tuple(found), "", random)
