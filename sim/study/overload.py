"""Whether more and more requests are in the system through the whole window: the load is then more than the fleet can
serve, and every latency depends on how long one looks.

One run: the window is cut into equal parts, and the change of the number in the system over each part is an observation
of the drift. It grows if the sum of the changes is more than chance would bring (Student, one-sided), over the window
and over its second half; batching lets the noise be that of this traffic, bursty or regular. A fleet that merely fills
up holds no more than Little's law, L = lambda W (Operations Research 9(3), 1961), allows for the latencies of the first
half. Several runs: the same question to the growth of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sim.study.statistics import half_width, mean

PARTS = 20
CERTAINTY, CERTAINTY_OF_HALF = 0.99, 0.95
"""That the growth of a single run is none of chance."""
LEAST_GROWTH, GROWTH_SHARE = 10, 0.02
"""Growth by fewer requests, or by less than this share of those that arrive, is no matter of concern."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """How the number of requests in the system changed from the start of the window to its end."""

    requests: int
    certain: bool
    """It grows without end, as far as one run can tell."""


def queue_growth(arrived_s: Floats, left_s: Floats, start_s: float, end_s: float) -> Growth:
    """Growth of what requests that *arrived_s* and *left_s* (nan: never) make of [start, end) [s]."""
    edges = np.linspace(start_s, end_s, PARTS + 1)
    arrived = np.searchsorted(np.sort(arrived_s), edges, side="left")
    left = np.searchsorted(np.sort(left_s[np.isfinite(left_s)]), edges, side="right")
    inside = arrived - left
    total = int(inside[-1] - inside[0])
    arrivals = int(arrived[-1] - arrived[0])
    certain = (
        total >= _least(arrivals)
        and _rises(inside, CERTAINTY)
        and _rises(inside[PARTS // 2 :], CERTAINTY_OF_HALF)
        and inside[-1] > _little(arrived_s, left_s, start_s, end_s)
    )
    return Growth(total, bool(certain))


def _rises(inside: NDArray[np.int64], certainty: float) -> bool:
    """Whether the sum of the steps is larger than chance would have it."""
    steps = np.diff(inside)
    chance = float(stdtrit(len(steps) - 1, certainty)) * len(steps) ** 0.5 * float(steps.std(ddof=1))
    return bool(steps.sum() > chance)


def _little(arrived_s: Floats, left_s: Floats, start_s: float, end_s: float) -> float:
    """Requests that the system would hold if all stayed as long as those that arrive in the first half do."""
    first_half = (arrived_s >= start_s) & (arrived_s < (start_s + end_s) / 2)
    stays_s = np.where(np.isfinite(left_s), left_s, end_s)[first_half] - arrived_s[first_half]
    return float(stays_s.sum()) / ((end_s - start_s) / 2)


def overloaded(growths: Sequence[float], arrivals: Sequence[float], certain: Sequence[bool]) -> bool:
    """The verdict over replications: half of the runs are certain, or the mean growth exceeds its 95 % interval."""
    if 2 * sum(certain) >= len(certain):
        return True
    spread = half_width(growths)
    return spread is not None and mean(growths) > spread and mean(growths) >= _least(mean(arrivals))


def cases_overloaded(metrics: Sequence[Mapping[str, Any]]) -> bool:
    """The verdict over the metrics of all replications of a point."""
    known = ("queue_growth", "requests", "overloaded")
    growths, arrivals, certain = ([one.get(name) or 0 for one in metrics] for name in known)
    return overloaded(growths, arrivals, [bool(flag) for flag in certain])


def _least(arrivals: float) -> float:
    return max(LEAST_GROWTH, GROWTH_SHARE * arrivals)
