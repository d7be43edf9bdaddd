"""Loans, leases and income tax on purchases: schedules of payments and deductions, costs and returns after tax.

Amounts are costs: money that is paid is positive. Interest of a loan is charged monthly at a twelfth of its yearly
rate, as banks quote it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from math import expm1, fsum, log1p
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from sim.cost.income_tax import IncomeTax, Share, TaxDepreciation
from sim.cost.time_value import (
    FROM_DELIVERY,
    MONTHS_PER_YEAR,
    FiscalYears,
    annuity_factor,
    discount_factor,
    present_value,
)
from sim.message import Message
from sim.spec import Count, Fraction, Spec, WholeNumber

OWN_MONEY = "own money"
"""Label of a purchase without loan and lease."""


@dataclass(frozen=True, slots=True)
class Installment:
    """Payment of a loan at the end of one month."""

    interest_usd: float
    principal_usd: float
    balance_usd: float
    """Principal still owed afterwards [USD]."""


class Loan(Spec):
    """Loan that pays a share of every purchase."""

    share: Share
    """Fraction of each payment of the price, with taxes at delivery, that the loan pays when it falls due."""
    rate: Fraction
    """Nominal interest rate per year, as a fraction: 0.07 is 7 %. A twelfth is charged every month."""
    term_months: Annotated[Count, Field(le=1200)]
    """Months from a payment to the last installment of what the loan paid of it."""
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


class Lease(Spec):
    """Lease of hardware in place of its purchase. Fractions are of the hardware's price; amounts recur in each term."""

    term_months: Annotated[Count, Field(le=1200)]
    """Months of the lease, at most `life_years`."""
    payment: Share | None = None
    """Monthly payment as a fraction of the price (lease rate factor): 0.03 is 3 % of the price a month."""
    rate: Fraction | None = None
    """Nominal interest rate per year from which the payment follows, in place of `payment`: 0.07 is 7 %."""
    residual: Fraction = 0.0
    """Value at the end of the term that the payments leave, with `rate`."""
    buyout: Fraction | None = None
    """Price at the end of the term with `at_end: buy`. Default: `residual`."""
    deposit: Fraction = 0.0
    """Deposit at delivery, returned without interest at the end."""
    in_advance: bool = False
    """True: payments at the start of each month. Default: at its end."""
    at_end: Literal["return", "buy", "extend"] = "return"
    """return: the next lease of new hardware follows on the same terms, deployment included; buy: pay `buyout`, keep,
    and resell at the end of `life_years`; extend: pay on until then, and return."""

    @model_validator(mode="after")
    def _one_payment(self) -> Self:
        if (self.payment is None) == (self.rate is None):
            raise ValueError("a lease has either payment or rate: state one")
        if self.payment is not None and self.residual:
            raise ValueError("residual makes the payment from rate: with payment, remove it (at_end: buy has buyout)")
        if self.buyout is not None and self.at_end != "buy":
            raise ValueError(Message("buyout is paid with at_end: buy only, not with {at_end}", self.at_end))
        return self

    @property
    def monthly(self) -> float:
        """Monthly payment as a fraction of the price.

        Notes
        -----
        With i = rate / 12, n months and the residual R: (1 - R / (1 + i)^n) / a, a = (1 - (1 + i)^-n) / i; divided by
        1 + i where it is paid in advance.

        References
        ----------
        Brealey, Myers, Allen, Principles of Corporate Finance, chapter on leasing.

        Examples
        --------
        >>> round(10_000 * Lease(term_months=12, rate=0.12).monthly, 2)
        888.49

        """
        if self.payment is not None:
            return self.payment
        assert self.rate is not None
        per_month = self.rate / MONTHS_PER_YEAR
        per_year = (1 + per_month) ** MONTHS_PER_YEAR - 1
        left = 1 - self.residual * discount_factor(per_year, self.term_months)
        return left / annuity_factor(per_year, self.term_months) / (1 + per_month if self.in_advance else 1)

    @property
    def buyout_fraction(self) -> float:
        """Price at the end of the term as a fraction of the price when new; 0 unless it is bought."""
        if self.at_end != "buy":
            return 0.0
        return self.residual if self.buyout is None else self.buyout

    def end_month(self, start: int, end: int) -> int:
        """Return the month in which hardware leased from *start* and held until *end* is returned or bought."""
        return min(end, start + self.term_months) if self.at_end == "buy" else end

    def months_paid(self, start: int, end: int) -> range:
        """Return the months at whose ends hardware leased from *start* is paid for, up to *end*."""
        last = self.end_month(start, end)
        return range(start, last) if self.in_advance else range(start + 1, last + 1)

    def terms(self, holding: "Holding") -> Iterator["Holding"]:
        """Yield the time of each lease within *holding*; each lease has its own hardware."""
        if self.at_end != "return":
            yield holding
            return
        removal_usd = holding.proceeds_usd - holding.resale_usd
        for start in range(holding.start_month, holding.end_month, self.term_months):
            end = min(start + self.term_months, holding.end_month)
            yield Holding(start, end, holding.price_usd, removal_usd, holding.hardware_usd, 0.0)

    def owned(self, term: "Holding") -> list["Holding"]:
        """Return what the lessee owns beside the lease *term*: unleased parts, and hardware bought at its end."""
        rest_usd = term.price_usd - term.hardware_usd
        found = [Holding(term.start_month, term.end_month, rest_usd, term.proceeds_usd - term.resale_usd)]
        bought = term.start_month + self.term_months
        if self.at_end == "buy" and bought <= term.end_month:
            paid_usd = self.buyout_fraction * term.hardware_usd
            found.append(Holding(bought, term.end_month, paid_usd, term.resale_usd))
        return found


