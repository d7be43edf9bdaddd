"""Robust least-squares fit of factors on catalogue figures to measured rows, with simulated runs as the model.

The parameters theta are logarithms of factors, each with a normal prior of mean 0. A residual is
log(simulated / measured) / noise; the Huber loss limits the influence of residuals beyond HUBER standard deviations.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.value import Value
from sim.fidelity.bench_scenario import case_of
from sim.fidelity.names import NotCovered
from sim.fidelity.prediction import Prediction, campaigns_of, prepared, simulate
from sim.message import Message
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.spec import Spec
from sim.steptime.calibration import Calibration, Errors, Factor
from sim.steptime.roofline import RooflineStepTime, roofline_step_time
from sim.study.metrics.statistics import normal_quantile
from sim.yamlio import read

Theta = dict[str, float]
"""Logarithms of the factors, keyed by dotted name."""

ROWS_ALONE = 4
"""Largest number of rows simulated without further processes."""


@dataclass(frozen=True, slots=True)
class Simulator:
    """Simulation of benchmark rows as runs on one GPU (an id)."""

    catalog: Catalog
    gpu: str
    workers: int

    def why_not(self, row: BenchRow) -> str:
        """Return the reason why *row* is not a run on this GPU that can be simulated; empty if it is."""
        try:
            case = case_of(row, self.catalog, campaigns_of(self.catalog))
        except NotCovered as error:
            return str(error)
        if case.names.gpu.id != self.gpu:
            return Message("ran on {gpu}", case.names.gpu.id)
        drafted = "speculative" in case.data["fleets"][0]["pools"][0]["batching"]
        return case.notes[0] if row.spec_decode and not drafted else ""

    def runs(self, rows: Sequence[BenchRow], thetas: Sequence[Sequence[Theta]]) -> list[list[Prediction]]:
        """Simulate every row with each of its own *thetas*."""
        if self.workers == 1 or len(rows) <= ROWS_ALONE:
            return [_simulate(row, self.gpu, self.catalog, own) for row, own in zip(rows, thetas, strict=True)]
        work = zip(rows, thetas, strict=True)
        parallel = Parallel(n_jobs=min(self.workers, len(rows)))
        found: list[list[Prediction]] = parallel(
            delayed(_in_worker)(row, self.gpu, self.catalog.root, own) for row, own in work
        )
        return found


def _in_worker(row: BenchRow, gpu: str, root: Path, thetas: Sequence[Theta]) -> list[Prediction]:
    return _simulate(row, gpu, _catalog(root), thetas)


@cache
def _catalog(root: Path) -> Catalog:
    """Return the catalogue under *root*, cached per process."""
    return load_catalog(root)


def _simulate(row: BenchRow, gpu: str, catalog: Catalog, thetas: Sequence[Theta]) -> list[Prediction]:
    try:
        with prepared(row, catalog) as ready:
            return [simulate(ready, adjusted(_calibration_at(gpu, theta))) for theta in thetas]
    except NotCovered as error:
        return [Prediction(row.id, "not_covered", str(error))] * len(thetas)


def _calibration_at(gpu: str, theta: Theta) -> Calibration:
    return calibration_of(gpu, {name: Factor(factor=float(np.exp(value))) for name, value in theta.items()})


def calibration_of(gpu: str, factors: dict[str, Factor]) -> Calibration:
    """Return the calibration of factors keyed by dotted name, such as `links.pcie4-x16.latency`."""
    data: dict[str, dict[str, dict[str, Factor]]] = {"engines": {}, "links": {}}
    alone: dict[str, Factor] = {}
    for name, factor in factors.items():
        kind, _, rest = name.partition(".")
        if not rest:
            alone[name] = factor
            continue
        holder, _, last = rest.rpartition(".")
        data[kind].setdefault(holder, {})[last] = factor
    return Calibration.model_validate({"gpu": gpu, **alone, **data})


def adjusted(calibration: Calibration) -> Callable[[CasePlan], CasePlan]:
    """Return a function that applies *calibration* to a plan made without one."""

    def pool_with(pool: PoolPlan) -> PoolPlan:
        steptime = pool.steptime
        if not isinstance(steptime, RooflineStepTime):
            return pool
        inputs = calibration.inputs(steptime.inputs)
        overhead_s = pool.request_overhead_s
        if overhead_s:
            overhead_s = steptime.spec.request_overhead_s(
                inputs.engine, inputs.model, inputs.tensor_parallel_size, inputs.gpu
            )
        return replace(pool, steptime=roofline_step_time(steptime.spec, inputs), request_overhead_s=overhead_s)

    return lambda plan: replace(plan, pools=tuple(pool_with(pool) for pool in plan.pools))


Floats = NDArray[np.float64]

METRICS = {
    "throughput": ("output_tok_s", "total_tok_s", "req_s"),
    "tpot": ("tpot_mean_ms", "tpot_p50_ms"),
    "ttft": ("ttft_mean_ms", "ttft_p50_ms"),
}
"""Columns of each fitted metric; the first that was measured is used."""
STEP = 0.1
"""Step of the finite differences of theta."""
MOST_TRIALS = 12
"""Largest number of parameter sets simulated per descent; four to six usually suffice."""
TOLERANCE = 0.05
"""Relative change of cost and theta that ends the descent, much smaller than the factors' intervals."""
HUBER = 2.0
"""Number of standard deviations beyond which a residual's influence is limited."""
FAR_OFF = 3.0
"""Number of standard deviations beyond which an observation counts as not explained by the factors."""
KNOWN_SD = 0.05
"""Standard deviation of the log of a factor that was measured on its own."""
CUT_QUEUE = 10.0
"""Residual of an observation that the simulation lacks, such as a TTFT whose queue outlasts the simulated time."""
MAD_TO_SD = 1 / normal_quantile(0.75)
"""Standard deviation divided by the median absolute deviation of a normal distribution."""


