"""Workbook of a finished answer for a spreadsheet: figures, and formulas that recompute when inputs change.

The sheet Monthly bill has the cost of a month by component, with live totals. The sheet Cash flow has payments by
month, discounted by a rate in a cell: present values are formulas of that cell, and docs/money.md has the timing of
payments.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from xlsxwriter.worksheet import Worksheet

from sim.language import N_, _, keep, release, translate_rendered
from sim.report.export.finance_sheets import BOOKS_SHEET, YEARS_SHEET, FinanceSheets
from sim.report.export.headings import heading
from sim.report.export.spreadsheet import Book, ChartSeries, cell, scatter, stacked
from sim.report.export.stored_answer import StoredAnswer
from sim.report.financing_tables import PREPAID_USD, WORKING_USD
from sim.report.plan_tables import API_LOAD, BACK, EXISTING, FRONT, OWED
from sim.report.sources import notes
from sim.report.words.money import heading_mark
from sim.report.words.text import axis_label, joined, number, question_and_context, ranged, readable_name
from sim.study.metrics.columns import COLUMNS
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

BILL_SHEET = N_("Monthly bill")
TOKENS = "output_tokens_per_s"
NANOS = 1e-9


def write_bill(book: Book, answer: StoredAnswer) -> None:
    """Write the monthly bill: of a run by fleet and point, of `breakeven` by candidate, of a plan by month."""
    bill = {"plan": plan_bill, "breakeven": candidates_bill}.get(answer.command, run_bill)(answer)
    if bill is None:
        return
    frame, labels, note = bill
    parts = [name for name in frame.columns if name not in labels and name != TOKENS]
    money = _(
        "A month has {hours_per_month:g} hours. Amounts in {currency}.",
        hours_per_month=HOURS_PER_MONTH,
        currency=heading_mark(book.currency),
    )
    sheet, top = book.sheet(BILL_SHEET, _(BILL_SHEET), [money, note])
    tokens = TOKENS in frame
    rate = _("USD per million output tokens").replace("USD", heading_mark(book.currency))
    heads = [
        *(heading(name, book.currency) for name in labels),
        *(readable_name(name) for name in parts),
        _("total"),
        *([heading(TOKENS), rate] if tokens else []),
    ]
    book.heads(sheet, top, heads)
    formats = [*(book.formats["number"] for _ in labels), *(book.formats["money"] for _ in parts)]
    first, total = len(labels), len(labels) + len(parts)
    for row, (_index, values) in enumerate(frame.iterrows(), start=top + 1):
        book.cells(sheet, row, [values[name] for name in (*labels, *parts)], formats)
        amount = float(values[parts].fillna(0.0).sum())
        summed = f"=SUM({cell(row, first)}:{cell(row, total - 1)})"
        sheet.write_formula(row, total, summed, book.formats["total"], amount)
        if tokens and values[TOKENS] > 0:
            per_month = values[TOKENS] * SECONDS_PER_HOUR * HOURS_PER_MONTH / 1e6
            sheet.write_number(row, total + 1, values[TOKENS], book.formats["number"])
            formula = f"={cell(row, total)}/({cell(row, total + 1)}*{SECONDS_PER_HOUR}*{HOURS_PER_MONTH}/1000000)"
            sheet.write_formula(row, total + 2, formula, book.formats["money"], amount / per_month)
    sheet.set_column(0, 0, 28)
    sheet.set_column(1, len(heads), 13)
    sheet.freeze_panes(top + 1, 1)
    if len(frame):
        rows = ChartSeries("", top + 1, top + len(frame))
        chart = stacked(book, BILL_SHEET, _(BILL_SHEET), (0, len(labels) - 1), range(first, total), rows)
        sheet.insert_chart(top + len(frame) + 3, 0, chart)


Bill = tuple[pd.DataFrame, Sequence[str], str] | None
"""Rows, the columns that name them, and a note."""


def run_bill(answer: StoredAnswer) -> Bill:
    """Return the monthly bill of a run: the mean over replications of the ledger's amounts, by component."""
    costs, axes = answer.table("costs"), answer.axes
    if costs.empty:
        return None
    amount, place = answer.amount("amount_usd"), ["fleet", *axes]
    by_case = costs.groupby([*place, "replication"], sort=False, dropna=False)
    hours = (by_case["end_s"].max() - by_case["start_s"].min()) / SECONDS_PER_HOUR
    parts = costs.groupby([*place, "replication", "component"], sort=False, dropna=False)[amount].sum()
    monthly = parts.unstack("component", fill_value=0, sort=False).div(hours, axis=0) * HOURS_PER_MONTH
    frame = monthly.groupby(level=place, sort=False, dropna=False).mean().reset_index()
    tokens = answer.summary[[*place, TOKENS]] if TOKENS in answer.summary else None
    frame = frame if tokens is None else frame.merge(tokens, on=place, how="left")
    return frame, place, _("Purchases are spread over their life. Means over replications.")


