"""Arrivals with independent random gaps."""

from abc import ABC, abstractmethod
from math import inf
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sim.spec import Count, Spec
from sim.workload.streams import Streams

MOST_AT_ONCE = 1 << 20


class OpenLoop(Spec):
    """Requests that arrive whatever the fleet does."""

    random: ClassVar[bool] = True

    num_requests: Count | None = None
    """Stop after this number of requests."""


class Renewal(OpenLoop, ABC):
    """Gaps of mean 1 on a clock that counts expected requests; the rate turns that clock into seconds.

    Gap i is the same number at every rate: at twice the rate the same requests come in half the time. The gaps are the
    stream `arrivals`, taken one after the other.
    """

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times before *horizon_s*, rising. Without a horizon, `num_requests` ends them."""
        if horizon_s is None and self.num_requests is None:
            raise ValueError("arrivals without an end: give horizon_s or num_requests")
        generator = streams("arrivals")
        limit = inf if self.num_requests is None else self.num_requests
        end_s = inf if horizon_s is None else horizon_s
        # A third above expectation, so that one draw is nearly always enough.
        expected = min(limit, 64 + 1.3 * end_s * self.mean_rate_rps())
        times: list[NDArray[np.float64]] = []
        elapsed, drawn = 0.0, 0
        while drawn < limit:
            count = int(min(expected, limit - drawn, MOST_AT_ONCE))
            # The running total goes first into the sum: the same additions in the same order as in one long draw.
            clock = np.cumsum(np.concatenate([[elapsed], self.unit_gaps(generator, count)]))[1:]
            times.append(self.at_s(clock))
            elapsed, drawn = float(clock[-1]), drawn + count
            if times[-1][-1] >= end_s:
                break
        arrivals = np.concatenate(times)
        return arrivals[: np.searchsorted(arrivals, end_s)]

    def unit_gaps(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The next *count* gaps, of mean 1."""
        return generator.standard_exponential(count)

    def at_s(self, clock: NDArray[np.float64]) -> NDArray[np.float64]:
        """When the given number of requests is expected to have arrived [s]."""
        return clock / self.mean_rate_rps()

    @abstractmethod
    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
