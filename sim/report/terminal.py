"""The summary as a table for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from sim.report.cases import FinishedCase
from sim.report.figures import axis_cells, columns_for, figure, notes_for, standing
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
        table.add_column(column.brief, justify="right", no_wrap=True)
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
                *(_bare(figure(point, column)) for column in columns),
                limit,
                style=None if point.good else "dim",
            )
        else:
            table.add_row(*front, "none", *[""] * len(columns), "cannot run", style="red")
    return table


def _bare(text: str) -> str:
    """Without the unit that stands in the heading."""
    return text.replace("\u00a0%", "").replace("$", "")
