"""Points of a sweep: finished cases grouped by fleet and point, their rows of summary.csv, and lines over an axis.

A row of summary.csv is a fleet at a sweep point, over its replications, with 95 % half-widths. Charts draw the lines,
and verdicts compare fleets along them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import inf
from typing import Any, Protocol

import pyarrow as pa

from sim.scenario.slo import Slo
from sim.study.metrics.averages import TOKENS
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.columns import COLUMNS, ENDS, WHERE_KNOWN, column, named_percentiles
from sim.study.metrics.requests import LATENCY_COLUMNS
from sim.study.metrics.service_level import (
    MOST_UNANSWERED,
    ServiceLevelAttainment,
    attainment_of,
    cases_growing,
    unanswered_share,
)
from sim.study.metrics.statistics import ratio


class FinishedCase(Protocol):
    """Case of one fleet at one sweep point, one replication, read back from where it was stored."""

    @property
    def fleet(self) -> str:
        """Name of the fleet."""

    @property
    def axes(self) -> Mapping[str, Any]:
        """Sweep axis -> value."""

    @property
    def replication(self) -> int:
        """Number of the replication, from 0."""

    @property
    def status(self) -> str:
        """`ok` or `infeasible`."""

    @property
    def reason(self) -> str:
        """Reason why the fleet is infeasible; empty if it is not."""

    @property
    def metrics(self) -> CaseMetrics:
        """Metrics of a case that could run; raises an error for other cases."""

    def requests(self) -> pa.Table:
        """Return the table of requests."""

    def request_columns(self) -> list[str]:
        """Return the names of the columns of the table of requests, which is not read."""

    def usage(self) -> pa.Table:
        """Return the table of replica intervals."""

    def costs(self) -> pa.Table:
        """Return the table of ledger rows."""


@dataclass(frozen=True, slots=True)
class Point:
    """Fleet at one sweep point: its replications and their row of summary.csv."""

    fleet: str
    axes: Mapping[str, Any]
    cases: tuple[FinishedCase, ...]
    row: Mapping[str, Any]
    services: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Service -> its row of services.csv, where the fleet serves several."""

    @property
    def ok(self) -> bool:
        """True if the fleet could run at this point."""
        return bool(self.row["status"] == "ok")

    @property
    def good(self) -> bool:
        """True if the fleet keeps up with the load and meets the SLO, where there is one."""
        met = self.unanswered <= MOST_UNANSWERED if self.row["meets_slo"] is None else self.row["meets_slo"]
        return self.ok and not self.row["overloaded"] and bool(met)

    @property
    def unanswered(self) -> float:
        """Share of the requests that were rejected, timed out or lost [1]; the highest of all services."""
        rows = self.services.values() or [self.row]
        return max(unanswered_share([row]) for row in rows) if self.ok else 0.0

    @property
    def inconclusive(self) -> bool:
        """True if the verdict is inconclusive: a limit lies within an interval, or the queue probably grows."""
        return self.ok and self.row["slo_verdict"] == "inconclusive"

    @property
    def growing(self) -> bool:
        """True if the verdict is inconclusive and the queue probably grows."""
        return self.inconclusive and self.good and cases_growing([case.metrics for case in self.cases])

    @property
    def certainly_good(self) -> bool:
        """True if the fleet certainly keeps up with the load and meets the SLO."""
        return self.good and not self.inconclusive

    def number(self, column: str) -> float | None:
        """Return a column of the row as a number; None where it is empty."""
        value = self.row.get(column)
        return None if value is None else float(value)

    def mean_shares(self, metric: str) -> dict[str, float]:
        """Return the mean over replications of a metric that is a mapping, such as `step_share`."""
        tables = [table for case in self.cases if (table := case.metrics[metric])]
        names = list(dict.fromkeys(name for table in tables for name in table))
        return {name: sum(table.get(name, 0.0) for table in tables) / len(tables) for name in names}


def service_points(points: Sequence[Point]) -> list[Point]:
    """Return each service of each point as a point of its own; none where fleets have a single service."""
    return [
        Point(f"{point.fleet}: {name}", point.axes, (), row) for point in points for name, row in point.services.items()
    ]


def fleets_of(points: Sequence[Point]) -> list[str]:
    """Return the names of the fleets in order of first appearance."""
    return list(dict.fromkeys(point.fleet for point in points))


def has_slo(points: Sequence[Point], slo: Slo) -> bool:
    """Return whether fleets are judged by a service level: *slo* has goals, or those of a service do."""
    return bool(slo.goals) or any(point.services and point.row["meets_slo"] is not None for point in points)


def has_money(points: Sequence[Point]) -> bool:
    """Return whether at least one fleet has a cost."""
    return any(point.number("cost_usd_per_h") is not None for point in points)


def group(cases: Sequence[FinishedCase], axes: Sequence[str]) -> dict[tuple[str, str], list[FinishedCase]]:
    """Return the cases by (fleet, sweep point), both in order of first appearance, with replications in order."""
    groups: dict[tuple[str, str], list[FinishedCase]] = {}
    for case in cases:
        key = (case.fleet, repr([case.axes.get(axis) for axis in axes]))
        groups.setdefault(key, []).append(case)
    return {key: sorted(group, key=lambda case: case.replication) for key, group in groups.items()}


