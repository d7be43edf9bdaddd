"""Lengths of prompts and answers, estimated from what a server counts: mean and spread.

A histogram gives an exact mean; its spread is estimated from buckets that double in width. The length of answers
that have not ended yet is estimated from how many ended, and when: a request makes a token a step whatever the
others do, so scrapes show how many tokens a request makes between them.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import expm1, inf, sqrt

import numpy as np
from numpy.typing import NDArray

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


Floats = NDArray[np.float64]

QUANTILES, MOST_STARTS, ROUNDS = 100, 1000, 30
"""Answers and moments that stand for all, and how often their law is mended."""
ANSWERS_BEFORE = 3.0
"""Before the first page a server is taken to have run evenly for as many answers: few take longer."""


@dataclass(frozen=True, slots=True)
class TokenProgress:
    """Of each page, from the first: tokens that a request has made, and requests that began and ended, since then."""

    tokens: Floats
    begun: Floats
    ended: Floats
    running: tuple[float, float]
    """Requests at the first page and at the last."""

    def starts(self) -> Floats:
        """Of the requests that began: tokens that others had made since the first page."""
        number = np.arange(0.5, self.begun[-1])
        found: Floats = np.interp(number, self.begun, self.tokens)
        return found


def all_answers(mean: float, cv: float, pace: TokenProgress) -> tuple[float, float]:
    """(mean, spread over mean) of the answers [tokens] of all requests, where *mean* and *cv* are of those that ended.

    On a server that fills these are the short ones. Expectation maximization for a lognormal law (Dempster, Laird and
    Rubin, J. R. Stat. Soc. B 39, 1977): what runs is as long as the law says of what began then and has not ended.
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
    """What each request that runs at the first page has yet to make [tokens], rising.

    Of those that ended since, all but as many as the law lets end of those that began since; the others end later.
    """
    made = pace.tokens[:, None] - pace.starts()
    new = np.searchsorted(mean * _shape(cv), made, side="right").sum(axis=1) / QUANTILES
    old = np.maximum.accumulate(np.clip(pace.ended - new, 0.0, pace.running[0]))
    number = np.arange(0.5, pace.running[0])
    later = pace.tokens[-1] + mean * (number - old[-1]) / max(1.0, pace.running[0])
    found: Floats = np.where(number <= old[-1], np.interp(number, old, pace.tokens), later)
    return found


def _shape(cv: float) -> Floats:
    """Lognormal answers over their mean, at even quantiles."""
    from scipy.special import ndtri  # slow to import

    sigma = np.sqrt(np.log1p(cv**2))
    found: Floats = np.exp(ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES) * sigma - sigma**2 / 2)
    return found
