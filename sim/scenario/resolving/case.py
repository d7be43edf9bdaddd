"""From a case to its plan: its point of the sweep, and its fleet there."""

from math import ceil
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.scenario.experiment import Fleet, Pool, nearest
from sim.scenario.resolving.resolve import FleetPlan, resolve_fleet
from sim.scenario.resolving.resolved import CasePlan, ServicePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, at_point
from sim.scenario.year import load_by_hour
from sim.workload import Workload

OF_THE_LOAD = ("workload", "seed", "slo", "horizon_s", "warmup_s", "fleets", "sweep")
"""Keys of a scenario that the hardware and the prices of one of its fleets do not depend on, but for what is said of
the workload beside its arrivals.
"""


Kept = dict[str, tuple[list[Any], FleetPlan]]
"""Name of a fleet -> what its plan was made from, and the plan."""


class Resolver:
    """Makes the plans of the cases of one *scenario* that has passed `load`. From one point of the sweep to the next
    only what the sweep changes is looked up and computed anew; from one resolver to the next, where both have the same
    *kept*, what differs between their scenarios or in *beside*: whatever else the fleets rest on.
    """

    def __init__(self, scenario: Scenario, catalog: Catalog, kept: Kept | None = None, beside: Any = None) -> None:
        self.scenario, self.catalog = scenario, catalog
        self._last: Kept = {} if kept is None else kept
        self._beside = beside
        self._positions = {fleet.name: position for position, fleet in enumerate(scenario.fleets)}

    def plan(self, case: Case) -> CasePlan:
        """The plan of *case*. Raises CostError if prices are missing."""
        at, fleet = self._at(case)
        return _plan(case, at, fleet, self._built(at, fleet))

    def fleet(self, case: Case) -> FleetPlan:
        """The part of the plan of *case* that is its fleet's. Raises CostError if prices are missing."""
        return self._built(*self._at(case))

    def _at(self, case: Case) -> tuple[Scenario, Fleet]:
        at = at_point(self.scenario, case.overrides)
        return at, at.fleets[self._positions[case.fleet]]

    def _built(self, at: Scenario, fleet: Fleet) -> FleetPlan:
        asked = [self._beside, fleet, _but_for_arrivals(at.workload)]
        asked += [getattr(at, name) for name in Scenario.model_fields if name not in OF_THE_LOAD]
        last = self._last.get(fleet.name)
        if last is None or last[0] != asked:
            last = self._last[fleet.name] = (asked, resolve_fleet(at, fleet, self.catalog))
        return last[1]


def resolve(scenario: Scenario, case: Case, catalog: Catalog) -> CasePlan:
    """The plan of one case of a scenario that has passed `load`. Raises CostError if prices are missing."""
    return Resolver(scenario, catalog).plan(case)


def _but_for_arrivals(workload: Workload) -> list[Any]:
    return [getattr(workload, name) for name in type(workload).model_fields if name != "arrivals"]


def _plan(case: Case, at: Scenario, fleet: Fleet, built: FleetPlan) -> CasePlan:
    models = {
        nearest(pool.model, service, fleet.model, at.model)
        for pool in fleet.pools
        for service in _of_services(at, pool)
    }
    return CasePlan(
        fleet=case.fleet,
        axes=case.axes,
        replication=case.replication,
        seed=at.seed,
        workload=at.workload,
        routing=fleet.routing,
        pools=built.pools,
        slo=at.slo,
        horizon_s=at.horizon_s,
        warmup_s=0.0 if at.warmup_s == "auto" else at.warmup_s,
        warmup_auto=at.warmup_s == "auto",
        drain_limit_s=at.drain_limit_s if at.drain_limit_s is not None else at.horizon_s,
        meter_interval_s=at.meter_interval_s,
        clock=built.clock,
        requests_cost=at.requests_cost or any(pool.services for pool in fleet.pools),
        load_by_hour=load_by_hour(at),
        model=", ".join(sorted(model for model in models if model)),
        costs=built.costs,
        carbon=built.carbon,
        servers=ceil(built.machines.servers),
        pue=built.pue,
        infeasible=built.infeasible,
        facts=built.facts,
        services=tuple(
            ServicePlan(one.name, one.workload, one.slo, one.priority, one.weight, one.rate_limit)
            for one in at.services
        ),
        client=at.client,
        admission=fleet.admission,
        kv_transfer=built.kv_transfer,
    )


def _of_services(at: Scenario, pool: Pool) -> list[str | None]:
    """What the services of *pool* say of their models."""
    return [service.model for service in at.services if service.name in pool.served] or [None]
