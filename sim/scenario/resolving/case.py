"""Resolution of one case to its plan: the fleet of the case at its point of the sweep."""

from math import ceil

from sim.catalogue.catalog import Catalog
from sim.scenario.experiment import Fleet, Pool, nearest
from sim.scenario.resolving.resolve import FleetPlan, memory_refusals, resolve_fleet
from sim.scenario.resolving.resolved import CasePlan, ServicePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case, at_point
from sim.scenario.year import load_by_hour


def resolve(scenario: Scenario, case: Case, catalog: Catalog, *, advised: bool = True) -> CasePlan:
    """Return the plan of one *case* of a *scenario* that has passed `load`. Raises CostError if prices are missing.

    A fleet that does not fit is refused with changes that fit, unless *advised* is false: to search them takes longer.
    """
    at, fleet = _scenario_and_fleet(scenario, case)
    built = resolve_fleet(at, fleet, catalog, advised=advised)
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
        cost_per_request=at.cost_per_request or any(pool.services for pool in fleet.pools),
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


def refusals_of(scenario: Scenario, case: Case, catalog: Catalog) -> list[str]:
    """Return `memory_refusals` of the fleet of *case*."""
    return memory_refusals(*_scenario_and_fleet(scenario, case), catalog)


def fleet_of(scenario: Scenario, case: Case, catalog: Catalog) -> FleetPlan:
    """Return the fleet's part of the plan of *case*. Raises CostError if prices are missing."""
    return resolve_fleet(*_scenario_and_fleet(scenario, case), catalog)


def _scenario_and_fleet(scenario: Scenario, case: Case) -> tuple[Scenario, Fleet]:
    at = at_point(scenario, case.overrides)
    return at, at.fleets[[fleet.name for fleet in scenario.fleets].index(case.fleet)]


def _of_services(at: Scenario, pool: Pool) -> list[str | None]:
    """Return the models that the services of *pool* name; [None] without services."""
    return [service.model for service in at.services if service.name in pool.served] or [None]
