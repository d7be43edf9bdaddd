"""Report of `gpufleet capacity`: headline, findings, tables for the terminal and CSV, a page.

capacity.csv has the capacity of each fleet, search.csv the loads simulated to find it; capacity.html is one
self-contained page that fetches nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import isinf
from pathlib import Path
from typing import Any

from sim.language import _, translate_rendered
from sim.report.capacity_charts import capacity_picture, page_figures
from sim.report.charts.fonts import drawable
from sim.report.charts.panels import style
from sim.report.charts.vega_lite import PageCharts, PageFigure
from sim.report.json_document import heading
from sim.report.page.template import render as filled
from sim.report.run.key_figures import brief_limit
from sim.report.run.page_tables import swatches
from sim.report.run.tables import write_rows
from sim.report.terminal_table import FittedTable
from sim.report.words.money import cash, in_code, shown
from sim.report.words.precision import capacity_notes, unsteady_capacity_notes
from sim.report.words.service_level import (
    latency_columns,
    load_label,
    load_notes,
    name_of,
    seconds_beside,
    share_beside,
    slo_text,
    unanswered_of,
)
from sim.report.words.text import LIMITS, joined, percent, place, plain, question_of, seconds, spread
from sim.report.words.units import noun, verdict_in_units
from sim.scenario.schema import Scenario
from sim.scenario.slo import Slo
from sim.study.at_capacity import at_capacity, capacity_differences
from sim.study.capacity import FleetCapacity, precision_of
from sim.study.load_axis import LoadAxis

TEMPLATE = "capacity.html.j2"
Row = Mapping[str, Any]


def headline(found: Sequence[FleetCapacity], rows: Sequence[Row], axis: LoadAxis) -> str:
    """State the capacity of every fleet; capacities that a longer horizon would change come first."""
    takes = [
        _("{fleet} {takes}.", fleet=one.fleet, takes=_takes(one, row, axis))
        for one, row in zip(found, rows, strict=True)
    ]
    ends = unanswered_of({one.fleet: one.unanswered for one in found})
    return joined([*unsteady_capacity_notes(found), *takes, ends])


def _takes(one: FleetCapacity, row: Row, axis: LoadAxis) -> str:
    load, half = row[axis.label], row[f"{axis.label}_ci95"]
    if one.reason:
        return _("cannot run: {reason}", reason=translate_rendered(one.reason))
    if load == 0:
        return _("meets the SLO at no simulated load: {reason}", reason=translate_rendered(row["reason"]))
    if isinf(load):
        top = place(axis.label, plain(one.at_least))
        return _("meets the SLO at every simulated load, up to {place}", place=top)
    around = f" ± {plain(half, 2)}" if half else ""
    cost = row["usd_per_million_good_tokens"]
    price = _(", at {cash} per million goodput tokens", cash=cash(cost)) if cost is not None else ""
    return _("meets the SLO up to {place}{price}", place=place(axis.label, plain(load) + around), price=price)


def findings(
    found: Sequence[FleetCapacity], rows: Sequence[Row], axis: LoadAxis, scenario: Scenario, relative: float
) -> list[str]:
    """State the precision of the capacities, the bottleneck of each fleet, and whether the capacities differ."""
    lines = capacity_notes(found, precision_of(scenario, relative), scenario.precision is not None)
    lines += [
        _(
            "The capacity of {fleet} may be higher: at higher loads all requests arrive within the warm-up. A "
            "longer trace or a shorter warmup_s shows it.",
            fleet=one.fleet,
        )
        for one in found
        if one.requests_run_out
    ]
    lines += load_notes(scenario)
    lines += [
        _("At its capacity, {fleet} is limited by {limit}.", fleet=row["fleet"], limit=_(LIMITS.get(limit, str(limit))))
        for row in rows
        if (limit := row["limited_by"])
    ]
    lines += [
        _(
            "At its capacity, {share} of the requests of {fleet} are within the service level over failures.",
            share=share_beside(share, scenario.slo.availability or 0.0),
            fleet=row["fleet"],
        )
        for row in rows
        if (share := row.get("share_over_failures")) is not None and not row["reason"]
    ]
    for one in capacity_differences(found):
        certain = _("differs") if one.certain else _("not significant: the interval contains zero")
        text = ("+" if one.load > 0 else "") + plain(one.load)
        text += f" ± {plain(one.half_width, 2)}" if one.half_width else ""
        lines.append(
            _(
                "Difference ({first} minus {second}): {place} ({certain}).",
                first=one.first,
                second=one.second,
                place=place(axis.label, text),
                certain=certain,
            )
        )
    return lines


def render_capacity(
    scenario: Scenario,
    question: str,
    found: Sequence[FleetCapacity],
    rows: Sequence[Row],
    axis: LoadAxis,
    relative: float,
    figures: Sequence[PageFigure],
    remarks: Sequence[str] = (),
) -> str:
    """Render capacity.html; the same arguments give the same bytes."""
    return filled(
        TEMPLATE,
        name=scenario.name,
        question=question,
        headline=headline(found, rows, axis),
        findings=[*findings(found, rows, axis, scenario, relative), *remarks],
        swatches=swatches(list(style([one.fleet for one in found]))),
        heads=[(head, unit) for _, head, unit, _ in _columns(rows, axis, scenario.slo)],
        rows=[_cells(row, _columns(rows, axis, scenario.slo)) for row in rows],
        figures=figures,
        drawn=PageCharts() if figures else None,
        method=_method(scenario, axis, relative),
        load_label=load_label(axis),
        search=list(_search(found, scenario.slo)),
        goals=_goal_heads(scenario.slo),
    )  # fmt: skip


Column = tuple[str, str, str, Any]
"""Column of capacity.csv, its heading, its unit, and the formatter of its values."""


def _columns(rows: Sequence[Row], axis: LoadAxis, slo: Slo) -> list[Column]:
    """Return the columns that hold values."""
    columns: list[Column] = [
        (axis.label, load_label(axis), "", _capacity),
        *((column, head, "", seconds) for column, head in latency_columns(slo).items()),
        ("output_tokens_per_s", _("output tokens"), "1/s", plain),
        ("gpu_busy_fraction", _("GPU busy"), "", percent),
        ("cost_usd_per_h", _("cost per hour"), "", cash),
        ("usd_per_million_good_tokens", _("per million goodput tokens"), "", cash),
    ]
    return [column for column in columns if any(row[column[0]] is not None for row in rows)]


def _capacity(load: float) -> str:
    return _("beyond the search") if isinf(load) else plain(load)


def _cells(row: Row, columns: Sequence[Column]) -> dict[str, Any]:
    cells = []
    for name, _head, _unit, show in columns:
        value, half = row[name], row.get(f"{name}_ci95")
        around = spread(half, value) if half and value else ""
        cells.append(("" if value is None else show(value), f"± {around}" if around else ""))
    limit = _(LIMITS.get(row["limited_by"], row["limited_by"]) or "")
    return {"fleet": row["fleet"], "reason": row["reason"], "cells": cells, "limited_by": limit}


def _method(scenario: Scenario, axis: LoadAxis, relative: float) -> str:
    start, precision = place(axis.label, plain(axis.start)), precision_of(scenario, relative)
    return _(
        "The SLO: {asked_for}, and a bounded queue. Each replication is searched separately, the first from "
        "{start}: the load is doubled or halved until the SLO is met on one side, then bisected until the ends are "
        "within {relative:g} % of each other. The requests are the same at every load and in every fleet. The "
        "capacity lies between the highest load that met the SLO and the lowest that did not; the mean over "
        "replications is shown. Replications are added, from five on, until half of the 95 % interval is at most "
        "{relative_2:g} % of the mean in every fleet, or until there are {max_replications}.",
        asked_for=_("each service has its own limits") if scenario.services else slo_text(scenario.slo),
        start=start,
        relative=100 * relative,
        relative_2=100 * precision.relative,
        max_replications=precision.max_replications,
    )


def _goal_heads(slo: Slo) -> list[str]:
    """Return the headings of the goals evaluated at every load: the share within limits, percentiles with a limit."""
    return [*([_("requests within SLO")] if slo.per_request else []), *map(name_of, slo.percentiles)]


def _search(found: Sequence[FleetCapacity], slo: Slo) -> Iterator[dict[str, Any]]:
    for one in found:
        first = True
        for search in one.found:
            for load in search.loads:
                over = _(", overloaded") if load.overloaded else ""
                share = "" if load.idle else share_beside(load.slo_attainment, slo.attainment)
                shares = [share] if slo.per_request else []
                known = [(load.percentiles[one.column], one.limit_s) for one in slo.percentiles]
                values = ["" if value is None else seconds_beside(value, limit_s) for value, limit_s in known]
                yield {
                    "fleet": one.fleet,
                    "first": first,
                    "replication": search.replication,
                    "load": plain(load.load, 4),
                    "attained": [*shares, *values],
                    "meets": load.meets,
                    "standing": _("no requests") if load.idle else (_("yes") if load.meets else _("no")) + over,
                }
                first = False


SEARCH = ["fleet", "replication"]
SEARCH_COLUMNS = ["slo_attainment", "overloaded", "meets_slo"]


def write_capacity(
    folder: Path,
    scenario: Scenario,
    found: Sequence[FleetCapacity],
    axis: LoadAxis,
    relative: float,
    remarks: Sequence[str],
    with_pictures: bool,
) -> None:
    """Write capacity.csv, search.csv and, if *with_pictures*, capacity.png and capacity.html into *folder*."""
    rows = capacity_rows(found, axis, scenario.slo)
    write_rows(folder / "capacity.csv", rows)
    write_rows(folder / "search.csv", search_rows(found, axis), _search_columns(axis, scenario.slo))
    if with_pictures:
        _draw(scenario, folder, found, rows, axis, relative, remarks)


def _draw(
    scenario: Scenario,
    out: Path,
    found: Sequence[FleetCapacity],
    rows: Sequence[dict[str, Any]],
    axis: LoadAxis,
    relative: float,
    remarks: Sequence[str],
) -> None:
    question = question_of(scenario)
    figures: list[PageFigure] = []
    if any(not one.reason for one in found):
        with drawable():
            drawn = capacity_picture(found, rows, axis, scenario.slo, question, headline(found, rows, axis))
            drawn.save(out / "capacity.png")
        figures = page_figures(found, rows, axis, scenario.slo)
    page = render_capacity(scenario, question, found, rows, axis, relative, figures, remarks)
    (out / "capacity.html").write_text(page, encoding="utf-8")


def _search_columns(axis: LoadAxis, slo: Slo) -> list[str]:
    return [*SEARCH, axis.label, *SEARCH_COLUMNS, *(one.column for one in slo.percentiles)]


def capacity_rows(found: Sequence[FleetCapacity], axis: LoadAxis, slo: Slo) -> list[dict[str, Any]]:
    """Return the rows of capacity.csv, one per fleet: capacity with its interval, latencies and cost there."""
    return [at_capacity(one, slo).row(axis) for one in found]


def search_rows(found: Sequence[FleetCapacity], axis: LoadAxis) -> list[dict[str, Any]]:
    """Return the rows of search.csv: the loads simulated to find each capacity, by fleet and replication."""
    return [
        {
            "fleet": search.fleet,
            "replication": search.replication,
            axis.label: load.load,
            "slo_attainment": None if load.idle else load.slo_attainment,
            "overloaded": load.overloaded,
            "meets_slo": None if load.idle else load.meets,
            **load.percentiles,
        }
        for one in found
        for search in one.found
        for load in search.loads
    ]


def capacity_document(
    scenario: Scenario, found: Sequence[FleetCapacity], axis: LoadAxis, relative: float, out: str
) -> dict[str, Any]:
    """Build the document of `--format json`: the verdict, the rows of capacity.csv and of search.csv."""
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
    """Build the terminal table of capacities from the rows of capacity.csv."""
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
        around = _plus_minus(_in_currency(row["usd_per_million_good_tokens_ci95"]))
        lines.append(
            [
                row["fleet"],
                _("beyond the search") if isinf(row[axis.label]) else plain(row[axis.label]),
                _plus_minus(row[f"{axis.label}_ci95"]).strip(),
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


def _plus_minus(half: float | None) -> str:
    return f" ± {plain(half, 2)}" if half else ""


def _short(value: float | None) -> str:
    return "" if value is None else plain(value)
