"""Every request has the same length."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Count, Spec


class Fixed(Spec):
    """One length for all requests."""

    random: ClassVar[bool] = False

    distribution: Literal["fixed"]
    value: Count
    """Tokens."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens at the cumulative probabilities *u*."""
        return np.full(len(u), self.value, dtype=np.int64)

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.value} tokens"
