"""What may stand in place of a number in a scenario: a distribution, drawn from by its inverse.

Every family has bounded support, so that each value that can be drawn is checked before anything runs: normal and
lognormal are cut at CUT standard deviations (one draw in 16,000 would lie beyond), or closer where `low` or `high` say
so. The numbers drawn are u -> F^-1(u) of one uniform number a draw: the same u gives the same quantile of any family.

Source of the inverses: A. M. Law, "Simulation Modeling and Analysis", 5th ed., section 8.3.
"""

from math import exp, log, sqrt
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, model_validator

from sim.message import Message
from sim.spec import Count, NonNegative, Number, Positive, Spec

CUT = 4.0
Numbers = NDArray[np.float64]


class TriangularSpread(Spec):
    """A least, a most likely and a highest value."""

    low: Number
    mode: Number
    high: Number

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.mode <= self.high:
            raise ValueError(
                Message(
                    "low {low:g}, mode {mode:g} and high {high:g} must stand in rising order",
                    self.low,
                    self.mode,
                    self.high,
                )
            )
        return self

    @property
    def central(self) -> float:
        """The mode."""
        return self.mode

    @property
    def support(self) -> tuple[float, float]:
        """Least and highest value."""
        return self.low, self.high

    def quantile(self, u: Numbers) -> Numbers:
        """Values with the probabilities *u* (0 to 1) below them."""
        a, c, b = self.low, self.mode, self.high
        if a == b:
            return np.full_like(u, a)
        left = a + np.sqrt(u * (b - a) * (c - a))
        right = b - np.sqrt((1 - u) * (b - a) * (b - c))
        return np.asarray(np.where(u < (c - a) / (b - a), left, right))


class UniformSpread(Spec):
    """Any value between two, each as likely as the other."""

    low: Number
    high: Number

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(Message("low {low:g} lies above high {high:g}", self.low, self.high))
        return self

    @property
    def central(self) -> float:
        """The middle."""
        return self.low + 0.5 * (self.high - self.low)

    @property
    def support(self) -> tuple[float, float]:
        """Least and highest value."""
        return self.low, self.high

    def quantile(self, u: Numbers) -> Numbers:
        """Values with the probabilities *u* (0 to 1) below them."""
        return np.asarray(self.low + u * (self.high - self.low))


class NormalSpread(Spec):
    """Gauss's bell, cut."""

    mean: Number
    sd: NonNegative
    """Standard deviation before the cut."""
    low: Number | None = None
    """Nothing is drawn below; left out: mean - 4 sd."""
    high: Number | None = None
    """Nothing is drawn above; left out: mean + 4 sd."""

    @model_validator(mode="after")
    def _mean_inside(self) -> Self:
        _check_mean(self.mean, self.low, self.high)
        return self

    @property
    def central(self) -> float:
        """The mean before the cut, which is the mode."""
        return self.mean

    @property
    def support(self) -> tuple[float, float]:
        """Where it is cut."""
        low, high = self.mean - CUT * self.sd, self.mean + CUT * self.sd
        return (
            low if self.low is None else max(low, self.low),
            high if self.high is None else min(high, self.high),
        )

    def quantile(self, u: Numbers) -> Numbers:
        """Values with the probabilities *u* (0 to 1) below them."""
        if self.sd == 0:
            return np.full_like(u, self.mean)
        low, high = self.support
        return _cut_normal(u, self.mean, self.sd, low, high)


