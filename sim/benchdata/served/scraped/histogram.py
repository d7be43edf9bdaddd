"""A histogram of a server. Its mean is exact; its spread is guessed from buckets that double in width."""

from dataclasses import dataclass
from itertools import pairwise
from math import expm1, inf, sqrt

import numpy as np

NARROWEST, WIDEST, TRIED = 0.02, 1.8, 90
"""Standard deviations of a length's logarithm that are tried, in equal ratios; the narrowest stands for equal ones."""
LEAST_CHANCE = 1e-12
"""Of a bucket in which something lies that the law does not expect."""
LEAST, LAST_BUCKET = 0.5, 2.0
"""Lower end of the first bucket; upper end of the one without one, over its lower end."""
POINTS = 2000
SLACK = 0.05
"""Series of one histogram may have been collected a moment apart."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """What fell into it between two scrapes."""

    count: float
    total: float
    buckets: tuple[tuple[float, float], ...]
    """(upper end, count up to it), from the lowest."""

    @property
    def mean(self) -> float:
        """Exact: the sum over the count."""
        return self.total / self.count

    @property
    def plausible(self) -> bool:
        """Whether sum, count and buckets can be of the same values."""
        low = sum(below * number for below, _, number in self._filled())
        high = sum(end * number for _, end, number in self._filled())
        counted = abs(self.buckets[-1][1] - self.count) <= SLACK * self.count
        return counted and (1 - SLACK) * low <= self.total <= (1 + SLACK) * high

    @property
    def cv(self) -> float:
        """Standard deviation over mean of lengths.

        In one bucket lengths lie as far around their mean as it lets them; a mean that is a whole number is that of
        equal ones. In several it is the smaller of two guesses. A smooth curve through the buckets is within a
        twentieth of wide laws, whatever their shape, but takes lengths that differ little and lie in two buckets for
        wide ones; a lognormal law with the exact mean is right about these.
        """
        filled = self._filled()
        if len(filled) > 1:
            return min(_smooth_cv(filled), _lognormal_cv(filled, self.mean))
        low, high, _ = filled[0]
        equal = abs(self.mean - round(self.mean)) * self.count < 1 / 2
        return 0.0 if equal else max(0.0, min(self.mean - low, high - self.mean)) / (sqrt(3) * self.mean)

    def _filled(self) -> list[tuple[float, float, float]]:
        """(lower end, upper end, number) of each bucket that holds anything."""
        edges = pairwise(((0.0, 0.0), *self.buckets))
        return [(low, end, upto - below) for (low, below), (end, upto) in edges if upto > below]


def _smooth_cv(filled: list[tuple[float, float, float]]) -> float:
    """Of the monotone curve through the cumulative counts, over the logarithm of the length."""
    from scipy.interpolate import PchipInterpolator  # slow to import

    upto, edges = 0.0, {max(LEAST, filled[0][0]): 0.0}
    for low, end, number in filled:
        edges.setdefault(max(LEAST, low), upto)
        upto += number
        edges[end if end < inf else LAST_BUCKET * low] = upto
    curve = PchipInterpolator(np.log(list(edges)), np.array(list(edges.values())) / upto)
    at = np.linspace(np.log(min(edges)), np.log(max(edges)), POINTS)
    share, length = np.diff(curve(at)), np.exp((at[1:] + at[:-1]) / 2)
    mean = float(share @ length)
    return sqrt(max(0.0, float(share @ length**2) / mean**2 - 1))


def _lognormal_cv(filled: list[tuple[float, float, float]], mean: float) -> float:
    """Of the lognormal law with this mean under which the buckets are the likeliest."""
    from scipy.special import ndtr

    number = np.array([one[2] for one in filled])
    with np.errstate(divide="ignore"):
        ends = np.log(np.array([one[:2] for one in filled]) / mean)
    sd = np.geomspace(NARROWEST, WIDEST, TRIED)[:, None, None]
    below = ndtr((ends + sd**2 / 2) / sd)
    chance = np.maximum(LEAST_CHANCE, below[..., 1] - below[..., 0])
    best = int(np.argmax((number * np.log(chance)).sum(axis=1)))
    return sqrt(expm1(float(sd[best, 0, 0]) ** 2)) if best else 0.0
