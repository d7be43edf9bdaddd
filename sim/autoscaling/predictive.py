"""Autoscaling by a forecast of the load at the time when new replicas will serve.

The forecast is additive Holt-Winters, or yesterday's curve. Source of the Holt-Winters recursions: Hyndman and
Athanasopoulos, Forecasting: Principles and Practice, 8.3.
"""

from math import floor
from typing import Annotated, Literal

from pydantic import Field

from sim.autoscaling.protocol import AutoscalerKeys, Gauge, PoolMetrics, round_up
from sim.spec import Fraction, NonNegative, Positive


class Predictive(AutoscalerKeys):
    """Forecast autoscaler: forecast arrival rate / rate that a replica serves, rounded up."""

    policy: Literal["predictive"]
    method: Literal["holt_winters", "yesterday"] = "holt_winters"
    """Forecast method. holt_winters: level, trend and season, each smoothed exponentially; yesterday: the arrival rate
    of a season ago."""
    target_rps: Positive
    """Requests per second that one replica serves."""
    lead_s: NonNegative = 300.0
    """Forecast horizon [s]: a replica's start and the time until the next decision."""
    margin: NonNegative = 0.1
    """Safety margin, as a fraction of the forecast."""
    bucket_s: Positive = 300.0
    """Length of the buckets over which arrivals are averaged [s]; each ends with a decision."""
    season_s: Positive = 86400.0
    """Length of the season [s], usually a day."""
    yesterday_rps: Annotated[tuple[NonNegative, ...], Field(min_length=1)] | None = None
    """Arrival rates of the previous day, evenly spread over the season. Default: none; the first day is forecast by its
    own trend."""
    alpha: Fraction = 0.5
    """Weight of the newest bucket in the level."""
    beta: Fraction = 0.1
    """Weight of the newest bucket in the trend."""
    gamma: Fraction = 0.3
    """Weight of the newest bucket in the season."""

    @property
    def period_s(self) -> float:
        """Time between two decisions [s]."""
        return self.bucket_s

    @property
    def gauges(self) -> frozenset[Gauge]:
        """Gauges that are read from the replicas."""
        return frozenset(["requests_per_s"])

    @property
    def history_s(self) -> float:
        """Length of the history of readings that decisions use [s]."""
        return self.bucket_s

    def start(self) -> "RunningForecast":
        """Return a running autoscaler with these keys."""
        return RunningForecast(self)


class RunningForecast:
    """Running forecast of one pool."""

    def __init__(self, spec: Predictive) -> None:
        self._spec = spec
        self._buckets = max(1, round(spec.season_s / spec.bucket_s))
        self._season = [0.0] * self._buckets
        self._level = self._trend = 0.0
        self._seen: list[float] = []
        if spec.yesterday_rps is not None:
            days = spec.yesterday_rps
            self._seen = [days[floor(i * len(days) / self._buckets)] for i in range(self._buckets)]
            self._settle()

    def wanted(self, seen: PoolMetrics) -> int:
        """Return the replicas for the highest rate that is forecast within the lead time."""
        spec = self._spec
        self._add(seen.total("requests_per_s", spec.bucket_s))
        ahead = max(1, round_up(spec.lead_s / spec.bucket_s))
        rate_rps = max(self._forecast(step) for step in range(1, ahead + 1))
        return round_up(max(0.0, rate_rps) * (1 + spec.margin) / spec.target_rps)

    def _settle(self) -> None:
        """Initialise level and season from a complete first season."""
        self._level = sum(self._seen) / self._buckets
        self._season = [one - self._level for one in self._seen]
        self._trend = 0.0

    def _add(self, rate_rps: float) -> None:
        spec, place = self._spec, len(self._seen) % self._buckets
        first = len(self._seen) < self._buckets
        self._seen.append(rate_rps)
        if len(self._seen) == 1:
            self._level = rate_rps
            return
        before, season = self._level + self._trend, 0.0 if first else self._season[place]
        level = spec.alpha * (rate_rps - season) + (1 - spec.alpha) * before
        self._trend = spec.beta * (level - self._level) + (1 - spec.beta) * self._trend
        self._level = level
        if not first:
            self._season[place] = spec.gamma * (rate_rps - before) + (1 - spec.gamma) * season
        if len(self._seen) == self._buckets:
            self._settle()

    def _forecast(self, step: int) -> float:
        """Return the forecast rate *step* buckets after the last observed bucket."""
        place = len(self._seen) + step - 1
        if self._spec.method == "yesterday":
            before = place - self._buckets
            return self._seen[before] if before >= 0 else self._seen[-1]
        season = self._season[place % self._buckets] if len(self._seen) >= self._buckets else 0.0
        return self._level + step * self._trend + season
