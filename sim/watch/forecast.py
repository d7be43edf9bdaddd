"""Forecast of the request rate: trend with hours of the day and of the week, and intervals from a backtest.

The logarithm of an hour's rate is a Gaussian process: a line in time, profiles of the day and of the week, deviations
of the hours of the week from them, a mean-reverting level and noise. Its scales maximise the likelihood of
the last FITTED hours, and it rests on the last HISTORY weeks. With two weeks of hours, such priors shrink what they do
not determine, where a seasonal ARIMA model or a regression on 168 hours would fit the noise. It needs nothing beside
numpy and scipy, and missing hours do not disturb it.

The trend is exponential (the line), or linear: then the line is replaced by log(1 + s t) and its derivative by s, with
the slope s of the exponential fit at the middle of the history (one Gauss-Newton step). Daily and weekly profiles are
factors in both. The linear trend is chosen where the mean absolute error of its forecasts, from before each of the last
days and the last third and half of the history, is below CLEARER of the exponential trend's. Two weeks seldom tell
them apart; the exponential trend then reaches a capacity earlier.

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
CHOSEN_FROM = (2, 3)
"""Origins of the backtests that choose the trend, besides the last days: from before the last half and third."""
CLEARER = 0.95
"""Largest error of the linear trend's backtest, as a fraction of the exponential trend's, with which it is chosen."""
LOWEST = 0.05
"""Lowest level of a falling linear trend, as a fraction of the level at the middle of the history."""
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
    """Growth of the median in the next week, as a fraction."""
    growth_interval: tuple[float, float]
    """80 % interval of the growth per week."""
    backtested: int
    """Forecast hours of the backtest; 0 where the history is too short for one."""
    held: float | None
    """Share of the backtest's hours within intervals that the other backtests set; None without a backtest."""
    error: float | None
    """Median absolute error of the backtest, as a fraction of the rate."""
    linear: bool = False
    """True if the trend is linear, False if exponential."""
    trend_errors: tuple[float, float] | None = None
    """Mean absolute error of the backtest with an exponential and with a linear trend, in logarithms."""


@dataclass(frozen=True, slots=True)
class _Trend:
    """Trend in time from the middle of the history."""

    middle: float
    """Middle of the history [h since 1970]."""
    slope: float | None = None
    """Growth per week of a linear trend over its level at the middle, about which the process is linearised.

    None: the trend is exponential.
    """

    def offset(self, at: Floats) -> Floats:
        """Return the logarithm of the linearised trend; zero for an exponential one."""
        return np.zeros(len(at)) if self.slope is None else np.log(self._level(at))

    def basis(self, at: Floats) -> Floats:
        """Return the derivative of the trend's logarithm by its growth per week."""
        return self._weeks(at) if self.slope is None else self._weeks(at) / self._level(at)

    def growth(self, change: float, last: float) -> float:
        """Return the growth in the week after the hour *last*, as a fraction of the level there.

        *change* is the growth of the logarithm per week, or what is added to the slope of a linear trend.
        """
        if self.slope is None:
            return expm1(change)
        slope, weeks = self.slope + change, (last - self.middle) / HOURS_PER_WEEK
        return slope / max(LOWEST, 1 + slope * weeks)

    def _level(self, at: Floats) -> Floats:
        return np.maximum(LOWEST, 1 + (self.slope or 0.0) * self._weeks(at))

    def _weeks(self, at: Floats) -> Floats:
        return (at - self.middle) / HOURS_PER_WEEK


class _Kernel:
    """Covariances of the process between the hours *at* and *other*, as a function of its scales."""

    def __init__(self, at: Floats, other: Floats, trend: _Trend) -> None:
        apart = at[:, None] - other[None, :]
        # level and trend are independent at the middle of the history
        grown = np.multiply.outer(trend.basis(at), trend.basis(other))
        self._fixed = LEVEL_SD**2 + TREND_SD**2 * grown + DAY_SD**2 * (apart % HOURS_PER_DAY == 0)
        self._fixed += WEEKDAY_SD**2 * np.exp(-np.abs(np.sin(np.pi * apart / HOURS_PER_WEEK)) / WEEKDAY_REACH)
        self._week = apart % HOURS_PER_WEEK == 0
        self._apart = np.abs(apart)

    def at(self, scales: Scales) -> Floats:
        """Return the covariances, without noise."""
        level = scales.level**2 * np.exp(-self._apart / scales.memory_h)
        return np.asarray(self._fixed + scales.week**2 * self._week + level)


