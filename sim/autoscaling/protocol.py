"""The interface of an autoscaler: what it sees and returns, the keys that all have, and one of a user's own.

`PoolMetrics` is a pool as monitoring shows it, `Scaler` a running autoscaler, and `AutoscalerKeys` has the keys that
every autoscaler of a scenario has. `RegisteredAutoscaling` runs a class that a user has registered.
"""

from math import ceil
from typing import Any, ClassVar, Literal, Protocol, Self

from pydantic import model_validator

from sim.registry import Registered
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber

Gauge = Literal["outstanding", "running", "waiting", "requests_per_s", "gpu_busy", "kv_used"]
"""What is read of a replica: requests there, those of them that run or wait, arrivals per second since the last
scrape, the part of the time since then that a step ran, the part of the KV cache that the running requests hold."""
Latency = Literal["ttft_s", "tpot_s"]
Metric = Literal[
    "outstanding_per_replica",
    "running_per_replica",
    "waiting_per_replica",
    "requests_per_s_per_replica",
    "gpu_busy",
    "kv_used",
]
"""A gauge averaged over replicas, as scenarios name it."""
SHARES = ("gpu_busy", "kv_used")
"""Metrics that are parts of a whole."""
ROUNDED = 9
"""Digits: a ratio that is one but for the last bits of its numbers is one."""


class PoolMetrics(Protocol):
    """A pool as monitoring shows it: scrapes that lie `metric_delay_s` back at least."""

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        ...

    @property
    def replicas(self) -> int:
        """Replicas that serve or are on their way."""
        ...

    @property
    def ready(self) -> int:
        """Replicas that serve."""
        ...

    @property
    def held(self) -> int:
        """Requests that wait at the router because no replica serves, at this moment."""
        ...

    def per_replica(self, gauge: Gauge, window_s: float) -> list[float]:
        """Mean of *gauge* over the last *window_s*, of each replica that serves and has been scraped; 0: as last
        scraped.
        """
        ...

    def total(self, gauge: Gauge, window_s: float) -> float:
        """Mean over the last *window_s* of the sum over replicas and, of requests, those at the router."""
        ...

    def latency_s(self, latency: Latency, quantile: float, window_s: float) -> float | None:
        """Quantile of a latency [s] over the requests that finished in the last *window_s*; None if none has."""
        ...


class Scaler(Protocol):
    """A running autoscaler of one pool."""

    def wanted(self, seen: PoolMetrics) -> int:
        """How many replicas the pool shall have from now on; the program keeps to the bounds."""
        ...


class AutoscalerKeys(Spec):
    """Keys of every autoscaler."""

    min_replicas: WholeNumber = 1
    max_replicas: Count
    scrape_interval_s: Positive = 15.0
    """How often monitoring reads the replicas."""
    metric_delay_s: NonNegative = 0.0
    """How old a reading is before the autoscaler sees it."""

    wakes: ClassVar[bool] = False
    """Whether it is asked at once when a request finds no replica."""
    to_zero: ClassVar[bool] = False
    """Whether it brings a pool back that has no replica."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(f"min_replicas ({self.min_replicas}) must not exceed max_replicas ({self.max_replicas})")
        if self.min_replicas == 0 and not self.to_zero:
            raise ValueError(
                "min_replicas must be 1 at least: this policy never starts the first replica (kpa, keda do)"
            )
        return self

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return 15.0

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return frozenset()

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return 0.0


class MetricAutoscalerKeys(AutoscalerKeys):
    """Keys of the autoscalers that bring a metric of the replicas to a target."""

    metric: Metric
    """Averaged over the replicas that serve."""
    target: Positive
    """Value of the metric that each replica shall have."""

    @model_validator(mode="after")
    def _in_reach(self) -> Self:
        if self.metric in SHARES and self.target > 1:
            raise ValueError(f"{self.metric} is 1 at most, and target {self.target:g} is never reached: 70 % is 0.7")
        return self

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return frozenset([gauge_of(self.metric)])


def gauge_of(metric: Metric) -> Gauge:
    """The gauge that *metric* averages over replicas."""
    gauge: Gauge = metric.removesuffix("_per_replica")  # type: ignore[assignment]
    return gauge


def whole(replicas: float) -> int:
    """*replicas* rounded up.

    >>> whole(3 * 0.1 / 0.1), whole(3.01)
    (3, 4)
    """
    return ceil(round(replicas, ROUNDED))


def within(ratio: float, tolerance: float) -> bool:
    """Whether *ratio* is so close to 1 that nothing changes.

    >>> within(1.1, 0.1), within(1.11, 0.1)
    (True, False)
    """
    return abs(round(1 - ratio, ROUNDED)) <= tolerance


ALL: frozenset[Gauge] = frozenset(["outstanding", "running", "waiting", "requests_per_s", "gpu_busy", "kv_used"])


class RegisteredAutoscaling(Registered, AutoscalerKeys):
    """A class with `wanted(seen)`, the number of replicas that the pool shall have; *seen* is a
    `sim.autoscaling.protocol.Seen`.
    """

    sync_period_s: Positive = 15.0
    """How often it decides."""
    longest_window_s: NonNegative = 300.0
    """How far back it may look at readings."""

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return self.sync_period_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return ALL

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return self.longest_window_s

    def start(self) -> Scaler:
        """The running autoscaler."""
        made: Any = self.made()
        return _Checked(made)


class _Checked:
    """A user's autoscaler whose answers are numbers of replicas."""

    def __init__(self, scaler: Any) -> None:
        self._scaler = scaler

    def wanted(self, seen: Any) -> int:
        """Its answer. Raises TypeError where that is no whole number."""
        answer = self._scaler.wanted(seen)
        if isinstance(answer, bool) or not isinstance(answer, int):
            name = type(self._scaler).__name__
            raise TypeError(f"autoscaler {name}: wanted returns a number of replicas, not {answer!r}")
        return answer
