"""Evenly spaced arrivals."""

from math import ceil
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Positive
from sim.workload.arrivals.renewal import OpenLoop
from sim.workload.streams import Streams


class Constant(OpenLoop):
    """Request i arrives at i / rate, the first one at 0."""

    random: ClassVar[bool] = False

    process: Literal["constant"]
    rate_rps: Positive
    """Requests per second."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times before *horizon_s*, rising. Without a horizon, `num_requests` ends them."""
        count = self.num_requests
        if horizon_s is not None:
            fitting = ceil(horizon_s * self.rate_rps) + 1
            count = fitting if count is None else min(count, fitting)
        if count is None:
            raise ValueError("arrivals without an end: give horizon_s or num_requests")
        arrivals = np.arange(count) / self.rate_rps
        return arrivals if horizon_s is None else arrivals[: np.searchsorted(arrivals, horizon_s)]

    def mean_rate_rps(self) -> float:
        """Requests per second."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"evenly spaced arrivals at {self.rate_rps:g} requests/s"
