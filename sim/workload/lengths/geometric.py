"""Memoryless lengths: every token is the last one with the same probability."""

from math import log1p
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from sim.spec import Positive
from sim.workload.lengths.clip import Clipped


class Geometric(Clipped):
    """P(n) = p (1 - p)^(n-1) for n = 1, 2, ... with p = 1/mean; the exponential law of whole tokens."""

    random: ClassVar[bool] = True

    distribution: Literal["geometric"]
    mean: Annotated[Positive, Field(ge=1)]
    """Mean before clipping [tokens]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens at the cumulative probabilities *u*."""
        if self.mean == 1:
            return self.whole_tokens(np.ones(len(u)))
        return self.whole_tokens(np.ceil(np.log1p(-u) / log1p(-1 / self.mean)))

    def describe(self) -> str:
        """Half a sentence."""
        return f"geometric, mean {self.mean:g}{self.limits()} tokens"