def candidates_bill(answer: StoredAnswer) -> Bill:
    """Return the first month's bill of each candidate of `breakeven`, in whole units."""
    bill = answer.table("bill")
    if bill.empty:
        return None
    first = answer.amount("first_month_usd_per_month")
    amount = first if first in bill else answer.amount("usd_per_month")  # name in stored answers
    frame = bill.pivot_table(index="candidate", columns="component", values=amount, sort=False).reset_index()
    frame.columns.name = None
    note = _("Purchases are spread over their life; with inflation this is the first month.")
    return frame, ["candidate"], note


def plan_bill(answer: StoredAnswer) -> Bill:
    """Return the payments of a plan by month; receipts are negative."""
    months = answer.table("plan")
    if months.empty:
        return None
    known = {answer.amount(name) for name in (*FRONT, *BACK, *EXISTING, OWED, WORKING_USD, PREPAID_USD)} | {API_LOAD}
    parts = [name for name in months.columns if name not in known]
    frame = months[["fleet", "date", *parts]].copy()
    frame["rent"] = months[answer.amount("rental_usd")]
    frame["decommissioning"] = months[answer.amount("decommissioning_usd")]
    frame["resale"] = -months[answer.amount("resale_usd")]
    if (moved := answer.amount(WORKING_USD)) in months:
        frame["working capital"] = months[moved]
    if (paid := answer.amount(PREPAID_USD)) in months:
        frame["prepaid rent"] = -months[paid]
    names = {name: name.removesuffix(f"_{answer.currency}").removesuffix("_usd") for name in parts}
    note = _("Payments of each month; receipts are negative. The last row of a fleet is the sale at the end.")
    return frame.rename(columns=names), ["fleet", "date"], note


CASH_FLOW_SHEET = N_("Cash flow")
RATE = "discount_rate"
"""Name of the cell with the discount rate."""


class SheetColumn(NamedTuple):
    """Column of the sheet Cash flow: a column of the answer's table, or a formula."""

    head: str
    source: str = ""
    """Column of the answer's table."""
    formula: Callable[[int, "SheetLayout"], str] | None = None
    """Formula of the cell, given its row and the layout."""
    value: Callable[["pd.Series"], float] | None = None
    """Value of the formula at the answer's own rate, for programs that do not calculate."""


class SheetLayout(NamedTuple):
    """Layout of the sheet Cash flow."""

    columns: dict[str, int]
    """Heading -> column."""
    starts: frozenset[int]
    """Rows in which the months of a fleet begin."""

    def at(self, row: int, head: str) -> str:
        """Return the name of the cell under *head* in *row*."""
        return cell(row, self.columns[head])


