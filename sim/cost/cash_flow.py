"""Money over time: what a payment in some months is worth now, what a price has become, what a used machine fetches.

Rates are per year and compound; t months are t/12 years.

    present value of a payment after t months   payment * (1 + r)^(-t/12)
    price after t months                        price * (1 - d)^(t/12)

The first is the present worth of Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapter 3; a price that
changes at a constant rate is the geometric gradient of its chapter 4, with g = -d. The cost of a token over the years
is levelised as that of energy is: present value of all costs over present value of all output (Short, Packey, Holt,
 A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy Technologies, NREL/TP-462-5173).
"""

from collections.abc import Iterable
from math import fsum

from sim.cost.finance import Annuity, StraightLine

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


def price_factor(decline_per_year: float, months: float) -> float:
    """What has become of a price of one after *months*, at a decline that is a fraction per year.

    >>> round(price_factor(0.2, 24), 2)
    0.64
    """
    return float((1 - decline_per_year) ** (months / MONTHS_PER_YEAR))


def remaining_value(finance: StraightLine | Annuity, age_years: float) -> float:
    """Share of its price that hardware of *age_years* fetches, at most the life of *finance*.

    The resale by age where it is stated; else a straight line from the price when new to `residual_fraction` at the end
    of the life, the book value of straight-line depreciation.
    """
    if finance.resale is not None:
        return finance.resale.fraction(min(age_years, finance.resale.last_age))
    return 1 - (1 - finance.residual_fraction) * min(1.0, age_years / finance.life_years)