LATENCIES = [one.name for one in LATENCY_COLUMNS]
UNBOUNDED = [*(name for name in LATENCIES if not name.startswith("tpot")), "queue_s_p95"]
"""Columns whose values grow with the horizon where the queue grows."""
UNBOUNDED_BY_SLO = ["goodput_rps", "slo_attainment", "usd_per_million_good_tokens"]
"""Columns whose values change with the horizon, too, where waiting violates the service level."""
assert {*UNBOUNDED, *UNBOUNDED_BY_SLO} <= {one.name for one in COLUMNS}


def columns_where_known(points: Sequence[Point], axes: Sequence[str]) -> list[str]:
    """Return the optional columns that have a value and are no axis.

    They are the percentiles that a service level names, and the columns of WHERE_KNOWN.
    """
    named = named_percentiles({name for point in points for name in point.row})
    wanted = [*named, *(one.name for one in WHERE_KNOWN)]
    return [name for name in wanted if name not in axes and any(point.row.get(name) is not None for point in points)]


def summarize(
    cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any], before: Sequence[Point] = ()
) -> list[Point]:
    """Return one Point per fleet and sweep point, in order of first appearance in *cases*; *slo* is the scenario's.

    *before* may be the points of the same cases under other terms: columns whose figures are equal are taken from them.
    """
    points = []
    for members, same in zip_longest(group(cases, axes).values(), before):
        first = members[0]
        finished = tuple(case for case in members if case.status == "ok")
        places = {axis: first.axes.get(axis) for axis in axes}
        status = "ok" if finished else first.status
        row = {"fleet": first.fleet, **_figures([case.metrics for case in finished], slo, same)}
        row |= {"status": status, "reason": "" if finished else first.reason, "replications": len(finished)}
        services = _services([case.metrics for case in finished])
        common = {"fleet": first.fleet, "status": status, "replications": len(finished)} | places
        rows = {name: own | common | {"service": name} for name, own in services.items()}
        points.append(Point(first.fleet, places, finished, row | places, rows))
    return points


def _services(cases: Sequence[CaseMetrics]) -> dict[str, dict[str, Any]]:
    """Return service -> its columns; empty where a fleet has a single service."""
    names = cases[0].services if cases else ()
    return {name: _figures([one.services[name] for one in cases], {}) for name in names}


def _figures(cases: Sequence[CaseMetrics], slo: Mapping[str, Any], same: Point | None = None) -> dict[str, Any]:
    """Return every column by name, with its half-width; None where there is no value.

    Columns are taken from *same* where its cases have equal figures.
    """
    row: dict[str, Any] = dict.fromkeys(one.name for one in COLUMNS)
    if not cases:
        return row
    moved = None if same is None else _moved(cases, [case.metrics for case in same.cases])
    for one in (*COLUMNS, *map(column, named_percentiles(cases[0]["latencies"]))):
        if same is not None and moved is not None and one.name in same.row:
            read = one.average.reads(one.name)
            if read is not None and moved.isdisjoint(read):
                names = (one.name, *(f"{one.name}_ci95{end}" for end in ("", *(f"_{end}" for end in ENDS))))
                row |= {name: same.row[name] for name in names if name in same.row}
                continue
        figure = one.average.of(one.name, cases)
        row |= {one.name: figure.value, f"{one.name}_ci95": figure.half_width}
        row |= {f"{one.name}_ci95_{end}": value for end, value in zip(ENDS, figure.ends or (), strict=False)}
    return row | _judged(cases, slo)


def _moved(cases: Sequence[CaseMetrics], before: Sequence[CaseMetrics]) -> set[str]:
    """Return the figures, percentiles and intervals of batch means that differ between *cases* and *before*."""
    moved: set[str] = set()
    for now, then in zip(cases, before, strict=True):
        for part in (None, "latencies", "batch_ci95"):
            new, old = ((one.figures if part is None else one.figures.get(part) or {}) for one in (now, then))
            if new is not old:
                moved |= {name for name in {**new, **old} if new.get(name) != old.get(name)}
    return moved


def point_attainment(cases: Sequence[CaseMetrics], slo: Mapping[str, Any]) -> ServiceLevelAttainment:
    """Return the service level attained by a point with the replications *cases*; *slo* is the scenario's."""
    # the service level of the case applies, since a sweep may vary it
    return attainment_of(Slo.model_validate(cases[0]["slo"] or slo), cases)


