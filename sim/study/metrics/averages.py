"""Methods that average figures over the replications of a point, with intervals, for the columns of summary.csv."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, ClassVar, NamedTuple, Protocol

from sim.study.metrics.statistics import LEAST_FOR_INTERVAL, half_width, half_width_within, mean, ratio, share_interval
from sim.units import SECONDS_PER_HOUR

HOURS, UNITS, REVENUE = "window_h", "units", "revenue_usd"
TOKENS = ("output_tokens", "total_tokens", "good_output_tokens")
PER_MILLION, PER_THOUSAND = 1e6, 1e3


class ReplicationFigures(Protocol):
    """Figures of one replication by name, and those of each service where a fleet has several."""

    @property
    def services(self) -> Mapping[str, "ReplicationFigures"]:
        """Service -> its part of the figures."""

    def __getitem__(self, name: str) -> Any:
        """Return the figure *name*; None where the replication has none."""


Cases = Sequence[ReplicationFigures]


class AveragedFigure(NamedTuple):
    """Value over replications, with its 95 % interval."""

    value: Any
    half_width: float | None = None
    """Half the length of the 95 % interval; None where there is none."""
    ends: tuple[float, float] | None = None
    """Ends of an interval that is not symmetric about the value: the interval of a share."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95 % interval; None where there is none."""
        if self.ends is not None or self.half_width is None:
            return self.ends
        return self.value - self.half_width, self.value + self.half_width


NO_AVERAGE = AveragedFigure(None)


@dataclass(frozen=True, slots=True)
class Average:
    """Method to average figures over replications."""

    words: ClassVar[str] = "mean"
    """Name of the method, for the documentation."""
    has_interval: ClassVar[bool] = True
    """True if summary.csv has half of the 95 % interval beside the column."""

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names of the figures that the column *name* is computed from; by default *name* itself."""
        return (name,)

    def reads(self, name: str) -> tuple[str, ...] | None:
        """Return what `of` reads for the column *name*, of figures and of `batch_ci95`; None if it may read all."""
        return self.parts(name)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the value and interval of the column *name* over the replications *cases*, at least one."""
        raise NotImplementedError


def numbers(cases: Cases, name: str) -> list[float]:
    """Return the values of the figure *name*, of every replication that has it."""
    return [value for one in cases if (value := one[name]) is not None and not isnan(value)]


def within_runs(cases: Cases, name: str) -> float | None:
    """Return the half-width of the mean of *name* by batch means inside each run; None where a run has none."""
    return half_width_within([(one["batch_ci95"] or {}).get(name) for one in cases])


@dataclass(frozen=True, slots=True)
class Mean(Average):
    """Mean of the replications that have the figure; the interval of one or two runs is that of batch means."""

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the mean and its interval. Equal values are returned unchanged, so that whole numbers stay whole."""
        values = numbers(cases, name)
        if not values:
            return NO_AVERAGE
        same = all(value == values[0] for value in values)
        half = half_width(values) if len(cases) >= LEAST_FOR_INTERVAL else within_runs(cases, name)
        return AveragedFigure(values[0] if same else mean(values), half)


@dataclass(frozen=True, slots=True)
class MeanShare(Mean):
    """Mean of shares; the interval stays within 0 and 1."""

    draws: str = ""
    """Figure that counts the observations of the share; empty for a share of time or memory."""

    def reads(self, name: str) -> tuple[str, ...]:
        """Return the names of the share and of its count of observations."""
        return (name, self.draws)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the mean share, half the length of its interval, and the interval's ends."""
        value, half, _ = super(MeanShare, self).of(name, cases)
        draws = sum(int(one[self.draws] or 0) for one in cases) if self.draws else None
        ends = None if value is None else share_interval(value, half, draws)
        return AveragedFigure(value) if ends is None else AveragedFigure(value, (ends[1] - ends[0]) / 2, ends)


class PlannedMean(Mean):
    """Mean of a figure that the plan fixes: equal in every replication."""

    words = "the same in every replication"
    has_interval = False


PLANNED_MEAN = PlannedMean()


