"""The summary as a table for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from sim.report.cases import FinishedCase, Point
from sim.report.figures import Column, axis_cells, columns_for, figure, interval, notes_for, standing
from sim.report.money import in_code, without_symbol
from sim.report.paired import MOST_IN_TERMINAL, NOTE, blocks, differences
from sim.report.summary import summarize
from sim.report.text import axis_label


def terminal_table(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> Table:
    """One row per fleet and sweep point: the key figures within 80 columns; marks are explained below."""
    points = summarize(cases, axes, slo)
    columns = columns_for(points, slo, brief=True)
    reasons = dict.fromkeys(f"{point.fleet}: {point.row['reason']}" for point in points if not point.ok)
    notes = "\n".join([*notes_for(points), *reasons])
    table = Table(
        box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", caption=Text(notes) if notes else None
    )
    table.caption_justify = "left"
    table.add_column("fleet", overflow="fold", max_width=24)
    for head in ["\n".join(axis_label(axis).rsplit(" ", 1)) for axis in axes]:
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column("SLO", no_wrap=True)
    for column in columns:
        table.add_column(in_code(column.brief), justify="right", no_wrap=True)
    table.add_column("limited\nby", no_wrap=True)
    before = ""
    for point in points:
        front: list[Text | str] = [Text(point.fleet if point.fleet != before else ""), *axis_cells(point, axes)]
        before = point.fleet
        if point.ok:
            limit = str(point.row["limited_by"] or "")
            table.add_row(
                *front,
                standing(point),
                *(_with_interval(point, column) for column in columns),
                limit,
                style=None if point.good else "dim",
            )
        else:
            table.add_row(*front, "none", *[""] * len(columns), "cannot run", style="red")
    return table


def terminal_differences(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Table]:
    """The first fleet less each of the others at every point; nothing for a single fleet, or with single runs."""
    found = [one for one in differences(summarize(cases, axes, slo)) if one.pairs > 1]
    first = found[0].first.fleet if found else ""
    tables = []
    for block in blocks([one for one in found if one.first.fleet == first], axes):
        left_out = len(block.rows) - MOST_IN_TERMINAL
        notes = NOTE if left_out <= 0 else f"{NOTE}; {left_out} more points in paired.csv"
        table = Table(
            title=Text(f"{block.title}, paired by seed"), title_justify="left", caption=Text(notes), box=None,
            caption_justify="left", pad_edge=False, padding=(0, 2, 0, 0), header_style="bold",
        )  # fmt: skip
        for head in block.heads:
            table.add_column(head, justify="right", no_wrap=True)
        for row in block.rows[:MOST_IN_TERMINAL]:
            table.add_row(*row)
        tables.append(table)
    return tables


def _with_interval(point: Point, column: Column) -> str:
    """The figure, and below it half of its interval."""
    around = interval(point, column).replace(" ", "")
    return _bare(figure(point, column)) + (f"\n{around}" if around else "")


def _bare(text: str) -> str:
    """Without the unit that stands in the heading."""
    return without_symbol(text.replace("\u00a0%", ""))
