"""Comparison of two runs as a document and as tables for the terminal."""

import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from rich.console import RenderableType

from sim.language import N_, _
from sim.report.run.verdict import verdict_of
from sim.report.terminal_table import FittedTable, Sentence
from sim.report.words.money import in_code, shown
from sim.report.words.text import axis_label, listing, number, place, plain, short
from sim.study.comparison import Difference
from sim.study.diff import RunDifferences, StoredRun
from sim.study.gate import Outcome
from sim.study.metrics.columns import column
from sim.study.monte_carlo import stored_disputes
from sim.study.points import Point

WORDS = {
    "slo_attainment": N_("within SLO [%]"),
    "ttft_s_p95": N_("TTFT p95 [s]"),
    "tpot_s_p95": N_("TPOT p95 [ms]"),
    "output_tokens_per_s": "output [tokens/s]",
    "facility_power_w_mean": N_("power at the meter [W]"),
    "usd_per_million_output_tokens": N_("USD/M output tokens"),
}
SCALES = {"slo_attainment": 100.0, "tpot_s_p95": 1e3}
"""Factor from the base unit of a metric to the unit of its heading."""
VERDICTS = (N_("differs"), N_("cannot tell"), N_("same"))
NOTE = N_("second minus first; ±: half of the 95 % interval over pairs of replications with the same seed")


def diff_document(first: StoredRun, second: StoredRun, found: RunDifferences) -> dict[str, Any]:
    """Build the document of a comparison: names, verdicts, changed inputs and differences."""
    return {
        "first": _verdict_data(first),
        "second": _verdict_data(second),
        "changes": [{"path": one.path, "before": one.before, "after": one.after} for one in found.changes],
        "points": [
            {
                "fleet": one.first.fleet,
                "axes": dict(one.first.axes),
                "metric": one.metric,
                "words": column(one.metric).meaning,
                "first": one.values[0],
                "second": one.values[1],
                "difference": 0.0 - one.difference,  # avoids -0.0
                "difference_ci95": one.half_width,
                "verdict": one.verdict,
            }
            for one in found.differences
        ],
        "only_first": [_place_of_point(point) for point in found.alone[0]],
        "only_second": [_place_of_point(point) for point in found.alone[1]],
    }


def in_words(document: dict[str, Any]) -> dict[str, Any]:
    """Return the *document* of `diff_document` with texts in the shown language and amounts in the shown currency."""
    figures = ("first", "second", "difference", "difference_ci95")
    points = [
        one
        | {"words": in_code(_(WORDS[one["metric"]])), "verdict": _(one["verdict"])}
        | {name: _amount(one["metric"], one[name]) for name in figures if one[name] is not None}
        for one in document["points"]
    ]
    named = {axis: axis_label(axis) for one in points for axis in one["axes"]}
    return document | {"points": points, "axes": named}


def _verdict_data(run: StoredRun) -> dict[str, Any]:
    verdict = verdict_of(run.scenario, run.catalog, run.points, disputes=stored_disputes(run.folder))
    return {"folder": str(run.folder), "scenario": run.scenario.name, "verdict": verdict.headline}


def diff_tables(first: StoredRun, second: StoredRun, found: RunDifferences) -> list[RenderableType | str]:
    """Return the output of the terminal: verdicts, changed inputs and differences."""
    verdicts = [_verdict_data(run) for run in (first, second)]
    lines: list[RenderableType | str] = [f"{one['folder']}: {one['verdict']}" for one in verdicts]
    if found.changes:
        rows = [[one.path, _value_text(one.before), _value_text(one.after)] for one in found.changes]
        lines.append(FittedTable([_("changed input"), _("first"), _("second")], rows, frozenset({0, 1, 2}), 0))
    else:
        lines.append(_("The two runs have the same inputs."))
    lines += [_table(fleet, found.differences) for fleet in dict.fromkeys(one.first.fleet for one in found.differences)]
    lines += [Sentence(_(NOTE))] if found.differences else []
    for name, alone in zip(
        (N_("Only the first run has {points}."), N_("Only the second run has {points}.")), found.alone, strict=True
    ):
        if alone:
            lines.append(_(name, points=listing([_place_of_point(point) for point in alone])))
    return lines


def _table(fleet: str, differences: Sequence[Difference]) -> RenderableType:
    mine = [one for one in differences if one.first.fleet == fleet]
    named = list(dict.fromkeys(axis for one in mine for axis in one.first.axes))
    rows: list[list[str]] = []
    before: list[str] | None = None
    for one in mine:
        front = [short(one.first.axes.get(axis)) for axis in named]
        shown_front = front if front != before else [""] * len(front)
        rows.append([*shown_front, in_code(_(WORDS[one.metric])), *_figures(one)])
        before = front
    heads = [*map(axis_label, named), "", _("first"), _("second"), _("difference"), ""]
    words = frozenset({len(named), len(heads) - 1})
    return FittedTable(heads, rows, words, len(named) + 1, title=fleet)


