"""Intervals over replications: Student's t, the ratio of two sums, and paired differences."""

from collections.abc import Sequence
from functools import cache
from math import atan, cos, inf, isfinite, pi, sin, sqrt

CONFIDENCE = 0.95


def _two_sided_probability(t: float, degrees: int) -> float:
    """P(|T| <= t) for a whole number of degrees of freedom (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    theta = atan(t / sqrt(degrees))
    square = cos(theta) ** 2
    if degrees % 2 == 0:
        term = total = 1.0
        for j in range(1, degrees // 2):
            term *= square * (2 * j - 1) / (2 * j)
            total += term
        return sin(theta) * total
    if degrees == 1:
        return 2.0 * theta / pi
    term = total = cos(theta)
    for j in range(1, (degrees - 1) // 2):
        term *= square * (2 * j) / (2 * j + 1)
        total += term
    return 2.0 / pi * (theta + sin(theta) * total)


@cache
def student_t(degrees: int) -> float:
    """The t that a Student variable with *degrees* >= 1 degrees of freedom stays within with 95 % probability."""
    low, high = 0.0, 13.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _two_sided_probability(middle, degrees) < CONFIDENCE else (low, middle)
    return 0.5 * (low + high)


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


def differ(first: Sequence[float], second: Sequence[float]) -> bool | None:
    """Whether paired replications (same seeds, so same requests) differ at 95 %; None below two pairs."""
    differences = [a - b for a, b in zip(first, second, strict=False)]
    spread = half_width(differences)
    return None if spread is None else abs(mean(differences)) > spread
