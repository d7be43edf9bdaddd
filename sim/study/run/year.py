"""What a year costs and serves, its hours weighting the simulated loads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Any

from sim.scenario.year import YearPlan
from sim.study.metrics.idle import IdleHour
from sim.study.run.point import Point
from sim.units import SECONDS_PER_HOUR

COLUMNS = [
    *["status", "peak_rps", "peak_concurrency", "meets_slo_at_peak", "slo_attainment_at_peak", "slo_attainment"],
    *["good_hours", "interpolated_hours"],
    *["requests_per_year", "output_tokens_per_year", "total_tokens_per_year", "kwh_per_year"],
    *["usd_per_year", "energy_usd_per_year", "idle_tax_usd_per_year", "preemption_waste_usd_per_year"],
    *["usd_per_million_output_tokens", "usd_per_million_tokens", "usd_per_million_good_tokens"],
]
MONEY = [name for name in COLUMNS if "usd" in name]
PEAKS = ("peak_rps", "peak_concurrency")
"""One of them stands in the table: what a load is."""
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
"""Fleet -> mean price per kWh of each hour of the day or of the week; None where one price holds always."""


def year_rows(
    points: Sequence[Point],
    axes: Sequence[str],
    plan: YearPlan,
    tariffs: Tariffs,
    idle: Sequence[IdleHour] = (),
) -> list[dict[str, Any]]:
    """One row per fleet and setting of the other axes.

    An hour at a load between two simulated ones is taken as the straight line between them; each hour is steady, no
    queue is carried into the next. Hours without load are those of *idle*.
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
        empty = [_idle(hour) for hour in idle if {"fleet": hour.fleet, **hour.axes} == front]
        rows.append(front | dict.fromkeys(COLUMNS) | _year(members, plan, tariffs.get(first.fleet), empty))
    return rows


def hourly_prices(plan: Mapping[str, Any], year: YearPlan) -> Sequence[float] | None:
    """Mean price per kWh of each hour that the loads of *year* know, from a *plan* of resolved.yaml."""
    by_hour: Sequence[float] | None = plan.get("usd_per_kwh_by_hour")
    if by_hour is None or not year.of_week:
        return by_hour
    return plan.get("usd_per_kwh_by_hour_of_week") or [*by_hour] * 7


@dataclass(frozen=True, slots=True)
class _Load:
    """A fleet at one load."""

    hourly: Hourly
    good: bool
    attained: float


def _of(point: Point) -> _Load:
    return _Load(_hourly(point), point.good, point.number("slo_attainment") or 0.0)


def _idle(hour: IdleHour) -> _Load:
    counts = dict.fromkeys(("offered", "good_requests", "requests"), 0.0)
    return _Load(counts | _amounts([hour.metrics]), good=True, attained=0.0)


def _year(
    members: Sequence[Point], plan: YearPlan, tariff: Sequence[float] | None, idle: Sequence[_Load]
) -> dict[str, Any]:
    simulated = {_load(point, plan): point for point in members if point.ok}
    wanted = [entry for entry in plan.loads if entry[1]]
    if not simulated:
        return {"status": "infeasible"}
    if not all(min(simulated) <= load <= max(simulated) for load, *_ in wanted if load or not idle):
        return {"status": "not simulated"}
    known = {load: _of(point) for load, point in simulated.items()}
    known |= {0.0: idle[0]} if idle else {}
    hours = [(_between(known, load), weight, hour) for load, weight, hour in wanted]
    sums = _sums(hours, tariff)
    around = _between(known, plan.peak)
    row = {
        "status": "ok",
        PEAKS[plan.clients]: plan.peak,
        "meets_slo_at_peak": all(one.good for one, _ in around),
        "slo_attainment_at_peak": fsum(one.attained * share for one, share in around),
        "slo_attainment": sums["good_requests"] / sums["offered"] if sums["offered"] else None,
        "good_hours": fsum(weight for ends, weight, _ in hours if all(one.good for one, _ in ends)),
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


def _load(point: Point, plan: YearPlan) -> float:
    """The point's load; where it is not swept, the one of the profile."""
    return float(point.axes[plan.axis]) if plan.axis is not None else plan.peak


def _between(known: Mapping[float, _Load], load: float) -> list[tuple[_Load, float]]:
    """What is known at *load*, or at the two loads around it, with their weights."""
    if load in known:
        return [(known[load], 1.0)]
    below, above = max(one for one in known if one < load), min(one for one in known if one > load)
    share = (load - below) / (above - below)
    return [(known[below], 1 - share), (known[above], share)]


def _sums(
    hours: Sequence[tuple[list[tuple[_Load, float]], float, int | None]], tariff: Sequence[float] | None
) -> dict[str, float]:
    """Everything that adds up over the hours of a year."""
    parts: dict[str, list[float]] = {}
    peaks: list[float] = []
    for ends, weight, hour in hours:
        price = None if tariff is None else fsum(tariff) / len(tariff) if hour is None else tariff[hour]
        for one, share in ends:
            for name, amount in _at_price(one.hourly, price).items():
                parts.setdefault(name, []).append(amount * share * weight)
        peaks.append(fsum(one.hourly.get("peak_usd", 0.0) * share for one, share in ends))
    sums = {name: fsum(amounts) for name, amounts in parts.items()}
    if "peak_usd" in sums:  # every month has the highest load, and pays for it in all its hours
        sums["usd"] += max(peaks) * fsum(weight for _, weight, _ in hours) - sums["peak_usd"]
    return sums


def _at_price(hourly: Hourly, usd_per_kwh: float | None) -> Hourly:
    """*hourly* with its energy at another price than that of the simulated window; None: as it is."""
    paid = hourly.get("energy_usd", 0.0)
    if usd_per_kwh is None or not paid:
        return hourly
    more = hourly["kwh"] * usd_per_kwh / paid - 1
    changed = {"usd": "energy_usd", "energy_usd": "energy_usd", **{name: f"{name}_energy" for name in WASTE}}
    return {**hourly, **{name: hourly[name] + more * hourly[energy] for name, energy in changed.items()}}


def _hourly(point: Point) -> Hourly:
    """Amounts per hour at the point."""
    offered = SECONDS_PER_HOUR * (point.number("offered_rps") or 0.0)
    counts = {
        "offered": offered,
        "good_requests": offered * (point.number("slo_attainment") or 0.0),
        "requests": SECONDS_PER_HOUR * (point.number("requests_per_s") or 0.0),
    }
    return counts | _amounts([case.metrics for case in point.cases])


def _amounts(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Tokens, energy and money per hour: sums over the metrics of replications, over their hours."""
    # a window in which nothing could be served may have no length
    window_h = fsum(metrics["window_h"] for metrics in runs) or inf

    def per_h(metric: str) -> float:
        return fsum(metrics[metric] for metrics in runs) / window_h

    found = {name: per_h(name) for name in TOKENS.values()}
    if all(metrics.get("energy_kwh") is not None for metrics in runs):
        found["kwh"] = per_h("energy_kwh")
    if all(metrics.get("cost_usd") is not None for metrics in runs):
        energy = [metrics["energy_usd"] for metrics in runs]
        found |= {"usd": per_h("cost_usd"), "energy_usd": fsum(fsum(one.values()) for one in energy) / window_h}
        if any("peak_usd" in metrics for metrics in runs):
            found["peak_usd"] = per_h("peak_usd")
        for name, phase in WASTE.items():
            by_phase = fsum(one.get(phase, 0.0) for one in energy) / window_h
            found |= {name: per_h(name), f"{name}_energy": by_phase}
    return found
