"""Maximum a posteriori estimate of log factors, by scipy's least squares with robust weights.

Every parameter is the logarithm of a factor on its prior value, with a prior standard deviation: theta = 0 is the
prior. Time is a sum of stages, each proportional to its parameters, so the derivative of log t by log p is the stage's
share: one pass over the recorded steps gives value and gradient. An observation is the logarithm of a metric; the
Huber loss limits its influence beyond HUBER.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from stages import Names, Stages
from timings import Timings

Floats = NDArray[np.float64]

HUBER = 0.20
NOISE = 0.30
"""Standard deviation of an observation from causes without a parameter: host, version, client."""
TTFT_WEIGHT = 0.4
FULL_ROWS = 5
"""Number of rows at which a pair and metric has its full weight."""
TOLERANCE = 1e-3
"""Relative change of theta that ends the fit; ranges over bootstraps are some hundredths."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Metric of a row: measured value, value simulated at the prior, and dependence on theta."""

    row: int
    pair: str
    gpu: str
    metric: str
    log_measured: float
    log_simulated: float
    """Logarithm of the simulated value at `theta0`, the parameters of the simulation."""
    stages: Stages
    weights: Floats
    """Weights of the step groups."""
    base_s: float
    """Weighted mean step time at theta0 [s]."""
    request_names: Names = ()
    request_s: float = 0.0
    """API server's part of a TTFT at theta0 [s]."""
    tokenising_s: float = 0.0
    """Part of a TTFT in which the API server tokenises the prompt [s], which no parameter changes."""
    simulated_s: float = 0.0


class Model:
    """Logarithms of all metrics as functions of theta."""

    def __init__(self, observations: list[Observation], names: Sequence[str]) -> None:
        self.timings = Timings(observations, names)
        self._base_s = np.array([one.base_s for one in observations])
        self._log = np.array([one.log_simulated for one in observations])
        self._sign = np.array([-1.0 if one.metric == "tput" else 1.0 for one in observations])
        self._ttft = np.array([one.metric == "ttft" for one in observations])
        self._request_s = np.array([one.request_s for one in observations])
        self._simulated_s = np.array([one.simulated_s - one.tokenising_s for one in observations])
        self._tokenising_s = np.array([one.tokenising_s for one in observations])

    def predicted(self, theta: Floats) -> tuple[Floats, Floats]:
        """Return the logarithm of each metric and its derivatives, a row each."""
        mean_s, by = self.timings.means(theta)
        ratio = mean_s / self._base_s
        slopes = by.multiply((self._sign / mean_s)[:, None]).toarray()
        logs = self._log + self._sign * np.log(ratio)
        if self._ttft.any():
            factor, named = self.timings.requests(theta)
            request_s = self._request_s * factor
            steps_s = (self._simulated_s - self._request_s) * ratio
            whole_s = np.where(self._ttft, steps_s + request_s + self._tokenising_s, 1.0)
            with_request = (
                slopes * (steps_s / whole_s)[:, None] + named.multiply((request_s / whole_s)[:, None]).toarray()
            )
            slopes = np.where(self._ttft[:, None], with_request, slopes)
            logs = np.where(self._ttft, np.log(whole_s), logs)
        return logs, slopes


def row_weights(observations: list[Observation]) -> Floats:
    """Return the weights of the rows: equal per pair and metric with FULL_ROWS rows or more; TTFT less."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for one in observations:
        counts[one.pair, one.metric] += 1
    return np.array([
        min(1.0, FULL_ROWS / counts[one.pair, one.metric]) * (TTFT_WEIGHT if one.metric == "ttft" else 1.0)
        for one in observations
    ])  # fmt: skip


class Posterior:
    """Residuals of the observations relative to their noise, and of the parameters *names* relative to their prior."""

    def __init__(self, observations: list[Observation], sd: Mapping[str, float], centre: Mapping[str, float]) -> None:
        self.names = [name for name, width in sd.items() if width > 0]
        self.centres = np.array([centre.get(name, 0.0) for name in self.names])
        self._centre = centre
        self._model = Model(observations, self.names)
        self._measured = np.array([one.log_measured for one in observations])
        self._scale = np.sqrt(row_weights(observations)) / NOISE
        self._widths = np.array([sd[name] for name in self.names])
        self._cut = np.concatenate([self._scale * HUBER, np.full(len(self.names), np.inf)])
        self._seen: tuple[bytes, Floats, Floats] = b"", np.zeros(0), np.zeros(0)

    def residuals(self, theta: Floats) -> Floats:
        """Return the residuals of the observations, then of the parameters."""
        return self._at(theta)[0]

    def slopes(self, theta: Floats) -> Floats:
        """Return the derivatives of the residuals by each parameter."""
        return self._at(theta)[1]

    def loss(self, squares: Floats) -> Floats:
        """Return the Huber loss of squared residuals with its two derivatives; each row has its own cut."""
        sizes = np.maximum(np.sqrt(squares), 1e-9)
        cut = np.minimum(self._cut, sizes)
        outside = sizes > self._cut
        return np.stack([
            2 * cut * sizes - cut**2, cut / sizes, np.where(outside, -cut / (2 * sizes**3), 0.0)
        ])  # fmt: skip

    def named(self, theta: Floats) -> dict[str, float]:
        """Return all parameters, including fixed ones."""
        return {**self._centre, **dict(zip(self.names, map(float, theta), strict=True))}

    def _at(self, theta: Floats) -> tuple[Floats, Floats]:
        key = theta.tobytes()
        if self._seen[0] != key:
            logs, slopes = self._model.predicted(theta)
            off = (logs - self._measured) * self._scale
            prior = np.diag(1 / self._widths)
            self._seen = (
                key,
                np.concatenate([off, (theta - self.centres) / self._widths]),
                np.concatenate([slopes * self._scale[:, None], prior]),
            )
        return self._seen[1:]


def fit(
    observations: list[Observation],
    sd: Mapping[str, float],
    centre: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Return theta of every parameter in *sd*, the prior standard deviations of the logarithms (0 fixes a parameter).

    The search begins at *start*, or at the prior; near the optimum it is several times faster. Parameters that affect
    no observation stay at *centre*, where 0 is the value of the simulation.
    """
    prior = Posterior(observations, sd, centre or {})
    begin = np.array([(start or {}).get(name, at) for name, at in zip(prior.names, prior.centres, strict=True)])
    found = least_squares(prior.residuals, begin, prior.slopes, loss=prior.loss, xtol=TOLERANCE, ftol=TOLERANCE**2)
    return prior.named(found.x)


def errors(observations: list[Observation], theta: Mapping[str, float]) -> Floats:
    """Return predicted / measured - 1 of each observation under *theta*."""
    logs, _ = Model(observations, list(theta)).predicted(np.array(list(theta.values())))
    measured = np.array([one.log_measured for one in observations])
    return np.expm1(logs - measured)