class Financing(Spec):
    """Way to finance purchases: a loan or a lease."""

    loan: Loan | None = None
    """Loan on purchases."""
    lease: Lease | None = None
    """Lease of the hardware in place of its purchase."""

    @model_validator(mode="after")
    def _states_one(self) -> Self:
        if self.loan is None and self.lease is None:
            raise ValueError("a way to finance needs loan or lease")
        refuse_both(self.loan is not None, self.lease is not None)
        return self


def refuse_both(has_loan: bool, has_lease: bool) -> None:
    """Raise ValueError if both a loan and a lease are stated for one purchase."""
    if has_loan and has_lease:
        raise ValueError("loan and lease finance the same purchase: remove one; breakeven.financing compares them")


@dataclass(frozen=True, slots=True)
class Holding:
    """Hardware from its delivery to its sale."""

    start_month: int
    end_month: int
    price_usd: float
    """Payment at delivery [USD]."""
    proceeds_usd: float
    """Sale at the end, less removal [USD]."""
    hardware_usd: float = 0.0
    """Part of the payment that a lease replaces: the price of resellable hardware, without sales tax and deployment
    [USD]."""
    resale_usd: float = 0.0
    """Resale value within the proceeds [USD]."""
    tax_value_usd: float | None = None
    """Value that is depreciated, for tax and in the books [USD]; None: the payment."""
    book_months: int | None = None
    """Months of depreciation left in the books; None: the life of the hardware."""
    book_usd: float = 0.0
    """Book value after `book_months` [USD]."""
    moved_usd: tuple[tuple[int, float], ...] = ()
    """Payments (month, amount [USD]) beside the purchase that sum to 0: VAT, deposits, net terms. A lease has none."""
    terms_usd: tuple[tuple[int, float], ...] = ()
    """Part of `moved_usd` for the terms of payment of the price (deposits, net terms), which a loan follows."""

    @property
    def due_usd(self) -> dict[int, float]:
        """Month -> payment of the price, without VAT to be recovered [USD]."""
        found = {self.start_month: self.price_usd}
        for month, usd in self.terms_usd:
            found[month] = found.get(month, 0.0) + usd
        return {month: usd for month, usd in found.items() if abs(usd) > 1e-12 * self.price_usd}


LINES = ("operating", "purchase", "sale", "loan_drawn", "interest", "principal", "lease", "deposit", "income_tax")
"""Lines of a month's cash after financing and tax."""
WORKING = "working_capital"
"""Further line where purchases are not paid at delivery, or VAT is recovered."""
CARBON_PRICE = "carbon_price"
"""Further line where emissions have an internal price: a cost that is neither paid, deducted from tax nor booked."""


@dataclass(frozen=True, slots=True)
class FinancedMonth:
    """Cash at the end of a month after financing and tax; payments are positive, receipts negative."""

    month: int
    """Month; 0 is the delivery."""
    parts_usd: dict[str, list[float]] = field(default_factory=lambda: {line: [] for line in LINES})
    """Line -> payments [USD]."""

    @property
    def lines_usd(self) -> dict[str, float]:
        """Payment of each line [USD]."""
        return {line: fsum(parts) for line, parts in self.parts_usd.items()}

    @property
    def cost_usd(self) -> float:
        """Sum of all lines [USD]."""
        return fsum(usd for parts in self.parts_usd.values() for usd in parts)


