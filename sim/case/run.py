"""Simulation and pricing of one case: a plan is resolved, a fleet is run, a ledger is computed."""

from dataclasses import replace

from sim.case.result import CaseResult, price_case
from sim.catalogue.catalog import Catalog
from sim.cost.metering import MeteredWindow
from sim.fleet.fleet import RunningFleet
from sim.fleet.run import Share, alone, run_fleet
from sim.fleet.warmup import warmup_of
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.units import SECONDS_PER_HOUR
from sim.workload import Burst

PRICE_FIELDS = ("fleet", "axes", "costs", "carbon", "pue", "load_by_hour", "facts")
"""Fields of a plan with names, prices and price inputs, which the simulation does not use."""


def run_case(scenario: Scenario, case: Case, catalog: Catalog) -> CaseResult | CasePlan:
    """Simulate and price *case*.

    Parameters
    ----------
    scenario
        Scenario that the case belongs to.
    case
        Fleet, sweep point and replication.
    catalog
        Catalogue that resolves ids to sourced values.

    Returns
    -------
    CaseResult or CasePlan
        Result of the case, or the plan alone where the fleet cannot run (see `plan.infeasible`).

    """
    return run_plan(resolve(scenario, case, catalog))  # ids become sourced values


def run_plan(plan: CasePlan, share: Share = alone) -> CaseResult | CasePlan:
    """Simulate and price the case of *plan*, after a separate run that determines an automatic warm-up.

    Parameters
    ----------
    plan
        Plan of the case.
    share
        Context in which other processes may take part in the simulation.

    Returns
    -------
    CaseResult or CasePlan
        Result of the case, or *plan* itself where the fleet cannot run.

    """
    if plan.infeasible:
        return plan
    if plan.warmup_auto:
        plan = with_warmup(plan)  # a separate run determines the warm-up
    log = run_fleet(plan, share)  # requests and intervals: quantities without prices
    return price_case(plan, log)  # costs: quantity x sourced price


def reprice(plan: CasePlan, other: CasePlan, result: CaseResult) -> CaseResult | None:
    """Price the case of *plan* with the log of *other*, if both differ in prices only.

    Parameters
    ----------
    plan
        Plan to price.
    other
        Plan that has been simulated.
    result
        Result of *other*.

    Returns
    -------
    CaseResult or None
        Result of *plan*; None where its quantities differ from those of *other*.

    """
    if not _same_quantities(plan, other):
        return None
    found = result.plan
    return price_case(replace(plan, warmup_s=found.warmup_s, warmup_steady=found.warmup_steady), result.log)


def _same_quantities(one: CasePlan, other: CasePlan) -> bool:
    """Return whether two plans, resolved from inputs that differ in prices only, give the same meter readings."""
    if len(one.pools) != len(other.pools):
        return False
    pools = tuple(_with_step_times_of(*pair) for pair in zip(one.pools, other.pools, strict=True))
    return replace(one, pools=pools, **{name: getattr(other, name) for name in PRICE_FIELDS}) == other


def _with_step_times_of(pool: PoolPlan, other: PoolPlan) -> PoolPlan:
    """Return *pool* with the step times of *other*, which do not depend on prices and compare by identity."""
    if len(pool.models) != len(other.models):
        return pool
    models = tuple(_with_step_times_of(*pair) for pair in zip(pool.models, other.models, strict=True))
    return replace(pool, steptime=other.steptime, models=models)


def with_warmup(plan: CasePlan) -> CasePlan:
    """Return *plan* with the warm-up [s] that MSER-5 estimates from a simulation without warm-up."""
    log = RunningFleet(replace(plan, warmup_s=0.0, cost_per_request=False)).run()
    warmup_s, steady = warmup_of(log, plan.workload.closed_loop() is not None)
    return replace(plan, warmup_s=warmup_s, warmup_steady=steady)


def idle_result(plan: CasePlan) -> CaseResult:
    """Return the result of the fleet of *plan* without load, metered and priced as any other case.

    Electricity has the price of the hour at `starts_at`.
    """
    empty = without_load(plan)
    return price_case(empty, RunningFleet(empty).run())


def idle_window(plan: CasePlan) -> MeteredWindow:
    """Return the metered quantities of the fleet of *plan* without load."""
    empty = without_load(plan)
    assert empty.horizon_s is not None
    return MeteredWindow.of(RunningFleet(empty).run().intervals, empty.warmup_s, empty.horizon_s)


def without_load(plan: CasePlan) -> CasePlan:
    """Return *plan* without requests: over one hour, or over its own window if replicas start and stop."""
    window_s = (0.0, SECONDS_PER_HOUR)
    if plan.switched and plan.horizon_s is not None:
        window_s = (plan.warmup_s, plan.horizon_s)
    # a burst of zero requests, which the schema of scenarios does not allow
    nothing = {"arrivals": Burst.model_construct(process="burst", num_requests=0)}
    return replace(
        plan,
        workload=plan.workload.model_copy(update=nothing),
        services=tuple(replace(one, workload=one.workload.model_copy(update=nothing)) for one in plan.services),
        cost_per_request=False,
        warmup_auto=False,
        warmup_s=window_s[0],
        horizon_s=window_s[1],
        drain_limit_s=0.0,
    )
