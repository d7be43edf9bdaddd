"""Confidence intervals over replications: Student's t, ratios of sums, shares, and paired differences."""

from collections.abc import Sequence
from functools import cache
from math import hypot, inf, isfinite, nan, sqrt
from statistics import NormalDist

from sim.rng import special_function

CONFIDENCE = 0.95
LEAST_FOR_INTERVAL = 3
"""Least number of replications whose spread gives an interval: t is 12.7 for two, 4.3 for three."""


def normal_quantile(share: float) -> float:
    """Return the value below which a standard normal variable stays with probability *share*.

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    return NormalDist().inv_cdf(share)


@cache
def student_t(degrees: int) -> float:
    """Return the 95 % quantile (two-sided) of Student's t with *degrees* >= 1 degrees of freedom."""
    return float(special_function("stdtrit")(degrees, (1 + CONFIDENCE) / 2))


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean; inf where a value is infinite."""
    return sum(values) / len(values) if all(map(isfinite, values)) else inf


def half_width(values: Sequence[float]) -> float | None:
    """Return half of the 95 % interval of the mean; None below LEAST_FOR_INTERVAL values, or where one is infinite."""
    count = len(values)
    if count < LEAST_FOR_INTERVAL or not all(map(isfinite, values)):
        return None
    centre = mean(values)
    variance = sum((value - centre) ** 2 for value in values) / (count - 1)
    return student_t(count - 1) * sqrt(variance / count)


def half_width_within(halves: Sequence[float | None]) -> float | None:
    """Return half of the 95 % interval of the mean over independent runs with the half-widths *halves*.

    None where a run has no half-width.

    Notes
    -----
    The result is sqrt(sum(h_i^2)) / n, which covers at least as often as each run's own interval.

    References
    ----------
    S. K. Banerjee, "Approximate confidence interval for linear functions of means of k populations when the population
    variances are not equal", Sankhya 22, 1960.

    """
    known = [half for half in halves if half is not None]
    return hypot(*known) / len(known) if known and len(known) == len(halves) else None


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float | None]:
    """Return the sum of *tops* over the sum of *bottoms*, and half of its 95 % interval.

    The ratio is inf where the sum of *bottoms* is zero.

    Notes
    -----
    The interval is that of the ratio estimator R: t s / (sqrt(n) mean(bottom)), where s is the standard deviation of
    top - R bottom.

    References
    ----------
    Cochran, Sampling Techniques, section 6.4.

    """
    whole = sum(bottoms)
    if whole == 0:
        return inf, None
    value = sum(tops) / whole
    spread = half_width([top - value * bottom for top, bottom in zip(tops, bottoms, strict=True)])
    return value, None if spread is None else spread * len(bottoms) / whole


def ratio_difference(
    tops: tuple[Sequence[float], Sequence[float]], bottoms: tuple[Sequence[float], Sequence[float]]
) -> tuple[float, float | None]:
    """Return the first ratio of sums minus the second, and half of its 95 % interval, over paired replications.

    Notes
    -----
    Both ratios are linearised around their values, as in `ratio`, and the residuals are subtracted pair by pair.

    """
    values = [ratio(top, bottom)[0] for top, bottom in zip(tops, bottoms, strict=True)]
    if not all(map(isfinite, values)):
        return _difference(*values), None
    residuals = []
    for value, top, bottom in zip(values, tops, bottoms, strict=True):
        scale = sum(bottom) / len(bottom)
        residuals.append([(t - value * b) / scale for t, b in zip(top, bottom, strict=True)])
    return values[0] - values[1], _paired_half_width([a - b for a, b in zip(*residuals, strict=True)])


def paired_difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean of *first* minus that of *second* over paired replications, and half of its 95 % interval."""
    if not all(map(isfinite, [*first, *second])):
        return _difference(mean(first), mean(second)), None
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return mean(differences), _paired_half_width(differences)


def _paired_half_width(differences: Sequence[float]) -> float | None:
    """Return the half-width over pairs; 0 for two pairs without any difference (equal runs)."""
    return 0.0 if len(differences) == 2 and not any(differences) else half_width(differences)


def _difference(first: float, second: float) -> float:
    return nan if first == second else first - second


def differ(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Return whether paired replications (equal seeds, so equal requests) differ at 95 %; None for too few pairs."""
    differences = [a - b for a, b in zip(first, second, strict=False)]
    spread = half_width(differences)
    return None if spread is None else abs(mean(differences)) > spread


def wilson(hits: int, draws: int) -> tuple[float, float]:
    """Return the 95 % interval of a share, after *hits* of *draws* >= 1 independent draws.

    Notes
    -----
    Wilson's score interval, which stays within 0 and 1 and holds near them, too.

    References
    ----------
    E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of the American
    Statistical Association 22, 1927.

    """
    return _score(hits / draws, normal_quantile((1 + CONFIDENCE) / 2) ** 2 / draws)


def share_interval(share: float, half: float | None, draws: int | None = None) -> tuple[float, float] | None:
    """Return the 95 % interval of a *share* whose Student interval has the half-width *half*; None without one.

    Where the share was counted among *draws* observations, the interval is at least as wide as for independent ones.

    Notes
    -----
    Wilson's interval with the effective number of draws share (1 - share) / se^2, and t in place of z.

    References
    ----------
    N. Dean and M. Pagano, "Evaluating confidence interval methods for binomial proportions in clustered surveys",
    Journal of Survey Statistics and Methodology 3(4), 2015.

    """
    if half is None or not 0 <= share <= 1:
        return None
    variance = share * (1 - share)
    low, high = _score(share, half**2 / variance) if variance else (share, share)
    if draws:
        least = wilson(round(share * draws), draws)
        low, high = min(low, least[0]), max(high, least[1])
    return low, high


def _score(share: float, per_draw: float) -> tuple[float, float]:
    """Return the score interval of *share*, where *per_draw* is the squared quantile over the number of draws."""
    centre = (share + per_draw / 2) / (1 + per_draw)
    half = sqrt(per_draw * share * (1 - share) + per_draw**2 / 4) / (1 + per_draw)
    return (max(0.0, centre - half) if share else 0.0), (min(1.0, centre + half) if share < 1 else 1.0)