class LognormalSpread(Spec):
    """A value whose logarithm is normal: never below zero, with a long tail above."""

    mean: Positive
    """Before the cut."""
    cv: NonNegative
    """Standard deviation over mean, before the cut."""
    low: Positive | None = None
    """Nothing is drawn below; left out: 4 standard deviations of the logarithm below its mean."""
    high: Positive | None = None
    """Nothing is drawn above, likewise."""

    @model_validator(mode="after")
    def _mean_inside(self) -> Self:
        _check_mean(self.mean, self.low, self.high)
        return self

    @property
    def central(self) -> float:
        """The mean before the cut."""
        return self.mean

    @property
    def support(self) -> tuple[float, float]:
        """Where it is cut."""
        mu, sigma = self._of_logarithm
        low, high = exp(mu - CUT * sigma), exp(mu + CUT * sigma)
        return max(low, self.low or low), min(high, self.high or high)

    def quantile(self, u: Numbers) -> Numbers:
        """Values with the probabilities *u* (0 to 1) below them."""
        if self.cv == 0:
            return np.full_like(u, self.mean)
        mu, sigma = self._of_logarithm
        low, high = self.support
        return np.clip(np.exp(_cut_normal(u, mu, sigma, log(low), log(high))), low, high)

    @property
    def _of_logarithm(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm (Johnson, Kotz and Balakrishnan, ch. 14)."""
        variance = log(1 + self.cv**2)
        return log(self.mean) - variance / 2, sqrt(variance)


def _check_mean(mean: float, low: float | None, high: float | None) -> None:
    if (low is not None and low > mean) or (high is not None and high < mean):
        raise ValueError(Message("the mean {mean:g} must lie between low and high", mean))


def _cut_normal(u: Numbers, mean: float, sd: float, low: float, high: float) -> Numbers:
    """Quantiles of a normal distribution that is cut at *low* and *high*: F^-1(F(low) + u (F(high) - F(low)))."""
    from scipy.special import ndtr, ndtri  # slow to import; a scenario is also read without being run

    below, above = ndtr((low - mean) / sd), ndtr((high - mean) / sd)
    return np.clip(mean + sd * ndtri(below + u * (above - below)), low, high)


def _named(*names: str) -> BeforeValidator:
    """Takes a list of numbers for a mapping from *names*."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if len(value) != len(names):
            count = f"{len(value)} value{'' if len(value) == 1 else 's'}"
            raise ValueError(Message("[{names}] is needed, not {count}", ", ".join(names), count))
        return dict(zip(names, value, strict=True))

    return BeforeValidator(convert, json_schema_input_type=list[float] | dict[str, float])


class Uncertain(Spec):
    """A distribution in a scenario: exactly one family, and why it is as it is."""

    triangular: Annotated[TriangularSpread, _named("low", "mode", "high")] | None = None
    """[low, mode, high]."""
    uniform: Annotated[UniformSpread, _named("low", "high")] | None = None
    """[low, high]."""
    normal: Annotated[NormalSpread, _named("mean", "sd")] | None = None
    """[mean, sd]."""
    lognormal: Annotated[LognormalSpread, _named("mean", "cv")] | None = None
    """[mean, cv]: cv is the standard deviation over the mean."""
    note: str = ""
    """Source or reason, for the report."""
    stated: str = ""
    """File and line, filled in when the scenario is read."""

    @model_validator(mode="after")
    def _one_family(self) -> Self:
        given = [name for name in FAMILIES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                Message("one of {families} is needed, not {len}", ", ".join(FAMILIES), len(given) or "none")
            )
        return self

    @property
    def distribution(self) -> TriangularSpread | UniformSpread | NormalSpread | LognormalSpread:
        """The one that is given."""
        found: TriangularSpread | UniformSpread | NormalSpread | LognormalSpread = getattr(self, self.family)
        return found

    @property
    def family(self) -> str:
        """Its name."""
        return next(name for name in FAMILIES if getattr(self, name) is not None)

    def quantiles(self, *shares: float) -> list[float]:
        """Values with the probabilities *shares* (0 to 1) below them."""
        return [float(value) for value in self.distribution.quantile(np.array(shares))]


FAMILIES = ("triangular", "uniform", "normal", "lognormal")
CENTRAL = {"triangular": "mode", "uniform": "middle", "normal": "mean", "lognormal": "mean"}
"""Which value everything but the futures sees."""


class MonteCarloDraws(Spec):
    """Draws of all that is uncertain."""

    draws: Annotated[Count, Field(ge=100, le=200_000)] = 2000
    """Futures that are drawn: each has one value of every uncertain input."""
    inputs: dict[str, Uncertain] = Field(default_factory=dict)
    """Dotted path -> distribution. Filled in from those that stand in place of numbers when the scenario is read; the
    numbers themselves are then the central values."""
