"""Automatic warm-up: the marginal standard error rule on batches of five observations (MSER-5).

The series is the number of requests that each arrival finds in the system. In a closed loop that number is constant, so
the series is the time from arrival to last token. Each replication has its own cut, so that a case depends on nothing
but itself.

References
----------
K. P. White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69(6), 1997:
the rule. W. W. Franklin and K. P. White, "Stationarity tests and MSER-5", Winter Simulation Conference 2008: batches
of five, and that a cut beyond the middle means that the run is too short.

"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.records import FleetLog

BATCH = 5
IGNORED_BATCHES = 5
"""Batches at the end of the series that are no candidates for the cut: so few can be alike by chance."""
FEWEST_BATCHES = 20

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WarmupTruncation:
    """Number of observations to leave out at the front of a series."""

    observations: int
    steady: bool
    """True if a steady part was found: the series is long enough and the cut is not beyond its middle."""


def mser5(series: Floats) -> WarmupTruncation:
    """Return the MSER-5 cut of *series*.

    Notes
    -----
    The cut d minimises sum((Y_i - mean of Y_d..Y_n)^2, i >= d) / (n - d)^2 over the means Y of batches of five
    observations. A cut beyond the middle is replaced by half of the series, and `steady` is False.

    Examples
    --------
    >>> decay = 10 * np.exp(-np.arange(400) / 5) + (np.arange(400) * 37 % 101) / 101
    >>> mser5(decay)
    WarmupTruncation(observations=20, steady=True)

    """
    batches = len(series) // BATCH
    if batches < FEWEST_BATCHES:
        return WarmupTruncation(0, False)
    means = series[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    kept = np.arange(batches, 0, -1)
    # sums over the observations kept at each cut; centred, so that the squares lose no digits
    centred = means - means.mean()
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum((centred**2)[::-1])[::-1]
    statistic = (squares - sums**2 / kept) / kept.astype(float) ** 2
    cut = int(np.argmin(statistic[: batches - IGNORED_BATCHES]))
    if cut > batches // 2:
        return WarmupTruncation(batches // 2 * BATCH, False)
    return WarmupTruncation(cut * BATCH, True)


def warmup_of(log: FleetLog, closed_loop: bool) -> tuple[float, bool]:
    """Return the arrival of the first request after the warm-up [s], and whether the series is steady from there on."""
    requests = [request for request in log.requests if not request.rejected]
    arrived_s = np.fromiter((request.arrived_s for request in requests), float, len(requests))
    finished_s = np.fromiter((request.finished_s for request in requests), float, len(requests))
    # a request without an answer is in the system to the end
    left_s = np.where(np.isfinite(finished_s), finished_s, log.end_s)
    cut = mser5(left_s - arrived_s if closed_loop else _found_in_system(arrived_s, left_s))
    if not cut.observations:
        return 0.0, cut.steady
    # requests that arrive together are cut together
    later = arrived_s[arrived_s > arrived_s[cut.observations - 1]]
    return (float(later[0]), cut.steady) if later.size else (0.0, False)


def _found_in_system(arrived_s: Floats, left_s: Floats) -> Floats:
    """Return the number of earlier requests in the system when each request arrives."""
    gone = np.searchsorted(np.sort(left_s), arrived_s, side="right")
    return np.arange(len(arrived_s), dtype=float) - gone
