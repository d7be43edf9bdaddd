"""What the draws come to: fleets side by side at every point of the sweep, quantiles, and what each input changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sim.study.fleets.futures.draws import MILLION, FleetDraws, FutureStudy, cheapest
from sim.study.fleets.futures.inputs import UncertainInput
from sim.study.metrics.statistics import wilson


@dataclass(frozen=True, slots=True)
class Setting:
    """The fleets' outcomes at one point of the sweep."""

    axes: Mapping[str, Any]
    """Empty where nothing is swept."""
    outcomes: tuple[FleetDraws, ...]

    @property
    def first_two(self) -> tuple[FleetDraws, FleetDraws] | None:
        """The cheapest and the second with all inputs central; None of fewer than two fleets."""
        ranked = sorted(self.outcomes, key=lambda one: one.central[MILLION])
        return (ranked[0], ranked[1]) if len(ranked) > 1 else None


def settings_of(study: FutureStudy) -> list[Setting]:
    """All of them, in the order of the sweep."""
    groups: dict[str, list[FleetDraws]] = {}
    for one in study.outcomes:
        groups.setdefault(repr(one.axes), []).append(one)
    return [Setting(found[0].axes, tuple(found)) for found in groups.values()]


@dataclass(frozen=True, slots=True)
class Share:
    """In which share of the draws a fleet is the cheapest, with the 95 % interval of the draws."""

    value: float
    low: float
    high: float


def cheapest_share(setting: Setting, fleet: str, draws: int) -> Share:
    """Of *fleet* among those of *setting*."""
    wins = cheapest(setting.outcomes)[fleet]
    return Share(wins / draws, *wilson(wins, draws))


@dataclass(frozen=True, slots=True)
class Spread:
    """One measure of one fleet over the draws."""

    central: float
    mean: float
    sd: float | None
    """None where a draw is infinite."""
    quantiles: tuple[float, ...]


def spread_of(one: FleetDraws, measure: str, shares: Sequence[float]) -> Spread:
    """The *measure* of a fleet, with its quantiles at *shares*."""
    values = one.draws[measure]
    sd = float(values.std()) if np.isfinite(values).all() else None
    quantiles = tuple(float(value) for value in np.quantile(values, shares))
    return Spread(one.central[measure], float(values.mean()), sd, quantiles)


@dataclass(frozen=True, slots=True)
class Ends:
    """A measure with one input at its 10 % and at its 90 % quantile, the others central, and with all central."""

    low: float
    high: float
    central: float


@dataclass(frozen=True, slots=True)
class Turned:
    """What one input changes by itself: of one fleet, or of the second less the first."""

    of: str
    input: UncertainInput
    measures: Mapping[str, Ends]


def turned(study: FutureStudy, setting: Setting, measures: Sequence[str]) -> Iterator[Turned]:
    """The difference of the first two fleets, then every fleet; each with one input after the other."""
    pairs: list[tuple[str, FleetDraws, FleetDraws | None]] = [(one.fleet, one, None) for one in setting.outcomes]
    if setting.first_two is not None:
        first, second = setting.first_two
        pairs.insert(0, (f"{second.fleet} less {first.fleet}", second, first))
    for name, one, less in pairs:
        for index, each in enumerate(study.inputs):
            yield Turned(name, each, {measure: _ends(index, measure, one, less) for measure in measures})


def _ends(index: int, measure: str, one: FleetDraws, less: FleetDraws | None) -> Ends:
    found = [float(one.low[measure][index]), float(one.high[measure][index]), one.central[measure]]
    taken = [0.0] * 3
    if less is not None:
        taken = [float(less.low[measure][index]), float(less.high[measure][index]), less.central[measure]]
    return Ends(*(value - other for value, other in zip(found, taken, strict=True)))
