"""Autoscalers of platforms for serving LLMs: AIBrix's pod autoscaler and NVIDIA Dynamo's planner.

AIBrix's APA is the HPA's ratio with a tolerance and a rate limit for each direction. Source: vllm-project/aibrix,
pkg/controller/podautoscaler/algorithm/apa.go, and the defaults of
docs/source/features/autoscaling/metric-based-autoscaling.rst (window 180 s, tolerances 0.1, rates 2, cooldown
windows 0 and 300 s).

Dynamo's load-based planner is for workers that compute prompts and answers alike. Source: ai-dynamo/dynamo,
docs/architecture/load_planner.md: the mean KV cache utilisation of an adjustment interval against two thresholds,
one worker at a time, no adjustment while one is under way, and no worker removed within three intervals after one
was added.
"""

from math import floor, inf
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.autoscaling.kubernetes import Behavior, MetricScaler, RatePolicy, Rules
from sim.autoscaling.protocol import (
    ROUNDED,
    AutoscalerKeys,
    Gauge,
    MetricAutoscalerKeys,
    PoolMetrics,
    round_up,
)
from sim.spec import Fraction, NonNegative, Positive, WholeNumber

UNLIMITED = Rules(policies=(RatePolicy(type="percent", value=1_000_000, period_s=1),))
"""Rate limits without effect: the algorithm has its own limits."""


class Aibrix(MetricAutoscalerKeys):
    """AIBrix's APA on a metric of the replicas."""

    policy: Literal["aibrix"]
    sync_period_s: Positive = 10.0
    metric_window_s: NonNegative = 180.0
    scale_up_tolerance: NonNegative = 0.1
    """Excess of metric / target over 1 up to which no replica is added."""
    scale_down_tolerance: Fraction = 0.1
    """Shortfall of metric / target below 1 up to which no replica is removed."""
    max_scale_up_rate: Annotated[float, Field(gt=1)] = 2.0
    """Largest factor by which one decision multiplies the replicas."""
    max_scale_down_rate: Annotated[float, Field(gt=1)] = 2.0
    """Largest factor by which one decision divides the replicas."""
    scale_up_cooldown_s: NonNegative = 0.0
    """Window whose lowest recommendation applies on the way up [s]."""
    scale_down_cooldown_s: NonNegative = 300.0
    """Window whose highest recommendation applies on the way down [s]."""

    def start(self) -> MetricScaler:
        """Return a running autoscaler with these keys."""
        behavior = Behavior(self.scale_up_cooldown_s, self.scale_down_cooldown_s, UNLIMITED, UNLIMITED)
        return MetricScaler(self, self._recommendation, behavior)

    def _recommendation(self, values: list[float], replicas: int) -> int:
        """Return the replicas for the ratio of metric and target, beyond the tolerance and within the rate limits."""
        ratio = round(sum(values) / len(values) / self.target, ROUNDED)
        if ratio > round(1 + self.scale_up_tolerance, ROUNDED):
            return min(round_up(replicas * ratio), round_up(self.max_scale_up_rate * replicas))
        if ratio < round(1 - self.scale_down_tolerance, ROUNDED):
            return max(round_up(replicas * ratio), floor(replicas / self.max_scale_down_rate))
        return replicas


class Dynamo(AutoscalerKeys):
    """Dynamo's load planner: adds or removes one replica at a time by KV cache utilisation."""

    policy: Literal["dynamo"]
    scrape_interval_s: Positive = 1.0
    adjustment_interval_s: Positive = 30.0
    """Time between two decisions, over which the KV cache utilisation is averaged [s]."""
    kv_scale_up_threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    """KV cache utilisation above which a replica is added [1]."""
    kv_scale_down_threshold: Fraction = 0.5
    """KV cache utilisation below which a replica is removed [1]."""
    grace_intervals: WholeNumber = 3
    """Adjustment intervals after an added replica in which none is removed."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.kv_scale_down_threshold >= self.kv_scale_up_threshold:
            raise ValueError("kv_scale_down_threshold must be below kv_scale_up_threshold")
        return self

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return self.adjustment_interval_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset(["kv_used"])

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.adjustment_interval_s

    def start(self) -> "RunningPlanner":
        """Return a running autoscaler with these keys."""
        return RunningPlanner(self)


class RunningPlanner:
    """Running planner of one pool."""

    def __init__(self, spec: Dynamo) -> None:
        self._spec = spec
        self._added_s = -inf

    def wanted(self, seen: PoolMetrics) -> int:
        """Return one replica more, one fewer, or the current number."""
        spec, replicas = self._spec, seen.replicas
        values = seen.per_replica("kv_used", spec.adjustment_interval_s)
        if seen.ready != replicas or not values:
            return replicas
        used = sum(values) / len(values)
        if used > spec.kv_scale_up_threshold:
            if replicas < spec.max_replicas:
                self._added_s = seen.now
            return replicas + 1
        quiet_s = spec.grace_intervals * spec.adjustment_interval_s
        if used < spec.kv_scale_down_threshold and seen.now - self._added_s > quiet_s:
            return replicas - 1
        return replicas
