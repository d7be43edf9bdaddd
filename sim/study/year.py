"""Annual totals of every fleet of a run under a load profile: cost and service, with their intervals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from math import fsum, inf
from typing import Any

from sim.case.run import idle_result
from sim.catalogue.catalog import Catalog
from sim.cost.cost_plan import CostPlan
from sim.cost.revenue import Revenue, SoldTokens
from sim.scenario.resolving.case import resolve
from sim.scenario.schema import Scenario
from sim.scenario.sweep import at_point, cases
from sim.scenario.year import YearPlan, around, parts_of_year, year_plan
from sim.study.metrics.averages import TOKENS
from sim.study.metrics.case_metrics import CaseMetrics, measure
from sim.study.metrics.expected_load import mean_tokens, rate_per_load
from sim.study.metrics.statistics import half_width, mean, ratio
from sim.study.points import Point
from sim.units import HOURS_PER_YEAR, SECONDS_PER_HOUR

PEAKS = ("peak_rps", "peak_concurrency")
"""Columns for the highest load; the table shows one of them."""
WASTE = {"idle_tax_usd": "idle", "preemption_waste_usd": "recompute"}
"""Metric -> phase of the ledger."""
SUMS = {
    "requests_per_year": "requests",
    "output_tokens_per_year": "output_tokens",
    "total_tokens_per_year": "total_tokens",
    "kwh_per_year": "kwh",
    "usd_per_year": "usd",
    "energy_usd_per_year": "energy_usd",
    "idle_tax_usd_per_year": "idle_tax_usd",
    "preemption_waste_usd_per_year": "preemption_waste_usd",
}
"""Column -> amount that it sums over the hours of the year."""
COUNTED = ("requests_per_year", "output_tokens_per_year", "total_tokens_per_year")
"""Columns that are expectations of the workload, with the intervals of the simulated arrivals."""
RATIOS = {
    "slo_attainment": ("good_requests", "offered", 1.0),
    "usd_per_million_output_tokens": ("usd", "output_tokens", 1e6),
    "usd_per_million_tokens": ("usd", "total_tokens", 1e6),
    "usd_per_million_good_tokens": ("usd", "good_output_tokens", 1e6),
}
"""Column -> (numerator, denominator, factor)."""
WITH_INTERVAL = (*SUMS, *RATIOS)
"""Columns with half of the 95 % interval beside them."""

Hourly = Mapping[str, float]
"""Name -> amount per hour at one load."""


@dataclass(frozen=True, slots=True)
class YearBasis:
    """Inputs of one fleet's year beside its simulated points, at one setting of the axes other than the load's."""

    fleet: str
    axes: Mapping[str, Any]
    tariff: Sequence[float] | None = None
    """Mean price of each hour of the day or of the week [USD/kWh]; None where one price always holds."""
    idle: CaseMetrics | None = None
    """Metrics of the fleet without load; None where requests arrive in all hours."""
    requests_per_h: float | None = None
    """Requests per hour of the workload at a load of 1; None where answers decide (a closed loop)."""
    tokens: tuple[float, float] | None = None
    """Mean prompt and output tokens of a request; None where `requests_per_h` is None."""
    revenue: Revenue | None = None
    """Prices of the tokens that are sold; None where the scenario states none."""


@dataclass(frozen=True, slots=True)
class FleetYear:
    """Annual totals of one fleet at one setting of the axes other than the load's; a row of year.csv."""

    fleet: str
    axes: Mapping[str, Any]
    status: str
    """`ok`, `infeasible`, or `not simulated` where the year has loads beyond the simulated ones."""
    peak_rps: float | None = None
    peak_concurrency: float | None = None
    meets_slo_at_peak: bool | None = None
    slo_attainment_at_peak: float | None = None
    slo_attainment: float | None = None
    working_hours: float | None = None
    """Number of hours in which requests arrive."""
    good_hours: float | None = None
    """Number of working hours in which the fleet keeps up and meets the SLO."""
    interpolated_hours: float | None = None
    """Number of hours at a load between two simulated ones."""
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
    half_widths: Mapping[str, float | None] = field(default_factory=dict)
    """Column of WITH_INTERVAL -> half of its 95 % interval; None where the replications give none."""
    sold: SoldTokens | None = None
    """Tokens sold in the year; None where the scenario states no revenue."""
    usd_of_runs: tuple[float, ...] = ()
    """Annual cost in each replication [USD]; empty without a cost or with a single replication."""

    @property
    def row(self) -> dict[str, Any]:
        """Row of year.csv: the fleet, the axes and the columns by name."""
        halves = {f"{name}_ci95": self.half_widths.get(name) for name in WITH_INTERVAL}
        sold = {} if self.sold is None else {REVENUE: self.sold.usd, PROFIT: self.sold.profit_usd}
        return {"fleet": self.fleet, **self.axes, **{name: getattr(self, name) for name in FIGURES}, **sold, **halves}

    @property
    def good(self) -> bool:
        """True if the fleet keeps up and meets the SLO in all working hours."""
        return self.status == "ok" and (self.good_hours or 0.0) >= (self.working_hours or 0.0) * (1 - ROUNDING)

    @property
    def good_share(self) -> float:
        """Share of the working hours in which the fleet keeps up and meets the SLO [1]."""
        return (self.good_hours or 0.0) / self.working_hours if self.working_hours else 0.0


