"""Verdict on the service level, for every command.

Over replications a percentile is the mean of the replications' percentiles, as in summary.csv, and so is the share of
requests within the limits of each request. Both are compared with the scenario's targets. Where tenants have limits of
their own, each class of requests is judged by shares: a limit on a percentile holds where the share of requests within
the limit reaches the percentile.

The verdict is inconclusive where a target lies within the 95 % interval of the attained value, unless another goal is
certainly missed or the queue grows without end. Without an interval the value itself decides. It is also inconclusive
where all goals are met but the queue probably grows: the window is then too short.

Without a goal the verdict is on the load alone: a fleet keeps up unless its queue grows without end or more than
MOST_UNANSWERED of its requests end without an answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sim.scenario.slo import ServiceLevel, Slo, SloGoal
from sim.study.metrics.averages import AveragedFigure, Cases, Mean, MeanShare, ReplicationFigures
from sim.study.metrics.overload import GROWTH_SHARE, likely_growing, overloaded
from sim.study.metrics.statistics import half_width, mean, share_interval

ROUNDING = 1e-12
"""Relative tolerance for the rounding error of a mean: three replications with 95 % each have 95 %."""
ATTAINED_SHARE = MeanShare(draws="requests")
UNANSWERED = ("rejected", "timed_out", "lost")
"""Columns that count requests which ended without an answer."""
MOST_UNANSWERED = GROWTH_SHARE
"""Largest share of requests without an answer at which a fleet keeps up: as for requests that a queue leaves."""


Verdict = Literal["met", "missed", "inconclusive"]


@dataclass(frozen=True, slots=True)
class GoalAttainment:
    """Attained value of one goal of the service level."""

    goal: SloGoal
    attained: AveragedFigure
    """Share of the requests within the goal [1], or the percentile that the goal limits [s]."""
    by_share: bool
    """True if `attained` is a share of requests, not a percentile."""
    of: str = ""
    """Service or tenant whose requests were measured; empty: all requests."""

    @property
    def target(self) -> float:
        """Target of the goal: a share [1] or a latency [s]."""
        percentile = self.goal.percentile
        return self.goal.share if self.by_share or percentile is None else percentile.limit_s

    @property
    def met(self) -> bool:
        """True if the attained value meets the target."""
        value, limit = self.attained.value, self.target
        return bool(value >= limit * (1 - ROUNDING) if self.by_share else value <= limit * (1 + ROUNDING))

    @property
    def certain(self) -> bool:
        """True if the target lies outside the interval, or there is no interval."""
        ends = self.attained.interval
        return ends is None or ends[0] == ends[1] or not ends[0] < self.target < ends[1]


@dataclass(frozen=True, slots=True)
class ServiceLevelAttainment:
    """Service level that one fleet attains at one load."""

    met: bool | None
    """True if every goal is met; None without a goal, and where no request was measured."""
    overloaded: bool
    """True if the queue grows without end."""
    goal_results: tuple[GoalAttainment, ...] = ()
    """Attained value of each goal."""
    growing: bool = False
    """True if the queue probably grows, though the window is too short to be certain."""
    unanswered: float = 0.0
    """Share of the requests that ended without an answer [1], where no goal counts them; else 0."""

    @property
    def good(self) -> bool:
        """True if no goal is missed and the fleet keeps up with the load."""
        return self.met is not False and not self.overloaded and self.unanswered <= MOST_UNANSWERED

    @property
    def inconclusive_goals(self) -> tuple[GoalAttainment, ...]:
        """Goals that leave the verdict inconclusive; none where it is certain."""
        missed = any(one.certain and not one.met for one in self.goal_results)
        if self.overloaded or missed or self.met is None:
            return ()
        return tuple(one for one in self.goal_results if not one.certain)

    @property
    def inconclusive_growth(self) -> bool:
        """True if no goal is missed but the queue probably grows, so that the verdict is inconclusive."""
        return self.growing and self.good

    @property
    def verdict(self) -> Verdict | None:
        """Verdict on the service level; without a goal None, or inconclusive where the queue probably grows."""
        if self.inconclusive_goals or self.inconclusive_growth:
            return "inconclusive"
        return None if self.met is None else "met" if self.good else "missed"


def attainment_of(slo: Slo, metrics: Cases) -> ServiceLevelAttainment:
    """Return the service level attained over the *metrics* of all replications of a point.

    Several services are judged together, each by its own service level.
    """
    each = {name: attainment_of(level, own) for name, level, own in _services(metrics)}
    if not each:
        results = tuple(_goal_attainments(slo, metrics)) if slo.goals else ()
        met = all(one.met for one in results) if results else None
        lost = 0.0 if results else unanswered_share(metrics)
        return ServiceLevelAttainment(met, cases_overloaded(metrics), results, cases_growing(metrics), lost)
    met_ones = [one.met for one in each.values() if one.met is not None]
    together = [replace(result, of=name) for name, one in each.items() for result in one.goal_results]
    over = any(one.overloaded for one in each.values())
    met, lost = (all(met_ones), 0.0) if met_ones else (None, max(one.unanswered for one in each.values()))
    return ServiceLevelAttainment(met, over, tuple(together), cases_growing(metrics), lost)


def _services(metrics: Cases) -> list[tuple[str, Slo, list[ReplicationFigures]]]:
    """Return the name, service level and figures of each service; empty where there is a single one."""
    names = metrics[0].services if metrics else {}
    parts = ((name, [one.services[name] for one in metrics]) for name in names)
    return [(name, Slo.model_validate(own[0]["slo"] or {}), own) for name, own in parts]


def unanswered_share(counts: Sequence[Mapping[str, Any] | ReplicationFigures]) -> float:
    """Return the share of the requests of all replications that ended without an answer [1]."""
    ended = sum(one[name] or 0 for one in counts for name in UNANSWERED)
    return float(ended / sum(one["requests"] or 0 for one in counts)) if ended else 0.0


def unanswered_by_ending(counts: Sequence[Mapping[str, Any] | ReplicationFigures]) -> dict[str, float]:
    """Return the shares of the requests of all replications that were rejected, timed out and lost [1], by column."""
    requests = sum(one["requests"] or 0 for one in counts) or 1
    return {name: sum(one[name] or 0 for one in counts) / requests for name in UNANSWERED}


def cases_overloaded(metrics: Cases) -> bool:
    """Return whether the queue grows without end, over the *metrics* of all replications of a point."""
    return overloaded(
        [one["queue_growth"] or 0 for one in metrics],
        [one["waiting_growth"] or 0 for one in metrics],
        [one["requests"] for one in metrics],
        [one["overloaded"] for one in metrics],
    )


def cases_growing(metrics: Cases) -> bool:
    """Return whether the queue probably grows, over the *metrics* of all replications of a point.

    With several services: whether it grows for at least one of them.
    """
    if services := _services(metrics):
        return any(cases_growing(own) for _, _, own in services)
    return likely_growing(
        [one["late_growth"] or 0.0 for one in metrics],
        [one["late_growth_error"] or 0.0 for one in metrics],
        [one["requests"] or 0 for one in metrics],
    )


def _goal_attainments(slo: Slo, metrics: Cases) -> Iterator[GoalAttainment]:
    """Yield the attained value of each goal; nothing where no request was measured."""
    asked = [one for one in metrics if one["slo_attainment"] is not None]
    if slo.tenants:
        yield from _share_attainments(slo, asked)
        for name in slo.tenants:
            yield from _share_attainments(slo.tenants[name], asked, name)
        return
    for goal in slo.goals if asked else ():
        if goal.percentile is None:
            yield GoalAttainment(goal, ATTAINED_SHARE.of("slo_attainment", asked), by_share=True)
        elif values_of(asked, goal.percentile.column):
            yield GoalAttainment(goal, Mean().of(goal.percentile.column, asked), by_share=False)


def _share_attainments(level: ServiceLevel, metrics: Cases, tenant: str = "") -> Iterator[GoalAttainment]:
    """Yield the attained share of each goal of *level*, of the requests of *tenant* or of all without own limits."""
    for goal, values in _shares(level, metrics, tenant):
        half = half_width(values)
        ends = share_interval(mean(values), half)
        yield GoalAttainment(goal, AveragedFigure(mean(values), half, ends), by_share=True, of=tenant)


def tenants_met(slo: Slo, metrics: Cases) -> dict[str, bool]:
    """Return whether each tenant with limits of its own meets them; tenants without measured requests are absent."""
    found = {}
    for name, level in (slo.tenants or {}).items():
        results = list(_share_attainments(level, metrics, name))
        if results:
            found[name] = all(one.met for one in results)
    return found


def values_of(metrics: Cases, name: str) -> list[float]:
    """Return the values of the metric *name*, of every replication that has it."""
    return [value for one in metrics if (value := one[name]) is not None]


def slack(slo: Slo, metrics: Cases) -> float:
    """Return the smallest margin of all goals: the share of requests within the goal minus the target share [1].

    A limit on a percentile is read as a share: p95 asks for 0.95 of the requests. -1 where no request was measured.
    """
    if services := _services(metrics):
        return min(slack(level, own) for _, level, own in services)
    if not any(one["requests"] for one in metrics):
        return -1.0
    return min(_gaps(slo, metrics), default=0.0)


def _gaps(slo: Slo, metrics: Cases) -> list[float]:
    """Return the share within each goal minus its target, for tenants with own limits and for all other requests."""
    asked = [one for one in metrics if one["requests"]]
    levels: dict[str, ServiceLevel] = {"": slo, **(slo.tenants or {})}
    every = (pair for name, level in levels.items() for pair in _shares(level, asked, name))
    return [mean(values) - goal.share for goal, values in every]


def _shares(level: ServiceLevel, metrics: Cases, tenant: str) -> Iterator[tuple[SloGoal, list[float]]]:
    """Yield each goal of *level* with the share of requests within it, of every replication that has one."""
    tenants = [each for one in metrics if (each := one["tenant_shares"])]
    rows = [each[tenant] for each in tenants] if tenant else [one["slo_shares"] for one in metrics]
    for goal, column in zip(level.goals, zip(*rows, strict=True), strict=True) if rows else ():
        if known := [share for share in column if share is not None]:
            yield goal, known
