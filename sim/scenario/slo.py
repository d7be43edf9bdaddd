"""Service level objective: limits of each request, and limits of percentiles over all requests.

`with_limits` returns a service level with some limits replaced, as by `--set slo.ttft_s=2`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, ValidationError, WithJsonSchema

from sim.message import Message
from sim.scenario.reading.errors import InputError, ScenarioErrors
from sim.spec import Fraction, Spec
from sim.validation import did_you_mean, dotted, validation_issues

LATENCIES = ("ttft_s", "tpot_s", "e2e_s")
LOWEST_PERCENT, HIGHEST_PERCENT = 1.0, 99.9
NUMBER_AND_PERCENTILES = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "patternProperties": {r"^p[0-9]+(\.[0-9]+)?$": {"type": "number", "exclusiveMinimum": 0}},
        },
    ]
}


def _limit(value: Any) -> float | dict[str, float]:
    if isinstance(value, Mapping):
        if not value:
            raise ValueError("names no percentile: {p99: 2.0}, or a plain number as the limit of each request")
        return {_percentile(name): _seconds(limit, f"{name}: ") for name, limit in value.items()}
    return _seconds(value)


def _seconds(value: Any, where: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(
            Message("{where}a number of seconds above 0 is needed, or {{p99: seconds}}, not {value!r}", where, value)
        )
    return float(value)


def _percentile(name: Any) -> str:
    found = re.fullmatch(r"p(\d+(?:\.\d+)?)", str(name))
    if found is None or not LOWEST_PERCENT <= float(found[1]) <= HIGHEST_PERCENT:
        raise ValueError(
            Message("{name!r} is not a percentile: write p50, p95, p99 or another one from p1 to p99.9", name)
        )
    return f"p{float(found[1]):g}"


Share = Annotated[float, Field(gt=0, lt=1)]
Limit = Annotated[
    float | dict[str, float],
    PlainValidator(_limit),
    PlainSerializer(lambda limit: limit, return_type=Any),
    WithJsonSchema(NUMBER_AND_PERCENTILES),
]


@dataclass(frozen=True, slots=True)
class PercentileLimit:
    """Limit on a percentile of a latency."""

    latency: str
    """Name of the latency: ttft_s, tpot_s or e2e_s."""
    percent: float
    limit_s: float

    @property
    def column(self) -> str:
        """Name of its column in summary.csv: `ttft_s_p99`."""
        return f"{self.latency}_p{self.percent:g}"


@dataclass(frozen=True, slots=True)
class SloGoal:
    """Share of the requests that must satisfy all of some limits."""

    share: float
    limits: Mapping[str, float]
    """Limits [s] by latency: ttft_s, tpot_s, e2e_s."""
    percentile: PercentileLimit | None = None
    """Percentile limit that the goal expresses; None for the limits of each request."""


class ServiceLevel(Spec):
    """Latency limits, and the share of requests that must satisfy those of each request."""

    ttft_s: Limit | None = None
    """Limit of the time to first token, queueing included [s]: 3.0, or {p50: 0.5, p99: 2.0}."""
    tpot_s: Limit | None = None
    """Limit of the time per output token after the first [s]; one-token outputs always meet it, and no percentile
    counts them."""
    e2e_s: Limit | None = None
    """Limit of the time from arrival to last token [s]."""
    attainment: Fraction = 0.95
    """Share of the requests that must satisfy all limits of each request."""

    @property
    def per_request(self) -> dict[str, float]:
        """Limits of each request [s], by latency: ttft_s, tpot_s, e2e_s."""
        limits = {name: getattr(self, name) for name in LATENCIES}
        return {name: limit for name, limit in limits.items() if isinstance(limit, float)}

    @property
    def percentiles(self) -> tuple[PercentileLimit, ...]:
        """Limits on percentiles, in order."""
        limits = {name: getattr(self, name) for name in LATENCIES}
        return tuple(
            PercentileLimit(name, float(key[1:]), seconds)
            for name, limit in limits.items()
            if isinstance(limit, dict)
            for key, seconds in limit.items()
        )

    @property
    def goals(self) -> tuple[SloGoal, ...]:
        """Goals as shares of requests: a limit on p99 holds if 99 % of the requests are within it."""
        whole = (SloGoal(self.attainment, self.per_request),) if self.per_request else ()
        return (*whole, *(SloGoal(one.percent / 100, {one.latency: one.limit_s}, one) for one in self.percentiles))


class Slo(ServiceLevel):
    """Service level objective of a workload.

    A number is a limit of each request: a request is good when all such limits hold, and `attainment` is the share of
    requests that must be good. {p99: 2.0} is a limit on that percentile over all requests.
    """

    availability: Share | None = None
    """Target share of good requests over years of failures, which `capacity` and `size` then require, too: 0.999.
    Default: only failures in the simulated window count."""
    tenants: dict[str, ServiceLevel] | None = None
    """Limits by tenant, in place of the general ones; all must be satisfied. Default: the same limits for all
    tenants."""


def with_limits(slo: Slo, values: Mapping[str, Any]) -> Slo:
    """Return *slo* with *values* set: `ttft_s`, or `ttft_s.p99` for a percentile, -> limit. Raises ScenarioErrors.

    >>> with_limits(Slo(ttft_s=3.0), {"tpot_s.p99": 0.1, "attainment": 0.9}).model_dump(exclude_none=True)
    {'ttft_s': 3.0, 'tpot_s': {'p99': 0.1}, 'attainment': 0.9}
    """
    data = slo.model_dump(exclude_unset=True)
    wrong = []
    for path, value in values.items():
        name, _, percentile = path.partition(".")
        if name not in Slo.model_fields:
            wrong.append(
                InputError(
                    f"--set slo.{path}", 0, "", Message("is not a limit{hint}", did_you_mean(name, Slo.model_fields))
                )
            )
        limits = data.get(name)
        data[name] = {**(limits if isinstance(limits, dict) else {}), percentile: value} if percentile else value
    if wrong:
        raise ScenarioErrors(wrong)
    try:
        return Slo.model_validate(data)
    except ValidationError as error:
        issues = validation_issues(error, Slo, data)
        raise ScenarioErrors(
            InputError(f"--set slo.{dotted(one.place)}", 0, "", one.message) for one in issues
        ) from None