ROUNDING = 1e-9
NOT_FIGURES = ("fleet", "axes", "half_widths", "sold", "usd_of_runs")
FIGURES = [one.name for one in fields(FleetYear) if one.name not in NOT_FIGURES]
REVENUE, PROFIT = SALES = ("revenue_usd_per_year", "profit_usd_per_year")
"""Columns of revenue and profit, where the scenario states a revenue."""
COLUMNS = [*FIGURES, *SALES, *(f"{name}_ci95" for name in WITH_INTERVAL)]


@dataclass(frozen=True, slots=True)
class RunYear:
    """Annual totals of all fleets of a run."""

    plan: YearPlan
    rows: tuple[FleetYear, ...]


def year_of(scenario: Scenario, catalog: Catalog, points: Sequence[Point], axes: Sequence[str]) -> RunYear | None:
    """Return the year of every fleet among *points* of *scenario* and its *axes*; None without a load profile.

    Idle fleets are simulated; all other figures come from the points.
    """
    plan = year_plan(scenario)
    if plan is None:
        return None
    return RunYear(plan, tuple(year_rows(points, axes, plan, _bases(scenario, catalog, plan))))


def _bases(scenario: Scenario, catalog: Catalog, plan: YearPlan) -> list[YearBasis]:
    """Return the inputs of the year for each fleet and setting of the axes other than the load's."""
    found: dict[str, YearBasis] = {}
    for case in cases(scenario):
        others = {axis: value for axis, value in case.axes.items() if axis != plan.axis}
        key = repr((case.fleet, others))
        if key in found:
            continue
        resolved, at = resolve(scenario, case, catalog), at_point(scenario, case.overrides)
        rate_rps = rate_per_load(at)
        found[key] = YearBasis(
            case.fleet,
            others,
            tariff_of(resolved.costs, plan),
            measure(idle_result(resolved)) if plan.idle_hours and not resolved.infeasible else None,
            None if rate_rps is None else SECONDS_PER_HOUR * rate_rps,
            None if rate_rps is None else mean_tokens(at),
            None if resolved.costs is None else resolved.costs.revenue,
        )
    return list(found.values())


def tariff_of(costs: CostPlan | None, plan: YearPlan) -> Sequence[float] | None:
    """Return the mean price of each hour of *plan* [USD/kWh]; None where one price always holds."""
    by_hour = costs.usd_per_kwh_by_hour if costs is not None else None
    if costs is None or by_hour is None or not plan.of_week:
        return by_hour
    return costs.usd_per_kwh_by_hour_of_week or tuple(by_hour) * 7


def year_rows(
    points: Sequence[Point], axes: Sequence[str], plan: YearPlan, bases: Sequence[YearBasis] = ()
) -> list[FleetYear]:
    """Return one row per fleet and setting of the axes other than the load's.

    Notes
    -----
    Figures at a load between two simulated ones are interpolated linearly; each hour is in steady state, without a
    queue
    from the hour before. Requests and tokens are the workload's expectations rather than the arrivals of a window.
    Where
    requests are rejected or lost, the simulated share of answers applies; at an overloaded point all figures are the
    simulated ones.

    """
    others = [axis for axis in axes if axis != plan.axis]
    groups: dict[str, list[Point]] = {}
    for point in points:
        key = repr((point.fleet, [point.axes.get(axis) for axis in others]))
        groups.setdefault(key, []).append(point)
    found = []
    for members in groups.values():
        fleet, setting = members[0].fleet, {axis: members[0].axes.get(axis) for axis in others}
        basis = next((one for one in bases if (one.fleet, one.axes) == (fleet, setting)), YearBasis(fleet, setting))
        found.append(_year(members, plan, basis))
    return found


@dataclass(frozen=True, slots=True)
class _Load:
    """Figures of a fleet at one load."""

    mean: Hourly
    """Figures over all replications, with the workload's expected traffic."""
    runs: Sequence[Hourly]
    """Figures of each replication, with the workload's expected traffic."""
    sampled: Sequence[Hourly]
    """Simulated figures of each replication."""
    good: bool
    attained: float


