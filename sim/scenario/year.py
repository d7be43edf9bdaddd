"""Hours of a year with a load profile: their loads, the loads to simulate for them, and their weights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, fsum

from sim.scenario.reading.layers import place_of
from sim.scenario.schema import Scenario
from sim.scenario.sections.load_profile import CLIENTS, RATE, loads_of
from sim.scenario.sweep import as_data, at_point, axis_labels, points
from sim.units import HOURS_PER_WEEK, HOURS_PER_YEAR
from sim.validation import dotted

MOST_SIMULATED = 12
"""Most loads of a profile that are simulated; others are interpolated linearly."""
SAME = 1e-12
"""Relative difference below which two loads are considered equal."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Hours of the year over which prices are averaged, with optional weights by hour of the day or week."""

    by_hour: tuple[float, ...] | None = None
    """Weights of 24 hours from midnight on, or of 168 hours from Monday's midnight on; None: equal weights."""

    def mean(self, prices: Sequence[float]) -> float:
        """Return the weighted mean of *prices*, 24 of a day or 168 of a week, over these hours."""
        if self.by_hour is None:
            return fsum(prices) / len(prices)
        return fsum(map(float.__mul__, self.by_hour, map(float, prices))) / fsum(self.by_hour)


YEAR = Calendar()


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the year with the same load."""

    share: float
    """Fraction of the year [1]."""
    relative: float
    """Load over the mean load of the year [1]."""
    calendar: Calendar
    """Hours of the day or the week at which the load occurs."""


ALL_HOURS = (Hours(1.0, 1.0, YEAR),)
"""Hours of a year with a steady load."""


@dataclass(frozen=True, slots=True)
class YearPlan:
    """Loads of a year, with the hours at which they occur."""

    loads: tuple[tuple[float, float, int | None], ...]
    """Triples (load, hours per year, hour of the day or week or None where unknown); a load is in requests per second,
    or clients of a closed loop."""
    axis: str | None
    """Label of the swept load; None where one load stands for all."""
    clients: bool = False
    """True if loads are numbers of clients of a closed loop."""
    of_week: bool = False
    """True if hours are hours of the week, from Monday on, rather than of the day."""

    @property
    def peak(self) -> float:
        """The highest load with any hours."""
        return max(load for load, hours, _ in self.loads if hours)

    @property
    def mean(self) -> float:
        """Mean load over all hours of the year."""
        return fsum(load * hours for load, hours, _ in self.loads) / HOURS_PER_YEAR

    @property
    def idle_hours(self) -> float:
        """Hours of the year in which no requests arrive."""
        return fsum(hours for load, hours, _ in self.loads if not load)

    @property
    def working_hours(self) -> float:
        """Hours of the year in which requests arrive."""
        return fsum(hours for load, hours, _ in self.loads if load)

    @property
    def simulated(self) -> list[float]:
        """Loads to simulate; clients come in whole numbers."""
        loads = spread({load for load, hours, _ in self.loads if hours and load})
        if not self.clients:
            return loads
        return sorted({max(1, side(load)) for load in loads for side in (floor, ceil)})

    @property
    def hours(self) -> tuple[Hours, ...]:
        """Hours of the year, grouped by load.

        A profile by the hour of the day keeps its hours; one that counts hours per year has them at any time.
        """
        return tuple(self._hours())

    def _hours(self) -> Iterator[Hours]:
        by_load: dict[float, list[tuple[float, int | None]]] = {}
        for load, hours, hour in self.loads:
            if hours:
                by_load.setdefault(load, []).append((hours, hour))
        known = [hour for _, _, hour in self.loads if hour is not None]
        for load, members in by_load.items():
            when = {hour for _, hour in members if hour is not None}
            calendar = Calendar(tuple(float(hour in when) for hour in known)) if when else YEAR
            yield Hours(fsum(hours for hours, _ in members) / HOURS_PER_YEAR, load / self.mean, calendar)


def year_plan(scenario: Scenario) -> YearPlan | None:
    """Return the loads of a scenario's year; None without a load profile."""
    if scenario.load_profile is None:
        return None
    data = as_data(scenario)
    labels = axis_labels(path for point in points(scenario.sweep) for path in point)
    clients = scenario.workload.closed_loop() is not None
    place = CLIENTS if clients else RATE
    axis = next((label for path, label in labels.items() if place_of(data, path) == place), None)
    of_week = len(scenario.load_profile) == HOURS_PER_WEEK and not isinstance(scenario.load_profile, dict)
    return YearPlan(loads_of(scenario.load_profile), axis, clients, of_week)


