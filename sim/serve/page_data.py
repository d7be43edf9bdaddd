"""Answers as data for the page, with money in the shown currency.

The answer of a job, or of a queue of jobs, takes a moment and is computed each time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite, log
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.jobs.kinds import WorkKind, kind_of, work_question
from sim.jobs.load import AnyScenario, load_job
from sim.language import N_, _, translate_rendered
from sim.report.charts.panels import GLYPHS, Panel, style
from sim.report.charts.sweep_panels import LATENCIES, key_of, panels_of
from sim.report.charts.vega_lite import on_black, themes
from sim.report.page.page import PageTable
from sim.report.run.key_figures import columns_for, figure, interval, limited_by, standing
from sim.report.run.verdict import verdict_of
from sim.report.words.money import cash, in_code, money_mark, shown
from sim.report.words.service_level import percentiles_shown
from sim.report.words.text import axis_label, place, places, question_of, readable_name, short
from sim.scenario.reading.layers import options
from sim.scenario.slo import Slo
from sim.serve.adjustable_inputs import AdjustableInput, adjustable_inputs
from sim.serve.live_charts import chart_data
from sim.study.loaded_runs import RunAnswer
from sim.study.points import FleetLine, Point, Sweep, sweep_of
from sim.study.reprice import load_repriced_work
from sim.training.schema import JobScenario
from sim.units import NANO_PER_USD, SECONDS_PER_HOUR

COST = "usd_per_million_output_tokens"
USD = "USD"
READINGS = (
    ("gpu_busy_fraction", N_("GPUs busy"), "share"),
    ("slo_attainment", N_("requests within the SLO"), "share"),
    ("ttft_s_p95", N_("TTFT p95 [s]"), "s"),
    ("tpot_s_p95", N_("TPOT p95 [ms]"), "ms"),
    ("cost_usd_per_h", N_("cost [USD/h]"), USD),
    (COST, N_("USD per million output tokens"), USD),
)
"""Figures along the load axis: column of summary.csv, label, unit."""


def answer_data(answer: RunAnswer, catalog: Catalog) -> dict[str, Any]:
    """Return the verdict, charts, table, cost gap and adjustable inputs of an answer."""
    scenario, points = answer.scenario, answer.points
    verdict, sweep = verdict_of(scenario, catalog, points, disputes=answer.disputes), sweep_of(points, answer.axes)
    along = sweep.numeric and not sweep.single
    panels = panels_of(points, answer.axes, answer.slo)
    paid = {point.fleet: point.mean_shares("component_usd_per_h") for point in points if point.ok}
    return {
        "name": scenario.name,
        "question": question_of(scenario),
        "symbol": money_mark(0).removesuffix("0"),
        "judged": True,
        "verdict": {"headline": verdict.headline, "findings": list(verdict.findings)},
        "fleets": [
            {"name": name, "color": color, "dark": on_black(color), "glyph": GLYPHS[marker]}
            for name, (color, marker) in style(sweep.fleets).items()
        ],
        "charts": [
            chart_data(panel) | {"limit": way} for panel, way in zip(panels, _ways(answer, panels), strict=True)
        ],
        "themes": themes(),
        "table": table_data(answer),
        "tables": [],
        "capacity": [capacity_data(line, sweep, scenario.slo) for line in sweep.lines] if sweep.numeric else [],
        "gap": gap_data(sweep),
        "gapOf": _("per million output tokens"),
        "partNames": {name: readable_name(name) for parts in paid.values() for name in parts},
        "readings": [reading_data(line, sweep, scenario.slo) for line in sweep.lines] if along else [],
        "inputs": [adjustable_input_data(one) for one in adjustable_inputs(scenario, catalog, paid)],
    }


def _ways(answer: RunAnswer, panels: Sequence[Panel]) -> list[dict[str, Any] | None]:
    """Return the input that dragging the limit line of each panel sets; None for a panel without such a line.

    Panels of one kind are in the order of the shown percentiles.
    """
    level = answer.scenario.slo
    names = ["ttft_s", "tpot_s", *(["e2e_s"] if level.e2e_s is not None else [])]
    each = [(name, part) for name in names for part, limit in percentiles_shown(level, name).items()]
    left: dict[str, list[tuple[str, str]]] = {"cost_vs_latency": [*each], "latency_vs_load": [*each]}
    found: list[dict[str, Any] | None] = []
    for panel in panels:
        waiting = left.get(panel.kind) or []
        name, part = waiting.pop(0) if waiting else ("", "")
        has_line = panel.x_limit is not None or panel.y_limit is not None
        if panel.kind == "attainment_vs_load" and has_line and not answer.scenario.services:
            found.append({"path": "slo.attainment", "percentile": "", "scale": 1.0})
        elif name and has_line:
            stated = getattr(level, name)
            found.append(
                {
                    "path": f"slo.{name}",
                    "percentile": part if isinstance(stated, dict) else "",
                    "scale": LATENCIES[name][1],
                }
            )
        else:
            found.append(None)
    return found


def table_data(answer: RunAnswer) -> dict[str, Any]:
    """Return the table of the key figures of every point, as text."""
    columns = columns_for(answer.points, answer.slo, brief=True)
    heads = [
        _("fleet"),
        *map(axis_label, answer.axes),
        _("meets SLO"),
        *(in_code(_(one.brief)) for one in columns),
        _("limited by"),
    ]
    rows = []
    for point in answer.points:
        front = [point.fleet, *(short(point.axes.get(axis)) for axis in answer.axes)]
        if point.ok:
            cells = [f"{figure(point, one)} {interval(point, one)}".strip() for one in columns]
            rows.append([*front, standing(point), *cells, limited_by(point)])
        else:
            rows.append([*front, _("cannot run"), *[""] * len(columns), translate_rendered(str(point.row["reason"]))])
    return {"heads": heads, "rows": rows}


def capacity_data(line: FleetLine, sweep: Sweep, slo: Slo) -> dict[str, Any]:
    """Return the capacity of a fleet: the highest load within the SLO below the first load beyond it, both simulated.

    `about` is the load at which attainment crosses the target between the two, on a logistic curve through both:
    linear in the logit of attainment, as attainment stays near 1 up to the capacity and falls to 0 soon after it.
    """
    good = [point.good for point in line.points]
    reach = good.index(False) if False in good else len(good)
    met = line.points[reach - 1] if reach else None
    missed = line.points[reach] if reach < len(good) else None
    about = None
    if met is not None and missed is not None and slo.per_request and not slo.percentiles:
        low, high = met.number("slo_attainment"), missed.number("slo_attainment")
        if low is not None and high is not None and low >= slo.attainment > high:
            above, target, below = _logit(low, met), _logit(slo.attainment, None), _logit(high, missed)
            share = min(1.0, max(0.0, (above - target) / (above - below)))
            about = sweep.x(met) + share * (sweep.x(missed) - sweep.x(met))
    met_at, missed_at = (None if one is None else sweep.x(one) for one in (met, missed))
    return {
        "fleet": line.fleet,
        "setting": places(line.setting),
        "met": met_at,
        "missed": missed_at,
        "about": about,
        "text": _("inconclusive at {place}, the lowest that was simulated", place=place(sweep.axis, missed_at))
        if met is None and missed is not None and missed.inconclusive
        else _capacity_text(sweep.axis, met_at, missed_at, about),
    }


def _logit(share: float, point: Point | None) -> float:
    """Return the empirical logit of *share*: half a request is added on both sides of the count of *point*."""
    half = 0.5 / max(1.0, (point.number("requests") or 1.0) * len(point.cases)) if point is not None else 0.0
    return log((share + half) / (1.0 - share + half))


def _capacity_text(axis: str, met: float | None, missed: float | None, about: float | None) -> str:
    """Describe a capacity, with the origin of each figure."""
    if met is None:
        return _("misses the SLO from {place} on (simulated)", place=place(axis, missed))
    if missed is None:
        return _("meets the SLO up to {place}, the highest that was simulated", place=place(axis, met))
    between = _("capacity between {met} and {missed} (simulated)", met=short(met), missed=place(axis, missed))
    if about is None:
        return between
    return _("{between}, about {about} (interpolated)", between=between, about=place(axis, float(f"{about:.3g}")))


def reading_data(line: FleetLine, sweep: Sweep, slo: Slo) -> dict[str, Any]:
    """Return the figures of a fleet along the axis, for interpolation between the simulated loads; None for no figure.

    Utilisation is the load over `capacity`, the highest load within the SLO; None where the fleet never meets it.
    A cost per token is interpolated with the tokens per hour as `weights`: it is then the cost per hour over the tokens
    per hour, both interpolated. Between a `steady` and an overloaded point nothing is interpolated.
    """
    reach = capacity_data(line, sweep, slo)
    tokens = [point.number("output_tokens_per_s") or 0.0 for point in line.points]
    return {
        "capacity": reach["met"] if reach["about"] is None else reach["about"],
        "fleet": line.fleet,
        "setting": places(line.setting),
        "axis": axis_label(sweep.axis),
        "x": [sweep.x(point) for point in line.points],
        "good": [point.good for point in line.points],
        "steady": [not point.row["overloaded"] for point in line.points],
        "keys": [key_of(point) for point in line.points],
        "figures": [
            {
                "label": in_code(_(label)),
                "share": unit == "share",
                "y": [_plain(_in_unit(point.number(name), unit)) for point in line.points],
                "weights": tokens if name == COST else None,
            }
            for name, label, unit in READINGS
            if any(point.number(name) is not None for point in line.points)
        ],
    }


def _in_unit(value: float | None, unit: str) -> float | None:
    """Convert *value* of summary.csv to *unit*: amounts to the shown currency, seconds to milliseconds."""
    if value is None:
        return None
    return shown(value) if unit == USD else 1e3 * value if unit == "ms" else value


def gap_data(sweep: Sweep) -> list[dict[str, Any]]:
    """Return the cost of a million output tokens at every point, and its components, which sum to it."""
    return [
        {
            "fleet": line.fleet,
            "setting": places(line.setting),
            "at": place(sweep.axis, sweep.value(point)) if sweep.axis else "",
            "good": point.good,
            "total": shown(total),
            "perHour": shown(point.number("cost_usd_per_h") or 0.0),
            "tokensPerHour": (point.number("output_tokens_per_s") or 0.0) * SECONDS_PER_HOUR,
            "parts": {name: shown(usd) for name, usd in _parts(point).items()},
            "text": cash(total),
        }
        for line in sweep.lines
        for point in line.points
        if (total := point.number(COST)) is not None and isfinite(total)
    ]


def _parts(point: Point) -> dict[str, float]:
    """Return the components of the cost of a million output tokens [USD], summed over replications."""
    cases = [case.metrics for case in point.cases]
    millions = sum(one["output_tokens"] for one in cases) / 1e6
    found: dict[str, float] = {}
    for one in cases:
        for name, usd_per_h in (one["component_usd_per_h"] or {}).items():
            found[name] = found.get(name, 0.0) + usd_per_h * one["window_h"] / millions
    return found


def adjustable_input_data(adjustable: AdjustableInput) -> dict[str, Any]:
    """Convert an adjustable input to data for the page, without a group or choices that it does not have."""
    return {name: value for name, value in asdict(adjustable).items() if value or name not in ("group", "choices")}


def _plain(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


@dataclass(frozen=True, slots=True)
class WorkAnswer:
    """Answer of a job or queue under certain prices."""

    scenario: AnyScenario
    kind: WorkKind
    rows: Sequence[Any]


class WorkAnswers:
    """Answers of a finished job or queue under different prices; the last is kept."""

    def __init__(self, run: Path, catalog: Catalog) -> None:
        self.run, self.catalog = run, catalog
        self._last: tuple[str, WorkAnswer] | None = None

    def under(self, values: Mapping[str, Any]) -> WorkAnswer:
        """Return the answer with *values*, prices and terms by dotted path. Raises ScenarioErrors."""
        key = repr(sorted(values.items()))
        if self._last is None or self._last[0] != key:
            scenario = load_repriced_work(self.run, options(values), self.catalog, load_job)
            kind = kind_of(scenario)
            self._last = (key, WorkAnswer(scenario, kind, kind.rows(scenario, self.catalog)))
        return self._last[1]


def work_data(answer: WorkAnswer, catalog: Catalog) -> dict[str, Any]:
    """Return the verdict, charts, tables, bills and adjustable inputs of a job or queue."""
    kind, rows, scenario = answer.kind, answer.rows, answer.scenario
    first, *others = kind.page_tables(rows)
    paid = {row.fleet: row.outcome.ledger.by_component() for row in rows if row.outcome.ledger is not None}
    return {
        "name": scenario.name,
        "question": work_question(scenario),
        "symbol": money_mark(0).removesuffix("0"),
        "judged": False,
        "verdict": work_verdict(answer),
        "fleets": [
            {"name": mark.name, "color": mark.color, "dark": on_black(mark.color), "glyph": mark.glyph}
            for mark in kind.key(rows)
        ],
        "charts": [chart_data(panel) | {"limit": None} for panel in kind.panels(rows)],
        "themes": themes(),
        "table": _table(first),
        "tables": [titled_table(one) for one in others],
        "capacity": [],
        "gap": work_gap(answer),
        "gapOf": _("for the whole job") if isinstance(scenario, JobScenario) else _("for the whole queue"),
        "partNames": {name: readable_name(name) for parts in paid.values() for name in parts},
        "readings": [],
        "inputs": [adjustable_input_data(one) for one in adjustable_inputs(scenario, catalog, paid)],
    }


def work_verdict(answer: WorkAnswer) -> dict[str, Any]:
    """Return the verdict of a job or queue: headline and findings."""
    verdict = answer.kind.verdict(answer.rows)
    return {"headline": verdict.headline, "findings": list(verdict.findings)}


def work_gap(answer: WorkAnswer) -> list[dict[str, Any]]:
    """Return the cost of the whole work on every fleet at every point, and its components."""
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


def _table(table: PageTable) -> dict[str, Any]:
    return {"heads": list(table.heads), "rows": [list(row) for row in table.rows]}


def titled_table(table: PageTable) -> dict[str, Any]:
    """Return a table as text, with its title and its note."""
    return _table(table) | {"title": table.title, "note": table.note}
