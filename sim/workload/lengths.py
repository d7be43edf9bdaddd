"""Distributions of prompt and output length.

A distribution is given by its quantile function: request i of a stream has length quantile(u_i), whatever the
parameters, the fleet or the load, so that two points of a sweep have the same requests. To add a distribution: a class
here, and its name in `Length`.
"""

from functools import lru_cache
from math import log
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from sim.message import Message
from sim.rng import SeededStreams, geometric, log_moments, lognormal
from sim.spec import Count, NonNegative, Positive, Spec, Tagged
from sim.workload.published import length_table
from sim.workload.requests import Streams, uniforms

LONGEST = 2**31 - 1
"""Upper limit of a length, which keeps extreme draws within integers [tokens]."""


class Clipped(Spec):
    """Limits of a length. Values outside are set to the limit rather than drawn again, so limits collect the tails."""

    min: Count = 1
    """Minimum length [tokens]."""
    max: Count | None = None
    """Maximum length [tokens]."""

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError(Message("max ({max}) must not be below min ({min})", self.max, self.min))
        return self

    def whole_tokens(self, lengths: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return *lengths* rounded to the nearest token and limited."""
        return np.rint(np.clip(lengths, self.min, self.max or LONGEST)).astype(np.int64)

    def limits(self) -> str:
        """Return the limits as part of a sentence, such as `, 8 to 3000`; empty without limits."""
        if self.max is None:
            return Message(", at least {min}", self.min) if self.min > 1 else ""
        return f", {self.min} to {self.max}" if self.min > 1 else Message(", at most {max}", self.max)


class Fixed(Spec):
    """Constant length of all requests."""

    random: ClassVar[bool] = False

    distribution: Literal["fixed"]
    value: Count
    """Length [tokens]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]."""
        return np.full(len(u), self.value, dtype=np.int64)

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("{value} tokens", self.value)


class Uniform(Spec):
    """Uniform distribution over whole numbers, including both limits."""

    random: ClassVar[bool] = True

    distribution: Literal["uniform"]
    min: Count
    """Minimum length [tokens]."""
    max: Count
    """Maximum length [tokens]."""

    @model_validator(mode="after")
    def _limits_are_in_order(self) -> Self:
        if self.max < self.min:
            raise ValueError(Message("max ({max}) must not be below min ({min})", self.max, self.min))
        return self

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]."""
        return self.min + np.floor(u * (self.max - self.min + 1)).astype(np.int64)

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("{min} to {max} tokens, equally likely", self.min, self.max)


class Lognormal(Clipped):
    """Lognormal distribution of lengths.

    Notes
    -----
    exp(mu + sigma Z) with Z standard normal, sigma^2 = ln(1 + cv^2) and mu = ln(mean) - sigma^2 / 2. `mean`, `cv` and
    `sigma` are those before limits and rounding: a low `max` lowers the mean of the drawn lengths.

    """

    random: ClassVar[bool] = True

    distribution: Literal["lognormal"]
    mean: Positive
    """Mean before limits are applied [tokens]."""
    cv: NonNegative | None = None
    """Coefficient of variation before limits are applied. Either this or `sigma`."""
    sigma: NonNegative | None = None
    """Standard deviation of the logarithm. Either this or `cv`."""

    @model_validator(mode="after")
    def _one_spread_is_given(self) -> Self:
        if (self.cv is None) == (self.sigma is None):
            raise ValueError("needs one of cv and sigma" + ("" if self.cv is None else ", not both"))
        return self

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]."""
        if self.sigma is not None:
            mu, sigma = log(self.mean) - self.sigma**2 / 2, self.sigma
        else:
            mu, sigma = log_moments(self.mean, self.cv or 0.0)
        return self.whole_tokens(lognormal(u, mu, sigma, 2.0 * LONGEST))

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        spread = f"sigma {self.sigma:g}" if self.sigma is not None else f"cv {self.cv:g}"
        return Message("lognormal, mean {mean:g} ({spread}){limits} tokens", self.mean, spread, self.limits())


class Geometric(Clipped):
    """Geometric distribution: P(n) = p (1 - p)^(n-1) for n = 1, 2, ... with p = 1/mean."""

    random: ClassVar[bool] = True

    distribution: Literal["geometric"]
    mean: Annotated[Positive, Field(ge=1)]
    """Mean before limits are applied [tokens]."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]."""
        return self.whole_tokens(geometric(u, self.mean))

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        return Message("geometric, mean {mean:g}{limits} tokens", self.mean, self.limits())