def financed(
    operating_usd: Sequence[float],
    holdings: Sequence[Holding],
    loan: Loan | None,
    tax: IncomeTax | None,
    lease: Lease | None = None,
    revenue_usd: Sequence[float] = (),
    carbon_usd: Sequence[float] = (),
    years: FiscalYears = FROM_DELIVERY,
) -> list[FinancedMonth]:
    """Return the cash of each month after financing and tax.

    Parameters
    ----------
    operating_usd
        Operating cost paid at the end of months 1, 2, ... [USD].
    holdings
        Hardware bought and sold within these months. At a sale, the undepreciated rest is deducted, a gain over it is
        taxed, and a loan that still runs is repaid.
    loan
        Loan on each payment of a purchase; None: own money.
    tax
        Income tax; None: before tax.
    lease
        Lease of the hardware, in place of its purchase. Its payments are deducted when paid; those after the last month
        are not counted.
    revenue_usd
        Revenue of months 1, 2, ..., from which losses carried forward are deducted [USD]; it is not part of any line.
    carbon_usd
        Internal price of the emissions of months 1, 2, ... beside *operating_usd* [USD]; empty where they have none.
    years
        Fiscal years of the tax.

    Returns
    -------
    Cash at the ends of months 0 (delivery), 1, 2, ... All deductions of a fiscal year reduce the tax at its end, or at
    the last month.

    """
    last = len(operating_usd)
    found = [FinancedMonth(month) for month in range(last + 1)]
    if any(one.moved_usd for one in holdings):
        for one_month in found:
            one_month.parts_usd[WORKING] = []
    for month, usd in enumerate([0.0, *operating_usd]):
        found[month].parts_usd["operating"].append(usd)
    for month, usd in enumerate([0.0, *carbon_usd] if carbon_usd else ()):
        found[month].parts_usd[CARBON_PRICE] = [usd]
    deducted = [0.0, *operating_usd]

    def pay(month: int, line: str, usd: float) -> None:
        found[month].parts_usd[line].append(usd)

    for one in holdings:
        owned = [one]
        is_leased = lease is not None and bool(one.hardware_usd)
        for month, usd in () if is_leased else one.moved_usd:
            pay(month, WORKING, usd)
        if lease is not None and is_leased:
            owned = []
            for term in lease.terms(one):
                for month in lease.months_paid(term.start_month, term.end_month):
                    pay(month, "lease", lease.monthly * term.hardware_usd)
                    deducted[max(month, 1)] += lease.monthly * term.hardware_usd
                returned = lease.end_month(term.start_month, term.end_month)
                pay(term.start_month, "deposit", lease.deposit * term.hardware_usd)
                pay(returned, "deposit", -lease.deposit * term.hardware_usd)
                owned += lease.owned(term)
        for own in owned:
            pay(own.start_month, "purchase", own.price_usd)
            pay(own.end_month, "sale", -own.proceeds_usd)
            if tax is not None:
                _depreciate(own, tax.depreciation, deducted, years)
        if loan is not None:
            _borrow(one, loan, pay, deducted)
    if tax is not None:
        for month, usd in _tax_savings(tax, deducted, revenue_usd, years):
            pay(month, "income_tax", -usd)
    return found


def earned_usd(
    costs_usd: Sequence[float], revenue_usd: Sequence[float], tax_rate: float, years: FiscalYears = FROM_DELIVERY
) -> list[float]:
    """Return revenue less income tax on it and all costs, at the ends of months 0, 1, 2, ... [USD].

    Parameters
    ----------
    costs_usd
        Costs at the ends of months 0, 1, 2, ..., less the income tax that they save [USD].
    revenue_usd
        Revenue of months 1, 2, ... [USD].
    tax_rate
        Rate of the income tax, paid at the end of each fiscal year.
    years
        Fiscal years of the tax.

    Examples
    --------
    >>> earned_usd([100.0, 10.0, 10.0], [60.0, 60.0], 0.25)
    [-100.0, 50.0, 20.0]

    """
    taxes_usd = revenue_taxes_usd(revenue_usd, tax_rate, years)
    return [sold - tax - cost for sold, tax, cost in zip([0.0, *revenue_usd], taxes_usd, costs_usd, strict=True)]


def revenue_taxes_usd(revenue_usd: Sequence[float], tax_rate: float, years: FiscalYears) -> list[float]:
    """Return the income tax on the revenue of months 1, 2, ..., at the ends of months 0, 1, 2, ... [USD].

    >>> revenue_taxes_usd([60.0, 60.0], 0.25, FROM_DELIVERY)
    [0.0, 0.0, 30.0]
    """
    found = [0.0] * (len(revenue_usd) + 1)
    for before, end in pairwise([0, *years.ends(len(revenue_usd))]):
        found[end] = tax_rate * fsum(revenue_usd[before:end])
    return found


