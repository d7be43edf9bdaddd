"""One job on one fleet: its plan, what meters would show, and the bill."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.catalogue.catalog import Catalog
from sim.cost import Ledger
from sim.power import PoolPower
from sim.records import Interval
from sim.scenario.job.plan import JobPlan, resolve_job
from sim.scenario.job.schema import JobScenario
from sim.scenario.sweep import at_point, axes_at, axis_labels, points

STATE = "training"
"""Of the GPUs from the first step to the last."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What a job came to."""

    plan: JobPlan
    intervals: tuple[Interval, ...]
    """Meter readings; none where it cannot be done."""
    ledger: Ledger | None
    """None without a `cost`."""


def job_outcomes(scenario: JobScenario, catalog: Catalog) -> list[JobOutcome]:
    """Every fleet at every point of the sweep, fleet by fleet."""
    found = points(scenario.sweep)
    labels = axis_labels(path for point in found for path in point)
    at = [at_point(scenario, point) for point in found]
    return [
        outcome(resolve_job(here, here.fleets[i], axes_at(labels, point, here), catalog))
        for i in range(len(scenario.fleets))
        for point, here in zip(found, at, strict=True)
    ]


def outcome(plan: JobPlan) -> JobOutcome:
    """Meters and bill of *plan*."""
    if plan.infeasible:
        return JobOutcome(plan, (), None)
    intervals = tuple(_intervals(plan))
    ledger = None if plan.pool.costs is None else Ledger.of(intervals, plan.pool.costs, 0.0, plan.run.makespan.total_s)
    return JobOutcome(plan, intervals, ledger)


def _intervals(plan: JobPlan) -> Iterator[Interval]:
    """Meter readings: at the end, and at every full hour of the clock, where there is one.

    When failures come is not known: saves, lost work and restarts are spread evenly over the job.
    """
    start_s, total_s = 0.0, plan.run.makespan.total_s
    while start_s < total_s:
        end_s = total_s if plan.pool.clock is None else min(total_s, plan.pool.clock.next_hour_s(start_s))
        yield _interval(plan, start_s, end_s)
        start_s = end_s


def _interval(plan: JobPlan, start_s: float, end_s: float) -> Interval:
    time, duration_s = plan.run.makespan, end_s - start_s
    part = duration_s / time.total_s
    saving_s, lost_s, waiting_s = part * time.saving_s, part * time.lost_s, part * time.restarting_s
    found = Interval(
        pool=plan.pool.name,
        server=plan.pool.server,
        replica=0,
        state=STATE,
        start_s=start_s,
        end_s=end_s,
        gpu_s=plan.pool.gpus * duration_s,
        busy_s=max(0.0, duration_s - waiting_s),
        prefill_s=saving_s,
        recompute_s=lost_s,
    )
    if plan.pool.power is not None:
        computing_s = part * time.training_s + lost_s
        found.peak_w = plan.pool.power.peak_w
        found.gpu_energy_j = plan.pool.power.gpu_energy_j(duration_s, plan.run.load * computing_s)
        found.server_energy_j = plan.pool.power.server_energy_j(duration_s, found.gpu_energy_j)
        found.prefill_energy_j = _wall_j(plan.pool.power, saving_s, 0.0)
        found.recompute_energy_j = _wall_j(plan.pool.power, lost_s, plan.run.load * lost_s)
        found.idle_energy_j = _wall_j(plan.pool.power, waiting_s, 0.0)
    return found


def _wall_j(power: PoolPower, duration_s: float, load_s: float) -> float:
    return power.server_energy_j(duration_s, power.gpu_energy_j(duration_s, load_s))
