"""Finished runs loaded from disk, for repeated evaluation at other prices and under other service levels.

The points are those that a new run or `price` would have, without their files. The catalogue's hardware is looked up
and the meters are read once; a change of terms then costs one ledger per case. Another service level does not change
how requests were served.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sim.case.result import price_case
from sim.catalogue.catalog import Catalog
from sim.records import FleetLog
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import options, place_of
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import fleet_of, resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.slo import LATENCIES, Slo, with_limits
from sim.scenario.sweep import Case, as_data, at_point, axes, points
from sim.scenario.year import load_by_hour
from sim.study.execution.cases import limits
from sim.study.execution.store import StoredCase
from sim.study.metrics.batch_means import mean_half_width, percentile_half_width, rate_intervals
from sim.study.metrics.case_metrics import CaseMetrics, with_bill
from sim.study.metrics.requests import goal_shares, low_sample_percentiles, percentiles_s, tenant_shares
from sim.study.metrics.window_requests import WindowRequests
from sim.study.monte_carlo import DisputedSetting, stored_disputes
from sim.study.points import Point, summarize
from sim.study.reprice import SCENARIO_FILE, measured, moved_schedules, read_repriced, refusal, refuse_other_meters
from sim.yamlio import Document


@dataclass(frozen=True, slots=True)
class LoadedCase:
    """Case of the run, with its plan and log."""

    case: Case
    stored: StoredCase
    plan: CasePlan
    """Plan at the prices of the run."""
    log: FleetLog | None
    """Log with the meters; None where the fleet could not run."""


class LoadedRun:
    """Finished run read from its folder.

    Raises
    ------
    ScenarioErrors
        Where there is no run, or where program or catalogue have changed since.

    """

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self._file = run / SCENARIO_FILE
        self.scenario, self._finished = read_repriced(run, (), catalog)
        self.catalog = catalog
        self._data = as_data(self.scenario)
        self._plans: dict[str, CasePlan] = {}
        self._machines: dict[str, Machines] = {}

    @property
    def stored(self) -> list[StoredCase]:
        """Every case as it was run."""
        return [stored for _, stored in self._finished]

    @cached_property
    def cases(self) -> list[LoadedCase]:
        """Every case with its plan and meters, which other prices and limits need; read at the first access."""
        return [self._load_case(case, stored) for case, stored in self._finished]

    def at(self, values: Mapping[str, Any]) -> tuple[Scenario, list[StoredCase]]:
        """Return the scenario with *values* (dotted path -> value) in place of its own, and every case under it.

        Raises
        ------
        ScenarioErrors
            Where a value is not a price or a term, or is not allowed.

        """
        if not values:
            return self.scenario, self.stored
        scenario = self._checked(options(values))
        same_machines = _grouping(scenario) == _grouping(self.scenario)
        plans: dict[str, CasePlan] = {}
        priced: dict[str, tuple[FleetTerms, Machines, CasePlan]] = {}
        found = []
        for one in self.cases:
            if one.log is None:
                found.append(one.stored)
                continue
            key = _key(one.case)
            if key not in plans:
                plans[key] = self._plan(scenario, one.case, same_machines, priced)
                if not same_machines or plans[key].clock != self._plans[key].clock:
                    refuse_other_meters(plans[key], one.log.intervals)
            found.append(_billed(one, plans[key]))
        return scenario, found

    def _load_case(self, case: Case, stored: StoredCase) -> LoadedCase:
        key = _key(case)
        if key not in self._plans:
            self._plans[key] = resolve(self.scenario, case, self.catalog)
            self._machines[key] = fleet_of(self.scenario, case, self.catalog).machines
        plan = replace(self._plans[key], replication=case.replication)
        if stored.status != "ok":
            return LoadedCase(case, stored, plan, None)
        return LoadedCase(case, stored, *measured(plan, stored))

    def _checked(self, sets: Sequence[str]) -> Scenario:
        """Return the scenario with *sets*, checked at the first of its points, as prices are equal at all points."""
        wrong = [one for item in sets if (one := refusal(self._data, item)) is not None]
        if wrong:
            raise ScenarioErrors(wrong)
        first = self._data | {"sweep": points(self._data.get("sweep"))[:1]} if self._data.get("sweep") else self._data
        found = load(Document(str(self._file), first, None), sets, catalog=self.catalog)
        scenario = found.model_copy(update={"sweep": self.scenario.sweep})
        moved = [
            InputError(f"fleet {name}", 0, "site.timezone", text)
            for name, text in moved_schedules(self._data, scenario)
        ]
        if moved:
            raise ScenarioErrors(moved)
        return scenario

    def _plan(
        self,
        scenario: Scenario,
        case: Case,
        same_machines: bool,
        priced: dict[str, tuple[FleetTerms, Machines, CasePlan]],
    ) -> CasePlan:
        """Return the plan of *case* at the prices of *scenario*.

        *priced* holds the last plan of each fleet: its prices are used again at points with equal terms and machines.
        """
        if not same_machines:
            return resolve(scenario, case, self.catalog)
        key, at = _key(case), at_point(scenario, case.overrides)
        terms, machines = FleetTerms.of(at, _fleet(at, case)), self._machines[key]
        known = priced.get(case.fleet)
        if known is not None and known[:2] == (terms, machines):
            same = {name: getattr(known[2], name) for name in ("costs", "carbon", "clock", "pue")}
            return replace(self._plans[key], **same, load_by_hour=load_by_hour(at))
        plan = replace(
            self._plans[key],
            costs=terms.costs(machines, self.catalog),
            carbon=terms.carbon_plan(machines, self.catalog),
            clock=terms.clock,
            pue=terms.facility_factor,
            load_by_hour=load_by_hour(at),
        )
        priced[case.fleet] = terms, machines, plan
        return plan


def _billed(one: LoadedCase, plan: CasePlan) -> StoredCase:
    """Return *one* under the terms of *plan*, in the window that the run has measured."""
    assert one.log is not None
    result = price_case(replace(plan, warmup_s=one.plan.warmup_s, replication=one.case.replication), one.log)
    return replace(one.stored, measured=with_bill(one.stored.metrics, result))


def _key(case: Case) -> str:
    return repr((case.fleet, case.overrides))


def _fleet(scenario: Scenario, case: Case) -> Fleet:
    return next(fleet for fleet in scenario.fleets if fleet.name == case.fleet)


def _grouping(scenario: Scenario) -> list[list[tuple[bool, int]]]:
    """Return the terms that decide how many servers each fleet fills: which pools share servers."""
    return [
        [(cost is not None and cost.share, fleet.costs.index(cost)) for cost in fleet.costs]
        for fleet in scenario.fleets
    ]


OF_GOOD = ("slo_attainment", "goodput_rps", "good_output_tokens_per_s")
"""Figures of the requests within the limits, whose intervals follow the limits."""


@dataclass(frozen=True, slots=True)
class RejudgedCase(StoredCase):
    """Stored case whose requests are compared with other limits than those of its simulation."""

    slo: Slo = field(kw_only=True)

    @classmethod
    def of(cls, case: StoredCase, slo: Slo) -> "RejudgedCase":
        """Return *case* under *slo*."""
        return cls(**{one.name: getattr(case, one.name) for one in fields(case)}, slo=slo)

    def requests(self) -> pa.Table:
        """Return the table of requests, with `slo_met` under the limits of this case."""
        table = StoredCase.requests(self)
        good = WindowRequests.stored(table, (0.0, 0.0), open_end=True).good(self.slo)
        place = table.schema.get_field_index("slo_met")
        return table.set_column(place, "slo_met", pa.array(good.astype("int8"), pa.int8()))


def under(slo: Slo, metrics: CaseMetrics, cohort: WindowRequests) -> CaseMetrics:
    """Return *metrics* as under the service level *slo*, where *cohort* are the requests of the case."""
    kept = cohort.good(slo)
    good = float((kept & cohort.measured).sum())
    requests, intervals, known = metrics["requests"], metrics["batch_ci95"], metrics["latencies"]
    named = {column: value for name in LATENCIES for column, value in percentiles_s(slo, cohort, name, known).items()}
    own = tenant_shares(slo, cohort)
    return metrics.with_figures(
        goodput_rps=good / (cohort.end_s - cohort.start_s) if cohort.end_s > cohort.start_s else 0.0,
        slo_attainment=good / requests if requests else None,
        latencies=known | named,
        low_sample_percentiles=low_sample_percentiles(slo, cohort),
        slo=slo.model_dump(exclude_none=True),
        slo_shares=goal_shares(slo, cohort),
        tenant_shares=own,
        good_output_tokens=metrics["output_tokens"] * cohort.good_share_of_tokens(kept),
        batch_ci95=_intervals(slo, intervals, cohort, kept) if intervals else intervals,
    )


def _intervals(slo: Slo, before: dict[str, float], cohort: WindowRequests, good: NDArray[np.bool_]) -> dict[str, float]:
    """Return half-widths of 95 % intervals from the run alone, by column; *good* requests are within all limits."""
    rates = rate_intervals(cohort, good, OF_GOOD)
    found = {name: rates.get(name) for name in OF_GOOD}
    found["slo_attainment"] = mean_half_width(good[cohort.measured].astype(float))
    for one in slo.percentiles:
        if one.column not in before:
            values = getattr(cohort, one.latency)[cohort.members(one.latency)]
            found[one.column] = percentile_half_width(values, one.percent)
    kept = {name: half for name, half in before.items() if name not in OF_GOOD}
    return kept | {name: half for name, half in found.items() if half is not None}


SLO = "slo"


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """Points of a run under given prices and limits."""

    scenario: Scenario
    cases: list[StoredCase]
    points: list[Point]
    axes: list[str]
    slo: dict[str, Any]
    disputes: Sequence[DisputedSetting] = ()
    """Settings where the run's Monte Carlo draws favour another fleet than central values.

    Empty under other terms, for which nothing is drawn.
    """


class RunAnswers:
    """Evaluations of one finished run.

    The last prices and the last limits are cached, because usually only one of them changes.

    Raises
    ------
    ScenarioErrors
        Under the conditions of `read_repriced`.

    """

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self._folder = run
        self.run = LoadedRun(run, catalog)
        self._data = as_data(self.run.scenario)
        self._priced: tuple[str, tuple[Scenario, list[StoredCase]]] = ("", self.run.at({}))
        self._judged: tuple[str, list[CaseMetrics | None]] = ("", [one.measured for one in self.run.stored])

    def under(self, values: Mapping[str, Any]) -> RunAnswer:
        """Return the answer with *values*, dotted path -> value: prices, terms, and limits of the service level.

        Raises
        ------
        ScenarioErrors
            Where a value needs a simulation, or is not allowed.

        """
        levels = {path: value for path, value in values.items() if path.partition(".")[0] == SLO}
        terms = {path: value for path, value in values.items() if path not in levels}
        scenario, cases = self._at_prices(terms)
        if levels:
            scenario = self._with_limits(scenario, levels)
            cases = [
                one if one.measured is None or judged is None else replace(one, measured=_joined(one.measured, judged))
                for one, judged in zip(cases, self._at_limits(scenario), strict=True)
            ]
        named, level = axes(scenario), limits(scenario)
        disputes = () if values else stored_disputes(self._folder)
        found = summarize(cases, named, level, self._points) if values else self._points
        return RunAnswer(scenario, cases, found, named, level, disputes)

    @cached_property
    def _points(self) -> list[Point]:
        """Points at the prices and limits of the run."""
        scenario, cases = self.run.at({})
        return summarize(cases, axes(scenario), limits(scenario))

    def prepare(self) -> None:
        """Read what other prices and limits need, so that the first of them takes as long as the next."""
        _ = self._cohorts

    @cached_property
    def _cohorts(self) -> list[WindowRequests | None]:
        """Requests of each case; None where it could not run."""
        return [_cohort(one) for one in self.run.cases]

    def _at_prices(self, terms: Mapping[str, Any]) -> tuple[Scenario, list[StoredCase]]:
        key = repr(sorted(terms.items()))
        if key != self._priced[0]:
            self._priced = (key, self.run.at(terms))
        return self._priced[1]

    def _at_limits(self, scenario: Scenario) -> list[CaseMetrics | None]:
        key = repr(scenario.slo)
        if key != self._judged[0]:
            pairs = zip(self.run.cases, self._cohorts, strict=True)
            judged = [
                None if requests is None else under(scenario.slo, one.stored.metrics, requests)
                for one, requests in pairs
            ]
            self._judged = (key, judged)
        return self._judged[1]

    def _with_limits(self, scenario: Scenario, levels: Mapping[str, Any]) -> Scenario:
        """Return *scenario* with other limits.

        Raises
        ------
        ScenarioErrors
            Where limits cannot be changed in this run.

        """
        if any(requests is not None and not len(requests.arrived_s) for requests in self._cohorts[:1]):
            _refuse(next(iter(levels)), "the run kept no requests: run it with requests: csv or parquet")
        if scenario.services:
            _refuse(next(iter(levels)), "the services of this run have limits of their own: run it with others")
        swept = {place_of(self._data, axis)[0] for point in points(self._data.get("sweep")) for axis in point}
        if SLO in swept:
            _refuse(next(iter(levels)), "is swept: the run has a point for each of its values")
        limits_by_name = {path.removeprefix(f"{SLO}."): value for path, value in levels.items()}
        return scenario.model_copy(update={"slo": with_limits(scenario.slo, limits_by_name)})


def _refuse(path: str, text: str) -> NoReturn:
    raise ScenarioErrors([InputError(f"--set {path}", 0, "", text)])


def _cohort(one: LoadedCase) -> WindowRequests | None:
    """Return the requests of a case; None where it could not run."""
    if one.log is None:
        return None
    horizon_s = one.plan.horizon_s
    return WindowRequests.stored(one.stored.requests(), one.plan.window_s(one.log.end_s), horizon_s is None)


def _joined(priced: CaseMetrics, judged: CaseMetrics) -> CaseMetrics:
    """Return the figures of *judged* with the bill of *priced*."""
    return judged.with_bill_of(priced)
