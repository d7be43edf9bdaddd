"""Search for the capacity of a fleet: the highest load at which it still meets its service level.

Each replication has a capacity of its own, found by bisection on its own requests (request i is the same at every load,
so within a replication the attainment hardly ever rises with load). The answer is the mean over replications with its
Student interval, which covers the noise of the search and of the traffic alike.

The horizon is doubled until the capacity of a run no longer changes with it:

    1. search every replication at half the horizon and at the horizon
    2. compare the capacities of each run at both; if they differ by more than allowed, lengthen the horizon and repeat
    3. add replications at the last horizon until the interval is narrow enough

A short window ends before the queue has built up, and it meets bursts too rarely, so its capacity is too high. The
change of a run's capacity from one horizon to the next, on the same requests, shows both this bias and the noise. Where
*k* equal parts make up the longer window, and its capacity is the mean of theirs, the change from the first part to the
whole has the variance (k - 1) sigma^2, with sigma^2 the variance of the longer run's capacity. A bias that falls with
1/horizon changes by (k - 1) times its remainder.

References
----------
W. Whitt, "The efficiency of one long run versus independent replications in steady-state simulation", Management
Science 37(6), 1991 (few long runs rather than many runs that are short against the relaxation time).

"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil, inf, isfinite, log, log2, log10, sqrt
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.precision import FIRST_REPLICATIONS, MOST_OF_CAPACITY, Precision
from sim.scenario.slo import HIGHEST_PERCENT, Slo
from sim.scenario.sweep import Case, is_deterministic
from sim.study.availability import (
    Counts,
    OverFailures,
    ServingStates,
    over_failures,
    pools_as_data,
    serving_states,
    why_no_availability,
)
from sim.study.execution.cases import CaseJob, Progress, Workplace, discard_partial, group_by_quantities, jobs_of
from sim.study.execution.precision import replications_next
from sim.study.execution.store import StoredCase
from sim.study.load_axis import LoadAxis, has_schedule, why_not_its_mean
from sim.study.metrics.service_level import attainment_of, unanswered_by_ending
from sim.study.metrics.statistics import half_width, mean


def precision_of(scenario: Scenario, relative: float) -> Precision:
    """Return the precision of `capacity`: that of the scenario, else the default, which is no finer than *relative*.

    *relative* is the width of the last bracket in the search of one replication, as a fraction of the capacity.
    """
    if scenario.precision is not None:
        return scenario.precision
    usual = Precision(max_replications=max(MOST_OF_CAPACITY, scenario.replications))
    return usual.model_copy(update={"relative": max(usual.relative, relative)})


@dataclass(frozen=True, slots=True)
class CapacityGoal:
    """Fleet and the service level that it has to meet."""

    slo: Slo
    fleet: Fleet
    states: ServingStates | None = None
    """States of the fleet under failures; None where failures are not part of the service level."""

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, catalog: Catalog) -> "CapacityGoal":
        """Return the goal of *fleet*, with its states under failures where `slo.availability` is set."""
        if scenario.slo.availability is None:
            return cls(scenario.slo, fleet)
        plan = resolve(scenario, Case(fleet.name, {}, {}, 0), catalog)
        return cls(scenario.slo, fleet, None if plan.infeasible else serving_states(plan))

    def undisturbed(self, case: Case) -> Case:
        """Return *case* for the first verdict: with all replicas, and without failures if the goal has states."""
        return case if self.states is None else self._in_state(case, self.states.full)

    def in_all_states(
        self, case: Case, whole: StoredCase, states: ServingStates
    ) -> Generator[Case, StoredCase, OverFailures]:
        """Yield *case* in one state after the other, and return the attainment over failures.

        Parameters
        ----------
        case
            Case at one load.
        whole
            Finished undisturbed case.
        states
            States of the fleet under failures.

        """
        search = over_failures(states, self.slo.availability or 0.0)
        try:
            counts = next(search)
            while True:
                stored = whole
                if counts != states.full:
                    stored = yield self._in_state(case, counts)
                counts = search.send([stored.metrics] if stored.status == "ok" else [])
        except StopIteration as end:
            found: OverFailures = end.value
            return found

    def _in_state(self, case: Case, counts: Counts) -> Case:
        changed = case.overrides | {f"fleets.{self.fleet.name}.pools": pools_as_data(self.fleet, counts)}
        return replace(case, axes=case.axes | {"serving": sum(counts)}, overrides=changed)


MOST_REQUESTS = 20_000
"""Requests in the window of one run at its capacity beyond which no horizon is lengthened."""
LEAST_IN_TAIL = 25
"""Least number of requests beyond the percentile, or outside the SLO, that a window must have room for."""
WARMUP = 0.1
"""Least share of a lengthened horizon that is used as warm-up [1]."""
SINGLE_RUN = 0.7
"""Largest change of a run's capacity with its horizon, as a fraction of the requested precision.

