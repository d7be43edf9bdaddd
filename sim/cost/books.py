"""Books of purchases and leases: yearly profit and loss, and the balance sheet, without tax and discounting.

Hardware is depreciated in equal parts over `life_years` to its resale value (IAS 16, ASC 360), with sales tax and
deployment. Owners pay in all cash that is needed, so the books hold no cash; income tax is that of the year, without
deferred tax.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import fsum, isclose
from typing import Literal, NamedTuple

from sim.cost.financing import CARBON_PRICE, WORKING, FinancedMonth, Holding, Lease
from sim.cost.time_value import MONTHS_PER_YEAR

LeaseStandard = Literal["ifrs_16", "asc_842_finance", "asc_842_operating"]
EXPENSES = (
    *("operating", "depreciation", "disposal_loss", "interest"),
    *("lease_interest", "lease_amortisation", "lease_cost", "income_tax"),
)
"""Lines of profit and loss."""
BALANCES = (
    *("gross", "accumulated", "net", "right_of_use", "deposit"),
    *("loan", "lease_liability", "paid_in", "retained"),
)
"""Lines of the balance sheet: assets, liabilities, equity."""
WORKING_BALANCES = ("receivable", "payable")
"""Further lines where purchases are not paid at delivery, or VAT is recovered: an asset and a liability."""
_RESIDUE = 1e-12  # relative size of the rounding residue of a balance
Lines = dict[str, list[float]]
"""Line -> amount by month [USD]."""


class BookTerms(NamedTuple):
    """Terms of the books."""

    standard: LeaseStandard
    """Accounting standard of leases."""
    life_months: int
    """Months over which hardware is depreciated."""
    residual_fraction: float
    """Value at the end of the life as a fraction of the hardware's price."""
    rate: float
    """Discount rate per year of lease payments, where the lease states none (incremental borrowing rate)."""


@dataclass(frozen=True, slots=True)
class BooksMonth:
    """Profit and loss of a month, and the balance sheet at its end."""

    month: int
    """Month; 0 is the delivery."""
    expenses_usd: dict[str, float]
    """Line of `EXPENSES` -> expense [USD]."""
    balances_usd: dict[str, float]
    """Line of `BALANCES` -> balance [USD]."""

    @property
    def assets_usd(self) -> float:
        """Total of the assets [USD]."""
        return fsum(self.balances_usd.get(name, 0.0) for name in ("net", "right_of_use", "deposit", "receivable"))

    @property
    def liabilities_usd(self) -> float:
        """Total of the liabilities [USD]."""
        return fsum(self.balances_usd.get(name, 0.0) for name in ("loan", "lease_liability", "payable"))

    @property
    def equity_usd(self) -> float:
        """Paid-in capital less accumulated expenses [USD]."""
        paid_usd, spent_usd = self.balances_usd["paid_in"], -self.balances_usd["retained"]
        return _without_residue(paid_usd, spent_usd)


class LeasePeriod(NamedTuple):
    """Lease in the books at the end of a period."""

    interest_usd: float
    amortisation_usd: float
    """Fall of the right-of-use asset in the period [USD]."""
    liability_usd: float
    asset_usd: float


def lease_schedule(
    payments_usd: Sequence[float], rate: float, periods: int, residual_usd: float = 0.0, level_cost: bool = False
) -> list[LeasePeriod]:
    """Return liability and right-of-use asset of a lease at the ends of periods 0, 1, 2, ...

    Parameters
    ----------
    payments_usd
        Payments at the ends of periods 0 (start), 1, 2, ... [USD].
    rate
        Discount rate per period.
    periods
        Number of periods over which the asset is written down.
    residual_usd
        Value that the asset is written down to [USD].
    level_cost
        True for an operating lease of ASC 842: interest and amortisation are the same sum in all periods.

    Notes
    -----
    The liability is the present value of the payments to come (IFRS 16.26, ASC 842-20-30-1); the asset starts at that
    of all payments.

    Examples
    --------
    Ten payments of 50,000 in advance at 5 % a year, IFRS 16 illustrative example 13:

    >>> first = lease_schedule([50_000.0] * 10, 0.05, 10)[0]
    >>> round(first.liability_usd), round(first.asset_usd)
    (355391, 405391)

    """
    asset = fsum(usd / (1 + rate) ** period for period, usd in enumerate(payments_usd))
    liability, level = asset - payments_usd[0], fsum(payments_usd) / periods
    equal = (asset - residual_usd) / periods
    found = [LeasePeriod(0.0, 0.0, liability, asset)]
    for period in range(1, max(periods, len(payments_usd) - 1) + 1):
        interest = liability * rate
        written = (level - interest if level_cost else equal) if period <= periods else 0.0
        asset -= written
        liability += interest - (payments_usd[period] if period < len(payments_usd) else 0.0)
        found.append(LeasePeriod(interest, written, liability, asset))
    return found


