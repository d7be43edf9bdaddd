"""How a column of summary.csv comes from the replications of a point: a value and half of its 95 % interval."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, ClassVar, NamedTuple, Protocol

from sim.study.metrics.statistics import LEAST_FOR_INTERVAL, half_width, half_width_within, mean, ratio, share_interval
from sim.units import SECONDS_PER_HOUR

HOURS, UNITS = "window_h", "units"
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
    """A value over replications."""

    value: Any
    half_width: float | None = None
    """Half the length of the 95 % interval; None where there is none."""
    ends: tuple[float, float] | None = None
    """Ends of an interval that the value is not the middle of: that of a share."""

    @property
    def interval(self) -> tuple[float, float] | None:
        """Ends of the 95 % interval; None where there is none."""
        if self.ends is not None or self.half_width is None:
            return self.ends
        return self.value - self.half_width, self.value + self.half_width


NOTHING = AveragedFigure(None)


@dataclass(frozen=True, slots=True)
class Average:
    """Method to average figures over replications."""

    words: ClassVar[str] = "mean"
    """Name of the method, for the documentation."""
    has_interval: ClassVar[bool] = True
    """Whether summary.csv has half of the 95 % interval beside the column."""

    def parts(self, name: str) -> tuple[str, ...]:
        """Return the figures of a case that the column *name* rests on: that of the same name."""
        return (name,)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Return the column *name* over the replications *cases*, at least one."""
        raise NotImplementedError


def numbers(cases: Cases, name: str) -> list[float]:
    """The figure in every replication that has it."""
    return [value for one in cases if (value := one[name]) is not None and not isnan(value)]


def within_runs(cases: Cases, name: str) -> float | None:
    """Half-width of the mean of *name* by batch means inside each run; None where a run has none."""
    return half_width_within([(one["batch_ci95"] or {}).get(name) for one in cases])


@dataclass(frozen=True, slots=True)
class Mean(Average):
    """The mean of the replications that have it; of one or two runs the interval by batch means."""

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Equal values stay what they are, whole numbers too."""
        values = numbers(cases, name)
        if not values:
            return NOTHING
        same = all(value == values[0] for value in values)
        half = half_width(values) if len(cases) >= LEAST_FOR_INTERVAL else within_runs(cases, name)
        return AveragedFigure(values[0] if same else mean(values), half)


@dataclass(frozen=True, slots=True)
class MeanShare(Mean):
    """The mean of shares; the interval stays within 0 and 1."""

    draws: str = ""
    """Figure that counts what it is a share of; empty for a share of time or memory."""

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Half the length of the interval, and its ends."""
        value, half, _ = super(MeanShare, self).of(name, cases)
        draws = sum(int(one[self.draws] or 0) for one in cases) if self.draws else None
        ends = None if value is None else share_interval(value, half, draws)
        return AveragedFigure(value) if ends is None else AveragedFigure(value, (ends[1] - ends[0]) / 2, ends)


class PlannedMean(Mean):
    """Mean of what a plan sets."""

    words = "the same in every replication"
    has_interval = False


PLANNED = PlannedMean()


@dataclass(frozen=True, slots=True)
class Ratio(Average):
    """The sum of the figures *tops* over that of *bottom*, over all replications.

    Tokens count in millions, a service's units of work in thousands.
    """

    tops: tuple[str, ...]
    bottom: str
    words: ClassVar[str] = "ratio of sums"

    def parts(self, name: str) -> tuple[str, ...]:
        """What is divided, and by what."""
        return (*self.tops, self.bottom)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Nothing where one replication lacks a part."""
        amounts = [amount for one in cases if (amount := self.top(one)) is not None]
        if len(amounts) < len(cases) or any(one[self.bottom] is None for one in cases):
            return NOTHING
        value, half = ratio(amounts, [self.below(one) for one in cases])
        if len(cases) < LEAST_FOR_INTERVAL and self.bottom in TOKENS:
            half = self._within_runs(cases, value)
        return AveragedFigure(value, half)

    def top(self, case: ReplicationFigures) -> float | None:
        """What is divided, of one replication; None where it lacks a part."""
        amounts = [case[top] for top in self.tops]
        return None if any(amount is None for amount in amounts) else sum(map(float, amounts))

    def below(self, case: ReplicationFigures) -> float:
        """What it is divided by: hours, thousands of units of work, or millions of tokens."""
        amount: float = case[self.bottom]
        if self.bottom == UNITS:
            return amount / PER_THOUSAND
        return amount if self.bottom == HOURS else amount / PER_MILLION

    def _within_runs(self, cases: Cases, value: float) -> float | None:
        """Half-width from those of the tokens' rates, as if cost ran evenly.

        Too wide rather than too narrow: energy grows with the tokens.
        """
        rates = [(one["batch_ci95"] or {}).get(f"{self.bottom}_per_s") for one in cases]
        seconds = [one["window_h"] * SECONDS_PER_HOUR for one in cases]
        half = half_width_within([rate and rate * span for rate, span in zip(rates, seconds, strict=True)])
        made = sum(one[self.bottom] for one in cases)
        return value * half * len(cases) / made if half and made else None


@dataclass(frozen=True, slots=True)
class MeanRate(Average):
    """The mean over replications of the figure *top* over the hours of the window, times *factor*."""

    top: str
    factor: float = 1.0

    def parts(self, name: str) -> tuple[str, ...]:
        """What is divided, and by what."""
        return (self.top, HOURS)

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Nothing where one replication lacks it."""
        if any(one[self.top] is None for one in cases):
            return NOTHING
        rates = [self.factor * ratio([float(one[self.top])], [float(one[HOURS])])[0] for one in cases]
        return AveragedFigure(mean(rates), half_width(rates))


@dataclass(frozen=True, slots=True)
class FirstReplication(Average):
    """The figure of the first replication: what does not depend on chance."""

    words: ClassVar[str] = "the same in every replication"
    has_interval: ClassVar[bool] = False

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Of the first."""
        return AveragedFigure(cases[0][name])


@dataclass(frozen=True, slots=True)
class Mode(Average):
    """What most replications say."""

    words: ClassVar[str] = "the most frequent"
    has_interval: ClassVar[bool] = False

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Of equally many the first."""
        return AveragedFigure(Counter(one[name] or "" for one in cases).most_common(1)[0][0])


@dataclass(frozen=True, slots=True)
class Aggregate(Average):
    """A function of all replications together."""

    function: Callable[[Cases], Any]
    words: ClassVar[str] = "over all replications"
    has_interval: ClassVar[bool] = False

    def parts(self, name: str) -> tuple[str, ...]:
        """None that have a name of their own."""
        return ()

    def of(self, name: str, cases: Cases) -> AveragedFigure:
        """Whatever the function says."""
        return AveragedFigure(self.function(cases))


JUDGED = Aggregate(lambda cases: None)
"""Column that `sim.study.points` fills: it knows the service level."""
