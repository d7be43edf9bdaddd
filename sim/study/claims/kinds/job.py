"""Figures of a training job: columns of its summary.csv."""

from collections.abc import Mapping
from typing import Any

from sim.scenario.job.load import load_job
from sim.scenario.job.schema import JobScenario
from sim.scenario.reading.errors import did_you_mean
from sim.scenario.reading.given import options
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure, NoFigure
from sim.study.work.job.columns import summary
from sim.study.work.job.outcome import job_outcomes

FITS = "fits"
"""In place of a column: 1 where the job can be done, else 0."""


def of_job(fleet: str, metric: str, asked: Asked, values: Mapping[str, Any]) -> Figure:
    """One column for one fleet. Nothing is random, so it has no interval. Raises NoFigure."""
    key = ("job", repr(values))
    if key not in asked.answers:
        scenario = load_job(asked.path, options(values), catalog=asked.catalog)
        if not isinstance(scenario, JobScenario):
            raise NoFigure("a queue of jobs has no figures here, a single job does")
        asked.answers[key] = summary(job_outcomes(scenario, asked.catalog))
    found = [row for row in asked.answers[key] if row.fleet == fleet]
    if len(found) != 1:
        raise NoFigure(f"{fleet}: {len(found)} points of the sweep; set one")
    [row] = found
    if metric == FITS:
        return Figure(float(row.ok))
    if metric not in row.cells:
        raise NoFigure(f"summary.csv of a job has no column {metric!r}{did_you_mean(metric, row.cells)}")
    value = row.cells[metric]
    if not isinstance(value, int | float):
        raise NoFigure(f"{fleet}: {row.cells['reason'] or f'{metric} is empty'}")
    return Figure(float(value))