def _tax_savings(
    tax: IncomeTax, deducted: Sequence[float], revenue_usd: Sequence[float], fiscal: FiscalYears
) -> Iterator[tuple[int, float]]:
    """Yield (last month, tax saved) of each fiscal year, by what is *deducted* in each month."""
    ends = fiscal.ends(len(deducted) - 1)
    years = list(zip([1, *(month + 1 for month in ends)], ends, strict=False))
    sums = [fsum(deducted[first : end + 1]) for first, end in years]
    if tax.losses == "used_at_once":
        return zip(ends, (tax.rate * usd for usd in sums), strict=True)
    sold = [fsum(revenue_usd[first - 1 : end]) for first, end in years] if revenue_usd else []
    return zip(ends, tax.reliefs(sums, [end - first + 1 for first, end in years], sold), strict=True)


def _borrow(one: Holding, loan: Loan, pay: Callable[[int, str, float], None], deducted: list[float]) -> None:
    """Pay interest and principal of the *loan* on a purchase, and add the interest to what is *deducted*."""
    for due, usd in one.due_usd.items():
        principal = balance = loan.share * usd
        pay(due, "loan_drawn", -principal)
        for month, part in enumerate(loan.installments(principal), due + 1):
            if month > one.end_month:
                break
            pay(month, "interest", part.interest_usd)
            pay(month, "principal", part.principal_usd)
            deducted[month] += part.interest_usd
            balance = part.balance_usd
        pay(one.end_month, "principal", balance)


def _depreciate(one: Holding, terms: TaxDepreciation, deducted: list[float], years: FiscalYears) -> None:
    """Add the depreciation of a holding to the deductions of each month; a sale is a negative deduction.

    The fiscal year of the sale deducts the remaining value.
    """
    left = base = one.price_usd if one.tax_value_usd is None else one.tax_value_usd
    ended, months = years.months_in(one.start_month)
    for year, fraction in enumerate(terms.by_fiscal_year(months), ended + 1):
        end = MONTHS_PER_YEAR * year - years.passed
        if end > one.end_month:
            break
        deducted[end] += fraction * base
        left -= fraction * base
    deducted[max(1, one.end_month)] += left - one.proceeds_usd


def cost_of_capital(loan: Loan, tax: IncomeTax | None, discount_rate: float) -> float:
    """Return the weighted average cost of capital per year of a purchase at delivery, after tax (WACC).

    Notes
    -----
    D r_D (1 - t) + (1 - D) r_E with the loan's share D, its effective rate r_D = (1 + rate / 12)^12 - 1, the tax rate t
    and the owner's *discount_rate* r_E.

    References
    ----------
    Brealey, Myers, Allen, Principles of Corporate Finance, chapter on financing and valuation.

    Examples
    --------
    >>> round(cost_of_capital(Loan(share=0.4, rate=0, term_months=12), None, 0.1), 9)
    0.06

    """
    borrowed = (1 + loan.rate / MONTHS_PER_YEAR) ** MONTHS_PER_YEAR - 1
    after_tax = borrowed * (1 - (tax.rate if tax is not None else 0.0))
    return loan.share * after_tax + (1 - loan.share) * discount_rate


def equivalent_annual_usd(net_present_usd: float, discount_rate: float, months: float) -> float:
    """Return the equal payment at the end of each year with the present value *net_present_usd* [USD].

    Notes
    -----
    NPV r / (1 - (1 + r)^-n) for n years; NPV / n for r = 0.

    References
    ----------
    Newnan, Eschenbach, Lavelle, Engineering Economic Analysis, chapter 6 (equivalent uniform annual cost).

    Examples
    --------
    >>> round(equivalent_annual_usd(1000.0, 0.1, 36), 2)
    402.11

    """
    years = months / MONTHS_PER_YEAR
    if discount_rate == 0:
        return net_present_usd / years
    return net_present_usd * discount_rate / (1 - discount_factor(discount_rate, months))


def net_present_usd(costs_usd: Sequence[float], discount_rate: float) -> float:
    """Return the present value of costs at the ends of months 0, 1, 2, ... at *discount_rate* per year [USD]."""
    return present_value(discount_rate, enumerate(costs_usd))


