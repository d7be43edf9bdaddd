"""Gamma arrivals: burstier (cv above 1) or smoother (below 1) than Poisson."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Positive
from sim.workload.arrivals.renewal import Renewal


class Gamma(Renewal):
    """Gamma gaps of shape k = 1/cv^2 and mean 1/rate; cv 1 is Poisson, draw for draw."""

    process: Literal["gamma"]
    rate_rps: Positive
    """Mean requests per second."""
    cv: Positive
    """Standard deviation over mean of the gaps. `burstiness` of vLLM's benchmark is 1/cv^2."""

    def unit_gaps(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """The next *count* gaps, of mean 1."""
        shape = self.cv**-2
        return generator.standard_gamma(shape, count) / shape

    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"gamma arrivals at {self.rate_rps:g} requests/s (cv {self.cv:g})"
