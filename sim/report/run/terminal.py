"""Tables of a run for the terminal: the decision in one table, and all details."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType

from sim.language import N_, _, translate_rendered
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
    mark_notes,
    notes_for,
    standing,
)
from sim.report.run.verdict import Verdict, significance
from sim.report.terminal_table import FittedTable, Sentence
from sim.report.words.money import in_code, without_symbol
from sim.report.words.service_level import ranked_apart, storm_notes
from sim.report.words.text import axis_label
from sim.report.words.units import noun
from sim.scenario.schema import Scenario
from sim.scenario.sections.comparison import models_of
from sim.study.comparison import COST, Contest, Difference, comparisons_of, differences, of_one_model
from sim.study.points import FinishedCase, Point, service_points, summarize

LATENCIES = ("ttft_s_", "tpot_s_", "e2e_s_")
BRIEF_AXES = {"rate_rps": N_("load [req/s]"), "concurrency": N_("clients")}
"""Headings of the sweep axes in the decision table, shorter than those of other tables."""
BRIEF_HEADS = {"output_tokens_per_s": N_("output [tok/s]"), COST: N_("USD/M output tokens")}
"""Headings of the figures in the decision table, shorter than those of other tables."""
LEFT_OUT_FIRST = ("slo_attainment", "output_tokens_per_s", "cost_usd_per_h")
"""Figures that the decision table omits where the terminal is narrow, in this order."""
DETAILS = N_("--details shows intervals, memory, power, bottlenecks and all differences")


def headed(answer: Verdict, scenario: Scenario) -> list[str]:
    """Return the verdict that precedes the tables and, where fleets are ranked per model, the reason."""
    models = models_of(scenario, scenario.compare)
    return [answer.headline, *([ranked_apart(models)] if models else []), ""]


def decision(
    cases: Sequence[FinishedCase],
    axes: Sequence[str],
    slo: Mapping[str, Any],
    models: Mapping[str, str] | None = None,
    of_year: bool = False,
) -> list[RenderableType]:
    """Build the tables behind the verdict: the decision table with its marks, and the deciding differences.

    Parameters
    ----------
    cases
        All cases of the run.
    axes
        Names of the sweep axes.
    slo
        Limits [s] and `attainment`.
    models
        Model of every fleet, where they are ranked per model.
    of_year
        True if the verdict is about a year; differences at single loads do not decide it, so their table is omitted.

    """
    points = summarize(cases, axes, slo)
    notes = [*mark_notes(points), *storm_notes(points), *_infeasible(points)]
    parts = [] if of_year else comparisons_of(points, axes, slo, models)
    certain = dict.fromkeys(filter(None, (significance(part) for part in parts)))
    contests = [contest for part in parts for contest in part.contests if contest.certain is not None]
    return [
        decision_table(points, axes, slo),
        *(Sentence(note) for note in [*notes, *(certain if len(certain) == 1 else ())]),
        *_deciding_differences(points, axes, slo, contests),
    ]


def decision_table(points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any]) -> FittedTable:
    """Build the table of a decision, a row per fleet and load: service level, latency, throughput and cost."""
    columns = [
        column
        for column in columns_for(points, slo, brief=True)
        if column.name in (*LEFT_OUT_FIRST, COST) or column.name.startswith(LATENCIES)
    ]
    first = 2 + len(axes)
    heads = [
        _("fleet"),
        *(_(BRIEF_AXES[axis]) if axis in BRIEF_AXES else axis_label(axis) for axis in axes),
        _("meets SLO"),
        *(in_code(_brief_head(column)) for column in columns),
    ]
    rows, styles, before = [], [], ""
    for point in points:
        front = [point.fleet if point.fleet != before else "", *axis_cells(point, axes)]
        before = point.fleet
        figures = [_bare(figure(point, column)) for column in columns] if point.ok else [""] * len(columns)
        rows.append([*front, standing(point) if point.ok else _("cannot run"), *figures])
        styles.append("red" if not point.ok else None if point.good else "dim")
    names = [column.name for column in columns]
    optional = [first + names.index(name) for name in LEFT_OUT_FIRST if name in names]
    return FittedTable(heads, rows, frozenset({0, first - 1}), first - 1, styles, optional=optional)


def _brief_head(column: KeyFigure) -> str:
    """Return the heading of *column* in the decision table."""
    brief = BRIEF_HEADS.get(column.name, "")
    return _(brief) if brief and not noun() else column.brief


def _infeasible(points: Sequence[Point]) -> list[str]:
    """Return the reason of each fleet that cannot run."""
    lines = (f"{point.fleet}: {translate_rendered(point.row['reason'])}" for point in points if not point.ok)
    return list(dict.fromkeys(lines))


def _deciding_differences(
    points: Sequence[Point], axes: Sequence[str], slo: Mapping[str, Any], contests: Sequence[Contest]
) -> list[RenderableType]:
    """Build the table of differences between the two fleets with the most *contests*, at the loads of these."""
    pairs = [frozenset((contest.winner.fleet, contest.second.fleet)) for contest in contests]
    if not pairs:
        return []
    pair = max(pairs, key=pairs.count)
    places = {repr(dict(contest.winner.axes)) for contest, own in zip(contests, pairs, strict=True) if own == pair}
    found = [one for one in differences(points) if {one.first.fleet, one.second.fleet} == pair]
    return _difference_tables([one for one in found if repr(dict(one.first.axes)) in places], axes, slo)


def terminal_table(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> RenderableType:
    """Build the table of key figures, a row per fleet and sweep point, with its marks explained below."""
    points = summarize(cases, axes, slo)
    services = service_points(points)
    of_services: list[RenderableType] = ["", brief_table(services, axes, slo)] if services else []
    return Group(
        brief_table(points, axes, slo),
        *of_services,
        *(Sentence(note) for note in (*notes_for(points), *storm_notes(points), *_infeasible(points))),
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

    The list is empty for a single fleet or a single replication. With *models* (fleet -> model), only fleets of one
    model are compared.
    """
    every = of_one_model(differences(summarize(cases, axes, slo)), models or {})
    found = [one for one in every if one.pairs > 1]
    first = found[0].first.fleet if found else ""
    return _difference_tables([one for one in found if one.first.fleet == first], axes, slo)


def _difference_tables(
    found: Sequence[Difference], axes: Sequence[str], slo: Mapping[str, Any]
) -> list[RenderableType]:
    """Build a table per pair of fleets with the differences *found*."""
    tables: list[RenderableType] = []
    for block in blocks(found, axes, slo):
        left_out = len(block.rows) - MOST_IN_TERMINAL
        notes = (
            _(NOTE)
            if left_out <= 0
            else _("{note}; further points in paired.csv: {left_out}", note=_(NOTE), left_out=left_out)
        )
        rows = block.rows[:MOST_IN_TERMINAL]
        table = FittedTable(block.heads, rows, frozenset(), len(axes), title=block.title)
        tables.append(Group("", table, Sentence(notes)))
    return tables


def _with_interval(point: Point, column: KeyFigure) -> str:
    """Return the figure and, on a second line, its interval."""
    around = interval(point, column).replace("± ", "±")
    return _bare(figure(point, column)) + (f"\n{around}" if around else "")


def _bare(text: str) -> str:
    """Remove the unit that the heading has."""
    return without_symbol(text.replace("\u00a0%", ""))