def _load_of_point(point: Point, load: float, basis: YearBasis) -> _Load:
    metrics = [case.metrics for case in point.cases]
    overloaded = bool(point.row["overloaded"])
    sampled = [_amounts([one]) for one in metrics]
    return _Load(
        _expected(_amounts(metrics), metrics, load, basis, overloaded),
        [_expected(own, [one], load, basis, overloaded) for own, one in zip(sampled, metrics, strict=True)],
        sampled,
        point.good,
        point.number("slo_attainment") or 0.0,
    )


def _expected(
    sampled: Hourly, metrics: Sequence[CaseMetrics], load: float, basis: YearBasis, overloaded: bool
) -> Hourly:
    """Return the *sampled* amounts with the workload's expected traffic at *load* in place of the window's arrivals."""
    if basis.requests_per_h is None or basis.tokens is None or overloaded:
        return sampled
    offered = basis.requests_per_h * load
    arrived = fsum(one["requests"] or 0 for one in metrics)
    answered = fsum(one["completed"] or 0 for one in metrics)
    share = sampled["offered"] and sampled["good_requests"] / sampled["offered"]
    found = {**sampled, "offered": offered, "good_requests": offered * share}
    if answered >= arrived:
        prompt, output = basis.tokens
        found |= {"requests": offered, "output_tokens": offered * output, "total_tokens": offered * (prompt + output)}
    elif sampled["offered"]:
        more = offered / sampled["offered"]
        found["requests"] = offered * answered / arrived
        found |= {name: sampled[name] * more for name in ("output_tokens", "total_tokens")}
    good = sampled["good_output_tokens"] / sampled["output_tokens"] if sampled["output_tokens"] else 0.0
    found["good_output_tokens"] = found["output_tokens"] * good
    return found


def _idle(metrics: CaseMetrics) -> _Load:
    hourly = _amounts([metrics])
    return _Load(hourly, (), (), good=True, attained=0.0)


def _year(members: Sequence[Point], plan: YearPlan, basis: YearBasis) -> FleetYear:
    simulated = {_load(point, plan): point for point in members if point.ok}
    loads = [load for load, hours, _ in plan.loads if hours and (load or basis.idle is None)]
    if not simulated:
        return FleetYear(basis.fleet, basis.axes, "infeasible")
    if not all(min(simulated) <= load <= max(simulated) for load in loads):
        return FleetYear(basis.fleet, basis.axes, "not simulated")
    known = {load: _load_of_point(point, load, basis) for load, point in simulated.items()}
    if basis.idle is not None:
        known[0.0] = _idle(basis.idle)
    year = _Year(known, plan, basis.tariff)
    sums = year.sums(lambda one: one.mean)
    replications = range(min(len(one.runs) for one in known.values() if one.runs))
    runs = [year.sums(_replication(each)) for each in replications]
    sampled = [year.sums(_replication(each, as_sampled=True)) for each in replications]
    peak = year.around(plan.peak)
    return FleetYear(
        basis.fleet,
        basis.axes,
        "ok",
        peak_rps=None if plan.clients else plan.peak,
        peak_concurrency=plan.peak if plan.clients else None,
        meets_slo_at_peak=all(one.good for one, _ in peak),
        slo_attainment_at_peak=fsum(one.attained * share for one, share in peak),
        working_hours=plan.working_hours,
        good_hours=year.hours_where(lambda load, ends: load > 0 and all(one.good for one, _ in ends)),
        interpolated_hours=year.hours_where(lambda _, ends: len(ends) > 1),
        half_widths=_half_widths(runs, sampled),
        sold=_sold(sums, basis.revenue),
        usd_of_runs=tuple(one["usd"] for one in runs if "usd" in one) if len(runs) > 1 else (),
        **{name: sums.get(amount) for name, amount in SUMS.items()},
        **{name: _ratio(sums, *parts) for name, parts in RATIOS.items()},
    )


def _sold(sums: Hourly, prices: Revenue | None) -> SoldTokens | None:
    """Return the tokens sold in the year; None without prices or without a cost."""
    if prices is None or "usd" not in sums:
        return None
    return SoldTokens(prices, sums["total_tokens"] - sums["output_tokens"], sums["output_tokens"], sums["usd"])


def _replication(number: int, as_sampled: bool = False) -> Callable[[_Load], Hourly]:
    """Return a function that selects replication *number* of a load; the idle fleet is equal in all replications."""
    return lambda one: (one.sampled if as_sampled else one.runs)[number] if one.runs else one.mean


def _ratio(sums: Hourly, top: str, bottom: str, factor: float) -> float | None:
    amount, below = sums.get(top), sums.get(bottom)
    return factor * amount / below if amount is not None and below else None


