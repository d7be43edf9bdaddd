"""Forecast of the request rate: exponential trend with hours of the day and of the week, and intervals from a backtest.

The logarithm of an hour's rate is a Gaussian process: a line in time, profiles of the day and of the week, deviations
of the hours of the week from them, a mean-reverting level and noise. Its scales maximise the likelihood of
the last FITTED hours, and it rests on the last HISTORY weeks. With two weeks of hours, such priors shrink what they do
not determine, where a seasonal ARIMA model or a regression on 168 hours would fit the noise. It needs nothing beside
numpy and scipy, and missing hours do not disturb it.

Backtest: the process is fitted to the hours before each of the last days, and forecasts the week after it. Errors over
the process' own standard deviations give the factor by which the intervals are widened or narrowed, so that 80 % of the
backtest's hours lie within them (normalised conformal prediction).

References
----------
C. Rasmussen, C. Williams, "Gaussian Processes for Machine Learning", 2006, ch. 2 and 5.4.3; J. Lei et al.,
"Distribution-free predictive inference for regression", JASA 113, 2018, sec. 5.2.

"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, sqrt

import numpy as np
from numpy.typing import NDArray

from sim.study.metrics.statistics import normal_quantile
from sim.units import HOURS_PER_DAY, HOURS_PER_WEEK
from sim.watch.observed import HOUR_S

Floats = NDArray[np.float64]
HISTORY = 6
"""Weeks of the last hours that the forecast rests on."""
LEAST_DAYS = 8
"""Fewest days of hours for a forecast: a week and a day, so that the hours of the week can be told from a trend."""
SHARE = 0.8
"""Share of the hours that the intervals hold."""
ORIGINS, LEAST_TRAINED_DAYS = 6, 7
"""Largest number of backtests, and fewest days that one is fitted to."""
NARROWEST, WIDEST = 1.0, 3.0
"""Limits of the factor on the intervals."""
LEVEL_SD, TREND_SD, DAY_SD, WEEKDAY_SD = 3.0, 0.3, 0.7, 0.3
"""Prior standard deviations of level, growth per week, hour of the day and time of the week, in logarithms."""
WEEKDAY_REACH = 0.6
"""Correlation of times of the week: they have e^-1 of it where the sine of half their angle is this, 1.4 days apart.

Weekends begin at no particular hour of UTC.
"""
FITTED = 336
"""Number of the last hours to which the scales are fitted."""
BOUNDS = ((0.005, 1.0), (0.005, 1.0), (2.0, 200.0), (0.005, 1.0))
"""Limits of the scales, in the order of `Scales`."""


@dataclass(frozen=True, slots=True)
class Scales:
    """Standard deviations of the parts of the logarithm, and the memory of the level."""

    week: float
    """Deviation of an hour of the week from its hour of the day."""
    level: float
    """Mean-reverting level."""
    memory_h: float
    """Time over which the level is correlated [h]."""
    noise: float


@dataclass(frozen=True, slots=True)
class LoadForecast:
    """Forecast of hourly rates after the last observed hour."""

    starts: Sequence[int]
    """Starts of the hours [Unix s]."""
    median: Floats
    """Median rates [1/s]."""
    low: Floats
    """Lower ends of the 80 % intervals [1/s]."""
    high: Floats
    """Upper ends of the 80 % intervals [1/s]."""
    growth_per_week: float
    """Growth of the median per week, as a fraction."""
    growth_interval: tuple[float, float]
    """80 % interval of the growth per week."""
    backtested: int
    """Forecast hours of the backtest; 0 where the history is too short for one."""
    held: float | None
    """Share of the backtest's hours within intervals that the other backtests set; None without a backtest."""
    error: float | None
    """Median absolute error of the backtest, as a fraction of the rate."""


class _Kernel:
    """Covariances of the process between the hours *at* and *other*, as a function of its scales."""

    def __init__(self, at: Floats, other: Floats, middle: float) -> None:
        apart = at[:, None] - other[None, :]
        weeks = ((one - middle) / HOURS_PER_WEEK for one in (at, other))
        # level and trend are independent at the middle of the history
        self._fixed = LEVEL_SD**2 + TREND_SD**2 * np.multiply.outer(*weeks) + DAY_SD**2 * (apart % HOURS_PER_DAY == 0)
        self._fixed += WEEKDAY_SD**2 * np.exp(-np.abs(np.sin(np.pi * apart / HOURS_PER_WEEK)) / WEEKDAY_REACH)
        self._week = apart % HOURS_PER_WEEK == 0
        self._apart = np.abs(apart)

    def at(self, scales: Scales) -> Floats:
        """Return the covariances, without noise."""
        level = scales.level**2 * np.exp(-self._apart / scales.memory_h)
        return np.asarray(self._fixed + scales.week**2 * self._week + level)


