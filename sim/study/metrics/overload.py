"""Whether more and more requests are in the system through the whole window: the load is then more than the fleet can
serve, and every latency depends on how long one looks.

One run: the window is cut into equal parts, and the change of the number in the system over each part is an observation
of the drift. It grows if the sum of the changes is more than chance would bring (Student, one-sided), over the window
and over its second half; batching lets the noise be that of this traffic, bursty or regular. And requests must be left
waiting: a fleet that merely fills up starts each at once. Several runs: the same question to the growth of each.

A short window seldom shows that for certain. Growth is likely where the last quarter of the window has more requests in
the system, on average, than the quarter before its middle, by more than the chance of requests that come one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.study.metrics.statistics import half_width, mean

PARTS = 20
CERTAINTY, CERTAINTY_OF_HALF = 0.99, 0.95
"""That the growth of a single run is none of chance."""
LIKELY = 1.5
"""Standard errors that a growth exceeds which is likely, but not certain."""
LEAST_GROWTH, GROWTH_SHARE = 10, 0.02
"""Growth by fewer requests, or by less than this share of those that arrive, is not overload."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """How the number of requests in the system changed from the start of the window to its end."""

    requests: int
    certain: bool
    """It grows without end, as far as one run can show."""
    waiting: int = 0
    """By how many of them the queue for a seat grew."""
    late: float = 0.0
    """Mean number in the system in the last quarter of the window minus that in the quarter before its middle."""
    late_error: float = 0.0
    """Standard error of the late growth, if requests come and go independently (Poisson numbers)."""


def queue_growth(arrived_s: Floats, started_s: Floats, left_s: Floats, start_s: float, end_s: float) -> Growth:
    """Growth of what requests that *arrived_s*, *started_s* and *left_s* (nan: never) make of [start, end) [s]."""
    edges = np.linspace(start_s, end_s, PARTS + 1)
    arrived = np.searchsorted(np.sort(arrived_s), edges, side="left")
    inside, waiting = arrived - _by(left_s, edges), arrived - _by(started_s, edges)
    total = int(inside[-1] - inside[0])
    left_waiting = int(waiting[-1] - waiting[0])
    certain = (
        total >= _least(float(arrived[-1] - arrived[0]))
        and left_waiting >= LEAST_GROWTH
        and _rises(inside, CERTAINTY)
        and _rises(inside[PARTS // 2 :], CERTAINTY_OF_HALF)
    )
    quarter = PARTS // 4
    middle, last = float(inside[quarter : 2 * quarter + 1].mean()), float(inside[-quarter:].mean())
    return Growth(total, bool(certain), left_waiting, last - middle, (last + middle) ** 0.5)


def _by(dates_s: Floats, edges: Floats) -> NDArray[np.int64]:
    """How many of the dates have come at each edge."""
    return np.searchsorted(np.sort(dates_s[np.isfinite(dates_s)]), edges, side="right")


def _rises(inside: NDArray[np.int64], certainty: float) -> bool:
    """Whether the sum of the steps is larger than chance would have it."""
    from scipy.special import stdtrit  # slow to import

    steps = np.diff(inside)
    chance = float(stdtrit(len(steps) - 1, certainty)) * len(steps) ** 0.5 * float(steps.std(ddof=1))
    return bool(steps.sum() > chance)


def overloaded(
    growths: Sequence[float], waiting: Sequence[float], arrivals: Sequence[float], certain: Sequence[bool]
) -> bool:
    """The verdict over replications: half of the runs are certain, or the mean growth exceeds its 95 % interval and
    requests are left *waiting*.
    """
    if 2 * sum(certain) >= len(certain):
        return True
    spread = half_width(growths)
    grown = spread is not None and mean(growths) > spread and mean(growths) >= _least(mean(arrivals))
    return grown and mean(waiting) >= LEAST_GROWTH


def likely_growing(late: Sequence[float], errors: Sequence[float], arrivals: Sequence[float]) -> bool:
    """Whether the number in the system seems to grow towards the end of the windows, by the mean of all runs."""
    if not late:
        return False
    chance = LIKELY * float(np.hypot.reduce(errors)) / len(errors)
    return mean(late) > chance and mean(late) >= _least(mean(arrivals))


def _least(arrivals: float) -> float:
    return max(LEAST_GROWTH, GROWTH_SHARE * arrivals)