def write_cash_flow(book: Book, answer: StoredAnswer) -> None:
    """Write the cash flow of a plan or of `breakeven`; nothing for other answers."""
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
            "Change the yellow cell to recompute the present costs. Purchases, removals and sales are paid at the "
            "start of their month, other amounts at its end."
        ),
        _(
            "Amounts in {currency}; net cost and present cost are payments minus receipts. Dates of purchases and "
            "sales stay as planned.",
            currency=heading_mark(book.currency),
        ),
    ]
    amount = answer.amount
    columns = [
        SheetColumn(N_("fleet"), "fleet"),
        SheetColumn(N_("date"), "date"),
        SheetColumn(N_("months from start"), "start"),
        SheetColumn(N_("capital cost"), amount("capex_usd")),
        SheetColumn(N_("decommissioning"), amount("decommissioning_usd")),
        SheetColumn(N_("resale"), amount("resale_usd")),
        SheetColumn(N_("operating cost"), amount("opex_usd")),
        SheetColumn(N_("rent"), amount("rental_usd")),
        *_optional(WORKING_CAPITAL, months, amount(WORKING_USD)),
        *_optional(PREPAID, months, amount(PREPAID_USD)),
        SheetColumn(N_("net cost"), "", _net, lambda row: row[amount("net_cost_usd")]),
        SheetColumn(N_("present cost"), "", _present, lambda row: row[amount("present_cost_usd")]),
        SheetColumn(N_("cost so far"), "", _so_far, lambda row: row[amount("cumulative_cost_usd")]),
    ]
    ours = list(zip(totals["fleet"], totals[amount("net_present_cost_usd")], strict=True))
    _write(book, notes, totals["discount_rate"].iloc[0], columns, months, ours, None, "cost so far")


WORKING_CAPITAL = N_("working capital")
PREPAID = N_("prepaid rent")


def _optional(head: str, months: pd.DataFrame, name: str) -> list[SheetColumn]:
    """Return the column *head* where the answer has it."""
    return [SheetColumn(head, name)] if name in months else []


def _net(row: int, on: SheetLayout) -> str:
    heads = ("capital cost", "decommissioning", "operating cost", "rent", WORKING_CAPITAL)
    paid = "+".join(on.at(row, head) for head in heads if head in on.columns)
    return f"={paid}-{on.at(row, 'resale')}{_prepaid(row, on)}"


def _prepaid(row: int, on: SheetLayout) -> str:
    """Return the term of prepaid rent in the payments of a month."""
    return f"-{on.at(row, PREPAID)}" if PREPAID in on.columns else ""


def _present(row: int, on: SheetLayout) -> str:
    month = on.at(row, "months from start")
    moved = f"+{on.at(row, WORKING_CAPITAL)}" if WORKING_CAPITAL in on.columns else ""
    at_start = f"({on.at(row, 'capital cost')}+{on.at(row, 'decommissioning')}-{on.at(row, 'resale')}{moved})"
    at_end = f"({on.at(row, 'operating cost')}+{on.at(row, 'rent')}{_prepaid(row, on)})"
    return f"={at_start}*(1+{RATE})^(-{month}/12)+{at_end}*(1+{RATE})^(-({month}+1)/12)"


def _so_far(row: int, on: SheetLayout) -> str:
    before = "" if row in on.starts else f"{on.at(row - 1, 'cost so far')}+"
    return f"={before}{on.at(row, 'net cost')}"


def _write_candidates(book: Book, answer: StoredAnswer) -> None:
    cash, ranked = answer.table("cash"), answer.summary
    if cash.empty:
        return
    amount = answer.amount
    notes = [
        _(
            "Change the yellow cells to recompute the net present costs. The purchase is paid at delivery, other "
            "amounts at the end of their month; a renewal follows the sale of the old hardware."
        ),
        _(
            "Amounts in {currency}. The net present cost of a month is net of the hardware's resale value in that "
            "month. ranking.csv gives it at the end of the horizon, and as equal payments over the hardware's life.",
            currency=heading_mark(book.currency),
        ),
    ]
    value = amount("net_present_cost_usd")
    columns = [
        SheetColumn(N_("candidate"), "candidate"),
        SheetColumn(N_("month"), "month"),
        SheetColumn(N_("purchase"), amount("purchase_usd")),
        SheetColumn(N_("operating cost"), amount("operating_usd")),
        SheetColumn(N_("hardware would bring"), amount("brings_usd")),
        SheetColumn(N_("renewal"), amount("renewal_usd")),
        *_optional(WORKING_CAPITAL, cash, amount(WORKING_USD)),
        SheetColumn(N_("discount factor"), "", lambda row, on: f"=(1+{RATE})^(-{on.at(row, 'month')}/12)", _factor),
        SheetColumn(N_("paid so far, present value"), "", _paid, lambda row: row["paid"]),
        SheetColumn(N_("net present cost"), "", _stopped, lambda row: row[value]),
    ]
    factor = cash.apply(_factor, axis=1)
    held = cash.get(amount(WORKING_USD), 0.0)
    cash = cash.assign(paid=cash[value] + (cash[amount("brings_usd")] + held) * factor)
    ours = list(zip(ranked["candidate"], ranked[value], strict=True))
    horizon = round(float(ranked["months"].iloc[0]))
    _write(book, notes, cash["discount_rate"].iloc[0], columns, cash, ours, horizon, "net present cost")


