"""Maximum a posteriori of log multipliers, by scipy's least squares with robust weights.

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
from scipy.optimize import least_squares
from stages import Names, Stages

Floats = NDArray[np.float64]

HUBER = 0.20
NOISE = 0.20
"""What one observation may be off for reasons no parameter knows: host, version, client."""
TTFT_WEIGHT = 0.4
FULL_ROWS = 10
"""A pair and metric with more rows than this weighs no more than one with as many."""
TOLERANCE = 1e-3
"""Change of theta, relative to it, at which the fit ends; ranges over bootstraps are some hundredths."""


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


class Posterior:
    """Residuals of the observations, in units of their noise, and of the parameters *names* against their prior."""

    def __init__(self, observations: list[Observation], sd: Mapping[str, float], centre: Mapping[str, float]) -> None:
        self.names = [name for name, width in sd.items() if width > 0]
        self.centres = np.array([centre.get(name, 0.0) for name in self.names])
        self._index = {name: column for column, name in enumerate(self.names)}
        self._observations, self._centre = observations, centre
        self._scale = np.sqrt(row_weights(observations)) / NOISE
        self._widths = np.array([sd[name] for name in self.names])
        self._cut = np.concatenate([self._scale * HUBER, np.full(len(self.names), np.inf)])
        self._seen: tuple[bytes, Floats, Floats] = b"", np.zeros(0), np.zeros(0)

    def residuals(self, theta: Floats) -> Floats:
        """One of each observation, then one of each parameter."""
        return self._at(theta)[0]

    def slopes(self, theta: Floats) -> Floats:
        """Derivatives of the residuals by each parameter."""
        return self._at(theta)[1]

    def loss(self, squares: Floats) -> Floats:
        """Huber's loss of squared residuals, with its two derivatives: linear beyond the row's own cut."""
        sizes = np.maximum(np.sqrt(squares), 1e-9)
        cut = np.minimum(self._cut, sizes)
        outside = sizes > self._cut
        return np.stack([
            2 * cut * sizes - cut**2, cut / sizes, np.where(outside, -cut / (2 * sizes**3), 0.0)
        ])  # fmt: skip

    def named(self, theta: Floats) -> dict[str, float]:
        """All parameters, those that are held, too."""
        return {**self._centre, **dict(zip(self.names, map(float, theta), strict=True))}

    def _at(self, theta: Floats) -> tuple[Floats, Floats]:
        key = theta.tobytes()
        if self._seen[0] != key:
            rows, count = Rows(self.named(theta)), len(self._observations)
            off, slopes = np.empty(count), np.zeros((count + len(self.names), len(self.names)))
            for place, one in enumerate(self._observations):
                value, gradient = predicted(one, rows)
                off[place] = (value - one.log_measured) * self._scale[place]
                for name in gradient.keys() & self._index.keys():
                    slopes[place, self._index[name]] = gradient[name] * self._scale[place]
            slopes[count:] = np.diag(1 / self._widths)
            self._seen = key, np.concatenate([off, (theta - self.centres) / self._widths]), slopes
        return self._seen[1:]


def fit(
    observations: list[Observation], sd: Mapping[str, float], centre: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Theta of every parameter in *sd*, the prior standard deviations of the logarithms (0 holds one).

    Parameters that no observation touches stay at *centre*, where 0 is the value that the rows were simulated with.
    """
    prior = Posterior(observations, sd, centre or {})
    found = least_squares(
        prior.residuals, prior.centres, prior.slopes, loss=prior.loss, xtol=TOLERANCE, ftol=TOLERANCE**2
    )
    return prior.named(found.x)


def pair_errors(observations: Iterable[Observation], theta: Mapping[str, float]) -> dict[str, dict[str, list[float]]]:
    """metric -> pair -> |predicted / measured - 1| of its rows."""
    rows = Rows(theta)
    errors: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in observations:
        value, _ = predicted(one, rows)
        errors[one.metric][one.pair].append(abs(float(np.expm1(value - one.log_measured))))
    return errors
