"""What a year costs and serves, its hours weighting the simulated loads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import fsum, inf
from typing import Any

from sim.scenario.year import YearPlan
from sim.study.fleets.run.point import Point
from sim.study.metrics.averages import TOKENS
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.idle import IdleHour
from sim.units import SECONDS_PER_HOUR

PEAKS = ("peak_rps", "peak_concurrency")
"""One of them stands in the table: what a load is."""
WASTE = {"idle_tax_usd": "idle", "preemption_waste_usd": "recompute"}
"""Metric -> phase of the ledger."""

Hourly = Mapping[str, float]
"""Name -> amount per hour at one load."""
Tariffs = Mapping[str, Sequence[float] | None]
"""Fleet -> mean price per kWh of each hour of the day or of the week; None where one price holds always."""


@dataclass(frozen=True, slots=True)
class FleetYear:
    """What a year of one fleet comes to, at one setting of the axes beside the load's; the columns of year.csv."""

    fleet: str
    axes: Mapping[str, Any]
    status: str
    """`ok`, `infeasible`, or `not simulated` where the year has loads beyond the simulated ones."""
    peak_rps: float | None = None
    peak_concurrency: float | None = None
    meets_slo_at_peak: bool | None = None
    slo_attainment_at_peak: float | None = None
    slo_attainment: float | None = None
    good_hours: float | None = None
    """Hours in which it keeps up and meets the SLO."""
    interpolated_hours: float | None = None
    """Hours at a load between two simulated ones."""
    requests_per_year: float | None = None
    output_tokens_per_year: float | None = None
    total_tokens_per_year: float | None = None
    kwh_per_year: float | None = None
    usd_per_year: float | None = None
    energy_usd_per_year: float | None = None
    idle_tax_usd_per_year: float | None = None
    preemption_waste_usd_per_year: float | None = None
    usd_per_million_output_tokens: float | None = None
    usd_per_million_tokens: float | None = None
    usd_per_million_good_tokens: float | None = None

    @property
    def row(self) -> dict[str, Any]:
        """A row of year.csv: the fleet, the axes and the columns by name."""
        return {"fleet": self.fleet, **self.axes, **{name: getattr(self, name) for name in COLUMNS}}


COLUMNS = [one.name for one in fields(FleetYear) if one.name not in ("fleet", "axes")]


def year_rows(
    points: Sequence[Point],
    axes: Sequence[str],
    plan: YearPlan,
    tariffs: Tariffs,
    idle: Sequence[IdleHour] = (),
) -> list[FleetYear]:
    """One per fleet and setting of the other axes.

    An hour at a load between two simulated ones is taken as the straight line between them; each hour is steady, no
    queue is carried into the next. Hours without load are those of *idle*.
    """
    others = [axis for axis in axes if axis != plan.axis]
    groups: dict[str, list[Point]] = {}
    for point in points:
        key = repr((point.fleet, [point.axes.get(axis) for axis in others]))
        groups.setdefault(key, []).append(point)
    found = []
    for members in groups.values():
        fleet, setting = members[0].fleet, {axis: members[0].axes.get(axis) for axis in others}
        empty = [_idle(hour) for hour in idle if (hour.fleet, hour.axes) == (fleet, setting)]
        found.append(_year(fleet, setting, members, plan, tariffs.get(fleet), empty))
    return found


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
    fleet: str,
    setting: Mapping[str, Any],
    members: Sequence[Point],
    plan: YearPlan,
    tariff: Sequence[float] | None,
    idle: Sequence[_Load],
) -> FleetYear:
    simulated = {_load(point, plan): point for point in members if point.ok}
    wanted = [entry for entry in plan.loads if entry[1]]
    if not simulated:
        return FleetYear(fleet, setting, "infeasible")
    if not all(min(simulated) <= load <= max(simulated) for load, *_ in wanted if load or not idle):
        return FleetYear(fleet, setting, "not simulated")
    known = {load: _of(point) for load, point in simulated.items()}
    known |= {0.0: idle[0]} if idle else {}
    hours = [(_between(known, load), weight, hour) for load, weight, hour in wanted]
    sums = _sums(hours, tariff)
    around = _between(known, plan.peak)
    usd = sums.get("usd")
    return FleetYear(
        fleet,
        setting,
        "ok",
        peak_rps=None if plan.clients else plan.peak,
        peak_concurrency=plan.peak if plan.clients else None,
        meets_slo_at_peak=all(one.good for one, _ in around),
        slo_attainment_at_peak=fsum(one.attained * share for one, share in around),
        slo_attainment=sums["good_requests"] / sums["offered"] if sums["offered"] else None,
        good_hours=fsum(weight for ends, weight, _ in hours if all(one.good for one, _ in ends)),
        interpolated_hours=fsum(weight for ends, weight, _ in hours if len(ends) > 1),
        requests_per_year=sums["requests"],
        output_tokens_per_year=sums["output_tokens"],
        total_tokens_per_year=sums["total_tokens"],
        kwh_per_year=sums.get("kwh"),
        usd_per_year=usd,
        energy_usd_per_year=sums.get("energy_usd"),
        idle_tax_usd_per_year=sums.get("idle_tax_usd"),
        preemption_waste_usd_per_year=sums.get("preemption_waste_usd"),
        usd_per_million_output_tokens=_per_million(usd, sums["output_tokens"]),
        usd_per_million_tokens=_per_million(usd, sums["total_tokens"]),
        usd_per_million_good_tokens=_per_million(usd, sums["good_output_tokens"]),
    )


def _per_million(usd: float | None, tokens: float) -> float | None:
    return usd / tokens * 1e6 if usd is not None and tokens else None


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


def _amounts(runs: Sequence[CaseMetrics]) -> dict[str, float]:
    """Tokens, energy and money per hour: sums over the metrics of replications, over their hours."""
    # a window in which nothing could be served may have no length
    window_h = fsum(one.machines.window_h for one in runs) or inf

    def per_h(metric: str) -> float:
        return fsum(one[metric] or 0.0 for one in runs) / window_h

    found = {name: per_h(name) for name in TOKENS}
    if all(one.site.energy_kwh is not None for one in runs):
        found["kwh"] = per_h("energy_kwh")
    moneys = [one.money for one in runs if one.money is not None]
    if len(moneys) == len(runs):
        found |= {"usd": per_h("cost_usd")}
        found |= {"energy_usd": fsum(fsum(money.energy_usd.values()) for money in moneys) / window_h}
        if any(money.peak_usd is not None for money in moneys):
            found["peak_usd"] = per_h("peak_usd")
        for name, phase in WASTE.items():
            by_phase = fsum(money.energy_usd.get(phase, 0.0) for money in moneys) / window_h
            found |= {name: per_h(name), f"{name}_energy": by_phase}
    return found