def _factor(row: Any) -> float:
    return float((1 + row["discount_rate"]) ** (-row["month"] / 12))


def _paid(row: int, on: SheetLayout) -> str:
    moved = ""
    if WORKING_CAPITAL in on.columns:
        moved = f"+{on.at(row, WORKING_CAPITAL)}" + ("" if row in on.starts else f"-{on.at(row - 1, WORKING_CAPITAL)}")
    own = f"({on.at(row, 'purchase')}+{on.at(row, 'operating cost')}{moved})*{on.at(row, 'discount factor')}"
    if row in on.starts:
        return f"={own}"
    renewed = f"{on.at(row - 1, 'renewal')}*{on.at(row - 1, 'discount factor')}"
    return f"={on.at(row - 1, 'paid so far, present value')}+{renewed}+{own}"


def _stopped(row: int, on: SheetLayout) -> str:
    brings = on.at(row, "hardware would bring")
    if WORKING_CAPITAL in on.columns:
        brings = f"({brings}+{on.at(row, WORKING_CAPITAL)})"
    brings = f"{brings}*{on.at(row, 'discount factor')}"
    return f"={on.at(row, 'paid so far, present value')}-{brings}"


def _write(
    book: Book,
    notes: Sequence[str],
    rate: float,
    columns: Sequence[SheetColumn],
    months: pd.DataFrame,
    ours: Sequence[tuple[str, float]],
    horizon: int | None,
    drawn: str,
) -> None:
    """Write the input cells, the totals beside *ours* (stored totals by name), then the months.

    A total is the sum of present costs, or with a *horizon* the net present cost after that number of months.
    """
    sheet, row = book.sheet(CASH_FLOW_SHEET, _(CASH_FLOW_SHEET), notes)
    row = _write_inputs(book, sheet, row, rate, horizon)
    top, first = row + 2, row + 2 + len(ours) + 3
    at = {column.head: index for index, column in enumerate(columns)}
    book.heads(
        sheet,
        top,
        [
            "",
            _("net present cost"),
            _("as in {file}", file="summary.csv" if horizon is None else "ranking.csv"),
            _("difference"),
        ],
    )
    names = months[columns[0].head].tolist()
    starts = frozenset(first + i for i, name in enumerate(names) if i == 0 or names[i - 1] != name)
    _write_totals(book, sheet, top + 1, ours, _present_of(columns, at, first, len(names), horizon))
    book.heads(sheet, first - 1, [_(column.head) for column in columns])
    _write_months(book, sheet, first, columns, months, SheetLayout(at, starts))
    sheet.set_column(0, 0, 30)
    sheet.set_column(1, len(columns), 15)
    ends = [*sorted(starts)[1:], first + len(names)]
    lines = [ChartSeries(names[begin - first], begin, end - 1) for begin, end in zip(sorted(starts), ends, strict=True)]
    clock = (at["month" if horizon is not None else "months from start"], _("months"))
    value = (at[drawn], heading_mark(book.currency))
    chart = scatter(book, CASH_FLOW_SHEET, _(drawn).capitalize(), clock, value, lines)
    sheet.insert_chart(0, len(columns) + 1, chart)


