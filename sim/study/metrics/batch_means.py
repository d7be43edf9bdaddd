"""Confidence intervals from a single run: observations are cut into batches that are treated as replications.

The mean and its variance come from 20 batches, or 10 where 20 are correlated:

    observations in order of time   x_1 ... x_m | x_m+1 ... x_2m | ... | x_19m+1 ... x_20m
    batch means                          y_1    |       y_2      | ... |       y_20

The half-width is t(n - 1), adjusted for skewness, times sqrt(var(y) inflation / n) (1 + 50 / independent draws), where
the inflation corrects for the correlation of order one that is left between batch means.

References
----------
A. M. Law, Simulation Modeling and Analysis, 5th ed., section 9.5.3 (batch means).
G. S. Fishman, "Grouping observations in digital simulation", Management Science 24(5), 1978 (von Neumann's ratio as a
test whether batches depend on each other).
A. Tafazzoli, J. R. Wilson, E. K. Lada and N. M. Steiger, "Performance of Skart: a skewness- and
autoregression-adjusted batch means procedure", INFORMS Journal on Computing 23(2), 2011 (the interval grows with the
skewness and the remaining correlation of the batch means).
R. Willink, "A confidence interval and test for the mean of an asymmetric distribution", Communications in Statistics
34(4), 2005 (the adjustment for skewness).
D. F. Munoz, "On the validity of the batch quantile method", Operations Research Letters 38(3), 2010 (the interval of a
percentile is that of the share of observations below it: J. R. Wilson and A. A. B. Pritsker's inversion).

"""

from collections.abc import Collection, Mapping, Sequence
from math import cbrt, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.study.metrics.statistics import normal_quantile, share_interval, student_t
from sim.study.metrics.window_requests import Floats, WindowRequests

BATCHES = (20, 10)
BATCHES_OF_RANKS = 50
"""Number of batches whose means give the correlation time; many, because the estimate must be precise."""
RANKS_AT_ONCE = 100_000
"""Number of ranks that are set together: few, as they need memory beside the whole series."""
LEAST_DRAWS = 100
"""Least number of independent observations (one per correlation time) from which a run gives an interval."""
LEAST_IN_TAIL = 10
"""Least number of independent observations on the rarer side of a share or a percentile."""
SHORT_RUN = 50
"""Numerator of the relative increase of the half-width, SHORT_RUN / draws: short runs lack rare long excursions."""
MOST_CORRELATED = 0.8
LEAST_IN_SPAN = 2
"""Least mean number of events in one span of a rate."""
MOST_SPANS = 1000
INDEPENDENT = normal_quantile(0.95)
"""Bound on von Neumann's standardised ratio, above which batches are correlated (one-sided, 5 %)."""


def mean_half_width(series: Floats) -> float | None:
    """Return half of the 95 % interval of the mean of *series*, in order of time; None where it cannot be estimated."""
    return _mean_half_width(series, _draws(series))


def percentile_half_width(series: Floats, percent: float) -> float | None:
    """Return half of the 95 % interval of the percentile *percent* of *series*; None where it cannot be estimated."""
    return _percentile_half_widths(series, _draws(series), (percent,))[0]


def half_widths(series: Floats, percents: Sequence[float]) -> list[float | None]:
    """Return half of the 95 % intervals of the mean and of *percents* (numpy's linear percentiles) of *series*.

    None where an interval cannot be estimated. That of the share of observations up to a percentile is turned into one
    of observations; the half-width is its longer side.
    """
    draws = _draws(series)
    return [_mean_half_width(series, draws), *_percentile_half_widths(series, draws, percents)]


def _draws(series: Floats) -> float:
    """Return the `independent_draws` of *series*; 0 where a value is infinite."""
    return independent_draws(series) if np.isfinite(series).all() else 0.0