def _half_widths(runs: Sequence[Hourly], sampled: Sequence[Hourly]) -> dict[str, float | None]:
    """Return halves of 95 % intervals over the replications, which simulate all loads with the same seed."""
    found: dict[str, float | None] = {}
    for name, amount in SUMS.items():
        values = [one[amount] for one in (sampled if name in COUNTED else runs) if amount in one]
        found[name] = half_width(values) if len(values) == len(runs) else None
    for name, (top, bottom, factor) in RATIOS.items():
        pairs = [(one[top], one[bottom] / factor) for one in runs if top in one]
        found[name] = ratio([a for a, _ in pairs], [b for _, b in pairs])[1] if pairs else None
    return found


def _load(point: Point, plan: YearPlan) -> float:
    """Return the load of *point*; that of the profile where load is not swept."""
    return float(point.axes[plan.axis]) if plan.axis is not None else plan.peak


class _Year:
    """Sums over the hours of the year, interpolated between the *known* loads."""

    def __init__(self, known: Mapping[float, _Load], plan: YearPlan, tariff: Sequence[float] | None) -> None:
        self._known, self._loads, self._hours = known, sorted(known), plan.hours
        self._mean, self._tariff, self._every = plan.mean, tariff, plan.loads
        self._parts = parts_of_year(plan.hours, self._loads, plan.mean)

    def around(self, load: float) -> list[tuple[_Load, float]]:
        """Return the results at *load*, or at the two simulated loads around it, with their weights."""
        return [(self._known[at], weight) for at, weight in around(self._loads, load)]

    def hours_where(self, holds: Callable[[float, Sequence[tuple[_Load, float]]], bool]) -> float:
        """Return the number of hours of the year for which *holds* is true of the load and the results around it."""
        return fsum(hours for load, hours, _ in self._every if hours and holds(load, self.around(load)))

    def sums(self, hourly: Callable[[_Load], Hourly]) -> dict[str, float]:
        """Return the sums over the hours of the year of all amounts."""
        parts: dict[str, list[float]] = {}
        for (at, calendar), share in self._parts.items():
            price = None if self._tariff is None else calendar.mean(self._tariff)
            for name, amount in _at_price(hourly(self._known[at]), price).items():
                parts.setdefault(name, []).append(amount * share * HOURS_PER_YEAR)
        sums = {name: fsum(amounts) for name, amounts in parts.items()}
        if "peak_usd" in sums:  # every month contains the highest load, and pays for it in all of its hours
            loads = (self.around(one.relative * self._mean) for one in self._hours)
            peaks = [fsum(hourly(one).get("peak_usd", 0.0) * share for one, share in ends) for ends in loads]
            sums["usd"] += max(peaks) * HOURS_PER_YEAR - sums["peak_usd"]
        return sums


def _at_price(hourly: Hourly, usd_per_kwh: float | None) -> Hourly:
    """Return *hourly* with its energy at *usd_per_kwh* instead of the window's price; None: unchanged."""
    paid = hourly.get("energy_usd", 0.0)
    if usd_per_kwh is None or not paid:
        return hourly
    more = hourly["kwh"] * usd_per_kwh / paid - 1
    changed = {"usd": "energy_usd", "energy_usd": "energy_usd", **{name: f"{name}_energy" for name in WASTE}}
    return {**hourly, **{name: hourly[name] + more * hourly[energy] for name, energy in changed.items()}}


def _amounts(runs: Sequence[CaseMetrics]) -> dict[str, float]:
    """Return requests, tokens, energy and cost per hour, as sums over replications divided by their hours."""
    # a window in which nothing could be served may have no length
    window_h = fsum(one["window_h"] for one in runs) or inf

    def per_h(metric: str) -> float:
        return fsum(one[metric] or 0.0 for one in runs) / window_h

    attained = [one["slo_attainment"] for one in runs if one["slo_attainment"] is not None]
    offered = SECONDS_PER_HOUR * mean([one["offered_rps"] or 0.0 for one in runs])
    found = {
        "offered": offered,
        "good_requests": offered * mean(attained) if attained else 0.0,
        "requests": SECONDS_PER_HOUR * mean([one["requests_per_s"] or 0.0 for one in runs]),
    }
    found |= {name: per_h(name) for name in TOKENS}
    if all(one["energy_kwh"] is not None for one in runs):
        found["kwh"] = per_h("energy_kwh")
    if all(one["cost_usd"] is not None for one in runs):
        found |= {"usd": per_h("cost_usd")}
        found |= {"energy_usd": fsum(fsum(one["energy_usd"].values()) for one in runs) / window_h}
        if any(one["peak_usd"] is not None for one in runs):
            found["peak_usd"] = per_h("peak_usd")
        for name, phase in WASTE.items():
            by_phase = fsum(one["energy_usd"].get(phase, 0.0) for one in runs) / window_h
            found |= {name: per_h(name), f"{name}_energy": by_phase}
    return found
