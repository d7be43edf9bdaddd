"""Command `prices`: price lists of clouds as catalogue entries, differences between lists, and old prices."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sim.cli.frame import app, fail, report_bad_input, show_all
from sim.message import Message

MOST_SHOWN = 200
"""Longest table of prices [rows]."""


@app.command()
def prices(
    action: Annotated[
        Literal["import", "diff", "stale"],
        typer.Argument(help="import FILE...: add prices; diff A B: compare two lists; stale: list old prices."),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Lists of AWS, Azure, Google, Lambda, RunPod as published, a CSV of your own, or folders of imports.",
        ),
    ] = None,
    into: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the catalogue entries.")] = Path("gpufleet.d"),
    regions: Annotated[
        list[str] | None, typer.Option("--region", help="Region to read; default: all. May be repeated.")
    ] = None,
    day: Annotated[
        str | None, typer.Option("--date", metavar="YYYY-MM-DD", help="Date of a list that states none.")
    ] = None,
    provider: Annotated[str, typer.Option(help="Provider of a CSV without that column.")] = "",
    days: Annotated[int, typer.Option(min=1, help="stale: age from which a price is listed [days].")] = 183,
) -> None:
    """Import price lists, compare them, or list old prices.

    Nothing is fetched: download the list first.
    """
    with report_bad_input():
        from sim.answers.price_lists.comparison import changes_of, old_prices
        from sim.answers.price_lists.folder import message_of, written_to
        from sim.answers.price_lists.row import PriceListErrors, day_of

        today = datetime.now(UTC).date()
        try:
            stated = day_of(day) if day is not None else None
        except ValueError as error:
            fail(f"--date: {error}")
        given = list(files or ())
        wanted = {"import": "one file or more", "diff": "two files or folders", "stale": "no file"}[action]
        if not {"import": given, "diff": len(given) == 2, "stale": not given}[action]:
            fail(Message("prices {action}: takes {wanted}", action, wanted))
        shown: list[Any] = []
        try:
            if action == "import":
                lists = [(path, _read_price_list(path, stated, provider, regions)) for path in given]
                for path, found in lists:
                    counts = written_to(into, found.rows, found.kind, today, path.name)
                    shown += [message_of(found.kind, counts, into), *_remarks(found, today, days)]
            elif action == "diff":
                before, after = (_rows(path, stated, provider, regions) for path in given)
                shown += _changes(changes_of(before, after))
            else:
                shown += _old_prices(old_prices(_rows(into, stated, provider, regions), today, days), today, days)
        except PriceListErrors as error:
            fail(str(error))
    show_all(*shown)


def _read_price_list(path: Path, day: date | None, provider: str, regions: list[str] | None) -> Any:
    from sim.answers.price_lists.published import read_list
    from sim.catalogue.catalog import load_catalog

    return read_list(path, load_catalog(), day, provider, tuple(regions or ()))


def _rows(path: Path, day: date | None, provider: str, regions: list[str] | None) -> list[Any]:
    from sim.answers.price_lists.folder import rows_in

    if not path.is_dir():
        return list(_read_price_list(path, day, provider, regions).rows)
    return [row for row in rows_in(path) if not regions or row.region in regions]


def _remarks(found: Any, today: date, days: int) -> list[Any]:
    lines: list[Any] = []
    if found.unknown:
        names = ", ".join(sorted(found.unknown)[:5])
        lines.append(
            Message("not in the catalogue of GPUs: {names} ({count} rows)", names, sum(found.unknown.values()))
        )
    newest = max(row.as_of for row in found.rows)
    if (today - newest).days > days:
        lines.append(Message("the newest price is from {day}: {age} days old", newest, (today - newest).days))
    return lines


def _changes(changes: list[Any]) -> list[Any]:
    from sim.report.terminal_table import FittedTable

    if not changes:
        return ["no price differs"]
    rows = [
        (
            *_offer_key(one.row),
            f"{one.before.price:.4g}" if one.before else "",
            f"{one.after.price:.4g}" if one.after else "",
            f"{one.change:+.1%}" if one.change is not None else "",
        )
        for one in changes
    ]
    return _table(("GPU", "provider", "region", "terms", "before", "after", "change"), rows, FittedTable)


def _old_prices(found: list[Any], today: date, days: int) -> list[Any]:
    from sim.report.terminal_table import FittedTable

    if not found:
        return [Message("no price is older than {days} days", days)]
    rows = [(*_offer_key(row), f"{row.price:.4g}", str(row.as_of), str((today - row.as_of).days)) for row in found]
    return _table(("GPU", "provider", "region", "terms", "per GPU-hour", "date", "days old"), rows, FittedTable)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], table: Any) -> list[Any]:
    left = [Message("further prices: {count}", len(rows) - MOST_SHOWN)] if len(rows) > MOST_SHOWN else []
    return [table(heads, rows[:MOST_SHOWN], worded=frozenset({0, 1, 2, 3})), *left]


def _offer_key(row: Any) -> tuple[str, str, str, str]:
    return row.gpu, row.provider, row.region, row.terms
