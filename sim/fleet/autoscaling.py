"""Control loop of an autoscaler: reads the monitoring of a pool and sets the number of replicas.

Monitoring scrapes the replicas of the pool at intervals and records the latencies of finished requests. The autoscaling
policies are in `sim.autoscaling`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import simpy

from sim.autoscaling import Gauge, Latency, Scaler
from sim.batching.limits import VllmLimits
from sim.fleet.clock import FleetClock
from sim.fleet.replica import Replica, ReplicaLifecycle, State
from sim.fleet.routing import ServingReplicas
from sim.fleet.scaling import PoolScaling
from sim.records import Request
from sim.scenario.resolving.resolved import CasePlan, PoolPlan

REQUEST_GAUGES = frozenset({"outstanding", "waiting"})
"""Gauges that count requests held at the router, too."""
EXTRA_HISTORY_S = 60.0
"""Time beyond the longest window for which scrapes are kept [s]."""


@dataclass(slots=True)
class GaugeScrape:
    """Gauges of the replicas of a pool at one time; a replica that does not serve has none."""

    at_s: float
    values: dict[int, dict[Gauge, float]]
    """First engine of a replica -> gauges of the replica."""
    totals: dict[Gauge, float]
    """Sum of each gauge over the replicas, including requests held at the router where they count."""


class GaugeScrapes:
    """Scrapes and latencies of one pool."""

    def __init__(
        self,
        pool: PoolPlan,
        replicas: list[list[int]],
        engines: list[Replica],
        lifecycle: ReplicaLifecycle,
        router: ServingReplicas,
        held: Callable[[], int],
    ) -> None:
        """Monitor *replicas*, each the indices of the engines it consists of."""
        scaler = pool.autoscaling
        assert scaler is not None
        self._pool, self._replicas, self._engines = pool, replicas, engines
        self._lifecycle, self._router, self.held_now = lifecycle, router, held
        self._gauges, self._delay_s = scaler.gauges, scaler.metric_delay_s
        self._history_s = scaler.history_s + scaler.metric_delay_s + scaler.scrape_interval_s + EXTRA_HISTORY_S
        self._scrapes: deque[GaugeScrape] = deque()
        self._latencies: deque[tuple[float, float, float]] = deque()
        self._before: dict[int, tuple[float, float, int]] = {}
        """First engine of a replica -> time [s], busy time [s] and number of arrivals at its last scrape."""

    def read(self, now: float) -> None:
        """Scrape all serving replicas."""
        states = self._lifecycle.states
        serving = [one for one in self._replicas if states[one[0]] is State.SERVING]
        values = {
            one[0]: {gauge: self._gauge(gauge, one) for gauge in self._gauges - COUNTER_GAUGES} for one in serving
        }
        if self._gauges & COUNTER_GAUGES:
            for one in serving:
                values[one[0]] |= self._deltas(one, now)
        held = self.held_now()
        totals = {
            gauge: sum(one[gauge] for one in values.values()) + (held if gauge in REQUEST_GAUGES else 0)
            for gauge in self._gauges
        }
        self._scrapes.append(GaugeScrape(now, values, totals))
        while self._scrapes[0].at_s < now - self._history_s:
            self._scrapes.popleft()

    def finished(self, requests: list[Request], now: float) -> None:
        """Record the latencies of *requests*, which have ended."""
        for one in requests:
            if one.finished_s == one.finished_s:
                made = max(1, one.output_tokens - 1)
                latencies = (one.first_token_s - one.arrived_s, (one.finished_s - one.first_token_s) / made)
                self._latencies.append((now, *latencies))
        while self._latencies and self._latencies[0][0] < now - self._history_s:
            self._latencies.popleft()

    def per_replica(self, now: float, gauge: Gauge, window_s: float) -> list[float]:
        """Return the mean of *gauge* in the window for each replica that serves now and has been scraped."""
        chosen = self._scrapes_in_window(now, window_s)
        means = []
        for one in self._replicas:
            if self._lifecycle.states[one[0]] is State.SERVING:
                values = [scrape.values[one[0]][gauge] for scrape in chosen if one[0] in scrape.values]
                if values:
                    means.append(sum(values) / len(values))
        return means

    def total(self, now: float, gauge: Gauge, window_s: float) -> float:
        """Return the mean in the window of the sum of *gauge* over replicas and, for requests, the router."""
        chosen = self._scrapes_in_window(now, window_s)
        return sum([scrape.totals[gauge] for scrape in chosen]) / len(chosen) if chosen else 0.0

    def latency_s(self, now: float, latency: Latency, quantile: float, window_s: float) -> float | None:
        """Return a quantile of *latency* over the requests finished in the window [s]; None if none has finished."""
        place = 1 if latency == "ttft_s" else 2
        until_s = now - self._delay_s
        found = [one[place] for one in self._latencies if until_s - window_s < one[0] <= until_s]
        return float(np.quantile(found, quantile)) if found else None

    def _scrapes_in_window(self, now: float, window_s: float) -> list[GaugeScrape]:
        """Return the delivered scrapes of the last *window_s*; the latest one alone where none is that recent."""
        until_s = now - self._delay_s
        chosen: list[GaugeScrape] = []
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
        return sum(self._router.outstanding(engine) for engine in engines) - waiting

    def _kv_used(self, engine: int) -> float:
        """Return the fraction of the KV cache that running sequences use; cached prefix blocks count as free."""
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
        """Return the increase of counters since the last scrape, per second; 0 for a replica that has just opened."""
        busy_s = sum(self._engines[engine].engine.meters(now).busy_s for engine in engines) / len(engines)
        came = sum(self._router.came(engine) for engine in engines)
        before_s, busy_before_s, came_before = self._before.get(engines[0], (0.0, 0.0, 0))
        self._before[engines[0]] = (now, busy_s, came)
        passed_s = now - before_s
        if not passed_s:
            return {"gpu_busy": 0.0, "requests_per_s": 0.0}
        return {"gpu_busy": (busy_s - busy_before_s) / passed_s, "requests_per_s": (came - came_before) / passed_s}


COUNTER_GAUGES: frozenset[Gauge] = frozenset(["gpu_busy", "requests_per_s"])
"""Gauges that are derived from counters."""


class AutoscalerLoops:
    """Control loops of all autoscaled pools, run at their intervals."""

    def __init__(
        self,
        plan: CasePlan,
        env: FleetClock,
        scale: PoolScaling,
        lifecycle: ReplicaLifecycle,
        router: ServingReplicas,
        engines: list[Replica],
        held: Callable[[], int],
        over: Callable[[], bool],
    ) -> None:
        """Start the loops. *held* counts the requests at the router; *over* returns whether the run has ended."""
        self._env, self._over = env, over
        self._pools: dict[int, AutoscalerLoop] = {}
        for position, pool in enumerate(plan.pools):
            if pool.autoscaling is None:
                continue
            scrapes = GaugeScrapes(pool, scale.replicas[position], engines, lifecycle, router, held)
            self._pools[position] = loop = AutoscalerLoop(plan, position, env, scale, scrapes)
            self._every(pool.autoscaling.scrape_interval_s, loop.read)
            self._every(pool.autoscaling.period_s, loop.decide)

    def held(self) -> None:
        """Notify the loops that a request has found no serving replica."""
        for loop in self._pools.values():
            loop.woken()

    def finished(self, position: int, requests: list[Request], now: float) -> None:
        """Record the latencies of *requests*, which have ended on a replica of the pool at *position*."""
        if (loop := self._pools.get(position)) is not None:
            loop.scrapes.finished(requests, now)

    def _every(self, interval_s: float, do: Callable[[], None]) -> None:
        """Call *do* at the multiples of an interval until the run has ended."""
        count = 0

        def due(_: simpy.Event) -> None:
            nonlocal count
            if not self._over():
                do()
                count += 1
                arm()

        def arm() -> None:
            at_s = (count + 1) * interval_s
            self._env.timeout(max(0.0, at_s - self._env.now)).callbacks.append(due)

        arm()


class AutoscalerLoop:
    """Control loop of one pool; the autoscaler reads the pool through it."""

    def __init__(
        self, plan: CasePlan, position: int, env: FleetClock, scale: PoolScaling, scrapes: GaugeScrapes
    ) -> None:
        spec = plan.pools[position].autoscaling
        assert spec is not None
        self._spec, self._position = spec, position
        self._env, self._scale, self.scrapes = env, scale, scrapes
        self._scaler: Scaler = spec.start()

    def read(self) -> None:
        """Scrape the replicas."""
        self.scrapes.read(self._env.now)

    def decide(self) -> None:
        """Set the number of replicas that the autoscaler wants, within the bounds."""
        wanted = self._scaler.wanted(self)
        bounded = min(max(wanted, self._spec.min_replicas), self._spec.max_replicas)
        self._scale.scale_to(self._position, bounded)

    def woken(self) -> None:
        """Decide at once where the policy scales from zero and the pool has no replica on its way."""
        if self._spec.decides_on_arrival and not self.replicas:
            self.decide()

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        return self._env.now

    @property
    def replicas(self) -> int:
        """Number of replicas that serve or are starting."""
        return len(self._scale.active(self._position))

    @property
    def ready(self) -> int:
        """Number of replicas that serve."""
        return self._scale.serving(self._position)

    @property
    def held(self) -> int:
        """Number of requests that wait at the router now."""
        return self.scrapes.held_now()

    def per_replica(self, gauge: Gauge, window_s: float) -> list[float]:
        """See `PoolMetrics.per_replica`."""
        return self.scrapes.per_replica(self.now, gauge, window_s)

    def total(self, gauge: Gauge, window_s: float) -> float:
        """See `PoolMetrics.total`."""
        return self.scrapes.total(self.now, gauge, window_s)

    def latency_s(self, latency: Latency, quantile: float, window_s: float) -> float | None:
        """See `PoolMetrics.latency_s`."""
        return self.scrapes.latency_s(self.now, latency, quantile, window_s)