def _write_inputs(book: Book, sheet: Worksheet, row: int, rate: float, horizon: int | None) -> int:
    """Write the input cells from *row* on; return their last row."""
    sheet.write_string(row, 0, _("discount rate per year"), book.formats["bold"])
    sheet.write_number(row, 1, rate, book.formats["input"])
    book.workbook.define_name(RATE, f"='{_(CASH_FLOW_SHEET)}'!{cell(row, 1, fixed=True)}")
    if horizon is None:
        return row
    row += 1
    sheet.write_string(row, 0, _("after months"), book.formats["bold"])
    sheet.write_number(row, 1, horizon, book.formats["count"])
    book.workbook.define_name("after_months", f"='{_(CASH_FLOW_SHEET)}'!{cell(row, 1, fixed=True)}")
    return row


def _present_of(
    columns: Sequence[SheetColumn], at: dict[str, int], first: int, rows: int, horizon: int | None
) -> Callable[[int], str]:
    """Return the function from a name's row to the formula of its total over the *rows* of months from *first* on."""

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
        book.cell(sheet, line, 0, name, book.formats["number"])
        sheet.write_formula(line, 1, present(line), book.formats["total"], value)
        sheet.write_number(line, 2, value, book.formats["money"])
        sheet.write_formula(line, 3, f"={cell(line, 1)}-{cell(line, 2)}", book.formats["money"], 0)