Five runs that vary by more would miss the precision, and further replications would have the same, too short, horizon.
"""
FINEST, COARSEST = 0.05, 0.1
"""Bounds of the precision by which a horizon is judged.

A finer or coarser precision changes nothing, because the remaining bias grows with the square of the change.
"""
LONGEST_STRIDE = 8
"""Largest factor by which a horizon is lengthened at once."""


@dataclass(frozen=True, slots=True)
class HorizonCheck:
    """Change of the capacity of one run of a fleet with its horizon, as fractions of the capacity."""

    horizon_s: float
    change: float
    """Standard deviation of the capacity of one run of this horizon, its bias included; inf where it is not known."""
    bias: float
    """Change of the capacity up to an endless horizon, extrapolated from the last lengthening."""
    allowed: float
    """Largest `change` with which the capacity is accepted [1]."""
    requests: float | None
    """Requests in the window at capacity, mean over the runs; None where no load meets the SLO."""
    least_requests: int
    """Number of requests that the window needs to show a share of the SLO's size."""

    @property
    def accepted(self) -> bool:
        """True if a longer horizon would give the same capacity, within the capacity's interval."""
        enough = self.requests is None or self.requests >= self.least_requests
        return self.change <= self.allowed and enough

    @property
    def _short_by(self) -> float:
        """Ratio of the requests that the window needs to those in it [1]."""
        return self.least_requests / self.requests if self.requests else float(LONGEST_STRIDE)

    @property
    def stride(self) -> int:
        """Factor by which to lengthen the horizon, a power of two: noise falls with the square root of the horizon."""
        factor = self._short_by
        if isfinite(self.change) and self.allowed:
            factor = max(factor, (self.change / self.allowed) ** 2)
        return int(min(LONGEST_STRIDE, max(2, 2 ** ceil(log2(max(factor, 1.0)) - 0.5))))

    @property
    def needed_s(self) -> float:
        """Horizon at which the capacity would be accepted, to two digits [s]."""
        changes = (self.change / self.allowed) ** 2 if isfinite(self.change) and self.allowed else 0.0
        longer_s = self.horizon_s * max(2.0, changes, self._short_by)
        digits = 10 ** (int(log10(longer_s)) - 1)
        return float(ceil(longer_s / digits) * digits)


HorizonRuns = tuple[float, Sequence[float]]
"""(horizon [s], capacity of every run)."""


