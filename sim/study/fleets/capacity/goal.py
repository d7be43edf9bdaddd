"""What a load of one fleet must keep to, over failures, too, where the scenario asks for that."""

from collections.abc import Generator
from dataclasses import dataclass, replace

from sim.catalogue.catalog import Catalog
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Fleet, Scenario
from sim.scenario.sections.precision import MOST_OF_CAPACITY, Precision
from sim.scenario.sections.slo import Slo
from sim.scenario.sweep import Case
from sim.study.cases.store import StoredCase
from sim.study.fleets.availability.over_failures import OverFailures, over_failures, pools_as_data
from sim.study.fleets.availability.states import Counts, ServingStates, serving_states


def precision_of(scenario: Scenario, relative: float) -> Precision:
    """How exactly `capacity` finds the capacities: as the scenario says, else by default, which is no more exact than
    the search of one replication, to within the fraction *relative*.
    """
    if scenario.precision is not None:
        return scenario.precision
    usual = Precision(max_replications=max(MOST_OF_CAPACITY, scenario.replications))
    return usual.model_copy(update={"relative": max(usual.relative, relative)})


@dataclass(frozen=True, slots=True)
class Goal:
    """The service level, and what there is to meet it with."""

    slo: Slo
    fleet: Fleet
    states: ServingStates | None = None
    """What the fleet has to serve with; None where failures are not asked for."""

    @classmethod
    def of(cls, scenario: Scenario, fleet: Fleet, catalog: Catalog) -> "Goal":
        """That of *fleet*; with `availability` its failures are simulated alone."""
        if scenario.slo.availability is None:
            return cls(scenario.slo, fleet)
        plan = resolve(scenario, Case(fleet.name, {}, {}, 0), catalog)
        return cls(scenario.slo, fleet, None if plan.infeasible else serving_states(plan))

    def undisturbed(self, case: Case) -> Case:
        """*case* as it is judged first: with all replicas, which never fail where failures are looked at by state."""
        return case if self.states is None else self._in_state(case, self.states.full)

    def in_all_states(
        self, case: Case, whole: StoredCase, states: ServingStates
    ) -> Generator[Case, StoredCase, OverFailures]:
        """Asks for *case* in one state after the other; *whole* is the undisturbed one."""
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
