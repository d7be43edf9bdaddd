"""From a length that may be any positive number to whole tokens between two limits."""

from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from sim.spec import Count, Spec

LONGEST = 2**31 - 1
"""Tokens; keeps the far tail of a wild distribution an integer. No context comes near it."""


class Clipped(Spec):
    """A length outside the limits becomes the limit itself: it is not drawn again, so the limits collect the tails."""

    min: Count = 1
    """Shortest length [tokens]."""
    max: Count | None = None
    """Longest length [tokens]."""

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) must not be below min ({self.min})")
        return self

    def whole_tokens(self, lengths: NDArray[np.float64]) -> NDArray[np.int64]:
        """*lengths* rounded to the nearest token and clipped."""
        return np.rint(np.clip(lengths, self.min, self.max or LONGEST)).astype(np.int64)

    def limits(self) -> str:
        """For a sentence: `, 8 to 3000`, empty without limits."""
        if self.max is None:
            return f", at least {self.min}" if self.min > 1 else ""
        return f", {self.min} to {self.max}" if self.min > 1 else f", at most {self.max}"