def _write_months(
    book: Book, sheet: Worksheet, first: int, columns: Sequence[SheetColumn], months: pd.DataFrame, places: SheetLayout
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


FURTHER_SHEETS = (
    *(N_("Search"), N_("Pareto"), N_("By utilisation"), N_("Months"), N_("Tipping points")),
    *(N_("Variances"), N_("Financing"), N_("Cash after tax"), N_("Books")),
)
"""Names of the sheets that questions add (`sim/answers/questions.py`), for translation."""
MOST_ROWS = 1_048_576
"""Largest number of rows of a sheet in the file format."""
CURVES = (
    ("usd_per_million_output_tokens", N_("Cost of tokens over load")),
    ("ttft_s_p95", N_("TTFT p95 over load")),
    ("tpot_s_p95", N_("TPOT p95 over load")),
)


def write_workbook(path: Path, answer: StoredAnswer) -> list[str]:
    """Write the workbook to the file *path*; return notes, such as on rows that a sheet could not hold."""
    kept = keep(answer.summary.iloc[:, 0].astype(str) if len(answer.summary.columns) else ())
    try:
        return _write_sheets(path, answer)
    finally:
        release(kept)


def _write_sheets(path: Path, answer: StoredAnswer) -> list[str]:
    book, lines = Book(path, answer.currency, answer.candidates), list[str]()
    _summary(book, answer)
    if answer.command in ("run", "price", "plan", "breakeven"):
        write_bill(book, answer)
        write_cash_flow(book, answer)
    if live := (answer.folder / "financed_months.csv").exists():
        FinanceSheets(book, answer).write()
    for name, file in answer.sheets:
        if live and name in (YEARS_SHEET, BOOKS_SHEET):
            continue
        if (answer.folder / f"{file}.csv").exists():
            sheet, top = book.sheet(name, f"{file}.csv")
            book.table(sheet, top, answer.table(file))
    lines += _requests(book, answer)
    _assumptions(book, answer)
    book.close()
    return lines


def _summary(book: Book, answer: StoredAnswer) -> None:
    manifest = answer.manifest
    made = " ".join(map(str, manifest.get("command", ())))
    title = str(manifest.get("scenario", answer.folder.name))
    question = joined(question_and_context(str(answer.scenario.get("question") or ""), title))
    when = f"{made}, {manifest.get('started_at', '')}, gpufleet {manifest.get('version', '')}"
    amounts = _("Amounts in {currency}.", currency=heading_mark(book.currency))
    sheet, top = book.sheet(
        N_("Summary"),
        title,
        [*([question] if question != title else []), when, amounts],
    )
    frame = answer.table(answer.main)
    meanings = {answer.amount(one.name): f"{one.meaning} [{one.unit}]" for one in COLUMNS}
    after = book.table(sheet, top, frame)
    for column, name in enumerate(frame.columns):
        if name in meanings and answer.command in ("run", "price"):
            sheet.write_comment(top, column, meanings[name])
    if len(answer.axes) == 1 and frame[answer.axes[0]].dtype.kind in "if":
        names = frame["fleet"].tolist()
        starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
        ends = [*starts[1:], len(names)]
        lines = [ChartSeries(names[i], top + 1 + i, top + end) for i, end in zip(starts, ends, strict=True)]
        at = {name: column for column, name in enumerate(frame.columns)}
        place = (at[answer.axes[0]], axis_label(answer.axes[0]))
        shown = [(answer.amount(name), title) for name, title in CURVES if answer.amount(name) in frame]
        for index, (name, title) in enumerate(shown):
            value = (at[name], heading(name, book.currency))
            chart = scatter(book, "Summary", _(title), place, value, lines)
            sheet.insert_chart(after + 2, 7 * index, chart)


def _requests(book: Book, answer: StoredAnswer) -> list[str]:
    frame = answer.requests()
    if frame is None:
        return []
    sheet, top = book.sheet(N_("Requests"), _("Requests"), [_("One row per request; docs/outputs.md has the columns.")])
    room = MOST_ROWS - top - 1
    book.table(sheet, top, frame.head(room))
    if len(frame) <= room:
        return []
    return [
        _(
            "Requests: the sheet holds the first {room:,} of {len:,} requests, its maximum.",
            room=room,
            len=len(frame),
        )
    ]


def _assumptions(book: Book, answer: StoredAnswer) -> None:
    """Write the sheet of assumptions: notes, every value with its source, and the sources."""
    sheet, row = book.sheet(N_("Assumptions"), _("Assumptions"), [_("Every value used, with its source.")])
    wide = {0: 26, 1: 46, 2: 14, 3: 12, 4: 12, 5: 18, 6: 20, 7: 12, 8: 50, 9: 60}
    for column, width in wide.items():
        sheet.set_column(column, column, width)
    for text in notes(answer.resolved):
        sheet.write_string(row, 0, text)
        row += 1
    heads = [_("fleet"), _("value of"), _("value"), _("unit"), _("kind"), _("range"), _("source"), _("as of")]
    heads += [_("where"), _("note")]
    row = _rows(book, sheet, row + 1, heads, _values(answer))
    sources: dict[str, Any] = {}
    for plan in answer.resolved:
        sources |= plan.get("sources", {})
    cited = [
        [
            key,
            source.get("title", ""),
            "",
            "",
            "",
            source.get("accessed", ""),
            source.get("author", ""),
            "",
            source.get("url", ""),
        ]
        for key, source in sorted(sources.items())
    ]
    heads = [_("source"), _("title"), "", "", "", _("accessed"), _("author"), "", _("address")]
    _rows(book, sheet, row + 1, heads, cited)


def _values(answer: StoredAnswer) -> list[list[Any]]:
    found = []
    for plan in answer.resolved:
        front = f"fleets.{plan['fleet']}."
        for value in plan.get("values", ()):
            ends = ranged(*map(number, value["range"])) if value.get("range") else ""
            path = str(value["path"]).removeprefix(front)
            origin = [
                translate_rendered(value["kind"]),
                ends,
                value["source"],
                value["as_of"],
                value["where"],
                translate_rendered(value["note"]),
            ]
            found.append([str(plan["fleet"]), path, value["value"], translate_rendered(value["unit"]), *origin])
    return found


def _rows(book: Book, sheet: Any, row: int, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    if not rows:
        return row
    book.heads(sheet, row, heads)
    formats = [book.formats["number"]] * len(heads)
    for line, values in enumerate(rows, start=row + 1):
        book.cells(sheet, line, [None if value == "" else value for value in values], formats)
    return row + 1 + len(rows)
