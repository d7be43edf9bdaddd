"""How long prompts and answers are. A new distribution: its class and its name in `Length`.

A distribution is its quantile function: request i of a stream has length quantile(u_i), whatever the parameters,
the fleet or the load, so that two points of a sweep have the same requests.
"""

from math import log, log1p
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.spec import Count, NonNegative, Positive, Spec
from sim.workload.published import length_table

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


Length = Annotated[Fixed | Uniform | Lognormal | Geometric | Empirical, Field(discriminator="distribution")]


class Lengths(Spec):
    """The lengths of prompts and of answers, drawn independently of each other."""

    prompt: Length
    """Prompt tokens."""
    output: Length
    """Output tokens; the answer always has exactly as many."""


__all__ = ["Empirical", "Fixed", "Geometric", "Length", "Lengths", "Lognormal", "Uniform"]
