"""What monitoring knows of a pool: replicas read at intervals, and the latencies of finished requests."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.autoscaling import Gauge, Latency
from sim.batching.limits import VllmLimits
from sim.fleet.lifecycle import Lives, State
from sim.fleet.replica import Replica
from sim.fleet.roster import Roster
from sim.records import Request
from sim.scenario.resolving.resolved import PoolPlan

OF_REQUESTS = frozenset({"outstanding", "waiting"})
"""Gauges to which requests at the router belong."""
KEPT_MORE_S = 60.0
"""Readings are kept a little longer than anyone looks back."""


@dataclass(slots=True)
class Scrape:
    """Gauges of the replicas of a pool at one time; a replica that does not serve has none."""

    at_s: float
    values: dict[int, dict[Gauge, float]]
    """First engine of a replica -> its gauges."""
    totals: dict[Gauge, float]
    """Sums over the replicas and, of requests, those at the router."""


class Scrapes:
    """The readings of one pool."""

    def __init__(
        self,
        pool: PoolPlan,
        replicas: list[list[int]],
        engines: list[Replica],
        lives: Lives,
        roster: Roster,
        held: Callable[[], int],
    ) -> None:
        """*replicas* are the indices of the engines that each replica consists of."""
        scaler = pool.autoscaling
        assert scaler is not None
        self._pool, self._replicas, self._engines = pool, replicas, engines
        self._lives, self._roster, self.held_now = lives, roster, held
        self._gauges, self._delay_s = scaler.gauges, scaler.metric_delay_s
        self._keep_s = scaler.keep_s + scaler.metric_delay_s + scaler.scrape_interval_s + KEPT_MORE_S
        self._scrapes: deque[Scrape] = deque()
        self._latencies: deque[tuple[float, float, float]] = deque()
        self._before: dict[int, tuple[float, float, int]] = {}
        """First engine -> time, busy time and arrivals at its last reading."""

    def read(self, now: float) -> None:
        """Scrapes all replicas that serve."""
        states = self._lives.states
        serving = [one for one in self._replicas if states[one[0]] is State.SERVING]
        values = {one[0]: {gauge: self._gauge(gauge, one) for gauge in self._gauges - DELTAS} for one in serving}
        if self._gauges & DELTAS:
            for one in serving:
                values[one[0]] |= self._deltas(one, now)
        held = self.held_now()
        totals = {
            gauge: sum(one[gauge] for one in values.values()) + (held if gauge in OF_REQUESTS else 0)
            for gauge in self._gauges
        }
        self._scrapes.append(Scrape(now, values, totals))
        while self._scrapes[0].at_s < now - self._keep_s:
            self._scrapes.popleft()

    def finished(self, requests: list[Request], now: float) -> None:
        """Notes the latencies of requests that have ended."""
        for one in requests:
            if one.finished_s == one.finished_s:
                made = max(1, one.output_tokens - 1)
                latencies = (one.first_token_s - one.arrived_s, (one.finished_s - one.first_token_s) / made)
                self._latencies.append((now, *latencies))
        while self._latencies and self._latencies[0][0] < now - self._keep_s:
            self._latencies.popleft()

    def per_replica(self, now: float, gauge: Gauge, window_s: float) -> list[float]:
        """Mean of *gauge* in the window, of each replica that serves now and has been scraped."""
        chosen = self._within(now, window_s)
        means = []
        for one in self._replicas:
            if self._lives.states[one[0]] is State.SERVING:
                values = [scrape.values[one[0]][gauge] for scrape in chosen if one[0] in scrape.values]
                if values:
                    means.append(sum(values) / len(values))
        return means

    def total(self, now: float, gauge: Gauge, window_s: float) -> float:
        """Mean in the window of the sum over replicas and, of requests, those at the router."""
        chosen = self._within(now, window_s)
        return sum([scrape.totals[gauge] for scrape in chosen]) / len(chosen) if chosen else 0.0

    def latency_s(self, now: float, latency: Latency, quantile: float, window_s: float) -> float | None:
        """Quantile over the requests that finished in the window; None if none has."""
        place = 1 if latency == "ttft_s" else 2
        until_s = now - self._delay_s
        found = [one[place] for one in self._latencies if until_s - window_s < one[0] <= until_s]
        return float(np.quantile(found, quantile)) if found else None

    def _within(self, now: float, window_s: float) -> list[Scrape]:
        """Scrapes of the last *window_s* that have come through; the last one alone where none lies within."""
        until_s = now - self._delay_s
        chosen: list[Scrape] = []
        for scrape in reversed(self._scrapes):
            if scrape.at_s > until_s:
                continue
            if chosen and scrape.at_s <= until_s - window_s:
                break
            chosen.append(scrape)
        return chosen

    def _gauge(self, gauge: Gauge, engines: list[int]) -> float:
        if gauge == "kv_used":
            return sum(self._kv_used(engine) for engine in engines) / len(engines)
        waiting = sum(self._engines[engine].engine.waiting() for engine in engines) if gauge != "outstanding" else 0
        if gauge == "waiting":
            return waiting
        return sum(self._roster.outstanding(engine) for engine in engines) - waiting

    def _kv_used(self, engine: int) -> float:
        """Part of the cache that the steps under way work on; blocks kept for their prefix alone are free."""
        batching = self._pool.batching
        windows = batching.windows if isinstance(batching, VllmLimits) else (None,)
        tokens = max(0, (batching.num_gpu_blocks or 1) - 1) * batching.block_size
        used = 0
        for span in self._engines[engine].engine.under_way():
            one = span.batch
            further = one.decode_seqs + one.prefill_context_tokens + one.prefill_tokens
            for window in windows:
                if window == 0:
                    used += (one.decode_seqs + one.prefill_seqs) * batching.block_size
                else:
                    used += ((window and one.windowed_kv_tokens) or one.kv_tokens) + further
        return min(1.0, used / tokens) if tokens else 0.0

    def _deltas(self, engines: list[int], now: float) -> dict[Gauge, float]:
        """What counters have gained since the last reading, per second; of a replica that has just opened, nothing."""
        busy_s = sum(self._engines[engine].engine.meters(now).busy_s for engine in engines) / len(engines)
        came = sum(self._roster.came(engine) for engine in engines)
        before_s, busy_before_s, came_before = self._before.get(engines[0], (0.0, 0.0, 0))
        self._before[engines[0]] = (now, busy_s, came)
        passed_s = now - before_s
        if not passed_s:
            return {"gpu_busy": 0.0, "requests_per_s": 0.0}
        return {"gpu_busy": (busy_s - busy_before_s) / passed_s, "requests_per_s": (came - came_before) / passed_s}


DELTAS: frozenset[Gauge] = frozenset(["gpu_busy", "requests_per_s"])
"""Gauges that are read off counters."""
