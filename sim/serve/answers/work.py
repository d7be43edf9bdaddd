"""What a finished job or queue answers under other prices. It takes a moment and is computed each time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.language import _
from sim.report.page.page import Table
from sim.report.vega.theme import on_black
from sim.report.words.money import cash, money_mark, shown
from sim.report.words.names import name_told
from sim.report.words.text import short
from sim.report.work.answer import asked
from sim.report.work.kinds import WorkKind, kind_of
from sim.scenario.job.load import AnyScenario
from sim.scenario.job.schema import JobScenario
from sim.scenario.reading.given import options
from sim.serve.answers.knobs import knobs
from sim.serve.answers.shapes import chart_data, knob_data
from sim.study.money.price.reprice import load_repriced_work
from sim.units import NANO_PER_USD


@dataclass(frozen=True, slots=True)
class WorkAnswer:
    """One answer."""

    scenario: AnyScenario
    kind: WorkKind
    rows: Sequence[Any]


class WorkAnswers:
    """All answers of one finished job or queue."""

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self.run, self.catalog = run, catalog
        self._last: tuple[str, WorkAnswer] | None = None

    def under(self, values: Mapping[str, Any]) -> WorkAnswer:
        """The answer with *values*, dotted path -> value: prices and terms. Raises ScenarioErrors."""
        key = repr(sorted(values.items()))
        if self._last is None or self._last[0] != key:
            scenario = load_repriced_work(self.run, options(values), self.catalog)
            kind = kind_of(scenario)
            self._last = (key, WorkAnswer(scenario, kind, kind.rows(scenario, self.catalog)))
        return self._last[1]


def work_data(answer: WorkAnswer, catalog: Catalog) -> dict[str, Any]:
    """Verdict, charts, tables, bills and what can be moved."""
    kind, rows, scenario = answer.kind, answer.rows, answer.scenario
    first, *others = kind.page_tables(rows)
    paid = {row.fleet: row.outcome.ledger.by_component() for row in rows if row.outcome.ledger is not None}
    return {
        "name": scenario.name,
        "question": asked(scenario),
        "symbol": money_mark(0).removesuffix("0"),
        "judged": False,
        "verdict": work_verdict(answer),
        "fleets": [
            {"name": mark.name, "color": mark.color, "dark": on_black(mark.color), "glyph": mark.glyph}
            for mark in kind.key(rows)
        ],
        "charts": [chart_data(panel) | {"limit": None} for panel in kind.panels(rows)],
        "table": _table(first),
        "tables": [_table(one) | {"title": one.title, "note": one.note} for one in others],
        "capacity": [],
        "gap": work_gap(answer),
        "gapOf": _("for the whole job") if isinstance(scenario, JobScenario) else _("for the whole queue"),
        "partNames": {name: name_told(name) for parts in paid.values() for name in parts},
        "readings": [],
        "knobs": [knob_data(one) for one in knobs(scenario, catalog, paid)],
    }


def work_verdict(answer: WorkAnswer) -> dict[str, Any]:
    """The sentence, and what qualifies it."""
    told = answer.kind.verdict(answer.rows)
    return {"headline": told.headline, "findings": list(told.findings)}


def work_gap(answer: WorkAnswer) -> list[dict[str, Any]]:
    """What the whole work costs on every fleet at every point, and the components that it consists of."""
    return [
        {
            "fleet": row.fleet,
            "setting": "",
            "at": ", ".join(f"{axis} {short(value)}" for axis, value in row.outcome.plan.axes.items()),
            "good": True,
            "total": shown(ledger.total_nano_usd / NANO_PER_USD),
            "perHour": shown(ledger.usd_per_h),
            "tokensPerHour": None,
            "parts": {name: shown(nano_usd / NANO_PER_USD) for name, nano_usd in ledger.by_component().items()},
            "text": cash(ledger.total_nano_usd / NANO_PER_USD),
        }
        for row in answer.rows
        if (ledger := row.outcome.ledger) is not None
    ]


def _table(table: Table) -> dict[str, Any]:
    return {"heads": list(table.heads), "rows": [list(row) for row in table.rows]}