class Empirical(Clipped):
    """Published quantile table. Prompts and outputs are drawn independently, even if one trace provides both."""

    random: ClassVar[bool] = True

    distribution: Literal["empirical"]
    table: str
    """Table `<id>/prompt`, `<id>/output` or `<id>/total` with an id in data/workloads, for example
    azure-2023-conv/prompt."""
    scale: Positive = 1.0
    """Factor on every length before limits: longer prompts as a what-if, or the prompt's share of a total."""

    def quantile(self, u: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the lengths at the cumulative probabilities *u* [tokens]. Raises UnknownId."""
        return self.whole_tokens(self.scale * length_table(self.table).at(u))

    def describe(self) -> str:
        """Return a description, as part of a sentence."""
        factor = "" if self.scale == 1 else f" times {self.scale:g}"
        return f"as in {self.table}{factor}{self.limits()}"


Length = Annotated[Fixed | Uniform | Lognormal | Geometric | Empirical, Tagged("distribution")]


LengthArrays = tuple[NDArray[np.int64], NDArray[np.int64]]
"""(prompt tokens, output tokens) of consecutive requests."""
KEPT_TOGETHER, MOST_KEPT = 1024, 16_384
"""Requests whose lengths are kept together, and number of requests of a seed beyond which no lengths are kept."""
DRAWN_AT_ONCE = 1 << 18
"""Lengths drawn at a time: arrays between the steps then stay in the CPU's caches."""


class Lengths(Spec):
    """Distributions of prompt and output length, which are drawn independently."""

    prompt: Length
    """Distribution of prompt length [tokens]."""
    output: Length
    """Distribution of output length [tokens]; responses always have exactly this length."""

    def drawn(self, streams: Streams, start: int, count: int) -> LengthArrays:
        """Return the prompt and output tokens of requests *start* to *start + count*.

        The first requests of a seed are kept: fleets and loads that are compared have the same.
        """
        if not isinstance(streams, SeededStreams) or not 0 < count <= start + count <= MOST_KEPT:
            return self._draw(streams, start, count)
        first = start // KEPT_TOGETHER
        parts = [_kept(self, streams, part) for part in range(first, -(-(start + count) // KEPT_TOGETHER))]
        rows = slice(start - first * KEPT_TOGETHER, start - first * KEPT_TOGETHER + count)
        prompts, outputs = zip(*parts, strict=True)
        return np.concatenate(prompts)[rows], np.concatenate(outputs)[rows]

    def _draw(self, streams: Streams, start: int, count: int) -> LengthArrays:
        prompts, outputs = np.empty(count, np.int64), np.empty(count, np.int64)
        for name, length, drawn in (("prompt", self.prompt, prompts), ("output", self.output, outputs)):
            for first in range(0, count, DRAWN_AT_ONCE):
                part = drawn[first : first + DRAWN_AT_ONCE]
                part[:] = length.quantile(uniforms(streams, name, start + first, len(part)))
        return prompts, outputs


@lru_cache(maxsize=64)
def _kept(lengths: Lengths, streams: SeededStreams, part: int) -> LengthArrays:
    """Return the lengths of part number *part* of the requests, `KEPT_TOGETHER` each."""
    return lengths._draw(streams, part * KEPT_TOGETHER, KEPT_TOGETHER)


__all__ = ["Empirical", "Fixed", "Geometric", "Length", "Lengths", "Lognormal", "Uniform"]
