"""Every whole number of tokens between two limits is equally likely."""

from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from sim.spec import Count, Spec


class Uniform(Spec):
    """Equally likely lengths, both limits included."""

    random: ClassVar[bool] = True

    distribution: Literal["uniform"]
    min: Count
    """Shortest length [tokens]."""
    max: Count
    """Longest length [tokens]."""

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be below min ({self.min})")
        return self

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens at the cumulative probabilities *u*."""
        return self.min + np.floor(u * (self.max - self.min + 1)).astype(np.int64)

    def describe(self) -> str:
        """Half a sentence."""
        return f"{self.min} to {self.max} tokens, equally likely"