def horizon_check(
    runs: Sequence[HorizonRuns], requests: float | None, levels: Sequence[Slo], tolerance: float, random: bool
) -> HorizonCheck:
    """Check the last and longest of the horizons in *runs*.

    The capacity is accepted if that of one run changes by at most the fraction *tolerance*; with *random* events, by at
    most SINGLE_RUN times a bounded *tolerance*, and by less below four runs. Without random events the change is bias
    alone.

    Parameters
    ----------
    runs
        (horizon [s], capacity of every run), in ascending order of the horizon.
    requests
        Requests in the window of the last horizon at capacity; None where unknown.
    levels
        SLOs of the services.
    tolerance
        Accepted change of the capacity [1].
    random
        Whether runs depend on chance.

    """
    (horizon_s, last), changes = runs[-1], []
    for (shorter_s, before), (longer_s, after) in list(pairwise(runs))[-2:]:
        parts = longer_s / shorter_s
        scale = longer_s / horizon_s / (parts - 1)
        changes.append([scale * _change(one, other) ** 2 for one, other in zip(before, after, strict=False)])
    squares = [square for level in changes for square in level]
    few = random and len(squares) < 2
    change = inf if few or not squares else sqrt(sum(squares) / len(squares))
    bias = inf
    if changes:
        (shorter_s, before), (longer_s, after) = runs[-2:]
        moved = [_change(one, other) for one, other in zip(before, after, strict=False)]
        bias = abs(sum(moved) / len(moved)) / (longer_s / shorter_s - 1) if all(map(isfinite, moved)) else inf
    allowed = tolerance
    if random:
        allowed = SINGLE_RUN * min(max(tolerance, FINEST), COARSEST) * min(1.0, sqrt(len(last)) / 2)
    share = max((goal.share for level in levels for goal in level.goals), default=0.0)
    least = round(LEAST_IN_TAIL / (1 - min(share, HIGHEST_PERCENT / 100))) if random else 0
    return HorizonCheck(horizon_s, change, bias, allowed, requests, least)


def _change(before: float, after: float) -> float:
    """Return log(*after* / *before*): 0 where both are 0 or both infinite, inf where one is."""
    if before == after:
        return 0.0
    if not before or not after or inf in (before, after):
        return inf
    return log(after / before)


def can_be_lengthened(scenario: Scenario) -> bool:
    """Return whether a longer horizon shows the same load: not for a trace, a burst, a profile or a schedule."""
    workload, scheduled = scenario.workload, has_schedule(scenario)
    return scenario.horizon_s is not None and workload.stationary and workload.needs_horizon and not scheduled


def at_horizon(scenario: Scenario, horizon_s: float | None) -> Scenario:
    """Return *scenario* with another horizon, and a warm-up in proportion to it."""
    if horizon_s is None or horizon_s == scenario.horizon_s:
        return scenario
    assert scenario.horizon_s is not None
    warmup = scenario.warmup_s
    if warmup != "auto":
        share = warmup / scenario.horizon_s
        warmup = horizon_s * (share if horizon_s < scenario.horizon_s else max(share, WARMUP))
    return scenario.model_copy(update={"horizon_s": horizon_s, "warmup_s": warmup})


def longest_s(scenario: Scenario, precision: Precision | None, horizon_s: float, requests: float) -> float:
    """Return the longest allowed horizon [s], given the *requests* in the window of *horizon_s* at capacity."""
    assert scenario.horizon_s is not None
    if precision is not None and precision.max_horizon_s is not None:
        return precision.max_horizon_s
    return max(scenario.horizon_s, horizon_s * MOST_REQUESTS / max(requests, 1.0))


WIDEST = 4096.0
"""Largest factor between the first load of a search and any other, up or down."""
STEP = 2.0
"""Factor between the first loads of a search."""
NEAR_STEP = 1.15
"""Factor between the first loads of a search that starts at the capacity of a shorter horizon."""


@dataclass(frozen=True, slots=True)
class SimulatedLoad:
    """Load simulated during a search, with its verdict."""

    load: float
    slo_attainment: float
    overloaded: bool
    meets: bool
    percentiles: Mapping[str, float | None] = field(default_factory=dict)
    """Percentiles that the service level names, by column of summary.csv."""
    idle: bool = False
    """True if no request arrives in the window: such a load shows nothing of the fleet."""