class Priors(Spec):
    """Contents of data/calibration.yaml."""

    prior_sd: dict[str, Value]
    """Prior standard deviation of log factors, keyed by the last part of their name."""
    noise_sd: dict[str, Value]
    """Expected standard deviation of log residuals, keyed by METRICS."""
    determined_below: Value
    """Largest ratio of posterior to prior standard deviation of a determined factor."""


@dataclass(slots=True)
class FittingProblem:
    """Rows of one GPU with their measurements and the factors that affect them."""

    rows: list[BenchRow] = field(default_factory=list)
    names: list[set[str]] = field(default_factory=list)
    """Factors that affect each row."""
    observed: list[tuple[int, str, str]] = field(default_factory=list)
    """Observations as (row index, metric, column)."""
    chance_sd: list[float] = field(default_factory=list)
    """Standard deviation of each log observation due to random draws that the counters of the row do not determine."""
    skipped: list[tuple[BenchRow, str]] = field(default_factory=list)
    """Rows that are not used, each with the reason."""
    known: Theta = field(default_factory=dict)
    """Log factors that other measurements determine, within KNOWN_SD."""


def load_priors(path: Path) -> Priors:
    """Read data/calibration.yaml. Raises pydantic.ValidationError or sim.yamlio.YamlError."""
    return Priors.model_validate(read(path).data)


