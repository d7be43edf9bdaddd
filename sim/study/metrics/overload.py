"""Test for overload: growth of the number of requests in the system through the whole window.

An overloaded fleet is offered more than it can serve, and every latency depends on the length of the run.

One run: the window is cut into 20 equal parts, and the change of the number in the system over each part is an
observation of the drift. The run is overloaded if the sum of the changes is larger than chance explains (Student's t,
one-sided), both over the window and over its second half, and if requests are left waiting: in a fleet that merely
fills up every request starts at once. Several runs: the same test on the growth of each run.

A short window seldom gives certainty. Growth is likely where the mean number in the system in the last quarter of the
window exceeds that in the quarter before its middle by more than the noise of independent arrivals explains.

    start        1/4      middle      3/4        end
      |           | reference |        |  late    |
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.rng import special_function
from sim.study.metrics.statistics import half_width, mean

PARTS = 20
CERTAINTY, CERTAINTY_OF_HALF = 0.99, 0.95
"""Confidence levels of the one-sided tests on the whole window and on its second half."""
LIKELY = 1.5
"""Standard errors that a likely, but not certain, growth exceeds."""
LEAST_GROWTH, GROWTH_SHARE = 10, 0.02
"""Growth below this number of requests, or below this share of the arrivals, is not overload."""
SORTED_AT_ONCE = 2**20
"""Number of timestamps that are sorted together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """Change of the number of requests in the system from the start to the end of the window."""

    requests: int
    certain: bool
    """True if the test of the single run finds overload."""
    waiting: int = 0
    """Growth of the waiting queue [requests]."""
    late: float = 0.0
    """Mean number in the system in the last quarter of the window minus that in the quarter before its middle."""
    late_error: float = 0.0
    """Standard error of the late growth for independent arrivals and departures (Poisson)."""


def queue_growth(arrived_s: Floats, started_s: Floats, left_s: Floats, start_s: float, end_s: float) -> Growth:
    """Return the growth of the number in the system over [start, end), from the timestamps of the requests.

    Parameters
    ----------
    arrived_s, started_s, left_s
        Arrival, first step and departure of each request [s]; nan where it never happened.
    start_s, end_s
        Window [s].

    """
    edges = np.linspace(start_s, end_s, PARTS + 1)
    arrived = _counts(arrived_s, edges, "left")
    inside, waiting = arrived - _counts(left_s, edges, "right"), arrived - _counts(started_s, edges, "right")
    total = int(inside[-1] - inside[0])
    left_waiting = int(waiting[-1] - waiting[0])
    certain = (
        total >= _least_growth(float(arrived[-1] - arrived[0]))
        and left_waiting >= LEAST_GROWTH
        and _rises(inside, CERTAINTY)
        and _rises(inside[PARTS // 2 :], CERTAINTY_OF_HALF)
    )
    quarter = PARTS // 4
    middle, last = float(inside[quarter : 2 * quarter + 1].mean()), float(inside[-quarter:].mean())
    return Growth(total, bool(certain), left_waiting, last - middle, (last + middle) ** 0.5)


def _counts(times_s: Floats, edges: Floats, side: Literal["left", "right"]) -> NDArray[np.int64]:
    """Return the number of timestamps before each edge (*side* left), or at or before it (right); nan comes never.

    Parts are sorted one by one: a sorted copy of a day of a large fleet would be the peak of the program's memory.
    """
    found = np.zeros(len(edges), dtype=np.int64)
    for first in range(0, len(times_s), SORTED_AT_ONCE):
        found += np.searchsorted(np.sort(times_s[first : first + SORTED_AT_ONCE]), edges, side=side)
    return found


def _rises(inside: NDArray[np.int64], certainty: float) -> bool:
    """Return whether the sum of the changes of *inside* is larger than chance explains at the level *certainty*."""
    steps = np.diff(inside)
    t = float(special_function("stdtrit")(len(steps) - 1, certainty))
    chance = t * len(steps) ** 0.5 * float(steps.std(ddof=1))
    return bool(steps.sum() > chance)


def overloaded(
    growths: Sequence[float], waiting: Sequence[float], arrivals: Sequence[float], certain: Sequence[bool]
) -> bool:
    """Return whether the fleet is overloaded, over the replications of a point.

    It is where half of the runs are certain, or where the mean growth exceeds its 95 % interval and requests are left
    waiting.

    Parameters
    ----------
    growths
        Growth of the number in the system in each run [requests].
    waiting
        Growth of the waiting queue in each run [requests].
    arrivals
        Requests that arrived in each run.
    certain
        Whether the single run shows overload.

    """
    if 2 * sum(certain) >= len(certain):
        return True
    spread = half_width(growths)
    grown = spread is not None and mean(growths) > spread and mean(growths) >= _least_growth(mean(arrivals))
    return grown and mean(waiting) >= LEAST_GROWTH


def likely_growing(late: Sequence[float], errors: Sequence[float], arrivals: Sequence[float]) -> bool:
    """Return whether the number in the system probably grows late in the windows, by the mean of all runs."""
    if not late:
        return False
    chance = LIKELY * float(np.hypot.reduce(errors)) / len(errors)
    return mean(late) > chance and mean(late) >= _least_growth(mean(arrivals))


def _least_growth(arrivals: float) -> float:
    return max(LEAST_GROWTH, GROWTH_SHARE * arrivals)