@dataclass(frozen=True, slots=True)
class ReplicationCapacity:
    """Capacity of one fleet in one replication."""

    fleet: str
    replication: int
    capacity: float
    """Load between the highest that met the service level and the lowest that did not, a small fraction apart.

    Of neighbouring numbers of clients, the lower. 0 if no simulated load met the service level, inf if all did.
    """
    at: StoredCase | None
    """Simulated case at the load `met`, or a case that cannot run; None if no load met the service level."""
    simulated: int
    """Number of simulated loads."""
    loads: tuple[SimulatedLoad, ...] = ()
    """Loads simulated during the search, in ascending order."""
    met: float = 0.0
    """Highest simulated load that met the service level."""
    over: OverFailures | None = None
    """Attainment over failures at the load `met`, if the service level asks for it."""


@dataclass(frozen=True, slots=True)
class FleetCapacity:
    """Capacity of one fleet over replications."""

    fleet: str
    mean: float
    half_width: float | None
    """Half of the 95 % interval, plus the bias left by the finite horizon; None below three replications."""
    found: tuple[ReplicationCapacity, ...]
    reason: str = ""
    """Reason why the fleet cannot run; empty if it can."""
    random: bool = True
    """True if replications differ; without chance there is a single one."""
    check: HorizonCheck | None = None
    """Check of the horizon; None where a longer horizon would not show more of the same load."""
    horizon_s: float | None = None
    """Horizon of the runs [s]; None where the scenario has none."""

    @property
    def accepted(self) -> bool:
        """True if the horizon is long enough, or was not checked."""
        return self.check is None or self.check.accepted

    @property
    def at_least(self) -> float:
        """Capacity, or the highest load that every replication met where the capacity is beyond the search."""
        return self.mean if self.mean < inf else min(one.met for one in self.found)

    @property
    def unanswered(self) -> dict[str, float]:
        """Shares of requests that end without an answer at capacity, by ending [1]; all 0 where none was simulated."""
        return unanswered_by_ending([one.at.metrics for one in self.found if one.at and one.at.measured])

    @property
    def requests_run_out(self) -> bool:
        """True if the capacity is not found because at higher loads all requests arrive within the warm-up."""
        return self.mean == inf and any(load.idle for one in self.found for load in one.loads)

    @property
    def relative(self) -> float | None:
        """Half-width over mean; inf below three replications, None where there is no capacity or no chance."""
        if self.reason or not self.random or self.mean == inf:
            return None
        if self.half_width is None:
            return inf
        return self.half_width / self.mean if self.mean else 0.0


def why_no_capacity(scenario: Scenario) -> str:
    """Return the reason why the scenario has no capacity, with the key to change; empty if it has one."""
    levels = [(f"services.{i}.", one.slo) for i, one in enumerate(scenario.services)] or [("", scenario.slo)]
    try:
        LoadAxis.of(scenario)
    except ValueError as error:
        return Message("workload.arrivals: {reason}", error)
    for place, slo in levels:
        if place and slo.availability is not None:
            return Message("{place}slo.availability: is not supported for several services: remove it", place)
        if refusal := why_not_its_mean(scenario) or why_no_availability(slo, scenario.fleets, scenario.operations):
            return refusal
    missing = next((place for place, slo in levels if not slo.goals), None)
    if missing is not None:
        return Message("{missing}slo: a capacity needs at least one limit: ttft_s, tpot_s or e2e_s", missing)
    return ""


FoundByFleet = dict[str, list[ReplicationCapacity]]
"""Fleet -> capacity in every replication, in order."""
CapacitySearch = Generator[Case, StoredCase, ReplicationCapacity]
"""Search that yields a case to simulate and is sent the finished case."""


