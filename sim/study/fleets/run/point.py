"""Finished cases as a report reads them, and their grouping into points of a sweep."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.service_level import cases_growing


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
        """Counts from 0."""

    @property
    def status(self) -> str:
        """`ok` or `infeasible`."""

    @property
    def reason(self) -> str:
        """Why it is infeasible."""

    @property
    def metrics(self) -> CaseMetrics:
        """Metrics of a case that could run."""

    def requests(self) -> pa.Table:
        """One row per request."""

    def usage(self) -> pa.Table:
        """One row per replica interval."""

    def costs(self) -> pa.Table:
        """One row per ledger row."""


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
        """Whether the fleet could run here."""
        return bool(self.row["status"] == "ok")

    @property
    def good(self) -> bool:
        """Keeps up with the load and meets the SLO, where there is one."""
        return self.ok and not self.row["overloaded"] and self.row["meets_slo"] is not False

    @property
    def doubtful(self) -> bool:
        """Whether the verdict on the SLO is open: a limit lies within an interval, or the queue seems to grow."""
        return self.ok and self.row["slo_verdict"] == "inconclusive"

    @property
    def growing(self) -> bool:
        """Whether the verdict is inconclusive and the queue seems to grow."""
        return self.doubtful and self.good and cases_growing([case.metrics for case in self.cases])

    @property
    def sure(self) -> bool:
        """Whether it is good, and the verdict on the SLO is certain."""
        return self.good and not self.doubtful

    def number(self, column: str) -> float | None:
        """A column of the row as a number, None where it is empty."""
        value = self.row.get(column)
        return None if value is None else float(value)

    def mean_shares(self, metric: str) -> dict[str, float]:
        """Mean over replications of a metric that is a mapping, such as `step_share`."""
        tables = [table for case in self.cases if (table := case.metrics[metric])]
        names = list(dict.fromkeys(name for table in tables for name in table))
        return {name: sum(table.get(name, 0.0) for table in tables) / len(tables) for name in names}


def service_points(points: Sequence[Point]) -> list[Point]:
    """Each service of each point as a point of its own; none where fleets have a single service."""
    return [
        Point(f"{point.fleet}: {name}", point.axes, (), row) for point in points for name, row in point.services.items()
    ]


def fleets_of(points: Sequence[Point]) -> list[str]:
    """Names of the fleets in order of first appearance."""
    return list(dict.fromkeys(point.fleet for point in points))


def has_money(points: Sequence[Point]) -> bool:
    """Whether at least one fleet has a cost."""
    return any(point.number("cost_usd_per_h") is not None for point in points)


def group(cases: Sequence[FinishedCase], axes: Sequence[str]) -> dict[tuple[str, str], list[FinishedCase]]:
    """Cases by (fleet, sweep point), both in order of first appearance, replications in order."""
    groups: dict[tuple[str, str], list[FinishedCase]] = {}
    for case in cases:
        key = (case.fleet, repr([case.axes.get(axis) for axis in axes]))
        groups.setdefault(key, []).append(case)
    return {key: sorted(group, key=lambda case: case.replication) for key, group in groups.items()}
