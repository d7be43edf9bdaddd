"""The rows of summary.csv: one per fleet and sweep point, over its replications, with 95 % half-widths."""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from sim.scenario.sections.slo import Slo
from sim.study.fleets.run.point import FinishedCase, Point, group
from sim.study.metrics.averages import TOKENS
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.columns import COLUMNS, ENDS, LATENCY_COLUMNS, WHERE_KNOWN, column, named_percentiles
from sim.study.metrics.service_level import Standing, standing
from sim.study.metrics.statistics import ratio

LATENCIES = [one.name for one in LATENCY_COLUMNS]
UNBOUNDED = [*(name for name in LATENCIES if not name.startswith("tpot")), "queue_s_p95"]
"""Columns that grow with the horizon where the queue does."""
UNBOUNDED_BY_SLO = ["goodput_rps", "slo_attainment", "usd_per_million_good_tokens"]
"""Columns that grow with the horizon, too, where waiting breaks the service level."""
assert {*UNBOUNDED, *UNBOUNDED_BY_SLO} <= {one.name for one in COLUMNS}


def columns_where_known(points: Sequence[Point], axes: Sequence[str]) -> list[str]:
    """The percentiles that a service level names and the columns WHERE_KNOWN that have a value, and are no axis."""
    named = named_percentiles({name for point in points for name in point.row})
    wanted = [*named, *(one.name for one in WHERE_KNOWN)]
    return [name for name in wanted if name not in axes and any(point.row.get(name) is not None for point in points)]


def summarize(cases: Sequence[FinishedCase], axes: Sequence[str], slo: Mapping[str, Any]) -> list[Point]:
    """Return one Point per fleet and sweep point, in order of first appearance in *cases*; *slo* is the scenario's."""
    points = []
    for members in group(cases, axes).values():
        first = members[0]
        finished = tuple(case for case in members if case.status == "ok")
        places = {axis: first.axes.get(axis) for axis in axes}
        status = "ok" if finished else first.status
        row = {"fleet": first.fleet, **_figures([case.metrics for case in finished], slo)}
        row |= {"status": status, "reason": "" if finished else first.reason, "replications": len(finished)}
        services = _services([case.metrics for case in finished])
        told = {"fleet": first.fleet, "status": status, "replications": len(finished)} | places
        rows = {name: own | told | {"service": name} for name, own in services.items()}
        points.append(Point(first.fleet, places, finished, row | places, rows))
    return points


def _services(cases: Sequence[CaseMetrics]) -> dict[str, dict[str, Any]]:
    """Service -> its columns; empty where a fleet has a single one."""
    names = cases[0].services if cases else ()
    return {name: _figures([one.services[name] for one in cases], {}) for name in names}


def _figures(cases: Sequence[CaseMetrics], slo: Mapping[str, Any]) -> dict[str, Any]:
    """Every column by name, with its half-width; None where there is none."""
    row: dict[str, Any] = dict.fromkeys(one.name for one in COLUMNS)
    if not cases:
        return row
    for one in (*COLUMNS, *map(column, named_percentiles(cases[0].latencies.by_column))):
        figure = one.average.of(one.name, cases)
        row |= {one.name: figure.value, f"{one.name}_ci95": figure.half_width}
        row |= {f"{one.name}_ci95_{end}": value for end, value in zip(ENDS, figure.ends or (), strict=False)}
    return row | _judged(cases, slo)


def standing_of(cases: Sequence[CaseMetrics], slo: Mapping[str, Any]) -> Standing:
    """Return the standing of a point with the replications *cases*; *slo* is the scenario's."""
    # a sweep may be one of service levels: the case itself has its own
    return standing(Slo.model_validate(cases[0].level.slo or slo), cases)


def _judged(cases: Sequence[CaseMetrics], slo: Mapping[str, Any]) -> dict[str, Any]:
    """What the service level makes of a point."""
    level, found = Slo.model_validate(cases[0].level.slo or slo), standing_of(cases, slo)
    named = named_percentiles(cases[0].latencies.by_column)
    endless = [name for name in (*LATENCIES, *named) if any(one[name] == inf for one in cases)]
    endless += [name for name in named if not name.startswith("tpot")]
    over = found.overloaded
    waiting_counts = over and any(name in level.per_request for name in ("ttft_s", "e2e_s"))
    dependent = dict.fromkeys([*UNBOUNDED, *endless] * over + UNBOUNDED_BY_SLO * waiting_counts)
    together = {"overloaded": over} if cases[0].services else {}
    return together | {"meets_slo": found.met, "slo_verdict": found.verdict, "horizon_dependent": " ".join(dependent)}


def replication_costs(point: Point, tokens: str = TOKENS[0]) -> list[float]:
    """USD per million *tokens* of each replication, empty without a cost."""
    pairs = [(case.metrics["cost_usd"], case.metrics[tokens]) for case in point.cases]
    return [ratio([usd], [count / 1e6])[0] for usd, count in pairs if usd is not None and count is not None]
