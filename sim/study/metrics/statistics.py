"""Intervals over replications: Student's t, the ratio of two sums, and paired differences."""

from collections.abc import Sequence
from math import inf, isfinite, nan, sqrt
from statistics import NormalDist

CONFIDENCE = 0.95


def normal_quantile(share: float) -> float:
    """Return the value below which a standard normal variable stays with probability *share*.

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    return NormalDist().inv_cdf(share)


def student_t(degrees: int) -> float:
    """The t that a Student variable with *degrees* >= 1 degrees of freedom stays within with 95 % probability."""
    from scipy.special import stdtrit  # slow to import

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; inf as soon as one value is."""
    return sum(values) / len(values) if all(map(isfinite, values)) else inf


def half_width(values: Sequence[float]) -> float | None:
    """Half of the 95 % interval of the mean; None below two values, or where one is infinite."""
    count = len(values)
    if count < 2 or not all(map(isfinite, values)):
        return None
    centre = mean(values)
    variance = sum((value - centre) ** 2 for value in values) / (count - 1)
    return student_t(count - 1) * sqrt(variance / count)


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> tuple[float, float | None]:
    """Sum of *tops* over sum of *bottoms*, and half of its 95 % interval.

    The interval is that of the ratio estimator (Cochran, Sampling Techniques, section 6.4): it comes from the spread of
    top - ratio x bottom.
    A sum of zero in *bottoms* gives inf.
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
    """The first ratio of sums less the second, and half of the 95 % interval, over paired replications.

    Both ratios are linearised around their values, as in `ratio`, and the pairs' residuals subtracted.
    """
    values = [ratio(top, bottom)[0] for top, bottom in zip(tops, bottoms, strict=True)]
    if not all(map(isfinite, values)):
        return _difference(*values), None
    residuals = []
    for value, top, bottom in zip(values, tops, bottoms, strict=True):
        scale = sum(bottom) / len(bottom)
        residuals.append([(t - value * b) / scale for t, b in zip(top, bottom, strict=True)])
    return values[0] - values[1], half_width([a - b for a, b in zip(*residuals, strict=True)])


def paired_difference(first: Sequence[float], second: Sequence[float]) -> tuple[float, float | None]:
    """Mean of *first* less mean of *second* over paired replications, and half of its 95 % interval."""
    if not all(map(isfinite, [*first, *second])):
        return _difference(mean(first), mean(second)), None
    differences = [a - b for a, b in zip(first, second, strict=True)]
    return mean(differences), half_width(differences)


def _difference(first: float, second: float) -> float:
    return nan if first == second else first - second


def differ(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Whether paired replications (same seeds, so same requests) differ at 95 %; None below two pairs."""
    differences = [a - b for a, b in zip(first, second, strict=False)]
    spread = half_width(differences)
    return None if spread is None else abs(mean(differences)) > spread


def wilson(hits: int, draws: int) -> tuple[float, float]:
    """The 95 % interval of a share of which *hits* of *draws* >= 1 independent draws were seen.

    The score interval: E. B. Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", Journal of
    the American Statistical Association 22, 1927. It stays within 0 and 1 and holds near them, too.
    """
    z = normal_quantile((1 + CONFIDENCE) / 2)
    share, more = hits / draws, z * z / draws
    centre = (share + more / 2) / (1 + more)
    half = z / (1 + more) * sqrt(share * (1 - share) / draws + more / (4 * draws))
    return (centre - half if hits else 0.0), (centre + half if hits < draws else 1.0)