def _mean_half_width(series: Floats, draws: float) -> float | None:
    if draws < LEAST_DRAWS:
        return None
    highest = series == series.max()
    two_values = bool((highest | (series == series.min())).all())
    rarer = min(share := float(highest.mean()), 1 - share) if two_values else 1.0
    return _half_width(series, draws, LEAST_IN_TAIL / rarer if rarer else np.inf)


def _percentile_half_widths(series: Floats, draws: float, percents: Sequence[float]) -> list[float | None]:
    if draws < LEAST_DRAWS:
        return [None] * len(percents)
    values = np.percentile(series, percents).tolist()
    ends = [_ends(series, draws, percent / 100, value) for percent, value in zip(percents, values, strict=True)]
    found = [(place, one) for place, one in enumerate(ends) if one is not None]
    halves: list[float | None] = [None] * len(percents)
    if found:
        places, shares = zip(*found, strict=True)
        for place, (low, high) in zip(places, np.quantile(series, shares).tolist(), strict=True):
            halves[place] = max(values[place] - low, high - values[place])
    return halves


def _ends(series: Floats, draws: float, share: float, value: float) -> tuple[float, float] | None:
    """Return the interval of the *share* of *series* up to *value*; None where it leaves the observations."""
    needed = LEAST_IN_TAIL / min(share, 1 - share)
    ends = share_interval(share, _half_width((series <= value).astype(float), draws, needed))
    return ends if ends and 1 / series.size < ends[0] <= ends[1] < 1 - 1 / series.size else None


