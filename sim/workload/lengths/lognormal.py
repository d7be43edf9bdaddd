"""Lognormal lengths: the usual shape of prompts and answers, many short and a long tail."""

from math import log, log1p
from typing import ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from sim.spec import NonNegative, Positive
from sim.workload.lengths.clip import LONGEST, Clipped


class Lognormal(Clipped):
    """exp(mu + sigma Z) with Z standard normal; sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2 / 2.

    `mean`, `cv` and `sigma` are those of the law before clipping and rounding: a tight `max` lowers the mean of what is
    drawn.
    """

    random: ClassVar[bool] = True

    distribution: Literal["lognormal"]
    mean: Positive
    """Mean before clipping [tokens]."""
    cv: NonNegative | None = None
    """Standard deviation over mean, before clipping. Either this or `sigma`."""
    sigma: NonNegative | None = None
    """Standard deviation of the logarithm. Either this or `cv`."""

    @model_validator(mode="after")
    def _one_spread_is_given(self) -> Self:
        if (self.cv is None) == (self.sigma is None):
            raise ValueError("needs one of cv and sigma" + ("" if self.cv is None else ", not both"))
        return self

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Tokens at the cumulative probabilities *u*."""
        from scipy.special import ndtri  # slow to import; a scenario is also read without being run

        variance = self.sigma**2 if self.sigma is not None else log1p((self.cv or 0.0) ** 2)
        exponent = log(self.mean) - variance / 2 + variance**0.5 * ndtri(u)
        return self.whole_tokens(np.exp(np.minimum(exponent, log(2 * LONGEST))))

    def describe(self) -> str:
        """Half a sentence."""
        spread = f"sigma {self.sigma:g}" if self.sigma is not None else f"cv {self.cv:g}"
        return f"lognormal, mean {self.mean:g} ({spread}){self.limits()} tokens"
