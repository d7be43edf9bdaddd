"""Tables of financing: cost and return of each way to finance a candidate, and its cash by month and by fiscal year."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

from sim.cost.books import EXPENSES
from sim.cost.financing import revenue_taxes_usd
from sim.cost.multi_year import month_after
from sim.cost.time_value import MONTHS_PER_YEAR
from sim.language import N_, _
from sim.report.page.page import PageTable
from sim.report.run.tables import write_rows
from sim.report.words.money import cash, in_code
from sim.report.words.text import percent, plain
from sim.study.financing import AfterTax, Earnings

STATED_WAYS = (N_("own money"), N_("loan"), N_("lease"))
"""Ways to finance that a scenario does not name itself, for translation."""
WORKING_USD = "working_capital_usd"
"""Column of tables where purchases are not paid at delivery, or VAT is recovered."""
YEAR_ENDS = "fiscal_year_ends"
"""Column of fiscal years by the calendar: their last month."""
PREPAID_USD = "prepaid_rent_usd"
"""Column of plan.csv: part of the month's rent that was paid in advance."""
WORTH = "net_present_value_with_revenue_usd"
"""Column of tables with revenue: present value of revenue less all costs and taxes."""
Financings = Mapping[str, Mapping[str, AfterTax]]
"""Candidate -> way to finance -> cost with it."""


def financing_rows(found: Financings, key: str) -> list[dict[str, Any]]:
    """Return the rows of financing.csv: a row per candidate, in the column *key*, and way to finance it."""
    sells = _sells(found)
    return [
        {
            key: name,
            "financing": label,
            "after_tax_net_present_cost_usd": one.net_present_usd,
            "equivalent_annual_cost_usd": one.annual_usd,
            **({} if one.inflation is None else {"real_equivalent_annual_cost_usd": one.real_annual_usd}),
            "wacc": one.wacc,
            "irr": one.internal_rate,
            **({} if one.inflation is None else {"real_irr": one.real_internal_rate}),
            "mirr": one.modified_rate,
            "payback_months": one.payback_months,
            "discounted_payback_months": one.discounted_payback_months,
            "against": one.against,
            **(_returns(one, one.inflation is not None) if sells else {}),
        }
        for name, label, one in _each(found)
    ]


_REAL_IRR = "real_irr_with_revenue"
_EARNINGS = {
    WORTH: "net_present_usd",
    "irr_with_revenue": "internal_rate",
    _REAL_IRR: "real_internal_rate",
    "mirr_with_revenue": "modified_rate",
    "payback_months_with_revenue": "payback_months",
    "discounted_payback_months_with_revenue": "discounted_payback_months",
}


def revenue_columns(one: Earnings | None, is_real: bool) -> dict[str, float | None]:
    """Return the columns with revenue, with a real rate if *is_real*; None for a candidate that sells nothing."""
    names = (name for name in _EARNINGS if is_real or name != _REAL_IRR)
    return {name: None if one is None else getattr(one, _EARNINGS[name]) for name in names}


def revenue_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells with revenue of a table's row; none where nothing is sold."""
    if WORTH not in row:
        return []
    forms = {WORTH: cash, "irr_with_revenue": percent, "payback_months_with_revenue": plain}
    return ["" if row[name] is None else form(row[name]) for name, form in forms.items()]


def revenue_heads() -> list[str]:
    """Return the headings of `revenue_cells`."""
    return [
        in_code(_("net present value with revenue [USD]")),
        _("IRR with revenue"),
        _("payback with revenue [months]"),
    ]


def month_rows(found: Financings, key: str) -> list[dict[str, Any]]:
    """Return the rows of financed_months.csv: cash by month and line; receipts are negative."""
    return [
        {
            key: name,
            "financing": label,
            **fiscal_year(way, one.month),
            "month": one.month,
            **{f"{line}_usd": usd for line, usd in one.lines_usd.items()},
            "after_tax_cost_usd": one.cost_usd,
            **(sold[one.month] if sold else {}),
        }
        for name, label, way in _each(found)
        for sold in [_sold_columns(way)]
        for one in way.months
    ]


def _sold_columns(way: AfterTax) -> list[dict[str, float]]:
    """Return the columns with revenue by month: received revenue and paid tax are positive; empty without revenue."""
    taxes = revenue_taxes_usd(way.revenue_usd, way.tax_rate, way.years)
    return (
        [
            {"revenue_usd": sold, "revenue_tax_usd": tax, "cash_with_revenue_usd": earned}
            for sold, tax, earned in zip([0.0, *way.revenue_usd], taxes, way.earned_usd, strict=True)
        ]
        if way.revenue_usd
        else []
    )


def year_rows(found: Financings, key: str) -> list[dict[str, Any]]:
    """Return the rows of financed_years.csv: cash by fiscal year and line; receipts are negative."""
    years: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in month_rows(found, key):
        place = (row[key], row["financing"], row["fiscal_year"])
        columns = list(row)
        total = years.setdefault(place, {name: row[name] for name in columns[: columns.index("month")]})
        for name in columns[columns.index("month") + 1 :]:
            total[name] = total.get(name, 0.0) + row[name]
    return list(years.values())


