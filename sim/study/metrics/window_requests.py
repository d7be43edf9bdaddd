"""Requests that arrived in the measured window, as arrays."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sim.fleet.request_columns import column, texts
from sim.records import Request, RequestOptions
from sim.scenario.slo import ServiceLevel, Slo
from sim.study.metrics.overload import Growth, queue_growth

Floats = NDArray[np.float64]
KEPT_AT_ONCE = 2**20
"""Number of values that are moved together: few, as they need memory beside all values."""
COLUMNS: dict[str, type] = {
    **dict.fromkeys(("arrived_s", "started_s", "first_token_s", "finished_s"), float),
    **dict.fromkeys(("prompt_tokens", "output_tokens"), np.int64),
    **dict.fromkeys(("rejected", "given_up"), bool),
}
"""Timestamps and counts read of every request, with their types."""


@dataclass(frozen=True, slots=True)
class PrefixHits:
    """Shares of the prompt tokens of the window's requests that prefix caches can serve."""

    prefix_hit_rate: float | None
    """Share found in the cache of the chosen replica; None without a request."""
    prefix_hit_bound: float | None
    """Share that one cache of unlimited size would serve, in the order of arrival; None without a request."""


class WindowRequests:
    """Requests of a run as arrays; `measured` marks those of the window, and missing timestamps are nan.

    Parameters
    ----------
    columns
        Arrays by the names of COLUMNS.
    window_s
        Start and end of the window [s].
    open_end
        Whether the window has no horizon and ends with the run.
    tenants
        Tenant of each request; empty where requests have none.

    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], window_s: tuple[float, float], open_end: bool, tenants: Sequence[str]
    ) -> None:
        self.arrived_s, self.started_s = columns["arrived_s"], columns["started_s"]
        self.first_token_s, self.finished_s = columns["first_token_s"], columns["finished_s"]
        self.prompt_tokens, self.output_tokens = columns["prompt_tokens"], columns["output_tokens"]
        self.rejected, self.given_up = columns["rejected"], columns["given_up"]
        self.start_s, self.end_s = window_s
        self.open_end = open_end
        self.measured = (self.arrived_s >= self.start_s) & (self.open_end | (self.arrived_s < self.end_s))
        self.finished = np.isfinite(self.finished_s)
        self._tenants = np.array(tenants, dtype=str)

    # computed at each use, since memory does not hold derived arrays of tens of millions of requests; an unanswered
    # request has infinite latency, so that percentiles include it

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Tokens of prompt and answer."""
        total: NDArray[np.int64] = self.output_tokens + self.prompt_tokens
        return total

    @property
    def several_tokens(self) -> NDArray[np.bool_]:
        """Mask of the requests with more than one output token."""
        several: NDArray[np.bool_] = self.output_tokens > 1
        return several

    @property
    def ttft_s(self) -> Floats:
        """Time to first token [s]."""
        return self._where_finished(self.first_token_s - self.arrived_s)

    @property
    def e2e_s(self) -> Floats:
        """Time from arrival to last token [s]."""
        return self._where_finished(self.finished_s - self.arrived_s)

    @property
    def tpot_s(self) -> Floats:
        """Time per output token after the first [s]."""
        times_s = self.finished_s - self.first_token_s
        times_s /= np.maximum(self.output_tokens - 1, 1)
        return self._where_finished(times_s)

    def _where_finished(self, times_s: Floats) -> Floats:
        times_s[~self.finished] = np.inf
        return times_s

    @property
    def queue_s(self) -> Floats:
        """Wait from arrival until the first step that works on the request [s]."""
        times_s: Floats = self.started_s - self.arrived_s
        times_s[~np.isfinite(self.started_s)] = np.inf
        return times_s

    @classmethod
    def of(
        cls,
        requests: Sequence[Request],
        options: Collection[RequestOptions],
        window_s: tuple[float, float],
        open_end: bool,
    ) -> "WindowRequests":
        """Return the *requests* of a case that was just simulated, which have *options*."""
        columns = {
            name: column(requests, name, kind) if options or kind is not bool else np.zeros(len(requests), bool)
            for name, kind in COLUMNS.items()
        }
        named = any(one.tenant for one in options)
        return cls(columns, window_s, open_end, texts(requests, "tenant") if named else ())

    @classmethod
    def stored(cls, table: pa.Table, window_s: tuple[float, float], open_end: bool) -> "WindowRequests":
        """Return the requests of a *table* as `StoredCase.requests` reads it."""
        status = table.column("status").cast(pa.string())
        columns = {name: table.column(name).to_numpy() for name in COLUMNS if name not in ("rejected", "given_up")}
        columns["rejected"] = pc.equal(status, "rejected").to_numpy()
        columns["given_up"] = pc.is_in(status, pa.array(["timed_out", "lost"])).to_numpy()
        tenants = table.column("tenant").to_pylist() if "tenant" in table.column_names else ()
        return cls(columns, window_s, open_end, tenants)

    def good(self, slo: Slo) -> NDArray[np.bool_]:
        """Return the mask of the requests that finished within all limits, those of *slo* or of their tenant."""
        kept = self.within(slo.per_request)
        for name, level in (slo.tenants or {}).items():
            kept = np.where(self.of_tenants((name,)), self.within(level.per_request), kept)
        good: NDArray[np.bool_] = self.finished & kept
        return good

    def of_tenants(self, names: Iterable[str]) -> NDArray[np.bool_]:
        """Return the mask of the requests of the tenants *names*."""
        if not self._tenants.size:
            return np.zeros(len(self.arrived_s), bool)
        return np.isin(self._tenants, list(names))

    def shares(self, level: ServiceLevel, chosen: NDArray[np.bool_]) -> list[float | None]:
        """Return the share of *chosen* measured requests within each goal of *level*; None for no requests."""
        found: list[float | None] = []
        for goal in level.goals:
            members = self.members(goal.percentile.latency) if goal.percentile else self.measured
            kept = (self.finished & self.within(goal.limits))[members & chosen]
            found.append(float(kept.mean()) if kept.size else None)
        return found

    def within(self, limits: Mapping[str, float]) -> NDArray[np.bool_]:
        """Return the mask of the requests within all *limits* (ttft_s, tpot_s, e2e_s -> seconds)."""
        kept = np.ones(len(self.arrived_s), bool)
        for name, limit_s in limits.items():
            fits = getattr(self, name) <= limit_s
            kept &= fits | ~self.several_tokens if name == "tpot_s" else fits
        return kept

    def measured_s(self, latency: str) -> Floats:
        """Return the times *latency* (a property such as `ttft_s`) of its members [s], in a new array."""
        return keep(getattr(self, latency), self.members(latency))

    def members(self, latency: str) -> NDArray[np.bool_]:
        """Return the mask of the measured requests that have this latency: an output of one token has no TPOT."""
        return self.measured & self.several_tokens if latency == "tpot_s" else self.measured

    def served(self) -> NDArray[np.bool_]:
        """Return the mask of the requests that finished in [start, end); in [start, inf) without a horizon."""
        served: NDArray[np.bool_] = self.finished & (self.finished_s >= self.start_s)
        return served & (self.open_end | (self.finished_s < self.end_s))

    def good_share_of_tokens(self, good: NDArray[np.bool_]) -> float:
        """Return the share of the output tokens of requests finishing in the window that belongs to *good* requests.

        The share is applied to the window's tokens, so that requests and tokens are counted over the same time and
        goodput is a part of the throughput.
        """
        served = self.served()
        every = int(self.output_tokens[served].sum())
        return int(self.output_tokens[served & good].sum()) / every if every else 0.0

    def endings(self, requests: Sequence[Request]) -> Counter[str]:
        """Return the number of measured requests by the reason for ending without an answer (`Request.gave_up`)."""
        return Counter(one.gave_up for one, measured in zip(requests, self.measured.tolist(), strict=True) if measured)

    def queue_growth(self) -> Growth:
        """Return the growth of the number of requests in the system; without a horizon, until the last arrival.

        Such a run has no late growth: no longer horizon would show whether it continues.
        """
        last_s = np.max(self.arrived_s, where=self.measured, initial=self.start_s) if self.open_end else self.end_s
        end_s = float(last_s)
        if end_s <= self.start_s:
            return Growth(0, False)
        dates = self.arrived_s, self.started_s, self.finished_s
        unqueued = self.rejected | self.given_up
        if unqueued.any():
            dates = self.arrived_s[~unqueued], self.started_s[~unqueued], self.finished_s[~unqueued]
        growth = queue_growth(*dates, self.start_s, end_s)
        return replace(growth, late=0.0, late_error=0.0) if self.open_end else growth


