"""Whether the queue grows through the whole window: the load is then more than the fleet can serve, and every waiting
time depends on how long one looks.

One run: the window is cut into equal parts, and the change of the number waiting over each part is an observation of
the drift; the queue grows if the sum of the changes is more than chance would bring (Student, one-sided). Batching lets
the noise be that of this traffic, bursty or regular. Several runs: the same question to the growth of each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from sim.study.statistics import half_width, mean

PARTS = 20
CERTAINTY = 0.99
"""That the growth of a single run is none of chance."""
LEAST_GROWTH, GROWTH_SHARE = 10, 0.02
"""Growth by fewer requests, or by less than this share of those that arrive, is no matter of concern."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Growth:
    """How the number of waiting requests changed from the start of the window to its end."""

    requests: int
    certain: bool
    """It grows without end, as far as one run can tell."""


def queue_growth(arrived_s: Floats, started_s: Floats, start_s: float, end_s: float) -> Growth:
    """Growth of the queue of requests that *arrived_s* and *started_s* (nan: never) within [start, end) [s]."""
    edges = np.linspace(start_s, end_s, PARTS + 1)
    arrived = np.searchsorted(np.sort(arrived_s), edges, side="left")
    started = np.searchsorted(np.sort(started_s[np.isfinite(started_s)]), edges, side="right")
    waiting = arrived - started
    total = int(waiting[-1] - waiting[0])
    chance = float(stdtrit(PARTS - 1, CERTAINTY)) * PARTS**0.5 * float(np.diff(waiting).std(ddof=1))
    in_both_halves = waiting[0] < waiting[PARTS // 2] < waiting[-1]
    arrivals = int(arrived[-1] - arrived[0])
    return Growth(total, bool(in_both_halves and total > chance and total >= _least(arrivals)))


def overloaded(growths: Sequence[float], arrivals: Sequence[float], certain: Sequence[bool]) -> bool:
    """The verdict over replications: each run is certain, or the mean growth exceeds its 95 % interval."""
    if all(certain):
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
