"""A pile of work that is there from the start: batch jobs, offline throughput."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Count, Spec
from sim.workload.streams import Streams


class Burst(Spec):
    """All requests arrive at time 0."""

    random: ClassVar[bool] = False

    process: Literal["burst"]
    num_requests: Count
    """Requests in the pile."""

    def arrivals_s(self, streams: Streams, horizon_s: float | None) -> NDArray[np.float64]:
        """Arrival times, all zero."""
        return np.zeros(self.num_requests)

    def mean_rate_rps(self) -> None:
        """A pile has no rate."""
        return

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.num_requests} requests at once"
