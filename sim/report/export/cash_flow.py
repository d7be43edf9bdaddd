"""The sheet Cash flow: payments month by month, discounted by a rate that stands in a cell.

Present values are formulas of that cell: docs/money.md says which payment falls when.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pandas as pd
from xlsxwriter.worksheet import Worksheet

from sim.language import _
from sim.report.export.answer import StoredAnswer
from sim.report.export.book import Book, cell
from sim.report.export.charts import Line, scatter

SHEET = "Cash flow"
RATE = "discount_rate"
"""Name of the cell."""


class Column(NamedTuple):
    """One column of the months: of the answer's table, or a formula."""

    head: str
    source: str = ""
    """The table's column."""
    formula: Callable[[int, "Places"], str] | None = None
    """(row, places) -> formula."""
    value: Callable[["pd.Series"], float] | None = None
    """What the formula comes to at the answer's own rate, for programs that do not calculate."""


class Places(NamedTuple):
    """Where things stand on the sheet."""

    columns: dict[str, int]
    starts: frozenset[int]
    """Rows in which a fleet's months begin."""

    def at(self, row: int, head: str) -> str:
        """The cell under *head*."""
        return cell(row, self.columns[head])


def write_cash_flow(book: Book, answer: StoredAnswer) -> None:
    """Of a plan or of `breakeven`; nothing for other answers."""
    if answer.command == "plan":
        _write_plan(book, answer)
    elif answer.command == "breakeven":
        _write_candidates(book, answer)


def _write_plan(book: Book, answer: StoredAnswer) -> None:
    months, totals = answer.table("plan"), answer.table("summary")
    if months.empty:
        return
    totals = totals[totals["discount_rate"].notna() & totals[answer.amount("total_usd")].notna()]
    months = months.assign(start=months.groupby("fleet", sort=False).cumcount())
    notes = [
        _(
            "Change the yellow cell: present costs follow. Purchases, removals and sales fall at "
            "the start of their month, all else at its end."
        ),
        _(
            "Amounts in {currency}; net cost and present cost are what is paid less what is received. What "
            "is bought and sold when stays as the plan has it.",
            currency=book.currency,
        ),
    ]
    amount = answer.amount
    columns = [
        Column("fleet", "fleet"),
        Column("date", "date"),
        Column("months from start", "start"),
        Column("capital cost", amount("capex_usd")),
        Column("decommissioning", amount("decommissioning_usd")),
        Column("resale", amount("resale_usd")),
        Column("operating cost", amount("opex_usd")),
        Column("rent", amount("rental_usd")),
        Column("net cost", "", _net, lambda row: row[amount("net_cost_usd")]),
        Column("present cost", "", _present, lambda row: row[amount("present_cost_usd")]),
        Column("cost so far", "", _so_far, lambda row: row[amount("cumulative_cost_usd")]),
    ]
    ours = list(zip(totals["fleet"], totals[amount("net_present_cost_usd")], strict=True))
    _write(book, notes, totals["discount_rate"].iloc[0], columns, months, ours, None, "cost so far")


def _net(row: int, on: Places) -> str:
    paid = "+".join(on.at(row, head) for head in ("capital cost", "decommissioning", "operating cost", "rent"))
    return f"={paid}-{on.at(row, 'resale')}"


def _present(row: int, on: Places) -> str:
    month = on.at(row, "months from start")
    at_start = f"({on.at(row, 'capital cost')}+{on.at(row, 'decommissioning')}-{on.at(row, 'resale')})"
    at_end = f"({on.at(row, 'operating cost')}+{on.at(row, 'rent')})"
    return f"={at_start}*(1+{RATE})^(-{month}/12)+{at_end}*(1+{RATE})^(-({month}+1)/12)"


def _so_far(row: int, on: Places) -> str:
    before = "" if row in on.starts else f"{on.at(row - 1, 'cost so far')}+"
    return f"={before}{on.at(row, 'net cost')}"


def _write_candidates(book: Book, answer: StoredAnswer) -> None:
    cash, ranked = answer.table("cash"), answer.summary
    if cash.empty:
        return
    amount = answer.amount
    notes = [
        _(
            "Change the yellow cells: net present costs follow. The purchase is paid at delivery, "
            "all else at the end of its month; a renewal follows the sale of the old hardware."
        ),
        _(
            "Amounts in {currency}. The net present cost of a month takes off what the hardware "
            "would bring then. ranking.csv has it at the end of the horizon, of equal payments over "
            "the hardware's life.",
            currency=book.currency,
        ),
    ]
    value = amount("net_present_cost_usd")
    columns = [
        Column("candidate", "candidate"),
        Column("month", "month"),
        Column("purchase", amount("purchase_usd")),
        Column("operating cost", amount("operating_usd")),
        Column("hardware would bring", amount("brings_usd")),
        Column("renewal", amount("renewal_usd")),
        Column("discount factor", "", lambda row, on: f"=(1+{RATE})^(-{on.at(row, 'month')}/12)", _factor),
        Column("paid so far, present value", "", _paid, lambda row: row["paid"]),
        Column("net present cost", "", _stopped, lambda row: row[value]),
    ]
    factor = cash.apply(_factor, axis=1)
    cash = cash.assign(paid=cash[value] + cash[amount("brings_usd")] * factor)
    ours = list(zip(ranked["candidate"], ranked[value], strict=True))
    horizon = round(float(ranked["months"].iloc[0]))
    _write(book, notes, cash["discount_rate"].iloc[0], columns, cash, ours, horizon, "net present cost")


