"""Answers of `breakeven` and `plan` as data for the page, in the form of those of a run."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.answers.loaded import QuestionAnswer
from sim.catalogue.catalog import Catalog
from sim.language import _
from sim.report.breakeven import costs_of, key, page_tables, panels, verdict_of_breakeven, worded
from sim.report.charts.panels import GLYPHS, Panel, style
from sim.report.charts.vega_lite import on_black, themes
from sim.report.financing_tables import cheapest_way, financing_table
from sim.report.page.page import PageTable
from sim.report.plan import financings_of, verdict_of_plan
from sim.report.plan_charts import cash_panel
from sim.report.plan_tables import plan_table
from sim.report.words.money import cash, money_mark, shown
from sim.report.words.text import joined, question_of, readable_name
from sim.scenario.reading.layers import options
from sim.scenario.schema import Scenario
from sim.serve.adjustable_inputs import AdjustableInput, financed_inputs, stated_amount
from sim.serve.live_charts import chart_data
from sim.serve.page_data import adjustable_input_data, titled_table
from sim.study.breakeven import BreakevenAnswer
from sim.study.plan import demand_of
from sim.units import HOURS_PER_MONTH


class _Parts(NamedTuple):
    """Parts of the page that differ by question."""

    headline: str
    findings: Sequence[str]
    panels: Sequence[Panel]
    colors: Mapping[str, str]
    """Name of a candidate -> colour."""
    beside: Sequence[PageTable]
    """Ways to finance, which the page shows below the verdict."""
    tables: Sequence[PageTable]
    paid: Mapping[str, Collection[str]]
    """Components of the bill by fleet."""


def question_data(answer: QuestionAnswer, catalog: Catalog) -> dict[str, Any]:
    """Return the verdict, charts, tables, bills and adjustable inputs of an answer."""
    parts, gap = _parts(answer), question_gap(answer)
    first, *others = [titled_table(table) for table in parts.tables if table.rows] or [{"heads": [], "rows": []}]
    return {
        "name": answer.scenario.name,
        "question": question_of(answer.scenario),
        "symbol": money_mark(0).removesuffix("0"),
        "judged": False,
        "verdict": _verdict(answer, parts, catalog),
        "fleets": [
            {"name": name, "color": color, "dark": on_black(color), "glyph": GLYPHS["o"]}
            for name, color in parts.colors.items()
        ],
        "charts": [chart_data(panel) | {"limit": None} for panel in parts.panels],
        "themes": themes(),
        "beside": [titled_table(table) for table in parts.beside],
        "table": first,
        "tables": others,
        "capacity": [],
        "gap": gap,
        "gapOf": _("a month"),
        "partNames": {name: readable_name(name) for one in gap for name in one["parts"]},
        "readings": [],
        "inputs": [adjustable_input_data(one) for one in _inputs(answer, answer.scenario, parts, catalog)],
    }


def question_verdict(answer: QuestionAnswer, catalog: Catalog) -> dict[str, Any]:
    """Return the verdict: headline, which states the changed terms, and findings."""
    return _verdict(answer, _parts(answer), catalog)


def _verdict(answer: QuestionAnswer, parts: _Parts, catalog: Catalog) -> dict[str, Any]:
    headline = parts.headline
    if answer.values:
        changes = _(", ").join(_changes(answer, parts, catalog))
        headline = _("With {changes}: {verdict}", changes=changes, verdict=headline)
    return {"headline": headline, "findings": list(parts.findings)}


def _inputs(answer: QuestionAnswer, scenario: Scenario, parts: _Parts, catalog: Catalog) -> list[AdjustableInput]:
    return financed_inputs(scenario, catalog, parts.paid, isinstance(answer.found, BreakevenAnswer))


def _changes(answer: QuestionAnswer, parts: _Parts, catalog: Catalog) -> Iterator[str]:
    """Yield the changed terms, each with its value in the scenario of the run."""
    now, before = (
        {one.path: one for one in _inputs(answer, scenario, parts, catalog)}
        for scenario in (answer.scenario, answer.stated)
    )
    for path, value in answer.values.items():
        if path in now and path in before:
            amount, stated = stated_amount(now[path]), stated_amount(before[path])
            yield _("{name} {amount} (scenario: {stated})", name=now[path].label, amount=amount, stated=stated)
        else:
            yield from options({path: value})


def question_gap(answer: QuestionAnswer) -> list[dict[str, Any]]:
    """Return the monthly cost of the load with each candidate of `breakeven`, and its components; empty for `plan`."""
    found = answer.found
    if not isinstance(found, BreakevenAnswer) or found.models:
        return []
    return [
        {
            "fleet": worded(found, name),
            "setting": "",
            "at": "",
            "good": True,
            "total": shown(cost.usd_per_h * HOURS_PER_MONTH),
            "perHour": shown(cost.usd_per_h),
            "tokensPerHour": None,
            "parts": {line: shown(usd * HOURS_PER_MONTH) for line, usd in cost.lines_usd_per_h.items()},
            "text": cash(cost.usd_per_h * HOURS_PER_MONTH),
        }
        for name, cost in costs_of(found).items()
    ]


def _parts(answer: QuestionAnswer) -> _Parts:
    return _breakeven(answer) if isinstance(answer.found, BreakevenAnswer) else _plan(answer)


def _breakeven(answer: QuestionAnswer) -> _Parts:
    found: BreakevenAnswer = answer.found
    headline, findings = verdict_of_breakeven(found, answer.scenario)
    if not found.tips_searched and not found.models:
        findings.append(_("Tipping points are not searched under changed terms: gpufleet breakeven searches them."))
    drawn = panels(found)
    colors = {entry.name: entry.color for entry in (key(found) if drawn else ())}
    tables = page_tables(found)
    ways = financing_table(found.financings).title if found.financings else None
    beside = [table for table in tables if table.title == ways]
    paid: dict[str, list[str]] = {}
    for one in found.candidates:
        paid.setdefault(one.fleet, []).extend(found.at_load[one.name].flows.booked_usd_per_h)
    others = [table for table in tables if table not in beside]
    return _Parts(headline, findings, drawn, colors, beside, others, paid)


def _plan(answer: QuestionAnswer) -> _Parts:
    found, scenario = answer.found, answer.scenario
    verdict, ways, plan = verdict_of_plan(scenario, found), financings_of(found), demand_of(scenario)
    financed = [text for fleet in ways if (text := cheapest_way(ways, fleet))]
    others = [*(text for text in verdict.findings if text not in financed), *answer.question.remarks(scenario)]
    planned = [one for one in found if one.rows]
    colors = {name: color for name, (color, _marker) in style([one.fleet for one in found]).items()}
    table = plan_table(found)
    return _Parts(
        joined([verdict.headline, *financed]),
        others,
        [cash_panel(found, plan)] if planned else [],
        {one.fleet: colors[one.fleet] for one in planned},
        [financing_table(ways)] if ways else [],
        [PageTable(_("Plans"), "", table.heads, table.rows)],
        {},
    )