def capacities(
    scenario: Scenario,
    catalog: Catalog,
    out: Path,
    workplace: Workplace,
    relative: float,
    progress: Progress = lambda *_: None,
    precision: Precision | None = None,
) -> list[FleetCapacity]:
    """Return the capacity of every fleet, to within the fraction *relative*.

    The horizon is lengthened, for all fleets alike, until no capacity changes with it, or to the longest one allowed.
    The scenario's replications are searched, and with a *precision* as many more as it needs. Every fleet has the same
    number; a fleet without random events has one. Cases are stored under `out/points`.

    Parameters
    ----------
    scenario, catalog
        Scenario with a service level, and its catalogue.
    out
        Results folder.
    workplace
        Executor of the simulations.
    relative
        Width of the last bracket of a search, as a fraction of the capacity.
    progress
        Callback with the number of searches: one per fleet, replication and horizon.
    precision
        Precision of the mean over replications; None: no further replications.

    """
    search = _Search(scenario, catalog, out, workplace, relative, progress, precision)
    try:
        found, checks = search.until_accepted()
        while True:
            known = [search.capacity(name, members, checks[name]) for name, members in found.items()]
            have = max(len(members) for members in found.values())
            target = _next_target(precision, known, have)
            if target <= have:
                return known
            further = search.run(search.at, range(have, target), found)
            found = {name: [*members, *further.get(name, ())] for name, members in found.items()}
    finally:
        discard_partial(workplace, out)


def _next_target(precision: Precision | None, known: Sequence[FleetCapacity], have: int) -> int:
    # further replications do not improve a capacity whose horizon is too short
    relatives = [one.relative if one.accepted else None for one in known]
    if precision is None or all(one is None for one in relatives):
        return have
    return replications_next(precision, relatives, have)


class _Search:
    """Search for the capacities of all fleets of a scenario, at one horizon after the other."""

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        relative: float,
        progress: Progress,
        precision: Precision | None,
    ) -> None:
        self.at = scenario
        """Scenario at the horizon searched last."""
        self._scenario, self._catalog, self._out, self._workplace = scenario, catalog, out, workplace
        self._relative, self._progress, self._precision = relative, progress, precision
        # a bracket wider than the change with the horizon would hide that change, or look like one
        self._bracket = min(relative, FINEST) if can_be_lengthened(scenario) else relative
        self._axis = LoadAxis.of(scenario)
        self._goals = {fleet.name: CapacityGoal.of(scenario, fleet, catalog) for fleet in scenario.fleets}
        self._random = {fleet.name: not is_deterministic(scenario, fleet) for fleet in scenario.fleets}
        self._done = self._total = 0

    def run(
        self, at: Scenario, replications: Iterable[int], near: Mapping[str, Sequence[ReplicationCapacity]]
    ) -> FoundByFleet:
        """Search in *replications* of *at*; the search of a fleet begins at the capacities found before, *near*."""
        self.at = at
        members = [(name, one) for one in replications for name in self._random if one == 0 or self._random[name]]
        starts = {name: _median([one.capacity for one in found]) for name, found in near.items()}
        searches = [
            _search(self._axis, self._goals[name], name, one, self._bracket, starts.get(name)) for name, one in members
        ]
        self._total += len(members)
        self._progress(self._done, self._total, 0)  # the searches at a longer horizon are not done yet
        found: FoundByFleet = {}
        for one in _side_by_side(searches, at, self._catalog, self._out, self._workplace):
            found.setdefault(one.fleet, []).append(one)
            self._done += 1
            self._progress(self._done, self._total, 0)
        # workers finish in any order; the answer is in the order of the scenario
        return {name: sorted(found[name], key=lambda one: one.replication) for name in self._random if name in found}

    def until_accepted(self) -> tuple[FoundByFleet, Mapping[str, HorizonCheck | None]]:
        """Lengthen the horizon until the capacities are accepted; return those of the last horizon with its checks."""
        scenario = self._scenario
        count = scenario.replications if self._precision is None else max(scenario.replications, FIRST_REPLICATIONS)
        own_s = scenario.horizon_s
        if own_s is None or not can_be_lengthened(scenario):
            return self.run(scenario, range(count), {}), dict.fromkeys(self._random)
        at, found = at_horizon(scenario, own_s / 2), FoundByFleet()
        runs: dict[str, list[HorizonRuns]] = {name: [] for name in self._random}
        while True:
            found = self.run(at, range(count), found)
            horizon_s = at.horizon_s or own_s
            for name, members in found.items():
                runs[name].append((horizon_s, [one.capacity for one in members]))
            if horizon_s < own_s:
                at = scenario
                continue
            checks = {name: self._check(name, runs[name], found[name]) for name in found}
            longer_s = self._longer_s(horizon_s, [one for one in checks.values() if not one.accepted])
            if longer_s is None:
                return found, checks
            at = at_horizon(scenario, longer_s)

    def _check(self, fleet: str, runs: Sequence[HorizonRuns], found: Sequence[ReplicationCapacity]) -> HorizonCheck:
        precision = self._precision
        tolerance = precision.relative if precision else max(Precision().relative, self._relative)
        requests = [one.at.metrics["requests"] for one in found if one.at is not None and one.at.status == "ok"]
        levels = [one.slo for one in self._scenario.services] or [self._scenario.slo]
        random = self._random[fleet]
        return horizon_check(
            runs, mean(requests) if requests else None, levels, tolerance if random else self._relative, random
        )

    def _longer_s(self, horizon_s: float, short: Sequence[HorizonCheck]) -> float | None:
        """Return the next horizon to search [s]; None where no check is *short*, or a longer horizon is not allowed."""
        if not short:
            return None
        most = max(one.requests or 0.0 for one in short)
        factor = longest_s(self._scenario, self._precision, horizon_s, most) / horizon_s
        return horizon_s * min(max(one.stride for one in short), 2 ** int(log2(factor))) if factor >= 2 else None

    def capacity(self, fleet: str, found: Sequence[ReplicationCapacity], check: HorizonCheck | None) -> FleetCapacity:
        """Return mean and interval of the capacity over the replications *found*."""
        reasons = [one.at.reason for one in found if one.at is not None and one.at.status != "ok"]
        random, horizon_s = self._random[fleet], self.at.horizon_s
        if reasons:
            return FleetCapacity(fleet, 0.0, None, tuple(found), reasons[0], random, None, horizon_s)
        values = [one.capacity for one in found]
        half = half_width(values)
        if half is not None and check is not None and isfinite(check.bias):
            half += check.bias * mean(values)
        return FleetCapacity(fleet, mean(values), half, tuple(found), "", random, check, horizon_s)


