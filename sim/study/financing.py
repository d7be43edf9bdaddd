"""Costs after financing and tax of candidates, and returns of one against another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from sim.cost.books import BooksMonth, books
from sim.cost.finance import Finance
from sim.cost.financing import (
    OWN_MONEY,
    FinancedMonth,
    Financing,
    Holding,
    Lease,
    Loan,
    cost_of_capital,
    earned_usd,
    equivalent_annual_usd,
    financed,
    internal_rate,
    modified_rate,
    net_present_usd,
    payback,
)
from sim.cost.time_value import FROM_DELIVERY, FiscalYears, real_rate


class Payments(NamedTuple):
    """Payments of a candidate before financing and tax."""

    operating_usd: Sequence[float]
    """Operating cost at the ends of months 1, 2, ..., without the internal price of emissions [USD]."""
    holdings: Sequence[Holding]
    discount_rate: float
    """Discount rate per year."""
    revenue_usd: Sequence[float] = ()
    """Revenue of months 1, 2, ... [USD]; empty where the scenario states no price of tokens."""
    carbon_usd: Sequence[float] = ()
    """Internal price of the emissions of months 1, 2, ... [USD]; empty without one."""
    inflation: float | None = None
    """General inflation per year; None: not stated."""
    starts: str | None = None
    """Calendar month of month 1 (2027-01); None without a date."""


class Earnings(NamedTuple):
    """Value and return of a candidate's revenue less all of its costs and taxes; no return without capital."""

    net_present_usd: float
    """Present value at the discount rate [USD]."""
    internal_rate: float | None
    """Internal rate of return per year."""
    modified_rate: float | None
    """Modified internal rate of return per year, with reinvestment at the discount rate."""
    payback_months: float | None
    """Months until the capital is paid back; None if never."""
    discounted_payback_months: float | None
    """Months until the discounted flows have paid the capital back; None if never."""
    real_internal_rate: float | None = None
    """Internal rate of return per year in today's money; None without general inflation."""


@dataclass(frozen=True, slots=True)
class AfterTax:
    """Cost of a candidate after interest, repayment, lease payments and income tax, and its return."""

    months: Sequence[FinancedMonth]
    """Cash at the ends of months 0 (delivery), 1, 2, ..."""
    discount_rate: float
    """Discount rate per year."""
    against: str = ""
    """Candidate with less capital cost that returns compare with; empty: none."""
    saved_usd: Sequence[float] = ()
    """Cost of that candidate less that of this one, by month [USD]."""
    wacc: float | None = None
    """Weighted average cost of capital per year, after tax; None without a loan."""
    books: Sequence[BooksMonth] = ()
    """Profit and loss and balance sheet by month; empty where `finance` states no books."""
    revenue_usd: Sequence[float] = ()
    """Revenue of months 1, 2, ... [USD]; no part of any cost."""
    tax_rate: float = 0.0
    """Rate of the income tax on revenue; the lines of `months` have only the tax that costs save."""
    inflation: float | None = None
    """General inflation per year; None: not stated, and the real figures are None."""
    years: FiscalYears = FROM_DELIVERY

    @property
    def net_present_usd(self) -> float:
        """Present value at the discount rate [USD]."""
        return net_present_usd([one.cost_usd for one in self.months], self.discount_rate)

    @property
    def annual_usd(self) -> float:
        """Equal payment at the end of each year with the same present value [USD]."""
        return equivalent_annual_usd(self.net_present_usd, self.discount_rate, len(self.months) - 1)

    @property
    def real_annual_usd(self) -> float | None:
        """Payment at the end of each year, equal in today's money, with the same present value [USD]."""
        if self.inflation is None:
            return None
        rate = real_rate(self.discount_rate, self.inflation)
        return equivalent_annual_usd(self.net_present_usd, rate, len(self.months) - 1)

    @property
    def earned_usd(self) -> Sequence[float]:
        """Revenue less income tax and all costs, by month [USD]."""
        return earned_usd([one.cost_usd for one in self.months], self.revenue_usd, self.tax_rate, self.years)

    @property
    def earnings(self) -> "Earnings":
        """Value and return of revenue less income tax and all costs."""
        flows = self.earned_usd
        is_capital = flows[0] < 0 or any(one.lines_usd["purchase"] for one in self.months)
        first = next((month for month, usd in enumerate(flows) if usd), 0)
        invested = flows[first:] if is_capital and flows[first] < 0 else []
        rate = internal_rate(invested) if invested else None
        return Earnings(
            net_present_usd(flows, self.discount_rate),
            rate,
            modified_rate(invested, self.discount_rate) if invested else None,
            payback(flows),
            payback(flows, self.discount_rate),
            None if rate is None or self.inflation is None else real_rate(rate, self.inflation),
        )

    @property
    def real_internal_rate(self) -> float | None:
        """Internal rate of return per year in today's money."""
        nominal = self.internal_rate
        return None if nominal is None or self.inflation is None else real_rate(nominal, self.inflation)

    @property
    def internal_rate(self) -> float | None:
        """Internal rate of return per year of the additional capital, by the savings against `against`."""
        return internal_rate(self.saved_usd) if self.saved_usd else None

    @property
    def modified_rate(self) -> float | None:
        """Modified internal rate of return per year, with reinvestment at the discount rate."""
        return modified_rate(self.saved_usd, self.discount_rate) if self.saved_usd else None

    @property
    def payback_months(self) -> float | None:
        """Months until the savings have paid the additional capital back; None if they never do."""
        return payback(self.saved_usd) if self.saved_usd else None

    @property
    def discounted_payback_months(self) -> float | None:
        """Months until the discounted savings have paid the additional capital back; None if they never do."""
        return payback(self.saved_usd, self.discount_rate) if self.saved_usd else None


