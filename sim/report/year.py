"""year.csv: what a year costs and serves, its hours weighting the simulated loads."""

from collections.abc import Mapping, Sequence
from math import fsum, inf
from pathlib import Path
from typing import Any

from sim.report.cases import Point
from sim.report.tables import write_rows
from sim.report.text import percent, plain, usd
from sim.scenario.year import YearPlan
from sim.units import HOURS_PER_YEAR, SECONDS_PER_HOUR

COLUMNS = [
    *["status", "peak_rps", "meets_slo_at_peak", "slo_attainment_at_peak", "slo_attainment", "good_hours"],
    *["interpolated_hours", "requests_per_year", "output_tokens_per_year", "total_tokens_per_year", "kwh_per_year"],
    *["usd_per_year", "energy_usd_per_year", "idle_tax_usd_per_year", "preemption_waste_usd_per_year"],
    *["usd_per_million_output_tokens", "usd_per_million_tokens", "usd_per_million_good_tokens"],
]
MONEY = [name for name in COLUMNS if "usd" in name]
WASTE = {"idle_tax_usd": "idle", "preemption_waste_usd": "recompute"}
"""Metric -> phase of the ledger."""
TOKENS = {
    "usd_per_million_output_tokens": "output_tokens",
    "usd_per_million_tokens": "total_tokens",
    "usd_per_million_good_tokens": "good_output_tokens",
}

Hourly = Mapping[str, float]
"""Name -> amount per hour at one load."""
Tariffs = Mapping[str, Sequence[float] | None]
"""Fleet -> mean price per kWh of each hour of the day; None where one price holds always."""


def year_rows(points: Sequence[Point], axes: Sequence[str], plan: YearPlan, tariffs: Tariffs) -> list[dict[str, Any]]:
    """One row per fleet and setting of the other axes.

    An hour at a load between two simulated ones is taken as the straight line between them; each hour is steady, no
    queue is carried into the next.
    """
    others = [axis for axis in axes if axis != plan.axis]
    groups: dict[str, list[Point]] = {}
    for point in points:
        key = repr((point.fleet, [point.axes.get(axis) for axis in others]))
        groups.setdefault(key, []).append(point)
    rows = []
    for members in groups.values():
        first = members[0]
        front = {"fleet": first.fleet, **{axis: first.axes.get(axis) for axis in others}}
        rows.append(front | dict.fromkeys(COLUMNS) | _year(members, plan, tariffs.get(first.fleet)))
    return rows


def write_year(path: Path, rows: Sequence[Mapping[str, Any]], axes: Sequence[str], money: bool) -> None:
    """The rows as CSV; without any cost there are no money columns."""
    write_rows(path, rows, ["fleet", *axes, *(name for name in COLUMNS if money or name not in MONEY)])


def _year(members: Sequence[Point], plan: YearPlan, tariff: Sequence[float] | None) -> dict[str, Any]:
    known = {_rate(point, plan): point for point in members if point.ok}
    wanted = [entry for entry in plan.rates if entry[1]]
    if not known:
        return {"status": "infeasible"}
    if not all(min(known) <= rate <= max(known) for rate, *_ in wanted):
        return {"status": "not simulated"}
    hours = [(_between(known, rate), weight, hour) for rate, weight, hour in wanted]
    sums = _sums(known, hours, tariff)
    around = _between(known, plan.peak_rps)
    row = {
        "status": "ok",
        "peak_rps": plan.peak_rps,
        "meets_slo_at_peak": all(point.good for point, _ in around),
        "slo_attainment_at_peak": fsum((p.number("slo_attainment") or 0.0) * share for p, share in around),
        "slo_attainment": sums["good_requests"] / sums["offered"] if sums["offered"] else None,
        "good_hours": fsum(weight for ends, weight, _ in hours if all(point.good for point, _ in ends)),
        "interpolated_hours": fsum(weight for ends, weight, _ in hours if len(ends) > 1),
        "requests_per_year": sums["requests"],
        "output_tokens_per_year": sums["output_tokens"],
        "total_tokens_per_year": sums["total_tokens"],
        "kwh_per_year": sums.get("kwh"),
    }
    if "usd" in sums:
        row |= {
            "usd_per_year": sums["usd"],
            "energy_usd_per_year": sums["energy_usd"],
            "idle_tax_usd_per_year": sums["idle_tax_usd"],
            "preemption_waste_usd_per_year": sums["preemption_waste_usd"],
        }
        row |= {name: sums["usd"] / sums[of] * 1e6 if sums[of] else None for name, of in TOKENS.items()}
    return row


def _rate(point: Point, plan: YearPlan) -> float:
    """The point's load; where it is not swept, the one of the profile."""
    return float(point.axes[plan.axis]) if plan.axis is not None else plan.peak_rps


def _between(known: Mapping[float, Point], rate: float) -> list[tuple[Point, float]]:
    """The simulated point at *rate*, or the two around it, with their weights."""
    if rate in known:
        return [(known[rate], 1.0)]
    below, above = max(r for r in known if r < rate), min(r for r in known if r > rate)
    share = (rate - below) / (above - below)
    return [(known[below], 1 - share), (known[above], share)]


