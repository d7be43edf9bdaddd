"""Quantities of one unit between idle and its capacity: a few simulated loads, with straight lines between them.

With a `load_profile` the loads of its hours in the plan's first month are among them.
"""

from collections.abc import Sequence
from math import fsum
from pathlib import Path

from sim.catalogue.catalog import Catalog
from sim.cost.bill.window import together
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import Case
from sim.scenario.year import hours_of, loads_within
from sim.study.cases.execute import Progress, Workplace, do_all
from sim.study.cases.points import jobs_of
from sim.study.cases.store import StoredCase
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.horizon import at_horizon
from sim.study.fleets.capacity.search import Capacity
from sim.study.metrics.expected import rate_per_load
from sim.study.metrics.idle import idle_window
from sim.study.money.plan.plans import demand_of, usual_demand
from sim.study.money.plan.supply import units_needed
from sim.study.money.plan.unit import Quantities
from sim.study.money.price.rebill import metered

FRACTIONS = (0.1, 0.4, 0.7)
"""Simulated loads as fractions of a unit's capacity. The cases at capacity itself come from the search,
power at no load from the hardware."""


def part_loads(
    scenario: Scenario,
    catalog: Catalog,
    found: Sequence[Capacity],
    out: Path,
    workplace: Workplace,
    progress: Progress = lambda *_: None,
) -> dict[str, Quantities]:
    """Fleet -> what a unit of it does; fleets without a capacity are left out. Cases are kept under `out/points`."""
    usable = [one for one in found if 0 < one.mean < float("inf")]
    # the cases at capacity are those of the search, so all are measured over its horizon
    scenario = at_horizon(scenario, usable[0].horizon_s if usable else None)
    axis = LoadAxis.of(scenario)
    jobs = jobs_of(scenario, [case for one in usable for case in _cases(one, axis, scenario)], catalog, out)
    do_all(workplace, jobs, progress)
    result = {}
    for one in usable:
        loaded = [(float(job.case.axes[axis.label]), job.stored()) for job in jobs if job.case.fleet == one.fleet]
        stored = [*loaded, *((one.mean, each.at) for each in one.found)]
        plan = resolve(scenario, Case(one.fleet, {}, {}, 0), catalog)
        simulated = [(load, case) for load, case in stored if case is not None]
        result[one.fleet] = quantities(plan, simulated, rate_per_load(scenario))
    return result


def _cases(one: Capacity, axis: LoadAxis, scenario: Scenario) -> list[Case]:
    loads = {axis.value(load) for load in (*(f * one.mean for f in FRACTIONS), *_of_profile(one, scenario))}
    return [
        Case(one.fleet, {axis.label: load}, axis.overrides(load), each.replication)
        for load in sorted(loads)
        if load < one.mean
        for each in one.found
    ]


def _of_profile(one: Capacity, scenario: Scenario) -> list[float]:
    """Loads of one unit in the hours of a year, shared by the units that the plan's first month with demand needs."""
    hours = hours_of(scenario)
    if len(hours) < 2 or scenario.plan is None:
        return []
    plan = demand_of(scenario)
    mean = next((load for load in plan.demand.by_month(plan.months, usual_demand(scenario)) if load), 0.0)
    if not mean:
        return []
    return loads_within(hours, mean / units_needed(mean * plan.peak_to_mean, one.mean, plan.reserve_units))


def quantities(
    plan: CasePlan, simulated: Sequence[tuple[float, StoredCase]], rate_per_load: float | None
) -> Quantities:
    """Means over the replications of each load in *simulated*, (load, case), and the idle unit of *plan*.

    *rate_per_load* is requests per second per unit of load, None where the simulation determines it (a closed loop).
    """
    loads = sorted({load for load, _ in simulated})
    windows, served = [idle_window(plan)], [0.0]
    for load in loads:
        at_load = [case for at, case in simulated if at == load]
        windows.append(together([metered(case, plan) for case in at_load]))
        simulated_rps = fsum(case.metrics.traffic.requests_per_s for case in at_load) / len(at_load)
        served.append(simulated_rps if rate_per_load is None else rate_per_load * load)
    return Quantities((0.0, *loads), tuple(windows), tuple(served))