def _figures(one: Difference) -> list[str]:
    values = [_amount(one.metric, value) for value in (*one.values, -one.difference)]
    sign = "+" if -one.difference > 0 else ""
    half = f" ± {plain(_amount(one.metric, one.half_width), 2)}" if one.half_width else ""
    return [plain(values[0]), plain(values[1]), f"{sign}{plain(values[2])}{half}", _(one.verdict)]


def _amount(metric: str, value: float) -> float:
    """Return *value*, in the base unit of *metric*, in the unit of its heading."""
    if "usd" in metric:
        return shown(value) if isfinite(value) else value
    return SCALES.get(metric, 1.0) * value


def outcome_rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a mapping for each condition at each point, in US dollars and base units."""
    return [
        {
            "condition": one.condition.text,
            "fleet": one.point.fleet,
            "axes": dict(one.point.axes),
            "first": one.first,
            "second": one.second,
            "value": one.value,
            "fails": one.fails,
            "reason": one.reason,
        }
        for one in outcomes
    ]


def outcome_table(outcomes: Sequence[Outcome]) -> list[RenderableType | str]:
    """Return the result of the conditions for the terminal; nothing without conditions."""
    if not outcomes:
        return []
    rows = [_outcome_cells(one) for one in outcomes if one.fails or one.reason]
    table = [FittedTable(_outcome_heads(), rows, frozenset({0, 1, 5}), 0)] if rows else []
    return [*table, _outcome_verdict(outcomes)]


def diff_markdown(first: StoredRun, second: StoredRun, found: RunDifferences, outcomes: Sequence[Outcome]) -> str:
    """Return the comparison in Markdown: verdicts, conditions and changed inputs, as a pull request shows them."""
    parts = [
        f"**{_cell(one['folder'])}**: {_cell(one['verdict'])}" for one in (_verdict_data(first), _verdict_data(second))
    ]
    if outcomes:
        parts.append(f"**{_outcome_verdict(outcomes)}**")
        parts.append(_markdown(_outcome_heads(), [_outcome_cells(one) for one in outcomes]))
    else:
        heads = [_("fleet and point"), "", _("first"), _("second"), _("difference"), ""]
        rows = [
            [_place_of_point(one.first), in_code(_(WORDS[one.metric])), *_figures(one)] for one in found.differences
        ]
        parts.append(_markdown(heads, rows))
    if found.changes:
        rows = [[one.path, _value_text(one.before), _value_text(one.after)] for one in found.changes]
        parts.append(_markdown([_("changed input"), _("first"), _("second")], rows))
    return "\n\n".join(parts)


def _markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return *text* with the characters escaped that Markdown and HTML would read."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text).replace("\n", " ")


def _outcome_verdict(outcomes: Sequence[Outcome]) -> str:
    failed = {one.condition.text for one in outcomes if one.fails}
    count = len({one.condition.text for one in outcomes})
    if not failed:
        return _("Passed: none of {count} conditions holds.", count=count)
    return _(
        "Failed: {failed} of {count} conditions hold: {names}.",
        failed=len(failed),
        count=count,
        names=listing([*failed]),
    )


def _outcome_heads() -> list[str]:
    """Return the headings above the cells of outcomes."""
    return [_("condition"), _("fleet and point"), _("first"), _("second"), _("change"), ""]


def _outcome_cells(one: Outcome) -> list[str]:
    """Return a row of the table: values in the unit of the column in summary.csv, in which the condition is stated."""
    first, second = ("" if value is None else plain(value) for value in (one.first, one.second))
    change = ""
    if one.first is not None and one.second is not None:
        percent = f" ({100 * (one.second / one.first - 1):+.3g} %)" if one.first else ""
        change = f"{one.second - one.first:+.3g}{percent}"
    verdict = one.reason or (_("fails") if one.fails else _("passes"))
    return [one.condition.text, _place_of_point(one.point), first, second, change, verdict]


def _place_of_point(point: Point) -> str:
    at = ", ".join(place(axis, value) for axis, value in point.axes.items())
    return _("{fleet} at {at}", fleet=point.fleet, at=at) if at else point.fleet


def _value_text(value: Any) -> str:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str):
        return str(value)
    return _("(not stated)") if value is None else number(value)
