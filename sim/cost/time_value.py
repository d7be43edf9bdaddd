"""Time value of money: present values of payments, and the horizon over which candidates are compared.

Rates are per year and compound; t months are t/12 years, and the rate per month is i = (1 + r)^(1/12) - 1. The cost of
a token over the years is levelised as that of energy is: present value of all costs over present value of all output
(Short, Packey, Holt, A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy Technologies,
NREL/TP-462-5173). docs/money.md has the time of each payment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import NamedTuple

from sim.units import HOURS_PER_MONTH

MONTHS_PER_YEAR = 12


def discount_factor(discount_rate: float, months: float) -> float:
    """Return the present value of one dollar after *months* months, at *discount_rate* per year.

    Notes
    -----
    (1 + r)^(-t/12) for t months.

    References
    ----------
    Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapter 3.

    Examples
    --------
    >>> round(1000 * discount_factor(0.1, 24), 2)
    826.45

    """
    return float((1 + discount_rate) ** (-months / MONTHS_PER_YEAR))


def present_value(discount_rate: float, payments: Iterable[tuple[float, float]]) -> float:
    """Return the present value of *payments*, given as (months from now, amount), at *discount_rate* per year.

    Examples
    --------
    >>> round(present_value(0.08, [(0, -100), (12, 54), (24, 116.64)]), 2)
    50.0

    """
    return fsum(amount * discount_factor(discount_rate, months) for months, amount in payments)


def real_rate(nominal_rate: float, inflation: float) -> float:
    """Return the rate per year in money of constant purchasing power, for a *nominal_rate* and *inflation* per year.

    Notes
    -----
    (1 + nominal) / (1 + inflation) - 1, the Fisher equation.

    References
    ----------
    Short, Packey and Holt, NREL/TP-462-5173, chapter 2; NREL System Advisor Model, financial parameters.

    Examples
    --------
    >>> round(real_rate(0.0912, 0.025), 6)
    0.064585

    """
    return (1 + nominal_rate) / (1 + inflation) - 1


def annuity_factor(discount_rate: float, months: float, growth_per_year: float = 0.0) -> float:
    """Return the present value of a payment at the end of each of *months* months, the first of one dollar.

    Notes
    -----
    Geometric series: sum over m = 1 to n of (1 + g)^((m - 1)/12) * (1 + r)^(-m/12), with growth g per year; without
    growth (1 - (1 + r)^(-n/12)) / i.

    References
    ----------
    Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapter 4 (uniform series and geometric gradient).

    Examples
    --------
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


def level(discount_rate: float, amounts: Sequence[float]) -> float:
    """Return the equal payment at the end of each month with the present value of *amounts*, at month ends.

    Notes
    -----
    Sum of a_m d^m over the sum of d^m, with the discount factor d of a month.

    Examples
    --------
    >>> round(level(0.0, [3.0, 2.0, 1.0]), 12)
    2.0

    """
    return present_value(discount_rate, enumerate(amounts, 1)) / annuity_factor(discount_rate, len(amounts))


def price_factor(decline_per_year: float, months: float) -> float:
    """Return the price after *months* months relative to the initial price, at a decline given as a fraction per year.

    Notes
    -----
    (1 - d)^(t/12) for t months: the geometric gradient with g = -d.

    Examples
    --------
    >>> round(price_factor(0.2, 24), 2)
    0.64

    """
    return float((1 - decline_per_year) ** (months / MONTHS_PER_YEAR))


class FiscalYears(NamedTuple):
    """Fiscal years of a company along the months from delivery or from the start of a plan.

    >>> FiscalYears(9).ends(24)  # from April on, with month 1 in January
    [3, 15, 24]
    """

    passed: int = 0
    """Months of the first fiscal year before month 1, 0 to 11."""
    starts: str | None = None
    """Calendar month of month 1 (2027-01); None where fiscal years count from the delivery or the plan's start."""

    def of(self, month: int) -> int:
        """Return the fiscal year, from 1, in which *month* ends; month 0 counts in the first."""
        return max(1, -(-(month + self.passed) // MONTHS_PER_YEAR))

    def ends(self, last: int) -> list[int]:
        """Return the months at whose ends fiscal years end, and the *last* one."""
        return [*range(MONTHS_PER_YEAR - self.passed, last, MONTHS_PER_YEAR), last]

    def months_in(self, month: int) -> tuple[int, int]:
        """Return the fiscal years that have ended by the end of *month*, and the months of the next that have passed.

        >>> FiscalYears(9).months_in(4)
        (1, 1)
        """
        return divmod(month + self.passed, MONTHS_PER_YEAR)


FROM_DELIVERY = FiscalYears()
"""Fiscal years that count from the delivery, or from the start of a plan."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """Span over which all candidates of a comparison are compared."""

    months: float
    discount_rate: float
    """Nominal discount rate per year."""
    inflation: float | None = None
    """General inflation per year; None: not stated, and nothing is stated in today's money."""
    starts: str | None = None
    """First calendar month (2027-01); None without a date."""

    @property
    def real_rate(self) -> float | None:
        """Real discount rate per year; None without general inflation."""
        return None if self.inflation is None else real_rate(self.discount_rate, self.inflation)

    def real_usd(self, usd: float) -> float | None:
        """Return the payment of every month in today's money with the present value of *usd* every month [USD].

        None without general inflation.

        Notes
        -----
        usd * a(n, r) / a(n, q) for n months, with the nominal rate r, the real rate q and `annuity_factor` a.

        """
        if self.real_rate is None:
            return None
        same = annuity_factor(self.discount_rate, self.months) / annuity_factor(self.real_rate, self.months)
        return usd * same

    def net_present_usd(self, usd_per_h: float) -> float:
        """Return the present value of equal monthly payments of *usd_per_h* over the horizon [USD].

        The levelised cost of a purchase and its operation is such a payment; the candidate with the lowest cost per
        hour therefore has the lowest net present cost.

        Notes
        -----
        usd_per_h * hours per month * (1 - (1 + r)^(-n/12)) / i for n months, see `annuity_factor`.

        """
        return usd_per_h * HOURS_PER_MONTH * annuity_factor(self.discount_rate, self.months)

    def level_factor(self, growth_per_year: float, agreed_months: float = 0.0) -> float:
        """Return the equal payment with the same present value as a growing one, relative to the first month's payment.

        *agreed_months* is the period for which a price is agreed; 0 if every month has its own price.

        Notes
        -----
        Sum over months of price_in(m) * (1 + r)^(-m/12), divided by the sum of (1 + r)^(-m/12).

        Examples
        --------
        *agreed_months* is how long a price stays as it was agreed; 0 where every month has its own.

        >>> round(Horizon(36, 0.0).level_factor(0.2, agreed_months=12), 4)  # 1, 1.2 and 1.44, a year each
        1.2133

        """
        if not growth_per_year:
            return 1.0
        flat = annuity_factor(self.discount_rate, self.months)
        if not agreed_months:
            return annuity_factor(self.discount_rate, self.months, growth_per_year) / flat
        whole = max(1, round(self.months))
        grown = fsum(
            price_in(month, growth_per_year, agreed_months) * discount_factor(self.discount_rate, month)
            for month in range(1, whole + 1)
        )
        return grown / annuity_factor(self.discount_rate, whole)


def price_in(month: int, growth_per_year: float, agreed_months: float = 0.0) -> float:
    """Return the price in *month*, counted from 1, relative to the first month; it is renewed every *agreed_months*."""
    agreed = (month - 1) // agreed_months * agreed_months if agreed_months else month - 1
    return price_factor(-growth_per_year, agreed)