def _judged(cases: Sequence[CaseMetrics], slo: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a point that depend on the service level."""
    level, found = Slo.model_validate(cases[0]["slo"] or slo), point_attainment(cases, slo)
    named = named_percentiles(cases[0]["latencies"])
    endless = [name for name in (*LATENCIES, *named) if any(one[name] == inf for one in cases)]
    endless += [name for name in named if not name.startswith("tpot")]
    over = found.overloaded
    waiting_counts = over and any(name in level.per_request for name in ("ttft_s", "e2e_s"))
    dependent = dict.fromkeys([*UNBOUNDED, *endless] * over + UNBOUNDED_BY_SLO * waiting_counts)
    together = {"overloaded": over} if cases[0].services else {}
    return together | {
        "meets_slo": found.met,
        "slo_verdict": found.verdict,
        "nonstationary_columns": " ".join(dependent),
    }


def replication_costs(point: Point, tokens: str = TOKENS[0]) -> list[float]:
    """Return the cost per million *tokens* of each replication [USD]; empty without a cost."""
    pairs = [(case.metrics["cost_usd"], case.metrics[tokens]) for case in point.cases]
    return [ratio([usd], [count / 1e6])[0] for usd, count in pairs if usd is not None and count is not None]


Setting = tuple[tuple[str, Any], ...]
"""Values of the axes other than the main axis: (axis, value)."""


@dataclass(frozen=True, slots=True)
class FleetLine:
    """Points of one fleet along the main axis, at one setting of the other axes."""

    fleet: str
    setting: Setting
    """Values of the other axes; empty where there is no other axis."""
    points: tuple[Point, ...]
    """Points that could run, in the order of the axis."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Lines over the first numeric axis; without any axis, lines of one point each."""

    axis: str
    """Name of the main axis; empty where nothing is swept."""
    numeric: bool
    values: tuple[Any, ...]
    """Simulated values of the axis: in order where numeric, else in order of appearance."""
    lines: tuple[FleetLine, ...]
    chosen: Any = None
    """Value of the axis for which examples are shown; None: `reference` chooses one."""

    def at(self, load: float) -> "Sweep":
        """Return this sweep with examples at the lowest simulated value that is not below *load*."""
        return replace(self, chosen=next((value for value in self.values if value >= load), self.values[-1]))

    def value(self, point: Point) -> Any:
        """Return the value of the axis at *point*."""
        return point.axes.get(self.axis)

    def x(self, point: Point) -> float:
        """Return the value of the axis at *point* as a number; other values are represented by their rank."""
        value = self.value(point)
        return float(value) if self.numeric else float(self.values.index(value))

    @property
    def single(self) -> bool:
        """True if the axis has fewer than two values, so that no line can be drawn."""
        return len(self.values) < 2

    @property
    def settings(self) -> list[Setting]:
        """Settings of the other axes, in order."""
        return list(dict.fromkeys(line.setting for line in self.lines))

    @property
    def fleets(self) -> list[str]:
        """Fleets that could run, in order."""
        return list(dict.fromkeys(line.fleet for line in self.lines))

    @property
    def reference(self) -> Any:
        """Value of the axis for which examples are shown: the last at which the most fleets meet the SLO."""
        if self.chosen is not None:
            return self.chosen
        fit = dict.fromkeys(self.values, 0)
        for line in self.lines:
            for point in line.points:
                fit[self.value(point)] += point.good
        most = max(fit.values(), default=0)
        chosen = (value for value in reversed(self.values) if fit[value] == most and most)
        return next(chosen, next(iter(self.values), None))


def sweep_of(points: Sequence[Point], axes: Sequence[str]) -> Sweep:
    """Arrange *points* along the first axis of *axes* that has two numbers or more, else two values or more."""
    axis, numeric = _main_axis(points, axes)
    placed = [point for point in points if not numeric or point.axes.get(axis) is not None]
    values = list(dict.fromkeys(point.axes.get(axis) for point in placed))
    if numeric:
        values.sort()
    others = _other_axes(placed, axis, axes)
    members: dict[tuple[str, Setting], list[Point]] = {}
    for point in placed:
        if point.ok:
            setting = tuple((name, point.axes[name]) for name in others if point.axes.get(name) is not None)
            members.setdefault((point.fleet, setting), []).append(point)
    rank = {value: index for index, value in enumerate(values)}
    lines = (
        FleetLine(fleet, setting, tuple(sorted(group, key=lambda point: rank[point.axes.get(axis)])))
        for (fleet, setting), group in members.items()
    )
    order = {fleet: index for index, fleet in enumerate(fleets_of(points))}
    return Sweep(axis, numeric, tuple(values), tuple(sorted(lines, key=lambda line: order[line.fleet])))


def _main_axis(points: Sequence[Point], axes: Sequence[str]) -> tuple[str, bool]:
    varied = {}
    for axis in axes:
        values = [value for point in points if (value := point.axes.get(axis)) is not None]
        if len({repr(value) for value in values}) > 1:
            varied[axis] = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    for axis, numeric in varied.items():
        if numeric:
            return axis, True
    return (next(iter(varied)), False) if varied else ("", False)


def _other_axes(points: Sequence[Point], axis: str, axes: Sequence[str]) -> list[str]:
    """Return the axes that distinguish points of one fleet and axis value; none where all axes vary together."""
    places = [(point.fleet, repr(point.axes.get(axis))) for point in points]
    if len(set(places)) == len(places):
        return []
    return [name for name in axes if name != axis and len({repr(point.axes.get(name)) for point in points}) > 1]
