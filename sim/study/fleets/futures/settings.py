"""What the draws come to: fleets side by side at every point of the sweep, quantiles, and what each input changes."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.infile import opened
from sim.study.cases.points import MANIFEST
from sim.study.fleets.futures.draws import MILLION, FleetDraws, FutureStudy, cheapest
from sim.study.fleets.futures.inputs import UncertainInput
from sim.study.fleets.run.point import Point
from sim.study.metrics.statistics import wilson

DISPUTES = "disputes"
"""Key of the manifest: settings where draws and central values name different fleets."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The fleets' outcomes at one point of the sweep."""

    axes: Mapping[str, Any]
    """Empty where nothing is swept."""
    outcomes: tuple[FleetDraws, ...]
    model: str = ""
    """Model that these fleets serve, where others serve another; empty: all fleets of the run."""

    def apart(self, models: Mapping[str, str]) -> list["Setting"]:
        """Return the settings whose fleets are ranked against each other: one for each of *models*, fleet -> model;
        without any this setting.
        """
        groups: dict[str, list[FleetDraws]] = {}
        for one in self.outcomes:
            groups.setdefault(models.get(one.fleet, ""), []).append(one)
        return [replace(self, outcomes=tuple(own), model=model) for model, own in groups.items()]

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
class Dispute:
    """Setting at which the draws favour another fleet than the central values do, on which verdicts rest."""

    axes: dict[str, Any]
    """Label of the axis -> value."""
    model: str
    """Model of the fleets that are compared; empty where all are."""
    fleets: int
    """Number of fleets that are compared."""
    central: str
    """Fleet with the least cost per output token at central values."""
    drawn: str
    """Fleet that is the cheapest in more draws than any other."""
    share: float
    """Fraction of the draws in which *drawn* alone is the cheapest [1]."""
    draws: int
    """Number of draws."""


def disputes_of(study: FutureStudy, points: Sequence[Point]) -> list[Dispute]:
    """Return the settings where draws and central values name different fleets, among those that a verdict compares:
    fleets that meet the SLO there for certain.
    """
    found = []
    for setting in settings_of(study):
        here = [point for point in points if setting.axes.items() <= point.axes.items()]
        sure = {point.fleet for point in here if point.sure}
        for rivals in setting.apart(study.models):
            fit = [one for one in rivals.outcomes if one.fleet in sure]
            if len(fit) > 1 and (dispute := _dispute(replace(rivals, outcomes=tuple(fit)), study.draws)) is not None:
                found.append(dispute)
    return found


def _dispute(rivals: Setting, draws: int) -> Dispute | None:
    wins, cost = cheapest(rivals.outcomes), {one.fleet: one.central[MILLION] for one in rivals.outcomes}
    drawn, central = max(wins, key=lambda fleet: wins[fleet]), min(cost, key=lambda fleet: cost[fleet])
    if wins[drawn] == wins[central] or cost[drawn] == cost[central]:
        return None
    return Dispute(dict(rivals.axes), rivals.model, len(wins), central, drawn, wins[drawn] / draws, draws)


def stored_disputes(folder: Path) -> list[Dispute]:
    """Return the disputes of the finished run in *folder*, from its manifest; empty where nothing was drawn."""
    try:
        with opened(folder / MANIFEST, "r", hidden=True, encoding="utf-8") as file:
            return [Dispute(**one) for one in json.load(file).get(DISPUTES, [])]
    except (OSError, ValueError, TypeError):
        return []


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
    """The difference of the first two fleets of each model, then every fleet; each with one input after the other."""
    ranked = [own.first_two for own in setting.apart(study.models)]
    pairs: list[tuple[str, FleetDraws, FleetDraws | None]] = [
        (f"{two[1].fleet} less {two[0].fleet}", two[1], two[0]) for two in ranked if two is not None
    ]
    pairs += [(one.fleet, one, None) for one in setting.outcomes]
    for name, one, less in pairs:
        for index, each in enumerate(study.inputs):
            yield Turned(name, each, {measure: _ends(index, measure, one, less) for measure in measures})


def _ends(index: int, measure: str, one: FleetDraws, less: FleetDraws | None) -> Ends:
    found = [float(one.low[measure][index]), float(one.high[measure][index]), one.central[measure]]
    taken = [0.0] * 3
    if less is not None:
        taken = [float(less.low[measure][index]), float(less.high[measure][index]), less.central[measure]]
    return Ends(*(value - other for value, other in zip(found, taken, strict=True)))