def at_peak(scenario: Scenario) -> Scenario:
    """Return *scenario* at the highest load of its `load_profile`; without a profile at its own load."""
    plan = year_plan(scenario)
    if plan is None:
        return scenario
    place, load = (CLIENTS, ceil(plan.peak)) if plan.clients else (RATE, plan.peak)
    return at_point(scenario, {dotted(place): load})


def hours_of(scenario: Scenario) -> tuple[Hours, ...]:
    """Return the hours of the scenario's year: those of its `load_profile`, or all hours alike."""
    plan = year_plan(scenario)
    return ALL_HOURS if plan is None else plan.hours


def usual_load(scenario: Scenario, otherwise: float) -> float:
    """Return the mean load over the year; *otherwise* where the scenario has no `load_profile`."""
    plan = year_plan(scenario)
    return otherwise if plan is None else plan.mean


def load_by_hour(scenario: Scenario) -> tuple[float, ...] | None:
    """Return the load of each hour of the day or week, where `load_profile` states it by the hour; else None.

    The loads weight the price of energy over a year in which one simulated load stands for all hours.
    """
    plan = year_plan(scenario)
    if plan is None or any(hour is None for _, _, hour in plan.loads):
        return None
    loads = tuple(load for load, _, _ in plan.loads)
    return loads if any(loads) else None


def peak_to_mean(hours: Sequence[Hours]) -> float:
    """Return the highest load of *hours* over the mean load."""
    return max(one.relative for one in hours)


def loads_within(hours: Sequence[Hours], mean: float) -> list[float]:
    """Return the loads to simulate for *hours* of a year with the load *mean*, idle hours left out."""
    return spread({one.relative * mean for one in hours if one.relative})


def spread(loads: set[float]) -> list[float]:
    """Return *loads* in ascending order, thinned out evenly to MOST_SIMULATED of them, both ends included."""
    ordered = sorted(loads)
    last = len(ordered) - 1
    if last < MOST_SIMULATED:
        return ordered
    return [ordered[round(place * last / (MOST_SIMULATED - 1))] for place in range(MOST_SIMULATED)]


def around(known: Sequence[float], load: float) -> list[tuple[float, float]]:
    """Return the *known* loads on both sides of *load*, with their weights for linear interpolation.

    *known* is in ascending order. A load that is known is returned alone. Beyond the ends, the line through the nearest
    two loads is extrapolated.
    """
    same = next((one for one in known if abs(one - load) <= SAME * abs(load)), None)
    if same is not None or len(known) == 1:
        return [(known[0] if same is None else same, 1.0)]
    right = min(max(1, sum(one < load for one in known)), len(known) - 1)
    low, high = known[right - 1], known[right]
    part = (load - low) / (high - low)
    return [(low, 1 - part), (high, part)]


def parts_of_year(hours: Sequence[Hours], known: Sequence[float], mean: float) -> dict[tuple[float, Calendar], float]:
    """Return the parts of a year: (simulated load, hours at which it occurs) -> fraction of the year.

    The year has the mean load *mean*, and the loads *known* are simulated, 0 for the idle fleet among them. An hour at
    a load between two of them is interpolated linearly. `run`, `breakeven`, `plan`, `size` and the workspace bill these
    parts, each hour at its own price.
    """
    parts: dict[tuple[float, Calendar], float] = {}
    for one in hours:
        for at, weight in around(known, one.relative * mean):
            parts[at, one.calendar] = parts.get((at, one.calendar), 0.0) + one.share * weight
    return parts
