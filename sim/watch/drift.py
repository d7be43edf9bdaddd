"""Drift of a server from its prediction: logarithms of observed over predicted values, and a CUSUM alarm on them.

After REFERENCE hours the logarithms are standardised by their mean and their standard deviation, which is widened for
autocorrelation and at least SMALLEST_SD. Their cumulative sums in both directions raise an alarm at a threshold from
Siegmund's approximation of the run length, so that all sums together raise FALSE_ALARMS_PER_WEEK false alarms a week if
the logarithms are normal and their reference is exact.

References
----------
E. S. Page, "Continuous inspection schemes", Biometrika 41, 1954; D. Siegmund, "Sequential Analysis", 1985, eq. 2.65.

"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, log, sqrt

import numpy as np
from scipy.optimize import brentq

from sim.units import HOURS_PER_WEEK

REFERENCE = 72
"""Hours from which mean and standard deviation are estimated: three days, with their busy and their quiet hours."""
ALLOWANCE = 1.0
"""Shift that is subtracted in each hour, in standard deviations: shifts of twice this size are found fastest."""
OUTLIER = 4.0
"""Largest standardised value of one hour: a single odd hour raises no alarm."""
SMALLEST_SD = 0.02
"""Smallest standard deviation of the logarithm: smaller changes are of no interest."""
FALSE_ALARMS_PER_WEEK = 0.002
"""False alarms per week of all sums together, for normal logarithms and an exact reference."""
OVERSHOOT = 1.166
"""Mean excess of the sum over its threshold, in standard deviations (Siegmund)."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Change of the ratio of observed to predicted values of one metric."""

    metric: str
    since: int
    """First hour of the change by the cumulative sum [Unix s]."""
    raised: int
    """Hour at whose end the sum passed its threshold [Unix s]."""
    ratio: float
    """Mean ratio since `since` over that of the reference."""


@dataclass(frozen=True, slots=True)
class DriftState:
    """State of the comparison of one metric."""

    metric: str
    hours: int
    """Compared hours since the reference began."""
    reference: float | None
    """Geometric mean of observed over predicted in the reference; None until it is complete."""
    spread: float | None
    """Standard deviation of the logarithm that the sums use."""
    level: float
    """Larger of the two sums over its threshold [1]."""
    alarm: Alarm | None = None


def threshold(sums: int) -> float:
    """Return the threshold of each of *sums* cumulative sums [standard deviations].

    >>> round(threshold(4), 2)
    5.54
    """
    run_length = HOURS_PER_WEEK * sums / FALSE_ALARMS_PER_WEEK

    def excess(bound: float) -> float:
        reach = 2 * ALLOWANCE * (bound + OVERSHOOT)
        return float((exp(reach) - reach - 1) / (2 * ALLOWANCE**2) - run_length)

    return float(brentq(excess, 0.0, 40.0))


def drift_of(metric: str, hours: Sequence[int], ratios: Sequence[float | None], limit: float) -> DriftState:
    """Return the state of *metric* after the last of *hours*, with its first alarm.

    Parameters
    ----------
    metric
        Name of the metric.
    hours
        Starts of the hours, in order [Unix s].
    ratios
        Observed over predicted in each hour; None where it is not known.
    limit
        Threshold of the sums, as `threshold` returns it.

    """
    pairs = [(hour, log(ratio)) for hour, ratio in zip(hours, ratios, strict=True) if ratio and isfinite(ratio)]
    if len(pairs) < REFERENCE:
        return DriftState(metric, len(pairs), None, None, 0.0)
    first = np.array([value for _, value in pairs[:REFERENCE]])
    mean, spread = float(first.mean()), _spread(first)
    sums, begun = [0.0, 0.0], [0, 0]
    for place, (hour, value) in enumerate(pairs[REFERENCE:], REFERENCE):
        shift = min(OUTLIER, max(-OUTLIER, (value - mean) / spread))
        for side, sign in enumerate((1, -1)):
            if sums[side] == 0.0:
                begun[side] = place
            sums[side] = max(0.0, sums[side] + sign * shift - ALLOWANCE)
            if sums[side] > limit:
                since = [value for _, value in pairs[begun[side] : place + 1]]
                alarm = Alarm(metric, pairs[begun[side]][0], hour, exp(sum(since) / len(since) - mean))
                return DriftState(metric, len(pairs), exp(mean), spread, 1.0, alarm)
    return DriftState(metric, len(pairs), exp(mean), spread, max(sums) / limit)


def _spread(values: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    """Return the standard deviation that makes sums of *values* as variable as independent ones."""
    centred = values - values.mean()
    variance = float((centred**2).sum() / (len(values) - 1))
    if variance <= SMALLEST_SD**2:
        return SMALLEST_SD
    kept = float((centred[1:] * centred[:-1]).sum() / (centred**2).sum())
    kept = min(0.9, max(0.0, kept))
    return max(SMALLEST_SD, sqrt(variance * (1 + kept) / (1 - kept)))
