"""Sections `precision` (target width of confidence intervals) and `limits` (largest size of a run)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from sim.message import Message
from sim.scenario.experiment import Experiment
from sim.scenario.sections import Everything, Section
from sim.scenario.sweep import is_deterministic
from sim.spec import Count, Positive, Spec
from sim.validation import ValidationIssue


class ScenarioLimits(Spec):
    """Limits on the size of a run, checked before anything runs, so that a mistyped exponent is found at once.

    With more memory or time, any of them may be raised.
    """

    points: Annotated[Count, Field(le=1_000_000)] = 10_000
    """Points of the sweep; each takes some 10 ms to check."""
    cases: Count = 100_000
    """Fleets x sweep points x replications (with a precision, its max_replications)."""
    requests: Count = 20_000_000
    """Requests in one case: about 15 GB of memory."""
    replicas: Count = 100_000
    """Replicas of one fleet, with each data-parallel rank counted: about 0.5 GB and 10 s per case."""
    usage_rows: Count = 10_000_000
    """Replicas x meter intervals in one case, plus rows that failures and interruptions add."""
    readings: Count = 100_000_000
    """Replicas x scrapes of the autoscalers in one case, plus their decisions."""
    months: Count = 1200
    """Time span of `plan` and `breakeven` [months]."""


LIMITS: Section[ScenarioLimits] = Section(effort=True)


FIRST_REPLICATIONS = 5
"""Number of replications that a run with a precision begins with: fewer make the interval's width unreliable."""

Metric = Literal[
    "ttft_s_mean",
    "ttft_s_p50",
    "ttft_s_p95",
    "ttft_s_p99",
    "tpot_s_mean",
    "tpot_s_p50",
    "tpot_s_p95",
    "tpot_s_p99",
    "e2e_s_mean",
    "e2e_s_p50",
    "e2e_s_p95",
    "e2e_s_p99",
    "queue_s_p95",
    "slo_attainment",
    "goodput_rps",
    "requests_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "usd_per_million_output_tokens",
    "usd_per_million_tokens",
    "usd_per_million_good_tokens",
]
"""Columns of summary.csv that differ between replications."""


MOST_OF_CAPACITY = 30
"""Default for the most replications of a capacity search."""


class Precision(Spec):
    """Target precision: replications are added until the confidence intervals are narrow enough.

    From five replications on, more are added until at every point the half-width of the 95 % interval of `metric` is at
    most `relative` of its mean for every fleet. Points that are overloaded, or where the metric is infinite, are left
    out. `capacity`, `breakeven` and `plan` apply it to the capacity of every fleet in the same way.
    """

    metric: Metric | None = None
    """Column of summary.csv that `run` makes precise. Default: `run` adds no replications."""
    relative: Annotated[Positive, Field(lt=1)] = 0.1
    """Half-width of the 95 % interval as a fraction of the mean; 0.05: plus or minus 5 %."""
    max_replications: Annotated[Count, Field(ge=FIRST_REPLICATIONS)] = 100
    """Most replications at a point that does not reach the precision."""
    max_horizon_s: Positive | None = None
    """Longest horizon to which `capacity`, `breakeven` and `plan` lengthen `horizon_s` [s], which they do until no
    capacity changes with it. Default: until a run has 20,000 requests at its capacity."""


def _check(precision: Precision, scenario: Experiment, _: Everything) -> Iterator[ValidationIssue]:
    """Yield issues of a precision that no number of replications can reach."""
    # with `size` and without fleets, the tried fleets have costs, and differ by seed only if the workload is random
    fixed = [is_deterministic(scenario, fleet) for fleet in scenario.fleets] or [scenario.workload.deterministic]
    if all(fixed):
        yield ValidationIssue(("precision",), "nothing here is random: all replications would be equal")
    if precision.max_replications < scenario.replications:
        text = Message(
            "must not be below replications ({replications}), not {max_replications}",
            scenario.replications,
            precision.max_replications,
        )
        yield ValidationIssue(("precision", "max_replications"), text)
    if precision.metric is None:
        return
    priced = [fleet.is_priced for fleet in scenario.fleets] or [True]
    if precision.metric.startswith("usd") and not any(priced):
        yield ValidationIssue(("precision", "metric"), Message("{metric} needs a fleet with a cost", precision.metric))
    levels = [one.slo for one in scenario.services] or [scenario.slo]
    if precision.metric == "slo_attainment" and not any(one.per_request for one in levels):
        yield ValidationIssue(
            ("precision", "metric"), "slo_attainment needs a limit in slo that holds for each request"
        )


PRECISION = Section(
    ignored_by=("size", "sensitivity"),
    effort=True,
    check=_check,
    example="# precision: {metric: ttft_s_p95, relative: 0.05}   # adds replications until it is known to 5 %",
)
