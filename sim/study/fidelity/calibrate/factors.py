"""Factors on data/ fitted to somebody's own runs: maximum a posteriori, by least squares on simulated runs.

theta are logarithms of factors, 0 with a standard deviation before anything is measured. A residual is
log(simulated / measured) / noise. The interval of a factor is that of the posterior, its noise at least what the
residuals show: runs that contradict each other determine nothing. A factor that the runs do not tell from others moves
as far as it is likely to have its part in what they show; one of which they say nothing stays 1.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from statistics import stdev

import numpy as np

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.steptime import Calibration, Factor
from sim.study.fidelity.calibrate.fit import METRICS, Fit, FittingProblem, load_priors
from sim.study.fidelity.calibrate.ran import own_runs
from sim.study.fidelity.calibrate.runs import Simulator, calibration_of
from sim.study.fidelity.validate.predict import Prediction
from sim.study.metrics.statistics import CONFIDENCE, normal_quantile

MOST_REASONS = 10
MOST_RUNS = 200
"""Of a longer table every second, third, ... run is taken."""
DRAWS = 8
"""Of what pages of metrics do not count, to see what it makes."""


@dataclass(frozen=True, slots=True)
class FittedFactors:
    """A calibration, and what must be said about it."""

    calibration: Calibration
    skipped: tuple[tuple[BenchRow, str], ...] = ()
    """Rows that took no part, and why."""
    contradicting: tuple[tuple[BenchRow, str, float], ...] = ()
    """Runs that are far off still: row, metric, error."""
    noise: float = 1.0
    """Spread of the residuals against what was expected; above 1 the runs contradict each other or the model."""


class NothingToFit(ValueError):
    """No row of the table can be used; the text says why."""


def calibrate(rows: Sequence[BenchRow], gpu: str, catalog: Catalog, workers: int, table: str = "") -> FittedFactors:
    """The factors of the machine with GPU *gpu* (an id) that ran *rows*.

    Raises NothingToFit.
    """
    priors = load_priors(catalog.root / "calibration.yaml")
    simulator = Simulator(catalog, gpu, workers)
    problem = _problem(rows, simulator)
    if not problem.observed:
        raise NothingToFit(_why_nothing(problem, gpu, table))
    fit = Fit(problem, priors, simulator)
    fit.descend()
    share = priors.determined_below.value
    factors = {
        name: _factor(fit.theta[name], sd, sd <= share * fit.prior_sd[name]) for name, sd in fit.posterior_sd().items()
    }
    calibration = calibration_of(gpu, factors).model_copy(
        update={
            "table": table,
            "rows": len(problem.rows),
            "measured": tuple(own_runs(problem.rows, catalog)),
            "errors": fit.errors(),
        }
    )
    return FittedFactors(calibration, tuple(problem.skipped), tuple(fit.far_off()), fit.noise)


def _factor(theta: float, sd: float, determined: bool) -> Factor:
    low, high = (float(np.exp(theta + side * normal_quantile((1 + CONFIDENCE) / 2) * sd)) for side in (-1, 1))
    return Factor(factor=round(float(np.exp(theta)), 4), low=round(low, 4), high=round(high, 4), determined=determined)


def _problem(rows: Sequence[BenchRow], simulator: Simulator) -> FittingProblem:
    """The rows of the simulator's GPU that can be simulated, and the columns to compare."""
    found = FittingProblem()
    own = []
    for row in rows:
        reason = simulator.why_not(row)
        if reason:
            found.skipped.append((row, reason))
        else:
            own.append(row)
    taken = own[:: -(-len(own) // MOST_RUNS)] if own else []
    found.skipped += [(row, f"of {len(own)} runs {len(taken)} are enough") for row in own if row not in taken]
    first = simulator.runs(taken, [[{}]] * len(taken))
    for row, [prediction] in zip(taken, first, strict=True):
        if prediction.status != "covered":
            found.skipped.append((row, prediction.reason))
        else:
            columns = _columns(row, prediction)
            if columns:
                found.observed += [(len(found.rows), metric, column) for metric, column in columns]
                found.chance_sd += _chance_sd(row, [column for _, column in columns], simulator)
                found.rows.append(row)
                found.names.append(_names(prediction))
            else:
                found.skipped.append((row, "holds neither throughput nor time per token nor an unsaturated TTFT"))
    return found


def _chance_sd(row: BenchRow, columns: Sequence[str], simulator: Simulator) -> list[float]:
    """How far each column of *row* depends on what is drawn for want of counts; a queue makes much of a little."""
    if row.counted is None:
        return [0.0] * len(columns)
    drawn = [replace(row, counted=replace(row.counted, draw=number)) for number in range(1, 1 + DRAWS)]
    told = [one.metrics for [one] in simulator.runs(drawn, [[{}]] * DRAWS)]
    logs = [[log(one[column]) for one in told if column in one] for column in columns]
    return [stdev(found) if len(found) == DRAWS else 1.0 for found in logs]


def _columns(row: BenchRow, prediction: Prediction) -> list[tuple[str, str]]:
    columns = []
    for metric, names in METRICS.items():
        given = [name for name in names if name in row.measured and prediction.metrics.get(name)]
        if given and not (metric == "ttft" and prediction.saturated):
            columns.append((metric, given[0]))
    return columns


def _names(prediction: Prediction) -> set[str]:
    host = {
        f"engines.{prediction.engine}.{name}" for name in ("step_overhead", "sequence_overhead", "request_overhead")
    }
    link = {f"links.{prediction.link}.{name}" for name in ("latency", "time_per_byte")} if prediction.link else set()
    return {"compute_efficiency", "memory_efficiency"} | host | link


def told(skipped: Sequence[tuple[BenchRow, str]], table: str) -> list[str]:
    """Why rows take no part, a line for each reason with the first row that it holds for; the most frequent first."""
    counts = Counter(reason for _, reason in skipped)
    first = {reason: row for row, reason in reversed(skipped)}
    lines = []
    for reason, count in counts.most_common(MOST_REASONS):
        place = f"{table}:{first[reason].line}" if first[reason].line else first[reason].id
        lines.append(f"{place}: {reason}{f' ({count} rows)' if count > 1 else ''}")
    left = len(counts) - MOST_REASONS
    return [*lines, f"and {left} other reasons"] if left > 0 else lines


def _why_nothing(problem: FittingProblem, gpu: str, table: str) -> str:
    return "\n".join([f"{table}: no run can be used to calibrate {gpu}", *told(problem.skipped, table)])