def _sums(
    known: Mapping[float, Point],
    hours: Sequence[tuple[list[tuple[Point, float]], float, int | None]],
    tariff: Sequence[float] | None,
) -> dict[str, float]:
    """Everything that adds up over the hours of a year."""
    hourly = {id(point): _hourly(point) for point in known.values()}
    parts: dict[str, list[float]] = {}
    for ends, weight, hour in hours:
        price = None if tariff is None else fsum(tariff) / len(tariff) if hour is None else tariff[hour]
        for point, share in ends:
            for name, amount in _at_price(hourly[id(point)], price).items():
                parts.setdefault(name, []).append(amount * share * weight)
    return {name: fsum(amounts) for name, amounts in parts.items()}


def _at_price(hourly: Hourly, usd_per_kwh: float | None) -> Hourly:
    """*hourly* with its energy at another price than that of the simulated window; None: as it is."""
    paid = hourly.get("energy_usd", 0.0)
    if usd_per_kwh is None or not paid:
        return hourly
    more = hourly["kwh"] * usd_per_kwh / paid - 1
    changed = {"usd": "energy_usd", "energy_usd": "energy_usd", **{name: f"{name}_energy" for name in WASTE}}
    return {**hourly, **{name: hourly[name] + more * hourly[energy] for name, energy in changed.items()}}


def _hourly(point: Point) -> Hourly:
    """Amounts per hour at the point: sums over its replications, over their hours."""
    offered = SECONDS_PER_HOUR * (point.number("offered_rps") or 0.0)
    found = {
        "offered": offered,
        "good_requests": offered * (point.number("slo_attainment") or 0.0),
        "requests": SECONDS_PER_HOUR * (point.number("requests_per_s") or 0.0),
        **{name: _per_h(point, name) for name in TOKENS.values()},
    }
    if point.number("energy_kwh") is not None:
        found["kwh"] = _per_h(point, "energy_kwh")
    if point.number("cost_usd_per_h") is not None:
        found |= {"usd": _per_h(point, "cost_usd"), "energy_usd": fsum(_energy_usd(point).values())}
        for name, phase in WASTE.items():
            found |= {name: _per_h(point, name), f"{name}_energy": _energy_usd(point).get(phase, 0.0)}
    return found


def _per_h(point: Point, metric: str) -> float:
    return fsum(case.metrics[metric] for case in point.cases) / _window_h(point)


def _window_h(point: Point) -> float:
    # a window in which nothing could be served may have no length
    return fsum(case.metrics["window_h"] for case in point.cases) or inf


def _energy_usd(point: Point) -> dict[str, float]:
    """Money for energy per hour, by phase."""
    tables = [case.metrics["energy_usd"] for case in point.cases]
    names = dict.fromkeys(name for table in tables for name in table)
    return {name: fsum(table.get(name, 0.0) for table in tables) / _window_h(point) for name in names}


def year_table(rows: Sequence[Mapping[str, Any]], axes: Sequence[str], plan: YearPlan) -> dict[str, Any]:
    """The rows for report.html: heads, cells and what must be known of them."""
    others = [axis for axis in axes if axis != plan.axis]
    money = any(row["usd_per_year"] is not None for row in rows)
    heads = [*(["USD a year", "of it idle", "per million output tokens"] if money else []), "output tokens a year"]
    heads += ["MWh a year", f"SLO at the peak of {plan.peak_rps:g}/s", "hours within the SLO", "requests within it"]
    body = []
    for row in rows:
        name = ", ".join([row["fleet"], *(f"{axis} {row[axis]}" for axis in others)])
        body.append((row["fleet"], name, _cells(row, money) if row["status"] == "ok" else [row["status"]]))
    return {"heads": heads, "rows": body, "note": _note(rows)}


def _cells(row: Mapping[str, Any], money: bool) -> list[str]:
    cells = []
    if money and row["usd_per_year"] is None:
        cells = ["", "", ""]
    elif money:
        per_million = row["usd_per_million_output_tokens"]
        idle = row["idle_tax_usd_per_year"] / row["usd_per_year"] if row["usd_per_year"] else 0.0
        cells = [usd(row["usd_per_year"]), percent(idle), "" if per_million is None else usd(per_million)]
    kwh, attained = row["kwh_per_year"], row["slo_attainment"]
    return [
        *cells,
        f"{row['output_tokens_per_year'] / 1e6:,.0f} million",
        "" if kwh is None else f"{kwh / 1e3:,.1f}",
        ("met, " if row["meets_slo_at_peak"] else "missed, ") + percent(row["slo_attainment_at_peak"]),
        f"{row['good_hours']:,.0f} of {HOURS_PER_YEAR:,.0f}",
        "" if attained is None else percent(attained),
    ]


def _note(rows: Sequence[Mapping[str, Any]]) -> str:
    hours = max((row["interpolated_hours"] or 0.0 for row in rows), default=0.0)
    text = "Each hour is taken as steady at its load: no queue is carried into the next."
    if hours:
        between = f" {plain(hours)} of its hours lie between simulated loads and are taken as the straight line."
        return text + between
    return text