def internal_rate(flows_usd: Sequence[float]) -> float | None:
    """Return the internal rate of return per year of *flows_usd* at the ends of months 0, 1, 2, ...

    None unless exactly one rate above -99 %, or exactly one positive rate, fits.

    Notes
    -----
    One rate fits if the flows change their sign once (Descartes' rule), and one positive rate if their running sum does
    (Norstrom's criterion; tax payments change the sign in single months). Elsewhere the rates are the real roots of the
    polynomial in the discount factor.

    References
    ----------
    Norstrom, A Sufficient Condition for a Unique Nonnegative Internal Rate of Return, JFQA 7 (1972).

    Examples
    --------
    >>> round(internal_rate([-1000.0, *[0.0] * 11, 1100.0]), 9)
    0.1

    """
    from scipy.optimize import brentq  # slow to import, and most answers have no tax

    first = next((month for month, usd in enumerate(flows_usd) if usd), 0)
    flows_usd = flows_usd[first:]  # time before the first payment changes no root
    low = -0.99
    if _sign_changes(flows_usd) != 1:
        if flows_usd[0] >= 0:
            return None
        sums = list(accumulate(flows_usd))
        if sums[-1] and _sign_changes(sums) == 1:
            low = 0.0  # negative rates may fit as well, such as with a payment at the end
        else:
            rates = _fitting_rates(flows_usd)
            positive = [rate for rate in rates if rate > -1e-6]
            if len(positive or rates) != 1:
                return None
            low = 0.0 if positive else low

    def value(rate_per_year: float) -> float:
        return net_present_usd(flows_usd, rate_per_year)

    high = 1.0
    while value(high) * value(low) > 0 and high < 1e6:
        high *= 10
    return float(brentq(value, low, high, xtol=1e-12)) if value(high) * value(low) <= 0 else None


def modified_rate(flows_usd: Sequence[float], rate: float) -> float | None:
    """Return the modified internal rate of return per year of *flows_usd* at the ends of months 0, 1, 2, ...

    Receipts are reinvested, and payments are financed, at *rate* per year. None without receipts or without payments.

    Notes
    -----
    (FV(receipts) / -PV(payments))^(1/n) - 1, as numpy_financial.mirr.

    References
    ----------
    Lin, The Modified Internal Rate of Return and Investment Criterion, Engineering Economist 21 (1976).

    Examples
    --------
    >>> yearly = [-1000.0, -4000.0, 5000.0, 2000.0]
    >>> monthly = [usd if k == 0 else 0.0 for usd in yearly for k in range(12)]
    >>> round(modified_rate(monthly[:37], 0.10), 4)  # (7,500 / 4,636.36)^(1/3) - 1
    0.1739

    """
    received = net_present_usd([max(usd, 0.0) for usd in flows_usd], rate)
    paid = -net_present_usd([min(usd, 0.0) for usd in flows_usd], rate)
    if not received or not paid or len(flows_usd) < 2:
        return None
    return float((1 + rate) * (received / paid) ** (MONTHS_PER_YEAR / (len(flows_usd) - 1)) - 1)


def payback(flows_usd: Sequence[float], rate: float = 0.0) -> float | None:
    """Return the months after which *flows_usd* have paid for themselves for good; None if they never do.

    With *rate* per year flows are discounted (discounted payback); a month's flow arrives evenly.

    References
    ----------
    Short, Packey, Holt, A Manual for the Economic Evaluation of Energy Efficiency and Renewable Energy Technologies,
    NREL/TP-462-5173, chapter on payback.

    Examples
    --------
    >>> payback([-1000.0, 400.0, 400.0, 400.0])
    2.5

    """
    sums = list(accumulate(usd * discount_factor(rate, month) for month, usd in enumerate(flows_usd)))
    open_months = [month for month, usd in enumerate(sums) if usd < 0]
    if not open_months:
        return 0.0
    month = open_months[-1]
    if month == len(sums) - 1:
        return None
    return month + sums[month] / (sums[month] - sums[month + 1])


def _fitting_rates(flows_usd: Sequence[float]) -> list[float]:
    """Return all rates per year above -99 % at which the present value of *flows_usd* is 0."""
    factors = [root.real for root in np.roots(flows_usd[::-1]) if abs(root.imag) < 1e-6 * abs(root)]
    rates = [factor**-MONTHS_PER_YEAR - 1 for factor in factors if factor > 0]
    return [rate for rate in rates if rate > -0.99]


def _sign_changes(values: Sequence[float]) -> int:
    signs = [value > 0 for value in values if value]
    return sum(a != b for a, b in pairwise(signs))
