"""The answer to "how much load does it take": a table for the terminal, capacity.csv, search.csv, and a page."""

from collections.abc import Sequence
from math import isinf
from pathlib import Path
from typing import Any

from sim.language import _
from sim.report.charts.fonts import drawable
from sim.report.fleets.capacity.page import findings, headline, render_capacity
from sim.report.fleets.capacity.picture import page_figures, write_picture
from sim.report.fleets.run.tables import write_rows
from sim.report.fleets.run.terminal import brief_limit
from sim.report.page.document import heading
from sim.report.terminal.fitted import FittedTable
from sim.report.vega.figures import PageFigure
from sim.report.words.goals import latency_columns
from sim.report.words.money import in_code, shown
from sim.report.words.services import load_label
from sim.report.words.text import plain, question_of
from sim.report.words.units import noun, verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.sections.slo import Slo
from sim.study.fleets.capacity.at_capacity import at_capacity
from sim.study.fleets.capacity.axis import LoadAxis
from sim.study.fleets.capacity.search import Capacity

SEARCH = ["fleet", "replication"]
SEARCHED = ["slo_attainment", "overloaded", "meets_slo"]


def write_capacity(
    folder: Path,
    scenario: Scenario,
    found: Sequence[Capacity],
    axis: LoadAxis,
    relative: float,
    remarks: Sequence[str],
    with_pictures: bool,
) -> None:
    """capacity.csv, search.csv and, *with_pictures*, capacity.png and capacity.html in *folder*."""
    rows = capacity_rows(found, axis, scenario.slo)
    write_rows(folder / "capacity.csv", rows)
    write_rows(folder / "search.csv", search_rows(found, axis), _search_columns(axis, scenario.slo))
    if with_pictures:
        _draw(scenario, folder, found, rows, axis, relative, remarks)


def _draw(
    scenario: Scenario,
    out: Path,
    found: Sequence[Capacity],
    rows: Sequence[dict[str, Any]],
    axis: LoadAxis,
    relative: float,
    remarks: Sequence[str],
) -> None:
    asked = question_of(scenario)
    figures: list[PageFigure] = []
    if any(not one.reason for one in found):
        with drawable():
            write_picture(out / "capacity.png", found, rows, axis, scenario.slo, asked, headline(found, rows, axis))
        figures = page_figures(found, rows, axis, scenario.slo)
    page = render_capacity(scenario, asked, found, rows, axis, relative, figures, remarks)
    (out / "capacity.html").write_text(page, encoding="utf-8")


def _search_columns(axis: LoadAxis, slo: Slo) -> list[str]:
    return [*SEARCH, axis.label, *SEARCHED, *(one.column for one in slo.percentiles)]


def capacity_rows(found: Sequence[Capacity], axis: LoadAxis, slo: Slo) -> list[dict[str, Any]]:
    """One row per fleet: capacity with its interval, and what the fleet does and costs there."""
    return [at_capacity(one, slo).row(axis) for one in found]


def search_rows(found: Sequence[Capacity], axis: LoadAxis) -> list[dict[str, Any]]:
    """What was simulated on the way to each capacity, by fleet, replication and load."""
    return [
        {
            "fleet": search.fleet,
            "replication": search.replication,
            axis.label: tried.load,
            "slo_attainment": None if tried.idle else tried.slo_attainment,
            "overloaded": tried.overloaded,
            "meets_slo": None if tried.idle else tried.meets,
            **tried.percentiles,
        }
        for one in found
        for search in one.found
        for tried in search.tried
    ]


def capacity_document(
    scenario: Scenario, found: Sequence[Capacity], axis: LoadAxis, relative: float, out: str
) -> dict[str, Any]:
    """The answer for `--format json`: the rows of capacity.csv and of search.csv."""
    rows = capacity_rows(found, axis, scenario.slo)
    return {
        **heading(scenario, out),
        "axis": axis.label,
        "relative": relative,
        "verdict": verdict_in_units(headline(found, rows, axis), findings(found, rows, axis, scenario, relative)),
        "fleets": rows,
        "search": search_rows(found, axis),
    }


def capacity_table(rows: Sequence[dict[str, Any]], axis: LoadAxis, slo: Slo) -> FittedTable:
    """The rows for a terminal."""
    latencies = {name: head for name, head in latency_columns(slo).items() if not (noun() and name.startswith("tpot"))}
    heads = [
        _("fleet"),
        _("capacity, {axis_label}", axis_label=load_label(axis)),
        "± 95 %",
        _("limited by"),
        *(f"{head} [{_unit(column)}]" for column, head in latencies.items()),
        _("output [tokens/s]"),
        in_code(_("cost [USD/h]")),
        in_code(_("cost [USD per million goodput tokens]")),
    ]
    lines = []
    for row in rows:
        if row["reason"]:
            lines.append([row["fleet"], _("none"), "", row["reason"], *[""] * (len(heads) - 4)])
            continue
        per_million = row["usd_per_million_good_tokens"]
        around = _around(_in_currency(row["usd_per_million_good_tokens_ci95"]))
        lines.append(
            [
                row["fleet"],
                _("beyond the search") if isinf(row[axis.label]) else plain(row[axis.label]),
                _around(row[f"{axis.label}_ci95"]).strip(),
                brief_limit(row["limited_by"]),
                *(_short(_in_unit(row[name], name)) for name in latencies),
                _short(row["output_tokens_per_s"]),
                _short(_in_currency(row["cost_usd_per_h"])),
                _short(_in_currency(per_million)) + around,
            ]
        )
    return FittedTable(heads, lines, frozenset({0, 3}))


def _unit(column: str) -> str:
    return "ms" if column.startswith("tpot") else "s"


def _in_unit(value_s: float | None, column: str) -> float | None:
    return 1e3 * value_s if value_s is not None and _unit(column) == "ms" else value_s


def _in_currency(usd: float | None) -> float | None:
    return None if usd is None else shown(usd)


def _around(half: float | None) -> str:
    return f" ± {plain(half, 2)}" if half else ""


def _short(value: float | None) -> str:
    return "" if value is None else plain(value)
