"""Tables and bars of report.html as plain data for the template."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from sim.language import N_, _, ngettext
from sim.report.charts.panels import GLYPHS, style
from sim.report.run.key_figures import limited_by, scales
from sim.report.run.year import year_load
from sim.report.words.money import cash, in_code, shown
from sim.report.words.service_level import percentiles_shown
from sim.report.words.text import commas, percent, place, places, plain, readable_name, spaced, span, spread, steady
from sim.report.words.units import noun
from sim.scenario.slo import Slo
from sim.study.comparison import COST
from sim.study.points import Point, Sweep, has_slo
from sim.study.year import FleetYear, RunYear
from sim.units import HOURS_PER_MONTH
from sim.workload.tenants import UNATTRIBUTED

CAUSES = {
    "compute": "#2f4b7c",
    "memory": "#6f94c4",
    "attention": "#b9a44c",
    "link": "#c2703d",
    "host": "#7f9a6c",
    "overhead": "#bdbdbd",
}
TONES = [
    *["#33475b", "#5f7f9e", "#9db7cc", "#b9a44c", "#d8c98a", "#a5653f", "#d7a27e", "#7f9a6c", "#bccbaa", "#bdbdbd"],
    *["#56506b", "#a79fc2", "#7a3b52", "#c995a8", "#3f6b63", "#93bdb3", "#6b5b45", "#c4b59d", "#46739c", "#dcdcdc"],
]
"""Colours of cost components, by position in the bill; enough that none repeats."""
API_COST = "api_usd_per_million_output_tokens"
DARK = {"#2f4b7c", "#33475b", "#5f7f9e", "#a5653f", "#c2703d", "#56506b", "#7a3b52", "#3f6b63", "#6b5b45", "#46739c"}
"""Bar colours that need white text."""
LATENCIES_SHOWN = {
    False: (("ttft_s", N_("Time to first token")), ("tpot_s", N_("Time per output token"))),
    True: (("e2e_s", N_("Latency")),),
}
"""Latencies shown at a glance: True for one-pass services, which have a single latency."""
MOST_BARS = 12
"""Largest number of bars per fleet in the chart of limits; more points are thinned out evenly."""


@dataclass(frozen=True, slots=True)
class BarSegment:
    """Segment of a stacked bar."""

    name: str
    text: str
    percent_wide: float
    color: str

    @property
    def ink(self) -> str:
        """Colour of the text on the segment."""
        return "#fff" if self.color in DARK else "#222"


@dataclass(frozen=True, slots=True)
class StackedBar:
    """Horizontal stacked bar with its label and its note."""

    fleet: str
    before: str
    segments: tuple[BarSegment, ...]
    after: str


def glance(
    sweep: Sweep, slo: Slo, year: RunYear | None = None, models: Mapping[str, str] | None = None
) -> list[tuple[str, list[str]]]:
    """Return the main figures, a column per fleet: (name of the row, cells); with a *year*, its figures come first.

    *models* has the model of every fleet where they differ.
    """
    lines = [next(line for line in sweep.lines if line.fleet == fleet) for fleet in sweep.fleets]
    at = sweep.reference
    there = "" if sweep.single else _(" at {place}", place=place(sweep.axis, at))
    here = [next((p for p in line.points if sweep.value(p) == at), line.points[0]) for line in lines]
    fit = [[point for point in line.points if point.certainly_good] for line in lines]
    judged = has_slo([point for line in lines for point in line.points], slo)
    goal = _("Meets the SLO") if judged else _("Keeps up")
    rows = [
        (_("GPUs, servers"), [_counts(point) for point in here]),
        *_replicas(here, there),
        (_("Capital"), _column(here, "capex_usd", cash)),
        (_("Cost per hour{there}", there=there), _column(here, "cost_usd_per_h", cash)),
        (_("Cost per month{there}", there=there), _column(here, "cost_usd_per_month", cash)),
        (_("Per million output tokens{there}", there=there), list(map(cost_of, here))),
        (_("The same tokens by API, per million output tokens{there}", there=there), _column(here, API_COST, cash)),
        (
            _("CO2e per million output tokens{there}", there=there),
            masses(here, "kg_co2e_per_million_output_tokens"),
        ),
        *(
            (
                _("{words}, {part}{there}", words=_(words), part=part, there=there),
                latencies(here, f"{name}_{part}"),
            )
            for name, words in LATENCIES_SHOWN[bool(noun())]
            for part in percentiles_shown(slo, name)
        ),
        (_("Power at the meter{there}", there=there), _column(here, "facility_power_w_mean", kilowatts)),
    ]
    if sweep.single:
        rows.insert(0, (goal, [_meets_goals(line.points) for line in lines]))
    else:
        open_at = [[sweep.value(p) for p in line.points if p.inconclusive] for line in lines]
        none = [_("no load for certain") if one else _("nowhere") for one in open_at]
        where = [
            span(sweep.axis, [sweep.value(p) for p in points], sweep.values) if points else nowhere
            for points, nowhere in zip(fit, none, strict=True)
        ]
        rows.insert(0, (_("Inconclusive at"), [span(sweep.axis, one, sweep.values) if one else "" for one in open_at]))
        rows.insert(0, (spaced(_("{goal} at", goal=goal)), where))
        rows.append(
            (_("Lowest per million output tokens at these loads"), [_cheapest(sweep, points) for points in fit])
        )
        rows.append((_("Limited by, at the last point"), [limited_by(line.points[-1]) for line in lines]))
    of_year = _of_year(sweep, year) if year is not None else []
    served = [(_("Model"), [models.get(fleet, "") for fleet in sweep.fleets])] if models else []
    return [(name, cells) for name, cells in (*served, *of_year, *rows) if any(cells)]


def _of_year(sweep: Sweep, year: RunYear) -> list[tuple[str, list[str]]]:
    """Return the year's load, cost and service level of each fleet, at the first setting of the other axes."""
    every = [next((row for row in year.rows if (row.fleet, row.status) == (name, "ok")), None) for name in sweep.fleets]
    load = year_load(year.plan)
    return [
        (_("Load of the year"), [load if row is not None else "" for row in every]),
        (_("Cost per year"), _amounts(every, "usd_per_year")),
        (_("Per million output tokens over the year"), _amounts(every, "usd_per_million_output_tokens")),
        (_("Working hours within the SLO"), ["" if row is None else percent(row.good_share) for row in every]),
    ]


