"""KEDA on the length of the queue: it activates the pool and sends it to sleep, an HPA does the rest.

Source: keda.sh, "ScaledObject specification" (pollingInterval 30, cooldownPeriod 300, minReplicaCount 0) and "Scaling
deployments": between 1 and the maximum the HPA works on an external metric with an average value.
"""

from math import inf
from typing import ClassVar, Literal

from sim.autoscaling.behavior import DOWN, UP, Behavior, Rules
from sim.autoscaling.protocol import ROUNDED, Bounds, Gauge, Seen, whole, within
from sim.spec import NonNegative, Positive, WholeNumber


class Keda(Bounds):
    """KEDA: queue length / target, rounded up, by way of an HPA; to zero and back by itself."""

    policy: Literal["keda"]
    min_replicas: WholeNumber = 0
    metric: Literal["waiting", "outstanding"] = "waiting"
    """Requests of all replicas and at the router: those that wait, or all."""
    target: Positive
    """Of the metric, per replica."""
    activation_threshold: NonNegative = 0.0
    """A metric above it keeps or makes the pool active."""
    polling_interval_s: Positive = 30.0
    """How often KEDA looks whether the pool is active."""
    cooldown_period_s: NonNegative = 300.0
    """Without activity, how long until the pool is scaled to zero."""
    sync_period_s: Positive = 15.0
    """How often the HPA decides."""
    tolerance: NonNegative = 0.1
    scale_up_stabilization_s: NonNegative = 0.0
    scale_down_stabilization_s: NonNegative = 300.0
    scale_up: Rules = UP
    scale_down: Rules = DOWN

    to_zero: ClassVar[bool] = True

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return min(self.sync_period_s, self.polling_interval_s)

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return frozenset([self.metric])

    def start(self) -> "RunningKeda":
        """The running autoscaler."""
        return RunningKeda(self)


class RunningKeda:
    """One pool's ScaledObject and its HPA."""

    def __init__(self, spec: Keda) -> None:
        self._spec = spec
        windows = (spec.scale_up_stabilization_s, spec.scale_down_stabilization_s)
        self._behavior = Behavior(*windows, spec.scale_up, spec.scale_down)
        self._active_s = -inf
        self._next_poll_s = 0.0
        self._next_sync_s = 0.0

    def wanted(self, seen: Seen) -> int:
        """Zero or one by KEDA, more by the HPA."""
        spec, now, replicas = self._spec, seen.now, seen.replicas
        value = seen.total(spec.metric, 0.0)
        if now >= self._next_poll_s:
            self._next_poll_s = now + spec.polling_interval_s
            if value > spec.activation_threshold or self._active_s == -inf:
                self._active_s = now
            if replicas == 0:
                return max(1, spec.min_replicas) if value > spec.activation_threshold else 0
            if spec.min_replicas == 0 and now - self._active_s > spec.cooldown_period_s:
                return 0
        if replicas == 0 or now < self._next_sync_s:
            return replicas
        self._next_sync_s = now + spec.sync_period_s
        ratio = round(value / (spec.target * replicas), ROUNDED)
        same = within(ratio, spec.tolerance)
        least = max(1, spec.min_replicas)
        recommended = replicas if same else min(max(whole(value / spec.target), least), spec.max_replicas)
        return self._behavior.applied(now, replicas, recommended, least, spec.max_replicas)
