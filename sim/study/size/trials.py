"""Trials of candidates by simulation: whether fleets meet the service level.

Every candidate is simulated with one replication first; those that may meet the service level are simulated with all
replications. Cases are read from disk, or simulated a few at a time while the search runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.size import Size
from sim.scenario.slo import Slo
from sim.scenario.sweep import Case, is_deterministic
from sim.scenario.year import year_plan
from sim.study.availability import (
    Counts,
    OverFailures,
    ServingStates,
    in_state,
    over_failures,
    run_state_search,
    serving_states,
)
from sim.study.execution.cases import CaseJob, Workplace, do_missing, jobs_of
from sim.study.execution.durable import POINTS
from sim.study.execution.store import StoredCase, discard_unfinished
from sim.study.load_axis import LoadAxis
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.service_level import ServiceLevelAttainment, attainment_of, slack
from sim.study.metrics.statistics import mean
from sim.study.rebill import Rebilling, usd_per_h_of_year
from sim.units import NANO_PER_USD

Overrides = Mapping[str, Any]
"""Dotted path -> value in place of the scenario's."""


class Runner:
    """Runner of cases of one fleet each, which are read from disk or simulated.

    Parameters
    ----------
    progress
        Callback with the number of simulated cases.

    """

    def __init__(
        self,
        scenario: Scenario,
        catalog: Catalog,
        out: Path,
        workplace: Workplace,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._scenario, self._catalog, self._out, self._workplace = scenario, catalog, out, workplace
        self._progress = progress
        self.simulated = 0

    def run(
        self, wanted: Sequence[tuple[Fleet, int]], axes: Mapping[str, Any] | None = None, point: Overrides | None = None
    ) -> list[list[StoredCase]]:
        """Return the first replications of each fleet, at the scenario's load or at the *point* of these *axes*.

        A deterministic fleet has a single replication.
        """
        groups = [self._jobs(fleet, count, dict(axes or {}), dict(point or {})) for fleet, count in wanted]
        try:
            for _ in do_missing(self._workplace, [job for jobs in groups for job in jobs]):
                self.simulated += 1
                self._progress(self.simulated)
        finally:
            discard_unfinished(self._out / POINTS)
        return [[job.stored() for job in jobs] for jobs in groups]

    def _jobs(self, fleet: Fleet, count: int, axes: dict[str, Any], point: dict[str, Any]) -> list[CaseJob]:
        scenario = self._scenario.model_copy(update={"fleets": (fleet,)})
        count = 1 if is_deterministic(scenario, fleet) else count
        cases = [Case(fleet.name, axes, point, replication) for replication in range(count)]
        return jobs_of(scenario, cases, self._catalog, self._out)


SCREEN_MARGIN = 0.15
"""Shortfall of attainment in a first replication beyond which a fleet is judged to miss.

Bursts make replications differ by about this much, and few fleets miss by less than it.
"""
METRICS = ("requests", "slo_attainment", "ttft_s_p95", "tpot_s_p95", "e2e_s_p95", "gpu_busy_fraction", "batch_mean")
"""Metrics that a trial averages, beside the percentiles that the service level names."""
OVER_FAILURES = "share_over_failures"
"""Name of the metric with the share of requests within the limits, averaged over states of failure."""


@dataclass(frozen=True, slots=True)
class ServiceTrial:
    """Result of a trial for one of several services."""

    good: bool
    """True if the service meets its limits and its queue is bounded."""
    overloaded: bool
    metrics: dict[str, float | None]
    """Means of the main metrics over the replications."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of simulating one fleet, with one replication or with all."""

    slo: Slo
    cases: tuple[StoredCase, ...]
    meets: bool
    over: OverFailures | None = None
    """Attainment over failures, where the service level asks for availability."""
    year_usd_per_h: float | None = None
    """Mean cost over the hours of the load profile [USD/h].

    None without a profile, and where the first replication has shown that the fleet misses.
    """

    @property
    def service_level(self) -> ServiceLevelAttainment:
        """Verdict on the service level, as in `gpufleet run`."""
        return attainment_of(self.slo, [case.metrics for case in self.cases])

    @property
    def slack(self) -> float:
        """Smallest margin within the service level [1]; see `service_level.slack`."""
        return slack(self.slo, [case.metrics for case in self.cases])

    @property
    def metrics(self) -> dict[str, float | None]:
        """Means of the main metrics; None where a case lacks a metric."""
        found = _means(self.slo, [case.metrics for case in self.cases])
        if self.over is not None:
            found |= {OVER_FAILURES: self.over.share, f"{OVER_FAILURES}_ci95": self.over.half_width}
        return found

    def services(self, levels: Mapping[str, Slo]) -> dict[str, ServiceTrial]:
        """Return the result for each service by name, under its own service level in *levels*."""
        found = {}
        for name, slo in levels.items():
            own = [case.metrics.services[name] for case in self.cases]
            attained = attainment_of(slo, own)
            found[name] = ServiceTrial(attained.good and attained.met is True, attained.overloaded, _means(slo, own))
        return found

    @property
    def usd_per_h(self) -> float:
        """Mean cost over the hours of the load profile, else of the simulated load at the mean prices [USD/h]."""
        if self.year_usd_per_h is not None:
            return self.year_usd_per_h
        costs = [(case.metrics.usd_of_a_mean_year or 0.0) / case.metrics["window_h"] for case in self.cases]
        return mean(costs)

    @property
    def output_tokens_per_s(self) -> float | None:
        """Mean rate of output tokens over the replications [tokens/s]; None for services without tokens."""
        rates = [case.metrics["output_tokens_per_s"] for case in self.cases]
        return None if None in rates else mean(rates)

    @property
    def rounding_usd_per_h(self) -> float:
        """Largest rounding error of `usd_per_h` [USD/h]; a ledger rounds each component once a window."""
        metrics = [case.metrics for case in self.cases]
        counts = [len(one["component_usd_per_h"] or ()) / one["window_h"] for one in metrics]
        return 0.5 / NANO_PER_USD * mean(counts)


def _means(slo: Slo, cases: Sequence[CaseMetrics]) -> dict[str, float | None]:
    """Return the means of the main metrics and those that *slo* names; None where a case lacks a metric."""
    found: dict[str, float | None] = {}
    for name in (*METRICS, *(one.column for one in slo.percentiles)):
        values = [case[name] for case in cases]
        known = [value for value in values if value is not None]
        found[name] = mean(known) if len(known) == len(values) else None
    return found


def with_failures(fleet: Fleet, size: Size) -> Fleet:
    """Return *fleet* with the failures of *size* in the pools that state neither failures nor spot."""
    if size.failures is None:
        return fleet
    start = {} if size.cold_start is None else {"cold_start": size.cold_start}
    disturbed = {"failures": size.failures, **start}
    pools = [pool if pool.failures or pool.spot else pool.model_copy(update=disturbed) for pool in fleet.pools]
    return fleet.model_copy(update={"pools": tuple(pools)})


class Trials:
    """Trials of fleets under one scenario; fleets that state no failures have those of *size*."""

    def __init__(self, scenario: Scenario, runner: Runner, catalog: Catalog, size: Size) -> None:
        self._scenario, self._runner, self._catalog = scenario, runner, catalog
        self._size = size
        self.slo = scenario.slo
        self._states: dict[str, ServingStates] = {}
        """Name of the fleet -> its states of failure."""
        self._served: dict[str, Sequence[StoredCase]] = {}
        """Fleet that serves in a state, as JSON -> its simulated cases."""

    def of(self, fleets: Sequence[Fleet]) -> list[Trial]:
        """Return the trial of each of *fleets*, in order; fleets that clearly miss have one replication."""
        first = self._runner.run([(self._undisturbed(fleet), 1) for fleet in fleets])
        hopeful = [place for place, cases in enumerate(first) if self._may_meet(cases)]
        whole = dict(zip(hopeful, self.in_full([fleets[place] for place in hopeful]), strict=True))
        return [whole.get(place, Trial(self.slo, tuple(cases), False)) for place, cases in enumerate(first)]

    def in_full(self, fleets: Sequence[Fleet]) -> list[Trial]:
        """Return the trial of each of *fleets* in all replications, in order."""
        every = self._runner.run([(self._undisturbed(fleet), self._scenario.replications) for fleet in fleets])
        return [self._judge(fleet, cases) for fleet, cases in zip(fleets, every, strict=True)]

    def _judge(self, fleet: Fleet, cases: Sequence[StoredCase]) -> Trial:
        meets, over = self.meets(cases), None
        if meets and self.slo.availability is not None:
            over = self._over_failures(fleet, cases, self.slo.availability)
            meets = over.meets
        return Trial(self.slo, tuple(cases), meets, over, self._year_usd_per_h(fleet))

    def _year_usd_per_h(self, fleet: Fleet) -> float | None:
        """Return the cost of *fleet* over the hours of the load profile, each at its own load and price [USD/h]."""
        year = year_plan(self._scenario)
        fleet = self._undisturbed(fleet)
        if year is None or not fleet.is_priced:
            return None
        scenario = self._scenario.model_copy(update={"fleets": (fleet,)})
        billing = {0.0: Rebilling(scenario, self._catalog, [(Case(fleet.name, {}, {}, 0), None)])}
        axis, count = LoadAxis.of(scenario), self._scenario.replications
        for load in year.simulated:
            axes, point = {axis.label: load}, axis.overrides(axis.value(load))
            (stored,) = self._runner.run([(fleet, count)], axes, point)
            cases = [Case(fleet.name, axes, point, one.replication) for one in stored]
            billing[load] = Rebilling(scenario, self._catalog, list(zip(cases, stored, strict=True)))
        return usd_per_h_of_year(year.hours, year.mean, billing)

    def _undisturbed(self, fleet: Fleet) -> Fleet:
        """Return *fleet* with all replicas in service: states of failure are judged afterwards."""
        if self.slo.availability is None or not any(pool.failures or pool.spot for pool in fleet.pools):
            return fleet
        return in_state(fleet, self._states_of(fleet).full)

    def _over_failures(self, fleet: Fleet, cases: Sequence[StoredCase], wanted: float) -> OverFailures:
        states, count = self._states_of(fleet), self._scenario.replications

        def metrics_in(counts: Counts) -> list[CaseMetrics]:
            found = cases if counts == states.full else self._in_state(in_state(fleet, counts), count)
            return [case.metrics for case in found if case.status == "ok"]

        return run_state_search(over_failures(states, wanted), metrics_in)

    def _in_state(self, fleet: Fleet, count: int) -> Sequence[StoredCase]:
        """Return the cases of *fleet*, reduced to a state of failure; fleets that differ only in spares share them."""
        alike = fleet.model_copy(update={"name": ""}).model_dump_json()
        if alike not in self._served:
            self._served[alike] = self._runner.run([(fleet, count)])[0]
        return self._served[alike]

    def _states_of(self, fleet: Fleet) -> ServingStates:
        if fleet.name not in self._states:
            scenario = self._scenario.model_copy(update={"fleets": (with_failures(fleet, self._size),)})
            plan = resolve(scenario, Case(fleet.name, {}, {}, 0), self._catalog)
            self._states[fleet.name] = serving_states(plan)
        return self._states[fleet.name]

    def _may_meet(self, cases: Sequence[StoredCase]) -> bool:
        return cases[0].status == "ok" and slack(self.slo, [cases[0].metrics]) >= -SCREEN_MARGIN

    def meets(self, cases: Sequence[StoredCase]) -> bool:
        """Return whether the service level is met, as in `gpufleet run`; a fleet without requests does not meet it."""
        found = attainment_of(self.slo, [case.metrics for case in cases])
        return found.good and found.met is True
