"""Factors on data/ fitted to somebody's own runs: maximum a posteriori, by Gauss-Newton on simulated runs.

theta are logarithms of factors, 0 with a standard deviation before anything is measured. A residual is
log(simulated / measured) / noise. The interval of a factor is that of the posterior, its noise at least what the
residuals show: runs that contradict each other determine nothing. A factor about which the runs say little keeps 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.benchdata.row import BenchRow
from sim.catalog.catalog import Catalog
from sim.steptime import Calibration, Factor
from sim.study.calibrate_fit import METRICS, Fit, Problem, load_priors
from sim.study.calibrate_runs import Simulator, calibration_of
from sim.study.validate_predict import Prediction

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Fitted:
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


def calibrate(rows: Sequence[BenchRow], gpu: str, catalog: Catalog, workers: int, table: str = "") -> Fitted:
    """The factors of the machine with GPU *gpu* (an id) that ran *rows*.

    Raises NothingToFit.
    """
    priors = load_priors(catalog.root / "calibration.yaml")
    simulator = Simulator(catalog, gpu, workers)
    problem = _problem(rows, gpu, simulator)
    if not problem.observed:
        raise NothingToFit(_why_nothing(problem, gpu, table))
    fit = Fit(problem, priors, simulator)
    fit.descend()
    marginal_sd = fit.posterior_sd()
    share = priors.determined_below.value
    known = {name for name, sd in marginal_sd.items() if sd <= share * fit.prior_sd[name]}
    if known != set(fit.names):
        fit.hold(set(fit.names) - known)
        fit.descend()
    factors = {name: _factor(fit.theta[name], marginal_sd[name], name in known) for name in fit.names}
    calibration = calibration_of(gpu, factors).model_copy(
        update={"table": table, "rows": len(problem.rows), "errors": fit.errors()}
    )
    return Fitted(calibration, tuple(problem.skipped), tuple(fit.far_off()), fit.noise)


def _factor(theta: float, sd: float, determined: bool) -> Factor:
    centre = theta if determined else 0.0
    low, high = (float(np.exp(centre + side * NORMAL_95 * sd)) for side in (-1, 1))
    return Factor(factor=round(float(np.exp(centre)), 4), low=round(low, 4), high=round(high, 4), determined=determined)


def _problem(rows: Sequence[BenchRow], gpu: str, simulator: Simulator) -> Problem:
    """The rows of *gpu* that can be simulated, and the columns to compare."""
    found = Problem()
    first = simulator.runs(rows, [[{}]] * len(rows))
    for row, [prediction] in zip(rows, first, strict=True):
        if prediction.status != "covered":
            found.skipped.append((row, prediction.reason))
        elif prediction.gpu != gpu:
            found.skipped.append((row, f"ran on {prediction.gpu}"))
        else:
            columns = _columns(row, prediction)
            if columns:
                found.observed += [(len(found.rows), metric, column) for metric, column in columns]
                found.rows.append(row)
                found.names.append(_names(prediction))
            else:
                found.skipped.append((row, "holds neither throughput nor time per token nor an unsaturated TTFT"))
    return found


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


def _why_nothing(problem: Problem, gpu: str, table: str) -> str:
    reasons = [f"{table}:{row.line}: {reason}" if row.line else f"{table}: {reason}" for row, reason in problem.skipped]
    return "\n".join([f"{table}: no run can be used to calibrate {gpu}", *reasons])
