"""Metrics and cost of a fleet at its capacity, over the replications of the search."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import isfinite
from typing import Any

from sim.message import Message
from sim.scenario.slo import Slo
from sim.study.availability import OverFailures
from sim.study.capacity import FleetCapacity
from sim.study.load_axis import LoadAxis
from sim.study.metrics.averages import Mode, numbers
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.statistics import mean, paired_difference, ratio

LATENCIES = ("ttft_s_p95", "tpot_s_p95", "e2e_s_p95")
"""Latency columns of capacity.csv, beside the percentiles that the service level names."""


@dataclass(frozen=True, slots=True)
class AtCapacity:
    """Metrics and cost of a fleet at its capacity; a row of capacity.csv."""

    capacity: FleetCapacity
    limited_by: str
    """Most frequent bottleneck among the replications."""
    latencies_s: Mapping[str, float | None]
    """Means of the latencies [s], by column of summary.csv."""
    output_tokens_per_s: float | None
    gpu_busy_fraction: float | None
    cost_usd_per_h: float | None
    """Cost at the mean prices of the year [USD/h]; None without a cost."""
    usd_per_million_good_tokens: float | None
    """Cost per million goodput tokens, over those of all replications [USD]; None without a cost."""
    usd_per_million_good_tokens_ci95: float | None

    def row(self, axis: LoadAxis) -> dict[str, Any]:
        """Return the row of capacity.csv."""
        known = self.capacity
        over = [found.over for found in known.found if found.over is not None]
        return {
            "fleet": known.fleet,
            axis.label: known.mean,
            f"{axis.label}_ci95": known.half_width,
            "replications": len(known.found),
            "horizon_s": known.horizon_s,
            "reason": known.reason or _why_none(known, axis),
            "limited_by": self.limited_by,
            **self.latencies_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            "gpu_busy_fraction": self.gpu_busy_fraction,
            "cost_usd_per_h": self.cost_usd_per_h,
            "usd_per_million_good_tokens": self.usd_per_million_good_tokens,
            "usd_per_million_good_tokens_ci95": self.usd_per_million_good_tokens_ci95,
            **_over_failures(over),
        }


def at_capacity(one: FleetCapacity, slo: Slo) -> AtCapacity:
    """Return the means over the replications that found a load, with the cost per token as a ratio of sums."""
    cases = [found.at.metrics for found in one.found if found.at is not None and found.at.status == "ok"]
    columns = dict.fromkeys([*LATENCIES, *(limit.column for limit in slo.percentiles)])
    return AtCapacity(
        one,
        Mode().of("limited_by", cases).value if cases else "",
        {name: _mean(cases, name) for name in columns},
        _mean(cases, "output_tokens_per_s"),
        _mean(cases, "gpu_busy_fraction"),
        *_cost(cases),
    )


def _why_none(one: FleetCapacity, axis: LoadAxis) -> str:
    """Return why a fleet that can run meets the service level at no load; empty if it does at some load."""
    simulated = [load for found in one.found for load in found.loads]
    if one.mean or one.reason or not simulated:
        return ""
    missed = [load for load in simulated if not load.meets]
    if not missed:
        return "no request arrives in the window: give a longer horizon_s"
    lowest = min(missed, key=lambda load: load.load)
    even = Message("even at {label} {load:.3g}", axis.label, lowest.load)
    if min(load.load for load in simulated) < lowest.load:
        even = Message(
            "even at {label} {load:.3g}, below which no request arrives in the window", axis.label, lowest.load
        )
    over = [found.over.share for found in one.found if found.over is not None]
    if over:
        return Message(
            "over its failures only {share:.4g} % of the requests are within the limits {where}", 100 * mean(over), even
        )
    if lowest.overloaded:
        return Message("unbounded: the queue grows {where}", even)
    if named := [f"{name} {value:.3g}" for name, value in lowest.percentiles.items() if value is not None]:
        return Message("latencies are {latencies} {where}", ", ".join(named), even)
    if lowest.slo_attainment:
        return Message(
            "only {share:.3g} % of the requests are within the limits {where}", 100 * lowest.slo_attainment, even
        )
    return Message("no request is within the limits {where}", even)


def _over_failures(over: Sequence[OverFailures]) -> dict[str, float | None]:
    """Return the share of requests within the limits over failures and half of its interval, means over replications.

    Empty where the service level has no availability.
    """
    if not over:
        return {}
    halves = [one.half_width for one in over if one.half_width is not None]
    share = {"share_over_failures": mean([one.share for one in over])}
    return share | {"share_over_failures_ci95": mean(halves) if len(halves) == len(over) else None}


def _mean(cases: Sequence[CaseMetrics], name: str) -> float | None:
    values = numbers(cases, name)
    return mean(values) if values else None


def _cost(cases: Sequence[CaseMetrics]) -> tuple[float | None, float | None, float | None]:
    """Return the cost per hour [USD], and per million goodput tokens [USD] with half of its interval."""
    usd = [cost for one in cases if (cost := one.usd_of_a_mean_year) is not None]
    if not cases or len(usd) < len(cases):
        return None, None, None
    good_millions = [one["good_output_tokens"] / 1e6 for one in cases]
    value, half = ratio(usd, good_millions)
    return sum(usd) / sum(one["window_h"] for one in cases), value, half


@dataclass(frozen=True, slots=True)
class CapacityDifference:
    """Difference of the capacities of the first and the second fleet, over replications paired by seed."""

    first: str
    second: str
    load: float
    half_width: float
    """Half of the 95 % interval of the difference."""

    @property
    def certain(self) -> bool:
        """True if the interval excludes zero."""
        return abs(self.load) > self.half_width


def capacity_differences(found: Sequence[FleetCapacity]) -> Iterator[CapacityDifference]:
    """Yield the difference for every two fleets whose capacities were found in all, at least two, replications."""
    usable = [one for one in found if not one.reason and all(isfinite(search.capacity) for search in one.found)]
    for first, second in combinations(usable, 2):
        pairs = [(one.capacity, other.capacity) for one, other in zip(first.found, second.found, strict=False)]
        difference, half = paired_difference([a for a, _ in pairs], [b for _, b in pairs])
        if half is not None:
            yield CapacityDifference(first.fleet, second.fleet, difference, half)
