"""A column of summary.csv."""

from collections.abc import Mapping
from typing import Any

from sim.scenario.claims.figures import Run
from sim.scenario.reading.errors import did_you_mean
from sim.scenario.schema import Scenario
from sim.study.cases.execute import do_all
from sim.study.cases.points import jobs_of, limits
from sim.study.cases.store import StoredCase
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.job import of_job
from sim.study.claims.kinds.registry import finds
from sim.study.fleets.run.summary import summarize
from sim.study.metrics.statistics import FEWEST


def simulated(fleet: str, values: Mapping[str, Any], asked: Asked) -> tuple[Scenario, list[StoredCase]]:
    """The scenario with *values* and the finished cases of *fleet*, one a replication. Raises NoFigure."""
    scenario, cases = asked.cases(fleet, values)
    jobs = jobs_of(scenario, cases, asked.catalog, asked.out)
    do_all(asked.cores, jobs, lambda *_: None)
    return scenario, [job.stored() for job in jobs]


@finds(Run)
def run(spec: Run, asked: Asked) -> Figure:
    """Over the scenario's replications; the same cases are simulated once for all figures."""
    if asked.has_job:
        return of_job(spec.fleet, spec.metric, asked, spec.set)
    scenario, stored = simulated(spec.fleet, spec.set, asked)
    level = limits(scenario)
    [point] = summarize(stored, (), level)
    if not point.ok:
        raise NoFigure(f"{spec.fleet}: {point.row['reason']}")
    if spec.metric not in point.row:
        raise NoFigure(f"summary.csv has no column {spec.metric!r}{did_you_mean(spec.metric, point.row)}")
    value = point.number(spec.metric)
    if value is None:
        raise NoFigure(f"{spec.fleet}: {spec.metric} is empty")
    each = [summarize([case], (), level)[0].number(spec.metric) for case in stored]
    samples = tuple(one for one in each if one is not None)
    half = point.number(f"{spec.metric}_ci95") if len(samples) == len(stored) > 1 else None
    return Figure(value, half, samples if half is not None and len(samples) >= FEWEST else ())
