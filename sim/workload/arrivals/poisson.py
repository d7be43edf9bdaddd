"""Poisson arrivals: many users who do not know of one another."""

from typing import Literal

from sim.spec import Positive
from sim.workload.arrivals.renewal import Renewal


class Poisson(Renewal):
    """Exponential gaps, gap i = E_i / rate."""

    process: Literal["poisson"]
    rate_rps: Positive
    """Mean requests per second."""

    def mean_rate_rps(self) -> float:
        """Requests per second in the long run."""
        return self.rate_rps

    def describe(self) -> str:
        """Half a sentence."""
        return f"Poisson arrivals at {self.rate_rps:g} requests/s"
