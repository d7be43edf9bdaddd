"""What the `sensitivity` section cannot see by itself: whether its paths are numbers and its fleets are there."""

from collections.abc import Iterator

from sim.scenario.errors import Complaint, Place, did_you_mean
from sim.scenario.layers import descend, place_of
from sim.scenario.schema import Scenario
from sim.scenario.sweep import NOT_SWEPT, as_data, at_point

NO_INPUTS = ("sensitivity", "sweep", "seed", "breakeven", "plan", "futures", "load_profile")
"""Sections that say nothing of what is simulated and billed."""


def sensitivity_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Unknown fleets, one named twice, metrics without money; then the inputs."""
    asked = scenario.sensitivity
    if asked is None:
        return
    names = [fleet.name for fleet in scenario.fleets]
    for i, name in enumerate(asked.between or ()):
        if name not in names:
            yield Complaint(("sensitivity", "between", i), f"there is no fleet {name!r}{did_you_mean(name, names)}")
    if asked.between and asked.between[0] == asked.between[1]:
        yield Complaint(("sensitivity", "between"), "two different fleets are needed")
    yield from _input_complaints(scenario)


def _input_complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Paths of nothing or of no number, and values that the scenario does not allow there."""
    asked = scenario.sensitivity
    data = as_data(scenario)
    for path, ends in (asked.inputs or {}).items() if asked is not None else ():
        place: Place = ("sensitivity", "inputs", path)
        try:
            where = place_of(data, path)
        except LookupError as error:
            yield Complaint(place, str(error.args[0]))
            continue
        depth, now = descend(data, where)
        if path in NOT_SWEPT or where[0] in NO_INPUTS:
            yield Complaint(place, f"{path} is no input")
        elif depth < len(where):
            known = [str(key) for key in now] if isinstance(now, dict) else []
            yield Complaint(place, f"the scenario does not say it{did_you_mean(where[depth], known)}")
        elif isinstance(now, bool) or not isinstance(now, int | float):
            yield Complaint(place, "is no number in the scenario")
        elif isinstance(ends, tuple):
            yield from _range_complaints(scenario, path, place, ends)
        elif not allowed(scenario, path, around(scenario, path, now, ends.relative)):
            low, high = around(scenario, path, now, ends.relative)
            yield Complaint(place, f"{low:g} or {high:g} is not allowed there; give [low, high]")


def _range_complaints(scenario: Scenario, path: str, place: Place, ends: tuple[float, float]) -> Iterator[Complaint]:
    if ends[0] >= ends[1]:
        yield Complaint(place, f"low ({ends[0]:g}) must be below high ({ends[1]:g})")
        return
    for i, value in enumerate(ends):
        try:
            at_point(scenario, {path: value})
        except ValueError:
            yield Complaint((*place, i), f"{value:g} is not allowed there")


def around(scenario: Scenario, path: str, now: float, relative: float) -> tuple[float, float]:
    """So much less and more than *now*; whole numbers where nothing else is allowed."""
    low, high = now * (1 - relative), now * (1 + relative)
    if isinstance(now, int) and not allowed(scenario, path, (low, high)):
        return round(low), round(high)
    return low, high


def allowed(scenario: Scenario, path: str, values: tuple[float, float]) -> bool:
    """Whether the scenario may say either of *values* at *path*."""
    try:
        for value in values:
            at_point(scenario, {path: value})
    except ValueError:
        return False
    return True