def keep(values: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Return the *values* that the mask *kept* marks, moved to the start of their array.

    >>> keep(np.array([1.0, 2.0, 3.0]), np.array([False, True, True]))
    array([2., 3.])
    """
    if kept.all():
        return values
    end = 0
    for start in range(0, len(values), KEPT_AT_ONCE):
        part = slice(start, start + KEPT_AT_ONCE)
        moved = values[part][kept[part]]
        values[end : end + len(moved)] = moved
        end += len(moved)
    return values[:end]


def percentile(values: Floats, percent: float) -> float:
    """Return the percentile *percent* by linear interpolation; upper values may be infinite. nan for no values.

    >>> percentile(np.array([1.0, 2.0, np.inf]), 50), percentile(np.array([1.0, 2.0, np.inf]), 75)
    (2.0, inf)
    """
    return percentile_of_sorted(np.sort(values), percent)


def percentile_of_sorted(ordered: Floats, percent: float) -> float:
    """Return the percentile *percent* of values in ascending order: see `percentile`."""
    if not ordered.size:
        return float("nan")
    position = (ordered.size - 1) * percent / 100
    below = int(position)
    share = position - below
    low = float(ordered[below])
    return low if share == 0 or np.isinf(low) else float(low + (ordered[below + 1] - low) * share)


def latencies_s(table: pa.Table, name: str) -> NDArray[np.float64]:
    """Return the latency *name* (ttft_s, tpot_s or e2e_s) of the measured requests [s].

    inf for requests that never finished; requests of one output token have no TPOT and are left out.
    """
    columns = {
        key: table.column(key).to_numpy() for key in ("arrived_s", "first_token_s", "finished_s", "output_tokens")
    }
    chosen = table.column("measured").to_numpy() > 0
    finished = pc.equal(table.column("status").cast(pa.string()), "finished").to_numpy()
    first, last, start = columns["first_token_s"], columns["finished_s"], columns["arrived_s"]
    if name == "tpot_s":
        chosen &= columns["output_tokens"] > 1
        times = (last - first) / np.maximum(columns["output_tokens"] - 1, 1)
    else:
        times = (first if name == "ttft_s" else last) - start
    times = np.where(finished, times, np.inf)[chosen]
    return np.asarray(times[~np.isnan(times)])


def prefix_hits(requests: Sequence[Request], start_s: float, end_s: float, block_tokens: int = 1) -> PrefixHits:
    """Return the prefix shares of the requests that arrive from *start_s* to *end_s*.

    Earlier requests fill the caches, whose blocks have *block_tokens* tokens.
    """
    seen: dict[int, int] = {}  # hash of a block -> number of its tokens whose KV has been computed
    prompts = found = could = 0
    for request in requests:
        ids, size = request.block_hashes, request.hash_block_tokens
        if request.rejected:
            continue
        if start_s <= request.arrived_s < end_s:
            known = 0
            for place, block in enumerate(ids):
                known += seen.get(block, 0)
                if known < (place + 1) * size:
                    break
            prompts += request.prompt_tokens
            found += request.cached_tokens
            could += max(0, min(known, request.prompt_tokens - 1)) // block_tokens * block_tokens
        # the KV of the answer's last token is never computed
        computed = min(request.shared_tokens, request.prompt_tokens + request.output_tokens - 1)
        for place, block in enumerate(ids):
            if (held := min(size, computed - place * size)) > seen.get(block, 0):
                seen[block] = held
    return PrefixHits(found / prompts, could / prompts) if prompts else PrefixHits(None, None)
