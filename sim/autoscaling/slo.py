"""Replicas by the headroom of a latency under its limit: a simple controller of this program's own."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.autoscaling.protocol import AutoscalerKeys, Gauge, Latency, PoolMetrics, whole
from sim.spec import NonNegative, Positive

MOST_AT_ONCE = 2.0
"""A decision at most doubles the replicas: how latency falls with replicas is not known to the controller."""


class SloScaler(AutoscalerKeys):
    """More replicas when a latency comes near its limit, one fewer when it is far below it.

    Latencies are those of finished requests, so they come late by the length of an answer.
    """

    policy: Literal["slo"]
    ttft_s: Positive | None = None
    """Limit of the time to first token."""
    tpot_s: Positive | None = None
    """Limit of the time per output token."""
    percentile: Annotated[float, Field(gt=0, lt=100)] = 95.0
    """Of the latencies in the window."""
    metric_window_s: Positive = 120.0
    sync_period_s: Positive = 30.0
    """How often it decides."""
    scale_up_at: Positive = 0.8
    """Part of the limit above which replicas are added."""
    scale_down_at: NonNegative = 0.4
    """Part of the limit below which one is removed."""
    scale_down_stabilization_s: NonNegative = 300.0
    """Time without a change before one is removed."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None:
            raise ValueError("needs a limit: ttft_s, tpot_s or both")
        if self.scale_down_at >= self.scale_up_at:
            raise ValueError(f"scale_down_at ({self.scale_down_at:g}) must be below scale_up_at ({self.scale_up_at:g})")
        return self

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return self.sync_period_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return frozenset(["outstanding"])

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return self.metric_window_s

    def start(self) -> "RunningSlo":
        """The running autoscaler."""
        return RunningSlo(self)


class RunningSlo:
    """One pool's controller."""

    def __init__(self, spec: SloScaler) -> None:
        self._spec = spec
        self._changed_s = 0.0

    def wanted(self, seen: PoolMetrics) -> int:
        """Replicas by the latency that is nearest to its limit; new ones start before more are asked for."""
        spec, replicas = self._spec, seen.replicas
        if seen.ready < replicas:
            self._changed_s = seen.now
            return replicas
        used = self._used(seen)
        if used is not None and used > spec.scale_up_at:
            self._changed_s = seen.now
            return whole(replicas * min(MOST_AT_ONCE, used / spec.scale_up_at))
        quiet = used is None and not seen.total("outstanding", 0.0)
        far = used is not None and used < spec.scale_down_at
        if (quiet or far) and seen.now - self._changed_s >= spec.scale_down_stabilization_s:
            self._changed_s = seen.now
            return replicas - 1
        return replicas

    def _used(self, seen: PoolMetrics) -> float | None:
        """Part of the limit that the latency takes up, of the tighter limit."""
        spec = self._spec
        limits: list[tuple[Latency, float | None]] = [("ttft_s", spec.ttft_s), ("tpot_s", spec.tpot_s)]
        found = [
            latency_s / limit_s
            for name, limit_s in limits
            if limit_s is not None
            and (latency_s := seen.latency_s(name, spec.percentile / 100, spec.metric_window_s)) is not None
        ]
        return max(found, default=None)
