"""Kubernetes' HorizontalPodAutoscaler on a metric of the replicas, and KEDA, which drives it by queue length.

Source of the HPA: kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details" and
"Configurable scaling behavior" (autoscaling/v2: stabilisation windows and scaling policies). A replica that starts
has no metric yet: it counts with nothing on the way up, and with the target on the way down.

Source of KEDA: keda.sh, "ScaledObject specification" (pollingInterval 30, cooldownPeriod 300, minReplicaCount 0)
and "Scaling deployments": KEDA activates the pool and scales it to zero; between 1 and the maximum the HPA works on
an external metric with an average value.
"""

from math import ceil, inf
from typing import ClassVar, Literal

from pydantic import Field

from sim.autoscaling.protocol import (
    ROUNDED,
    AutoscalerKeys,
    Gauge,
    MetricAutoscalerKeys,
    PoolMetrics,
    gauge_of,
    whole,
    within,
)
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber


class RatePolicy(Spec):
    """At most so many replicas more or fewer than at the beginning of a period."""

    type: Literal["pods", "percent"]
    value: Count
    """Replicas, or percent of those at the beginning of the period."""
    period_s: Positive


class Rules(Spec):
    """Scaling policies of one direction."""

    policies: tuple[RatePolicy, ...] = Field(min_length=1)
    select: Literal["max", "min", "disabled"] = "max"
    """The policy that allows the largest or the smallest change; disabled: no change in this direction."""


UP = Rules(policies=(RatePolicy(type="percent", value=100, period_s=15), RatePolicy(type="pods", value=4, period_s=15)))
DOWN = Rules(policies=(RatePolicy(type="percent", value=100, period_s=15),))


class Behavior:
    """Turns recommendations into replicas: first the stabilisation windows, then the policies, as the HPA does."""

    def __init__(self, up_s: float, down_s: float, up: Rules = UP, down: Rules = DOWN) -> None:
        """*up_s* and *down_s* are the stabilisation windows [s]."""
        self._up_s, self._down_s = up_s, down_s
        self._up, self._down = up, down
        self._recommended: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []

    def applied(self, now: float, replicas: int, recommended: int, least: int, most: int) -> int:
        """What *recommended* comes to for a pool of *replicas*, between *least* and *most*."""
        wanted = self._limited(now, replicas, self._stabilised(now, replicas, recommended), least, most)
        if wanted != replicas:
            self._changes.append((now, wanted - replicas))
        return wanted

    def _stabilised(self, now: float, replicas: int, recommended: int) -> int:
        """The lowest recommendation of the window on the way up, the highest on the way down."""
        if not self._recommended:
            self._recommended.append((now, replicas))
        keep_s = max(self._up_s, self._down_s)
        self._recommended = [one for one in self._recommended if one[0] > now - keep_s or one[0] == now]
        up = min([recommended, *(one for at_s, one in self._recommended if at_s > now - self._up_s)])
        down = max([recommended, *(one for at_s, one in self._recommended if at_s > now - self._down_s)])
        self._recommended.append((now, recommended))
        return min(max(replicas, up), down)

    def _limited(self, now: float, replicas: int, wanted: int, least: int, most: int) -> int:
        longest_s = max(rule.period_s for rules in (self._up, self._down) for rule in rules.policies)
        self._changes = [one for one in self._changes if one[0] > now - longest_s]
        if wanted > replicas:
            return min(wanted, most, max(replicas, self._furthest(self._up, 1, now, replicas)))
        if wanted < replicas:
            return max(wanted, least, min(replicas, self._furthest(self._down, -1, now, replicas)))
        return wanted

    def _furthest(self, rules: Rules, sign: int, now: float, replicas: int) -> int:
        """How far *rules* let *replicas* go, up with *sign* 1, down with -1; a part of a replica counts whole."""
        if rules.select == "disabled":
            return replicas
        found = []
        for rule in rules.policies:
            began = replicas - self._changed(now, rule.period_s)
            change = rule.value if rule.type == "pods" else began * rule.value / 100
            found.append(ceil(round(sign * began + change, ROUNDED)))
        return sign * (max(found) if rules.select == "max" else min(found))

    def _changed(self, now: float, period_s: float) -> int:
        """Replicas added less those removed in the last *period_s*."""
        return sum(change for at_s, change in self._changes if at_s > now - period_s)


class Hpa(MetricAutoscalerKeys):
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

    def wanted(self, seen: PoolMetrics) -> int:
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


class Keda(AutoscalerKeys):
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

    def wanted(self, seen: PoolMetrics) -> int:
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
