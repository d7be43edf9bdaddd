"""The time value of money: what payments in some months are worth now, and over the span that is compared.

Rates are per year and compound; t months are t/12 years, and the rate of a month is i = (1 + r)^(1/12) - 1.

    present value of a payment after t months     payment * (1 + r)^(-t/12)
    of a payment at the end of each of n months   payment * (1 - (1 + r)^(-n/12)) / i
    price after t months                          price * (1 - d)^(t/12)

The first two are the present worths of Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapters 3 and 4;
a price that changes at a constant rate is the geometric gradient of its chapter 4, with g = -d. The cost of a token
over the years is levelised as that of energy is: present value of all costs over present value of all output (Short,
Packey, Holt, A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy Technologies,
NREL/TP-462-5173). `Horizon` is the span over which candidates are compared. docs/money.md says which payments fall
when.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum

from sim.units import HOURS_PER_MONTH

MONTHS_PER_YEAR = 12


def discount_factor(discount_rate: float, months: float) -> float:
    """What one dollar after so many *months* is worth now, at *discount_rate* per year.

    >>> round(1000 * discount_factor(0.1, 24), 2)
    826.45
    """
    return float((1 + discount_rate) ** (-months / MONTHS_PER_YEAR))


def present_value(discount_rate: float, payments: Iterable[tuple[float, float]]) -> float:
    """Sum of *payments*, (months from now, amount), each discounted at *discount_rate* per year.

    >>> round(present_value(0.08, [(0, -100), (12, 54), (24, 116.64)]), 2)
    50.0
    """
    return fsum(amount * discount_factor(discount_rate, months) for months, amount in payments)


def annuity_factor(discount_rate: float, months: float, growth_per_year: float = 0.0) -> float:
    """What a dollar at the end of each of *months* is worth now; the payment grows from the first one on.

    A geometric series: sum over m = 1 to n of (1 + g)^((m - 1)/12) * (1 + r)^(-m/12).

    >>> round(100 * annuity_factor(0.12682503, 36), 2)  # 1 % a month, three years
    3010.75
    >>> annuity_factor(0.0, 36)
    36.0
    """
    discount = discount_factor(discount_rate, 1)
    ratio = price_factor(-growth_per_year, 1) * discount
    if abs(ratio - 1) < _SAME:
        return discount * months
    return float(discount * (1 - ratio**months) / (1 - ratio))


_SAME = 1e-12  # growth as fast as the discount: the series is a sum of equal terms


def price_factor(decline_per_year: float, months: float) -> float:
    """What has become of a price of one after *months*, at a decline that is a fraction per year.

    >>> round(price_factor(0.2, 24), 2)
    0.64
    """
    return float((1 - decline_per_year) ** (months / MONTHS_PER_YEAR))


@dataclass(frozen=True, slots=True)
class Horizon:
    """One for all candidates of a comparison."""

    months: float
    discount_rate: float
    """Per year."""

    def net_present_usd(self, usd_per_h: float) -> float:
        """What equal monthly payments of *usd_per_h* over the horizon are worth now.

        A purchase and its running cost, levelised, are such payments; so the candidate that is the cheapest per hour
        has the lowest net present cost.
        """
        return usd_per_h * HOURS_PER_MONTH * annuity_factor(self.discount_rate, self.months)

    def level_factor(self, growth_per_year: float, held_months: float = 0.0) -> float:
        """The equal payment that is worth as much as one that grows, over that of the first month.

        *held_months* is how long a price stays as it was agreed; 0 where every month has its own.

        >>> round(Horizon(36, 0.0).level_factor(0.2, held_months=12), 4)  # 1, 1.2 and 1.44, a year each
        1.2133
        """
        if not growth_per_year:
            return 1.0
        flat = annuity_factor(self.discount_rate, self.months)
        if not held_months:
            return annuity_factor(self.discount_rate, self.months, growth_per_year) / flat
        whole = max(1, round(self.months))
        grown = fsum(
            price_in(month, growth_per_year, held_months) * discount_factor(self.discount_rate, month)
            for month in range(1, whole + 1)
        )
        return grown / annuity_factor(self.discount_rate, whole)


def price_in(month: int, growth_per_year: float, held_months: float = 0.0) -> float:
    """Price in *month*, counted from 1, over that of the first, where it is agreed anew every *held_months*."""
    agreed = (month - 1) // held_months * held_months if held_months else month - 1
    return price_factor(-growth_per_year, agreed)