def book_rows(found: Financings, key: str) -> list[dict[str, Any]]:
    """Return the rows of books.csv: expenses of each fiscal year, and the balance sheet at its end."""
    years: dict[tuple[str, str, int], dict[str, Any]] = {}
    for name, label, way in _each(found):
        for one in way.books:
            place = (name, label, way.years.of(one.month))
            row = years.setdefault(place, {key: name, "financing": label, **fiscal_year(way, one.month)})
            for line in EXPENSES:
                row[f"{line}_expense_usd"] = row.get(f"{line}_expense_usd", 0.0) + one.expenses_usd[line]
            row["expenses_usd"] = row.get("expenses_usd", 0.0) + fsum(one.expenses_usd.values())
            if way.revenue_usd:
                sold = way.revenue_usd[one.month - 1] if one.month else 0.0
                row["revenue_usd"] = row.get("revenue_usd", 0.0) + sold
                if way.tax_rate:
                    row["revenue_tax_usd"] = way.tax_rate * row["revenue_usd"]
                row["profit_usd"] = row["revenue_usd"] - row.get("revenue_tax_usd", 0.0) - row["expenses_usd"]
            row |= {f"{line}_balance_usd": usd for line, usd in one.balances_usd.items()}
            row |= {"assets_usd": one.assets_usd, "liabilities_usd": one.liabilities_usd, "equity_usd": one.equity_usd}
    return list(years.values())


def fiscal_year(way: AfterTax, month: int) -> dict[str, Any]:
    """Return the columns of the fiscal year of *month*: its number from 1, and its last month where it has a date."""
    year, starts = way.years.of(month), way.years.starts
    if starts is None:
        return {"fiscal_year": year}
    ends = MONTHS_PER_YEAR * year - way.years.passed
    return {"fiscal_year": year, YEAR_ENDS: month_after(starts, ends - 1)}


def write_financing(folder: Path, found: Financings, key: str) -> None:
    """Write the tables of financing into *folder*; none where no financing or tax is stated."""
    if found:
        write_rows(folder / "financing.csv", financing_rows(found, key))
        for name, rows in (("months", month_rows(found, key)), ("years", year_rows(found, key))):
            _write(folder / f"financed_{name}.csv", rows)
    if rows := book_rows(found, key):
        _write(folder / "books.csv", rows)


def _write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write *rows* under all of their columns; a line that a candidate does not have is 0."""
    columns = [*max(rows, key=len)]
    empty = {name: "" if name == YEAR_ENDS else 0.0 for name in columns}
    write_rows(path, [{**empty, **row} for row in rows], columns)


def financing_table(found: Financings, worded: Callable[[str], str] = str) -> PageTable:
    """Build the table of the ways to finance each candidate; *worded* is how a candidate's name is shown."""
    sells = _sells(found)
    rows = [
        [
            worded(name),
            _(label) if label else _("not bought"),
            cash(one.net_present_usd),
            cash(one.annual_usd),
            *(
                "" if rate is None else percent(rate)
                for rate in (one.wacc, one.internal_rate, *real, one.modified_rate)
            ),
            *(
                "" if months is None else plain(months)
                for months in (one.payback_months, one.discounted_payback_months)
            ),
            worded(one.against),
            *(revenue_cells(_returns(one, is_real=False)) if sells else []),
        ]
        for name, label, one in _each(found)
        for real in [() if one.inflation is None else (one.real_internal_rate,)]
    ]
    is_real = any(one.inflation is not None for _name, _label, one in _each(found))
    heads = [
        _("candidate"),
        _("financing"),
        in_code(_("net present cost after tax [USD]")),
        in_code(_("equivalent annual cost [USD]")),
        _("WACC"),
        _("IRR"),
        *([_("real IRR")] if is_real else []),
        _("MIRR"),
        _("payback [months]"),
        _("discounted payback [months]"),
        _("returns against"),
        *(revenue_heads() if sells else []),
    ]
    note = _("Returns are those of the additional capital. Empty: there is no single rate, or no payback.")
    return PageTable(_("Ways to finance"), note, heads, rows, worded=(1, heads.index(_("returns against"))))


def earning_line(earnings: Mapping[str, Earnings], months: float) -> list[str]:
    """Return the candidate that earns the most over *months*; none where nothing is sold."""
    if not earnings:
        return []
    best = max(earnings, key=lambda name: earnings[name].net_present_usd)
    worth, rate = earnings[best][:2]
    text = N_("with revenue, {winner} loses the least: net present value {cash} in {months:g} months, {irr}.")
    if worth >= 0:
        text = N_("with revenue, {winner} earns the most: net present value {cash} in {months:g} months, {irr}.")
    if len(earnings) == 1:
        text = N_("with revenue, {winner} has the net present value {cash} in {months:g} months, {irr}.")
    irr = _("no IRR") if rate is None else _("IRR {rate} a year", rate=percent(rate))
    return [_(text, winner=best, cash=cash(worth), months=months, irr=irr)]


def cheapest_way(found: Financings, name: str) -> str:
    """Describe the cheapest way to finance the candidate *name*; empty where there is one way only."""
    ways = sorted(found.get(name, {}).items(), key=lambda way: way[1].net_present_usd)
    if len(ways) < 2:
        return ""
    listed = _("; ").join(_("{way}: {cash}", way=_(label), cash=cash(one.net_present_usd)) for label, one in ways)
    return _("{name}, net present cost after tax by way to finance: {listed}.", name=name, listed=listed)


def _returns(one: AfterTax, is_real: bool) -> dict[str, float | None]:
    """Return the columns with revenue of *one*, with a real rate if *is_real*; None where it sells nothing."""
    return revenue_columns(one.earnings if one.revenue_usd else None, is_real)


def _sells(found: Financings) -> bool:
    """Return whether any candidate has revenue."""
    return any(one.revenue_usd for _name, _label, one in _each(found))


def _each(found: Financings) -> Iterator[tuple[str, str, AfterTax]]:
    return ((name, label, one) for name, ways in found.items() for label, one in ways.items())
