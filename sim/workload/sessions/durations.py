"""How long people think and tools run."""

from math import log, log1p
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.spec import NonNegative, Positive, Spec


class FixedTime(Spec):
    """Always as long."""

    distribution: Literal["fixed"]
    value: NonNegative
    """Duration [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        return np.full(len(u), self.value)

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.value:g} s"


class ExponentialTime(Spec):
    """Memoryless."""

    distribution: Literal["exponential"]
    mean: Positive
    """Mean [s]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        return -self.mean * np.log1p(-u)

    def describe(self) -> str:
        """Half a sentence."""
        return f"exponential, mean {self.mean:g} s"


class LognormalTime(Spec):
    """Many short ones and a long tail: sigma^2 = ln(1 + cv^2), mu = ln(mean) - sigma^2 / 2."""

    distribution: Literal["lognormal"]
    mean: Positive
    """Mean [s]."""
    cv: NonNegative
    """Standard deviation over mean."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds at the cumulative probabilities *u*."""
        from scipy.special import ndtri  # slow to import; a scenario is also read without being run

        variance = log1p(self.cv**2)
        seconds: NDArray[np.float64] = np.exp(log(self.mean) - variance / 2 + variance**0.5 * ndtri(u))
        return seconds

    def describe(self) -> str:
        """Half a sentence."""
        return f"lognormal, mean {self.mean:g} s (cv {self.cv:g})"


Duration = Annotated[FixedTime | ExponentialTime | LognormalTime, Field(discriminator="distribution")]
