"""Loans and income tax on purchases: schedules of payments and deductions, and costs after tax.

Amounts are costs: money that is paid is positive. Interest of a loan is charged monthly at a twelfth of its yearly
rate, as banks quote it. Tax years are the twelve-month years from delivery; losses are used at once, as a company with
other profits does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import expm1, fsum, log1p
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.cost.time_value import MONTHS_PER_YEAR, present_value
from sim.message import Message
from sim.spec import Count, Fraction, Spec, WholeNumber

Share = Annotated[Fraction, Field(gt=0)]


@dataclass(frozen=True, slots=True)
class Installment:
    """Payment of a loan at the end of one month."""

    interest_usd: float
    principal_usd: float
    balance_usd: float
    """Principal still owed afterwards [USD]."""


class Loan(Spec):
    """Loan that pays a share of every purchase at its delivery."""

    share: Share
    """Fraction of each payment at delivery that the loan covers."""
    rate: Fraction
    """Nominal interest rate per year, as a fraction: 0.07 is 7 %. A twelfth is charged every month."""
    term_months: Annotated[Count, Field(le=1200)]
    """Months until the last installment."""
    grace_months: WholeNumber = 0
    """First months of the term in which only interest is paid."""
    repayment: Literal["annuity", "linear", "bullet"] = "annuity"
    """Equal installments (annuity), equal principal (linear), or all principal at the end of the term (bullet)."""

    @model_validator(mode="after")
    def _repays(self) -> Self:
        if self.grace_months >= self.term_months:
            raise ValueError(
                Message(
                    "grace_months ({grace_months}) must be below term_months ({term_months})",
                    self.grace_months,
                    self.term_months,
                )
            )
        return self

    def installments(self, principal_usd: float) -> Iterator[Installment]:
        """Yield the payments of a loan of *principal_usd*, one for each month of the term.

        Notes
        -----
        The equal installment of an annuity of n months at i per month is P i / (1 - (1 + i)^-n).

        References
        ----------
        Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapter 4 (capital recovery).

        Examples
        --------
        >>> loan = Loan(share=1.0, rate=0.06, term_months=360)
        >>> first = next(loan.installments(200_000.0))
        >>> round(first.interest_usd + first.principal_usd, 2)
        1199.1

        """
        monthly, left = self.rate / MONTHS_PER_YEAR, principal_usd
        months = self.term_months - self.grace_months
        equal = principal_usd / months if monthly == 0 else principal_usd * monthly / -expm1(-months * log1p(monthly))
        for month in range(1, self.term_months + 1):
            interest = left * monthly
            if month == self.term_months:
                paid = left
            elif month <= self.grace_months or self.repayment == "bullet":
                paid = 0.0
            else:
                paid = principal_usd / months if self.repayment == "linear" else equal - interest
            left -= paid
            yield Installment(interest, paid, left)


class TaxDepreciation(Spec):
    """Depreciation of a purchase for income tax."""

    method: Literal["straight_line", "macrs_5"] = "straight_line"
    """straight_line: equal parts over `years`. macrs_5: the five-year table of the US, half-year convention."""
    years: Annotated[Count, Field(le=50)] = 5
    """Tax years of the straight line; macrs_5 always spreads over six."""
    bonus: Fraction = 0.0
    """Fraction of the price that is deducted in the first tax year; the rest follows the method."""

    @model_validator(mode="after")
    def _five_years(self) -> Self:
        if self.method == "macrs_5" and self.years != 5:
            raise ValueError(
                Message("macrs_5 has five years, not {years}: remove years, or take method: straight_line", self.years)
            )
        return self

    @property
    def fractions(self) -> tuple[float, ...]:
        """Fraction of the price deducted in each tax year; their sum is 1.

        References
        ----------
        IRS Publication 946, Table A-1, 5-year property: 20, 32, 19.2, 11.52, 11.52 and 5.76 %.

        """
        usual = MACRS_5 if self.method == "macrs_5" else (1 / self.years,) * self.years
        rest = [(1 - self.bonus) * each for each in usual]
        return (self.bonus + rest[0], *rest[1:])


MACRS_5 = (0.2, 0.32, 0.192, 0.1152, 0.1152, 0.0576)


class IncomeTax(Spec):
    """Income tax of the buyer."""

    rate: Fraction
    """Tax rate on profits, as a fraction: 0.25 is 25 %."""
    depreciation: TaxDepreciation = Field(default_factory=TaxDepreciation)
    """Deduction of purchases."""


@dataclass(frozen=True, slots=True)
class Holding:
    """Hardware from its delivery to its sale."""

    start_month: int
    end_month: int
    price_usd: float
    """Payment at delivery [USD]."""
    proceeds_usd: float
    """Sale at the end, less removal [USD]."""


def costs_after_tax(
    operating_usd: Sequence[float], holdings: Sequence[Holding], loan: Loan | None, tax: IncomeTax | None
) -> list[float]:
    """Return the cost of each month after interest, repayment and tax [USD].

    Parameters
    ----------
    operating_usd
        Operating cost paid at the end of months 1, 2, ... [USD].
    holdings
        Hardware bought and sold within these months. What it has not been depreciated at its sale is deducted then, and
        a gain over it is taxed; a loan that still runs is repaid.
    loan
        Loan on each purchase; None: own money.
    tax
        Income tax; None: before tax.

    Returns
    -------
    Costs at the ends of months 0 (delivery), 1, 2, ... Operating cost and interest are deducted at the end of each
    twelve months, and at the end.

    """
    last = len(operating_usd)
    paid = [[0.0] if month == 0 else [operating_usd[month - 1]] for month in range(last + 1)]
    deducted = [0.0, *operating_usd]
    depreciated = [0.0] * (last + 1)
    for one in holdings:
        paid[one.start_month].append(one.price_usd)
        paid[one.end_month].append(-one.proceeds_usd)
        if loan is not None:
            principal = loan.share * one.price_usd
            paid[one.start_month].append(-principal)
            balance = principal
            for month, part in enumerate(loan.installments(principal), one.start_month + 1):
                if month > one.end_month:
                    break
                paid[month] += [part.interest_usd, part.principal_usd]
                deducted[month] += part.interest_usd
                balance = part.balance_usd
            paid[one.end_month].append(balance)
        if tax is not None:
            left = one.price_usd
            for year, fraction in enumerate(tax.depreciation.fractions, 1):
                month = one.start_month + MONTHS_PER_YEAR * year
                if month > one.end_month:
                    break
                depreciated[month] += fraction * one.price_usd
                left -= fraction * one.price_usd
            depreciated[one.end_month] += left - one.proceeds_usd
    if tax is not None:
        for month in range(1, last + 1):
            if month % MONTHS_PER_YEAR == 0 or month == last:
                first = month - (month - 1) % MONTHS_PER_YEAR
                paid[month].append(-tax.rate * fsum(deducted[first : month + 1]))
            paid[month].append(-tax.rate * depreciated[month])
    return [fsum(parts) for parts in paid]


def net_present_usd(costs_usd: Sequence[float], discount_rate: float) -> float:
    """Return the present value of costs at the ends of months 0, 1, 2, ... at *discount_rate* per year [USD]."""
    return present_value(discount_rate, enumerate(costs_usd))


def internal_rate(flows_usd: Sequence[float]) -> float | None:
    """Return the internal rate of return per year of *flows_usd* at the ends of months 0, 1, 2, ...

    None where neither the flows nor their running sum change their sign exactly once: no rate or several may fit
    (Descartes' rule; Norstrom's criterion, which holds where single months change the sign, as tax payments do).

    Examples
    --------
    >>> round(internal_rate([-1000.0, *[0.0] * 11, 1100.0]), 9)
    0.1

    """
    from scipy.optimize import brentq  # slow to import, and most answers have no tax

    if _sign_changes(flows_usd) != 1 and (flows_usd[0] >= 0 or _sign_changes(list(accumulate(flows_usd))) != 1):
        return None

    def value(rate_per_year: float) -> float:
        return net_present_usd(flows_usd, rate_per_year)

    high = 1.0
    while value(high) * value(-0.99) > 0 and high < 1e6:
        high *= 10
    return float(brentq(value, -0.99, high, xtol=1e-12)) if value(high) * value(-0.99) <= 0 else None


def _sign_changes(values: Sequence[float]) -> int:
    signs = [value > 0 for value in values if value]
    return sum(a != b for a, b in pairwise(signs))
