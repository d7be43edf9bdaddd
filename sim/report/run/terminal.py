"""Tables of a run for the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sim.language import _, translate_rendered
from sim.report.run.key_figures import (
    MOST_IN_TERMINAL,
    NOTE,
    KeyFigure,
    axis_cells,
    axis_heads,
    blocks,
    brief_limit,
    columns_for,
    figure,
    interval,
    notes_for,
    standing,
)
from sim.report.run.verdict import Verdict
from sim.report.terminal_table import FittedTable
from sim.report.words.money import in_code, without_symbol
from sim.report.words.service_level import ranked_apart, storm_notes
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.study.comparison import differences, of_one_model
from sim.study.points import FinishedCase, Point, service_points, summarize


def headed(answer: Verdict, scenario: Scenario) -> list[str]:
    """Return the verdict that precedes the tables and, where fleets are ranked per model, the reason."""
    models = models_of(scenario, scenario.compare)
    return [answer.headline, *([ranked_apart(models)] if models else []), ""]


def terminal_table(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> RenderableType:
    """Build the table of key figures, a row per fleet and sweep point, with its marks explained below."""
    points = summarize(cases, axes, slo)
    reasons = dict.fromkeys(
        f"{point.fleet}: {translate_rendered(point.row['reason'])}" for point in points if not point.ok
    )
    services = service_points(points)
    of_services: list[RenderableType] = ["", brief_table(services, axes, slo)] if services else []
    return Group(
        brief_table(points, axes, slo),
        *of_services,
        *(Text(note) for note in (*notes_for(points), *storm_notes(points), *reasons)),
    )


def brief_table(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any]) -> FittedTable:
    """Build the table of the key figures, one row per point."""
    columns = columns_for(points, slo, brief=True)
    heads = [
        _("fleet"),
        *axis_heads(axes),
        _("meets SLO"),
        *(in_code(column.brief) for column in columns),
        _("limited by"),
    ]
    rows, styles, before = [], [], ""
    for point in points:
        front = [point.fleet if point.fleet != before else "", *axis_cells(point, axes)]
        before = point.fleet
        if point.ok:
            figures = [_with_interval(point, column) for column in columns]
            rows.append([*front, standing(point), *figures, brief_limit(point.row["limited_by"])])
            styles.append(None if point.good else "dim")
        else:
            rows.append([*front, _("none"), *[""] * len(columns), _("cannot run")])
            styles.append("red")
    words = frozenset({0, 1 + len(axes), len(heads) - 1})
    return FittedTable(heads, rows, words, 1 + len(axes), styles)


def terminal_differences(
    cases: Sequence[FinishedCase],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    models: Mapping[str, str] | None = None,
) -> list[RenderableType]:
    """Build tables of the differences between the first fleet and each other fleet at every point.

    There are none for a single fleet or single runs. With *models* (fleet -> model), only fleets of one model are
    compared.
    """
    every = of_one_model(differences(summarize(cases, axes, slo)), models or {})
    found = [one for one in every if one.pairs > 1]
    first = found[0].first.fleet if found else ""
    tables: list[RenderableType] = []
    for block in blocks([one for one in found if one.first.fleet == first], axes, slo):
        left_out = len(block.rows) - MOST_IN_TERMINAL
        notes = (
            _(NOTE)
            if left_out <= 0
            else _("{note}; {left_out} more points in paired.csv", note=_(NOTE), left_out=left_out)
        )
        rows = block.rows[:MOST_IN_TERMINAL]
        table = FittedTable(block.heads, rows, frozenset(), len(axes), title=block.title)
        tables.append(Group("", table, Text(notes)))
    return tables


def _with_interval(point: Point, column: KeyFigure) -> str:
    """Return the figure and, on a second line, its interval."""
    around = interval(point, column).replace("± ", "±")
    return _bare(figure(point, column)) + (f"\n{around}" if around else "")


def _bare(text: str) -> str:
    """Remove the unit that the heading has."""
    return without_symbol(text.replace("\u00a0%", ""))
