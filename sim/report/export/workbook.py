"""A finished answer as a workbook for a spreadsheet: figures to read, formulas to change."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sim.language import _
from sim.report.export.answer import MAIN, StoredAnswer
from sim.report.export.bill import write_bill
from sim.report.export.book import Book
from sim.report.export.cash_flow import write_cash_flow
from sim.report.export.charts import Line, scatter
from sim.report.fleets.run.basis import notes
from sim.report.words.text import axis_label, number
from sim.study.metrics.columns import COLUMNS

MOST_ROWS = 1_048_576
"""Of a sheet, as the file format has it."""
DETAILS = {
    "breakeven": (("By utilisation", "breakeven"), ("Months", "months"), ("Tipping points", "tipping")),
    "plan": (("Months", "plan"),),
    "capacity": (("Search", "search"),),
    "size": (("Pareto", "pareto"),),
}
"""Command -> further tables that get a sheet each: (sheet, file)."""
CURVES = (
    ("usd_per_million_output_tokens", "Cost of tokens over load"),
    ("ttft_s_p95", "TTFT p95 over load"),
    ("tpot_s_p95", "TPOT p95 over load"),
)


def write_workbook(path: Path, answer: StoredAnswer) -> list[str]:
    """Writes the file *path*; returns what a reader must know, such as rows that a sheet could not hold."""
    book, told = Book(path, answer.currency), list[str]()
    _summary(book, answer)
    if answer.command in ("run", "price", "plan", "breakeven"):
        write_bill(book, answer)
        write_cash_flow(book, answer)
    for name, file in DETAILS.get(answer.command, ()):
        if (answer.folder / f"{file}.csv").exists():
            sheet, top = book.sheet(name, f"{file}.csv")
            book.table(sheet, top, answer.table(file))
    told += _requests(book, answer)
    _assumptions(book, answer)
    book.close()
    return told


def _summary(book: Book, answer: StoredAnswer) -> None:
    manifest = answer.manifest
    made = " ".join(map(str, manifest.get("command", ())))
    title = str(manifest.get("scenario", answer.folder.name))
    asked = str(answer.scenario.get("question") or "")
    when = f"{made}, {manifest.get('started_at', '')}, gpufleet {manifest.get('version', '')}"
    sheet, top = book.sheet(
        "Summary", title, [*([asked] if asked else []), when, _("Amounts in {currency}.", currency=book.currency)]
    )
    frame = answer.table(MAIN[answer.command])
    meanings = {answer.amount(one.name): f"{one.meaning} [{one.unit}]" for one in COLUMNS}
    after = book.table(sheet, top, frame)
    for column, name in enumerate(frame.columns):
        if name in meanings and answer.command in ("run", "price"):
            sheet.write_comment(top, column, meanings[name])
    if len(answer.axes) == 1 and frame[answer.axes[0]].dtype.kind in "if":
        names = frame["fleet"].tolist()
        starts = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
        ends = [*starts[1:], len(names)]
        lines = [Line(names[i], top + 1 + i, top + end) for i, end in zip(starts, ends, strict=True)]
        at = {name: column for column, name in enumerate(frame.columns)}
        place = (at[answer.axes[0]], axis_label(answer.axes[0]))
        shown = [(answer.amount(name), title) for name, title in CURVES if answer.amount(name) in frame]
        for index, (name, title) in enumerate(shown):
            value = (at[name], name)
            chart = scatter(book, "Summary", title, place, value, lines)
            sheet.insert_chart(after + 2, 7 * index, chart)


def _requests(book: Book, answer: StoredAnswer) -> list[str]:
    frame = answer.requests()
    if frame is None:
        return []
    sheet, top = book.sheet("Requests", "Requests", [_("One row per request; docs/outputs.md has the columns.")])
    room = MOST_ROWS - top - 1
    book.table(sheet, top, frame.head(room))
    if len(frame) <= room:
        return []
    return [
        _(
            "Requests: the sheet holds the first {room:,} of {len:,} requests, the most that it can.",
            room=room,
            len=len(frame),
        )
    ]


def _assumptions(book: Book, answer: StoredAnswer) -> None:
    """What each fleet rests on: notes, every value with its origin, and the sources."""
    sheet, row = book.sheet("Assumptions", "Assumptions", [_("Every value that was used, and where it comes from.")])
    wide = {0: 26, 1: 46, 2: 14, 3: 12, 4: 12, 5: 18, 6: 20, 7: 12, 8: 50, 9: 60}
    for column, width in wide.items():
        sheet.set_column(column, column, width)
    for text in notes(answer.resolved):
        sheet.write_string(row, 0, text)
        row += 1
    heads = ["fleet", "value of", "value", "unit", "kind", "range", "source", "as of", "where", "note"]
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
    _rows(book, sheet, row + 1, ["source", "title", "", "", "", "accessed", "author", "", "address"], cited)


def _values(answer: StoredAnswer) -> list[list[Any]]:
    found = []
    for plan in answer.resolved:
        front = f"fleets.{plan['fleet']}."
        for value in plan.get("values", ()):
            ends = " to ".join(map(number, value["range"])) if value.get("range") else ""
            path = str(value["path"]).removeprefix(front)
            origin = [value["kind"], ends, value["source"], value["as_of"], value["where"], value["note"]]
            found.append([str(plan["fleet"]), path, value["value"], value["unit"], *origin])
    return found


def _rows(book: Book, sheet: Any, row: int, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> int:
    if not rows:
        return row
    book.heads(sheet, row, heads)
    formats = [book.formats["number"]] * len(heads)
    for line, values in enumerate(rows, start=row + 1):
        book.cells(sheet, line, [None if value == "" else value for value in values], formats)
    return row + 1 + len(rows)
