"""A column of summary.csv."""

from sim.scenario.claims.figures import Run
from sim.scenario.reading.errors import did_you_mean
from sim.study.cases.execute import do_all
from sim.study.cases.points import jobs_of, limits
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.claims.kinds.job import of_job
from sim.study.claims.kinds.registry import finds
from sim.study.run.summary import summarize


@finds(Run)
def run(spec: Run, asked: Asked) -> Figure:
    """Over the scenario's replications; the same cases are simulated once for all figures."""
    if asked.has_job:
        return of_job(spec.fleet, spec.metric, asked, spec.set)
    scenario, cases = asked.cases(spec.fleet, spec.set)
    jobs = jobs_of(scenario, cases, asked.catalog, asked.out)
    do_all(asked.cores, jobs, lambda *_: None)
    stored = [job.stored() for job in jobs]
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
    whole = len(samples) == len(stored) > 1
    return Figure(value, point.number(f"{spec.metric}_ci95") if whole else None, samples if whole else ())