def _median(capacities: Sequence[float]) -> float | None:
    """Return the median, on a log scale, of the *capacities* that are neither 0 nor infinite; None without any."""
    known = sorted(one for one in capacities if 0 < one < inf)
    return sqrt(known[(len(known) - 1) // 2] * known[len(known) // 2]) if known else None


def _side_by_side(
    searches: Iterable[CapacitySearch], scenario: Scenario, catalog: Catalog, out: Path, workplace: Workplace
) -> Iterator[ReplicationCapacity]:
    """Yield the results of the *searches*, in any order. Each search continues as soon as its case is simulated."""
    waiting: dict[Path, CapacitySearch] = {}
    found: list[ReplicationCapacity] = []

    def go_on(search: CapacitySearch, stored: StoredCase | None) -> Iterator[CaseJob]:
        """Yield the next job that *search* waits for, if any."""
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
        for group in group_by_quantities(jobs):
            workplace.submit(group)
        yield from found
        found.clear()
        if not waiting:
            return
        members = workplace.finished().members
        jobs = [job for one in members for job in go_on(waiting.pop(one.folder), one.stored())]


def _search(
    axis: LoadAxis, goal: CapacityGoal, fleet: str, replication: int, relative: float, near: float | None = None
) -> CapacitySearch:
    """Double or halve the load until the capacity is bracketed, then bisect on the logarithm of the load.

    The first steps are small where the capacity is expected *near* a load.
    """
    simulated: dict[float, SimulatedLoad] = {}
    over: dict[float, OverFailures] = {}
    slo = goal.slo

    def meets(case: StoredCase) -> bool:
        found = over.get(case.axes[axis.label])
        good = attainment_of(slo, [case.metrics]).good  # also true where no requests arrive
        return good and (found is None or found.meets)

    def attempt(load: float) -> Generator[Case, StoredCase, StoredCase]:
        value = axis.value(load)
        case = Case(fleet, {axis.label: value}, axis.overrides(value), replication)
        stored = yield goal.undisturbed(case)
        if stored.status == "ok":
            if goal.states is not None and attainment_of(slo, [stored.metrics]).good:
                over[value] = yield from goal.in_all_states(case, stored, goal.states)
            met = stored.metrics
            named = {one.column: met[one.column] for one in slo.percentiles}
            attained, overloaded = met["slo_attainment"] or 0.0, met["overloaded"]
            simulated[value] = SimulatedLoad(value, attained, overloaded, meets(stored), named, _idle(stored))
        return stored

    # the grid of loads does not depend on the scenario's own load, so neither does the capacity
    step = STEP if near is None else NEAR_STEP
    start = (near or STEP ** round(log2(axis.start))) * step ** _offset(replication)
    best = yield from attempt(start)
    if best.status != "ok":
        return ReplicationCapacity(fleet, replication, 0.0, best, 1)
    low, high, kept = yield from _bracket(axis, start, step, attempt, meets, best)
    while low and high < inf and _is_wider(axis, low, high, relative):
        middle = sqrt(low * high)
        case = yield from attempt(middle)
        if meets(case):
            low, kept = middle, case
        else:
            high = middle
    if kept is not None and _idle(kept):
        low, kept = 0.0, None
    ordered = tuple(sorted(simulated.values(), key=lambda one: one.load))
    found = over.get(kept.axes[axis.label] if kept is not None else min(over, default=0.0))
    return ReplicationCapacity(
        fleet, replication, _bracketed_capacity(axis, low, high), kept, len(simulated), ordered, low, found
    )


def _offset(replication: int) -> float:
    """Return the offset of a replication's grid of loads [steps of the grid], between -1/2 and 1/2.

    Multiples of the golden ratio spread the grids: on one grid, capacities would agree more than the traffic does.
    """
    return (replication * (sqrt(5) - 1) / 2 + 0.5) % 1 - 0.5


def _bracketed_capacity(axis: LoadAxis, low: float, high: float) -> float:
    """Return the capacity where *low* meets the service level and *high* does not: their geometric mean."""
    if not low or high == inf:
        return high if low else 0.0
    neighbours = axis.whole and axis.value(high) - axis.value(low) <= 1
    return float(axis.value(low)) if neighbours else sqrt(low * high)


def _bracket(
    axis: LoadAxis,
    start: float,
    step: float,
    attempt: Callable[[float], Generator[Case, StoredCase, StoredCase]],
    meets: Callable[[StoredCase], bool],
    first: StoredCase,
) -> Generator[Case, StoredCase, tuple[float, float, StoredCase | None]]:
    """Return a load that meets the goal, one that does not, and the case at the former.

    0 and None stand for no load that meets it, inf for no load that does not.
    """
    load = start
    if meets(first):
        kept = first
        while load < start * WIDEST:
            case = yield from attempt(step * load)
            if _idle(case) and not _idle(kept):
                break  # all requests of the workload arrive before the window
            if not meets(case):
                return load, step * load, kept
            load, kept, step = step * load, case, min(step**2, STEP)
        return load, inf, kept
    while load > start / WIDEST and not (axis.whole and load <= 1):
        case = yield from attempt(load / step)
        if _idle(case):
            break
        if meets(case):
            return load / step, load, case
        load, step = load / step, min(step**2, STEP)
    return 0.0, load, None


def _is_wider(axis: LoadAxis, low: float, high: float, relative: float) -> bool:
    """Return whether *low* and *high* are further apart than *relative*, or than one client."""
    if axis.whole and axis.value(high) - axis.value(low) <= 1:
        return False
    return high / low > 1 + relative


def _idle(case: StoredCase) -> bool:
    """Return whether no request arrived in the window: such a load shows nothing of the fleet."""
    return bool(case.metrics["requests"] == 0)
