"""Maximum a posteriori of log multipliers: Gauss-Newton with robust weights.

Every parameter is the logarithm of a factor on its prior value, with a prior standard deviation: theta = 0 is the
prior.
Time is a sum of stages, each proportional to its parameters, so the derivative of log t by log p is the stage's share:
one pass over the recorded steps gives value and gradient. An observation is the logarithm of a metric; its weight is
cut where it is off by more than HUBER.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from stages import Names, Stages

Floats = NDArray[np.float64]

HUBER = 0.20
NOISE = 0.20
"""What one observation may be off for reasons no parameter knows: host, version, client."""
TTFT_WEIGHT = 0.4
FULL_ROWS = 10
"""A pair and metric with more rows than this weighs no more than one with as many."""
ITERATIONS = 9


@dataclass(frozen=True, slots=True)
class Observation:
    """One metric of one row: what was measured, what the simulation at the prior gave, and how it follows theta."""

    row: int
    pair: str
    gpu: str
    metric: str
    log_measured: float
    log_simulated: float
    """At `theta0`, the parameters that the row was simulated with."""
    stages: Stages
    weights: Floats
    """Of each group of steps."""
    base_s: float
    """Mean step at theta0 with those weights."""
    request_names: Names = ()
    request_s: float = 0.0
    """Part of a TTFT that is the API server's, at theta0."""
    simulated_s: float = 0.0


class Rows:
    """Memo of stage times: several metrics look at one row."""

    def __init__(self, theta: Mapping[str, float]) -> None:
        self.theta = dict(theta)
        self._known: dict[int, tuple[Floats, dict[str, Floats]]] = {}

    def of(self, observation: Observation) -> tuple[Floats, dict[str, Floats]]:
        """(step times, derivatives) of the observation's row."""
        known = self._known.get(observation.row)
        if known is None:
            known = self._known[observation.row] = observation.stages.seconds(self.theta)
        return known


def predicted(observation: Observation, rows: Rows) -> tuple[float, dict[str, float]]:
    """(log of the metric, its derivative by each parameter) at the theta of *rows*."""
    times, by = rows.of(observation)
    weight = observation.weights / observation.weights.sum()
    mean = float(weight @ times)
    shares = {name: float(weight @ part) / mean for name, part in by.items()}
    ratio = mean / observation.base_s
    if observation.metric == "tput":
        return observation.log_simulated - np.log(ratio), {name: -share for name, share in shares.items()}
    if observation.metric == "tpot":
        return observation.log_simulated + np.log(ratio), shares
    request_s = observation.request_s * float(
        np.exp(sum(rows.theta.get(name, 0.0) for name in observation.request_names))
    )
    steps_s = (observation.simulated_s - observation.request_s) * ratio
    total_s = steps_s + request_s
    gradient = {name: share * steps_s / total_s for name, share in shares.items()}
    for name in observation.request_names:
        gradient[name] = gradient.get(name, 0.0) + request_s / total_s
    return float(np.log(total_s)), gradient


def row_weights(observations: list[Observation]) -> Floats:
    """Each pair and metric weighs the same once it has FULL_ROWS rows; TTFT less."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for one in observations:
        counts[one.pair, one.metric] += 1
    return np.array([
        min(1.0, FULL_ROWS / counts[one.pair, one.metric]) * (TTFT_WEIGHT if one.metric == "ttft" else 1.0)
        for one in observations
    ])  # fmt: skip


def fit(
    observations: list[Observation],
    sd: Mapping[str, float],
    start: Mapping[str, float] | None = None,
    iterations: int = ITERATIONS,
    centre: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Theta of every parameter in *sd*, the prior standard deviations of the logarithms (0 holds one).

    Parameters that no observation touches stay at *centre*, where 0 is the value that the rows were simulated with.
    """
    names = [name for name, width in sd.items() if width > 0]
    index = {name: i for i, name in enumerate(names)}
    centres = np.array([(centre or {}).get(name, 0.0) for name in names])
    theta = np.array([(start or {}).get(name, c) for name, c in zip(names, centres, strict=True)])
    prior = np.array([1 / sd[name] ** 2 for name in names])
    weights = row_weights(observations) / NOISE**2
    for _ in range(iterations):
        rows = Rows({**(centre or {}), **dict(zip(names, theta, strict=True))})
        normal, right = np.diag(prior), prior * (centres - theta)
        for one, weight in zip(observations, weights, strict=True):
            value, gradient = predicted(one, rows)
            residual = one.log_measured - value
            robust = weight * min(1.0, HUBER / max(abs(residual), 1e-9))
            columns = [(index[name], slope) for name, slope in gradient.items() if name in index]
            where = np.array([i for i, _ in columns])
            slope = np.array([s for _, s in columns])
            normal[np.ix_(where, where)] += robust * np.outer(slope, slope)
            right[where] += robust * residual * slope
        step = np.linalg.solve(normal, right)
        theta = theta + np.clip(step, -0.7, 0.7)
        if np.abs(step).max() < 1e-3:
            break
    return {**(centre or {}), **dict(zip(names, map(float, theta), strict=True))}


def pair_errors(observations: Iterable[Observation], theta: Mapping[str, float]) -> dict[str, dict[str, list[float]]]:
    """metric -> pair -> |predicted / measured - 1| of its rows."""
    rows = Rows(theta)
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in observations:
        value, _ = predicted(one, rows)
        errors[one.metric][one.pair].append(abs(float(np.expm1(value - one.log_measured))))
    return errors
