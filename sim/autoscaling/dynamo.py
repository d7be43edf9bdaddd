"""NVIDIA Dynamo's load-based planner for workers that compute prompts and answers alike.

Source: ai-dynamo/dynamo, docs/architecture/load_planner.md: the mean KV cache utilisation of an adjustment interval
against two thresholds, one worker at a time, no adjustment while one is under way, and no worker removed within three
intervals after one was added.
"""

from math import inf
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from sim.autoscaling.protocol import Bounds, Gauge, Seen
from sim.spec import Fraction, Positive, WholeNumber


class Dynamo(Bounds):
    """One replica more or fewer by the utilisation of the KV cache."""

    policy: Literal["dynamo"]
    scrape_interval_s: Positive = 1.0
    adjustment_interval_s: Positive = 30.0
    kv_scale_up_threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    kv_scale_down_threshold: Fraction = 0.5
    grace_intervals: WholeNumber = 3
    """Adjustment intervals behind an added replica in which none is removed."""

    @model_validator(mode="after")
    def _thresholds_in_order(self) -> Self:
        if self.kv_scale_down_threshold >= self.kv_scale_up_threshold:
            raise ValueError("kv_scale_down_threshold must be below kv_scale_up_threshold")
        return self

    @property
    def period_s(self) -> float:
        """How often it decides [s]."""
        return self.adjustment_interval_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """What has to be read of the replicas."""
        return frozenset(["kv_used"])

    @property
    def keep_s(self) -> float:
        """How far back it looks at readings [s]."""
        return self.adjustment_interval_s

    def start(self) -> "RunningPlanner":
        """The running autoscaler."""
        return RunningPlanner(self)


class RunningPlanner:
    """One pool's planner."""

    def __init__(self, spec: Dynamo) -> None:
        self._spec = spec
        self._added_s = -inf

    def wanted(self, seen: Seen) -> int:
        """One more, one fewer or as many as there are."""
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