def books(
    months: Sequence[FinancedMonth], holdings: Sequence[Holding], lease: Lease | None, terms: BookTerms
) -> list[BooksMonth]:
    """Return profit and loss and the balance sheet by month.

    Parameters
    ----------
    months
        Cash after financing and tax.
    holdings
        Hardware that is bought, or leased with *lease*.
    lease
        Lease of the hardware; None: bought.
    terms
        Terms of the books.

    """
    count = len(months)
    cash = {name: [one.lines_usd[name] for one in months] for name in months[0].parts_usd}
    expenses = {name: [0.0] * count for name in EXPENSES}
    changes = {name: [0.0] * count for name in ("gross", "accumulated", "right_of_use", "lease_liability")}
    for name in ("operating", "interest", "income_tax"):
        expenses[name] = cash[name]
    opening = fsum(one.tax_value_usd or 0.0 for one in holdings)
    for one in holdings:
        if lease is None or not one.hardware_usd:
            _depreciate(one, terms.residual_fraction * one.hardware_usd, terms.life_months, expenses, changes)
            continue
        for term in lease.terms(one):
            life = lease.term_months if lease.at_end == "return" else terms.life_months
            _depreciate(lease.owned(term)[0], 0.0, life, expenses, changes)
            _recognise(term, lease, life, terms, expenses, changes)
    found = {name: _running(values) for name, values in changes.items()}
    found["net"] = [gross - less for gross, less in zip(found["gross"], found["accumulated"], strict=True)]
    found["deposit"] = _running(cash["deposit"])
    owed = map(fsum, zip(cash["loan_drawn"], cash["principal"], strict=True))
    found["loan"] = [0.0 - usd for usd in _running(owed)]
    names: tuple[str, ...] = BALANCES
    if WORKING in cash:
        names = (*BALANCES, *WORKING_BALANCES)
        open_usd = [_running(_moved(one, lease, count)) for one in holdings]
        found["receivable"] = [fsum(max(0.0, usd) for usd in each) for each in zip(*open_usd, strict=True)]
        found["payable"] = [fsum(max(0.0, -usd) for usd in each) for each in zip(*open_usd, strict=True)]
    paid = (one.cost_usd - one.lines_usd.get(CARBON_PRICE, 0.0) for one in months)
    found["paid_in"] = [opening + usd for usd in accumulate(paid)]
    found["retained"] = [-usd for usd in accumulate(fsum(parts) for parts in zip(*expenses.values(), strict=True))]
    return [
        BooksMonth(
            one.month,
            {name: expenses[name][one.month] for name in EXPENSES},
            {name: found[name][one.month] for name in names},
        )
        for one in months
    ]


def _without_residue(usd: float, less_usd: float) -> float:
    """Return the difference of two amounts, without its rounding residue where they are the same [USD]."""
    return 0.0 if isclose(usd, less_usd, rel_tol=_RESIDUE) else usd - less_usd


def _running(changes_usd: Iterable[float]) -> list[float]:
    """Return the balance after each change, without the rounding residue of balances that are settled [USD]."""
    found, moved_usd = [0.0], 0.0
    for usd in changes_usd:
        balance, moved_usd = found[-1] + usd, moved_usd + abs(usd)
        found.append(0.0 if abs(balance) <= _RESIDUE * moved_usd else balance)
    return found[1:]


def _moved(one: Holding, lease: Lease | None, count: int) -> list[float]:
    """Return the payments of a holding beside its purchase, by month [USD]; a leased one has none."""
    found = [0.0] * count
    for month, usd in () if lease is not None and one.hardware_usd else one.moved_usd:
        found[month] += usd
    return found


def _depreciate(
    one: Holding,
    residual_usd: float,
    life_months: int,
    expenses: Lines,
    changes: Lines,
) -> None:
    """Book a holding: its cost, equal parts down to *residual_usd* over *life_months*, and its disposal."""
    cost = one.price_usd if one.tax_value_usd is None else one.tax_value_usd
    life, residual = (
        one.book_months or life_months,
        min(cost, residual_usd if one.book_months is None else one.book_usd),
    )
    changes["gross"][one.start_month] += cost
    part, written = (cost - residual) / life, 0.0
    held = range(one.start_month + 1, min(one.end_month, one.start_month + life) + 1)
    for month in held:
        written += part
        expenses["depreciation"][month] += part
        changes["accumulated"][month] += part
    changes["gross"][one.end_month] -= cost
    changes["accumulated"][one.end_month] -= written
    left = residual + part * (life - len(held))
    expenses["disposal_loss"][one.end_month] += _without_residue(left, one.proceeds_usd)


def _recognise(
    term: Holding,
    lease: Lease,
    life_months: int,
    terms: BookTerms,
    expenses: Lines,
    changes: Lines,
) -> None:
    """Book a lease: right-of-use asset and liability, interest and amortisation, and the sale of what is bought."""
    start, bought = term.start_month, term.start_month + lease.term_months
    payments = [0.0] * (life_months + 1)
    planned, paid = lease.months_paid(start, start + life_months), lease.months_paid(start, term.end_month)
    for month in planned:
        payments[month - start] += lease.monthly * term.hardware_usd
    is_bought, level = lease.at_end == "buy", terms.standard == "asc_842_operating"
    if is_bought:
        payments[lease.term_months] += lease.buyout_fraction * term.hardware_usd
    rate = (1 + terms.rate) ** (1 / MONTHS_PER_YEAR) - 1 if lease.rate is None else lease.rate / MONTHS_PER_YEAR
    residual = terms.residual_fraction * term.hardware_usd if is_bought else 0.0
    before = LeasePeriod(0.0, 0.0, 0.0, 0.0)
    for period, at in enumerate(lease_schedule(payments, rate, life_months, residual, level)):
        month = start + period
        if month > term.end_month:
            break
        if level:
            expenses["lease_cost"][month] += at.interest_usd + at.amortisation_usd
        else:
            expenses["lease_interest"][month] += at.interest_usd
            expenses["lease_amortisation"][month] += at.amortisation_usd
        changes["right_of_use"][month] += at.asset_usd - before.asset_usd
        changes["lease_liability"][month] += at.liability_usd - before.liability_usd
        if month in planned and month not in paid:  # a payment in advance for the month after the last one shown
            changes["lease_liability"][month] += lease.monthly * term.hardware_usd
        before = at
    if is_bought and bought <= term.end_month:
        changes["right_of_use"][term.end_month] -= before.asset_usd
        expenses["disposal_loss"][term.end_month] += before.asset_usd - term.resale_usd
