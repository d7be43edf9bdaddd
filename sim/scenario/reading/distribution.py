"""Probability distributions that may replace a number in a scenario, sampled by inversion.

Every family has bounded support, so that each value that can be drawn is checked before anything runs: normal and
lognormal distributions are truncated at CUT standard deviations (one draw in 16,000 would lie beyond), or closer where
`low` or `high` say so. Each draw maps one uniform number u to F^-1(u): the same u gives the same quantile of any
family.
"""

from collections.abc import Callable, Hashable, Sequence
from math import exp, log
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from sim.message import Message
from sim.rng import Dependence, Numbers, log_moments, triangular, truncated_normal
from sim.spec import Count, NonNegative, Number, Positive, Spec

CUT = 4.0


class TriangularSpread(Spec):
    """Triangular distribution: lowest, most likely and highest value."""

    low: Number
    mode: Number
    high: Number

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.mode <= self.high:
            raise ValueError(
                Message(
                    "low {low:g}, mode {mode:g} and high {high:g} must be in ascending order",
                    self.low,
                    self.mode,
                    self.high,
                )
            )
        return self

    @property
    def central(self) -> float:
        """Central value: the mode."""
        return self.mode

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.low, self.high

    def quantile(self, u: Numbers) -> Numbers:
        """Return the quantiles at the probabilities *u* (0 to 1)."""
        return triangular(u, self.low, self.mode, self.high)


class UniformSpread(Spec):
    """Uniform distribution between two values."""

    low: Number
    high: Number

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(Message("low {low:g} lies above high {high:g}", self.low, self.high))
        return self

    @property
    def central(self) -> float:
        """Central value: the midpoint."""
        return self.low + 0.5 * (self.high - self.low)

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value."""
        return self.low, self.high

    def quantile(self, u: Numbers) -> Numbers:
        """Return the quantiles at the probabilities *u* (0 to 1)."""
        return np.asarray(self.low + u * (self.high - self.low))


class NormalSpread(Spec):
    """Truncated normal distribution."""

    mean: Number
    sd: NonNegative
    """Standard deviation before truncation."""
    low: Number | None = None
    """Lower truncation point. Default: mean - 4 sd."""
    high: Number | None = None
    """Upper truncation point. Default: mean + 4 sd."""

    @model_validator(mode="after")
    def _mean_inside(self) -> Self:
        _check_mean(self.mean, self.low, self.high)
        return self

    @property
    def central(self) -> float:
        """Central value: the mean before truncation, which is the mode."""
        return self.mean

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value, the truncation points."""
        low, high = self.mean - CUT * self.sd, self.mean + CUT * self.sd
        return (
            low if self.low is None else max(low, self.low),
            high if self.high is None else min(high, self.high),
        )

    def quantile(self, u: Numbers) -> Numbers:
        """Return the quantiles at the probabilities *u* (0 to 1)."""
        if self.sd == 0:
            return np.full_like(u, self.mean)
        low, high = self.support
        return truncated_normal(u, self.mean, self.sd, low, high)


class LognormalSpread(Spec):
    """Truncated lognormal distribution: positive values with a long upper tail."""

    mean: Positive
    """Mean before truncation."""
    cv: NonNegative
    """Coefficient of variation before truncation."""
    low: Positive | None = None
    """Lower truncation point. Default: 4 standard deviations of the logarithm below its mean."""
    high: Positive | None = None
    """Upper truncation point. Default: 4 standard deviations of the logarithm above its mean."""

    @model_validator(mode="after")
    def _mean_inside(self) -> Self:
        _check_mean(self.mean, self.low, self.high)
        return self

    @property
    def central(self) -> float:
        """Central value: the mean before truncation."""
        return self.mean

    @property
    def support(self) -> tuple[float, float]:
        """Lowest and highest value, the truncation points."""
        mu, sigma = log_moments(self.mean, self.cv)
        low, high = exp(mu - CUT * sigma), exp(mu + CUT * sigma)
        return max(low, self.low or low), min(high, self.high or high)

    def quantile(self, u: Numbers) -> Numbers:
        """Return the quantiles at the probabilities *u* (0 to 1)."""
        if self.cv == 0:
            return np.full_like(u, self.mean)
        mu, sigma = log_moments(self.mean, self.cv)
        low, high = self.support
        return np.clip(np.exp(truncated_normal(u, mu, sigma, log(low), log(high))), low, high)


