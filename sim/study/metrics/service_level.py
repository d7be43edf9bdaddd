"""Whether the service level is met: the only place that decides it, for every command.

Over replications a percentile is the mean of the replications' percentiles, as in summary.csv, and so is the share of
requests within the limits of each request. Both are compared with what the scenario asks for. Where tenants have limits
of their own, each class of requests is judged by shares; a limit on a percentile holds where that share keeps to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.scenario.sections.slo import Level, Slo
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.overload import overloaded
from sim.study.metrics.statistics import mean

ROUNDING = 1e-12
"""Relative error of a mean: three replications with 95 % each have 95 %."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How one fleet fares at one load."""

    met: bool | None
    """None without a limit, and where no request was measured."""
    overloaded: bool
    """The queue grows without end."""

    @property
    def good(self) -> bool:
        """Nothing speaks against it: no limit is broken, and it keeps up with the load."""
        return self.met is not False and not self.overloaded


def standing(slo: Slo, metrics: Sequence[CaseMetrics]) -> Standing:
    """The verdict over the *metrics* of all replications of a point; of several services, on all of them by their own
    service levels.
    """
    each = [standing(level, own) for level, own in _services(metrics)]
    if not each:
        return Standing(_met(slo, metrics), cases_overloaded(metrics))
    met = [one.met for one in each if one.met is not None]
    return Standing(all(met) if met else None, any(one.overloaded for one in each))


def _services(metrics: Sequence[CaseMetrics]) -> list[tuple[Slo, list[CaseMetrics]]]:
    """The service level of each of several services, with its part of the *metrics*."""
    names = metrics[0].services if metrics else {}
    parts = ([one.services[name] for one in metrics] for name in names)
    return [(Slo.model_validate(own[0].level.slo), own) for own in parts]


def cases_overloaded(metrics: Sequence[CaseMetrics]) -> bool:
    """Whether the queue grows without end, over the *metrics* of all replications of a point."""
    traffic = [one.traffic for one in metrics]
    return overloaded(
        [one.queue_growth or 0 for one in traffic],
        [one.waiting_growth or 0 for one in traffic],
        [one.requests for one in traffic],
        [one.overloaded for one in traffic],
    )


def _met(slo: Slo, metrics: Sequence[CaseMetrics]) -> bool | None:
    attained = values_of(metrics, "slo_attainment")
    if not slo.goals or not attained:
        return None
    if slo.tenants:
        return all(gap >= -ROUNDING for gap in _gaps(slo, metrics))
    if slo.per_request and mean(attained) < slo.attainment * (1 - ROUNDING):
        return False
    percentiles = ((values_of(metrics, one.column), one.limit_s) for one in slo.percentiles)
    return all(mean(values) <= limit_s * (1 + ROUNDING) for values, limit_s in percentiles if values)


def tenants_met(slo: Slo, metrics: Sequence[CaseMetrics]) -> dict[str, bool]:
    """Whether each tenant with limits of its own has what it asks for; none where no such request was measured."""
    found = {}
    for name, level in (slo.tenants or {}).items():
        gaps = _gaps_of(level, [shares[name] for one in metrics if (shares := one.level.tenant_shares)])
        if gaps:
            found[name] = all(gap >= -ROUNDING for gap in gaps)
    return found


def values_of(metrics: Sequence[CaseMetrics], name: str) -> list[float]:
    """The metric in every replication that has it."""
    return [value for one in metrics if (value := one[name]) is not None]


def slack(slo: Slo, metrics: Sequence[CaseMetrics]) -> float:
    """Share of the requests within the limits less the share asked for, of the goal that lacks most.

    A limit on a percentile is taken as the share of requests within it. -1 where no request was measured.
    """
    if services := _services(metrics):
        return min(slack(level, own) for level, own in services)
    if not any(one.traffic.requests for one in metrics):
        return -1.0
    return min(_gaps(slo, metrics), default=0.0)


def _gaps(slo: Slo, metrics: Sequence[CaseMetrics]) -> list[float]:
    """Share within each goal less the share asked for, of tenants with limits of their own and of all others."""
    asked = [one for one in metrics if one.traffic.requests]
    gaps = _gaps_of(slo, [one.level.slo_shares for one in asked])
    for name, level in (slo.tenants or {}).items():
        gaps += _gaps_of(level, [shares[name] for one in asked if (shares := one.level.tenant_shares)])
    return gaps


def _gaps_of(level: Level, shares: Sequence[Sequence[float | None]]) -> list[float]:
    """*shares* has one row per replication."""
    columns = zip(level.goals, zip(*shares, strict=True), strict=True) if shares else ()
    return [mean(known) - goal.share for goal, column in columns if (known := [s for s in column if s is not None])]