def _factor(row: Any) -> float:
    return float((1 + row["discount_rate"]) ** (-row["month"] / 12))


def _paid(row: int, on: Places) -> str:
    own = f"({on.at(row, 'purchase')}+{on.at(row, 'operating cost')})*{on.at(row, 'discount factor')}"
    if row in on.starts:
        return f"={own}"
    renewed = f"{on.at(row - 1, 'renewal')}*{on.at(row - 1, 'discount factor')}"
    return f"={on.at(row - 1, 'paid so far, present value')}+{renewed}+{own}"


def _stopped(row: int, on: Places) -> str:
    brings = f"{on.at(row, 'hardware would bring')}*{on.at(row, 'discount factor')}"
    return f"={on.at(row, 'paid so far, present value')}-{brings}"


def _write(
    book: Book,
    notes: Sequence[str],
    rate: float,
    columns: Sequence[Column],
    months: pd.DataFrame,
    ours: Sequence[tuple[str, float]],
    horizon: int | None,
    drawn: str,
) -> None:
    """The cells to change, the totals beside *ours*, then the months.

    A total is the sum of present costs, or with a *horizon* the net present cost after that number of months.
    """
    sheet, row = book.sheet(SHEET, SHEET, notes)
    row = _write_inputs(book, sheet, row, rate, horizon)
    top, first = row + 2, row + 2 + len(ours) + 3
    at = {column.head: index for index, column in enumerate(columns)}
    book.heads(
        sheet, top, ["", "net present cost", f"as in {'summary' if horizon is None else 'ranking'}.csv", "difference"]
    )
    names = months[columns[0].head].tolist()
    starts = frozenset(first + i for i, name in enumerate(names) if i == 0 or names[i - 1] != name)
    _write_totals(book, sheet, top + 1, ours, _present_of(columns, at, first, len(names), horizon))
    book.heads(sheet, first - 1, [column.head for column in columns])
    _write_months(book, sheet, first, columns, months, Places(at, starts))
    sheet.set_column(0, 0, 30)
    sheet.set_column(1, len(columns), 15)
    ends = [*sorted(starts)[1:], first + len(names)]
    lines = [Line(names[begin - first], begin, end - 1) for begin, end in zip(sorted(starts), ends, strict=True)]
    clock = (at["month" if horizon is not None else "months from start"], "months")
    chart = scatter(book, SHEET, drawn.capitalize(), clock, (at[drawn], book.currency), lines)
    sheet.insert_chart(0, len(columns) + 1, chart)


def _write_inputs(book: Book, sheet: Worksheet, row: int, rate: float, horizon: int | None) -> int:
    """The cells to change, from *row* on; the last row of them."""
    sheet.write_string(row, 0, "discount rate per year", book.formats["bold"])
    sheet.write_number(row, 1, rate, book.formats["input"])
    book.workbook.define_name(RATE, f"='{SHEET}'!{cell(row, 1, fixed=True)}")
    if horizon is None:
        return row
    row += 1
    sheet.write_string(row, 0, "after months", book.formats["bold"])
    sheet.write_number(row, 1, horizon, book.formats["count"])
    book.workbook.define_name("after_months", f"='{SHEET}'!{cell(row, 1, fixed=True)}")
    return row


def _present_of(
    columns: Sequence[Column], at: dict[str, int], first: int, rows: int, horizon: int | None
) -> Callable[[int], str]:
    """Row of a name -> the formula of its sum over the *rows* of months that begin at *first*."""

    def span(head: str) -> str:
        return f"{cell(first, at[head], fixed=True)}:{cell(first + rows - 1, at[head], fixed=True)}"

    def formula(line: int) -> str:
        wanted = f"EXACT({span(columns[0].head)},{cell(line, 0)})"
        if horizon is None:
            return f"=SUMPRODUCT({wanted}*{span('present cost')})"
        return f"=SUMPRODUCT({wanted}*({span('month')}=after_months)*{span('net present cost')})"

    return formula


def _write_totals(
    book: Book, sheet: Worksheet, first: int, ours: Sequence[tuple[str, float]], present: Callable[[int], str]
) -> None:
    for line, (name, value) in enumerate(ours, start=first):
        sheet.write_string(line, 0, name)
        sheet.write_formula(line, 1, present(line), book.formats["total"], value)
        sheet.write_number(line, 2, value, book.formats["money"])
        sheet.write_formula(line, 3, f"={cell(line, 1)}-{cell(line, 2)}", book.formats["money"], 0)


def _write_months(
    book: Book, sheet: Worksheet, first: int, columns: Sequence[Column], months: pd.DataFrame, places: Places
) -> None:
    for line, (_index, values) in enumerate(months.iterrows(), start=first):
        for index, column in enumerate(columns):
            if column.formula is None:
                shown = book.format_of("" if index < 3 and column.head != "purchase" else book.currency)
                book.cell(sheet, line, index, values[column.source], shown)
            else:
                assert column.value is not None
                shown = book.formats["number" if column.head == "discount factor" else "money"]
                sheet.write_formula(line, index, column.formula(line, places), shown, float(column.value(values)))