def rate_half_width(times_s: Floats, amounts: Floats, start_s: float, end_s: float) -> float | None:
    """Return half of the 95 % interval of the amount per second from *start_s* to *end_s*, by spans of equal length.

    Parameters
    ----------
    times_s
        Times of the events [s].
    amounts
        Amount of each event, such as tokens.
    start_s, end_s
        Window [s].

    Returns
    -------
    float or None
        Half-width [amount/s]; None where there are too few events.

    """
    spans = min(MOST_SPANS, len(times_s) // LEAST_IN_SPAN)
    if spans < LEAST_DRAWS or end_s <= start_s:
        return None
    sums, _ = np.histogram(times_s, spans, (start_s, end_s), weights=amounts)
    half = _half_width(sums, independent_draws(sums), LEAST_DRAWS)
    return None if half is None else half * spans / (end_s - start_s)


def independent_draws(series: Floats) -> float:
    """Return the effective number of independent observations in *series*: length over correlation time of the ranks.

    Ranks are used because their correlation time is estimated more precisely than that of values with long excursions.
    """
    if len(series) < LEAST_DRAWS:
        return 0.0
    # arrays as large as the series, which may be most of the memory, are few here
    order = np.argsort(series)
    ordered = series[order]
    differs = ordered[1:] != ordered[:-1]
    del ordered
    ranks = np.empty(len(series))
    if differs.all():
        for start in range(0, len(series), RANKS_AT_ONCE):
            part = order[start : start + RANKS_AT_ONCE]
            ranks[part] = np.arange(start + 1, start + len(part) + 1)
    else:  # equal values have their mean rank
        starts = np.flatnonzero(np.append(True, differs))
        counts = np.append(starts[1:], len(series)) - starts
        ranks[order] = np.repeat(starts + (counts + 1) / 2, counts)
    del order, differs
    spread = float(ranks.var())
    if spread == 0:
        return 0.0
    size = len(ranks) // BATCHES_OF_RANKS
    means = _batch_means(ranks, len(ranks) // size)
    _, squares = _deviations(means)
    variance = squares / (len(means) - 1)
    return len(ranks) / max(1.0, size * variance * _inflation(_lag_one(means, squares)) / spread)


def _half_width(series: Floats, draws: float, least: float) -> float | None:
    """Return half of the interval of the mean, where *draws* are at least *least* and batches are independent."""
    if draws < max(LEAST_DRAWS, least):
        return None
    for count in BATCHES:
        means = _batch_means(series, count)
        deviations, squares = _deviations(means)
        correlation = _lag_one(means, squares)
        if _is_noise(correlation, count):
            variance = squares / (count - 1)
            error = sqrt(variance * _inflation(correlation) / count)
            return _skewed_t(deviations, sqrt(variance)) * error * (1 + SHORT_RUN / draws)
    return None


def _deviations(means: Floats) -> tuple[Floats, float]:
    """Return the deviations of *means* from their mean, and the sum of the squares."""
    deviations = means - means.mean()
    return deviations, float((deviations**2).sum())


def _batch_means(series: Floats, count: int) -> Floats:
    """Return the means of the last *count* batches of equal size."""
    size = len(series) // count
    means: Floats = series[len(series) - count * size :].reshape(count, size).mean(axis=1)
    return means


def _inflation(correlation: float) -> float:
    """Return the factor of the variance of the mean of correlated batches, an autoregressive series of order one."""
    correlation = min(max(correlation, 0.0), MOST_CORRELATED)
    return (1 + correlation) / (1 - correlation)


def _skewed_t(deviations: Floats, spread: float) -> float:
    """Return Student's t for the longer side of the interval of a skewed mean, adjusted as Willink does.

    *deviations* are those of the batch means from their mean, and *spread* is their standard deviation.
    """
    count, t = len(deviations), student_t(len(deviations) - 1)
    if spread == 0:
        return t
    third = float((deviations**3).sum()) * count / ((count - 1) * (count - 2))
    lean = abs(third) / spread**3 / (6 * sqrt(count))
    return t if lean < 1e-6 else max(abs(cbrt(1 + 6 * lean * (side - lean)) - 1) / (2 * lean) for side in (t, -t))


def _lag_one(values: Floats, squares: float) -> float:
    """Return the correlation of neighbours by von Neumann's ratio, whose mean is 0 where they are independent.

    C = 1 - sum((x_i - x_i+1)^2) / (2 squares), where *squares* is sum((x_i - mean)^2).
    """
    return 1 - float(((values[1:] - values[:-1]) ** 2).sum()) / (2 * squares) if squares else 0.0


def independent(values: Floats) -> bool:
    """Return whether neighbours among *values* are no more alike than any two of them, by von Neumann's ratio."""
    return _is_noise(_lag_one(values, _deviations(values)[1]), len(values))


def _is_noise(correlation: float, count: int) -> bool:
    """Return whether *count* independent values often have a von Neumann's ratio as large as *correlation*.

    The ratio has the variance (n - 2) / (n^2 - 1) for independent values.
    """
    return bool(correlation * ((count**2 - 1) / (count - 2)) ** 0.5 <= INDEPENDENT)


def rate_intervals(
    cohort: WindowRequests, good: NDArray[np.bool_], names: Collection[str] | None = None
) -> dict[str, float | None]:
    """Return half-widths of 95 % intervals of rates, by column; *good* marks the requests within the limits.

    *names* are the columns to return; None: all.
    A request's tokens are counted when it finishes: over a span of many requests the difference averages out.
    """
    served, ones = cohort.served(), np.ones(len(cohort.arrived_s))
    events: Mapping[str, tuple[Floats, NDArray[Any], NDArray[np.bool_]]] = {
        "offered_rps": (cohort.arrived_s, ones, cohort.measured),
        "requests_per_s": (cohort.finished_s, ones, served),
        "goodput_rps": (cohort.arrived_s, ones, good & cohort.measured),
        "output_tokens_per_s": (cohort.finished_s, cohort.output_tokens, served),
        "total_tokens_per_s": (cohort.finished_s, cohort.tokens, served),
        "good_output_tokens_per_s": (cohort.finished_s, cohort.output_tokens, served & good),
    }
    window = (cohort.start_s, cohort.end_s)
    return {
        name: rate_half_width(dates[members], amounts[members].astype(float), *window)
        for name, (dates, amounts, members) in events.items()
        if names is None or name in names
    }