def _amounts(rows: Sequence[FleetYear | None], column: str) -> list[str]:
    return ["" if (value := getattr(row, column, None)) is None else cash(value) for row in rows]


def _meets_goals(points: Sequence[Point]) -> str:
    if any(point.inconclusive for point in points):
        return _("inconclusive")
    return _("yes") if any(point.certainly_good for point in points) else _("no")


def _replicas(points: Sequence[Point], there: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows on serving replicas, where fleets start and stop replicas."""
    if any(map(scales, points)):
        yield _("Serving replicas{there}", there=there), list(map(_level, points))
        yield _("GPU-hours a day{there}", there=there), _column(points, "gpu_hours_per_day", plain)


def _level(point: Point) -> str:
    mean, p95, highest = (point.number(f"replicas_{part}") for part in ("mean", "p95", "max"))
    if mean is None or p95 is None or highest is None:
        return ""
    if not scales(point):
        return plain(mean)
    return _("mean {mean}, p95 {p95}, highest {highest}", mean=plain(mean), p95=plain(p95), highest=plain(highest))


def _counts(point: Point) -> str:
    gpus, servers = point.number("gpus"), point.number("servers")
    lines = [ngettext("{count} GPU", "{count} GPUs", gpus, count=plain(gpus))] if gpus else []
    if lines and scales(point):
        lines = [_("peak {gpus}", gpus=lines[0])]
    lines += [ngettext("{count} server", "{count} servers", servers, count=plain(servers))] if servers else []
    return commas(lines)


def _column(points: Sequence[Point], name: str, show: Callable[[float], str]) -> list[str]:
    return [show(value) if (value := point.number(name)) is not None else "" for point in points]


def _cheapest(sweep: Sweep, points: Sequence[Point]) -> str:
    priced = [point for point in points if point.number(COST) is not None]
    if not priced:
        return ""
    best = min(priced, key=lambda point: point.number(COST) or 0.0)
    return _("{cash} at {place}", cash=cash(best.number(COST) or 0.0), place=place(sweep.axis, sweep.value(best)))


def kilowatts(watts: float) -> str:
    """Format power in kW."""
    return f"{steady(watts / 1e3)} kW"


def masses(points: Sequence[Point], column: str) -> list[str]:
    """Format a mass of every point, in one unit: grams where all are below 100 g, else kg."""
    known = [value for point in points if (value := point.number(column)) is not None]
    scale, unit = (1e3, "g") if any(known) and max(known) < 0.1 else (1.0, "kg")
    return _column(points, column, lambda kg: f"{steady(scale * kg)} {unit}")


def cost_of(point: Point) -> str:
    """Format the cost per million output tokens with its interval."""
    value, half = point.number(COST), point.number(f"{COST}_ci95")
    if value is None:
        return ""
    around = "" if half is None else spread(shown(half), shown(value))
    return f"{cash(value)} ± {around}" if around else cash(value)


def latencies(points: Sequence[Point], column: str) -> list[str]:
    """Format a latency of every point with its interval, in one unit: ms where all are below a tenth of a second."""
    known = [value for point in points if (value := point.number(column)) is not None and isfinite(value)]
    scale, unit = (1e3, " ms") if known and max(known) < 0.1 else (1.0, " s")
    return [_with_interval(point, column, steady, scale, unit) for point in points]


def _with_interval(point: Point, column: str, show: Callable[[float], str], scale: float, unit: str) -> str:
    value, half = point.number(column), point.number(f"{column}_ci95")
    if value is None or not isfinite(value):
        return "" if value is None else show(value)
    around = "" if half is None else spread(scale * half, scale * value)
    return f"{show(scale * value)} ± {around}{unit}" if around else f"{show(scale * value)}{unit}"


def cost_bars(sweep: Sweep) -> tuple[list[StackedBar], dict[str, str]]:
    """Return bars of the cost by component at the reference point [USD/h], and the components' colours."""
    at = sweep.reference
    chosen = [(line, point) for line in sweep.lines for point in line.points if sweep.value(point) == at]
    parts = [(line, point, point.mean_shares("component_usd_per_h")) for line, point in chosen]
    parts = [entry for entry in parts if entry[2]]
    widest = max((sum(shares.values()) for *_, shares in parts), default=0.0)
    names = dict.fromkeys(name for *_, shares in parts for name, amount in shares.items() if amount)
    colors = {name: TONES[index % len(TONES)] for index, name in enumerate(names)}
    bars = []
    for line, point, shares in parts:
        segments = tuple(
            BarSegment(readable_name(name), cash(amount), 100 * amount / widest, colors[name])
            for name, amount in shares.items()
            if amount
        )
        cost = cost_of(point)
        bars.append(
            StackedBar(
                line.fleet,
                places(line.setting),
                segments,
                _("{cash}/h; {cost} per million output tokens", cash=cash(sum(shares.values())), cost=cost),
            )
        )
    return bars, {readable_name(name): color for name, color in colors.items()}


def cost_table(sweep: Sweep) -> dict[str, Any]:
    """Return the amounts behind the cost bars [USD/h]: a row per component, a column per fleet, the sum last."""
    at = sweep.reference
    chosen = [(line, point) for line in sweep.lines for point in line.points if sweep.value(point) == at]
    columns = [(line, point.mean_shares("component_usd_per_h")) for line, point in chosen]
    columns = [(line, shares) for line, shares in columns if shares]
    names = dict.fromkeys(name for _, shares in columns for name, amount in shares.items() if amount)
    rows = [(readable_name(name), [cash(shares.get(name, 0.0)) for _, shares in columns]) for name in names]
    total = (_("total"), [cash(sum(shares.values())) for _, shares in columns])
    return {"heads": [(line.fleet, places(line.setting)) for line, _ in columns], "rows": rows, "total": total}


POWER = (
    ("gpu_power_w_mean", N_("GPUs, mean [kW]"), 1e-3),
    ("it_power_w_mean", N_("servers, mean [kW]"), 1e-3),
    ("facility_power_w_mean", N_("at the meter, cooling included, mean [kW]"), 1e-3),
    ("facility_power_w_mean", N_("energy at the meter per month [kWh]"), HOURS_PER_MONTH / 1e3),
)
"""Rows of the table of power: column, heading, and shown units per watt."""
ENERGY_PER_TOKEN = N_("energy at the meter per output token [J]")


def power_table(sweep: Sweep) -> dict[str, Any]:
    """Return power and energy at the reference point: a column per fleet."""
    at = sweep.reference
    columns = [(line, point) for line in sweep.lines for point in line.points if sweep.value(point) == at]
    columns = [entry for entry in columns if entry[1].number("facility_power_w_mean")]
    points = [point for _line, point in columns]
    rows = [
        (_(head), ["" if (watts := point.number(name)) is None else plain(scale * watts) for point in points])
        for name, head, scale in POWER
    ]
    per_token = []
    for point in points:
        watts, rate = point.number("facility_power_w_mean"), point.number("output_tokens_per_s")
        per_token.append(plain(watts / rate) if watts and rate else "")
    rows = [(head, cells) for head, cells in (*rows, (_(ENERGY_PER_TOKEN), per_token)) if any(cells)]
    return {"heads": [(line.fleet, places(line.setting)) for line, _ in columns], "rows": rows if points else []}


PHASES = {
    "booting": N_("starting replicas"),
    "failed": N_("broken down or under repair"),
    "reserve": N_("in reserve (spares, asleep)"),
    "prefill": N_("prompts"),
    "decode": N_("decoding"),
    "recompute": N_("computing again (preemption waste)"),
    "idle": N_("waiting for work (idle tax)"),
    "unused": N_("paid for and not used (idle tax)"),
    "unused commitment": N_("unused commitment (idle tax)"),
}
"""Names of cost phases."""


def phase_table(sweep: Sweep) -> dict[str, Any]:
    """Return the cost by phase (prompts, decoding, idle ...) [USD/h], and per request where it was allocated [USD]."""
    at = sweep.reference
    chosen = [(line, point) for line in sweep.lines for point in line.points if sweep.value(point) == at]
    columns = [(line, point, point.mean_shares("phase_usd_per_h")) for line, point in chosen]
    columns = [entry for entry in columns if entry[2]]
    names = dict.fromkeys(name for *_, shares in columns for name, amount in shares.items() if amount)
    rows = [
        (_(PHASES[name]) if name in PHASES else readable_name(name), [_part(shares, name) for *_, shares in columns])
        for name in names
    ]
    for percentile in ("p50", "p95", "p99"):
        costs = [point.number(f"usd_per_request_{percentile}") for _, point, _ in columns]
        if any(cost is not None for cost in costs):
            cells = ["" if cost is None else cash(cost) for cost in costs]
            rows.append((in_code(_("USD per request, {percentile}", percentile=percentile)), cells))
    return {"heads": [(line.fleet, places(line.setting)) for line, *_ in columns], "rows": rows}


def _part(shares: Mapping[str, float], name: str) -> str:
    amount, total = shares.get(name, 0.0), sum(shares.values())
    return f"{cash(amount)} ({percent(amount / total)})" if total else cash(amount)


def limit_bars(sweep: Sweep) -> tuple[list[StackedBar], dict[str, str]]:
    """Return the bars of mean step time by cause, one per point, and the colours of the causes."""
    bars: list[StackedBar] = []
    used: dict[str, str] = {}
    for line in sweep.lines:
        step = -(-len(line.points) // MOST_BARS)
        for point in line.points[::-1][::step][::-1]:
            shares = point.mean_shares("step_share")
            if shares:
                colors = {name: CAUSES.get(name, TONES[-1]) for name, share in shares.items() if share > 0}
                used |= colors
                segments = tuple(
                    BarSegment(readable_name(n), percent(shares[n]), 100 * shares[n], color)
                    for n, color in colors.items()
                )
                where = "" if sweep.single else place(sweep.axis, sweep.value(point))
                before = _(", ").join(text for text in (places(line.setting), where) if text)
                bars.append(StackedBar(line.fleet, before, segments, _state(point)))
    return bars, {readable_name(name): color for name, color in CAUSES.items() if name in used}


def _state(point: Point) -> str:
    parts = [_("limited by {limited_by}", limited_by=limited_by(point))] if limited_by(point) else []
    batch, kv = point.number("batch_mean"), point.number("kv_used_peak_fraction")
    parts += [] if batch is None else [_("mean batch {batch}", batch=plain(batch))]
    parts += [] if kv is None or noun() else [_("KV peak {percent}", percent=percent(kv))]
    return _("; ").join(parts)


def tenants_of(rows: Sequence[Mapping[str, Any]], sweep: Sweep, axes: Sequence[str]) -> dict[str, Any]:
    """Return the table of tenants at the reference point, from rows of tenants.csv, with bars of their p99 TTFT.

    The bars show noisy neighbours: tenants whose load slows the others.
    """
    here = [row for row in rows if sweep.single or row[sweep.axis] == sweep.reference]
    names = {id(row): _tenant(row, [axis for axis in axes if axis != sweep.axis]) for row in here}
    columns = [column for column in TENANT_COLUMNS if any(row.get(column[0]) is not None for row in here)]
    table = [
        {
            "fleet": row["fleet"],
            "name": names[id(row)],
            "met": "" if row.get("meets_slo") is None else _("yes") if row["meets_slo"] else _("no"),
            "cells": ["" if (value := row.get(key)) is None else show(value) for key, _head, show in columns],
        }
        for row in here
    ]
    slow = [(row, row[SLOWEST_LATENCY]) for row in here if row.get(SLOWEST_LATENCY) is not None]
    widest = max((value for _row, value in slow if value < inf), default=0.0) or 1.0
    color = CAUSES["memory"]
    bars = [
        StackedBar(
            row["fleet"], names[id(row)], (BarSegment("p99", "", 100 * min(1.0, value / widest), color),), _slow(value)
        )
        for row, value in slow
    ]
    return {"heads": [_(head) for _key, head, _show in columns], "rows": table, "bars": bars}


def showback_of(rows: Sequence[Mapping[str, Any]], sweep: Sweep, axes: Sequence[str]) -> dict[str, Any]:
    """Return the table of what each tenant pays at the reference point, from rows of showback.csv."""
    here = [row for row in rows if sweep.single or row[sweep.axis] == sweep.reference]
    columns = [column for column in SHOWBACK_COLUMNS if any(row[column[0]] for row in here)]
    table = [
        {
            "fleet": row["fleet"],
            "name": _tenant(row, [axis for axis in axes if axis != sweep.axis]),
            "cells": ["" if not (value := row[key]) else show(value) for key, _head, show in columns],
        }
        for row in here
    ]
    return {"heads": [in_code(_(head)) for _key, head, _show in columns], "rows": table}


def _tenant(row: Mapping[str, Any], settings: Sequence[str]) -> str:
    name = _("(no tenant)") if row["tenant"] == UNATTRIBUTED else row["tenant"]
    return commas([name, *([where] if (where := places([(axis, row[axis]) for axis in settings])) else [])])


def _slow(value: float) -> str:
    return _("some have no answer") if value == inf else f"{steady(value)} s"


SLOWEST_LATENCY = "ttft_s_p99"
TENANT_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("slo_attainment", N_("within SLO"), percent),
    ("requests", N_("requests"), plain),
    ("rejected", N_("rejected"), plain),
    ("output_tokens", N_("output tokens"), plain),
    ("ttft_s_p50", N_("TTFT p50 [s]"), steady),
    ("ttft_s_p99", N_("TTFT p99 [s]"), steady),
    ("e2e_s_p99", N_("E2E p99 [s]"), steady),
    ("it_energy_kwh", N_("energy [kWh]"), steady),
    ("cost_usd", N_("cost"), cash),
)


SHOWBACK_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("used_usd_per_month", N_("its requests [USD/month]"), cash),
    ("idle_usd_per_month", N_("idle"), cash),
    ("unused_usd_per_month", N_("unused"), cash),
    ("other_usd_per_month", N_("other"), cash),
    ("usd_per_month", N_("total [USD/month]"), cash),
    ("share_of_bill", N_("share of the bill"), percent),
    ("usd_per_thousand_requests", N_("USD per thousand requests"), cash),
    ("usd_per_million_output_tokens", N_("USD per million output tokens"), cash),
)


def swatches(fleets: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return colour and glyph of every fleet, as in the charts."""
    return {name: (color, GLYPHS[marker]) for name, (color, marker) in style(fleets).items()}
