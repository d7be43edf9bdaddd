"""What one finished case comes to: the figures of a summary row, for one replication."""

from collections.abc import Mapping
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.case import CaseResult
from sim.scenario.sections.slo import LATENCIES, Slo
from sim.study.metrics.batches import mean_half_width, percentile_half_width, rate_half_width, share_half_width
from sim.study.metrics.limits import limited_by, step_share
from sim.study.metrics.overload import Growth, queue_growth
from sim.study.price.bill import bill, it_power_w_mean
from sim.units import SECONDS_PER_HOUR

Floats = NDArray[np.float64]

PERCENTILES = (50, 95, 99)
THIN_TAIL = 20
"""A percentile with fewer requests than this beyond it is marked."""


class Cohort:
    """The requests that arrived in the window, as arrays; dates are nan where something never happened."""

    def __init__(self, result: CaseResult) -> None:
        requests = result.log.requests
        count = len(requests)
        self.arrived_s = np.fromiter((r.arrived_s for r in requests), float, count)
        self.started_s = np.fromiter((r.started_s for r in requests), float, count)
        self.first_token_s = np.fromiter((r.first_token_s for r in requests), float, count)
        self.finished_s = np.fromiter((r.finished_s for r in requests), float, count)
        self.output_tokens = np.fromiter((r.output_tokens for r in requests), np.int64, count)
        self.tokens = self.output_tokens + np.fromiter((r.prompt_tokens for r in requests), np.int64, count)
        self.rejected = np.fromiter((r.rejected for r in requests), bool, count)
        self.start_s, self.end_s = result.window_s
        self.open_end = result.plan.horizon_s is None
        self.measured = (self.arrived_s >= self.start_s) & (self.open_end | (self.arrived_s < self.end_s))
        self.finished = np.isfinite(self.finished_s)
        # without an answer a request has waited forever: no percentile may leave it out
        self.ttft_s = np.where(self.finished, self.first_token_s - self.arrived_s, np.inf)
        self.e2e_s = np.where(self.finished, self.finished_s - self.arrived_s, np.inf)
        gaps = np.maximum(self.output_tokens - 1, 1)
        self.tpot_s = np.where(self.finished, (self.finished_s - self.first_token_s) / gaps, np.inf)
        self.several_tokens = self.output_tokens > 1
        self.queue_s = np.where(np.isfinite(self.started_s), self.started_s - self.arrived_s, np.inf)

    def good(self, slo: Slo) -> NDArray[np.bool_]:
        """Which requests finished within all of *slo*'s limits of each request."""
        good: NDArray[np.bool_] = self.finished & self.within(slo.per_request)
        return good

    def within(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Which requests keep to all *limits* (ttft_s, tpot_s, e2e_s -> seconds)."""
        kept = np.ones(len(self.arrived_s), bool)
        for name, limit_s in limits.items():
            fits = getattr(self, name) <= limit_s
            kept &= fits | ~self.several_tokens if name == "tpot_s" else fits
        return kept

    def members(self, latency: str) -> NDArray[np.bool_]:
        """The measured requests that have this latency: a single token has no time per token after it."""
        return self.measured & self.several_tokens if latency == "tpot_s" else self.measured

    def served(self) -> NDArray[np.bool_]:
        """Which requests finished in the window, half open except where the last finish itself ends it."""
        served: NDArray[np.bool_] = self.finished & (self.finished_s >= self.start_s)
        return served & (self.open_end | (self.finished_s < self.end_s))

    def queue_growth(self) -> Growth:
        """How many more are in the system at the end; a load that ends by itself overloads nothing."""
        if self.open_end:
            return Growth(0, False)
        queued = ~self.rejected
        dates = (self.arrived_s[queued], self.started_s[queued], self.finished_s[queued])
        return queue_growth(*dates, self.start_s, self.end_s)


def percentile(values: Floats, percent: float) -> float:
    """numpy's linear percentile, also where the upper values are infinite; nan for none.

    >>> percentile(np.array([1.0, 2.0, np.inf]), 50), percentile(np.array([1.0, 2.0, np.inf]), 75)
    (2.0, inf)
    """
    if not values.size:
        return float("nan")
    ordered = np.sort(values)
    position = (values.size - 1) * percent / 100
    below = int(position)
    share = position - below
    low = float(ordered[below])
    return low if share == 0 or np.isinf(low) else float(low + (ordered[below + 1] - low) * share)


def measure(result: CaseResult) -> dict[str, Any]:
    """All metrics of a case by the names of summary.csv (and a few that the summary is computed from)."""
    cohort = Cohort(result)
    good = cohort.good(result.plan.slo) & cohort.measured
    return {
        **_requests(result, cohort, good),
        **_latencies(cohort, result.plan.slo),
        **_service_level(cohort, result.plan.slo),
        **_machines(result),
        "good_output_tokens": int(cohort.output_tokens[good].sum()),
        "batch_ci95": _batch_intervals(result, cohort, good),
        **bill(result),
    }


def _requests(result: CaseResult, cohort: Cohort, good: NDArray[np.bool_]) -> dict[str, Any]:
    # a window without length (all requests come at once and none can be served) has rates of zero
    window_s = cohort.end_s - cohort.start_s or inf
    requests = int(cohort.measured.sum())
    completed = int((cohort.measured & cohort.finished).sum())
    rejected = int((cohort.measured & cohort.rejected).sum())
    totals = result.log.meters
    output_tokens = sum(meters.output_tokens for meters in totals)
    prompt_tokens = sum(meters.prompt_tokens + meters.cached_tokens for meters in totals)
    attainment = float(good.sum()) / requests if requests else None
    growth = cohort.queue_growth()
    return {
        "requests": requests,
        "completed": completed,
        "rejected": rejected,
        "unfinished": requests - completed - rejected,
        "offered_rps": requests / window_s,
        "requests_per_s": float(cohort.served().sum()) / window_s,
        "output_tokens_per_s": output_tokens / window_s,
        "total_tokens_per_s": (prompt_tokens + output_tokens) / window_s,
        "goodput_rps": float(good.sum()) / window_s,
        "slo_attainment": attainment,
        "overloaded": growth.certain,
        "queue_growth": growth.requests,
        "waiting_growth": growth.waiting,
        "warmup_s": result.plan.warmup_s,
        "warmup_steady": result.plan.warmup_steady if result.plan.warmup_auto else None,
        "output_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "preemptions": sum(meters.preemptions for meters in totals),
    }


def _service_level(cohort: Cohort, slo: Slo) -> dict[str, Any]:
    """What is asked for, and the share of requests that is within the limits of each goal."""
    shares = []
    for goal in slo.goals:
        members = cohort.members(goal.percentile.latency) if goal.percentile else cohort.measured
        kept = (cohort.finished & cohort.within(goal.limits))[members]
        shares.append(float(kept.mean()) if kept.size else None)
    return {"slo": slo.model_dump(exclude_none=True), "slo_shares": shares}


def percents(slo: Slo, latency: str) -> list[float]:
    """The percentiles of one latency that are measured: the usual ones, and those that the service level names."""
    return list(dict.fromkeys([*PERCENTILES, *(one.percent for one in slo.percentiles if one.latency == latency)]))


def _latencies(cohort: Cohort, slo: Slo) -> dict[str, Any]:
    found: dict[str, Any] = {"thin_percentiles": []}
    for name in LATENCIES:
        values, members = getattr(cohort, name), cohort.members(name)
        answered, chosen = values[members & cohort.finished], values[members]
        found[f"{name}_mean"] = float(answered.mean()) if answered.size else None
        for percent in percents(slo, name):
            column = f"{name}_p{percent:g}"
            found[column] = percentile(chosen, percent) if chosen.size else None
            if chosen.size * min(percent, 100 - percent) / 100 < THIN_TAIL:
                found["thin_percentiles"].append(column)
    queued = cohort.queue_s[cohort.measured]
    found["queue_s_p95"] = percentile(queued, 95) if queued.size else None
    return found


def _batch_intervals(result: CaseResult, cohort: Cohort, good: NDArray[np.bool_]) -> dict[str, float]:
    """Half-widths of 95 % intervals that this run alone gives, for what is counted request by request.

    None for a load without chance or without a steady state, and for a queue that grows.
    """
    workload = result.plan.workload
    if cohort.open_end or workload.deterministic or not workload.stationary or cohort.queue_growth().certain:
        return {}
    found: dict[str, float | None] = {}
    for name in LATENCIES:
        values = getattr(cohort, name)[cohort.members(name)]
        found[f"{name}_mean"] = mean_half_width(values)
        measured = percents(result.plan.slo, name)
        found |= {f"{name}_p{percent:g}": percentile_half_width(values, percent) for percent in measured}
    found["queue_s_p95"] = percentile_half_width(cohort.queue_s[cohort.measured], 95)
    found["slo_attainment"] = share_half_width(good[cohort.measured].astype(float))
    found |= _rate_intervals(cohort, good)
    return {name: half for name, half in found.items() if half is not None}


def _rate_intervals(cohort: Cohort, good: NDArray[np.bool_]) -> dict[str, float | None]:
    """A request's tokens count where it finishes: over a span of many requests that is when they are made."""
    served, ones = cohort.served(), np.ones(len(cohort.arrived_s))
    events: Mapping[str, tuple[Floats, NDArray[Any], NDArray[np.bool_]]] = {
        "offered_rps": (cohort.arrived_s, ones, cohort.measured),
        "requests_per_s": (cohort.finished_s, ones, served),
        "goodput_rps": (cohort.arrived_s, ones, good),
        "output_tokens_per_s": (cohort.finished_s, cohort.output_tokens, served),
        "total_tokens_per_s": (cohort.finished_s, cohort.tokens, served),
        "good_output_tokens_per_s": (cohort.arrived_s, cohort.output_tokens, good),
    }
    window = (cohort.start_s, cohort.end_s)
    return {
        name: rate_half_width(dates[members], amounts[members].astype(float), *window)
        for name, (dates, amounts, members) in events.items()
    }


def _machines(result: CaseResult) -> dict[str, Any]:
    plan, totals = result.plan, result.log.meters
    start_s, end_s = result.window_s
    window_s = end_s - start_s or inf
    inside = [i for i in result.log.intervals if i.is_within(start_s, end_s)]
    gpus = sum(pool.replicas * pool.gpus_per_replica for pool in plan.pools)
    busy_s = sum(meters.busy_s for meters in totals)
    powered = all(pool.power is not None for pool in plan.pools)
    return {
        "limited_by": limited_by(result),
        "step_share": step_share(result),
        "batch_mean": sum(meters.sequence_s for meters in totals) / busy_s if busy_s else 0.0,
        "gpu_busy_fraction": busy_s / (len(totals) * window_s),
        "kv_used_peak_fraction": _kv_peak(result),
        "gpus": gpus,
        "servers": plan.servers,
        "gpu_power_w_mean": sum(i.gpu_energy_j for i in inside) / window_s if powered else None,
        "it_power_w_mean": it_power_w_mean(result),
        "window_h": (end_s - start_s) / SECONDS_PER_HOUR,
    }


def _kv_peak(result: CaseResult) -> float:
    """The fullest that any replica's block pool has been."""
    blocks = [(pool.batching.num_gpu_blocks or 1) - 1 for pool in result.plan.pools]
    fullest = 0.0
    for index, meters in enumerate(result.log.meters):
        fullest = max(fullest, meters.kv_peak_blocks / max(1, blocks[result.log.pool_of_replica[index]]))
    return fullest
