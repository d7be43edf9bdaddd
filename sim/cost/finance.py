"""What a purchase costs per year of its life.

C price, R resale value at the end, n life in years, r discount rate per year (all cash flows at year ends).

    straight line   (C - R) / n
    annuity         (C - R / (1 + r)^n) * CRF,    CRF = r / (1 - (1 + r)^-n)

The second is the "capital recovery with salvage value" of engineering economics: the equal yearly payment whose present
value is the price less the present value of the resale.
"""

from typing import Annotated, Literal

from pydantic import Field

from sim.spec import Fraction, NonNegative, Positive, Spec
from sim.units import HOURS_PER_YEAR


def capital_recovery_factor(discount_rate: float, life_years: float) -> float:
    """The share of a price that is paid every year, r / (1 - (1 + r)^-n) [1/year]; 1/n without interest.

    Source: the annuity factor as PyPSA has it (pypsa/costs.py, `annuity`, at 26c6391).

    >>> round(capital_recovery_factor(0.07, 25), 4)
    0.0858
    """
    if discount_rate == 0:
        return 1 / life_years
    return float(discount_rate / (1 - (1 + discount_rate) ** -life_years))


class _Owned(Spec):
    """What both methods need to know of a purchase."""

    life_years: Positive
    """Years until the hardware is sold or scrapped."""
    residual_fraction: Fraction = 0.0
    """Resale value at the end of its life, as a share of the price."""
    fx: dict[str, Positive] = Field(default_factory=dict)
    """US dollars per unit of another currency in which a price is stated, for example {RMB: 0.138}."""


class StraightLine(_Owned):
    """The loss of value in equal parts over the life; capital itself costs nothing."""

    method: Literal["straight_line"]
    discount_rate: NonNegative = 0.0
    """Not used by this method; accepted so that a scenario can change its method alone."""

    def usd_per_h(self, price_usd: float) -> float:
        """Cost of owning something bought for *price_usd* [USD/h]."""
        return price_usd * (1 - self.residual_fraction) / (self.life_years * HOURS_PER_YEAR)


class Annuity(_Owned):
    """Equal payments that also earn the discount rate on the capital that is still bound."""

    method: Literal["annuity"]
    discount_rate: NonNegative
    """Cost of capital per year, as a fraction."""

    def usd_per_h(self, price_usd: float) -> float:
        """Cost of owning something bought for *price_usd* [USD/h]."""
        r, n = self.discount_rate, self.life_years
        present_usd = price_usd * (1 - self.residual_fraction / (1 + r) ** n)
        return float(present_usd * capital_recovery_factor(r, n) / HOURS_PER_YEAR)


Finance = Annotated[StraightLine | Annuity, Field(discriminator="method")]
