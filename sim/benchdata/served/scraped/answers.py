"""How long answers are that nobody has seen the end of, from how many ended, and when.

A request makes a token a step whatever the others do, so that pages tell how many tokens a request makes between them.
"""

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

QUANTILES, MOST_STARTS, ROUNDS = 100, 1000, 30
"""Answers and moments that stand for all, and how often their law is mended."""
ANSWERS_BEFORE = 3.0
"""Before the first page a server is taken to have run evenly for as many answers: few take longer."""


@dataclass(frozen=True, slots=True)
class Pace:
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


def all_answers(mean: float, cv: float, pace: Pace) -> tuple[float, float]:
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


def remaining_answers(mean: float, cv: float, pace: Pace) -> Floats:
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