def _check_mean(mean: float, low: float | None, high: float | None) -> None:
    if (low is not None and low > mean) or (high is not None and high < mean):
        raise ValueError(Message("the mean {mean:g} must lie between low and high", mean))


def _from_list(*names: str) -> BeforeValidator:
    """Return a validator that converts a list of numbers to a mapping with the keys *names*."""

    def convert(value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if len(value) != len(names):
            count = f"{len(value)} value{'' if len(value) == 1 else 's'}"
            raise ValueError(Message("[{names}] is needed, not {count}", ", ".join(names), count))
        return dict(zip(names, value, strict=True))

    return BeforeValidator(convert, json_schema_input_type=list[float] | dict[str, float])


class Uncertain(Spec):
    """Distribution in a scenario: exactly one family, with a note on its source."""

    triangular: Annotated[TriangularSpread, _from_list("low", "mode", "high")] | None = None
    """Triangular distribution: [low, mode, high]."""
    uniform: Annotated[UniformSpread, _from_list("low", "high")] | None = None
    """Uniform distribution: [low, high]."""
    normal: Annotated[NormalSpread, _from_list("mean", "sd")] | None = None
    """Truncated normal distribution: [mean, sd]."""
    lognormal: Annotated[LognormalSpread, _from_list("mean", "cv")] | None = None
    """Truncated lognormal distribution: [mean, cv], where cv is standard deviation / mean."""
    note: str = ""
    """Source or reason of the distribution, for the report."""
    stated: str = ""
    """File and line of the distribution, filled in when the scenario is read."""

    @model_validator(mode="after")
    def _one_family(self) -> Self:
        given = [name for name in FAMILIES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                Message("one of {families} is needed, not {count}", ", ".join(FAMILIES), len(given) or "none")
            )
        return self

    @property
    def distribution(self) -> TriangularSpread | UniformSpread | NormalSpread | LognormalSpread:
        """Distribution of the family that is given."""
        found: TriangularSpread | UniformSpread | NormalSpread | LognormalSpread = getattr(self, self.family)
        return found

    @property
    def family(self) -> str:
        """Name of the family that is given."""
        return next(name for name in FAMILIES if getattr(self, name) is not None)

    def quantiles(self, *shares: float) -> list[float]:
        """Return the quantiles at the probabilities *shares* (0 to 1)."""
        return [float(value) for value in self.distribution.quantile(np.array(shares))]


FAMILIES = ("triangular", "uniform", "normal", "lognormal")
CENTRAL = {"triangular": "mode", "uniform": "middle", "normal": "mean", "lognormal": "mean"}
"""Name of each family's central value, which all results except the Monte Carlo draws use."""


class RankCorrelation(Spec):
    """Rank correlation of two uncertain inputs, or of two prices of `price_paths`."""

    between: tuple[str, str]
    """Dotted paths of two distributions, such as site.pue, or of two paths with a volatility, such as
    price_paths.rent."""
    rank: Annotated[Number, Field(ge=-1, le=1)]
    """Spearman correlation, from -1 to 1: 1 if both always rise together, 0 if independent."""


class MonteCarloDraws(Spec):
    """Monte Carlo draws of all uncertain inputs."""

    draws: Annotated[Count, Field(ge=100, le=200_000)] = 2000
    """Number of draws; each has one value of every uncertain input."""
    correlations: tuple[RankCorrelation, ...] = ()
    """Rank correlations of inputs; pairs that are not listed are independent."""
    dependence: Dependence = "gaussian_copula"
    """Method of drawing correlated inputs: a joint normal distribution, or `iman_conover`, which reorders independent
    draws so that the sample itself has the rank correlations."""
    inputs: dict[str, Uncertain] = Field(default_factory=dict)
    """Distributions of uncertain inputs, keyed by dotted path. Filled in when the scenario is read, from the
    distributions that replace numbers; the numbers themselves are then the central values."""

    def rank_matrix(self, inputs: Sequence[Hashable], named: Callable[[str], Hashable]) -> Numbers:
        """Return the matrix of rank correlations of *inputs*; *named* returns the input at a path of `correlations`."""
        found, place = np.eye(len(inputs)), {one: i for i, one in enumerate(inputs)}
        for one in self.correlations:
            i, j = (place.get(named(path), -1) for path in one.between)
            if i >= 0 and j >= 0 and i != j:
                found[i, j] = found[j, i] = one.rank
        return found
