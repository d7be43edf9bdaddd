"""The hours of a year, grouped by their load: what a bill over the calendar is an average of."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from sim.scenario.schema import Scenario
from sim.scenario.year import year_plan
from sim.units import HOURS_PER_YEAR


@dataclass(frozen=True, slots=True)
class Calendar:
    """Hours of the year that prices are averaged over: all of them, or some of the day or the week more than others."""

    by_hour: tuple[float, ...] | None = None
    """24 weights, from midnight on, or 168, from Monday's midnight on; None: alike."""


YEAR = Calendar()


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours with the same load."""

    share: float
    """Of the year."""
    relative: float
    """Load over the mean of the year."""
    calendar: Calendar
    """When they are."""


def hours_of(scenario: Scenario) -> tuple[Hours, ...]:
    """The year of *scenario*: its `load_profile`, or all hours alike.

    A profile by the hour of the day keeps its hours; one that counts hours per year has them at any time.
    """
    return tuple(_hours(scenario)) or (Hours(1.0, 1.0, YEAR),)


def usual_load(scenario: Scenario, otherwise: float) -> float:
    """Mean load of the year's hours; *otherwise* where the scenario has no `load_profile`."""
    return _mean_load(scenario) or otherwise


def _mean_load(scenario: Scenario) -> float:
    plan = year_plan(scenario)
    return fsum(load * hours for load, hours, _ in plan.loads) / HOURS_PER_YEAR if plan is not None else 0.0


def _hours(scenario: Scenario) -> Iterator[Hours]:
    plan, mean = year_plan(scenario), _mean_load(scenario)
    if plan is None or not mean:
        return
    by_load: dict[float, list[tuple[float, int | None]]] = {}
    for load, hours, hour in plan.loads:
        if hours:
            by_load.setdefault(load, []).append((hours, hour))
    known = [hour for _, _, hour in plan.loads if hour is not None]
    for load, members in by_load.items():
        when = {hour for _, hour in members if hour is not None}
        calendar = Calendar(tuple(float(hour in when) for hour in known)) if when else YEAR
        yield Hours(fsum(hours for hours, _ in members) / HOURS_PER_YEAR, load / mean, calendar)
