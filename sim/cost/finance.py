"""What a purchase costs per year of its life.

C price, R resale value at the end, n life in years, r discount rate per year (all cash flows at year ends).

    straight line   (C - R) / n
    annuity         (C - R / (1 + r)^n) * CRF,    CRF = r / (1 - (1 + r)^-n)

The second is the "capital recovery with salvage value" of engineering economics: the equal yearly payment whose present
value is the price less the present value of the resale.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.cost.money import USD, CurrencyCode
from sim.cost.resale import Resale
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
    resale: Resale | None = None
    """Resale value by age, in place of residual_fraction: the life then decides what the hardware still fetches."""
    fx: dict[CurrencyCode, Positive] = Field(default_factory=dict)
    """US dollars per unit of another currency in which a price is stated, for example {RMB: 0.138}."""
    currency: CurrencyCode = USD
    """Currency in which reports show money, beside US dollars in tables; `fx` has its rate."""

    @model_validator(mode="after")
    def _dollars_are_one(self) -> Self:
        if self.fx.get(USD, 1.0) != 1.0:
            raise ValueError("fx is in US dollars: remove USD from it")
        return self

    @model_validator(mode="after")
    def _one_resale_value(self) -> Self:
        if self.resale is None:
            return self
        if "residual_fraction" in self.model_fields_set:
            raise ValueError("residual_fraction and resale both give the resale value: state one")
        if self.life_years > self.resale.last_age:
            text = f"life_years is {self.life_years:g}, resale.by_age ends at {self.resale.last_age:g}"
            raise ValueError(f"{text}: add the value at {self.life_years:g}")
        return self

    @property
    def resale_fraction(self) -> float:
        """Resale value at the end of the life, as a share of the price."""
        return self.residual_fraction if self.resale is None else self.resale.fraction(self.life_years)


class StraightLine(_Owned):
    """The loss of value in equal parts over the life; capital itself costs nothing."""

    method: Literal["straight_line"]
    discount_rate: NonNegative = 0.0
    """Not used by this method; accepted so that a scenario can change its method alone."""

    def usd_per_h(self, price_usd: float) -> float:
        """Cost of owning something bought for *price_usd* [USD/h]."""
        return price_usd * (1 - self.resale_fraction) / (self.life_years * HOURS_PER_YEAR)

    def sunk_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* at the start, of which nothing comes back [USD/h]."""
        return paid_usd / (self.life_years * HOURS_PER_YEAR)

    def end_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* that falls due at the end of the life [USD/h]."""
        return paid_usd / (self.life_years * HOURS_PER_YEAR)


class Annuity(_Owned):
    """Equal payments that also earn the discount rate on the capital that is still bound."""

    method: Literal["annuity"]
    discount_rate: NonNegative
    """Cost of capital per year, as a fraction."""

    def usd_per_h(self, price_usd: float) -> float:
        """Cost of owning something bought for *price_usd* [USD/h]."""
        r, n = self.discount_rate, self.life_years
        present_usd = price_usd * (1 - self.resale_fraction / (1 + r) ** n)
        return float(present_usd * capital_recovery_factor(r, n) / HOURS_PER_YEAR)

    def sunk_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* at the start, of which nothing comes back [USD/h]."""
        return paid_usd * capital_recovery_factor(self.discount_rate, self.life_years) / HOURS_PER_YEAR

    def end_usd_per_h(self, paid_usd: float) -> float:
        """Cost of *paid_usd* that falls due at the end of the life [USD/h]: the sinking fund that gathers it."""
        return self.sunk_usd_per_h(paid_usd / (1 + self.discount_rate) ** self.life_years)


Finance = Annotated[StraightLine | Annuity, Field(discriminator="method")]
