"""Autoscaling by the headroom of a latency under its limit: a simple controller of this simulator."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.autoscaling.protocol import AutoscalerKeys, Gauge, Latency, PoolMetrics, round_up
from sim.message import Message
from sim.spec import NonNegative, Positive

MOST_AT_ONCE = 2.0
"""Largest growth factor of one decision: the controller does not know how latency falls with replicas."""


class SloScaler(AutoscalerKeys):
    """SLO autoscaler: adds replicas when a latency approaches its limit, removes one when it is far below.

    Latencies are those of finished requests, so they lag by the length of an answer.
    """

    policy: Literal["slo"]
    ttft_s: Positive | None = None
    """Limit of the time to first token [s]."""
    tpot_s: Positive | None = None
    """Limit of the time per output token [s]."""
    percentile: Annotated[float, Field(gt=0, lt=100)] = 95.0
    """Percentile of the latencies in the window that is compared with the limit."""
    metric_window_s: Positive = 120.0
    """Window whose finished requests the percentile is computed from [s]."""
    sync_period_s: Positive = 30.0
    """Time between two decisions [s]."""
    scale_up_at: Positive = 0.8
    """Fraction of the limit above which replicas are added."""
    scale_down_at: NonNegative = 0.4
    """Fraction of the limit below which a replica is removed."""
    scale_down_stabilization_s: NonNegative = 300.0
    """Time without a change before a replica is removed [s]."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if self.ttft_s is None and self.tpot_s is None:
            raise ValueError("needs a limit: ttft_s, tpot_s or both")
        if self.scale_down_at >= self.scale_up_at:
            raise ValueError(
                Message(
                    "scale_down_at ({scale_down_at:g}) must be below scale_up_at ({scale_up_at:g})",
                    self.scale_down_at,
                    self.scale_up_at,
                )
            )
        return self

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return self.sync_period_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset(["outstanding"])

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.metric_window_s

    def start(self) -> "RunningSlo":
        """Return a running autoscaler with these keys."""
        return RunningSlo(self)


class RunningSlo:
    """Running controller of one pool."""

    def __init__(self, spec: SloScaler) -> None:
        self._spec = spec
        self._changed_s = 0.0

    def wanted(self, seen: PoolMetrics) -> int:
        """Return the replicas for the latency closest to its limit; unchanged while replicas are starting."""
        spec, replicas = self._spec, seen.replicas
        if seen.ready < replicas:
            self._changed_s = seen.now
            return replicas
        used = self._used(seen)
        if used is not None and used > spec.scale_up_at:
            self._changed_s = seen.now
            return round_up(replicas * min(MOST_AT_ONCE, used / spec.scale_up_at))
        quiet = used is None and not seen.total("outstanding", 0.0)
        far = used is not None and used < spec.scale_down_at
        if (quiet or far) and seen.now - self._changed_s >= spec.scale_down_stabilization_s:
            self._changed_s = seen.now
            return replicas - 1
        return replicas

    def _used(self, seen: PoolMetrics) -> float | None:
        """Return the latency as a fraction of its limit, for the tighter limit; None without finished requests."""
        spec = self._spec
        limits: list[tuple[Latency, float | None]] = [("ttft_s", spec.ttft_s), ("tpot_s", spec.tpot_s)]
        found = [
            latency_s / limit_s
            for name, limit_s in limits
            if limit_s is not None
            and (latency_s := seen.latency_s(name, spec.percentile / 100, spec.metric_window_s)) is not None
        ]
        return max(found, default=None)
