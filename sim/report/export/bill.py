"""The sheet Monthly bill: what a month costs by component, with live totals."""

from collections.abc import Sequence

import pandas as pd

from sim.language import _
from sim.report.export.answer import StoredAnswer
from sim.report.export.book import Book, cell
from sim.report.export.charts import Line, stacked
from sim.report.money.plan.tables import BACK, ELSEWHERE, EXISTING, FRONT, OWED
from sim.units import HOURS_PER_MONTH, SECONDS_PER_HOUR

SHEET = "Monthly bill"
TOKENS = "output_tokens_per_s"
NANOS = 1e-9


def write_bill(book: Book, answer: StoredAnswer) -> None:
    """Of a run for every fleet and point, of `breakeven` for every candidate, of a plan for every month."""
    bill = {"plan": plan_bill, "breakeven": candidates_bill}.get(answer.command, run_bill)(answer)
    if bill is None:
        return
    frame, labels, note = bill
    parts = [name for name in frame.columns if name not in labels and name != TOKENS]
    money = _(
        "A month has {hours_per_month:g} hours. Amounts in {currency}.",
        hours_per_month=HOURS_PER_MONTH,
        currency=book.currency,
    )
    sheet, top = book.sheet(SHEET, SHEET, [money, note])
    tokens = TOKENS in frame
    rate = f"{book.currency} per million output tokens"
    heads = [
        *labels,
        *(name.replace("_", " ").replace("gpu", "GPU") for name in parts),
        "total",
        *([TOKENS, rate] if tokens else []),
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
        rows = Line("", top + 1, top + len(frame))
        chart = stacked(book, SHEET, "Monthly bill", (0, len(labels) - 1), range(first, total), rows)
        sheet.insert_chart(top + len(frame) + 3, 0, chart)


Bill = tuple[pd.DataFrame, Sequence[str], str] | None
"""Rows, the columns that name them, and a note."""


def run_bill(answer: StoredAnswer) -> Bill:
    """Of a run: the mean over replications of what the ledger books, by component."""
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
    """Of `breakeven`: the load of the verdict, in whole units."""
    bill = answer.table("bill")
    if bill.empty:
        return None
    first = answer.amount("first_month_usd_per_month")
    amount = first if first in bill else answer.amount("usd_per_month")  # an older answer has it under this name
    frame = bill.pivot_table(index="candidate", columns="component", values=amount, sort=False).reset_index()
    frame.columns.name = None
    note = _("Purchases are spread over their life; with inflation this is the first month.")
    return frame, ["candidate"], note


def plan_bill(answer: StoredAnswer) -> Bill:
    """Of a plan: what is paid in each month; received is below zero."""
    months = answer.table("plan")
    if months.empty:
        return None
    known = {answer.amount(name) for name in (*FRONT, *BACK, *EXISTING, OWED)} | {ELSEWHERE}
    parts = [name for name in months.columns if name not in known]
    frame = months[["fleet", "date", *parts]].copy()
    frame["rent"] = months[answer.amount("rental_usd")]
    frame["decommissioning"] = months[answer.amount("decommissioning_usd")]
    frame["resale"] = -months[answer.amount("resale_usd")]
    names = {name: name.removesuffix(f"_{answer.currency}").removesuffix("_usd") for name in parts}
    note = _("What is paid in each month; received is below zero. The last row of a fleet is the sale at the end.")
    return frame.rename(columns=names), ["fleet", "date"], note
