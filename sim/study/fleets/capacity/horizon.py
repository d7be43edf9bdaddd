"""The horizon of a search for a capacity: doubled until the capacity of a run no longer changes with it.

A short window ends before the queue has built up, and it meets bursts too rarely, so its capacity is too high. The
change of a run's capacity from one horizon to the next, on the same requests, shows both this bias and the noise.

Where *k* equal parts make up the longer window, and its capacity is the mean of theirs, the change from the first part
to the whole has the variance (k - 1) sigma^2, with sigma^2 the variance of the longer run's capacity. A bias that falls
with 1/horizon changes by (k - 1) times what is left of it.

Source: W. Whitt, "The efficiency of one long run versus independent replications in steady-state simulation",
Management Science 37(6), 1991 (few long runs rather than many runs that are short against the relaxation time).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log, log2, log10, sqrt

from sim.scenario.schema import Scenario
from sim.scenario.sections.precision import Precision
from sim.scenario.sections.slo import HIGHEST_PERCENT, Slo

MOST_REQUESTS = 20_000
"""Requests in the window of one run at its capacity, beyond which no horizon is lengthened."""
LEAST_IN_TAIL = 25
"""Requests beyond the percentile, or outside the SLO, that a window must have room for."""
WARMUP = 0.1
"""Share of a lengthened horizon that is not measured, at least."""
SINGLE_RUN = 0.7
"""Largest change of a run's capacity with its horizon, over the precision asked for: with five runs that vary by more,
replications would have to be added that are all too short.
"""
FINEST, COARSEST = 0.05, 0.1
"""Precision beyond which the horizon is judged no more strictly, and no less: what is left of the bias grows with the
square of the change.
"""
LONGEST_STRIDE = 8
"""Factor by which a horizon is lengthened at once, at most."""


@dataclass(frozen=True, slots=True)
class HorizonCheck:
    """Change of the capacity of one run of a fleet with its horizon, as fractions of the capacity."""

    horizon_s: float
    change: float
    """Standard deviation of the capacity of one run of this horizon, its bias included; inf where it is not known."""
    bias: float
    """Change of the capacity up to an endless horizon, extrapolated from the last lengthening."""
    allowed: float
    """Largest `change` with which the capacity stands."""
    requests: float | None
    """Requests in the window at capacity, mean over the runs; None where no load meets the SLO."""
    least_requests: int
    """Requests that the window needs to show a share of the SLO's size."""

    @property
    def stands(self) -> bool:
        """Whether a longer horizon would give the same capacity, within the capacity's interval."""
        enough = self.requests is None or self.requests >= self.least_requests
        return self.change <= self.allowed and enough

    @property
    def _short_by(self) -> float:
        """Requests that the window needs over those in it [1]."""
        return self.least_requests / self.requests if self.requests else float(LONGEST_STRIDE)

    @property
    def stride(self) -> int:
        """Factor to lengthen the horizon by: what noise that falls with its root asks for, a power of two."""
        factor = self._short_by
        if isfinite(self.change) and self.allowed:
            factor = max(factor, (self.change / self.allowed) ** 2)
        return int(min(LONGEST_STRIDE, max(2, 2 ** ceil(log2(max(factor, 1.0)) - 0.5))))

    @property
    def needed_s(self) -> float:
        """Horizon at which the capacity would stand, to two digits [s]."""
        changes = (self.change / self.allowed) ** 2 if isfinite(self.change) and self.allowed else 0.0
        longer_s = self.horizon_s * max(2.0, changes, self._short_by)
        digits = 10 ** (int(log10(longer_s)) - 1)
        return float(ceil(longer_s / digits) * digits)


Runs = Sequence[tuple[float, Sequence[float]]]
"""(horizon [s], capacity of every run), from the shortest horizon on."""


def horizon_check(
    runs: Runs, requests: float | None, levels: Sequence[Slo], tolerance: float, random: bool
) -> HorizonCheck:
    """Judge the longest of the horizons in *runs*, with *requests* in its window, by the SLOs *levels*.

    The capacity stands if one run changes by at most the fraction *tolerance*, by less where there are so few runs that
    their mean is no better known; a fleet without chance has nothing but its bias.
    """
    (horizon_s, last), changes = runs[-1], []
    for (shorter_s, before), (longer_s, after) in list(pairwise(runs))[-2:]:
        parts = longer_s / shorter_s
        scale = longer_s / horizon_s / (parts - 1)
        changes.append([scale * _change(one, other) ** 2 for one, other in zip(before, after, strict=False)])
    squares = [square for level in changes for square in level]
    few = random and len(squares) < 2
    change = inf if few or not squares else sqrt(sum(squares) / len(squares))
    bias = inf
    if changes:
        (shorter_s, before), (longer_s, after) = runs[-2:]
        moved = [_change(one, other) for one, other in zip(before, after, strict=False)]
        bias = abs(sum(moved) / len(moved)) / (longer_s / shorter_s - 1) if all(map(isfinite, moved)) else inf
    allowed = tolerance
    if random:
        allowed = SINGLE_RUN * min(max(tolerance, FINEST), COARSEST) * min(1.0, sqrt(len(last)) / 2)
    share = max((goal.share for level in levels for goal in level.goals), default=0.0)
    least = round(LEAST_IN_TAIL / (1 - min(share, HIGHEST_PERCENT / 100))) if random else 0
    return HorizonCheck(horizon_s, change, bias, allowed, requests, least)


def _change(before: float, after: float) -> float:
    """Return the logarithm of *after* over *before*: 0 where both are 0 or both infinite, inf where one is."""
    if before == after:
        return 0.0
    if not before or not after or inf in (before, after):
        return inf
    return log(after / before)


def can_be_lengthened(scenario: Scenario) -> bool:
    """Return whether a longer horizon shows more of the same: not for a trace, a burst, a profile or a schedule."""
    workload = scenario.workload
    scheduled = any(pool.schedule is not None for fleet in scenario.fleets for pool in fleet.pools)
    return scenario.horizon_s is not None and workload.stationary and workload.needs_horizon and not scheduled


def at_horizon(scenario: Scenario, horizon_s: float | None) -> Scenario:
    """Return *scenario* with another horizon, and a warm-up that grows and shrinks with it."""
    if horizon_s is None or horizon_s == scenario.horizon_s:
        return scenario
    assert scenario.horizon_s is not None
    warmup = scenario.warmup_s
    if warmup != "auto":
        share = warmup / scenario.horizon_s
        warmup = horizon_s * (share if horizon_s < scenario.horizon_s else max(share, WARMUP))
    return scenario.model_copy(update={"horizon_s": horizon_s, "warmup_s": warmup})


def longest_s(scenario: Scenario, precision: Precision | None, horizon_s: float, requests: float) -> float:
    """Return the longest horizon allowed [s], where one of *horizon_s* has *requests* in its window at capacity."""
    assert scenario.horizon_s is not None
    if precision is not None and precision.max_horizon_s is not None:
        return precision.max_horizon_s
    return max(scenario.horizon_s, horizon_s * MOST_REQUESTS / max(requests, 1.0))
