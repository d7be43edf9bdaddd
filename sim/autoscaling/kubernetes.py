"""Kubernetes' HorizontalPodAutoscaler on a metric of the replicas, and KEDA, which drives it by queue length.

Source of the HPA: kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale, "Algorithm details" and
"Configurable scaling behavior" (autoscaling/v2: stabilisation windows and scaling policies). A replica that starts
has no metric yet: it counts as 0 on the way up, and as the target on the way down.

Source of KEDA: keda.sh, "ScaledObject specification" (pollingInterval 30, cooldownPeriod 300, minReplicaCount 0)
and "Scaling deployments": KEDA activates the pool and scales it to zero; between 1 and the maximum the HPA works on
an external metric with an average value.
"""

from collections.abc import Callable
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
    round_up,
    within,
)
from sim.spec import Count, NonNegative, Positive, Spec, WholeNumber


class RatePolicy(Spec):
    """Limit on the change of the number of replicas since the beginning of a period."""

    type: Literal["pods", "percent"]
    """Unit of `value`: replicas, or percent of the replicas at the beginning of the period."""
    value: Count
    """Largest change: replicas, or percent of the replicas at the beginning of the period."""
    period_s: Positive
    """Period within which changes are summed [s]."""


class Rules(Spec):
    """Scaling policies of one direction."""

    policies: tuple[RatePolicy, ...] = Field(min_length=1)
    """Rate limits; `select` chooses which of them applies."""
    select: Literal["max", "min", "disabled"] = "max"
    """Policy that applies: that with the largest or the smallest change; disabled: no change in this direction."""


DEFAULT_SCALE_UP = Rules(
    policies=(RatePolicy(type="percent", value=100, period_s=15), RatePolicy(type="pods", value=4, period_s=15))
)
DEFAULT_SCALE_DOWN = Rules(policies=(RatePolicy(type="percent", value=100, period_s=15),))


class Behavior:
    """HPA scaling behaviour: turns recommendations into replicas by stabilisation windows, then scaling policies."""

    def __init__(
        self, up_s: float, down_s: float, up: Rules = DEFAULT_SCALE_UP, down: Rules = DEFAULT_SCALE_DOWN
    ) -> None:
        """Set the stabilisation windows *up_s* and *down_s* [s] and the scaling policies of both directions."""
        self._up_s, self._down_s = up_s, down_s
        self._up, self._down = up, down
        self._recommended: list[tuple[float, int]] = []
        self._changes: list[tuple[float, int]] = []

    def applied(self, now: float, replicas: int, recommended: int, least: int, most: int) -> int:
        """Return the new number of replicas for *recommended* in a pool of *replicas*, between *least* and *most*."""
        wanted = self._limited(now, replicas, self._stabilised(now, replicas, recommended), least, most)
        if wanted != replicas:
            self._changes.append((now, wanted - replicas))
        return wanted

    def _stabilised(self, now: float, replicas: int, recommended: int) -> int:
        """Return the lowest recommendation of the window on the way up, the highest on the way down."""
        if not self._recommended:
            self._recommended.append((now, replicas))
        history_s = max(self._up_s, self._down_s)
        self._recommended = [one for one in self._recommended if one[0] > now - history_s or one[0] == now]
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
        """Return the number of replicas furthest from *replicas* that *rules* allow.

        The direction is upwards with *sign* 1 and downwards with -1; fractions of a replica are rounded up.
        """
        if rules.select == "disabled":
            return replicas
        found = []
        for rule in rules.policies:
            began = replicas - self._changed(now, rule.period_s)
            change = rule.value if rule.type == "pods" else began * rule.value / 100
            found.append(ceil(round(sign * began + change, ROUNDED)))
        return sign * (max(found) if rules.select == "max" else min(found))

    def _changed(self, now: float, period_s: float) -> int:
        """Return the net change of replicas in the last *period_s*."""
        return sum(change for at_s, change in self._changes if at_s > now - period_s)


class MetricScaler:
    """Running autoscaler of one pool that brings a metric of the replicas to its target.

    Parameters
    ----------
    spec
        Keys of the autoscaler.
    recommend
        Function of the metric's value at each replica that has one, and of the number of replicas; it returns a number
        of replicas.
    behavior
        Stabilisation windows and rate limits.

    """

    def __init__(
        self, spec: MetricAutoscalerKeys, recommend: Callable[[list[float], int], int], behavior: Behavior
    ) -> None:
        self._spec, self._recommend, self._behavior = spec, recommend, behavior

    def wanted(self, seen: PoolMetrics) -> int:
        """Return the recommended replicas within the bounds, after stabilisation and rate limits.

        The number is unchanged before the first scrape.
        """
        spec, replicas = self._spec, seen.replicas
        values = seen.per_replica(gauge_of(spec.metric), spec.metric_window_s)
        if not values:
            return replicas
        bounded = min(max(self._recommend(values, replicas), spec.min_replicas), spec.max_replicas)
        return self._behavior.applied(seen.now, replicas, bounded, spec.min_replicas, spec.max_replicas)


