"""Intervals from a single run: the observations are cut into batches, and the batches are treated as replications.

Sources: A. M. Law, Simulation Modeling and Analysis, 5th ed., section 9.5.3 (batch means); B. Schmeiser, "Batch size
effects in the analysis of simulation output", Operations Research 30(3), 1982 (few long batches are enough, and safer
than many short ones: on the main scenario 30 of 20 requests covered 54 %, 5 of 50 cover 90 %);
G. S. Fishman, "Grouping observations in digital simulation", Management Science 24(5), 1978 (von Neumann's ratio, to
show whether batches still depend on each other); a percentile has the batches' percentiles for its observations
(A. F. Seila, "A batching approach to quantile estimation in regenerative simulations", Management Science 28(5), 1982).
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.study.metrics.cohort import Cohort, Floats
from sim.study.metrics.statistics import half_width, normal_quantile

BATCHES = (10, 5)
LEAST_IN_BATCH = 50
LEAST_IN_TAIL = 10
"""Of each batch, beyond the percentile: from fewer, its bias is larger than the spread that batches show."""
SPANS = (30, 20, 10)
"""For rates, which depend less on what was before."""
LEAST_IN_SPAN = 20
INDEPENDENT = normal_quantile(0.95)
"""Von Neumann's ratio is normal for independent batches; above this they are correlated (one-sided, 5 %)."""


def mean_half_width(series: Floats) -> float | None:
    """Half of the 95 % interval of the mean of *series*, in order of time; None where it cannot be estimated."""
    return _half_width(series, LEAST_IN_BATCH, lambda batches: batches.mean(axis=1))


def percentile_half_width(series: Floats, percent: float) -> float | None:
    """Half of the 95 % interval of a percentile (numpy's linear one) of *series*; None where it cannot be estimated."""
    tail = min(percent, 100 - percent) / 100
    least = max(LEAST_IN_BATCH, int(np.ceil(LEAST_IN_TAIL / tail)))
    return _half_width(series, least, lambda batches: np.percentile(batches, percent, axis=1))


def rate_half_width(dates_s: Floats, amounts: Floats, start_s: float, end_s: float) -> float | None:
    """Half of the 95 % interval of the amount per second from *start_s* to *end_s*; batches are equal spans."""
    for count in SPANS:
        if len(dates_s) // count >= LEAST_IN_SPAN:
            sums, _ = np.histogram(dates_s, count, (start_s, end_s), weights=amounts)
            if independent(sums):
                return half_width((sums * (count / (end_s - start_s))).tolist())
    return None


def _half_width(series: Floats, least: int, statistic: Callable[[Floats], Floats]) -> float | None:
    """None for too few observations, for infinite ones, and where even five batches depend on each other."""
    if not np.isfinite(series).all():
        return None
    for count in BATCHES:
        size = len(series) // count
        if size >= least:
            values = statistic(series[len(series) - count * size :].reshape(count, size))
            if independent(values):
                return half_width(values.tolist())
    return None


def independent(values: Floats) -> bool:
    """Whether neighbours among *values* are no more alike than any two of them, by von Neumann's ratio.

    C = 1 - sum((x_i - x_i+1)^2) / (2 sum((x_i - mean)^2)) has the variance (n - 2) / (n^2 - 1).
    """
    count = len(values)
    spread = float(((values - values.mean()) ** 2).sum())
    if spread == 0:
        return True
    ratio = 1 - float((np.diff(values) ** 2).sum()) / (2 * spread)
    return bool(ratio * ((count**2 - 1) / (count - 2)) ** 0.5 <= INDEPENDENT)


def rate_intervals(cohort: Cohort, good: NDArray[np.bool_]) -> dict[str, float | None]:
    """Half-widths of 95 % intervals of rates, where *good* are the requests within the limits, measured or not.

    A request's tokens count where it finishes: over a span of many requests that is when they are made.
    """
    served, ones = cohort.served(), np.ones(len(cohort.arrived_s))
    events: Mapping[str, tuple[Floats, NDArray[Any], NDArray[np.bool_]]] = {
        "offered_rps": (cohort.arrived_s, ones, cohort.measured),
        "requests_per_s": (cohort.finished_s, ones, served),
        "goodput_rps": (cohort.arrived_s, ones, good & cohort.measured),
        "output_tokens_per_s": (cohort.finished_s, cohort.output_tokens, served),
        "total_tokens_per_s": (cohort.finished_s, cohort.tokens, served),
        "good_output_tokens_per_s": (cohort.finished_s, cohort.output_tokens, served & good),
    }
    window = (cohort.start_s, cohort.end_s)
    return {
        name: rate_half_width(dates[members], amounts[members].astype(float), *window)
        for name, (dates, amounts, members) in events.items()
    }
