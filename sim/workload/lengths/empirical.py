"""Lengths as they were seen in real traffic."""

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from sim.spec import Positive
from sim.workload.lengths.clip import Clipped
from sim.workload.published import length_table


class Empirical(Clipped):
    """A published quantile table. Prompts and answers are drawn independently, even where one trace gives both."""

    random: ClassVar[bool] = True

    distribution: Literal["empirical"]
    table: str
    """`<id>/prompt`, `<id>/output` or `<id>/total` with an id in data/workloads, for example azure-2023-conv/prompt."""
    scale: Positive = 1.0
    """Factor on every length, before clipping: longer prompts as a what-if, or the prompt's share of a total."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens at the cumulative probabilities *u*. Raises UnknownId."""
        return self.whole_tokens(self.scale * length_table(self.table).at(u))

    def describe(self) -> str:
        """Half a sentence."""
        factor = "" if self.scale == 1 else f" times {self.scale:g}"
        return f"as in {self.table}{factor}{self.limits()}"
