"""Future prices: expected prices by month, and their uncertainty, relative to the prices of the first month."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import numpy as np
from pydantic import Field, model_validator

from sim.cost.multi_year import CalendarMonth, Decline, months_between
from sim.cost.time_value import MONTHS_PER_YEAR, price_factor
from sim.rng import Numbers
from sim.spec import Number, Positive, Spec

PriceName = Literal["hardware", "rent", "resale", "electricity"]
PRICES: tuple[PriceName, ...] = get_args(PriceName)
"""Prices that may have a path, in the order in which their shocks are drawn."""
ELECTRICITY = frozenset({"energy", "cooling"})
"""Components of the bill whose price is that of electricity."""
Change = Annotated[Number, Field(gt=-1, le=10)]


class PricePath(Spec):
    """Path of one price: its expected values, and the random deviations from them."""

    decline_per_year: Decline | None = None
    """Decline per year, as a fraction; negative if the price rises. Default: none."""
    steps: dict[CalendarMonth, Change] = Field(default_factory=dict)
    """Month -> change of the price from that month on, as a fraction, such as a launch: {2027-06: -0.2}."""
    by_month: Annotated[dict[CalendarMonth, Positive], Field(min_length=1)] | None = None
    """Month -> price over that of the first month, in place of a decline: {2028-01: 0.8}. Linear between these months,
    constant after the last."""
    volatility: Positive | None = None
    """Standard deviation of the logarithm of the price after one year (with `half_life_months`: without its reversion):
    a geometric process around the expected values. Default: the price follows them exactly."""
    half_life_months: Positive | None = None
    """Time in which half of a deviation disappears: a mean-reverting process. Default: deviations last."""

    @model_validator(mode="after")
    def _one_curve(self) -> Self:
        if self.by_month is not None and self.decline_per_year is not None:
            raise ValueError("decline_per_year and by_month both give the price: state one")
        if self.half_life_months is not None and self.volatility is None:
            raise ValueError("half_life_months needs volatility: the size of the deviations that disappear")
        return self

    @property
    def dated(self) -> bool:
        """True if values are stated for months of the calendar."""
        return bool(self.steps or self.by_month)

    def mean(self, month: int, starts: str) -> float:
        """Return the expected price in *month*, counted from 0, over that in the month *starts*.

        >>> PricePath(decline_per_year=0.5, steps={"2028-01": -0.5}).mean(24, "2027-01")
        0.125
        """
        after = [change for when, change in self.steps.items() if 0 < months_between(starts, when) <= month]
        factor = float(np.prod([1 + change for change in after]))
        if self.by_month is None:
            return factor * price_factor(self.decline_per_year or 0.0, month)
        known = sorted({0: 1.0, **{months_between(starts, when): one for when, one in self.by_month.items()}}.items())
        at, prices = zip(*known, strict=True)
        return factor * float(np.interp(month, at, prices))

    def deviations(self, shocks: Numbers) -> Numbers:
        """Return the price over its expected value from month 0 on, for standard normal *shocks* (months x draws).

        Notes
        -----
        exp(X - Var(X) / 2), so that the mean is 1 in every month. X is a Brownian motion with `volatility` s per square
        root of a year, or, with the half-life h, the Ornstein-Uhlenbeck process dX = -k X dt + s dW, k = ln 2 / h,
        sampled exactly: X(m + 1) = a X(m) + s sqrt((1 - a^2) / 2k) Z, a = exp(-k/12).

        References
        ----------
        E. S. Schwartz, "The Stochastic Behavior of Commodity Prices", Journal of Finance 52 (1997), model 1; P.
        Glasserman, "Monte Carlo Methods in Financial Engineering", section 3.3.

        """
        found = np.ones((len(shocks) + 1, *shocks.shape[1:]))
        if self.volatility is None:
            return found
        kept, step = 1.0, self.volatility / sqrt(MONTHS_PER_YEAR)
        if self.half_life_months is not None:
            speed = log(2) * MONTHS_PER_YEAR / self.half_life_months
            kept = exp(-speed / MONTHS_PER_YEAR)
            step = self.volatility * sqrt((1 - kept**2) / (2 * speed))
        x, variance = np.zeros(shocks.shape[1:]), 0.0
        for month, shock in enumerate(shocks, start=1):
            x, variance = kept * x + step * shock, kept**2 * variance + step**2
            found[month] = np.exp(x - variance / 2)
        return found


class PricePaths(Spec):
    """Future prices, which `plan` and `breakeven` use to decide when to buy. All keys are optional."""

    also_called: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("gpu", "gpus", "server", "servers", "purchase", "new"), "hardware"),
        **dict.fromkeys(("used", "second_hand", "residual"), "resale"),
        **dict.fromkeys(("energy", "power"), "electricity"),
    }

    starts: CalendarMonth | None = None
    """First month, that of the scenario's prices. Default: `plan.starts`."""
    hardware: PricePath | None = None
    """Price of new hardware, in place of `plan.price_decline_per_year`."""
    rent: PricePath | None = None
    """Rent of a contract signed in the month, in place of `plan.rental_decline_per_year`."""
    resale: PricePath | None = None
    """Resale value over that of `finance.residual_fraction` or `finance.resale`."""
    electricity: PricePath | None = None
    """Price of electricity, in place of `finance.inflation` of energy and cooling."""

    @property
    def stated(self) -> Mapping[PriceName, PricePath]:
        """Paths that are stated, by the name of their price."""
        return {name: path for name in PRICES if (path := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class PriceOutlook:
    """Prices of every month over those of the first: expected ones, or draws around them."""

    paths: PricePaths
    starts: str
    deviations: Mapping[PriceName, Numbers] | None = None
    """Price -> price over its expected value (months x draws), from month 0 on; None: expected prices."""
    means: Mapping[PriceName, Numbers] | None = None
    """Price -> expected price (months x draws) where parameters of paths are drawn; None: those of `paths`."""

    def gives(self, name: PriceName) -> bool:
        """Return whether the price *name* has a path."""
        return getattr(self.paths, name) is not None

    def factor(self, name: PriceName, month: int) -> Any:
        """Return the price *name* in *month* over that of the first: a number, or an array over the draws.

        Before the first month, in which existing units were bought, no price deviates from its expected value.
        """
        path: PricePath | None = getattr(self.paths, name)
        if path is None:
            return 1.0
        if self.means is not None and month >= 0:
            mean: Any = self.means[name][min(month, len(self.means[name]) - 1)]
        else:
            mean = path.mean(month, self.starts)
        if self.deviations is None:
            return mean
        known = self.deviations[name]
        return mean * known[min(max(month, 0), len(known) - 1)]
