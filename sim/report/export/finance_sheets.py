"""Sheets of debt, tax and books with live formulas: rates can be changed in yellow cells.

Cash by month is a block of rows for each candidate and way to finance it; fiscal years and books sum its rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd
from xlsxwriter.worksheet import Worksheet

from sim.cost.financing import CARBON_PRICE, LINES, WORKING
from sim.language import N_, _
from sim.report.export.headings import heading
from sim.report.export.spreadsheet import Book, cell, worded
from sim.report.export.stored_answer import StoredAnswer
from sim.report.financing_tables import WORTH
from sim.report.words.money import heading_mark

DEBT_SHEET = N_("Debt and tax")
YEARS_SHEET = N_("Cash after tax")
BOOKS_SHEET = N_("Books")
RATE = "discount_rate"
"""Name of the cell with the discount rate, on the sheet Cash flow."""
FROM_MONTHS = {"operating_expense": "operating", "interest_expense": "interest", "income_tax_expense": "income_tax"}
"""Line of the books -> line of the cash by month that it sums."""
SOLD = ("revenue", "revenue_tax", "cash_with_revenue", "present_with_revenue")
"""Columns with revenue, on the sheet of debt and tax."""
ASSETS = ("net", "right_of_use", "deposit", "receivable")
LIABILITIES = ("loan", "lease_liability", "payable")


class Years(NamedTuple):
    """Rows of a fiscal year on the sheet of debt and tax."""

    first: int
    last: int


@dataclass(frozen=True)
class Block:
    """Months of one candidate with one way to finance it."""

    names: tuple[str, str]
    """Candidate and way to finance."""
    rows: pd.DataFrame
    first: int
    """Row of month 0 on the sheet."""
    inputs: int
    """Row with the rates."""
    loan: Mapping[str, Any]
    """Terms of its loan; empty without a loan."""
    tax: Mapping[str, Any]
    """Terms of its tax; empty without a tax."""

    @property
    def last(self) -> int:
        """Row of the last month."""
        return self.first + len(self.rows) - 1

    @property
    def way(self) -> str:
        """Way to finance, in the current language."""
        return _(self.names[1]) if self.names[1] else _("not bought")

    @cached_property
    def years(self) -> dict[int, Years]:
        """Fiscal year -> its rows."""
        found: dict[int, Years] = {}
        for row, year in enumerate(self.rows["fiscal_year"], self.first):
            found[year] = Years(found[year].first if year in found else row, row)
        return found


class FinanceSheets:
    """Sheets of the cash after financing and tax of one answer."""

    def __init__(self, book: Book, answer: StoredAnswer) -> None:
        self.book, self.answer, self.amount = book, answer, answer.amount
        self.months, self.ways = answer.table("financed_months"), answer.table("financing")
        self.key = str(self.months.columns[0])
        lines = [*LINES, *(one for one in (CARBON_PRICE, WORKING) if self.amount(f"{one}_usd") in self.months)]
        heads = [self.key, "financing", "fiscal_year", "month", *lines]
        extra = ("loan_balance", "other_deductions", "after_tax_cost", "present_cost", "saved")
        self.sells = self.amount("revenue_usd") in self.months
        self.at = {name: column for column, name in enumerate([*heads, *extra, *(SOLD if self.sells else ())])}
        self.lines = lines
        self.blocks = list(self._blocks())

    def write(self) -> None:
        """Write the sheets of debt and tax, of the fiscal years, and of the books."""
        self._write_debt()
        self._write_years()
        if (self.answer.folder / "books.csv").exists():
            self._write_books()

    def _blocks(self) -> Iterator[Block]:
        groups = list(self.months.groupby([self.key, "financing"], sort=False, dropna=False))
        first = 4 + len(groups) + 3
        for number, (names, rows) in enumerate(groups):
            name, label = (str(one) if isinstance(one, str) else "" for one in names)
            finance = self._finance(name)
            others = (self.answer.scenario.get("breakeven") or {}).get("financing") or {}
            terms = finance if label == "loan" else others.get(label) or {}
            yield Block((name, label), rows, first, 5 + number, terms.get("loan") or {}, finance.get("tax") or {})
            first += len(rows)

    def _finance(self, name: str) -> Mapping[str, Any]:
        """Return the finance section of a candidate: that of its fleet, else the scenario's."""
        own: Mapping[str, Any] = self.answer.fleet_of(name) or {}
        found: Mapping[str, Any] = own.get("finance") or self.answer.scenario.get("finance") or {}
        return found

    def _cell(self, row: int, name: str) -> str:
        return cell(row, self.at[name])

    def _input(self, block: Block, column: int) -> str:
        return cell(block.inputs, column, fixed=True)

    def _write_debt(self) -> None:
        notes = [
            _("Change the yellow cells to recompute interest, tax and returns; equal installments follow the rate."),
            _("Amounts in {currency}; payments are positive. The discount rate is on the sheet Cash flow.",
              currency=heading_mark(self.book.currency)),
        ]  # fmt: skip
        sheet, row = self.book.sheet(DEBT_SHEET, _(DEBT_SHEET), notes)
        totals = [_("loan rate"), _("tax rate"), _("net present cost after tax"), _("as in financing.csv"), _("IRR")]
        totals += [_("net present value with revenue"), _("IRR with revenue")] if self.sells else []
        self.book.heads(sheet, row, [heading(self.key, self.book.currency), _("financing"), *totals])
        for block, (_index, way) in zip(self.blocks, self.ways.iterrows(), strict=True):
            self._write_totals(sheet, block, way)
        top = self.blocks[0].first - 1
        self.book.heads(sheet, top, [self._head(name) for name in self.at])
        for block in self.blocks:
            self._write_block(sheet, block)
        sheet.set_column(0, 1, 26)
        sheet.set_column(2, len(self.at), 14)

    def _head(self, name: str) -> str:
        own = {"saved": _("saved against the other"), "other_deductions": _("other deductions")}
        own |= {"present_cost": _("present cost"), "loan_balance": _("loan owed")}
        own |= {"present_with_revenue": _("present value with revenue")}
        money = self.amount(f"{name}_usd")
        return own.get(name) or heading(money if money in self.months else name, self.book.currency)

    def _write_totals(self, sheet: Worksheet, block: Block, way: pd.Series) -> None:
        formats, row = self.book.formats, block.inputs
        self.book.cells(sheet, row, [block.names[0], block.way], [formats["number"]] * 2)
        for column, terms in ((2, block.loan), (3, block.tax)):
            if terms:
                sheet.write_number(row, column, float(terms["rate"]), formats["input"])
        value = float(way[self.amount("after_tax_net_present_cost_usd")])
        span = self._span(block.first, block.last, "present_cost")
        sheet.write_formula(row, 4, f"=SUM({span})", formats["total"], value)
        sheet.write_number(row, 5, value, formats["money"])
        self._write_rate(sheet, row, 6, self._span(block.first, block.last, "saved"), way["irr"])
        if self.sells:
            present = self._span(block.first, block.last, "present_with_revenue")
            value = float(way[self.amount(WORTH)])
            sheet.write_formula(row, 7, f"=SUM({present})", formats["total"], value)
            flows = self._span(block.first, block.last, "cash_with_revenue")
            self._write_rate(sheet, row, 8, flows, way["irr_with_revenue"])

    def _write_rate(self, sheet: Worksheet, row: int, column: int, flows: str, rate: float) -> None:
        """Write the formula of the internal rate per year of monthly *flows*; none where the answer has no *rate*."""
        if pd.notna(rate):
            # of several possible rates, the spreadsheet finds the one nearest to the answer's
            guess = (1 + float(rate)) ** (1 / 12) - 1
            text = f"=(1+IRR({flows},{guess:.4f}))^12-1"
            sheet.write_formula(row, column, text, self.book.formats["share"], float(rate))

    def _span(self, first: int, last: int, name: str) -> str:
        return f"{self._cell(first, name)}:{self._cell(last, name)}"

    def _compared_block(self, block: Block) -> Block | None:
        """Return the block that the IRR of *block* compares with: the other candidate, financed as stated."""
        ways = self.ways[(self.ways[self.key] == block.names[0])]
        other = next((one for one in ways["against"] if isinstance(one, str)), "")
        own = {one.names[1]: one for one in self.blocks if one.names[0] == other}
        return own.get("loan") or own.get("lease") or next(iter(own.values()), None)

    def _write_block(self, sheet: Worksheet, block: Block) -> None:
        formats, against = self.book.formats, self._compared_block(block)
        rows = block.rows.to_dict("records")
        values = {line: [float(row[self.amount(f"{line}_usd")]) for row in rows] for line in self.lines}
        costs = [float(row[self.amount("after_tax_cost_usd")]) for row in rows]
        rate = float(
            self.answer.table("cash" if self.answer.command == "breakeven" else "summary")[RATE].dropna().iloc[0]
        )
        balance, starts = 0.0, self._starts(values)
        others = self._other_deductions(block, values)
        theirs = None if against is None else [
            float(usd) for usd in against.rows[self.amount("after_tax_cost_usd")]
        ]  # fmt: skip
        for month, usd in enumerate(costs):
            row = block.first + month
            self.book.cells(sheet, row, [block.names[0], block.way], [formats["number"]] * 2)
            sheet.write_number(row, 2, int(rows[month]["fiscal_year"]))
            sheet.write_number(row, 3, month)
            balance -= values["loan_drawn"][month] + values["principal"][month]
            found = {line: self._formula(block, line, month, values, starts, others) for line in self.lines}
            for line in self.lines:
                self._put(sheet, row, line, found[line], values[line][month], formats["money"])
            before = f"{self._cell(row - 1, 'loan_balance')}-" if month else "-"
            flows = f"{before}{self._cell(row, 'loan_drawn')}-{self._cell(row, 'principal')}"
            self._put(sheet, row, "loan_balance", f"={flows}", balance, formats["money"])
            if others:
                sheet.write_number(row, self.at["other_deductions"], others[month], formats["money"])
            paid = f"=SUM({self._cell(row, self.lines[0])}:{self._cell(row, self.lines[-1])})"
            self._put(sheet, row, "after_tax_cost", paid, usd, formats["money"])
            present = f"={self._cell(row, 'after_tax_cost')}*(1+{RATE})^(-{self._cell(row, 'month')}/12)"
            self._put(sheet, row, "present_cost", present, usd * (1 + rate) ** (-month / 12), formats["money"])
            if against is not None and theirs is not None and month < len(theirs):
                other = self._cell(against.first + month, "after_tax_cost")
                gained = f"={other}-{self._cell(row, 'after_tax_cost')}"
                self._put(sheet, row, "saved", gained, theirs[month] - usd, formats["money"])
            if self.sells:
                self._write_sold(sheet, block, row, rows[month], (1 + rate) ** (-month / 12), bool(others))

    def _write_sold(
        self, sheet: Worksheet, block: Block, row: int, values: Mapping[Any, Any], discount: float, taxed: bool
    ) -> None:
        """Write revenue, income tax on it, and the cash with both; the tax follows its rate if *taxed*."""
        money = self.book.formats["money"]
        sold, tax, earned = (float(values[self.amount(f"{name}_usd")]) for name in SOLD[:3])
        year = next(one for one in block.years.values() if one.first <= row <= one.last)
        due = f"={self._input(block, 3)}*SUM({self._span(year.first, year.last, 'revenue')})"
        self._put(sheet, row, "revenue", "", sold, money)
        self._put(sheet, row, "revenue_tax", due if taxed and row == year.last else "", tax, money)
        cash = f"={self._cell(row, 'revenue')}-{self._cell(row, 'revenue_tax')}-{self._cell(row, 'after_tax_cost')}"
        self._put(sheet, row, "cash_with_revenue", cash, earned, money)
        present = f"={self._cell(row, 'cash_with_revenue')}*(1+{RATE})^(-{self._cell(row, 'month')}/12)"
        self._put(sheet, row, "present_with_revenue", present, earned * discount, money)

    def _put(self, sheet: Worksheet, row: int, name: str, formula: str, value: float, shown: Any) -> None:
        if formula:
            sheet.write_formula(row, self.at[name], formula, shown, value)
        else:
            sheet.write_number(row, self.at[name], value, shown)

    @staticmethod
    def _starts(values: Mapping[str, Sequence[float]]) -> list[int]:
        """Return the months in which loans start; empty if loans overlap: their principal then has no formula."""
        starts, owed = [], 0.0
        for month, drawn in enumerate(values["loan_drawn"]):
            owed += values["principal"][month] * -1
            if drawn < 0:
                if abs(owed) > 1e-6 * -drawn:
                    return []
                starts.append(month)
            owed -= drawn
        return starts

    @staticmethod
    def _other_deductions(block: Block, values: Mapping[str, Sequence[float]]) -> list[float]:
        """Return the deductions other than interest, by month; empty if tax is not a rate times the year's profit."""
        rate = float(block.tax.get("rate") or 0.0)
        if not rate or block.tax.get("losses", "used_at_once") != "used_at_once":
            return []
        found = [-usd / rate for usd in values["income_tax"]]
        for year in block.years.values():
            first, last = year.first - block.first, year.last - block.first
            found[last] -= sum(values["interest"][first : last + 1])
        return found

    def _formula(
        self,
        block: Block,
        line: str,
        month: int,
        values: Mapping[str, Sequence[float]],
        starts: Sequence[int],
        others: Sequence[float],
    ) -> str:
        """Return the formula of *line* in *month*; empty where it is a value."""
        row = block.first + month
        if line == "interest" and block.loan and month:
            return f"={self._cell(row - 1, 'loan_balance')}*{self._input(block, 2)}/12"
        if line == "income_tax" and others:
            year = next(one for one in block.years.values() if one.first <= row <= one.last)
            interest = f"+SUM({self._span(year.first, year.last, 'interest')})" if row == year.last else ""
            return f"=-{self._input(block, 3)}*({self._cell(row, 'other_deductions')}{interest})"
        start = max((one for one in starts if one < month), default=None)
        if line != "principal" or start is None or not values[line][month]:
            return ""
        terms = block.loan
        grace, term = int(terms.get("grace_months") or 0), int(terms["term_months"])
        before = self._cell(row - 1, "loan_balance")
        ends = month - start == term or month + 1 == len(block.rows) or values["loan_drawn"][month] < 0
        if ends:
            return f"={before}"
        if terms.get("repayment", "annuity") != "annuity" or not float(terms["rate"]):
            return ""
        per_month = f"{self._input(block, 2)}/12"
        drawn = self._cell(block.first + start, "loan_drawn")
        equal = f"{drawn}*{per_month}/(1-(1+{per_month})^(-{term - grace}))"
        return f"=-{equal}-{self._cell(row, 'interest')}"

    def _months_of(self, block: Block, year: int, name: str) -> str:
        """Return the range of a fiscal year's months on the sheet of debt and tax."""
        rows = block.years[year]
        return f"'{_(DEBT_SHEET)}'!{self._span(rows.first, rows.last, name)}"

    def _write_years(self) -> None:
        frame = self.answer.table("financed_years")
        sheet, top = self.book.sheet(YEARS_SHEET, "financed_years.csv")
        lines = [*self.lines, "after_tax_cost", *(SOLD[:3] if self.sells else ())]
        summed = {self.amount(f"{line}_usd"): line for line in lines}

        def formula(block: Block, year: int, column: str, _row: int, _at: Mapping[str, int]) -> str:
            return f"=SUM({self._months_of(block, year, summed[column])})" if column in summed else ""

        self._write_table(sheet, top, frame, formula)

    def _write_table(self, sheet: Worksheet, top: int, frame: pd.DataFrame, formula: Any) -> None:
        """Write *frame*, with the formula that *formula* gives for a cell in place of its value."""
        at = {str(name): column for column, name in enumerate(frame.columns)}
        self.book.heads(sheet, top, [heading(name, self.book.currency) for name in at])
        blocks = {block.names: block for block in self.blocks}
        for row, values in enumerate(frame.to_dict("records"), top + 1):
            label = values["financing"] if isinstance(values["financing"], str) else ""
            block = blocks[str(values[self.key]), label]
            for name, column in at.items():
                shown = self.book.format_of(name)
                if text := formula(block, values["fiscal_year"], name, row, at):
                    sheet.write_formula(row, column, text, shown, float(values[name]))
                else:
                    self.book.cell(sheet, row, column, worded(name, values[name]), shown)
        sheet.freeze_panes(top + 1, 1)
        sheet.set_column(0, 1, 26)
        sheet.set_column(2, len(at), 14)

    def _write_books(self) -> None:
        frame = self.answer.table("books")
        names = {str(name): str(name).removesuffix(f"_{self.answer.currency}").removesuffix("_usd") for name in frame}
        column = {short: name for name, short in names.items()}
        note = _("Interest, tax, cash and the loan are those of the sheet Debt and tax; assets = liabilities + equity.")
        sheet, top = self.book.sheet(BOOKS_SHEET, "books.csv", [note])

        def paid(block: Block, year: int) -> str:
            notional = f"-SUM({self._months_of(block, year, CARBON_PRICE)})" if CARBON_PRICE in self.at else ""
            return f"SUM({self._months_of(block, year, 'after_tax_cost')}){notional}"

        def formula(block: Block, year: int, name: str, row: int, at: Mapping[str, int]) -> str:
            short, first = names[name], year == next(iter(block.years))

            def here(line: str, line_row: int = row) -> str:
                return cell(line_row, at[column[line]])

            def total(lines: Sequence[str]) -> str:
                return "+".join(here(f"{line}_balance") for line in lines if f"{line}_balance" in column)

            if short in FROM_MONTHS:
                return f"=SUM({self._months_of(block, year, FROM_MONTHS[short])})"
            if short == "expenses":
                expenses = [at[one] for line, one in column.items() if line.endswith("_expense")]
                return f"=SUM({cell(row, min(expenses))}:{cell(row, max(expenses))})"
            if short == "profit":
                taxed = f"-{here('revenue_tax')}" if "revenue_tax" in column else ""
                return f"={here('revenue')}{taxed}-{here('expenses')}"
            if short == "revenue_tax" and block.tax:
                return f"={here('revenue')}*'{_(DEBT_SHEET)}'!{self._input(block, 3)}"
            if short == "loan_balance":
                return f"='{_(DEBT_SHEET)}'!{self._cell(block.years[year].last, 'loan_balance')}"
            if short == "net_balance":
                return f"={here('gross_balance')}-{here('accumulated_balance')}"
            if short == "retained_balance":
                return f"={'' if first else here(short, row - 1)}-{here('expenses')}"
            if short == "paid_in_balance" and not first:
                return f"={here(short, row - 1)}+{paid(block, year)}"
            if short == "paid_in_balance":
                opening = self._opening_usd(block, frame, name)
                return f"={f'{opening!r}+' if opening else ''}{paid(block, year)}"
            if short in ("assets", "liabilities"):
                return f"={total(ASSETS if short == 'assets' else LIABILITIES)}"
            return f"={total(('paid_in', 'retained'))}" if short == "equity" else ""

        self._write_table(sheet, top, frame, formula)

    def _opening_usd(self, block: Block, frame: pd.DataFrame, column: str) -> float:
        """Return the capital with which the books open: what the owners paid in before the first month."""
        label = frame["financing"].fillna("") == block.names[1]
        first = float(frame[(frame[self.key] == block.names[0]) & label][column].iloc[0])
        year = next(iter(block.years))
        rows = block.rows[block.rows["fiscal_year"] == year]
        paid = float(rows[self.amount("after_tax_cost_usd")].sum())
        notional = float(rows[self.amount(f"{CARBON_PRICE}_usd")].sum()) if CARBON_PRICE in self.at else 0.0
        return round(first - (paid - notional), 6)