class Hpa(MetricAutoscalerKeys):
    """Kubernetes' HPA: replicas x (metric / target), rounded up."""

    policy: Literal["hpa"]
    tolerance: NonNegative = 0.1
    """Deviation of metric / target from 1 up to which nothing changes."""
    scale_up_stabilization_s: NonNegative = 0.0
    """Window whose lowest recommendation applies on the way up [s]."""
    scale_down_stabilization_s: NonNegative = 300.0
    """Window whose highest recommendation applies on the way down [s]."""
    scale_up: Rules = DEFAULT_SCALE_UP
    """Rate limits on adding replicas."""
    scale_down: Rules = DEFAULT_SCALE_DOWN
    """Rate limits on removing replicas."""

    def start(self) -> MetricScaler:
        """Return a running autoscaler with these keys."""
        windows = (self.scale_up_stabilization_s, self.scale_down_stabilization_s)
        return MetricScaler(self, self._recommendation, Behavior(*windows, self.scale_up, self.scale_down))

    def _recommendation(self, values: list[float], replicas: int) -> int:
        return recommendation(values, replicas, self.target, self.tolerance)


def recommendation(values: list[float], replicas: int, target: float, tolerance: float) -> int:
    """Return the number of replicas that brings the mean of *values* to *target*.

    *values* has an entry for each replica with a metric. Replicas without a metric count as 0 on the way up and as
    *target* on the way down.

    >>> recommendation([200.0, 200.0], 2, target=100.0, tolerance=0.1)
    4
    >>> recommendation([200.0, 200.0], 3, target=100.0, tolerance=0.1)  # the replica without a metric counts as 0
    4
    """
    ratio = round(sum(values) / len(values) / target, ROUNDED)
    missing = replicas - len(values)
    if missing <= 0:
        return replicas if within(ratio, tolerance) else round_up(ratio * len(values))
    taken = 0.0 if ratio > 1 else target
    with_them = round((sum(values) + missing * taken) / replicas / target, ROUNDED)
    if within(with_them, tolerance) or (ratio > 1) != (with_them > 1):
        return replicas
    wanted = round_up(with_them * replicas)
    return replicas if (with_them > 1) != (wanted > replicas) else wanted


class Keda(AutoscalerKeys):
    """KEDA autoscaler: queue length / target, rounded up.

    KEDA itself scales to zero and back; between 1 and the maximum, an HPA decides.
    """

    policy: Literal["keda"]
    min_replicas: WholeNumber = 0
    metric: Literal["waiting", "outstanding"] = "waiting"
    """Requests that are counted, at all replicas and at the router: waiting ones, or all outstanding ones."""
    target: Positive
    """Value of the metric per replica."""
    activation_threshold: NonNegative = 0.0
    """Value of the metric above which the pool is active."""
    polling_interval_s: Positive = 30.0
    """Time between two checks of the pool's activity [s]."""
    cooldown_period_s: NonNegative = 300.0
    """Time without activity until the pool is scaled to zero [s]."""
    sync_period_s: Positive = 15.0
    """Time between two decisions of the HPA [s]."""
    tolerance: NonNegative = 0.1
    """Deviation of metric / target from 1 up to which nothing changes."""
    scale_up_stabilization_s: NonNegative = 0.0
    """Window whose lowest recommendation applies on the way up [s]."""
    scale_down_stabilization_s: NonNegative = 300.0
    """Window whose highest recommendation applies on the way down [s]."""
    scale_up: Rules = DEFAULT_SCALE_UP
    """Rate limits on adding replicas."""
    scale_down: Rules = DEFAULT_SCALE_DOWN
    """Rate limits on removing replicas."""

    scales_from_zero: ClassVar[bool] = True

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return min(self.sync_period_s, self.polling_interval_s)

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset([self.metric])

    def start(self) -> "RunningKeda":
        """Return a running autoscaler with these keys."""
        return RunningKeda(self)


class RunningKeda:
    """Running ScaledObject of one pool, with its HPA."""

    def __init__(self, spec: Keda) -> None:
        self._spec = spec
        windows = (spec.scale_up_stabilization_s, spec.scale_down_stabilization_s)
        self._behavior = Behavior(*windows, spec.scale_up, spec.scale_down)
        self._active_s = -inf
        self._next_poll_s = 0.0
        self._next_sync_s = 0.0

    def wanted(self, seen: PoolMetrics) -> int:
        """Return zero or one replica by KEDA's activation rule, more by the HPA."""
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
        recommended = replicas if same else min(max(round_up(value / spec.target), least), spec.max_replicas)
        return self._behavior.applied(now, replicas, recommended, least, spec.max_replicas)
