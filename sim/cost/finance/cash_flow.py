"""Money over time: what payments in some months are worth now, and what a price has become.

Rates are per year and compound; t months are t/12 years, and the rate of a month is i = (1 + r)^(1/12) - 1.

    present value of a payment after t months     payment * (1 + r)^(-t/12)
    of a payment at the end of each of n months   payment * (1 - (1 + r)^(-n/12)) / i
    price after t months                          price * (1 - d)^(t/12)

The first two are the present worths of Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapters 3 and 4; a
price that changes at a constant rate is the geometric gradient of its chapter 4, with g = -d. The cost of a token over
the years is levelised as that of energy is: present value of all costs over present value of all output (Short, Packey,
Holt, A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy Technologies, NREL/TP-462-5173).
docs/money.md says which payments fall when.
"""

from collections.abc import Iterable
from math import fsum

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
