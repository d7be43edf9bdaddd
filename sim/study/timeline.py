"""Timeline of a case: means over intervals of equal length, from the stored tables of the case."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.study.points import FinishedCase
from sim.units import SECONDS_PER_HOUR

Series = NDArray[np.float64]
MOST_INTERVALS = 120
LENGTHS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
ALWAYS_ON = frozenset({"serving", "draining"})
"""States of replicas in a fleet without starts, stops and failures."""
BROKEN = ("failed", "repairing")


@dataclass(frozen=True, slots=True)
class CaseTimeline:
    """Timeline of one case; each series has one value per interval."""

    edges_s: Series
    """Start of the first interval, then the end of each interval [s]."""
    arrivals_rps: Series | None
    """Rate of arrivals [1/s], nan after the last arrival; None where the run kept no requests."""
    ttft_s: Series | None
    """95th percentile of TTFT over the requests arriving in the interval [s]; nan without, inf if never answered."""
    waiting: Series | None
    """Number of requests that have arrived and not started, at the end of the interval."""
    replicas: dict[str, Series]
    """State -> mean number of replicas."""
    failed_s: tuple[float, ...]
    """Times at which replicas failed [s]."""
    usd_per_h: Series | None
    """Cost rate [USD/h]; None without prices."""


def is_switched(case: FinishedCase) -> bool:
    """Return whether replicas of *case* start, stop or break down."""
    return not set(case.usage()["state"].unique().to_pylist()) <= ALWAYS_ON


def timeline_of(case: FinishedCase) -> CaseTimeline:
    """Return the timeline of *case*."""
    usage = case.usage()
    states = usage["state"].to_pylist()
    starts_s, ends_s = (usage[name].to_numpy() for name in ("start_s", "end_s"))
    edges_s = _edges(float(ends_s.max()))
    kept = np.array(states)
    of_state = {state: kept == state for state in dict.fromkeys(states)}
    replicas = {
        state: _mean(edges_s, starts_s[of], ends_s[of], ends_s[of] - starts_s[of]) for state, of in of_state.items()
    }
    requests, costs = case.requests(), case.costs()
    return CaseTimeline(
        edges_s,
        *_requests(requests, edges_s),
        replicas,
        tuple(_breakdowns(usage, np.isin(kept, BROKEN))),
        _cost(costs, edges_s) if costs.num_rows else None,
    )


def _edges(end_s: float) -> Series:
    length_s = next((one for one in LENGTHS_S if end_s <= one * MOST_INTERVALS), LENGTHS_S[-1])
    begins_s = np.arange(0.0, end_s, length_s)
    # a short rest would give meaningless rates, so it becomes part of the last interval
    if len(begins_s) > 1 and end_s - begins_s[-1] < length_s / 2:
        begins_s = begins_s[:-1]
    return np.append(begins_s, end_s)


def _mean(edges_s: Series, starts_s: Series, ends_s: Series, amounts: Series) -> Series:
    """Return amounts that are spread evenly from starts to ends, per second of each interval."""
    # amount accumulated up to each edge
    total = np.zeros(len(edges_s))
    for place, edge_s in enumerate(edges_s):
        parts = np.clip((edge_s - starts_s) / (ends_s - starts_s), 0.0, 1.0)
        total[place] = float(parts @ amounts)
    return np.diff(total) / np.diff(edges_s)


def _requests(requests: Any, edges_s: Series) -> tuple[Series | None, Series | None, Series | None]:
    if not requests.num_rows:
        return None, None, None
    names = ("arrived_s", "started_s", "first_token_s")
    arrived_s, started_s, first_s = (requests[name].to_numpy(zero_copy_only=False) for name in names)
    counts = np.histogram(arrived_s, edges_s)[0]
    waiting = np.searchsorted(np.sort(arrived_s), edges_s[1:], "right")
    waiting -= np.searchsorted(np.sort(started_s[~np.isnan(started_s)]), edges_s[1:], "right")
    ttft_s = np.where(np.isnan(first_s), np.inf, first_s - arrived_s)
    place = np.searchsorted(arrived_s, edges_s)
    late_s = [_p95(ttft_s[a:b]) for a, b in pairwise(place)]
    rates_rps = np.where(edges_s[:-1] <= arrived_s.max(), counts / np.diff(edges_s), np.nan)
    return rates_rps, np.array(late_s), waiting.astype(float)


def _p95(values: Series) -> float:
    """Return the 95th percentile, infinite where it falls on requests that were never answered."""
    if not len(values):
        return float("nan")
    return float(np.quantile(values, 0.95, method="higher" if np.isinf(values).any() else "linear"))


def _breakdowns(usage: Any, broken: NDArray[np.bool_]) -> Sequence[float]:
    """Return the times at which replicas failed [s]; a failure and its repair, across meter readings, count once."""
    replicas, starts_s, ends_s = (usage[name].to_numpy() for name in ("replica", "start_s", "end_s"))
    ended = set(zip(replicas[broken].tolist(), ends_s[broken].tolist(), strict=True))
    begun = zip(replicas[broken].tolist(), starts_s[broken].tolist(), strict=True)
    return sorted(start_s for replica, start_s in begun if (replica, start_s) not in ended)


def _cost(costs: Any, edges_s: Series) -> Series:
    """Return the cost rate [USD/h] from the bill's amounts, spread over their intervals; nan outside of the window."""
    starts_s, ends_s, usd = (costs[name].to_numpy() for name in ("start_s", "end_s", "amount_usd"))
    # a interval at an edge of the window has the rate of its part inside the window
    billed_s = np.diff(np.clip(edges_s, starts_s.min(), ends_s.max()))
    share = np.where(billed_s > 0, billed_s, np.nan) / np.diff(edges_s)
    return _mean(edges_s, starts_s, ends_s, usd) * SECONDS_PER_HOUR / share
