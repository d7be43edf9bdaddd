"""Requests as a server's metrics count them while it fills, queues or drains: enough to simulate it as it was."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SEED = 18
QUANTILES, MOST_STARTS, ROUNDS = 100, 1000, 30
"""Lengths and moments that stand for all, and how often their law is mended."""
ANSWERS_BEFORE = 3.0
"""Before the first page a server is taken to have run evenly for as many answers: few take longer."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What came between two pages of metrics."""

    running: float
    waiting: float
    """Requests at the first page."""
    came: tuple[tuple[float, float], ...]
    """(seconds after the first page, requests that had come since), in rising order; the last is the last page."""
    answer_s: float
    """How long a request runs, about."""
    draw: int = 0
    """Number of the draw of what was not counted: moments between two pages, lengths. In the first lengths are even."""

    @property
    def begin_s(self) -> float:
        """When the first page is taken."""
        return ANSWERS_BEFORE * self.answer_s if self.running else 0.0

    @property
    def end_s(self) -> float:
        """When the last one is."""
        return self.begin_s + self.came[-1][0]

    def generator(self) -> np.random.Generator:
        """Fresh, of its draw."""
        return np.random.default_rng((SEED, self.draw))

    def arrivals_s(self) -> Floats:
        """When requests come, rising: evenly before the first page, at random moments between two pages."""
        answers = min(ANSWERS_BEFORE, self.waiting / max(1.0, self.running))  # that the queue takes
        before = _evenly(0.0, self.begin_s, ANSWERS_BEFORE * self.running)
        queued = _evenly(max(0.0, self.begin_s - answers * self.answer_s), self.begin_s, self.waiting)
        generator = self.generator()
        moments = [np.sort(np.concatenate([before, queued]))]
        since_s, number = 0.0, 0
        for until_s, upto in self.came:
            more = max(0, round(upto) - number)
            moments.append(self.begin_s + since_s + (until_s - since_s) * np.sort(generator.random(more)))
            since_s, number = until_s, number + more
        return np.concatenate(moments)


def _evenly(since_s: float, until_s: float, number: float) -> Floats:
    count = round(number)
    return since_s + (np.arange(count) + 0.5) / max(1, count) * (until_s - since_s)


def all_answers(
    ended: tuple[float, float], number: float, running: float, begun: Counted, gap_s: float
) -> tuple[float, float]:
    """(mean, spread over mean) of the answers [tokens] of all requests, where those that ended have *ended*.

    On a server that fills these are the short ones. *number*: requests that ended; *running*: that still ran at the
    last page; *begun*: all, by their first tokens; *gap_s*: between two tokens. Expectation maximization for a
    lognormal law (Dempster, Laird and Rubin, J. R. Stat. Soc. B 39, 1977): what runs is as long as the law says of
    requests that began then and have not ended.
    """
    from scipy.special import ndtri  # slow to import

    starts_s = begun.arrivals_s()
    step = -(-len(starts_s) // MOST_STARTS)
    starts_s = starts_s[::step]
    normal = ndtri((np.arange(QUANTILES) + 0.5) / QUANTILES)
    mean, cv = ended
    for _ in range(ROUNDS):
        sigma = np.sqrt(np.log1p(cv**2))
        tokens = mean * np.exp(normal * sigma - sigma**2 / 2)
        ends_s = starts_s[:, None] + gap_s * tokens
        before, after = (ends_s <= begun.begin_s).sum(axis=0), (ends_s > begun.end_s).sum(axis=0)
        others = before * step / QUANTILES + running * after / max(1, after.sum())
        total = number + others.sum()
        mean = float(number * ended[0] + others @ tokens) / total
        square = float(number * ended[0] ** 2 * (1 + ended[1] ** 2) + others @ tokens**2) / total
        cv = float(np.sqrt(max(0.0, square / mean**2 - 1)))
    return mean, cv
