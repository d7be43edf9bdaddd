"""A finished run held in memory, billed at other prices as often as asked: what `price` computes, without its files.

The catalogue's hardware is looked up and the meters are read once. A change of terms then costs a ledger a case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.case import priced
from sim.catalogue.catalog import Catalog
from sim.records import FleetLog
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.scenario.reading.given import options
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import Resolver, resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.resolving.terms import FleetTerms, Machines
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sweep import Case, as_data, at_point, points
from sim.scenario.year import load_by_hour
from sim.study.cases.store import StoredCase
from sim.study.money.price.billed_again import with_bill
from sim.study.money.price.reprice import (
    SCENARIO_FILE,
    measured,
    moved_schedules,
    read_repriced,
    refusal,
    refuse_other_meters,
)
from sim.yamlio import Document


@dataclass(frozen=True, slots=True)
class HeldCase:
    """One case of the run."""

    case: Case
    stored: StoredCase
    plan: CasePlan
    """At the prices of the run."""
    log: FleetLog | None
    """None where the fleet could not run."""


class HeldRun:
    """A finished run. Raises ScenarioErrors where there is none, or where program or catalogue have changed since."""

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self._file = run / SCENARIO_FILE
        self.scenario, finished = read_repriced(run, (), catalog)
        self.catalog = catalog
        self._data = as_data(self.scenario)
        self._plans: dict[str, CasePlan] = {}
        self._machines: dict[str, Machines] = {}
        self._resolver = Resolver(self.scenario, catalog)
        self.held = [self._hold(case, stored) for case, stored in finished]

    def at(self, values: Mapping[str, Any]) -> tuple[Scenario, list[StoredCase]]:
        """The scenario with *values* (dotted path -> value) in place of its own, and every case under it.

        Raises ScenarioErrors where a value is no matter of money, or is not allowed.
        """
        if not values:
            return self.scenario, [one.stored for one in self.held]
        scenario = self._checked(options(values))
        same_machines = _grouping(scenario) == _grouping(self.scenario)
        plans: dict[str, CasePlan] = {}
        found = []
        for one in self.held:
            if one.log is None:
                found.append(one.stored)
                continue
            key = _key(one.case)
            if key not in plans:
                plans[key] = self._plan(scenario, one.case, same_machines)
                if not same_machines or plans[key].clock != self._plans[key].clock:
                    refuse_other_meters(plans[key], one.log.intervals)
            found.append(_billed(one, plans[key]))
        return scenario, found

    def _hold(self, case: Case, stored: StoredCase) -> HeldCase:
        key = _key(case)
        if key not in self._plans:
            self._plans[key] = self._resolver.plan(case)
            self._machines[key] = self._resolver.fleet(case).machines
        plan = replace(self._plans[key], replication=case.replication)
        if stored.status != "ok":
            return HeldCase(case, stored, plan, None)
        return HeldCase(case, stored, *measured(plan, stored))

    def _checked(self, sets: Sequence[str]) -> Scenario:
        """The scenario with *sets*, checked at the first of its points: the others differ from it in no price."""
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

    def _plan(self, scenario: Scenario, case: Case, same_machines: bool) -> CasePlan:
        if not same_machines:
            return resolve(scenario, case, self.catalog)
        key, at = _key(case), at_point(scenario, case.overrides)
        terms, machines = FleetTerms.of(at, _fleet(at, case)), self._machines[key]
        return replace(
            self._plans[key],
            costs=terms.costs(machines, self.catalog),
            carbon=terms.carbon_plan(machines, self.catalog),
            clock=terms.clock,
            pue=terms.facility_factor,
            load_by_hour=load_by_hour(at),
        )


def _billed(one: HeldCase, plan: CasePlan) -> StoredCase:
    """*one* under the terms of *plan*, in the window that the run has measured."""
    assert one.log is not None
    result = priced(replace(plan, warmup_s=one.plan.warmup_s, replication=one.case.replication), one.log)
    return replace(one.stored, measured=with_bill(one.stored.metrics, result))


def _key(case: Case) -> str:
    return repr((case.fleet, case.overrides))


def _fleet(scenario: Scenario, case: Case) -> Fleet:
    return next(fleet for fleet in scenario.fleets if fleet.name == case.fleet)


def _grouping(scenario: Scenario) -> list[list[tuple[bool, int]]]:
    """What of its costs decides how many servers each fleet fills: who shares servers, and with whom."""
    return [
        [(cost is not None and cost.share, fleet.costs.index(cost)) for cost in fleet.costs]
        for fleet in scenario.fleets
    ]
