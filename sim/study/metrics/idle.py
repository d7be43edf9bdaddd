"""An hour in which no requests arrive: what a fleet draws and costs while it waits."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from sim.case import priced
from sim.catalogue.catalog import Catalog
from sim.cost.bill.window import Window
from sim.fleet import RunningFleet
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.study.metrics.case_metrics import CaseMetrics, measure
from sim.units import SECONDS_PER_HOUR
from sim.workload import Burst


@dataclass(frozen=True, slots=True)
class IdleHour:
    """One fleet without load, at one setting of the other axes."""

    fleet: str
    axes: dict[str, Any]
    """Without the load's."""
    metrics: CaseMetrics


def idle_hours(scenario: Scenario, catalog: Catalog, load_axis: str | None) -> Iterator[IdleHour]:
    """An hour of every fleet at every setting of the axes beside *load_axis*, metered and billed as any other.

    Fleets that cannot run have none. Electricity has the price of the hour at `starts_at`.
    """
    seen: list[tuple[str, dict[str, Any]]] = []
    for case in cases(scenario):
        others = {axis: value for axis, value in case.axes.items() if axis != load_axis}
        if (case.fleet, others) in seen:
            continue
        seen.append((case.fleet, others))
        plan = resolve(scenario, case, catalog)
        if not plan.infeasible:
            yield IdleHour(case.fleet, others, _metrics(plan))


def _metrics(plan: CasePlan) -> CaseMetrics:
    empty = replace(without_load(plan), warmup_s=0.0, horizon_s=SECONDS_PER_HOUR, drain_limit_s=SECONDS_PER_HOUR)
    return measure(priced(empty, RunningFleet(empty).run()))


def idle_window(plan: CasePlan) -> Window:
    """What the fleet of *plan* is metered without load: in an hour, or in its own window where a schedule runs it."""
    start_s, end_s = 0.0, SECONDS_PER_HOUR
    if plan.switched and plan.horizon_s is not None:
        start_s, end_s = plan.warmup_s, plan.horizon_s
    empty = replace(without_load(plan), warmup_s=start_s, horizon_s=end_s, drain_limit_s=0.0)
    return Window.of(RunningFleet(empty).run().intervals, start_s, end_s)


def without_load(plan: CasePlan) -> CasePlan:
    """*plan* with nobody who asks for anything."""
    # a burst of no requests: not a load that a scenario may ask for
    nobody = plan.workload.model_copy(update={"arrivals": Burst.model_construct(process="burst", num_requests=0)})
    return replace(plan, workload=nobody, requests_cost=False, warmup_auto=False)