class _Process:
    """Gaussian process of the logarithms *values* at the hours *at* (hours since 1970)."""

    def __init__(
        self, at: Floats, values: Floats, scales: Scales, trend: _Trend | None = None, kernel: _Kernel | None = None
    ) -> None:
        self._at, self._scales = at, scales
        self._trend = trend or _Trend(float(at.mean()))
        covariance = (kernel or _Kernel(at, at, self._trend)).at(scales)
        covariance[np.diag_indices(len(at))] += scales.noise**2
        self._root = np.linalg.cholesky(covariance)
        straight = values - self._trend.offset(at)
        self._centre = float(straight.mean())
        self._centred = straight - self._centre
        self._weights = self._solved(self._centred)

    def linear(self) -> "_Process":
        """Return the process of the same values with a linear trend."""
        trend = _Trend(self._trend.middle, self._growth()[0])
        return _Process(self._at, self._centred + self._centre, self._scales, trend)

    def _solved(self, right: Floats) -> Floats:
        from scipy.linalg import cho_solve  # slow to import

        return np.asarray(cho_solve((self._root, True), right, check_finite=False))

    @property
    def log_likelihood(self) -> float:
        """Logarithm of the likelihood, without constants."""
        return float(-0.5 * self._centred @ self._weights - np.log(np.diag(self._root)).sum())

    def at(self, when: Floats) -> tuple[Floats, Floats]:
        """Return means and standard deviations of single hours at *when*."""
        cross, scales = _Kernel(when, self._at, self._trend).at(self._scales), self._scales
        own = LEVEL_SD**2 + TREND_SD**2 * self._trend.basis(when) ** 2 + DAY_SD**2 + WEEKDAY_SD**2
        own = own + scales.week**2 + scales.level**2 + scales.noise**2
        spread = own - np.einsum("ij,ji->i", cross, self._solved(cross.T))
        mean = self._centre + self._trend.offset(when) + cross @ self._weights
        return mean, np.sqrt(np.maximum(spread, scales.noise**2))

    def growth(self, reach: float) -> tuple[float, float, float]:
        """Return the growth in the next week as a fraction: the median, and the ends *reach* deviations away."""
        mean, spread = self._growth()
        low, middle, high = (
            self._trend.growth(mean + far * spread, float(self._at[-1])) for far in (-reach, 0.0, reach)
        )
        return middle, low, high

    def _growth(self) -> tuple[float, float]:
        """Return mean and standard deviation of the coefficient of the trend."""
        cross = TREND_SD**2 * self._trend.basis(self._at)
        spread = float(TREND_SD**2 - cross @ self._solved(cross))
        return float(cross @ self._weights), sqrt(max(0.0, spread))


def _scales(at: Floats, values: Floats) -> Scales:
    """Return the scales with the largest likelihood of the last FITTED hours."""
    from scipy.optimize import minimize  # slow to import

    at, values = at[-FITTED:], values[-FITTED:]
    kernel, start = _Kernel(at, at, _Trend(float(at.mean()))), np.log([0.1, 0.1, 48.0, 0.1])

    def scales(logs: Floats) -> Scales:
        return Scales(*(float(one) for one in np.exp(np.clip(logs, *np.log(BOUNDS).T))))

    def loss(logs: Floats) -> float:
        return -_Process(at, values, scales(logs), kernel=kernel).log_likelihood + 0.5 * float(
            ((logs - start) ** 2).sum()
        )

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
    trials = _trials(at, values, scales)
    errors = _mean_errors(trials)
    linear = errors is not None and errors[1] < CLEARER * errors[0]
    tests = [Backtest(trial.missed[linear], trial.spread[linear]) for trial in trials if trial.recent]
    factor = _factor([one for test in tests for one in test.scaled])
    process = _Process(at, values, scales)
    process = process.linear() if linear else process
    when = at[-1] + np.arange(1, round(days * HOURS_PER_DAY) + 1)
    mean, spread = process.at(when)
    reach = normal_quantile((1 + SHARE) / 2) * factor
    growth, *ends = process.growth(reach)
    held, error = _scores(tests)
    return LoadForecast(
        [int(one) * HOUR_S for one in when],
        np.exp(mean),
        np.exp(mean - reach * spread),
        np.exp(mean + reach * spread),
        growth,
        (ends[0], ends[1]),
        sum(len(test.missed) for test in tests),
        held,
        error,
        linear,
        errors,
    )


@dataclass(frozen=True, slots=True)
class Backtest:
    """Forecast of known hours: errors of the logarithm, and standard deviations of the process."""

    missed: Floats
    spread: Floats

    @property
    def scaled(self) -> Floats:
        """Absolute errors over the standard deviations."""
        return np.abs(self.missed) / self.spread


@dataclass(frozen=True, slots=True)
class _Trial:
    """Forecasts from one origin with an exponential and with a linear trend: errors and standard deviations."""

    recent: bool
    """True if the origin is a whole number of days before the end: the trial sets the width of the intervals."""
    missed: tuple[Floats, Floats]
    spread: tuple[Floats, Floats]


def _trials(at: Floats, values: Floats, scales: Scales) -> list[_Trial]:
    """Return forecasts of the last days, and of the last parts of the history, from the hours before them."""
    span = at[-1] - at[0]
    origins = [(True, days * HOURS_PER_DAY) for days in range(1, ORIGINS + 1)]
    origins += [(False, span / parts) for parts in CHOSEN_FROM]
    found = []
    for recent, hours in origins:
        before = at <= at[-1] - hours
        if before.sum() >= LEAST_TRAINED_DAYS * HOURS_PER_DAY:
            process = _Process(at[before], values[before], scales)
            (mean, spread), (other, wide) = (one.at(at[~before]) for one in (process, process.linear()))
            found.append(_Trial(recent, (values[~before] - mean, values[~before] - other), (spread, wide)))
    return found


def _mean_errors(trials: Sequence[_Trial]) -> tuple[float, float] | None:
    """Return the mean absolute error of each trend; None without a trial."""
    if not trials:
        return None
    first, second = (float(np.mean([np.abs(one.missed[place]).mean() for one in trials])) for place in (0, 1))
    return first, second


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
        one <= reach * _factor([value for other in tests if other is not test for value in other.scaled])
        for test in tests
        for one in test.scaled
    ]
    errors = np.concatenate([np.abs(np.expm1(-test.missed)) for test in tests])
    return float(np.mean(held)), float(np.median(errors))
