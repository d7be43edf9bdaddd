"""Estimates of prompt and answer lengths from a server's counters: mean and coefficient of variation.

A histogram gives an exact mean; the variation is estimated from buckets that double in width. The length of answers
that have not ended is estimated from the number and times of those that have: a request produces one token per step
regardless of the others, so scrapes show how many tokens a request produces between them.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import expm1, inf, sqrt

import numpy as np
from numpy.typing import NDArray

from sim.rng import special_function

NARROWEST, WIDEST, CANDIDATES = 0.02, 1.8, 90
"""Range and number of candidate standard deviations of log length, in equal ratios; the narrowest means equal lengths.
"""
SMALLEST_PROBABILITY = 1e-12
"""Smallest probability of a bucket, used for filled buckets that the distribution excludes."""
LEAST, LAST_BUCKET = 0.5, 2.0
"""Lower end of the first bucket; ratio of the ends of the last bucket if it is unbounded."""
POINTS = 2000
SLACK = 0.05
"""Relative tolerance between series of one histogram, which may be collected a moment apart."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values counted between two scrapes."""

    count: float
    total: float
    buckets: tuple[tuple[float, float], ...]
    """Cumulative buckets (upper end, count up to it), ascending."""

    @property
    def mean(self) -> float:
        """Exact mean: sum divided by count."""
        return self.total / self.count

    @property
    def plausible(self) -> bool:
        """True if sum, count and buckets are consistent."""
        low = sum(below * number for below, _, number in self._filled())
        high = sum(end * number for _, end, number in self._filled())
        counted = abs(self.buckets[-1][1] - self.count) <= SLACK * self.count
        return counted and (1 - SLACK) * low <= self.total <= (1 + SLACK) * high

    @property
    def cv(self) -> float:
        """Coefficient of variation (standard deviation divided by mean) of the lengths.

        Within a single bucket, lengths are assumed to spread around their mean as far as the bucket allows; an integer
        mean indicates equal lengths. With several buckets it is the smaller of two estimates. A smooth curve through
        the buckets has an error of at most 5 % for wide distributions of any shape, but overestimates narrow ones that
        fall into two buckets; a lognormal distribution with the exact mean is accurate for these.
        """
        filled = self._filled()
        if len(filled) > 1:
            return min(_smooth_cv(filled), _lognormal_cv(filled, self.mean))
        low, high, _ = filled[0]
        equal = abs(self.mean - round(self.mean)) * self.count < 1 / 2
        return 0.0 if equal else max(0.0, min(self.mean - low, high - self.mean)) / (sqrt(3) * self.mean)

    def _filled(self) -> list[tuple[float, float, float]]:
        """Return (lower end, upper end, number) of each non-empty bucket."""
        edges = pairwise(((0.0, 0.0), *self.buckets))
        return [(low, end, upto - below) for (low, below), (end, upto) in edges if upto > below]


def _smooth_cv(filled: list[tuple[float, float, float]]) -> float:
    """Return the coefficient of variation of the monotone curve through the cumulative counts over log length."""
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
    """Return the coefficient of variation of the lognormal distribution with *mean* that best fits the buckets."""
    number = np.array([one[2] for one in filled])
    with np.errstate(divide="ignore"):
        ends = np.log(np.array([one[:2] for one in filled]) / mean)
    sd = np.geomspace(NARROWEST, WIDEST, CANDIDATES)[:, None, None]
    below = special_function("ndtr")((ends + sd**2 / 2) / sd)
    chance = np.maximum(SMALLEST_PROBABILITY, below[..., 1] - below[..., 0])
    best = int(np.argmax((number * np.log(chance)).sum(axis=1)))
    return sqrt(expm1(float(sd[best, 0, 0]) ** 2)) if best else 0.0


Floats = NDArray[np.float64]

QUANTILES, MOST_STARTS, ROUNDS = 100, 1000, 30
"""Number of quantiles of answer lengths, largest number of start times, and iterations of the estimation."""
ANSWERS_BEFORE = 3.0
"""Assumed time of even load before the first scrape, in mean answers; few answers take longer."""


@dataclass(frozen=True, slots=True)
class TokenProgress:
    """Progress at each scrape since the first: tokens per request, and numbers of started and ended requests."""

    tokens: Floats
    begun: Floats
    ended: Floats
    running: tuple[float, float]
    """Requests running at the first and at the last scrape."""

    def starts(self) -> Floats:
        """Return the start of each started request, in tokens that other requests produced since the first scrape."""
        number = np.arange(0.5, self.begun[-1])
        found: Floats = np.interp(number, self.begun, self.tokens)
        return found


def all_answers(mean: float, cv: float, pace: TokenProgress) -> tuple[float, float]:
    """Estimate the answer lengths of all requests from those that ended.

    On a server whose load grows, the answers that have ended are the short ones.

    Parameters
    ----------
    mean, cv
        Mean [tokens] and coefficient of variation of the answers that ended.
    pace
        Progress between the scrapes.

    Returns
    -------
    tuple
        Mean [tokens] and coefficient of variation of all answers.

    Notes
    -----
    Expectation maximization for a lognormal distribution: running requests are assumed to have the lengths of requests
    that started when they did and have not ended.

    References
    ----------
    .. [1] Dempster, Laird and Rubin, J. R. Stat. Soc. B 39, 1977.

    """
    ended, square = mean, mean**2 * (1 + cv**2)
    before = round(ANSWERS_BEFORE * pace.running[0])
    starts = np.concatenate([-ANSWERS_BEFORE * mean * (np.arange(before) + 0.5) / max(1, before), pace.starts()])
    step = max(1, -(-len(starts) // MOST_STARTS))
    starts = starts[::step]
    for _ in range(ROUNDS):
        answers = mean * _shape(cv)
        ends = starts[:, None] + answers
        gone, still = (ends <= 0).sum(axis=0), (ends > pace.tokens[-1]).sum(axis=0)
        others = gone * step / QUANTILES + pace.running[1] * still / max(1, still.sum())
        number = float(pace.ended[-1] + others.sum())
        mean = float(pace.ended[-1] * ended + others @ answers) / number
        variance = float(pace.ended[-1] * square + others @ answers**2) / number - mean**2
        cv = sqrt(max(0.0, variance)) / mean
    return mean, cv


def remaining_answers(mean: float, cv: float, pace: TokenProgress) -> Floats:
    """Estimate the remaining answer of each request running at the first scrape, ascending [tokens].

    The requests that have ended since are these, apart from the expected number of ends among the requests that
    started since; the others end later.
    """
    made = pace.tokens[:, None] - pace.starts()
    new = np.searchsorted(mean * _shape(cv), made, side="right").sum(axis=1) / QUANTILES
    old = np.maximum.accumulate(np.clip(pace.ended - new, 0.0, pace.running[0]))
    number = np.arange(0.5, pace.running[0])
    later = pace.tokens[-1] + mean * (number - old[-1]) / max(1.0, pace.running[0])
    found: Floats = np.where(number <= old[-1], np.interp(number, old, pace.tokens), later)
    return found


def _shape(cv: float) -> Floats:
    """Return lognormal answer lengths divided by their mean, at evenly spaced quantiles."""
    sigma = np.sqrt(np.log1p(cv**2))
    found: Floats = np.exp(special_function("ndtri")((np.arange(QUANTILES) + 0.5) / QUANTILES) * sigma - sigma**2 / 2)
    return found
