"""Knative's Pod Autoscaler: stable and panic windows, scale to zero.

Source: knative.dev/docs/serving/autoscaling and pkg/autoscaler/scaling/autoscaler.go of knative/serving. While nothing
serves the activator holds requests: they count as concurrency, and the first one starts a replica at once.
"""

from math import floor, inf
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from sim.autoscaling.protocol import AutoscalerKeys, Gauge, PoolMetrics, round_up
from sim.spec import Count, NonNegative, Positive, WholeNumber

TICK_S = 2.0
"""The autoscaler decides every two seconds (config-autoscaler: tick-interval)."""


class Kpa(AutoscalerKeys):
    """Knative's KPA on concurrency or requests per second."""

    policy: Literal["kpa"]
    min_replicas: WholeNumber = 0
    scrape_interval_s: Positive = 1.0
    metric: Literal["concurrency", "requests_per_s"] = "concurrency"
    """Metric per replica: concurrent requests, or requests per second."""
    target: Positive
    """Value of the metric per replica, before `target_utilization` is applied."""
    target_utilization: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Fraction of the target at which a replica runs."""
    stable_window_s: Positive = 60.0
    """Length of the stable window, over which the metric is averaged outside a panic [s]."""
    panic_window_percentage: Annotated[float, Field(ge=1, le=100)] = 10.0
    """Length of the panic window [% of the stable window]."""
    panic_threshold_percentage: Annotated[float, Field(ge=110, le=1000)] = 200.0
    """Desired replicas in the panic window above which a panic starts [% of the ready replicas]."""
    max_scale_up_rate: Annotated[float, Field(gt=1)] = 1000.0
    """Largest factor by which one decision multiplies the ready replicas."""
    max_scale_down_rate: Annotated[float, Field(gt=1)] = 2.0
    """Largest factor by which one decision divides the ready replicas."""
    scale_to_zero_grace_period_s: NonNegative = 30.0
    """Time that the last replica stays after the decision to scale to zero [s]."""
    scale_down_delay_s: NonNegative = 0.0
    """Time for which a lower number must have been desired before replicas are removed [s]."""
    activation_scale: Count = 1
    """Fewest replicas that are started from zero."""

    decides_on_arrival: ClassVar[bool] = True
    scales_from_zero: ClassVar[bool] = True

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return TICK_S

    @property
    def gauge(self) -> Gauge:
        """Gauge that the metric is computed from."""
        return "outstanding" if self.metric == "concurrency" else "requests_per_s"

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset([self.gauge])

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.stable_window_s

    def start(self) -> "RunningKpa":
        """Return a running autoscaler with these keys."""
        return RunningKpa(self)


class RunningKpa:
    """Running KPA of one pool."""

    def __init__(self, spec: Kpa) -> None:
        self._spec = spec
        self._panic_since_s: float | None = None
        self._most_in_panic = 0
        self._begun = False
        self._zero_since_s = inf
        self._delayed: list[tuple[float, int]] = []

    def wanted(self, seen: PoolMetrics) -> int:
        """Return the replicas for the stable window, or during a panic for the panic window.

        The number never falls during a panic.
        """
        spec, now = self._spec, seen.now
        if not self._begun:  # a pool with several replicas begins in a panic, because there is no history yet
            self._begun = True
            self._most_in_panic = seen.ready
            self._panic_since_s = now if seen.ready > 1 else None
        ready = max(1, seen.ready)
        panic_s = spec.stable_window_s * spec.panic_window_percentage / 100
        stable, panic = (self._by_metric(seen, window_s) for window_s in (spec.stable_window_s, panic_s))
        highest, lowest = round_up(spec.max_scale_up_rate * ready), floor(ready / spec.max_scale_down_rate)
        in_stable, in_panic = (
            self._with_activation_scale(one, min(max(one, lowest), highest)) for one in (stable, panic)
        )
        if panic / ready >= spec.panic_threshold_percentage / 100:
            self._panic_since_s = now
        elif self._panic_since_s is not None and self._panic_since_s + spec.stable_window_s < now:
            self._panic_since_s, self._most_in_panic = None, 0
        wanted = in_stable
        if self._panic_since_s is not None:
            wanted = self._most_in_panic = max(in_stable, in_panic, self._most_in_panic)
        return self._zero(seen, self._after_delay(now, wanted))

    def _by_metric(self, seen: PoolMetrics, window_s: float) -> int:
        value = seen.total(self._spec.gauge, window_s)
        wanted = round_up(value / (self._spec.target * self._spec.target_utilization))
        return max(wanted, 1) if seen.held else wanted

    def _with_activation_scale(self, by_metric: int, wanted: int) -> int:
        return max(wanted, self._spec.activation_scale) if by_metric else wanted

    def _after_delay(self, now: float, wanted: int) -> int:
        """Return the highest number that was desired during the scale-down delay."""
        if not self._spec.scale_down_delay_s:
            return wanted
        self._delayed = [one for one in self._delayed if one[0] > now - self._spec.scale_down_delay_s]
        self._delayed.append((now, wanted))
        return max(one for _, one in self._delayed)

    def _zero(self, seen: PoolMetrics, wanted: int) -> int:
        """Keep the last replica for the grace period."""
        if wanted or not seen.replicas:
            self._zero_since_s = inf
            return wanted
        self._zero_since_s = min(self._zero_since_s, seen.now)
        return 0 if seen.now - self._zero_since_s >= self._spec.scale_to_zero_grace_period_s else 1