class Fit:
    """Maximum a posteriori fit of the factors by scipy's trust-region method."""

    def __init__(self, problem: FittingProblem, priors: Priors, simulator: Simulator) -> None:
        self.problem, self.simulator = problem, simulator
        self.names = sorted(set().union(*problem.names))
        self.usual_sd = {name: priors.prior_sd[name.rpartition(".")[2]].value for name in self.names}
        self.prior_sd = {name: KNOWN_SD if name in problem.known else sd for name, sd in self.usual_sd.items()}
        self._centre = np.array([problem.known.get(name, 0.0) for name in self.names])
        self.theta: Theta = self._by_name(self._centre)
        noise_sd = [priors.noise_sd[metric].value for _, metric, _ in problem.observed]
        self._noise_sd = np.hypot(noise_sd, problem.chance_sd)
        [self._before] = self._residuals([dict.fromkeys(self.names, 0.0)])
        [self._residual] = self._residuals([self.theta]) if problem.known else [self._before]
        self._jacobian = self._slopes()

    @property
    def noise(self) -> float:
        """Scatter of the residuals relative to the expected noise, at least 1.

        It is estimated from the median residual, so that a single bad run does not hide the others, with a correction
        for the residuals that the fitted factors explain.
        """
        runs = len(self._residual)
        usual = MAD_TO_SD * float(np.median(np.abs(self._residual)))
        return max(1.0, usual * float(np.sqrt(runs / max(1.0, runs - self._effective_parameters()))))

    def _effective_parameters(self) -> float:
        information = self._jacobian.T @ self._jacobian
        return float(np.trace(np.linalg.solve(information + self._precision(), information)))

    def descend(self) -> None:
        """Move theta to the most probable factors.

        Steps are scaled by the priors. Scaling by the Jacobian overshoots in factors with little effect at first, such
        as those hidden behind the GPU's time; it is tried as well if the runs seem to contradict each other.
        """
        start = self.theta, self._residual, self._jacobian
        cost = self._descend(np.array([self.prior_sd[name] for name in self.names]))
        if self.noise > 1.0:
            found = self.theta, self._residual, self._jacobian
            self.theta, self._residual, self._jacobian = start
            if self._descend("jac") > cost:
                self.theta, self._residual, self._jacobian = found

    def _descend(self, scale: Any) -> float:
        """Minimise the cost with steps of the given scale. Return the remaining cost."""
        from scipy.optimize import least_squares  # slow to import; only `calibrate` needs it

        prior_sd = np.array([self.prior_sd[name] for name in self.names])
        runs = len(self.problem.observed)
        loss: Any = partial(_huber, runs=runs)  # scipy's stubs demand a two-dimensional array

        def residuals(theta: Floats) -> Floats:
            [self._residual] = self._residuals([self._by_name(theta)])
            return np.concatenate([self._residual, (theta - self._centre) / prior_sd])

        def jacobian(theta: Floats) -> Floats:
            self.theta = self._by_name(theta)
            self._jacobian = self._slopes()
            return np.vstack([self._jacobian, np.diag(1 / prior_sd)])

        found = least_squares(
            residuals,
            np.array([self.theta[name] for name in self.names]),
            jac=jacobian,
            loss=loss,
            ftol=TOLERANCE,
            xtol=TOLERANCE,
            gtol=TOLERANCE,
            x_scale=scale,
            max_nfev=MOST_TRIALS,
        )
        self.theta, self._residual = self._by_name(found.x), found.fun[:runs]
        return float(found.cost)

    def _by_name(self, theta: Floats) -> Theta:
        return dict(zip(self.names, theta.tolist(), strict=True))

    def posterior_sd(self) -> dict[str, float]:
        """Return the marginal posterior standard deviation of each log factor."""
        information = self._jacobian.T @ self._jacobian / self.noise**2
        variance = np.diag(np.linalg.inv(information + self._precision()))
        return dict(zip(self.names, np.sqrt(variance).tolist(), strict=True))

    def errors(self) -> dict[str, Errors]:
        """Return the median absolute error of each metric before and after the fit."""
        found = {}
        for wanted in METRICS:
            pairs = [
                (abs(np.expm1(before)), abs(np.expm1(after)))
                for (_, metric, _), before, after in zip(
                    self.problem.observed, self._before * self._noise_sd, self._residual * self._noise_sd, strict=True
                )
                if metric == wanted
            ]
            if pairs:
                before, after = (round(float(median(side)), 4) for side in zip(*pairs, strict=True))
                found[wanted] = Errors(rows=len(pairs), before=before, after=after)
        return found

    def outliers(self) -> list[tuple[BenchRow, str, float]]:
        """Return the observations that the factors do not explain: row, column, error."""
        return [
            (self.problem.rows[row], column, float(np.expm1(residual * sd)))
            for (row, _, column), residual, sd in zip(
                self.problem.observed, self._residual, self._noise_sd, strict=True
            )
            if abs(residual) > FAR_OFF
        ]

    def _precision(self) -> Floats:
        return np.diag([1 / self.prior_sd[name] ** 2 for name in self.names])

    def _slopes(self) -> Floats:
        """Return the derivative of every residual by every theta, from one more simulation per row and factor."""
        problem = self.problem
        own = [sorted(names) for names in problem.names]
        thetas = [[{**self.theta, name: self.theta[name] + STEP} for name in names] for names in own]
        runs = self.simulator.runs(problem.rows, thetas)
        slopes = np.zeros((len(problem.observed), len(self.names)))
        for i, (row, _, column) in enumerate(problem.observed):
            for name, prediction in zip(own[row], runs[row], strict=True):
                shifted = self._residual_of(i, prediction.metrics.get(column))
                slopes[i, self.names.index(name)] = (shifted - self._residual[i]) / STEP
        return np.nan_to_num(slopes)

    def _residuals(self, thetas: Sequence[Theta]) -> list[Floats]:
        runs = self.simulator.runs(self.problem.rows, [thetas] * len(self.problem.rows))
        return [
            np.array(
                [
                    self._residual_of(i, runs[row][k].metrics.get(c))
                    for i, (row, _, c) in enumerate(self.problem.observed)
                ]
            )
            for k in range(len(thetas))
        ]

    def _residual_of(self, index: int, simulated: float | None) -> float:
        """Return the residual of an observation; CUT_QUEUE without a simulated value, as after a cut queue."""
        if simulated is None:
            return CUT_QUEUE
        row, _, column = self.problem.observed[index]
        return float(np.log(simulated / self.problem.rows[row].measured[column]) / self._noise_sd[index])


def _huber(squares: Floats, runs: int) -> Floats:
    """Return the loss of squared residuals with its first and second derivative.

    The first *runs* residuals have the Huber loss; those of the priors are quadratic.
    """
    far = np.arange(len(squares)) < runs
    far &= squares > HUBER**2
    size = np.sqrt(np.where(far, squares, 1.0))
    return np.stack(
        [
            np.where(far, 2 * HUBER * size - HUBER**2, squares),
            np.where(far, HUBER / size, 1.0),
            np.where(far, -HUBER / (2 * size**3), 0.0),
        ]
    )
