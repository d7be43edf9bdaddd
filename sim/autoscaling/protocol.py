"""Interface of autoscalers: the metrics that they read, the keys that all have, and user-defined autoscalers.

`PoolMetrics` is a pool as monitoring shows it, `Scaler` a running autoscaler, and `AutoscalerKeys` has the keys of
every autoscaler of a scenario. `RegisteredAutoscaling` runs a class that a user has registered.
"""

from math import ceil
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import model_validator

from sim.message import Message
from sim.registry import Registered
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber

Gauge = Literal["outstanding", "running", "waiting", "requests_per_s", "gpu_busy", "kv_used"]
"""Gauges of a replica: outstanding requests, those running and those waiting, arrivals per second since the last
scrape, fraction of the time since then in which a step ran, fraction of the KV cache that running requests hold."""
Latency = Literal["ttft_s", "tpot_s"]
Metric = Literal[
    "outstanding_per_replica",
    "running_per_replica",
    "waiting_per_replica",
    "requests_per_s_per_replica",
    "gpu_busy",
    "kv_used",
]
"""Gauge averaged over replicas, as scenarios name it."""
SHARES = ("gpu_busy", "kv_used")
"""Metrics that are fractions, 1 at most."""
ROUNDED = 9
"""Decimals to which ratios are rounded, so that rounding errors do not change decisions."""


class PoolMetrics(Protocol):
    """Metrics of a pool as monitoring shows them; readings are at least `metric_delay_s` old."""

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        ...

    @property
    def replicas(self) -> int:
        """Replicas that serve or are starting."""
        ...

    @property
    def ready(self) -> int:
        """Replicas that serve."""
        ...

    @property
    def held(self) -> int:
        """Requests that wait at the router at this moment because no replica serves."""
        ...

    def per_replica(self, gauge: Gauge, window_s: float) -> list[float]:
        """Return the mean of *gauge* over the last *window_s*, for each serving replica that has been scraped.

        A *window_s* of 0 means the last scrape.
        """
        ...

    def total(self, gauge: Gauge, window_s: float) -> float:
        """Return the mean over the last *window_s* of *gauge* summed over replicas.

        Gauges of requests include those that wait at the router.
        """
        ...

    def latency_s(self, latency: Latency, quantile: float, window_s: float) -> float | None:
        """Return a quantile of a latency [s] over the requests finished in the last *window_s*.

        The result is None if no request finished.
        """
        ...


class Scaler(Protocol):
    """Running autoscaler of one pool."""

    def wanted(self, seen: PoolMetrics) -> int:
        """Return the number of replicas that the pool should have; the simulator applies the bounds."""
        ...


class AutoscalerKeys(Spec):
    """Keys of every autoscaler."""

    min_replicas: WholeNumber = 1
    """Smallest number of replicas; 0 only with policies that start replicas from zero (kpa, keda)."""
    max_replicas: Count
    """Largest number of replicas."""
    scrape_interval_s: Positive = 15.0
    """Time between two scrapes of the replicas by monitoring [s]."""
    metric_delay_s: NonNegative = 0.0
    """Age at which a reading becomes visible to the autoscaler [s]."""

    decides_on_arrival: ClassVar[bool] = False
    """True if the autoscaler also decides whenever a request finds no replica."""
    scales_from_zero: ClassVar[bool] = False
    """True if the autoscaler can start replicas in a pool that has none."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                Message(
                    "min_replicas ({min_replicas}) must not exceed max_replicas ({max_replicas})",
                    self.min_replicas,
                    self.max_replicas,
                )
            )
        if self.min_replicas == 0 and not self.scales_from_zero:
            raise ValueError(
                "min_replicas must be at least 1: this policy never starts the first replica (kpa, keda do)"
            )
        return self

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return 15.0

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset()

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return 0.0


class MetricAutoscalerKeys(AutoscalerKeys):
    """Keys of the autoscalers that bring a metric of the replicas to a target."""

    metric: Metric
    """Metric of the replicas, averaged over those that serve."""
    target: Positive
    """Value of the metric that each replica should have."""
    sync_period_s: Positive = 15.0
    """Time between two decisions [s]."""
    metric_window_s: NonNegative = 0.0
    """Time over which monitoring averages the metric [s]; 0: the last scrape."""

    @model_validator(mode="after")
    def _in_reach(self) -> Self:
        if self.metric in SHARES and self.target > 1:
            raise ValueError(
                Message(
                    "{metric} is 1 at most, and target {target:g} is never reached: 70 % is 0.7",
                    self.metric,
                    self.target,
                )
            )
        return self

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return self.sync_period_s

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.metric_window_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset([gauge_of(self.metric)])


def gauge_of(metric: Metric) -> Gauge:
    """Return the gauge that *metric* averages over replicas."""
    gauge: Gauge = metric.removesuffix("_per_replica")  # type: ignore[assignment]
    return gauge


def round_up(replicas: float) -> int:
    """Round *replicas* up to a whole number, ignoring rounding errors.

    >>> round_up(3 * 0.1 / 0.1), round_up(3.01)
    (3, 4)
    """
    return ceil(round(replicas, ROUNDED))


def within(ratio: float, tolerance: float) -> bool:
    """Return True if *ratio* differs from 1 by at most *tolerance*, so that nothing changes.

    >>> within(1.1, 0.1), within(1.11, 0.1)
    (True, False)
    """
    return abs(round(1 - ratio, ROUNDED)) <= tolerance


ALL_METRICS: frozenset[Gauge] = frozenset(
    ["outstanding", "running", "waiting", "requests_per_s", "gpu_busy", "kv_used"]
)


class RegisteredAutoscaling(Registered, AutoscalerKeys):
    """User-defined autoscaler, registered by the user.

    The scenario names a class with `wanted(seen)`, which returns the number of replicas that the pool should have.

    *seen* is a `sim.autoscaling.protocol.PoolMetrics`.
    """

    sync_period_s: Positive = 15.0
    """Time between two decisions [s]."""
    longest_window_s: NonNegative = 300.0
    """Longest window that the class may read [s]."""

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return self.sync_period_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return ALL_METRICS

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.longest_window_s

    def start(self) -> Scaler:
        """Return a running autoscaler with these keys."""
        made: Any = self.made()
        return _Checked(made)


class _Checked:
    """User-defined autoscaler whose answers are checked to be whole numbers."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler

    def wanted(self, seen: Any) -> int:
        """Return the number of replicas that the user's class wants. Raises TypeError if it is no whole number."""
        answer = self._scaler.wanted(seen)
        if isinstance(answer, bool) or not isinstance(answer, int):
            name = type(self._scaler).__name__
            raise TypeError(
                Message("autoscaler {name}: wanted returns a number of replicas, not {value!r}", name, answer)
            )
        return answer