def after_tax(payments: Payments, finance: Finance | None, loan: Loan | None, lease: Lease | None) -> AfterTax:
    """Return the cost of *payments* with this loan or lease, and the tax and books of *finance*."""
    tax, terms = (finance.tax, finance.book_terms) if finance is not None else (None, None)
    bought = any(one.price_usd for one in payments.holdings)
    years = finance.fiscal_years(payments.starts) if finance is not None else FROM_DELIVERY
    months = financed(
        payments.operating_usd, payments.holdings, loan, tax, lease, payments.revenue_usd, payments.carbon_usd, years
    )
    wacc = cost_of_capital(loan, tax, payments.discount_rate) if bought and loan is not None else None
    found = books(months, payments.holdings, lease, terms) if terms is not None else []
    return AfterTax(
        months,
        payments.discount_rate,
        wacc=wacc,
        books=found,
        revenue_usd=payments.revenue_usd,
        inflation=payments.inflation,
        tax_rate=tax.rate if tax is not None else 0.0,
        years=years,
    )


def as_stated(payments: Payments, finance: Finance | None) -> AfterTax:
    """Return the cost of *payments* with the loan or lease, the tax and the books that *finance* states."""
    terms = (finance.loan, finance.lease) if finance is not None else (None, None)
    return after_tax(payments, finance, *terms)


def ways_to_finance(
    payments: Payments, finance: Finance | None, others: Mapping[str, Financing] | None = None
) -> dict[str, AfterTax]:
    """Return label -> cost with own money, with the loan or lease of *finance*, and with each of *others*.

    Payments without purchases have one row, with an empty label.
    """
    if not any(one.price_usd for one in payments.holdings):
        return {"": after_tax(payments, finance, None, None)}
    found = {OWN_MONEY: after_tax(payments, finance, None, None)}
    if finance is not None and (finance.loan or finance.lease):
        found["loan" if finance.loan else "lease"] = as_stated(payments, finance)
    return found | {label: after_tax(payments, finance, one.loan, one.lease) for label, one in (others or {}).items()}


def compared(one: AfterTax, other: AfterTax, name: str) -> AfterTax:
    """Return *one* with its returns against *other*, the candidate *name*."""
    saved = [theirs.cost_usd - ours.cost_usd for theirs, ours in zip(other.months, one.months, strict=True)]
    return replace(one, against=name, saved_usd=saved)
