"""An hour in which no requests arrive: what a fleet draws and costs while it waits."""

from dataclasses import replace

from sim.case import priced
from sim.cost.bill.window import Window
from sim.fleet import RunningFleet
from sim.scenario.resolving.resolved import CasePlan
from sim.study.metrics.case_metrics import CaseMetrics, measure
from sim.units import SECONDS_PER_HOUR
from sim.workload import Burst


def idle_metrics(plan: CasePlan) -> CaseMetrics:
    """Return the figures of the fleet of *plan* without load, metered and billed as any other case.

    Electricity has the price of the hour at `starts_at`.
    """
    empty = without_load(plan)
    return measure(priced(empty, RunningFleet(empty).run()))


def idle_window(plan: CasePlan) -> Window:
    """Return what the fleet of *plan* is metered without load."""
    empty = without_load(plan)
    assert empty.horizon_s is not None
    return Window.of(RunningFleet(empty).run().intervals, empty.warmup_s, empty.horizon_s)


def without_load(plan: CasePlan) -> CasePlan:
    """Return *plan* without requests, for an hour; for its own window where replicas are switched on and off."""
    window_s = (0.0, SECONDS_PER_HOUR)
    if plan.switched and plan.horizon_s is not None:
        window_s = (plan.warmup_s, plan.horizon_s)
    # a burst of no requests: not a load that a scenario may ask for
    nothing = plan.workload.model_copy(update={"arrivals": Burst.model_construct(process="burst", num_requests=0)})
    return replace(
        plan,
        workload=nothing,
        requests_cost=False,
        warmup_auto=False,
        warmup_s=window_s[0],
        horizon_s=window_s[1],
        drain_limit_s=0.0,
    )
