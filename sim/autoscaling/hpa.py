"""Kubernetes' HorizontalPodAutoscaler on a metric of the replicas.

Source: kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details" and "Configurable scaling
behavior". A replica that starts has no metric yet: it counts with nothing on the way up, and with the target on the
way down.
"""

from typing import Literal

from sim.autoscaling.behavior import DOWN, UP, Behavior, Rules
from sim.autoscaling.protocol import ROUNDED, OnMetric, Seen, gauge_of, whole, within
from sim.spec import NonNegative, Positive


class Hpa(OnMetric):
    """Kubernetes' HPA: replicas x (metric / target), rounded up."""

    policy: Literal["hpa"]
    sync_period_s: Positive = 15.0
    """How often it decides."""
    tolerance: NonNegative = 0.1
    """A ratio of metric and target this close to 1 changes nothing."""
    metric_window_s: NonNegative = 0.0
    """Time over which monitoring averages the metric; 0: as last scraped."""
    scale_up_stabilization_s: NonNegative = 0.0
    """Window from which the lowest recommendation counts on the way up."""
    scale_down_stabilization_s: NonNegative = 300.0
    """Window from which the highest recommendation counts on the way down."""
    scale_up: Rules = UP
    """How fast replicas may be added."""
    scale_down: Rules = DOWN
    """How fast replicas may be removed."""

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return self.sync_period_s

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return self.metric_window_s

    def start(self) -> "RunningHpa":
        """The running autoscaler."""
        return RunningHpa(self)


class RunningHpa:
    """One pool's HPA."""

    def __init__(self, spec: Hpa) -> None:
        self._spec = spec
        windows = (spec.scale_up_stabilization_s, spec.scale_down_stabilization_s)
        self._behavior = Behavior(*windows, spec.scale_up, spec.scale_down)

    def wanted(self, seen: Seen) -> int:
        """Replicas after tolerance, stabilisation and scaling policies; as they are while nothing has been scraped."""
        spec, replicas = self._spec, seen.replicas
        values = seen.per_replica(gauge_of(spec.metric), spec.metric_window_s)
        if not values:
            return replicas
        recommended = recommendation(values, replicas, spec.target, spec.tolerance)
        bounded = min(max(recommended, spec.min_replicas), spec.max_replicas)
        return self._behavior.applied(seen.now, replicas, bounded, spec.min_replicas, spec.max_replicas)


def recommendation(values: list[float], replicas: int, target: float, tolerance: float) -> int:
    """Replicas that bring the mean of *values*, one of each replica with a metric, to *target*.

    >>> recommendation([200.0, 200.0], 2, target=100.0, tolerance=0.1)
    4
    >>> recommendation([200.0, 200.0], 3, target=100.0, tolerance=0.1)  # one without a metric counts with 0
    4
    """
    ratio = round(sum(values) / len(values) / target, ROUNDED)
    missing = replicas - len(values)
    if missing <= 0:
        return replicas if within(ratio, tolerance) else whole(ratio * len(values))
    taken = 0.0 if ratio > 1 else target
    with_them = round((sum(values) + missing * taken) / replicas / target, ROUNDED)
    if within(with_them, tolerance) or (ratio > 1) != (with_them > 1):
        return replicas
    wanted = whole(with_them * replicas)
    return replicas if (with_them > 1) != (wanted > replicas) else wanted