class _Process:
    """Gaussian process of the logarithms *values* at the hours *at* (hours since 1970)."""

    def __init__(self, at: Floats, values: Floats, scales: Scales, kernel: _Kernel | None = None) -> None:
        self._at, self._scales = at, scales
        self._middle, self._centre = float(at.mean()), float(values.mean())
        covariance = (kernel or _Kernel(at, at, self._middle)).at(scales)
        covariance[np.diag_indices(len(at))] += scales.noise**2
        self._root = np.linalg.cholesky(covariance)
        self._centred = values - self._centre
        self._weights = self._solved(self._centred)

    def _solved(self, right: Floats) -> Floats:
        from scipy.linalg import cho_solve  # slow to import

        return np.asarray(cho_solve((self._root, True), right, check_finite=False))

    @property
    def log_likelihood(self) -> float:
        """Logarithm of the likelihood, without constants."""
        return float(-0.5 * self._centred @ self._weights - np.log(np.diag(self._root)).sum())

    def at(self, when: Floats) -> tuple[Floats, Floats]:
        """Return means and standard deviations of single hours at *when*."""
        cross, scales = _Kernel(when, self._at, self._middle).at(self._scales), self._scales
        own = LEVEL_SD**2 + TREND_SD**2 * self._weeks(when) ** 2 + DAY_SD**2 + WEEKDAY_SD**2
        own = own + scales.week**2 + scales.level**2 + scales.noise**2
        spread = own - np.einsum("ij,ji->i", cross, self._solved(cross.T))
        return self._centre + cross @ self._weights, np.sqrt(np.maximum(spread, scales.noise**2))

    def growth(self) -> tuple[float, float]:
        """Return mean and standard deviation of the growth of the logarithm per week."""
        cross = TREND_SD**2 * self._weeks(self._at)
        spread = float(TREND_SD**2 - cross @ self._solved(cross))
        return float(cross @ self._weights), sqrt(max(0.0, spread))

    def _weeks(self, at: Floats) -> Floats:
        """Return *at* in weeks from the middle of the history."""
        return (at - self._middle) / HOURS_PER_WEEK


def _scales(at: Floats, values: Floats) -> Scales:
    """Return the scales with the largest likelihood of the last FITTED hours."""
    from scipy.optimize import minimize  # slow to import

    at, values = at[-FITTED:], values[-FITTED:]
    kernel, start = _Kernel(at, at, float(at.mean())), np.log([0.1, 0.1, 48.0, 0.1])

    def scales(logs: Floats) -> Scales:
        return Scales(*(float(one) for one in np.exp(np.clip(logs, *np.log(BOUNDS).T))))

    def loss(logs: Floats) -> float:
        return -_Process(at, values, scales(logs), kernel).log_likelihood + 0.5 * float(((logs - start) ** 2).sum())

    found = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 60, "xatol": 0.1, "fatol": 0.5})
    return scales(np.asarray(found.x))


def forecast_of(hours: Sequence[int], rates: Sequence[float], days: float) -> LoadForecast | None:
    """Return the forecast of the *days* days after the last of *hours*.

    Parameters
    ----------
    hours
        Starts of the observed hours, in order; hours may be missing [Unix s].
    rates
        Request rate in each hour [1/s].
    days
        Length of the forecast [days].

    Returns
    -------
    LoadForecast or None
        None where there are fewer than LEAST_DAYS days of hours with requests.

    """
    known = [(hour, rate) for hour, rate in zip(hours, rates, strict=True) if rate > 0]
    if len(known) < LEAST_DAYS * HOURS_PER_DAY:
        return None
    at = np.array([hour for hour, _ in known], float) / HOUR_S
    values = np.log([rate for _, rate in known])
    recent = at > at[-1] - HISTORY * HOURS_PER_WEEK
    at, values = at[recent], values[recent]
    scales = _scales(at, values)
    tests = _backtests(at, values, scales)
    factor = _factor([one for test in tests for one in test[0]])
    process = _Process(at, values, scales)
    when = at[-1] + np.arange(1, round(days * HOURS_PER_DAY) + 1)
    mean, spread = process.at(when)
    reach = normal_quantile((1 + SHARE) / 2)
    growth, growth_sd = process.growth()
    ends = (growth - reach * factor * growth_sd, growth + reach * factor * growth_sd)
    held, error = _scores(tests)
    return LoadForecast(
        [int(one) * HOUR_S for one in when],
        np.exp(mean),
        np.exp(mean - reach * factor * spread),
        np.exp(mean + reach * factor * spread),
        expm1(growth),
        (expm1(ends[0]), expm1(ends[1])),
        sum(len(test[0]) for test in tests),
        held,
        error,
    )


Backtest = tuple[Floats, Floats]
"""Absolute errors over the process' standard deviation, and absolute relative errors."""


def _backtests(at: Floats, values: Floats, scales: Scales) -> list[Backtest]:
    """Return the errors of forecasts of a week, or of what is known of it, from before each of the last days."""
    found = []
    for days in range(1, ORIGINS + 1):
        before = at <= at[-1] - days * HOURS_PER_DAY
        if before.sum() < LEAST_TRAINED_DAYS * HOURS_PER_DAY:
            break
        mean, spread = _Process(at[before], values[before], scales).at(at[~before])
        missed = values[~before] - mean
        found.append((np.abs(missed) / spread, np.abs(np.expm1(-missed))))
    return found


def _factor(missed: Sequence[float]) -> float:
    """Return the factor on the standard deviation with which SHARE of the errors lie within the interval."""
    if not missed:
        return 1.0
    reach = float(np.quantile(missed, SHARE)) / normal_quantile((1 + SHARE) / 2)
    return min(WIDEST, max(NARROWEST, reach))


def _scores(tests: Sequence[Backtest]) -> tuple[float | None, float | None]:
    """Return the share of the hours within intervals set by the other backtests, and the median relative error."""
    if len(tests) < 2:
        return None, None
    reach = normal_quantile((1 + SHARE) / 2)
    held = [
        one <= reach * _factor([value for other in tests if other is not test for value in other[0]])
        for test in tests
        for one in test[0]
    ]
    return float(np.mean(held)), float(np.median(np.concatenate([test[1] for test in tests])))
