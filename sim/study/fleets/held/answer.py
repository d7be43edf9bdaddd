"""What a held run answers under other terms and limits: its points, as a new run or `price` would have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from sim.catalogue.catalog import Catalog
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.other_limits import with_limits
from sim.scenario.sweep import as_data, axes, points
from sim.study.cases.points import limits
from sim.study.cases.store import StoredCase
from sim.study.fleets.futures.settings import Dispute, stored_disputes
from sim.study.fleets.held.limits import under
from sim.study.fleets.held.prices import HeldCase, HeldRun
from sim.study.fleets.run.point import Point
from sim.study.fleets.run.summary import summarize
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.cohort import Cohort

SLO = "slo"


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer."""

    scenario: Scenario
    cases: list[StoredCase]
    points: list[Point]
    axes: list[str]
    slo: dict[str, Any]
    disputes: Sequence[Dispute] = ()
    """Settings where the run's Monte Carlo draws favour another fleet than central values; empty under other terms,
    for which nothing is drawn."""


class Answers:
    """All answers of one finished run. The last prices and the last limits are remembered: usually one of them moves.

    Raises ScenarioErrors as `load_repriced` does.
    """

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self._folder = run
        self.run = HeldRun(run, catalog)
        self._data = as_data(self.run.scenario)
        self._cohorts: list[Cohort | None] | None = None
        self._priced: tuple[str, tuple[Scenario, list[StoredCase]]] = ("", self.run.at({}))
        self._judged: tuple[str, list[CaseMetrics | None]] = ("", [one.stored.measured for one in self.run.held])

    def under(self, values: Mapping[str, Any]) -> Answer:
        """The answer with *values*, dotted path -> value: prices, terms, and limits of the service level.

        Raises ScenarioErrors where one needs a simulation, or is not allowed.
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
        return Answer(scenario, cases, summarize(cases, named, level), named, level, disputes)

    def _at_prices(self, terms: Mapping[str, Any]) -> tuple[Scenario, list[StoredCase]]:
        key = repr(sorted(terms.items()))
        if key != self._priced[0]:
            self._priced = (key, self.run.at(terms))
        return self._priced[1]

    def _at_limits(self, scenario: Scenario) -> list[CaseMetrics | None]:
        key = repr(scenario.slo)
        if key != self._judged[0]:
            if self._cohorts is None:
                self._cohorts = [_cohort(one) for one in self.run.held]
            pairs = zip(self.run.held, self._cohorts, strict=True)
            judged = [None if held is None else under(scenario.slo, one.stored.metrics, held) for one, held in pairs]
            self._judged = (key, judged)
        return self._judged[1]

    def _with_limits(self, scenario: Scenario, levels: Mapping[str, Any]) -> Scenario:
        """*scenario* with other limits. Raises ScenarioErrors."""
        if any(one.log is not None and not one.stored.requests().num_rows for one in self.run.held[:1]):
            _refuse(next(iter(levels)), "the run kept no requests: run it with requests: csv or parquet")
        if scenario.services:
            _refuse(next(iter(levels)), "the services of this run have limits of their own: run it with others")
        swept = {place_of(self._data, axis)[0] for point in points(self._data.get("sweep")) for axis in point}
        if SLO in swept:
            _refuse(next(iter(levels)), "is swept: the run has a point for each of its values")
        asked = {path.removeprefix(f"{SLO}."): value for path, value in levels.items()}
        return scenario.model_copy(update={"slo": with_limits(scenario.slo, asked)})


def _refuse(path: str, text: str) -> NoReturn:
    raise ScenarioErrors([InputError(f"--set {path}", 0, "", text)])


def _cohort(one: HeldCase) -> Cohort | None:
    """The requests of a case; None where it could not run."""
    if one.log is None:
        return None
    horizon_s = one.plan.horizon_s
    return Cohort.stored(one.stored.requests(), one.plan.window_s(one.log.end_s), horizon_s is None)


def _joined(priced: CaseMetrics, judged: CaseMetrics) -> CaseMetrics:
    """The bill of one, all else of the other."""
    return replace(judged, site=priced.site, money=priced.money, carbon=priced.carbon)