@dataclass(frozen=True, slots=True)
class Ratio(Average):
    """Ratio of the sum of the figures *tops* to the sum of the figure *bottom*, over all replications.

    Tokens are counted in millions, a service's units of work in thousands.

    Notes
    -----
    With fewer than LEAST_FOR_INTERVAL replications, the interval of a cost per token comes from batch means.

    """

    tops: tuple[str, ...]
    bottom: str
    words: ClassVar[str] = "ratio of sums"

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names of the figures in the numerator and the denominator."""
        return (*self.tops, self.bottom)

    def reads(self, name: str) -> tuple[str, ...]:
        """Return the names of the parts and of all that `_within_runs` reads."""
        return (*self.parts(name), f"{self.bottom}_per_s", HOURS)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the ratio and its interval; empty where one replication lacks a figure."""
        amounts = [amount for one in cases if (amount := self.top(one)) is not None]
        if len(amounts) < len(cases) or any(one[self.bottom] is None for one in cases):
            return NO_AVERAGE
        value, half = ratio(amounts, [self.below(one) for one in cases])
        if len(cases) < LEAST_FOR_INTERVAL and self.bottom in TOKENS:
            half = self._within_runs(cases, value)
        return AveragedFigure(value, half)

    def top(self, case: ReplicationFigures) -> float | None:
        """Return the numerator of one replication; None where it lacks a figure."""
        amounts = [case[top] for top in self.tops]
        return None if any(amount is None for amount in amounts) else sum(map(float, amounts))

    def below(self, case: ReplicationFigures) -> float:
        """Return the denominator of one replication: hours, USD of revenue, thousands of units, millions of tokens."""
        amount: float = case[self.bottom]
        if self.bottom == UNITS:
            return amount / PER_THOUSAND
        return amount if self.bottom in (HOURS, REVENUE) else amount / PER_MILLION

    def _within_runs(self, cases: Cases, value: float) -> float | None:
        """Return the half-width from those of the token rates of each run, as if cost accrued evenly over time.

        The result is rather too wide than too narrow, because energy grows with the tokens.
        """
        rates = [(one["batch_ci95"] or {}).get(f"{self.bottom}_per_s") for one in cases]
        seconds = [one["window_h"] * SECONDS_PER_HOUR for one in cases]
        half = half_width_within([rate and rate * span for rate, span in zip(rates, seconds, strict=True)])
        made = sum(one[self.bottom] for one in cases)
        return value * half * len(cases) / made if half and made else None


@dataclass(frozen=True, slots=True)
class MeanRate(Average):
    """Mean over replications of the figure *top* per hour of the window, times *factor*."""

    top: str
    factor: float = 1.0

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the names of the figures in the numerator and the denominator."""
        return (self.top, HOURS)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the mean rate and its interval; empty where one replication lacks the figure."""
        if any(one[self.top] is None for one in cases):
            return NO_AVERAGE
        rates = [self.factor * ratio([float(one[self.top])], [float(one[HOURS])])[0] for one in cases]
        return AveragedFigure(mean(rates), half_width(rates))


@dataclass(frozen=True, slots=True)
class FirstReplication(Average):
    """Figure of the first replication, for values that do not depend on chance."""

    words: ClassVar[str] = "the same in every replication"
    has_interval: ClassVar[bool] = False

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the figure *name* of the first replication."""
        return AveragedFigure(cases[0][name])


@dataclass(frozen=True, slots=True)
class Mode(Average):
    """Most frequent value among the replications."""

    words: ClassVar[str] = "the most frequent"
    has_interval: ClassVar[bool] = False

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the most frequent value of the figure *name*; the first one where several are equally frequent."""
        return AveragedFigure(Counter(one[name] or "" for one in cases).most_common(1)[0][0])


@dataclass(frozen=True, slots=True)
class Aggregate(Average):
    """Function of all replications together."""

    function: Callable[[Cases], Any]
    words: ClassVar[str] = "over all replications"
    has_interval: ClassVar[bool] = False

    def parts(self, name: str) -> tuple[str, ...]:
        """Return no names: the function reads the replications itself."""
        return ()

    def reads(self, name: str) -> None:
        """Return None: the function may read all figures."""

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the value of the function over *cases*."""
        return AveragedFigure(self.function(cases))


JUDGED = Aggregate(lambda cases: None)
"""Column that `sim.study.points` fills, because it depends on the service level."""
